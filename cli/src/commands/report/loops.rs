//! Loops: how often their bodies ran each time they were entered, in how many
//! cycles, and how they nest.

use maud::{Markup, html};
use profile::interval::MIN_STACKS;
use profile::loops::{BackEdge, Loop, Loops, Quantile, Trips};
use profile::maps::Maps;
use serde::Serialize;
use serde_json::json;

use super::{Page, Report, Section, Sort, View, print_hidden, rest};
use crate::exit::Result;
use crate::head::{Notes, Totals, quality_json, without};
use crate::input::{Count, Recordings, Source};
use crate::present::{Cell, Out, Part, Place, Printer, Ranked, Table, applicable, grouped, joined};

pub(super) const VIEW: View = View {
    name: "loops",
    about: "Loops: how often their bodies ran each time they were entered, in how many cycles, and \
            how they nest",
    sorts: &[Sort::Count],
    run,
    section: Some(Section { title: "Loops", markup }),
};

/// Trip counts that a line of the table names.
const NAMED: usize = 12;

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    let recordings = Recordings::once(args.inputs.paths(), args.reading())?;
    let (loops, sources) = recordings.loops()?;
    let totals = Totals::of(loops.taken, loops.distinct);
    let Loops { loops: found, mut maps, quality, complete, filtered, broken, .. } = loops;
    let mut listed: Vec<Ranked<'_, Loop>> = found.iter().enumerate().collect();
    let trips = found.iter().fold(0, |sum: u64, one| sum.saturating_add(one.all_trips()));
    let rows = args.shown().keep(&mut maps, &mut listed, (trips, "trips"), |(_, one)| {
        (one.location, one.all_trips())
    })?;
    let shown = listed.get(..args.rows().min(listed.len())).unwrap_or_default();
    let table = table(complete);
    let printer = args.printer();
    out.modelled = Source::any_models_fields(&sources);
    let read = (&*sources, &quality, &totals);
    args.print_head(out, read, || notes(complete, filtered), rows.as_ref())?;
    if printer == Printer::Text {
        let layout = table.layout(out, &mut maps, shown.iter().copied(), 0);
        if !shown.is_empty() {
            layout.headings(out)?;
        }
        for row in shown {
            table.write_row(&layout, out, &mut maps, row)?;
            let counts = counts(&row.1.trips);
            if !counts.is_empty() {
                out.line(format_args!("{:>6}trips: {counts}", ""))?;
            }
        }
        print_hidden(out, listed.len(), shown.len(), ("loop", "loops"))?;
    } else {
        table.write(printer, out, &mut maps, shown.iter().copied())?;
    }
    let mut totals = quality_json(&sources, &quality, &totals);
    totals["complete"] = json!(complete);
    totals["stacks_filtered"] = json!(filtered);
    totals["neighbours_not_joined"] = json!(broken);
    totals["loops"] = json!(found.len());
    args.end(out, totals, rows.as_ref(), (&sources, &maps))
}

fn notes(complete: bool, filtered: u64) -> Notes {
    let trust = match complete {
        true => "complete: every taken branch",
        false => "trips are those seen; mean trips of an entry with 95% interval, by stack",
    };
    let unusual = without(filtered, "loops");
    Notes { trust: Some(trust.to_owned()), unusual }
}

