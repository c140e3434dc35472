//! What is measured, from the command line to machine code.

use anyhow::Context;
use lab::measure::bracket::Body;
use lab::measure::image::{LoadError, LoadedFile};
use lbr_msr::text::AsText;
use profile::symbols::{Called, demangle};

use super::{Rounds, TimeArgs, assemble};
use crate::exit::{FAILED, Failure, OrExit, USAGE};
use crate::input;

/// No assembly is longer, bytes.
const LONGEST: u64 = 16 << 20;

/// The code, and what it belongs to.
#[derive(Debug)]
pub(super) struct TimedCode {
    /// What goes into the bracket.
    pub(super) body: Body,
    /// The file that a function lies in.
    pub(super) image: Option<LoadedFile>,
    /// What it is, in a few words.
    pub(super) title: String,
    /// As it was given, in one line.
    pub(super) source: String,
}

impl TimedCode {
    /// Every piece of code that the arguments give: assembles, reads digits, or
    /// loads a file.
    pub(super) fn all(args: &TimeArgs) -> Result<Vec<TimedCode>, Failure> {
        let init = match &args.init {
            Some(init) => assemble::assemble(init, args.att, "--init").or_exit(USAGE)?,
            None => Vec::new(),
        };
        let rounds = match args.rounds {
            Some(Rounds::Times(rounds)) => Some(rounds),
            // Until it has been tried out.
            _ => args.calibrates().then_some(1),
        };
        let mut body = Body { init, unroll: args.unroll, rounds, ..Body::default() };
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
            return Ok(vec![TimedCode { body, image: Some(image), source: title.clone(), title }]);
        }
        let mut all = Vec::new();
        for hex in &args.hex {
            all.push((hex.clone(), assemble::bytes(hex).or_exit(USAGE)?));
        }
        for given in &args.code {
            let source = match given.as_str() {
                "-" => {
                    let source = input::file::read("-".as_ref(), LONGEST);
                    let source = source.context("the code cannot be read from stdin")?;
                    String::from_utf8(source).context("stdin is no text").or_exit(USAGE)?
                }
                code => code.to_owned(),
            };
            let what = match args.code.len() {
                1 => "the code".to_owned(),
                _ => format!("`{given}`"),
            };
            let code = assemble::assemble(&source, args.att, &what).or_exit(USAGE)?;
            all.push((source, code));
        }
        let of = |(source, code): (String, Vec<u8>)| {
            let title = match code.len() {
                1 => "1 byte of code".to_owned(),
                length => format!("{length} bytes of code"),
            };
            let lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
            let source = lines.collect::<Vec<_>>().join("; ");
            TimedCode { body: Body { code, ..body.clone() }, image: None, title, source }
        };
        Ok(all.into_iter().map(of).collect())
    }
}
