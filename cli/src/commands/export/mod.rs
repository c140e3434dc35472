//! `lbr export`: profiles and tables for other tools.

mod all;
mod edges;
mod recordings;
mod uprof;

pub(crate) use edges::day;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use profile::export::{self, Losses, Profile, ProfileKind, ProgramChoice, Traced, Traces};
use profile::symbols::demangle;
use profile::{Counter, View, callgraph, hot};

use crate::args::heading;
use crate::commands::report;
use crate::exit::{DONE, OrExit, Result, USAGE, usage};
use crate::head;
use crate::input::{Count, Inputs, Reading, Recordings, Source};
use crate::output::Output;
use crate::present::{counted, escaped, escaped_lines, grouped, joined, json, percent, say};
use crate::select::{ALL, SelectArgs};
use crate::symbols::SymbolArgs;

/// Executed instructions without line information that a profile of lines may lack.
const MOST_WITHOUT_LINES: f64 = 0.01;
/// Functions without line information that an error names.
const NAMED: usize = 5;

/// Write a recording in the format of another tool
///
/// Examples:
///   lbr export --to llvm -o prog.prof        for clang -fprofile-sample-use
///   lbr export --to preagg -o prog.preagg    for perf2bolt -pa
///   lbr export --to flamegraph -o prog.svg   a flame graph of call stacks
///
/// Profiles for compilers and linkers are of one program: the recorded one, or
/// that of --dso or --binary. Each kind counts as the tool that reads it does.
/// Standard error reports what the profile lacks.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Export {
    #[command(flatten)]
    inputs: Inputs,
    #[command(flatten)]
    select: SelectArgs,
    /// The profiled program, such as libc.so.6
    ///
    /// A path, its last part, or `all` for a profile of each file, in the folder -o
    /// [default: the recorded program]. For csv:uprof: only rows of these files.
    #[arg(long, alias = "dsos", value_name = "NAME", value_delimiter = ',',
          help_heading = heading::SELECTION)]
    dso: Vec<String>,
    #[command(flatten)]
    symbols: SymbolArgs,
    /// The format
    #[arg(long, value_enum, value_name = "KIND", help_heading = heading::OUTPUT)]
    to: Kind,
    /// Write to this file; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", help_heading = heading::OUTPUT)]
    output: PathBuf,
    /// The profiled program's file, under its recorded name
    #[arg(long, value_name = "FILE", conflicts_with = "dso", help_heading = heading::SYMBOLS)]
    binary: Option<PathBuf>,
    /// Host of the rows (jsonl:edges, parquet) [default: the recording's]
    #[arg(long, value_name = "NAME", help_heading = heading::OUTPUT)]
    host: Option<String>,
    /// Day of the rows, YEAR-MONTH-DAY [default: that of the file]
    #[arg(long, value_name = "DAY", value_parser = edges::date, help_heading = heading::OUTPUT)]
    date: Option<String>,
    /// Count the code between two stacks too (complete recordings)
    ///
    /// Other converters look at one stack at a time and cannot count it.
    #[arg(long, help_heading = heading::OUTPUT)]
    join: bool,
    /// Accept more than 1% of instructions without lines (llvm)
    #[arg(long, help_heading = heading::OUTPUT)]
    partial: bool,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// LLVM sample profile, text: clang -fprofile-sample-use, llvm-profdata
    Llvm,
    /// Ranges and branches: llvm-profgen --unsymbolized-profile
    LlvmRaw,
    /// BOLT's pre-aggregated text: perf2bolt -pa
    Preagg,
    /// As preagg, in the letters of BOLT 22
    #[value(name = "preagg:T")]
    PreaggTraces,
    /// AutoFDO's ranges and branches: create_llvm_prof --profiler=text
    Autofdo,
    /// pprof's format, gzip: branches at their source address
    Pprof,
    /// Calls in pprof's format: go build -pgo
    #[value(name = "pprof:go")]
    PprofGo,
    /// Calling contexts drawn as a flame graph, SVG
    Flamegraph,
    /// Calling contexts: speedscope.app
    Speedscope,
    /// Calling contexts: profiler.firefox.com
    Firefox,
    /// Branches by host, day, event and build, JSON Lines: for databases
    #[value(name = "jsonl:edges")]
    Edges,
    /// As jsonl:edges, in Parquet, if lbr was built with it (--features parquet)
    Parquet,
    /// Text as perf script prints it
    Brstack,
    /// The selected samples of a perf.data, as perf.data
    Perfdata,
    /// Branches in AMD uProf's columns
    #[value(name = "csv:uprof")]
    CsvUprof,
    /// BOLT's own profile: see preagg
    #[value(hide = true)]
    Fdata,
}