/// Loops, whose trip counts may be exact.
pub(crate) fn table<'a>(complete: bool) -> Table<'a, Maps, Ranked<'a, Loop>> {
    let parent = |one: &Loop| one.parent.map(|parent| parent as u64 + 1);
    Table::<Maps, Ranked<'_, Loop>>::ranked("loops")
        .number("parent_rank", "in", move |_, (_, one)| Cell::number(parent(one)))
        .number("depth", "depth", |_, (_, one)| Cell::Number(u64::from(one.depth)))
        .number("", "entries", |_, (_, one)| Cell::Count(entries(one)))
        .only("n", |_, (_, one)| Cell::Count(one.trips.ended.n()))
        .only("not_seen_to_begin", |_, (_, one)| Cell::Count(one.headless))
        .only("not_seen_to_end", |_, (_, one)| Cell::Count(one.trips.open.n()))
        .only("not_seen_to_end_longest", |_, (_, one)| Cell::number(one.trips.open.max()))
        .number("rounds", "trips", |_, (_, one)| Cell::Count(one.all_trips()))
        .heat()
        .number("min", "min", |_, (_, one)| Cell::number(one.trips.ended.min()))
        .number("p50", "p50", |_, (_, one)| quantile(one.trips.quantile(0.5)))
        .only("p50_is_at_least", |_, (_, one)| is_at_least(one, 0.5))
        .number("p90", "p90", |_, (_, one)| quantile(one.trips.quantile(0.9)))
        .only("p90_is_at_least", |_, (_, one)| is_at_least(one, 0.9))
        .number("", "max", |_, (_, one)| longest(one))
        .only("max", |_, (_, one)| Cell::number(one.longest().map(|(most, _)| most)))
        .only("max_is_at_least", |_, (_, one)| {
            Cell::or_absent(one.longest(), |(_, whole)| Cell::Flag(!whole))
        })
        .number("", "mean", |_, (_, one)| Cell::decimal(one.mean_trips(), 2))
        // Exact trip counts have no interval.
        .number("", if complete { "" } else { "95%" }, |_, (_, one)| interval(one))
        .only("mean", |_, (_, one)| Cell::decimal(one.mean_trips(), 2))
        .only("mean_low", |_, (_, one)| Cell::decimal(one.mean.and_then(|mean| mean.low), 2))
        .only("mean_high", |_, (_, one)| Cell::decimal(one.mean.and_then(|mean| mean.high), 2))
        .number("cycles_p50", "cycles p50", |_, (_, one)| Cell::number(one.cycles.quantile(0.5)))
        .only("cycles_p90", |_, (_, one)| Cell::number(one.cycles.quantile(0.9)))
        .only("cycles_min", |_, (_, one)| Cell::number(one.cycles.min()))
        .only("cycles_max", |_, (_, one)| Cell::number(one.cycles.max()))
        .only("cycles_n", |_, (_, one)| Cell::Count(one.cycles.n()))
        .nested("cycles_modes", |_, (_, one)| (one.cycles.n() > 0).then(|| one.cycles.modes()))
        .place(
            "head",
            "head",
            &[Part::Address, Part::Symbol, Part::Offset, Part::File],
            |maps, (_, one)| Some(Place::of(maps, one.location, one.head)),
        )
        .name("", "back edges", |maps, (_, one)| backs(maps, one))
        .behind(" <- ")
        .nested("back_edges", |maps, (_, one)| edges(maps, &one.back_edges))
        .nested("falls_from", |maps, (_, one)| edges(maps, &one.falls_from))
        .only("falls_back", |_, (_, one)| Cell::Count(one.falls_back))
        .nested("histogram", |_, (_, one)| histogram(&one.trips))
        .only("rounded", |_, (_, one)| Cell::Flag(one.trips.ended.is_rounded()))
        .only("exact", move |_, _| Cell::Flag(complete))
        .only("tested_at_head", |_, (_, one)| Cell::Flag(one.tested_at_head))
        .only("makes_calls", |_, (_, one)| Cell::Flag(one.calls))
        .only("several_entrances", |_, (_, one)| Cell::Flag(one.irreducible))
        .only("types_unknown", |_, (_, one)| Cell::Flag(one.types_unknown))
        .spares(&["depth", "cycles p50", "max", "min", "p90", "in", "p50", "95%"])
}

/// The most trips of an entry, or how many at least.
fn longest(one: &Loop) -> Cell {
    Cell::or_absent(one.longest(), |(most, whole)| {
        let bound = if whole { "" } else { ">= " };
        Cell::Stated(format!("{bound}{most}"), Some(most as f64))
    })
}

/// Entries whose start was recorded, and those already inside.
fn entries(one: &Loop) -> u64 {
    one.trips.ended.n().saturating_add(one.trips.open.n()).saturating_add(one.headless)
}

fn quantile(quantile: Quantile) -> Cell {
    match quantile {
        Quantile::Unknown => Cell::Absent,
        Quantile::Is(trips) => Cell::Number(u64::from(trips)),
        Quantile::AtLeast(trips) => Cell::AtLeast(u64::from(trips)),
    }
}

fn is_at_least(one: &Loop, of: f64) -> Cell {
    Cell::Flag(matches!(one.trips.quantile(of), Quantile::AtLeast(_)))
}

/// The interval of the mean, in a sample.
fn interval(one: &Loop) -> Cell {
    let Some(estimate) = one.mean else { return Cell::Empty };
    let text = match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => format!("{low:.2} to {high:.2}"),
        (Some(low), None) => format!(">= {low:.2}"),
        _ => format!("- (under {MIN_STACKS} stacks)"),
    };
    Cell::Stated(text, estimate.low)
}

