//! What is measured, from the command line to machine code.

use anyhow::{Context, anyhow};
use lab::measure::bracket::Body;
use lab::measure::image::{LoadError, LoadedFile};
use lbr_msr::text::AsText;
use profile::symbols::{Called, demangle};

use super::{TimeArgs, assemble};
use crate::exit::{FAILED, Failure, OrExit, USAGE};
use crate::input;

/// No assembly is longer, bytes.
const LONGEST: u64 = 16 << 20;

/// The code, and what it belongs to.
#[derive(Debug)]
pub(super) struct Code {
    /// What goes into the bracket.
    pub(super) body: Body,
    /// The file that a function lies in.
    pub(super) image: Option<LoadedFile>,
    /// What it is, in a few words.
    pub(super) title: String,
}

impl Code {
    /// Assembles, reads digits, or loads a file.
    pub(super) fn new(args: &TimeArgs) -> Result<Code, Failure> {
        let init = match &args.init {
            Some(init) => assemble::assemble(init, args.att, "--init").or_exit(USAGE)?,
            None => Vec::new(),
        };
        let mut body = Body { init, unroll: args.unroll, rounds: args.rounds, ..Body::default() };
        if let (Some(path), Some(symbol)) = (&args.object, &args.symbol) {
            let failed = |error: LoadError| {
                let code = match &error {
                    LoadError::Map { .. } | LoadError::Link { .. } => FAILED,
                    _ => USAGE,
                };
                Failure { code, error: error.into() }
            };
            let functions = LoadedFile::functions(path).map_err(failed)?;
            let names = functions.iter().map(|name| (name.as_str(), None));
            let (symbol, _) = Called::new(symbol)
                .one_of(names)
                .with_context(|| path.as_text().into_owned())
                .or_exit(USAGE)?;
            let image = LoadedFile::load(path, symbol).map_err(failed)?;
            body.call = Some(image.function());
            let title = format!("{} of {}", demangle(symbol), path.as_text());
            return Ok(Code { body, image: Some(image), title });
        }
        body.code = match (&args.code, &args.hex) {
            (_, Some(hex)) => assemble::bytes(hex).or_exit(USAGE)?,
            (Some(code), None) if code == "-" => {
                let source = input::file::read("-".as_ref(), LONGEST);
                let source = source.context("the code cannot be read from stdin")?;
                let source =
                    String::from_utf8(source).context("stdin is no text").or_exit(USAGE)?;
                assemble::assemble(&source, args.att, "the code").or_exit(USAGE)?
            }
            (Some(code), None) => assemble::assemble(code, args.att, "the code").or_exit(USAGE)?,
            (None, None) => return Err(anyhow!("no code is given")).or_exit(USAGE),
        };
        let title = match body.code.len() {
            1 => "1 byte of code".to_owned(),
            length => format!("{length} bytes of code"),
        };
        Ok(Code { body, image: None, title })
    }
}
