//! `lbr report`: what a recording says.

pub(crate) mod blocks;
mod callgraph;
pub(crate) mod flow;
mod head;
mod hot;
mod html;
mod loops;
mod mispredict;
mod outcomes;
mod paths;
mod shown;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use profile::maps::{Location, Maps, Named};
use serde::Serialize;

pub(crate) use self::head::quality_line;
use self::head::{Totals, print_counts, print_head, print_recordings, quality_json, share_line};
use crate::exit::{Failure, Outcome, USAGE};
use crate::input::{self, Source};
use crate::present::number::grouped;
use crate::select::{DsoArgs, SelectArgs};
use crate::symbols::{self, SymbolArgs, source_json};

/// Rows of the table where nobody says how many.
const ROWS: usize = 25;

/// Count the branches of a recording.
///
/// The shares in the views mispredict and outcomes have a 95 % interval, which
/// knows that the entries of one stack are alike; where every branch was
/// recorded the counts are the truth and have none. Entries that no code can
/// have left (see `lbr lint`) are left out of every view, and counted.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// perf.data, or text of `perf script -F brstack` or `brstacksym`; `-` is standard input.
    /// Given several times, the recordings are counted together.
    #[arg(short, long, value_name = "FILE", default_value = "perf.data")]
    input: Vec<PathBuf>,
    /// What to look at.
    #[arg(long, value_enum, default_value_t = View::Hot)]
    view: View,
    /// By what to sort [default: count; mispredicts in its view].
    #[arg(long, value_enum)]
    sort: Option<Sort>,
    /// Known predictions that a branch needs for a rate (view mispredict).
    #[arg(long, value_name = "N", default_value_t = 30)]
    min_n: u64,
    /// One block and the distribution of its cycles (view blocks); its ends as
    /// the view prints them: addresses as with --json, or main+0x10..main+0x1c.
    #[arg(long, value_name = "ENTRY..EXIT", value_parser = blocks::range)]
    block: Option<blocks::Ends>,
    /// Rows at most; 0 is all [default: 25, with --json all, with --html 250].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Write one page with every view but paths into this file, to look at in a browser;
    /// `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "view", "sort", "block"])]
    html: Option<PathBuf>,
    /// One JSON object a row (`"view":"hot"` and so on), and at the end one with
    /// the totals and the quality of the data (`"view":"quality"`).
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    select: SelectArgs,
    #[command(flatten)]
    dso: DsoArgs,
    #[command(flatten)]
    symbols: SymbolArgs,
    #[command(flatten)]
    paths: paths::PathOptions,
    #[command(flatten)]
    callgraph: callgraph::GraphOptions,
}

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum View {
    /// Branches by (from, to).
    Hot,
    /// How often each branch was mispredicted when it was taken.
    Mispredict,
    /// Taken and not taken of each conditional branch; targets of indirect
    /// jumps and calls.
    Outcomes,
    /// Straight code between branches: how often it ran and in how many cycles.
    Blocks,
    /// Loops: how often their bodies ran each time they were entered, in how
    /// many cycles, and how they nest.
    Loops,
    /// Chains of blocks that run one after the other most of the time, how much
    /// of the program runs in them, and where they break.
    Paths,
    /// Who calls whom: from recordings in call-stack mode, or from all calls
    /// and returns.
    Callgraph,
}

/// By what to sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Times recorded.
    Count,
    /// Mispredictions.
    Mispredicts,
    /// Share of mispredictions.
    Rate,
    /// Mean cycles; median in the view blocks.
    Cycles,
    /// Address of the branch.
    Address,
}

/// Prints the hot branches of a recording that has just been made.
pub(crate) fn hot(recording: &Path) -> Outcome {
    run(&Report {
        input: vec![recording.to_owned()],
        view: View::Hot,
        sort: None,
        min_n: 0,
        block: None,
        limit: None,
        html: None,
        json: false,
        select: SelectArgs::default(),
        dso: DsoArgs::default(),
        symbols: SymbolArgs::default(),
        paths: paths::PathOptions::default(),
        callgraph: callgraph::GraphOptions::default(),
    })
}

