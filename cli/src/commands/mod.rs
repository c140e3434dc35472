//! The command line, and its commands, one file or folder each.

pub(crate) mod annotate;
pub(crate) mod backend;
pub(crate) mod browse;
pub(crate) mod crash;
pub(crate) mod decode;
pub(crate) mod diff;
pub(crate) mod disarm;
pub(crate) mod doctor;
pub(crate) mod dump;
pub(crate) mod explain;
pub(crate) mod export;
mod functions;
pub(crate) mod hist;
pub(crate) mod learn;
pub(crate) mod lint;
mod machine;
mod number;
mod page;
pub(crate) mod probe;
pub(crate) mod record;
pub(crate) mod report;
mod rights;
pub(crate) mod script;
pub(crate) mod soft;
pub(crate) mod time;
pub(crate) mod verify;

use anstream::ColorChoice;
use clap::{ArgAction, Parser, Subcommand};

use crate::args::{EXIT_CODES, VERSION, color, heading};
use crate::exit::Result;

/// Last Branch Records: record, report, time and decode
#[derive(Debug, Parser)]
#[command(
    name = "lbr", version = VERSION, about, max_term_width = 100, after_help = EXIT_CODES,
    disable_help_flag = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// When to use colors: auto, always or never
    #[arg(long, global = true, value_parser = color(), default_value = "auto", value_name = "WHEN",
          hide_possible_values = true, help_heading = heading::GLOBAL)]
    pub(crate) color: ColorChoice,
    /// Never truncate lines
    #[arg(long, global = true, help_heading = heading::GLOBAL)]
    pub(crate) wide: bool,
    /// Do not pipe long output into $LBR_PAGER, $PAGER or less
    #[arg(long, global = true, help_heading = heading::GLOBAL)]
    pub(crate) no_pager: bool,
    /// Print help: -h on one screen, --help with examples
    #[arg(short, long, global = true, action = ArgAction::Help, help_heading = heading::GLOBAL,
          display_order = 9)]
    help: Option<bool>,
}

/// A command and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Doctor(doctor::DoctorArgs),
    Probe(probe::ProbeArgs),
    Dump(dump::DumpArgs),
    Decode(decode::DecodeArgs),
    Explain(explain::ExplainArgs),
    Record(Box<record::Record>),
    Crash(Box<crash::Crash>),
    Time(Box<time::TimeArgs>),
    Verify(verify::VerifyArgs),
    Learn(Box<learn::Learn>),
    Report(Box<report::Report>),
    Browse(Box<browse::Browse>),
    Hist(hist::Hist),
    Annotate(annotate::Annotate),
    Diff(Box<diff::Diff>),
    Lint(lint::LintArgs),
    Script(script::Script),
    Export(export::Export),
    Disarm(disarm::DisarmArgs),
}

/// Runs a command; without one, prints the verdict on this machine.
pub(crate) fn run(command: Option<Command>) -> Result {
    let Some(command) = command else { return doctor::summary::run() };
    match command {
        Command::Doctor(args) => doctor::run(args),
        Command::Probe(args) => probe::run(args),
        Command::Dump(args) => dump::run(args),
        Command::Disarm(args) => disarm::run(args),
        Command::Decode(args) => decode::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Record(args) => record::run(*args),
        Command::Crash(args) => crash::run(*args),
        Command::Report(args) => match &args.html {
            Some(path) => page::run(&args, path),
            None => report::run(&args),
        },
        Command::Hist(args) => hist::run(&args),
        Command::Annotate(args) => annotate::run(&args),
        Command::Browse(args) => browse::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Script(args) => script::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Learn(args) => learn::run(&args),
        Command::Time(args) => time::run(&args),
    }
}
