//! The commands of `lbr`: arguments, what they do, presentation. A library only
//! so that fuzz targets run them as the program does.

mod args;
mod commands;
mod exit;
mod head;
mod input;
pub mod memory;
mod output;
mod present;
mod select;
mod symbols;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::{CommandFactory, FromArgMatches};

use args::Cli;
use lbr_msr::text::AsText;
use present::escape::escaped;

/// What the words can be, built once for all runs.
static GRAMMAR: Mutex<Option<clap::Command>> = Mutex::new(None);

/// Runs `lbr` with these words, the first of them its own name, and gives the
/// documented exit status.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    if let Some(listed) = with_grammar(|grammar| commands::soft::asked(&words, grammar)) {
        return exit::report(commands::soft::list(listed));
    }
    let args = match parse(words.iter()) {
        Ok(args) => args,
        Err(usage) if !usage.use_stderr() => {
            // Help whose reader went away was read.
            let _ = usage.print();
            return ExitCode::from(exit::DONE);
        }
        Err(usage) => {
            // What is wrong is said of the words as they are shown.
            let shown = words.iter().map(|word| escaped(&word.as_bytes().as_text()).into_owned());
            let usage = parse(shown.map(OsString::from)).err().unwrap_or(usage);
            present::out::usage(&usage.to_string());
            return ExitCode::from(exit::USAGE);
        }
    };
    present::out::set(args.color.into(), args.wide, args.no_pager);
    exit::report(commands::run(args.command))
}

/// The command line, for manual pages and the completions of shells.
pub fn command() -> clap::Command {
    args::Cli::command()
}

fn with_grammar<T>(with: impl FnOnce(&mut clap::Command) -> T) -> T {
    let mut grammar = GRAMMAR.lock().unwrap_or_else(PoisonError::into_inner);
    with(grammar.get_or_insert_with(Cli::command))
}

fn parse(words: impl Iterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    with_grammar(|grammar| {
        let words = grammar.try_get_matches_from_mut(words)?;
        Cli::from_arg_matches(&words).map_err(|error| error.format(grammar))
    })
}
