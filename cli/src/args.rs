//! Shared by the arguments of all commands; those of a command are defined next to it.

use anstream::ColorChoice;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Parser, Subcommand};

use crate::commands::{
    annotate::Annotate, browse::Browse, decode::DecodeArgs, diff::Diff, disarm::DisarmArgs,
    doctor::DoctorArgs, dump::DumpArgs, explain::ExplainArgs, export::Export, hist::Hist,
    lint::LintArgs, probe::ProbeArgs, record::Record, report::Report, script::Script,
    verify::VerifyArgs,
};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::commands::{crash::Crash, learn::Learn, time::TimeArgs};

/// Last Branch Records: record, report, time and decode
#[derive(Debug, Parser)]
#[command(
    name = "lbr", version = VERSION, about, max_term_width = 100, after_help = EXIT_CODES,
    disable_help_flag = true, arg = help()
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
}

/// `--help` under the heading of the options that every command has.
fn help() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .global(true)
        .help("Print help: -h on one screen, --help with examples")
        .help_heading(heading::GLOBAL)
        .display_order(9)
}

/// Headings of options, in the order of every help.
pub(crate) mod heading {
    pub(crate) const RECORDING: &str = "Recording";
    pub(crate) const MACHINE: &str = "Machine";
    pub(crate) const INPUT: &str = "Input files";
    pub(crate) const SELECTION: &str = "Selection";
    pub(crate) const SYMBOLS: &str = "Symbols";
    pub(crate) const VIEW: &str = "View";
    pub(crate) const OUTPUT: &str = "Output";
    pub(crate) const GLOBAL: &str = "Global options";
}

/// `--color`.
fn color() -> impl TypedValueParser<Value = ColorChoice> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(|when| match &*when {
        "always" => ColorChoice::Always,
        "never" => ColorChoice::Never,
        _ => ColorChoice::Auto,
    })
}

/// Release, commit (if known) and target.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("LBR_BUILT"), ")");

const EXIT_CODES: &str = "Exit status:
  0  done
  1  failed
  2  bad usage or input
  3  no usable LBR here
  4  not permitted
  5  data of too poor quality (--strict)
  6  something grew by more than is allowed (diff --fail-above)";

/// A command and its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Doctor(DoctorArgs),
    Probe(ProbeArgs),
    Dump(DumpArgs),
    Decode(DecodeArgs),
    Explain(ExplainArgs),
    Record(Box<Record>),
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Crash(Box<Crash>),
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Time(Box<TimeArgs>),
    Verify(VerifyArgs),
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    Learn(Box<Learn>),
    Report(Box<Report>),
    Browse(Box<Browse>),
    Hist(Hist),
    Annotate(Annotate),
    Diff(Box<Diff>),
    Lint(LintArgs),
    Script(Script),
    Export(Export),
    Disarm(DisarmArgs),
}
