//! `lbr report --view blocks`.

use std::io::Write;

use profile::Flow;
use profile::basic::{BasicBlock, Cuts, Edge};
use profile::cycles::Cycles;
use profile::flow::Block;
use profile::maps::{Location, Maps};
use profile::place::{Place, PlaceError, Span};
use profile::quality::Quality;
use serde::Serialize;
use serde_json::Value;

use super::flow::ends as ends_of;
use super::{Report, Sort, dash, percent, share};
use crate::exit::USAGE;
use crate::present::number::grouped;
use crate::present::out::say;

/// The block that is asked for, by its two ends.
pub(super) type Ends = (Place, Place);

/// Reads `ENTRY..EXIT`: addresses, hexadecimal with or without `0x`, or places in
/// functions.
pub(super) fn range(text: &str) -> Result<Ends, String> {
    let end = |text: &str| {
        let hex = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        match hex.map_or_else(|| text.parse(), |addr| Ok(Place::Address(addr))).ok()? {
            // A function is its first byte.
            Place::Symbol { file, name, offset } => {
                Some(Place::Symbol { file, name, offset: Some(offset.unwrap_or(0)) })
            }
            Place::Line { .. } => None,
            place => Some(place),
        }
    };
    let ends = text.split_once("..").and_then(|(a, b)| Some((end(a)?, end(b)?)));
    ends.ok_or_else(|| {
        "two addresses or places in functions with .. in between, such as 0x401000..0x40100c or \
         main+0x10..main+0x1c"
            .to_owned()
    })
}

/// The most frequent of the blocks with these ends.
fn find<'a>(
    maps: &mut Maps,
    blocks: &'a [Block],
    (entry, exit): &Ends,
) -> Result<Option<&'a Block>, PlaceError> {
    // Addresses are those that the views print.
    let mut end = |place: &Place| match place {
        Place::Address(_) => Ok(Vec::new()),
        place => maps.resolve(place),
    };
    let spans = (end(entry)?, end(exit)?);
    let is = |place: &Place, spans: &[Span], location, addr| match place {
        Place::Address(wanted) => maps.address_of(location, addr) == Some(*wanted),
        _ => spans.iter().any(|span| span.contains(location)),
    };
    Ok(blocks.iter().find(|block| {
        is(entry, &spans.0, block.entry_location, block.entry)
            && is(exit, &spans.1, block.exit_location, block.exit)
    }))
}

/// Prints the view.
pub(super) fn print(
    out: &mut impl Write,
    args: &Report,
    flow: &mut Flow,
) -> std::io::Result<Option<u8>> {
    flow.drop_contradicted();
    let Flow { blocks, maps, quality, block_quality, .. } = flow;
    let whole = Whole { blocks: block_quality.blocks, quality };
    // Before the order changes: the first block's addresses stand for others'.
    let cuts = args.block.is_none().then(|| Cuts::of(blocks));
    match args.sort {
        Some(Sort::Address) => blocks.sort_by_key(|block| (block.entry, block.exit)),
        Some(Sort::Cycles) => {
            blocks.sort_by_key(|block| std::cmp::Reverse(block.cycles.quantile(0.5)));
        }
        _ => {}
    }
    if let Some(ends) = &args.block {
        let block = match find(maps, blocks, ends) {
            Ok(block) => block,
            Err(error) => {
                say!("{error}");
                return Ok(Some(USAGE));
            }
        };
        return one(out, args, maps, block, whole);
    }
    // Rows first, then basic blocks: there may be a million of each.
    let shown = args.rows().min(blocks.len());
    let rows = blocks.iter().take(shown);
    maps.look_up_lines(rows.flat_map(|block| [block.entry_location, block.exit_location]));
    let cut = |blocks: &mut Vec<Block>, maps: &mut Maps| {
        *blocks = Vec::new();
        let basics = cuts.map_or_else(Vec::new, Cuts::basic_blocks);
        maps.look_up_lines(basics.iter().take(args.rows()).map(|basic| basic.location));
        basics
    };
    if args.json {
        for (rank, block) in blocks.iter().take(shown).enumerate() {
            super::print_json(out, &block_row(maps, block, rank + 1, whole))?;
        }
        let basics = cut(blocks, maps);
        for (rank, basic) in basics.iter().take(args.rows()).enumerate() {
            super::print_json(out, &basic_row(maps, basic, rank + 1))?;
        }
        return Ok(None);
    }
    writeln!(
        out,
        "{:>4}  {:>12}  {:>8}  {:>11}  {:>5}  {:>5}  {:>5}  {:>5}  {:>5}  {:>9}  {:<14}  entry .. exit",
        "rank",
        "count",
        "share",
        "with cycles",
        "min",
        "p50",
        "p90",
        "p99",
        "max",
        "saturated",
        "modes"
    )?;
    for (rank, block) in blocks.iter().take(shown).enumerate() {
        let cycles = &block.cycles;
        let known = cycles.n() > 0;
        let cell = |value: Option<u32>| value.map_or_else(dash, |value| value.to_string());
        writeln!(
            out,
            "{:>4}  {:>12}  {:>8}  {:>11}  {:>5}  {:>5}  {:>5}  {:>5}  {:>5}  {:>9}  {:<14}  {} .. {}",
            rank + 1,
            grouped(block.count),
            share(block.count, whole.blocks).map_or_else(dash, percent),
            if known { grouped(cycles.n()) } else { dash() },
            cell(cycles.min()),
            cell(cycles.quantile(0.5)),
            cell(cycles.quantile(0.9)),
            cell(cycles.quantile(0.99)),
            cell(cycles.max()),
            if known { grouped(cycles.saturated()) } else { dash() },
            modes(cycles),
            super::place(maps, block.entry_location, block.entry),
            super::place(maps, block.exit_location, block.exit),
        )?;
    }
    super::print_hidden(out, blocks.len(), shown, ("block", "blocks"))?;
    let basics = cut(blocks, maps);
    writeln!(out, "\n{:>4}  {:>12}  basic block", "rank", "count")?;
    for (rank, basic) in basics.iter().take(args.rows()).enumerate() {
        let count = grouped(basic.count);
        writeln!(out, "{:>4}  {count:>12}  {}", rank + 1, basic_text(maps, basic))?;
    }
    super::print_hidden(out, basics.len(), args.rows(), ("basic block", "basic blocks"))?;
    Ok(None)
}