impl Kind {
    /// The kind of profile, if it is one of a single program.
    const fn of_program(self) -> Option<ProfileKind> {
        match self {
            Kind::Llvm => Some(ProfileKind::Llvm),
            Kind::LlvmRaw => Some(ProfileKind::LlvmRaw),
            Kind::Preagg => Some(ProfileKind::Preagg),
            Kind::PreaggTraces => Some(ProfileKind::PreaggTraces),
            Kind::Autofdo => Some(ProfileKind::AutoFdo),
            _ => None,
        }
    }
}

impl Export {
    /// How recordings are read. Only a copy of the recording keeps the label of modelled values.
    fn reading(&self) -> Reading {
        let omit_modelled = self.to != Kind::Perfdata;
        Reading { omit_modelled, ..self.select.reading(&self.symbols) }
    }

    fn count<V: View>(&self, counter: Counter<V>) -> Result<(V::Table, Vec<Source>)> {
        Recordings::once(self.inputs.paths(), self.reading())?.count(counter)
    }

    /// Refuses options that do not apply to the kind.
    fn check(&self) -> Result<()> {
        let of_program = self.to.of_program().is_some();
        if !of_program && (self.binary.is_some() || self.join) {
            return Err(usage!("--binary and --join apply only to profiles of one program"));
        }
        if !of_program && self.to != Kind::CsvUprof && !self.dso.is_empty() {
            return Err(usage!("--dso applies only to profiles of one program and to csv:uprof"));
        }
        if self.partial && self.to != Kind::Llvm {
            return Err(usage!("--partial applies only to --to llvm"));
        }
        let has_host = matches!(self.to, Kind::Edges | Kind::Parquet);
        if !has_host && (self.host.is_some() || self.date.is_some()) {
            return Err(usage!("--host and --date apply only to --to jsonl:edges and parquet"));
        }
        Ok(())
    }
}

pub(crate) fn run(args: &Export) -> Result {
    args.check()?;
    let is_all = args.dso.iter().any(|name| name == ALL);
    if let Some(kind) = args.to.of_program().filter(|_| is_all) {
        return all::write(args, kind);
    }
    let inputs = args.inputs.paths().iter().chain(&args.binary).chain(args.symbols.files());
    let output = Output::new(&args.output, inputs)?;
    if matches!(args.to, Kind::Pprof | Kind::PprofGo | Kind::Parquet | Kind::Perfdata) {
        output.no_terminal()?;
    }
    if let Some(kind) = args.to.of_program() {
        return profile(args, kind, &output);
    }
    match args.to {
        Kind::Pprof | Kind::PprofGo => pprof(args, &output),
        Kind::Edges => edges::lines(args, &output),
        Kind::Parquet => edges::parquet(args, &output),
        Kind::Brstack => recordings::text(args, &output),
        Kind::Perfdata => recordings::perf_data(args, &output.private()),
        Kind::CsvUprof => uprof::write(args, &output),
        Kind::Fdata => Err(usage!(
            "fdata needs the control flow that BOLT itself finds: --to preagg, and then perf2bolt \
             -pa -p FILE -o OUT.fdata PROGRAM (or llvm-bolt PROGRAM -pa -p FILE) makes it"
        )),
        _ => contexts(args, &output),
    }
}

/// Branches of every file.
fn pprof(args: &Export, output: &Output) -> Result {
    let (mut table, read) = args.count(hot::Counter::default())?;
    output.write(export::pprof(&mut table, args.to == Kind::PprofGo)?)?;
    head::finish(&read, &table.maps);
    Ok(DONE)
}

