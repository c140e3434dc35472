//! `lbr export`: what other tools read.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use profile::export::{self, Losses, ProfileKind, Traced, Traces, Wanted};
use profile::maps::Location;
use profile::symbols::Sources;
use profile::{Counter, hot};
use serde_json::{Value, json};

use super::report;
use crate::exit::{DONE, Failure, OrExit, Outcome, USAGE};
use crate::head;
use crate::input::{self, Inputs, Source};
use crate::output::Output;
use crate::present;
use crate::present::number::{counted, grouped};
use crate::present::out::say;
use crate::select::SelectArgs;
use crate::symbols::SymbolArgs;

/// Write a recording as what other tools read
///
/// Profiles are of one program: of the file that most branches go to, or of the one that --dso or
/// --binary names. Each kind counts as the tool does that reads it; what is not in the profile is
/// said on standard error.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// What to write.
    #[arg(long, value_enum, value_name = "KIND")]
    to: Kind,
    #[command(flatten)]
    inputs: Inputs,
    /// Write here; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The program that the profile is of: the file itself, under the name that it was recorded
    /// with.
    #[arg(long, value_name = "FILE", conflicts_with = "dso")]
    binary: Option<PathBuf>,
    /// The program: a path, or its last part (libc.so.6) [default: the one that ran most].
    #[arg(long, visible_alias = "dsos", value_name = "NAME", value_delimiter = ',')]
    dso: Vec<String>,
    /// In complete recordings, count the code between two stacks of a thread too, which converters
    /// that look at one stack at a time cannot.
    #[arg(long)]
    join: bool,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
}

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// LLVM sample profile, text: clang -fprofile-sample-use, llvm-profdata
    Llvm,
    /// Ranges and branches: llvm-profgen --unsymbolized-profile
    LlvmRaw,
    /// BOLT's pre-aggregated text: perf2bolt -pa
    Preagg,
    /// The same in the letters of BOLT 22
    #[value(name = "preagg:T")]
    PreaggTraces,
    /// AutoFDO's ranges and branches: create_llvm_prof --profiler=text
    Autofdo,
    /// pprof's format, gzip: branches at the places that they stand at
    Pprof,
    /// Calling contexts, a line each: flame graphs
    Folded,
    /// Calling contexts: speedscope.app
    Speedscope,
    /// BOLT's own profile: see preagg
    #[value(hide = true)]
    Fdata,
}

/// Runs the command.
pub(crate) fn run(args: &Export) -> Outcome {
    let viewed = matches!(args.to, Kind::Pprof | Kind::Folded | Kind::Speedscope);
    if viewed && (args.binary.is_some() || args.join || !args.dso.is_empty()) {
        return usage("--binary, --dso and --join are of profiles of one program");
    }
    let output = Output::new(&args.output, args.inputs.paths())?;
    match args.to {
        Kind::Llvm => profile(args, ProfileKind::Llvm, &output),
        Kind::LlvmRaw => profile(args, ProfileKind::LlvmRaw, &output),
        Kind::Preagg => profile(args, ProfileKind::Preagg, &output),
        Kind::PreaggTraces => profile(args, ProfileKind::PreaggTraces, &output),
        Kind::Autofdo => profile(args, ProfileKind::AutoFdo, &output),
        Kind::Pprof => pprof(args, &output),
        Kind::Folded | Kind::Speedscope => contexts(args, &output),
        Kind::Fdata => usage(
            "fdata needs the control flow that BOLT itself finds: --to preagg, and then perf2bolt \
             -pa -p FILE -o OUT.fdata PROGRAM (or llvm-bolt PROGRAM -pa -p FILE) makes it",
        ),
    }
}

fn usage<T>(what: &'static str) -> Result<T, Failure> {
    Err(Failure { code: USAGE, error: anyhow::Error::msg(what) })
}

/// Branches of every file.
fn pprof(args: &Export, output: &Output) -> Outcome {
    let mut counter = hot::Counter::new();
    args.symbols.apply(counter.maps());
    let read = input::read_all(args.inputs.paths(), &args.select.selection(), |recording, at| {
        counter.recording(recording, at)
    })?;
    let mut table = counter.finish();
    output.write(export::pprof(&mut table)?)?;
    head::finish(&read, &table.maps);
    Ok(DONE)
}

