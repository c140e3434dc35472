//! The measured code, from the command line to machine code.

use std::path::Path;

use anyhow::Context;
use lab::measure::bracket::Body;
use lab::measure::image::{LoadError, LoadedFile};
use lbr_msr::text::AsText;
use profile::symbols::{Called, demangle};
use serde::Serialize;

use super::{Rounds, TimeArgs, assemble};
use crate::exit::{FAILED, Failure, OrExit, Result, USAGE, usage};
use crate::input;
use crate::present::joined;

/// Maximum size of a file of assembly, in bytes.
const LONGEST: u64 = 16 << 20;

/// llvm-mca's prediction for one iteration in a steady state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Prediction {
    /// Version of LLVM.
    pub(super) version: String,
    /// The CPU it models, by LLVM's name.
    pub(super) cpu: String,
    /// Instructions of the code, each counted once.
    pub(super) instructions: u64,
    pub(super) cycles: f64,
    /// Fewest cycles that the CPU's width and ports allow, without dependencies.
    pub(super) throughput_bound: f64,
    /// The resource or dependency that limits it most.
    pub(super) bottleneck: Option<String>,
}

/// A piece of code, and its origin.
pub(super) struct TimedCode {
    /// The body of the measurement harness.
    pub(super) body: Body,
    /// The file of a function.
    pub(super) image: Option<LoadedFile>,
    pub(super) title: String,
    /// Its source as given, in one line.
    pub(super) source: String,
    /// The prediction of llvm-mca, if wanted.
    pub(super) prediction: Option<Prediction>,
}

impl TimedCode {
    /// Every piece of code that the arguments give: assembles, reads digits, or
    /// loads a file.
    pub(super) fn all(args: &TimeArgs) -> Result<Vec<TimedCode>> {
        let init = match &args.init {
            Some(init) => assemble::assemble(init, args.att, "--init").or_exit(USAGE)?,
            None => Vec::new(),
        };
        let rounds = match args.rounds {
            Some(Rounds::Times(rounds)) => Some(rounds).filter(|rounds| *rounds > 1),
            // Calibration replaces it.
            _ => args.calibrates().then_some(1),
        };
        let fresh = args.init.is_some();
        let body = Body { init, fresh, unroll: args.unroll, rounds, ..Body::default() };
        let mut all = Vec::new();
        for given in &args.code {
            let (source, shown) = read(given)?;
            let what = match (&shown, args.code.len()) {
                (Some(file), _) => file.clone(),
                (None, 1) => "the code".to_owned(),
                (None, _) => format!("`{given}`"),
            };
            let code = assemble::assemble(&source, args.att, &what).or_exit(USAGE)?;
            let lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
            let source = shown.unwrap_or_else(|| joined(lines, "; "));
            all.push(TimedCode::of_bytes(Body { code, ..body.clone() }, source));
        }
        for hex in &args.hex {
            let code = assemble::bytes(hex).or_exit(USAGE)?;
            all.push(TimedCode::of_bytes(Body { code, ..body.clone() }, hex.clone()));
        }
        let one = args.object.len() == 1;
        if !one && args.object.len() != args.symbol.len() {
            return Err(usage!("give each --object its --symbol, or one --object for all of them"));
        }
        for (i, symbol) in args.symbol.iter().enumerate() {
            let Some(path) = args.object.get(if one { 0 } else { i }) else { continue };
            all.push(TimedCode::of_function(path, symbol, &body)?);
        }
        Ok(all)
    }

    /// The same code at an offset within a page.
    pub(super) fn at_page_offset(&self, offset: u64) -> TimedCode {
        let body = Body { page_offset: Some(offset), ..self.body.clone() };
        let prediction = self.prediction.clone();
        TimedCode { prediction, ..TimedCode::of_bytes(body, self.source.clone()) }
    }

    fn of_bytes(body: Body, source: String) -> TimedCode {
        let title = match body.code.len() {
            1 => "1 byte of code".to_owned(),
            length => format!("{length} bytes of code"),
        };
        TimedCode { body, image: None, title, source, prediction: None }
    }

    fn of_function(path: &Path, symbol: &str, body: &Body) -> Result<TimedCode> {
        let failed = |error: LoadError| {
            let code = if matches!(error, LoadError::System { .. }) { FAILED } else { USAGE };
            Failure { code, error: error.into() }
        };
        let functions = LoadedFile::functions(path).map_err(failed)?;
        let names = functions.iter().map(|name| (name.as_str(), None));
        let (symbol, _) = Called::new(symbol)
            .one_of(names)
            .with_context(|| path.as_text().into_owned())
            .or_exit(USAGE)?;
        let image = LoadedFile::load(path, symbol).map_err(failed)?;
        let body = Body { call: Some(image.function()), ..body.clone() };
        let title = format!("{} of {}", demangle(symbol), path.as_text());
        let source = title.clone();
        Ok(TimedCode { body, image: Some(image), source, title, prediction: None })
    }
}

/// The assembly that an argument is or names, with the name of its file. One that has a `.` or a
/// `/` in it and is a file is read: `nop` is an instruction, `./nop` a file.
fn read(given: &str) -> Result<(String, Option<String>)> {
    let path = Path::new(given);
    let named = given.contains(['.', '/']) && !given.contains(['\n', ';', ' ']);
    let source = match given {
        "-" => {
            input::file::read("-".as_ref(), LONGEST).context("the code cannot be read from stdin")
        }
        _ if given.contains(['.', '/']) && path.is_file() => {
            input::file::read(path, LONGEST).map_err(Into::into)
        }
        _ if named && (given.contains('/') || given.ends_with(".s") || given.ends_with(".S")) => {
            return Err(usage!("{}: no such file", path.as_text()));
        }
        code => return Ok((code.to_owned(), None)),
    };
    let (source, shown) = (source.or_exit(FAILED)?, (given != "-").then(|| given.to_owned()));
    if source.starts_with(b"\x7fELF") {
        return Err(usage!(
            "{} is an object file: time a function of it with --object {0} --symbol NAME",
            path.as_text()
        ));
    }
    let name = shown.clone().unwrap_or_else(|| "stdin".to_owned());
    let text = String::from_utf8(source).with_context(|| format!("{name} is not text"));
    Ok((text.or_exit(USAGE)?, shown))
}
