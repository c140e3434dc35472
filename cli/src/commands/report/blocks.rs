//! Straight code between branches: how often it ran and in how many cycles.

use std::cmp::Reverse;
use std::io;
use std::str::FromStr;

use maud::{Markup, html};
use profile::Flow;
use profile::basic::{BasicBlock, Bound, Cuts};
use profile::cycles::Cycles;
use profile::flow::{Block, share_of};
use profile::maps::{Location, Maps};
use profile::place::{self, LocationSpec, ParsePlaceError, PlaceError, Span};
use profile::quality::Quality;
use serde::Serialize;

use super::hot::means;
use super::{CYCLES, Page, Report, Section, Sort, View, rest, run_flow, say_unsorted, unusual};
use crate::exit::{Result, USAGE};
use crate::head::{Notes, share_trust};
use crate::present::chart::{Histogram, Series, figure, small_svg};
use crate::present::{Cell, Out, Part, Place, Printer, Ranked, Table, grouped, joined, say, share};

pub(super) const VIEW: View = View {
    name: "blocks",
    about: "Straight code between branches: how often it ran and in how many cycles",
    sorts: &[Sort::Count, Sort::Cycles, Sort::Address],
    run,
    section: Some(Section { title: "Blocks", markup }),
};

/// A requested block: its entry, or both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSpec {
    /// Its start.
    pub(crate) entry: LocationSpec,
    /// Its end, if it matters.
    pub(crate) exit: Option<LocationSpec>,
}

impl FromStr for BlockSpec {
    type Err = ParsePlaceError;

    fn from_str(text: &str) -> Result<BlockSpec, ParsePlaceError> {
        let (entry, exit) = match place::ends(text) {
            Some((entry, exit)) => (entry, Some(exit.parse()?)),
            None => (text, None),
        };
        Ok(BlockSpec { entry: begin(entry)?, exit })
    }
}

/// A block of a function is the one at its first byte.
fn begin(text: &str) -> Result<LocationSpec, ParsePlaceError> {
    Ok(match text.parse()? {
        LocationSpec::Symbol { file, name, offset: None } => {
            LocationSpec::Symbol { file, name, offset: Some(0) }
        }
        place => place,
    })
}

/// The most frequent of the blocks with these ends.
fn find<'a>(
    maps: &mut Maps,
    blocks: &'a [Block],
    wanted: &BlockSpec,
) -> Result<Option<&'a Block>, PlaceError> {
    // Addresses are those that the views print.
    let mut end = |place| match place {
        &LocationSpec::Address(_) => Ok((place, Vec::new())),
        _ => Ok((place, maps.resolve(place, &|function| share_of(blocks, function))?)),
    };
    let entry = end(&wanted.entry)?;
    let exit = wanted.exit.as_ref().map(end).transpose()?;
    let is = |(place, spans): &(&LocationSpec, Vec<Span>), location, addr| match place {
        LocationSpec::Address(wanted) => maps.address_of(location, addr) == Some(*wanted),
        _ => spans.iter().any(|span| span.contains(location)),
    };
    Ok(blocks.iter().find(|block| {
        is(&entry, block.entry_location, block.entry)
            && exit.as_ref().is_none_or(|exit| is(exit, block.exit_location, block.exit))
    }))
}

fn run(args: &Report, out: &mut Out<'_>) -> Result {
    run_flow(args, out, true, |flow| notes(args, flow), |out, flow| print(out, args, flow))
}

fn notes(args: &Report, flow: &Flow) -> Notes {
    let executed = flow.block_quality.blocks;
    let shares = flow.blocks.iter().take(args.rows()).filter_map(|b| share(b.count, executed));
    Notes { trust: share_trust(&flow.quality, shares), unusual: unusual(flow) }
}

