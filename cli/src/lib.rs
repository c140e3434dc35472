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
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::Cli;

/// Runs `lbr` with these words, the first of them its own name, and gives the
/// documented exit status.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Cli::try_parse_from(words) {
        Ok(args) => args,
        Err(usage) if commands::soft::is_list(&usage) => {
            return exit::report(commands::soft::cpus());
        }
        Err(usage) if !usage.use_stderr() => {
            // Help whose reader went away was read.
            let _ = usage.print();
            return ExitCode::from(exit::DONE);
        }
        Err(usage) => {
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