/// The branches that lead back. A head that is fallen into has none; there the
/// ones that lead backwards to before it are named.
fn backs(maps: &mut Maps, one: &Loop) -> Cell {
    let mut place =
        |back: &BackEdge, before| Place::of(maps, back.location, back.from).after(before);
    let mut backs: Vec<Place> = one.back_edges.iter().map(|back| place(back, "")).collect();
    let mut behind = remarks(one);
    if one.falls_back > 0 {
        let from = one.falls_from.iter().enumerate();
        backs.extend(
            from.map(|(at, back)| place(back, if at == 0 { "falls in after " } else { "" })),
        );
        if one.falls_from.is_empty() {
            let comma = if backs.is_empty() { "" } else { ", " };
            behind = format!("{comma}falls in{behind}");
        }
    }
    Cell::Places(backs, behind)
}

fn remarks(one: &Loop) -> String {
    let remarks = [
        (one.tested_at_head, "tested at the head"),
        (one.calls, "makes calls"),
        (one.irreducible, "several entrances"),
        (one.types_unknown, "branch types not known: a call may look like a loop"),
    ];
    let words = joined(applicable(remarks), ", ");
    if words.is_empty() { words } else { format!(" ({words})") }
}

/// The most frequent trip counts, from low to high.
fn counts(trips: &Trips) -> String {
    let all: Vec<(u32, u64)> = trips.ended.iter().collect();
    let mut frequent = all.clone();
    frequent.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    frequent.truncate(NAMED);
    frequent.sort_unstable();
    let mut words: Vec<String> = frequent
        .iter()
        .map(|(trips, n)| format!("{trips}\u{a0}({}\u{a0}x)", grouped(*n)))
        .collect();
    let hidden = all.len().saturating_sub(frequent.len());
    if hidden > 0 {
        words.push(format!("{hidden} other counts"));
    }
    if trips.open.n() > 0 {
        let most = trips.open.max().unwrap_or(0);
        words.push(format!("{} not seen to end (up to >= {most})", grouped(trips.open.n())));
    }
    words.join(", ")
}

/// A branch that closes rounds of a loop. A loop of generated code may have as
/// many of them as the program has branches.
#[derive(Debug, Serialize)]
struct Edge {
    count: u64,
    from: Option<String>,
    from_offset: Option<u64>,
    from_symbol: Option<String>,
}

fn edges(maps: &mut Maps, edges: &[BackEdge]) -> Vec<Edge> {
    let mut edge = |edge: &BackEdge| {
        let place = Place::of(maps, edge.location, edge.from);
        let (from_symbol, from_offset) =
            place.symbol.map(|named| (named.name, named.offset)).unzip();
        let from = place.address.map(|address| format!("{address:#x}"));
        Edge { count: edge.count, from, from_offset, from_symbol }
    };
    edges.iter().map(&mut edge).collect()
}

/// Number of entries with this trip count.
#[derive(Debug, Serialize)]
struct TripCount {
    entries: u64,
    trips: u32,
}

fn histogram(trips: &Trips) -> Vec<TripCount> {
    trips.ended.iter().map(|(trips, entries)| TripCount { entries, trips }).collect()
}

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let (loops, _) = page.recordings.loops()?;
    let Loops { loops: found, mut maps, complete, filtered, .. } = loops;
    let mut listed: Vec<Ranked<'_, Loop>> = found.iter().enumerate().collect();
    page.args
        .shown()
        .keep(&mut maps, &mut listed, (0, ""), |(_, one)| (one.location, one.all_trips()))?;
    if listed.is_empty() {
        let why = if !found.is_empty() {
            "No loops match the selection."
        } else if filtered > 0 {
            "No loops: not every branch was recorded (record with -j any,u)."
        } else {
            "No loops."
        };
        return Ok(html! { p { (why) } });
    }
    let shown = listed.get(..page.limit.min(listed.len())).unwrap_or_default();
    Ok(html! {
        p {
            "How often the body ran each time the loop was entered, and the core cycles of a round. "
            @if complete { "Every taken branch is here: trip counts are the truth." }
            @else { "A sample: quantiles are of the entries that were seen to begin, ≥ where longer ones were lost sight of." }
        }
        (table(complete).html("Loops", &mut maps, shown.iter().copied()))
        (rest(listed.len(), shown.len(), "loops"))
    })
}