fn print(out: &mut Out<'_>, args: &Report, flow: &mut Flow) -> io::Result<Option<u8>> {
    flow.drop_contradicted();
    let Flow { blocks, maps, quality, block_quality, .. } = flow;
    // Computed before sorting, because the first block's addresses represent the others'.
    let cuts = args.block.is_none().then(|| Cuts::of(blocks));
    match args.sort {
        Some(Sort::Address) => blocks.sort_by_key(|block| (block.entry, block.exit)),
        Some(Sort::Cycles) if blocks.iter().all(|block| block.cycles.n() == 0) => {
            say_unsorted(CYCLES);
        }
        Some(Sort::Cycles) => blocks.sort_by_key(|block| Reverse(block.cycles.quantile(0.5))),
        _ => {}
    }
    let printer = args.printer();
    if let Some(ends) = &args.block {
        let block = match find(maps, blocks, ends) {
            Ok(block) => block,
            Err(error) => {
                say!("{error}");
                return Ok(Some(USAGE));
            }
        };
        let Some(block) = block else {
            say!(
                "no block with this entry and exit ran: --view blocks --json lists those that did"
            );
            return Ok(Some(USAGE));
        };
        match printer {
            Printer::Text => one(out, maps, block)?,
            _ => {
                let table = table(block_quality.blocks, quality, block.counters.is_some());
                table.write(printer, out, maps, std::iter::once((0, block)))?;
            }
        }
        return Ok(None);
    }
    // Rows first, then basic blocks: there may be a million of each.
    let counted = has_counters(blocks);
    let rows = blocks.iter().enumerate();
    let all = block_quality.blocks;
    args.write_rows(out, &table(all, quality, counted), maps, rows, ("block", "blocks"))?;
    *blocks = Vec::new();
    let basics = cuts.map_or_else(Vec::new, Cuts::basic_blocks);
    if printer == Printer::Text {
        out.gap()?;
    }
    // CSV has one line of keys.
    if printer != Printer::Csv {
        let names = ("basic block", "basic blocks");
        args.write_rows(out, &basic_table(), maps, basics.iter().enumerate(), names)?;
    }
    Ok(None)
}

/// One block: the table of its cycles, as textbooks print it.
fn one(out: &mut Out<'_>, maps: &mut Maps, block: &Block) -> io::Result<()> {
    let entry = Place::of(maps, block.entry_location, block.entry);
    let exit = Place::of(maps, block.exit_location, block.exit);
    let cycles = &block.cycles;
    out.line(format_args!(
        "{entry} .. {exit}: ran {} times, {} of them with cycles, {} saturated",
        grouped(block.count),
        grouped(cycles.n()),
        grouped(cycles.saturated()),
    ))?;
    if cycles.is_rounded() {
        out.line("cycles are rounded down to five significant bits: there are too many")?;
    }
    let n = cycles.n();
    let table = Table::<(), (u32, u64)>::new()
        .number("", "Cycles", |(), (value, _)| Cell::Number(u64::from(*value)))
        .number("", "Number of samples", |(), (_, samples)| Cell::Count(*samples))
        .number("", "Occurrence rate", move |(), (_, samples)| Cell::share(share(*samples, n)))
        .heat();
    let rows: Vec<(u32, u64)> = cycles.iter().collect();
    table.write_text(out, &mut (), rows.into_iter())
}

/// Whether events were counted with the branches.
pub(crate) fn has_counters(blocks: &[Block]) -> bool {
    blocks.iter().any(|block| block.counters.is_some())
}

