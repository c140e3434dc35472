//! The blocks to choose from.

use std::collections::HashMap;
use std::io::{BufWriter, Write};

use super::select::{Chosen, Key, key};
use super::{Hist, Read, chart, output, print_json, print_quality};
use crate::exit::{DONE, Outcome};
use crate::present::chart::{Histogram, Series, Terminal, sparkline};
use crate::present::number::grouped;
use crate::present::out::say;

/// Cells of the small distribution in a row.
const CELLS: usize = 24;
/// Charts on a sheet at most.
const SHEET: usize = 24;

/// Lists the blocks with cycle counts that ran most, or draws them.
pub(super) fn run(args: &Hist, read: &mut [Read]) -> Outcome {
    let groups = groups(read);
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    if let Some((format, path)) = &args.output {
        let drawn: Vec<Histogram> =
            groups.iter().take(limit.min(SHEET)).map(|group| chart(args, read, group)).collect();
        output::write(*format, path, &drawn)?;
        say!(
            "{} of {} blocks with cycle counts to {}",
            drawn.len(),
            grouped(groups.len() as u64),
            path.display()
        );
        return Ok(DONE);
    }
    let mut out = BufWriter::new(anstream::stdout().lock());
    if args.json {
        for of in groups.iter().take(limit).flatten() {
            print_json(&mut out, args, read, of)?;
        }
        print_quality(&mut out, read)?;
        out.flush()?;
        return Ok(DONE);
    }
    let terminal = Terminal::of_stdout();
    if let Some(note) = super::note(read) {
        writeln!(out, "{note}")?;
    }
    writeln!(
        out,
        "{:>12}  {:>12}  {:>6}  {:>9}  {:<CELLS$}  {:>12}  block, for --block",
        "runs", "n", "median", "saturated", "cycles, min to p99.9", "modes"
    )?;
    for of in groups.iter().take(limit).flatten() {
        let (entry, exit) = of.ends(read);
        let file = of.file(read);
        let Some(block) = of.block(read) else { continue };
        let series = super::series(String::new(), block);
        let modes: Vec<String> = series.modes.iter().map(u32::to_string).collect();
        writeln!(
            out,
            "{:>12}  {:>12}  {:>6}  {:>9}  {:<CELLS$}  {:>12}  {entry}..{exit}{file}",
            grouped(block.count),
            grouped(series.n),
            block.cycles.quantile(0.5).map_or("-".to_owned(), |median| median.to_string()),
            grouped(series.saturated),
            line(&series, terminal),
            if modes.is_empty() { "-".to_owned() } else { modes.join(",") },
        )?;
    }
    let more = groups.len().saturating_sub(limit);
    if more > 0 {
        writeln!(out, "{} more blocks (--limit 0 shows all)", grouped(more as u64))?;
    }
    out.flush()?;
    Ok(DONE)
}

fn line(series: &Series, terminal: Terminal) -> String {
    sparkline(series, CELLS, terminal.unicode)
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
            // Of one recording every block is another.
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
