//! The commands of `lbr`: arguments, what they do, presentation. A library only
//! so that fuzz targets run them as the program does.

mod args;
mod commands;
mod exit;
mod head;
mod input;
mod output;
mod present;
mod select;
mod symbols;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

/// Runs `lbr` with these words, the first of them its own name, and gives the
/// documented exit status.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match args::Cli::try_parse_from(words) {
        Ok(args) => args,
        Err(usage) => {
            // Help whose reader went away was read.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(exit::USAGE));
        }
    };
    present::out::set(args.color.into(), args.wide);
    exit::report(commands::run(args.command))
}

/// The command line, for manual pages and the completions of shells.
pub fn command() -> clap::Command {
    args::Cli::command()
}
