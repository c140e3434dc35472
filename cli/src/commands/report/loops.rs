//! `lbr report --view loops`.

use std::io::{BufWriter, Write};

use profile::interval::MIN_STACKS;
use profile::loops::{BackEdge, Loop, LoopFinder, Loops, Quantile, Trips};
use profile::maps::Maps;
use serde_json::{Value, json};

use super::reread::Reread;
use super::{Report, Totals, dash};
use crate::exit::{DONE, Outcome};
use crate::present::number::grouped;

/// Trip counts that a line of the table names.
const NAMED: usize = 12;

/// Runs the view.
pub(super) fn run(args: &Report) -> Outcome {
    let recordings = Reread::new(&args.input)?;
    let (finder, _) = LoopFinder::find_all(|read| recordings.read(read))?;
    let (loops, sources) = finder.count_all(|read| recordings.read(read))?;
    let totals =
        Totals { branches: loops.taken, distinct: loops.distinct, known: 0, mispredicted: None };
    let mut out = BufWriter::new(anstream::stdout().lock());
    let Loops { loops: found, mut maps, quality, complete, filtered, broken, .. } = loops;
    args.symbols.apply(&mut maps);
    let shown = found.get(..args.rows().min(found.len())).unwrap_or_default();
    if args.json {
        for (rank, one) in shown.iter().enumerate() {
            super::print_json(&mut out, &row_json(&mut maps, one, rank + 1, complete))?;
        }
        let mut quality = super::quality_json(&sources, &quality, &totals);
        for key in ["mispredicted", "predictions_known"] {
            quality.as_object_mut().map(|quality| quality.remove(key));
        }
        quality["complete"] = json!(complete);
        quality["stacks_filtered"] = json!(filtered);
        quality["neighbours_not_joined"] = json!(broken);
        quality["loops"] = json!(found.len());
        super::print_json(&mut out, &quality)?;
    } else {
        super::print_recordings(&mut out, &sources, &quality)?;
        super::print_counts(&mut out, &quality, &totals)?;
        print_sureness(&mut out, complete, filtered)?;
        writeln!(out)?;
        print_table(&mut out, &mut maps, shown, complete)?;
        super::print_hidden(&mut out, found.len(), shown.len(), "loops")?;
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
    loops: &[Loop],
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
    for (rank, one) in loops.iter().enumerate() {
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

fn row_json(maps: &mut Maps, one: &Loop, rank: usize, complete: bool) -> Value {
    let (symbol, offset, file) = super::end_json(maps, one.location);
    let mut branch = |back: &BackEdge| {
        let (symbol, offset, _) = super::end_json(maps, back.location);
        json!({
            "from": format!("{:#x}", back.from),
            "from_symbol": symbol,
            "from_offset": offset,
            "count": back.count,
        })
    };
    let back_edges: Vec<Value> = one.back_edges.iter().map(&mut branch).collect();
    let falls_from: Vec<Value> = one.falls_from.iter().map(&mut branch).collect();
    let trips = &one.trips;
    let histogram: Vec<Value> =
        trips.iter().map(|(trips, n)| json!({ "trips": trips, "entries": n })).collect();
    let (p50, p50_at_least) = quantile_json(trips.quantile(0.5));
    let (p90, p90_at_least) = quantile_json(trips.quantile(0.9));
    let (max, whole) = one.longest().unzip();
    let mean = match one.mean {
        Some(estimate) => estimate.mean,
        None => trips.mean(),
    };
    let cycles = &one.cycles;
    let timed = cycles.n() > 0;
    json!({
        "view": "loops",
        "rank": rank,
        "head": format!("{:#x}", one.head),
        "head_symbol": symbol,
        "head_offset": offset,
        "head_file": file,
        "depth": one.depth,
        "parent_rank": one.parent.map(|parent| parent + 1),
        "back_edges": back_edges,
        "falls_back": one.falls_back,
        "falls_from": falls_from,
        "tested_at_head": one.tested_at_head,
        "several_entrances": one.irreducible,
        "makes_calls": one.calls,
        "types_unknown": one.types_unknown,
        "exact": complete,
        "rounds": one.rounds,
        "n": trips.n(),
        "min": trips.min(),
        "p50": p50,
        "p50_is_at_least": p50_at_least,
        "p90": p90,
        "p90_is_at_least": p90_at_least,
        "max": max,
        "max_is_at_least": whole.map(|whole| !whole),
        "mean": mean,
        "mean_low": one.mean.and_then(|mean| mean.low),
        "mean_high": one.mean.and_then(|mean| mean.high),
        "histogram": histogram,
        "rounded": trips.is_rounded(),
        "not_seen_to_end": trips.open(),
        "not_seen_to_end_longest": trips.longest_open(),
        "not_seen_to_begin": one.headless,
        "cycles_n": cycles.n(),
        "cycles_min": cycles.min(),
        "cycles_p50": cycles.quantile(0.5),
        "cycles_p90": cycles.quantile(0.9),
        "cycles_max": cycles.max(),
        "cycles_modes": timed.then(|| cycles.modes()),
    })
}
