//! The blocks to choose from.

use lbr_msr::text::AsText;
use std::collections::HashMap;
use std::io::Write;

use profile::flow::Block;

use super::output::{self, Format};
use super::select::{Chosen, Key, key};
use super::{Hist, Read, chart, print_csv, print_json, print_quality};
use crate::exit::{DONE, Outcome};
use crate::output::Output;
use crate::present::chart::{Histogram, Series, Terminal, sparkline};
use crate::present::number::{counted, grouped};
use crate::present::out::{Out, say};
use crate::present::table::{Cell, Table};

/// Cells of the small distribution in a row.
const CELLS: usize = 24;
/// Blocks that are listed by default.
const LISTED: usize = 12;
/// Charts on a sheet at most.
const SHEET: usize = 24;

/// Lists the blocks with cycle counts that ran most, or draws them.
pub(super) fn run(args: &Hist, read: &mut [Read], output: Option<&(Format, Output)>) -> Outcome {
    let groups = groups(read);
    let limit = match args.limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None => LISTED,
    };
    if let Some((format, output)) = output {
        let drawn: Vec<Histogram> =
            groups.iter().take(limit.min(SHEET)).map(|group| chart(args, read, group)).collect();
        output.write(output::bytes(*format, &drawn)?)?;
        say!(
            "{} of {} blocks with cycle counts to {}",
            drawn.len(),
            grouped(groups.len() as u64),
            output.path().as_text()
        );
        return Ok(DONE);
    }
    let mut out = Out::stdout();
    if args.json {
        for of in groups.iter().take(limit).flatten() {
            print_json(&mut out, args, read, of)?;
        }
        print_quality(&mut out, read)?;
        out.flush()?;
        return Ok(DONE);
    }
    if args.csv {
        let chosen: Vec<Chosen> = groups.iter().take(limit).flatten().copied().collect();
        print_csv(&mut out, read, &chosen)?;
        out.flush()?;
        return Ok(DONE);
    }
    if let Some(note) = super::note(read) {
        out.line(note)?;
    }
    let rows = groups.iter().take(limit).flatten();
    table(Terminal::of_stdout().unicode).write_text(&mut out, read, rows)?;
    let more = groups.len().saturating_sub(limit);
    if more > 0 {
        let more = counted(more as u64, "more block", "more blocks");
        out.line(format_args!("{more} (--limit 0 shows all)"))?;
    }
    out.line("--block ENTRY..EXIT draws one")?;
    out.flush()?;
    Ok(DONE)
}

/// The block with the most cycle counts, in each recording that has it.
pub(super) fn hottest(read: &[Read]) -> Vec<Chosen> {
    groups(read).into_iter().next().unwrap_or_default()
}

fn table<'a>(unicode: bool) -> Table<'a, [Read], &'a Chosen> {
    let cell = |read: &[Read], of: &Chosen, cell: fn(&Block) -> Cell| {
        of.block(read).map_or(Cell::Absent, cell)
    };
    let table = Table::<[Read], &Chosen>::new()
        .number("", "runs", move |read, of| cell(read, of, |block| Cell::Count(block.count)))
        .heat()
        .number("", "n", move |read, of| cell(read, of, |block| Cell::Count(block.cycles.n())))
        .spare(1)
        .number("", "median", move |read, of| {
            cell(read, of, |block| Cell::number(block.cycles.quantile(0.5)))
        })
        .number("", "saturated", move |read, of| {
            cell(read, of, |block| Cell::Count(block.cycles.saturated()))
        })
        .spare(3)
        .word("", "cycles, min to p99.9", move |read, of| {
            let series = of.block(read).map(|block| Series::of(String::new(), block));
            Cell::word(series.map(|series| sparkline(&series, CELLS, unicode)))
        })
        .spare(4)
        .word("", "modes", move |read, of| {
            cell(read, of, |block| {
                let modes: Vec<String> = block.cycles.modes().iter().map(u32::to_string).collect();
                if modes.is_empty() { Cell::Absent } else { Cell::Word(modes.join(",").into()) }
            })
        })
        .spare(2);
    super::named(table, "..")
}

/// Blocks with cycle counts, those with most counts first; the same block of
/// several recordings together.
fn groups(read: &[Read]) -> Vec<Vec<Chosen>> {
    let mut groups: Vec<(u64, Vec<Chosen>)> = Vec::new();
    let mut known: HashMap<Key, usize> = HashMap::new();
    for (index, of) in read.iter().enumerate() {
        for (number, block) in of.flow.blocks.iter().enumerate() {
            let n = block.cycles.n();
            if n == 0 {
                continue;
            }
            let chosen = Chosen { read: index, block: number };
            // In one recording all blocks are distinct.
            if read.len() > 1 {
                let group = *known.entry(key(&of.flow.maps, block)).or_insert(groups.len());
                if let Some((all, group)) = groups.get_mut(group) {
                    *all = all.saturating_add(n);
                    group.push(chosen);
                    continue;
                }
            }
            groups.push((n, vec![chosen]));
        }
    }
    groups.sort_by_key(|(n, _)| std::cmp::Reverse(*n));
    groups.into_iter().map(|(_, group)| group).collect()
}