/// Who calls whom: lines of names, or speedscope's format
/// (`src/lib/file-format-spec.ts` of jlfwong/speedscope).
fn contexts(args: &Export, output: &Output) -> Outcome {
    let selection = args.select.selection();
    let (graph, read) = report::call_graph(args.inputs.paths(), &selection, &args.symbols, false)?;
    if args.to == Kind::Folded {
        let mut text = Vec::new();
        report::print_folded(&mut text, &graph, |_| true)?;
        output.write(text)?;
    } else {
        let file = |location| match location {
            Some(Location::File { file, .. }) => graph.maps.path(file),
            _ => None,
        };
        let functions = graph.functions.iter();
        let frames = functions.map(|of| json!({ "name": of.label(), "file": file(of.location) }));
        let frames: Vec<Value> = frames.collect();
        let counted = graph.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
        let (samples, weights): (Vec<Vec<usize>>, Vec<u64>) =
            counted.map(|(at, node)| (graph.path(at), node.own)).unzip();
        let name = read.first().map_or("-", |source| source.name.as_str());
        let made = json!({
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "exporter": concat!("lbr ", env!("CARGO_PKG_VERSION")),
            "name": name,
            "activeProfileIndex": 0,
            "shared": { "frames": frames },
            "profiles": [{
                "type": "sampled",
                "name": format!("{name}: {}", graph.unit.name()),
                "unit": "none",
                "startValue": 0,
                "endValue": weights.iter().fold(0, |sum: u64, of| sum.saturating_add(*of)),
                "samples": samples,
                "weights": weights,
            }],
        });
        let mut text = Vec::new();
        present::json::value(&mut text, &made)?;
        output.write(text)?;
    }
    head::finish(&read, &graph.maps);
    Ok(DONE)
}

fn profile(args: &Export, kind: ProfileKind, output: &Output) -> Outcome {
    let sources = args.symbols.sources(&Sources::default());
    let wanted = match (&args.binary, args.dso.as_slice()) {
        (Some(path), _) => Wanted::File(path.clone()),
        (None, []) => Wanted::Hottest,
        (None, [name]) => Wanted::Named(name.clone()),
        _ => return usage("a profile is of one program: name one with --dso"),
    };
    let (mut traced, read) = match args.join {
        true => count::<true>(args, kind, sources)?,
        false => count::<false>(args, kind, sources)?,
    };
    let made = traced.profile(kind, &wanted).or_exit(USAGE)?;
    output.write(&made.text)?;
    head::finish(&read, &traced.maps);
    say_losses(&made.program, &made.losses, &traced);
    Ok(DONE)
}

fn count<const JOIN: bool>(
    args: &Export,
    kind: ProfileKind,
    sources: Sources,
) -> Result<(Traced, Vec<Source>), Failure> {
    let mut counter = Counter::of(Traces::<JOIN>::by(kind.rules()));
    counter.maps().set_sources(sources);
    input::count(args.inputs.paths(), &args.select.selection(), counter)
}

/// Says what is in the profile, and what is not.
fn say_losses(program: &str, losses: &Losses, traced: &Traced) {
    let (branches, different) = losses.branches;
    let (ranges, pieces) = losses.ranges;
    let program = crate::present::escape::escaped(program);
    say!(
        "{program}: {} of {} ({} different); straight code run {} ({} different)",
        grouped(branches),
        counted(losses.recorded, "branch", "branches"),
        grouped(different as u64),
        counted(ranges, "time", "times"),
        grouped(pieces as u64)
    );
    let lost = [
        (losses.outside, "branches with neither end in it"),
        (losses.leaving, "branches that leave it"),
        (losses.ranges_outside, "times straight code that begins or ends outside of it"),
        (losses.bogus, "times straight code that cannot have run so"),
        (losses.without_lines, "instructions run that no function of the debug information has"),
        (traced.tally.dropped, "entries that its reader drops (kernel, duplicate, not taken)"),
        (traced.tally.filtered, "stacks without every taken branch: their straight code"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        say!("not in it: {} {what}", grouped(count));
    }
}