/// Blocks, as shares of how many ran together.
pub(crate) fn table(
    blocks: u64,
    quality: &Quality,
    has_counters: bool,
) -> Table<'_, Maps, Ranked<'_, Block>> {
    let quantile = |of: f64| {
        move |_: &mut Maps, (_, block): &Ranked<'_, Block>| Cell::number(block.cycles.quantile(of))
    };
    let of_known = |block: &Block, count: u64| (block.cycles.n() > 0).then_some(count);
    let [counters, events] = if has_counters { ["counters", "events"] } else { [""; 2] };
    Table::<Maps, Ranked<'_, Block>>::ranked("blocks")
        .constant("kind", "block")
        .number("count", "count", |_, (_, block)| Cell::Count(block.count))
        .number("share", "share", move |_, (_, block)| Cell::share(share(block.count, blocks)))
        .heat()
        .only("share_low|share_high", move |_, (_, block)| {
            let share = share(block.count, blocks);
            Cell::interval(share.and_then(|share| quality.share_interval(share)))
        })
        .number("", "with cycles", move |_, (_, block)| {
            Cell::count(of_known(block, block.cycles.n()))
        })
        .only("n", |_, (_, block)| Cell::Count(block.cycles.n()))
        .number("min", "min", |_, (_, block)| Cell::number(block.cycles.min()))
        .number("p50", "p50", quantile(0.5))
        .number("p90", "p90", quantile(0.9))
        .number("p99", "p99", quantile(0.99))
        .number("max", "max", |_, (_, block)| Cell::number(block.cycles.max()))
        .number("saturated", "saturated", move |_, (_, block)| {
            Cell::count(of_known(block, block.cycles.saturated()))
        })
        .word("", "modes", |_, (_, block)| modes(&block.cycles))
        .nested("modes", |_, (_, block)| (block.cycles.n() > 0).then(|| block.cycles.modes()))
        .only("rounded", |_, (_, block)| {
            Cell::or_absent((block.cycles.n() > 0).then(|| block.cycles.is_rounded()), Cell::Flag)
        })
        .nested("distribution", |_, (_, block)| distribution(&block.cycles))
        .nested(counters, |_, (_, block)| block.counters.clone())
        .word("", events, |_, (_, block)| Cell::word(means(block.counters.as_deref(), block.count)))
        .location("entry", "entry", Part::ALL, |(_, block)| (block.entry_location, block.entry))
        .place("exit", "exit", Part::ALL, |maps, (_, block)| {
            let exit = Place::of(maps, block.exit_location, block.exit);
            Some(exit.reached_from(maps, block.entry_location))
        })
        .behind(" .. ")
        .spares(&[
            "rank",
            "saturated",
            "modes",
            "with cycles",
            "max",
            "min",
            "events",
            "p99",
            "p90",
        ])
}

/// The modes of cycles, if any.
pub(crate) fn modes(cycles: &Cycles) -> Cell {
    let modes = cycles.modes();
    Cell::word((!modes.is_empty()).then(|| joined(modes, ",")))
}

/// How often a cycle count occurred. There may be a million blocks: rows are
/// written as they are.
#[derive(Debug, Serialize)]
struct CycleCount {
    cycles: u32,
    rate: Option<f64>,
    samples: u64,
}

fn distribution(cycles: &Cycles) -> Option<Vec<CycleCount>> {
    let n = cycles.n();
    let row = |(cycles, samples)| CycleCount { cycles, rate: share(samples, n), samples };
    (n > 0).then(|| cycles.iter().map(row).collect())
}

fn basic_table<'a>() -> Table<'a, Maps, (usize, &'a BasicBlock)> {
    // Locations that were recorded as symbols have no addresses.
    let edge = |maps: &Maps, basic: &BasicBlock, edge: Option<u64>| {
        let edge = edge.and_then(|addr| maps.address_of(basic.location, addr));
        Cell::word(edge.map(|addr| format!("{addr:#x}")))
    };
    Table::<Maps, (usize, &BasicBlock)>::ranked("blocks")
        .constant("kind", "basic_block")
        .number("count", "count", |_, (_, basic)| Cell::Count(basic.count))
        .heat()
        .place("", "basic block", &[], |maps, (_, basic)| {
            let start = Place::of(maps, basic.location, address(basic.start));
            Some(start.after(if matches!(basic.start, Bound::After(_)) { "after " } else { "" }))
        })
        .place("", " ", &[], |maps, (_, basic)| {
            let end = Place::of(maps, end_location(basic), address(basic.end));
            let end = end.reached_from(maps, basic.location);
            let before = if matches!(basic.end, Bound::Before(_)) { " up to " } else { " .. " };
            Some(end.after(before))
        })
        .behind("")
        .location("end", "", &[Part::Symbol, Part::Offset], |(_, basic)| {
            (end_location(basic), address(basic.end))
        })
        .only("start", move |maps, (_, basic)| edge(maps, basic, at(basic.start)))
        .only("starts_behind", move |maps, (_, basic)| edge(maps, basic, beside(basic.start)))
        .only("start_is_behind", |_, (_, basic)| Cell::Flag(matches!(basic.start, Bound::After(_))))
        .only("end", move |maps, (_, basic)| edge(maps, basic, at(basic.end)))
        .only("ends_before", move |maps, (_, basic)| edge(maps, basic, beside(basic.end)))
        .only("end_is_before", |_, (_, basic)| Cell::Flag(matches!(basic.end, Bound::Before(_))))
        .location(
            "start",
            "",
            &[Part::Symbol, Part::Offset, Part::File, Part::Line, Part::Inlines],
            |(_, basic)| (basic.location, address(basic.start)),
        )
        .spares(&["rank"])
}