/// Who calls whom, for viewers of calling contexts.
fn contexts(args: &Export, output: &Output) -> Result {
    let (graph, read) = args.count(callgraph::counter(false))?;
    let name = read.first().map_or("-", |source| source.name.as_str());
    let mut text = Vec::new();
    match args.to {
        Kind::Speedscope => json::value(&mut text, &export::speedscope(&graph, name))?,
        Kind::Firefox => json::value(&mut text, &export::firefox(&graph, name))?,
        _ => report::print_folded(&mut text, &graph, |_| true)?,
    }
    if args.to == Kind::Flamegraph {
        if text.is_empty() {
            return Err(usage!("nothing to draw: no branches match the selection"));
        }
        let title = format!("{name}: {}", graph.unit.name());
        text = export::flamegraph(&text, &title, graph.unit.name()).or_exit(USAGE)?;
    }
    output.write(text)?;
    head::finish(&read, &graph.maps);
    Ok(DONE)
}

fn profile(args: &Export, kind: ProfileKind, output: &Output) -> Result {
    let wanted = match (&args.binary, args.dso.as_slice()) {
        (Some(path), _) => ProgramChoice::File(path.clone()),
        (None, []) => ProgramChoice::Recorded,
        (None, [name]) => ProgramChoice::Named(name.clone()),
        _ => return Err(usage!("a profile is of one program: name one with --dso")),
    };
    let (mut traced, read) = traced(args, kind)?;
    let made = traced.profile(kind, &wanted).or_exit(USAGE)?;
    check_lines(args, &made)?;
    output.write(escaped_lines(&made.text))?;
    head::finish(&read, &traced.maps);
    say_losses(&made.program, &made.losses, &traced);
    if made.is_launcher {
        say!(
            "{} only runs other programs, and none of them was recorded: record the program \
             itself, or its processes too (lbr record --children)",
            escaped(&made.program)
        );
    }
    if !made.others.is_empty() {
        say!("other programs of the recording: {} (--dso NAME)", escaped(&made.others.join(", ")));
    }
    Ok(DONE)
}

/// Refuses a profile of lines that lacks too much of the program, without `--partial`.
fn check_lines(args: &Export, made: &Profile) -> Result<()> {
    let missing = made.unknown.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    let share = missing as f64 / made.losses.instructions.max(1) as f64;
    if args.partial || share <= MOST_WITHOUT_LINES {
        return Ok(());
    }
    let names = joined(made.unknown.iter().take(NAMED).map(|(name, _)| demangle(name)), ", ");
    let pieces = match made.missing.first() {
        Some(first) => format!(
            " ({} of split debug information not found: {first})",
            counted(made.missing.len() as u64, "file", "files")
        ),
        None => String::new(),
    };
    Err(usage!(
        "{}: {} of the executed instructions have no line information (in {names}{}){pieces}: build \
         that code with -g, name its debug files with --debug-dir, or write the rest with --partial",
        made.program,
        percent(share),
        if made.unknown.len() > NAMED { ", …" } else { "" }
    ))
}

/// Counts the recordings by the rules of a kind.
fn traced(args: &Export, kind: ProfileKind) -> Result<(Traced, Vec<Source>)> {
    match args.join {
        true => args.count(Counter::of(Traces::<true>::of(kind))),
        false => args.count(Counter::of(Traces::<false>::of(kind))),
    }
}

/// Prints what the profile contains, and what it lacks.
fn say_losses(program: &str, losses: &Losses, traced: &Traced) {
    let (branches, different) = losses.branches;
    let (ranges, pieces) = losses.ranges;
    let program = escaped(program);
    say!(
        "{program}: {} of {} ({} different); fall-through ranges run {} ({} different)",
        grouped(branches),
        counted(losses.recorded, "branch", "branches"),
        grouped(different as u64),
        counted(ranges, "time", "times"),
        grouped(pieces as u64)
    );
    let lost = [
        (losses.outside, "branches with neither end in it"),
        (losses.leaving, "branches that leave it"),
        (losses.ranges_outside, "runs of fall-through ranges that start or end outside of it"),
        (losses.bogus, "runs of fall-through ranges that are not possible"),
        (losses.without_lines, "executed instructions in no function of the debug information"),
        (traced.tally.dropped, "entries that its reader drops (kernel, duplicate, not taken)"),
        (traced.tally.filtered, "stacks that lack some branches: their fall-through ranges"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        say!("not in it: {} {what}", grouped(count));
    }
}
