//! `lbr report --view loops`.

use std::io::Write;

use profile::interval::MIN_STACKS;
use profile::loops::{BackEdge, Loop, LoopFinder, Loops, Quantile, Trips};
use profile::maps::Maps;
use serde::Serialize;
use serde_json::json;

use super::{Report, Totals, dash};
use crate::exit::{DONE, Outcome};
use crate::input::Reread;
use crate::present::number::grouped;

/// Trip counts that a line of the table names.
const NAMED: usize = 12;

/// Runs the view.
pub(super) fn run(args: &Report) -> Outcome {
    let recordings = Reread::new(&args.input, &args.select.selection())?;
    let (finder, _) = LoopFinder::find_all(|read| recordings.read(read))?;
    let (loops, sources) = finder.count_all(|read| recordings.read(read))?;
    let totals =
        Totals { branches: loops.taken, distinct: loops.distinct, known: 0, mispredicted: None };
    let mut out = super::stdout(args.json);
    let Loops { loops: found, mut maps, quality, complete, filtered, broken, .. } = loops;
    args.symbols.apply(&mut maps);
    // Loops name others by rank: it stays that among all.
    let mut listed: Vec<(usize, &Loop)> = found.iter().enumerate().collect();
    let rounds = found.iter().fold(0, |sum: u64, one| sum.saturating_add(one.rounds));
    let rows = args
        .dso
        .keep(&maps, &mut listed, (rounds, "rounds"), |(_, one)| (one.location, one.rounds))?;
    let shown = listed.get(..args.rows().min(listed.len())).unwrap_or_default();
    if args.json {
        for (rank, one) in shown {
            super::print_json(&mut out, &row(&mut maps, one, rank + 1, complete))?;
        }
        let mut quality = super::quality_json(&sources, &quality, &totals);
        for key in ["mispredicted", "predictions_known"] {
            quality.as_object_mut().map(|quality| quality.remove(key));
        }
        quality["complete"] = json!(complete);
        quality["stacks_filtered"] = json!(filtered);
        quality["neighbours_not_joined"] = json!(broken);
        quality["loops"] = json!(found.len());
        quality["dso"] = json!(rows.map(|rows| rows.json()));
        super::print_json(&mut out, &quality)?;
    } else {
        super::print_recordings(&mut out, &sources, &quality)?;
        super::print_counts(&mut out, &quality, &totals)?;
        print_sureness(&mut out, complete, filtered)?;
        if let Some(rows) = rows {
            writeln!(out, "{}", rows.line())?;
        }
        writeln!(out)?;
        print_table(&mut out, &mut maps, shown, complete)?;
        super::print_hidden(&mut out, listed.len(), shown.len(), ("loop", "loops"))?;
    }
    out.flush()?;
    super::finish(&sources, &maps);
    Ok(DONE)
}

fn print_sureness(out: &mut impl Write, complete: bool, filtered: u64) -> std::io::Result<()> {
    if complete {
        writeln!(out, "every taken branch is here: trip counts are the truth")?;
    } else {
        writeln!(
            out,
            "a sample: means are rounds per exit with their 95 % interval, by stack; quantiles are\n\
             of the entries that were seen to begin, >= where longer ones were lost sight of"
        )?;
    }
    if filtered > 0 {
        let stacks = grouped(filtered);
        writeln!(out, "{stacks} stacks show no loops, because not every branch was recorded")?;
    }
    Ok(())
}

