//! `lbr report`: what a recording says.

pub(crate) mod blocks;
mod callgraph;
pub(crate) mod flow;
mod html;
mod loops;
mod mispredict;
mod outcomes;
mod paths;
mod reread;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use profile::brstack::type_name;
use profile::hot::{Counter, HotBranch, HotTable, Order};
use profile::interval::Interval;
use profile::maps::{Location, Maps, Named};
use profile::quality::Quality;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::{DONE, Failure, Outcome, USAGE};
use crate::input::{self, Source};
use crate::present::number::{counted, grouped};
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
    /// perf.data, or text of `perf script -F brstack`; `-` is standard input.
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
    /// the view prints them with --json.
    #[arg(long, value_name = "ENTRY..EXIT", value_parser = blocks::range)]
    block: Option<(u64, u64)>,
    /// Rows at most; 0 is all [default: 25, with --json all, with --html 250].
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Write one page with every view but paths into this file, to look at in a browser.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "view", "sort", "block"])]
    html: Option<PathBuf>,
    /// One JSON object a row (`"view":"hot"` and so on), and at the end one with
    /// the totals and the quality of the data (`"view":"quality"`).
    #[arg(long)]
    json: bool,
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

impl From<Sort> for Order {
    fn from(sort: Sort) -> Order {
        match sort {
            Sort::Count => Order::Count,
            Sort::Mispredicts => Order::Mispredicts,
            Sort::Rate => Order::Rate,
            Sort::Cycles => Order::Cycles,
            Sort::Address => Order::Address,
        }
    }
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
        View::Hot => {}
        View::Loops => return loops::run(args),
        View::Paths => return paths::run(args),
        View::Callgraph => return callgraph::run(args),
        View::Mispredict | View::Outcomes | View::Blocks => return flow::run(args),
    }
    let mut counter = Counter::new();
    let sources = input::read_all(&args.input, |recording, at| counter.recording(recording, at))?;
    let mut table = counter.finish();
    args.symbols.apply(&mut table.maps);
    if let Some(sort) = args.sort {
        table.sort(sort.into());
    }
    let mut branches = std::mem::take(&mut table.branches);
    let distinct = branches.len();
    branches.truncate(args.rows());
    branches.shrink_to_fit();
    table.maps.look_up_lines(branches.iter().flat_map(|b| [b.from_location, b.to_location]));
    let totals = Totals {
        branches: table.total,
        distinct: distinct as u64,
        known: table.known,
        mispredicted: table.mispredicted,
    };
    // Nothing here is in colour, so that nothing has to be taken out again.
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.json {
        for (rank, branch) in branches.iter().enumerate() {
            print_json(&mut out, &row_json(&mut table, branch, rank + 1))?;
        }
        print_json(&mut out, &quality_json(&sources, &table.quality, &totals))?;
    } else {
        print_head(&mut out, &sources, &table.quality, &totals)?;
        let shares = branches.iter().map(|branch| table.share(branch));
        if let Some(line) = share_line(&table.quality, shares) {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        print_table(&mut out, &mut table, &branches)?;
        print_hidden(&mut out, distinct, branches.len(), ("branch", "branches"))?;
    }
    out.flush()?;
    finish(&sources, &table.maps);
    Ok(DONE)
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

/// What all views count.
pub(crate) struct Totals {
    branches: u64,
    distinct: u64,
    known: u64,
    mispredicted: Option<u64>,
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

/// The lines above the table: whose branches, how many, how good.
fn print_head(
    out: &mut impl Write,
    sources: &[Source],
    quality: &Quality,
    totals: &Totals,
) -> std::io::Result<()> {
    print_recordings(out, sources, quality)?;
    write_counts(out, quality, totals)?;
    match totals.mispredicted {
        Some(missed) => writeln!(
            out,
            "; {} of {} known predictions missed ({})",
            grouped(missed),
            grouped(totals.known),
            percent(missed as f64 / totals.known as f64)
        )?,
        None => writeln!(out, "; predictions not recorded")?,
    }
    writeln!(out, "data quality: {}", quality_line(quality))
}

/// Whose branches these are.
fn print_recordings(
    out: &mut impl Write,
    sources: &[Source],
    quality: &Quality,
) -> std::io::Result<()> {
    for source in sources {
        let Source { name, cpu, by, .. } = source;
        write!(out, "{name}: {}", cpu.as_deref().unwrap_or("CPU not said"))?;
        if let Some(by) = by {
            write!(out, "; recorded by {by}")?;
        }
        if let Some(partial) = source.partial() {
            write!(out, "; {partial}")?;
        }
        writeln!(out)?;
    }
    if quality.software > 0 && !sources.iter().any(Source::says_modelled) {
        writeln!(out, "software LBR, not measured")?;
    }
    Ok(())
}

fn write_counts(out: &mut impl Write, quality: &Quality, totals: &Totals) -> std::io::Result<()> {
    write!(
        out,
        "{}, {}, {} distinct",
        counted(quality.samples, "sample", "samples"),
        counted(totals.branches, "branch", "branches"),
        grouped(totals.distinct)
    )
}

/// How many branches, and how good: for views that do not look at predictions.
fn print_counts(out: &mut impl Write, quality: &Quality, totals: &Totals) -> std::io::Result<()> {
    write_counts(out, quality, totals)?;
    writeln!(out, "\ndata quality: {}", quality_line(quality))
}

/// The quality in words.
pub(super) fn quality_line(quality: &Quality) -> String {
    let mut parts = Vec::new();
    match quality.exact_share() {
        Some(share) => parts.push(format!("exact {} of stacks", percent(share))),
        None => parts.push("exact - (the recording does not say how stacks join)".to_owned()),
    }
    for (label, count) in &quality.labels {
        parts.push(format!("{} {}", label.name(), grouped(*count)));
    }
    for (label, count) in &quality.lost {
        let why = label.map_or("dropped", |label| label.name());
        parts.push(format!("lost {} ({why})", grouped(*count)));
    }
    if quality.lost.is_empty() {
        parts.push("lost 0".to_owned());
    }
    let odd = [
        ("empty stacks", quality.empty_stacks),
        ("entries 0x0 -> 0x0 left out", quality.zero_entries),
        ("branches not taken left out", quality.not_taken),
        ("duplicated newest entries left out", quality.duplicated_newest),
        ("second records of aborts left out", quality.double_aborts),
        ("stacks kept out", quality.excluded),
    ];
    for (what, count) in odd.into_iter().filter(|(_, count)| *count > 0) {
        parts.push(format!("{} {what}", grouped(count)));
    }
    parts.join(", ")
}

/// The line that says how sure the shares of a sample are; `None` where counts
/// are the truth.
pub(super) fn share_line(quality: &Quality, shares: impl Iterator<Item = f64>) -> Option<String> {
    if quality.is_complete() || quality.samples == 0 {
        return None;
    }
    let off = |share| {
        let Interval { low, high } = quality.share_interval(share)?;
        Some((high - share).max(share - low))
    };
    Some(match shares.filter_map(off).reduce(f64::max) {
        Some(most) => format!(
            "a sample: shares are within {:.2} points at most (95 %, as if a stack were one draw)",
            most * 100.0
        ),
        None => "a sample of too few stacks to say how sure shares are".to_owned(),
    })
}

/// A place as people read it.
fn place(maps: &mut Maps, location: Location, addr: u64) -> String {
    symbols::place_within(maps, location, addr, symbols::room())
}

/// The table, row by row: a layout that first collects every cell would take
/// memory for each of 100,000 branches.
fn print_table(
    out: &mut impl Write,
    table: &mut HotTable,
    branches: &[HotBranch],
) -> std::io::Result<()> {
    let widest = branches.iter().map(|branch| branch.count).max().unwrap_or(0);
    let rank_width = branches.len().to_string().len().max("rank".len());
    let count_width = grouped(widest).len().max("count".len());
    writeln!(
        out,
        "{:>rank_width$}  {:>count_width$}  {:>8}  {:>10}  {:>7}  {:<10}  from -> to",
        "rank", "count", "share", "mispredict", "cycles", "type"
    )?;
    for (rank, branch) in branches.iter().enumerate() {
        let from = place(&mut table.maps, branch.from_location, branch.from);
        let to = place(&mut table.maps, branch.to_location, branch.to);
        writeln!(
            out,
            "{:>rank_width$}  {:>count_width$}  {:>8}  {:>10}  {:>7}  {:<10}  {from} -> {to}",
            rank + 1,
            grouped(branch.count),
            percent(table.share(branch)),
            rate(branch),
            branch.cycles.map_or_else(dash, |cycles| format!("{cycles:.1}")),
            table.type_of(branch).map_or_else(dash, |t| type_name(t).into_owned()),
        )?;
    }
    Ok(())
}

/// The share of mispredictions. What was never seen may happen all the same.
fn rate(branch: &HotBranch) -> String {
    match branch.mispredict_rate() {
        Some(0.0) => "never seen".to_owned(),
        rate => rate.map_or_else(dash, percent),
    }
}

fn row_json(table: &mut HotTable, branch: &HotBranch, rank: usize) -> Value {
    let from = end_json(&mut table.maps, branch.from_location);
    let to = end_json(&mut table.maps, branch.to_location);
    let (from_line, from_inlines) = source_json(&mut table.maps, branch.from_location);
    let (to_line, to_inlines) = source_json(&mut table.maps, branch.to_location);
    let branch_type = table.type_of(branch).map(type_name);
    let share = table.share(branch);
    let (share_low, share_high) = flow::ends(table.quality.share_interval(share));
    json!({
        "view": "hot",
        "rank": rank,
        "count": branch.count,
        "share": share,
        "share_low": share_low,
        "share_high": share_high,
        "mispredicted": branch.mispredicted,
        "predictions_known": branch.known,
        "mispredict_rate": branch.mispredict_rate(),
        "cycles": branch.cycles,
        "counters": branch.counters,
        "type": branch_type,
        "from": format!("{:#x}", branch.from),
        "from_symbol": from.0,
        "from_offset": from.1,
        "from_file": from.2,
        "from_line": from_line,
        "from_inlines": from_inlines,
        "to": format!("{:#x}", branch.to),
        "to_symbol": to.0,
        "to_offset": to.1,
        "to_file": to.2,
        "to_line": to_line,
        "to_inlines": to_inlines,
    })
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

fn quality_json(sources: &[Source], quality: &Quality, totals: &Totals) -> Value {
    let labels: serde_json::Map<String, Value> =
        quality.labels.iter().map(|(label, n)| (label.name().to_owned(), json!(n))).collect();
    let lost: serde_json::Map<String, Value> = quality
        .lost
        .iter()
        .map(|(label, n)| (label.map_or("dropped", |l| l.name()).to_owned(), json!(n)))
        .collect();
    json!({
        "view": "quality",
        "inputs": sources.iter().map(|source| source.name.as_str()).collect::<Vec<_>>(),
        "partial": sources.iter().any(Source::is_partial),
        "samples": quality.samples,
        "empty_stacks": quality.empty_stacks,
        "entries": quality.entries,
        "zero_entries": quality.zero_entries,
        "not_taken": quality.not_taken,
        "duplicated_newest": quality.duplicated_newest,
        "double_aborts": quality.double_aborts,
        "branches": totals.branches,
        "distinct": totals.distinct,
        "mispredicted": totals.mispredicted,
        "predictions_known": totals.known,
        "exact": quality.exact_share().map(|_| quality.exact),
        "labels": labels,
        "lost": quality.lost_total(),
        "lost_by_reason": lost,
        "excluded": quality.excluded,
        "software": quality.software,
        "hardware": quality.hardware,
    })
}

fn dash() -> String {
    "-".to_owned()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}