/// The address of an end, or the nearest known one.
fn address(edge: Bound) -> u64 {
    match edge {
        Bound::At(addr) | Bound::After(addr) | Bound::Before(addr) => addr,
    }
}

/// The address of an end; `None` if only its neighbor is known.
fn at(edge: Bound) -> Option<u64> {
    matches!(edge, Bound::At(_)).then(|| address(edge))
}

/// The nearest known address, if the end itself is unknown.
fn beside(edge: Bound) -> Option<u64> {
    (!matches!(edge, Bound::At(_))).then(|| address(edge))
}

/// The location of the end of a basic block, or the nearest known one, computed from the distance
/// between the addresses.
fn end_location(basic: &BasicBlock) -> Location {
    let (start, end) = (address(basic.start), address(basic.end));
    match basic.location {
        Location::File { file, offset } => {
            Location::File { file, offset: offset.wrapping_add(end.wrapping_sub(start)) }
        }
        Location::Address(_) => Location::Address(end),
    }
}

/// Distributions that are drawn on a page.
const DRAWN: usize = 60;
/// Cells of a name in the title of a drawing.
const TITLE: usize = 160;

fn markup(page: &mut Page<'_>) -> Result<Markup> {
    let (limit, flow) = (page.limit, &mut page.overview.flow);
    if flow.blocks.iter().all(|block| block.contradicted) {
        let why = if flow.block_quality.filtered > 0 {
            "No blocks: not every branch was recorded (record with -j any,u)."
        } else {
            "No blocks."
        };
        return Ok(html! { p { (why) } });
    }
    let Flow { blocks, maps, quality, block_quality, .. } = flow;
    let ran = || blocks.iter().filter(|block| !block.contradicted);
    let (all, rows) = (ran().count(), ran().take(limit).enumerate());
    Ok(html! {
        p { "A block is straight-line code, from the target of a branch to the next branch taken. Cycles are core cycles of one run." }
        (table(block_quality.blocks, quality, has_counters(blocks)).html("Blocks", maps, rows))
        (rest(all, all.min(limit), "blocks"))
    })
}

/// The distributions of the blocks with most cycle counts.
pub(crate) fn charts(flow: &mut Flow, modelled: bool) -> Markup {
    let Flow { blocks, maps, .. } = flow;
    let mut timed: Vec<&Block> =
        blocks.iter().filter(|block| block.cycles.n() > 0 && !block.contradicted).collect();
    if timed.is_empty() {
        return html! { p { "The recording has no cycle counts: no distributions." } };
    }
    timed.sort_by_cached_key(|block| Reverse(block.cycles.n()));
    let all = timed.len();
    timed.truncate(DRAWN);
    let mut figures = Vec::new();
    for block in timed {
        let entry = Place::of(maps, block.entry_location, block.entry);
        let exit = Place::of(maps, block.exit_location, block.exit);
        // The key that links a drawing to the block's row.
        let ends = entry.anchor().zip(exit.anchor()).map(|(entry, exit)| format!("{entry} {exit}"));
        let chart = Histogram {
            series: vec![Series::of(String::new(), block)],
            note: modelled.then(|| "modelled, not measured".to_owned()),
            ..Histogram::default()
        };
        let title = format!("{} .. {}", entry.within(TITLE), exit.within(TITLE));
        figures.push(figure(&title, &small_svg(&chart), ends.as_deref()));
    }
    html! {
        div class="charts" {
            @for figure in &figures { (figure) }
        }
        @if all > figures.len() {
            p class="faint" {
                "The " (figures.len()) " blocks with most cycle counts are drawn; "
                (grouped((all - figures.len()) as u64)) " more have counts (lbr hist --block draws any)."
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/report/blocks.rs"]
mod tests;
