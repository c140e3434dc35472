//! What the views of the flow of control share.

use std::io::Write;

use profile::Flow;
use profile::flow::FlowCounter;
use profile::interval::{Clusters, Interval};
use serde_json::{Value, json};

use super::{Report, Totals, View, blocks, mispredict, outcomes, share};
use crate::exit::{DONE, Failure, Outcome};
use crate::input::{self, Source};
use crate::present::number::grouped;
use crate::select::{DsoArgs, Rows};

/// Runs one of these views.
pub(super) fn run(args: &Report) -> Outcome {
    let blocks = args.view == View::Blocks;
    let mut counter =
        if blocks { FlowCounter::without_sites() } else { FlowCounter::without_blocks() };
    let sources = input::read_all(&args.input, &args.select.selection(), |recording, at| {
        counter.recording(recording, at)
    })?;
    let mut flow = counter.finish();
    args.symbols.apply(&mut flow.maps);
    let totals = totals(&flow);
    let rows = keep(&args.dso, &mut flow, blocks)?;
    let mut out = super::stdout(args.json);
    if !args.json {
        super::print_head(&mut out, &sources, &flow.quality, &totals)?;
        print_sureness(&mut out, &flow, args)?;
        if let Some(rows) = &rows {
            writeln!(out, "{}", rows.line())?;
        }
        writeln!(out)?;
    }
    let status = match args.view {
        View::Mispredict => mispredict::print(&mut out, args, &mut flow)?,
        View::Outcomes => outcomes::print(&mut out, args, &mut flow)?,
        View::Blocks => blocks::print(&mut out, args, &mut flow)?,
        // They have walks of their own.
        _ => None,
    };
    if args.json {
        let mut quality = quality(&sources, &flow, &totals);
        quality["dso"] = json!(rows.map(|rows| rows.json()));
        super::print_json(&mut out, &quality)?;
    }
    out.flush()?;
    super::finish(&sources, &flow.maps);
    Ok(status.unwrap_or(DONE))
}

/// Leaves out the blocks, or the branches, of other files than those asked for.
pub(crate) fn keep(dso: &DsoArgs, flow: &mut Flow, blocks: bool) -> Result<Option<Rows>, Failure> {
    let Flow { sites, blocks: ran, maps, block_quality, taken, .. } = flow;
    if blocks {
        let all = (block_quality.blocks, "blocks");
        return dso.keep(maps, ran, all, |block| (block.exit_location, block.count));
    }
    dso.keep(maps, sites, (*taken, "branches"), |site| (site.location, site.taken))
}

/// What the flow counted.
pub(crate) fn totals(flow: &Flow) -> Totals {
    Totals {
        branches: flow.taken,
        distinct: flow.distinct,
        known: flow.known,
        mispredicted: flow.mispredicted,
    }
}

/// What rates and counts are worth.
pub(super) fn sureness(flow: &Flow) -> &'static str {
    if flow.is_complete() {
        "every taken branch is here: counts are the truth and need no interval"
    } else {
        "a sample: intervals are 95 %, by stack"
    }
}

/// The 95 % interval of a ratio; `None` where counts are the truth, too.
pub(super) fn interval_of(ratio: &Clusters, complete: bool) -> Option<Interval> {
    if complete { None } else { ratio.interval() }
}

/// The line that says what the numbers below are worth.
fn print_sureness(out: &mut impl Write, flow: &Flow, args: &Report) -> std::io::Result<()> {
    let ran = flow.block_quality.blocks;
    let shares = flow.blocks.iter().take(args.rows()).filter_map(|b| share(b.count, ran));
    if flow.is_complete() || args.view != View::Blocks {
        writeln!(out, "{}", sureness(flow))?;
    } else if let Some(line) = super::share_line(&flow.quality, shares) {
        writeln!(out, "{line}")?;
    }
    if args.view == View::Mispredict {
        return Ok(());
    }
    let quality = &flow.block_quality;
    let odd = [
        ("blocks without code bytes", quality.without_code),
        ("blocks left out that the code bytes contradict", quality.contradicted),
        ("impossible blocks left out", quality.impossible()),
        ("neighbours across the kernel's boundary", quality.crossing),
        ("neighbours in other functions, how far apart is not known", quality.apart),
        ("stacks without blocks, because not every branch was recorded", quality.filtered),
    ];
    let odd: Vec<String> = odd
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{} {what}", grouped(count)))
        .collect();
    let odd = if odd.is_empty() { String::new() } else { format!(", {}", odd.join(", ")) };
    writeln!(out, "blocks: {} ran{odd}", grouped(quality.blocks))
}

/// The quality of the data as one JSON object.
pub(crate) fn quality(sources: &[Source], flow: &Flow, totals: &Totals) -> Value {
    let mut json = super::quality_json(sources, &flow.quality, totals);
    let blocks = &flow.block_quality;
    json["complete"] = json!(flow.is_complete());
    json["blocks"] = json!(blocks.blocks);
    json["blocks_without_code"] = json!(blocks.without_code);
    json["blocks_contradicted"] = json!(blocks.contradicted);
    json["blocks_impossible"] = json!(blocks.impossible());
    json["blocks_crossing"] = json!(blocks.crossing);
    json["neighbours_apart"] = json!(blocks.apart);
    json["stacks_filtered"] = json!(blocks.filtered);
    json
}

/// An interval in a table.
pub(super) fn interval(interval: Option<Interval>) -> String {
    interval.map_or_else(super::dash, |Interval { low, high }| {
        format!("{:.2} to {:.2} %", low * 100.0, high * 100.0)
    })
}

/// The two ends of an interval in JSON.
pub(super) fn ends(interval: Option<Interval>) -> (Option<f64>, Option<f64>) {
    interval.map(|Interval { low, high }| (low, high)).unzip()
}