/// One block: the table of its cycles as text books print it.
fn one(
    out: &mut impl Write,
    args: &Report,
    maps: &mut Maps,
    block: Option<&Block>,
    whole: Whole<'_>,
) -> std::io::Result<Option<u8>> {
    let Some(block) = block else {
        say!("no block with this entry and exit ran: --view blocks --json lists those that did");
        return Ok(Some(USAGE));
    };
    if args.json {
        super::print_json(out, &block_row(maps, block, 1, whole))?;
        return Ok(None);
    }
    let entry = super::place(maps, block.entry_location, block.entry);
    let exit = super::place(maps, block.exit_location, block.exit);
    let cycles = &block.cycles;
    writeln!(
        out,
        "{entry} .. {exit}: ran {} times, {} of them with cycles, {} saturated",
        grouped(block.count),
        grouped(cycles.n()),
        grouped(cycles.saturated()),
    )?;
    if cycles.is_rounded() {
        writeln!(out, "cycles are rounded down to five significant bits: there are too many")?;
    }
    writeln!(out, "{:>8}  {:>17}  {:>15}", "Cycles", "Number of samples", "Occurrence rate")?;
    for (value, n) in cycles.iter() {
        let rate = share(n, cycles.n()).map_or_else(dash, percent);
        writeln!(out, "{value:>8}  {:>17}  {rate:>15}", grouped(n))?;
    }
    Ok(None)
}

pub(super) fn modes(cycles: &Cycles) -> String {
    let modes: Vec<String> = cycles.modes().iter().map(u32::to_string).collect();
    if modes.is_empty() { dash() } else { modes.join(",") }
}

/// What a block is a share of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'a> {
    /// Blocks that ran.
    pub(crate) blocks: u64,
    /// How good the data are.
    pub(crate) quality: &'a Quality,
}

/// A block as one JSON object. There may be a million: rows are written as they
/// are, their keys in the order of the alphabet as everywhere.
#[derive(Debug, Serialize)]
pub(crate) struct BlockRow {
    count: u64,
    distribution: Option<Vec<CyclesRow>>,
    entry: Option<String>,
    entry_file: Option<String>,
    entry_inlines: Value,
    entry_line: Option<String>,
    entry_offset: Option<u64>,
    entry_symbol: Option<String>,
    exit: Option<String>,
    exit_file: Option<String>,
    exit_inlines: Value,
    exit_line: Option<String>,
    exit_offset: Option<u64>,
    exit_symbol: Option<String>,
    kind: &'static str,
    max: Option<u32>,
    min: Option<u32>,
    modes: Option<Vec<u32>>,
    n: u64,
    p50: Option<u32>,
    p90: Option<u32>,
    p99: Option<u32>,
    rank: usize,
    rounded: Option<bool>,
    saturated: Option<u64>,
    share: Option<f64>,
    share_high: Option<f64>,
    share_low: Option<f64>,
    view: &'static str,
}

/// How often a cycle count occurred.
#[derive(Debug, Serialize)]
struct CyclesRow {
    cycles: u32,
    rate: Option<f64>,
    samples: u64,
}

