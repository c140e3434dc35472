//! The binary `lbr`: arguments, commands, presentation.

mod args;
mod commands;
mod exit;
mod head;
mod input;
mod present;
mod select;
mod symbols;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let args = args::Cli::parse();
    present::out::set(args.color.into(), args.wide);
    exit::report(commands::run(args.command))
}
