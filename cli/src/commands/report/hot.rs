//! The hot branches, by where from and where to.

use std::io::{BufWriter, Write};

use profile::brstack::type_name;
use profile::hot::{Counter, HotBranch, HotTable, Order};
use serde_json::{Value, json};

use super::{
    Report, Sort, Totals, address, dash, end_json, finish, flow, percent, place, print_head,
    print_hidden, print_json, quality_json, share_line,
};
use crate::exit::{DONE, Outcome};
use crate::input;
use crate::present::number::grouped;
use crate::symbols::source_json;

/// Runs the view.
pub(super) fn run(args: &Report) -> Outcome {
    let mut counter = Counter::new();
    let sources = input::read_all(&args.input, &args.select.selection(), |recording, at| {
        counter.recording(recording, at)
    })?;
    let mut table = counter.finish();
    args.symbols.apply(&mut table.maps);
    if let Some(sort) = args.sort {
        table.sort(sort.into());
    }
    let mut branches = std::mem::take(&mut table.branches);
    let distinct = branches.len();
    let rows = args.dso.keep(&table.maps, &mut branches, (table.total, "branches"), |branch| {
        (branch.from_location, branch.count)
    })?;
    let listed = branches.len();
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
        let mut quality = quality_json(&sources, &table.quality, &totals);
        quality["dso"] = json!(rows.map(|rows| rows.json()));
        print_json(&mut out, &quality)?;
    } else {
        print_head(&mut out, &sources, &table.quality, &totals)?;
        let shares = branches.iter().map(|branch| table.share(branch));
        if let Some(line) = share_line(&table.quality, shares) {
            writeln!(out, "{line}")?;
        }
        if let Some(rows) = rows {
            writeln!(out, "{}", rows.line())?;
        }
        writeln!(out)?;
        print_table(&mut out, &mut table, &branches)?;
        print_hidden(&mut out, listed, branches.len(), ("branch", "branches"))?;
    }
    out.flush()?;
    finish(&sources, &table.maps);
    Ok(DONE)
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
pub(super) fn rate(branch: &HotBranch) -> String {
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
        "mispredict_rate": branch.mispredict_rate().filter(|rate| *rate > 0.0),
        "never_seen_mispredicted": branch.mispredicted.map(|missed| missed == 0),
        "cycles": branch.cycles,
        "counters": branch.counters,
        "type": branch_type,
        "from": address(&table.maps, branch.from_location, branch.from),
        "from_symbol": from.0,
        "from_offset": from.1,
        "from_file": from.2,
        "from_line": from_line,
        "from_inlines": from_inlines,
        "to": address(&table.maps, branch.to_location, branch.to),
        "to_symbol": to.0,
        "to_offset": to.1,
        "to_file": to.2,
        "to_line": to_line,
        "to_inlines": to_inlines,
    })
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