fn print_table(
    out: &mut impl Write,
    maps: &mut Maps,
    loops: &[(usize, &Loop)],
    complete: bool,
) -> std::io::Result<()> {
    // Where trip counts are the truth there is no interval.
    let wide = if complete { 0 } else { 22 };
    writeln!(
        out,
        "{:>4}  {:>4}  {:>5}  {:>10}  {:>12}  {:>6}  {:>6}  {:>6}  {:>8}  {:>9}  {:<wide$}{:>10}  head <- back edges",
        "rank",
        "in",
        "depth",
        "entries",
        "rounds",
        "min",
        "p50",
        "p90",
        "max",
        "mean",
        if complete { "" } else { "95 %" },
        "cycles p50",
    )?;
    for (rank, one) in loops {
        let trips = &one.trips;
        let (mean, interval) = mean(one);
        let longest = longest(one);
        writeln!(
            out,
            "{:>4}  {:>4}  {:>5}  {:>10}  {:>12}  {:>6}  {:>6}  {:>6}  {longest:>8}  {mean:>9}  {interval:<wide$}{:>10}  {} <- {}{}",
            rank + 1,
            one.parent.map_or_else(dash, |parent| (parent + 1).to_string()),
            one.depth,
            grouped(entries(one)),
            grouped(one.rounds),
            trips.min().map_or_else(dash, |min| min.to_string()),
            quantile(trips.quantile(0.5)),
            quantile(trips.quantile(0.9)),
            one.cycles.quantile(0.5).map_or_else(dash, |cycles| cycles.to_string()),
            super::place(maps, one.location, one.head),
            backs(maps, one),
            remarks(one),
        )?;
        let counts = counts(trips);
        if !counts.is_empty() {
            writeln!(out, "{:>6}trips: {counts}", "")?;
        }
    }
    Ok(())
}

/// The most trips of an entry, or how many at least.
pub(super) fn longest(one: &Loop) -> String {
    one.longest().map_or_else(
        dash,
        |(most, whole)| {
            if whole { most.to_string() } else { format!(">= {most}") }
        },
    )
}

/// Entries that were seen to begin, and those that were inside already.
pub(super) fn entries(one: &Loop) -> u64 {
    one.trips.n().saturating_add(one.trips.open()).saturating_add(one.headless)
}

pub(super) fn quantile(quantile: Quantile) -> String {
    match quantile {
        Quantile::Unknown => dash(),
        Quantile::Is(trips) => trips.to_string(),
        Quantile::AtLeast(trips) => format!(">={trips}"),
    }
}

/// The mean and, in a sample, its interval.
pub(super) fn mean(one: &Loop) -> (String, String) {
    let Some(estimate) = one.mean else {
        return (one.trips.mean().map_or_else(dash, |mean| format!("{mean:.2}")), String::new());
    };
    let mean = estimate.mean.map_or_else(dash, |mean| format!("{mean:.2}"));
    let interval = match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
        (Some(low), None) => format!(">= {low:.2}"),
        _ => format!("- (under {MIN_STACKS} stacks)"),
    };
    (mean, interval)
}

/// The branches that lead back. A head that is fallen into has none; there the
/// ones that lead backwards to before it are named.
pub(super) fn backs(maps: &mut Maps, one: &Loop) -> String {
    let mut place = |back: &BackEdge| super::place(maps, back.location, back.from);
    let mut backs: Vec<String> = one.back_edges.iter().map(&mut place).collect();
    if one.falls_back > 0 {
        let from: Vec<String> = one.falls_from.iter().map(&mut place).collect();
        backs.push(match from.as_slice() {
            [] => "falls in".to_owned(),
            from => format!("falls in after {}", from.join(", ")),
        });
    }
    backs.join(", ")
}

