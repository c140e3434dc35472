//! The command line. Each command's arguments stand with the command.

use clap::{Parser, Subcommand, ValueEnum};

use crate::commands::{
    annotate::Annotate, decode::DecodeArgs, diff::Diff, disarm::DisarmArgs, doctor::DoctorArgs,
    dump::DumpArgs, explain::ExplainArgs, export::Export, hist::Hist, lint::LintArgs,
    probe::ProbeArgs, record::Record, report::Report, script::Script, verify::VerifyArgs,
};
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
use crate::commands::{crash::Crash, learn::Learn, time::TimeArgs};

/// Last Branch Records: registers, recordings, timings.
#[derive(Debug, Parser)]
#[command(name = "lbr", version = VERSION, about, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Colours: on a terminal, unless NO_COLOR is set; always; never.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN", hide_possible_values = true)]
    pub(crate) color: Color,
    /// On a terminal too, lines as long as they are: nothing is shortened or left
    /// out.
    #[arg(long, global = true)]
    pub(crate) wide: bool,
    /// No pager. Else what fills more than a terminal goes through LBR_PAGER, PAGER
    /// or less.
    #[arg(long, global = true)]
    pub(crate) no_pager: bool,
}

/// When text is in colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl From<Color> for anstream::ColorChoice {
    fn from(color: Color) -> anstream::ColorChoice {
        match color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
    }
}

/// The release, the commit where it is known, the target.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("LBR_BUILT"), ")");

const EXIT_CODES: &str = "Exit status:
  0  done
  1  failed
  2  bad usage or input
  3  no usable LBR here
  4  not permitted
  5  data of too poor quality (--strict)
  6  something grew by more than is allowed (diff --fail-above)";

/// What to do.
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
    Hist(Hist),
    Annotate(Annotate),
    Diff(Box<Diff>),
    Lint(LintArgs),
    Script(Script),
    Export(Export),
    Disarm(DisarmArgs),
}