/// Runs the command.
pub(crate) fn run(args: &Report) -> Outcome {
    if let Some(path) = &args.html {
        return html::run(args, path);
    }
    if args.block.is_some() && args.view != View::Blocks {
        return usage("--block is of the view blocks: add --view blocks");
    }
    if args.paths.any() && args.view != View::Paths {
        return usage(
            "--min-probability and --cross-calls are of the view paths: add --view paths",
        );
    }
    if args.callgraph.any() && args.view != View::Callgraph {
        return usage(
            "--caller, --callee, --min-percent, --folded, --stitch and --truth are of the view \
             callgraph: add --view callgraph",
        );
    }
    let sorts: &[Sort] = match args.view {
        View::Hot => Sort::value_variants(),
        View::Mispredict => &[Sort::Count, Sort::Mispredicts, Sort::Rate, Sort::Address],
        View::Outcomes => &[Sort::Count, Sort::Address],
        View::Blocks => &[Sort::Count, Sort::Cycles, Sort::Address],
        View::Loops | View::Paths | View::Callgraph => &[Sort::Count],
    };
    if args.sort.is_some_and(|sort| !sorts.contains(&sort)) {
        return usage("this view cannot be sorted so: it has no such column");
    }
    match args.view {
        View::Hot => hot::run(args),
        View::Loops => loops::run(args),
        View::Paths => paths::run(args),
        View::Callgraph => callgraph::run(args),
        View::Mispredict | View::Outcomes | View::Blocks => flow::run(args),
    }
}

impl Report {
    /// Rows of a table at most.
    fn rows(&self) -> usize {
        match (self.limit, self.json) {
            (Some(0), _) | (None, true) => usize::MAX,
            (Some(limit), _) => limit,
            (None, false) => ROWS,
        }
    }
}

fn usage(what: &'static str) -> Outcome {
    Err(Failure { code: USAGE, error: anyhow::Error::msg(what) })
}

/// What was odd about the recordings and their files.
pub(super) fn finish(sources: &[Source], maps: &Maps) {
    sources.iter().for_each(input::warn);
    symbols::warn(maps);
}

/// Says that rows were left out.
fn print_hidden(
    out: &mut impl Write,
    all: usize,
    shown: usize,
    (one, many): (&str, &str),
) -> std::io::Result<()> {
    let hidden = all.saturating_sub(shown);
    if hidden > 0 {
        let what = if hidden == 1 { one } else { many };
        writeln!(out, "{} more {what} (--limit 0 shows all)", grouped(hidden as u64))?;
    }
    Ok(())
}

/// Where results go. JSON needs no look at each byte for escape sequences that
/// a pipe is to be spared: it has none.
fn stdout(json: bool) -> BufWriter<Box<dyn Write>> {
    match json {
        true => BufWriter::new(Box::new(std::io::stdout().lock())),
        false => BufWriter::new(Box::new(anstream::stdout().lock())),
    }
}

pub(crate) fn print_json(out: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// A place as people read it.
fn place(maps: &mut Maps, location: Location, addr: u64) -> String {
    symbols::place_within(maps, location, addr, symbols::room())
}

/// Symbol, offset in it and file of one end.
fn end_json(maps: &mut Maps, location: Location) -> (Option<String>, Option<u64>, Option<String>) {
    let named = maps.name(location);
    let path = match location {
        Location::File { file, .. } => maps.path(file).map(str::to_owned),
        Location::Address(_) => None,
    };
    let (name, offset) = named.map(|Named { name, offset }| (name, offset)).unzip();
    (name, offset, path)
}

/// An address in JSON; `None` for a place that was recorded by its symbol.
fn address(maps: &Maps, location: Location, addr: u64) -> Option<String> {
    maps.address_of(location, addr).map(|addr| format!("{addr:#x}"))
}

/// A part as a share of the whole, 0 to 1; `None` where there is nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn dash() -> String {
    "-".to_owned()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