pub(super) fn remarks(one: &Loop) -> String {
    let remarks = [
        (one.tested_at_head, "tested at the head"),
        (one.calls, "makes calls"),
        (one.irreducible, "several entrances"),
        (one.types_unknown, "branch types not known: a call may look like a loop"),
    ];
    let words: Vec<&str> = remarks.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The most frequent trip counts, from low to high.
fn counts(trips: &Trips) -> String {
    let all: Vec<(u32, u64)> = trips.iter().collect();
    let mut frequent = all.clone();
    frequent.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    frequent.truncate(NAMED);
    frequent.sort_unstable();
    let mut words: Vec<String> =
        frequent.iter().map(|(trips, n)| format!("{trips} ({} x)", grouped(*n))).collect();
    let hidden = all.len().saturating_sub(frequent.len());
    if hidden > 0 {
        words.push(format!("{hidden} other counts"));
    }
    if trips.open() > 0 {
        let most = trips.longest_open().unwrap_or(0);
        words.push(format!("{} not seen to end (up to >= {most})", grouped(trips.open())));
    }
    words.join(", ")
}

fn quantile_json(quantile: Quantile) -> (Option<u32>, bool) {
    match quantile {
        Quantile::Unknown => (None, false),
        Quantile::Is(trips) => (Some(trips), false),
        Quantile::AtLeast(trips) => (Some(trips), true),
    }
}

/// A loop as one JSON object, its keys in the order of the alphabet as
/// everywhere. A loop of generated code may have as many branches back as the
/// program has branches.
#[derive(Debug, Serialize)]
struct LoopRow {
    back_edges: Vec<BranchRow>,
    cycles_max: Option<u32>,
    cycles_min: Option<u32>,
    cycles_modes: Option<Vec<u32>>,
    cycles_n: u64,
    cycles_p50: Option<u32>,
    cycles_p90: Option<u32>,
    depth: u32,
    exact: bool,
    falls_back: u64,
    falls_from: Vec<BranchRow>,
    head: Option<String>,
    head_file: Option<String>,
    head_offset: Option<u64>,
    head_symbol: Option<String>,
    histogram: Vec<TripsRow>,
    makes_calls: bool,
    max: Option<u64>,
    max_is_at_least: Option<bool>,
    mean: Option<f64>,
    mean_high: Option<f64>,
    mean_low: Option<f64>,
    min: Option<u32>,
    n: u64,
    not_seen_to_begin: u64,
    not_seen_to_end: u64,
    not_seen_to_end_longest: Option<u32>,
    p50: Option<u32>,
    p50_is_at_least: bool,
    p90: Option<u32>,
    p90_is_at_least: bool,
    parent_rank: Option<usize>,
    rank: usize,
    rounded: bool,
    rounds: u64,
    several_entrances: bool,
    tested_at_head: bool,
    types_unknown: bool,
    view: &'static str,
}

/// A branch that closes rounds of a loop.
#[derive(Debug, Serialize)]
struct BranchRow {
    count: u64,
    from: Option<String>,
    from_offset: Option<u64>,
    from_symbol: Option<String>,
}

/// How many entries made so many trips.
#[derive(Debug, Serialize)]
struct TripsRow {
    entries: u64,
    trips: u32,
}

fn row(maps: &mut Maps, one: &Loop, rank: usize, complete: bool) -> LoopRow {
    let (head_symbol, head_offset, head_file) = super::end_json(maps, one.location);
    let mut branch = |back: &BackEdge| {
        let (from_symbol, from_offset, _) = super::end_json(maps, back.location);
        let from = super::address(maps, back.location, back.from);
        BranchRow { count: back.count, from, from_offset, from_symbol }
    };
    let back_edges = one.back_edges.iter().map(&mut branch).collect();
    let falls_from = one.falls_from.iter().map(&mut branch).collect();
    let trips = &one.trips;
    let histogram = trips.iter().map(|(trips, entries)| TripsRow { entries, trips });
    let (p50, p50_is_at_least) = quantile_json(trips.quantile(0.5));
    let (p90, p90_is_at_least) = quantile_json(trips.quantile(0.9));
    let (max, whole) = one.longest().unzip();
    let mean = match one.mean {
        Some(estimate) => estimate.mean,
        None => trips.mean(),
    };
    let cycles = &one.cycles;
    LoopRow {
        back_edges,
        cycles_max: cycles.max(),
        cycles_min: cycles.min(),
        cycles_modes: (cycles.n() > 0).then(|| cycles.modes()),
        cycles_n: cycles.n(),
        cycles_p50: cycles.quantile(0.5),
        cycles_p90: cycles.quantile(0.9),
        depth: one.depth,
        exact: complete,
        falls_back: one.falls_back,
        falls_from,
        head: super::address(maps, one.location, one.head),
        head_file,
        head_offset,
        head_symbol,
        histogram: histogram.collect(),
        makes_calls: one.calls,
        max,
        max_is_at_least: whole.map(|whole| !whole),
        mean,
        mean_high: one.mean.and_then(|mean| mean.high),
        mean_low: one.mean.and_then(|mean| mean.low),
        min: trips.min(),
        n: trips.n(),
        not_seen_to_begin: one.headless,
        not_seen_to_end: trips.open(),
        not_seen_to_end_longest: trips.longest_open(),
        p50,
        p50_is_at_least,
        p90,
        p90_is_at_least,
        parent_rank: one.parent.map(|parent| parent + 1),
        rank,
        rounded: trips.is_rounded(),
        rounds: one.rounds,
        several_entrances: one.irreducible,
        tested_at_head: one.tested_at_head,
        types_unknown: one.types_unknown,
        view: "loops",
    }
}
