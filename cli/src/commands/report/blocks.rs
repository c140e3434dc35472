//! `lbr report --view blocks`.

use std::io::Write;

use profile::Flow;
use profile::basic::{BasicBlock, Edge, basic_blocks};
use profile::cycles::Cycles;
use profile::flow::Block;
use profile::maps::Maps;
use serde_json::{Value, json};

use super::{Report, Sort, dash, percent};
use crate::exit::USAGE;
use crate::present::number::grouped;

/// Reads `ENTRY..EXIT`, hexadecimal with or without `0x`.
pub(super) fn range(text: &str) -> Result<(u64, u64), String> {
    let hex = |part: &str| u64::from_str_radix(part.trim_start_matches("0x"), 16).ok();
    let ends = text.split_once("..").and_then(|(a, b)| Some((hex(a)?, hex(b)?)));
    ends.ok_or_else(|| "two addresses with .. in between, such as 0x401000..0x40100c".to_owned())
}

/// Prints the view.
pub(super) fn print(
    out: &mut impl Write,
    args: &Report,
    flow: &mut Flow,
) -> std::io::Result<Option<u8>> {
    flow.drop_contradicted();
    let basics = basic_blocks(&flow.blocks);
    let total = flow.block_quality.blocks;
    let Flow { blocks, maps, .. } = flow;
    match args.sort {
        Some(Sort::Address) => blocks.sort_by_key(|block| (block.entry, block.exit)),
        Some(Sort::Cycles) => {
            blocks.sort_by_key(|block| std::cmp::Reverse(block.cycles.quantile(0.5)));
        }
        _ => {}
    }
    if let Some((entry, exit)) = args.block {
        let block = blocks.iter().find(|block| (block.entry, block.exit) == (entry, exit));
        return one(out, args, maps, block, total);
    }
    let shown: Vec<&Block> = blocks.iter().take(args.rows()).collect();
    let ends = shown.iter().flat_map(|block| [block.entry_location, block.exit_location]);
    maps.look_up_lines(ends.chain(basics.iter().take(args.rows()).map(|basic| basic.location)));
    if args.json {
        for (rank, block) in shown.iter().enumerate() {
            super::print_json(out, &block_json(maps, block, rank + 1, total))?;
        }
        for (rank, basic) in basics.iter().take(args.rows()).enumerate() {
            super::print_json(out, &basic_json(maps, basic, rank + 1))?;
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
    for (rank, block) in shown.iter().enumerate() {
        let cycles = &block.cycles;
        let known = cycles.n() > 0;
        let cell = |value: Option<u32>| value.map_or_else(dash, |value| value.to_string());
        writeln!(
            out,
            "{:>4}  {:>12}  {:>8}  {:>11}  {:>5}  {:>5}  {:>5}  {:>5}  {:>5}  {:>9}  {:<14}  {} .. {}",
            rank + 1,
            grouped(block.count),
            share(block.count, total).map_or_else(dash, percent),
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
    super::print_hidden(out, blocks.len(), shown.len(), "blocks")?;
    writeln!(out, "\n{:>4}  {:>12}  basic block", "rank", "count")?;
    for (rank, basic) in basics.iter().take(args.rows()).enumerate() {
        let count = grouped(basic.count);
        writeln!(out, "{:>4}  {count:>12}  {}", rank + 1, basic_text(maps, basic))?;
    }
    super::print_hidden(out, basics.len(), args.rows(), "basic blocks")?;
    Ok(None)
}

/// One block: the table of its cycles as text books print it.
fn one(
    out: &mut impl Write,
    args: &Report,
    maps: &mut Maps,
    block: Option<&Block>,
    total: u64,
) -> std::io::Result<Option<u8>> {
    let Some(block) = block else {
        anstream::eprintln!(
            "lbr: no block with this entry and exit ran: --view blocks --json lists those that did"
        );
        return Ok(Some(USAGE));
    };
    if args.json {
        super::print_json(out, &block_json(maps, block, 1, total))?;
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

pub(super) fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

pub(super) fn modes(cycles: &Cycles) -> String {
    let modes: Vec<String> = cycles.modes().iter().map(u32::to_string).collect();
    if modes.is_empty() { dash() } else { modes.join(",") }
}

/// A block as one JSON object.
pub(crate) fn block_json(maps: &mut Maps, block: &Block, rank: usize, total: u64) -> Value {
    let entry = super::end_json(maps, block.entry_location);
    let exit = super::end_json(maps, block.exit_location);
    let (entry_line, entry_inlines) = super::source_json(maps, block.entry_location);
    let (exit_line, exit_inlines) = super::source_json(maps, block.exit_location);
    let cycles = &block.cycles;
    let known = cycles.n() > 0;
    let distribution: Vec<Value> = cycles
        .iter()
        .map(|(value, n)| json!({ "cycles": value, "samples": n, "rate": share(n, cycles.n()) }))
        .collect();
    json!({
        "view": "blocks",
        "kind": "block",
        "rank": rank,
        "entry": format!("{:#x}", block.entry),
        "entry_symbol": entry.0,
        "entry_offset": entry.1,
        "entry_file": entry.2,
        "entry_line": entry_line,
        "entry_inlines": entry_inlines,
        "exit": format!("{:#x}", block.exit),
        "exit_symbol": exit.0,
        "exit_offset": exit.1,
        "exit_file": exit.2,
        "exit_line": exit_line,
        "exit_inlines": exit_inlines,
        "count": block.count,
        "share": share(block.count, total),
        "n": cycles.n(),
        "min": cycles.min(),
        "p50": cycles.quantile(0.5),
        "p90": cycles.quantile(0.9),
        "p99": cycles.quantile(0.99),
        "max": cycles.max(),
        "modes": known.then(|| cycles.modes()),
        "saturated": known.then(|| cycles.saturated()),
        "rounded": known.then(|| cycles.is_rounded()),
        "distribution": known.then_some(distribution),
    })
}

/// Addresses of one end: at it, and beside it where the end itself is unknown.
fn ends(edge: Edge) -> (Option<String>, Option<String>) {
    match edge {
        Edge::At(addr) => (Some(format!("{addr:#x}")), None),
        Edge::Behind(addr) | Edge::Before(addr) => (None, Some(format!("{addr:#x}"))),
    }
}

fn basic_json(maps: &mut Maps, basic: &BasicBlock, rank: usize) -> Value {
    let (symbol, offset, file) = super::end_json(maps, basic.location);
    let (line, inlines) = super::source_json(maps, basic.location);
    let (start, behind) = ends(basic.start);
    let (end, before) = ends(basic.end);
    json!({
        "view": "blocks",
        "kind": "basic_block",
        "rank": rank,
        "start": start,
        "start_symbol": symbol,
        "start_offset": offset,
        "start_file": file,
        "start_line": line,
        "start_inlines": inlines,
        "starts_behind": behind,
        "end": end,
        "ends_before": before,
        "count": basic.count,
    })
}

fn basic_text(maps: &mut Maps, basic: &BasicBlock) -> String {
    let start = match basic.start {
        Edge::At(addr) | Edge::Before(addr) => super::place(maps, basic.location, addr),
        Edge::Behind(addr) => format!("behind {}", super::place(maps, basic.location, addr)),
    };
    match basic.end {
        Edge::At(addr) | Edge::Behind(addr) => format!("{start} .. {addr:#x}"),
        Edge::Before(addr) => format!("{start} up to {addr:#x}"),
    }
}