/// The row of a block.
pub(crate) fn block_row(maps: &mut Maps, block: &Block, rank: usize, whole: Whole<'_>) -> BlockRow {
    let (entry_symbol, entry_offset, entry_file) = super::end_json(maps, block.entry_location);
    let (exit_symbol, exit_offset, exit_file) = super::end_json(maps, block.exit_location);
    let (entry_line, entry_inlines) = super::source_json(maps, block.entry_location);
    let (exit_line, exit_inlines) = super::source_json(maps, block.exit_location);
    let cycles = &block.cycles;
    let n = cycles.n();
    let known = n > 0;
    let of_all = share(block.count, whole.blocks);
    let (share_low, share_high) =
        ends_of(of_all.and_then(|share| whole.quality.share_interval(share)));
    let row = |(cycles, samples)| CyclesRow { cycles, rate: share(samples, n), samples };
    BlockRow {
        count: block.count,
        distribution: known.then(|| cycles.iter().map(row).collect()),
        entry: super::address(maps, block.entry_location, block.entry),
        entry_file,
        entry_inlines,
        entry_line,
        entry_offset,
        entry_symbol,
        exit: super::address(maps, block.exit_location, block.exit),
        exit_file,
        exit_inlines,
        exit_line,
        exit_offset,
        exit_symbol,
        kind: "block",
        max: cycles.max(),
        min: cycles.min(),
        modes: known.then(|| cycles.modes()),
        n,
        p50: cycles.quantile(0.5),
        p90: cycles.quantile(0.9),
        p99: cycles.quantile(0.99),
        rank,
        rounded: known.then(|| cycles.is_rounded()),
        saturated: known.then(|| cycles.saturated()),
        share: of_all,
        share_high,
        share_low,
        view: "blocks",
    }
}

/// Addresses of one end: at it, and beside it where the end itself is unknown.
fn ends(edge: Edge) -> (Option<String>, Option<String>) {
    match edge {
        Edge::At(addr) => (Some(format!("{addr:#x}")), None),
        Edge::Behind(addr) | Edge::Before(addr) => (None, Some(format!("{addr:#x}"))),
    }
}

/// A basic block as one JSON object.
#[derive(Debug, Serialize)]
struct BasicRow {
    count: u64,
    end: Option<String>,
    end_is_before: bool,
    end_offset: Option<u64>,
    end_symbol: Option<String>,
    ends_before: Option<String>,
    kind: &'static str,
    rank: usize,
    start: Option<String>,
    start_file: Option<String>,
    start_inlines: Value,
    start_is_behind: bool,
    start_line: Option<String>,
    start_offset: Option<u64>,
    start_symbol: Option<String>,
    starts_behind: Option<String>,
    view: &'static str,
}

/// Where the end of a basic block lies, or what is beside it: as far behind its
/// start as the addresses say.
fn end_location(basic: &BasicBlock) -> Location {
    let at = |edge| match edge {
        Edge::At(addr) | Edge::Behind(addr) | Edge::Before(addr) => addr,
    };
    let (start, end) = (at(basic.start), at(basic.end));
    match basic.location {
        Location::File { file, offset } => {
            Location::File { file, offset: offset.wrapping_add(end.wrapping_sub(start)) }
        }
        Location::Address(_) => Location::Address(end),
    }
}

fn basic_row(maps: &mut Maps, basic: &BasicBlock, rank: usize) -> BasicRow {
    let (start_symbol, start_offset, start_file) = super::end_json(maps, basic.location);
    let (start_line, start_inlines) = super::source_json(maps, basic.location);
    let (mut start, mut starts_behind) = ends(basic.start);
    let (mut end, mut ends_before) = ends(basic.end);
    let (end_symbol, end_offset, _) = super::end_json(maps, end_location(basic));
    if maps.is_named(basic.location) {
        (start, starts_behind, end, ends_before) = (None, None, None, None);
    }
    BasicRow {
        count: basic.count,
        end,
        end_is_before: matches!(basic.end, Edge::Before(_)),
        end_offset,
        end_symbol,
        ends_before,
        kind: "basic_block",
        rank,
        start,
        start_file,
        start_inlines,
        start_is_behind: matches!(basic.start, Edge::Behind(_)),
        start_line,
        start_offset,
        start_symbol,
        starts_behind,
        view: "blocks",
    }
}

fn basic_text(maps: &mut Maps, basic: &BasicBlock) -> String {
    let start = match basic.start {
        Edge::At(addr) | Edge::Before(addr) => super::place(maps, basic.location, addr),
        Edge::Behind(addr) => format!("behind {}", super::place(maps, basic.location, addr)),
    };
    let location = end_location(basic);
    let mut end = |addr: u64| match maps.is_named(location) {
        true => super::place(maps, location, addr),
        false => format!("{addr:#x}"),
    };
    match basic.end {
        Edge::At(addr) | Edge::Behind(addr) => format!("{start} .. {}", end(addr)),
        Edge::Before(addr) => format!("{start} up to {}", end(addr)),
    }
}
