//! The binary `lbr`: arguments, commands, presentation.

mod args;
mod commands;
mod exit;
mod head;
mod input;
mod output;
mod present;
mod select;
mod symbols;

use std::sync::Arc;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let args = args::Cli::parse();
    present::out::set(args.color.into(), args.wide);
    // A file that grows beyond what is allowed is an error of its own, not an end.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    exit::report(commands::run(args.command))
}
