//! The commands of `lbr`: arguments, actions, output. It is a library only so that fuzz targets can
//! run them as the program does.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("lbr runs on x86-64 Linux");

mod args;
mod commands;
mod cpus;
mod exit;
mod head;
mod input;
pub mod memory;
mod output;
mod present;
mod select;
mod symbols;
mod usage;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use commands::Cli;
pub use commands::browse::Browser;
use lbr_msr::text::AsText;
use present::escaped;

/// Runs `lbr` with these arguments, the first its own name, and returns the documented exit status.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    let args = match Cli::try_parse_from(&words) {
        Ok(args) => args,
        Err(usage) if commands::soft::is_list(&usage) => {
            return exit::report(commands::soft::cpus());
        }
        Err(usage) if !usage.use_stderr() => {
            // A closed pipe is not an error.
            let _ = usage.print();
            return ExitCode::from(exit::DONE);
        }
        Err(usage) => {
            // Messages quote the words in escaped form.
            let shown = words.iter().map(|word| escaped(&word.as_bytes().as_text()).into_owned());
            let usage = Cli::try_parse_from(shown).err().unwrap_or(usage);
            // --color was not parsed.
            present::set(anstream::ColorChoice::Never, false, false);
            present::fail(&usage::sentence(&usage, command_of(&words)), "");
            return ExitCode::from(exit::USAGE);
        }
    };
    present::set(args.color, args.wide, args.no_pager);
    exit::report(commands::run(args.command))
}

/// The command that these words name.
fn command_of(words: &[OsString]) -> Option<&str> {
    let all = command();
    let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
    words.find(|word| all.find_subcommand(word).is_some())
}

/// The command line, for manual pages and the completions of shells.
pub fn command() -> clap::Command {
    Cli::command()
}
