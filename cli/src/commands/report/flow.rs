//! What the views of the flow of control share.

use std::io::{self, Write};

use profile::Flow;
use profile::flow::FlowCounter;
use profile::interval::{Clusters, Interval};
use serde_json::json;

use super::Report;
use crate::exit::{DONE, Outcome};
use crate::head::{Totals, finish, flow_json};
use crate::input;
use crate::present::json;
use crate::present::number::{grouped, nonzero};
use crate::present::out::Out;
use crate::present::table::Printer;

/// Runs one of these views, of blocks or of branches: `head` says what its
/// numbers are worth, `print` gives a status of its own where it has one.
pub(super) fn run(
    args: &Report,
    out: &mut Out<'_>,
    blocks: bool,
    head: impl FnOnce(&mut Out<'_>, &Flow) -> io::Result<()>,
    print: impl FnOnce(&mut Out<'_>, &mut Flow) -> io::Result<Option<u8>>,
) -> Outcome {
    let selection = args.select.selection();
    let counter = if blocks { FlowCounter::without_sites() } else { FlowCounter::without_blocks() };
    let mut counter = counter.in_threads(input::threads_for(args.inputs.paths()));
    args.symbols.apply(counter.maps());
    let sources = input::read_all(args.inputs.paths(), &selection, |recording, at| {
        counter.recording(recording, at)
    })?;
    let mut flow = counter.finish();
    let totals = Totals::from(&flow);
    let rows = args.shown.keep_flow(&mut flow, blocks)?;
    let printer = args.printer();
    if printer == Printer::Text {
        crate::head::print(out, &sources, &flow.quality, &totals)?;
        head(out, &flow)?;
        if let Some(rows) = &rows {
            out.line(rows.line())?;
        }
        out.gap()?;
    }
    let status = print(out, &mut flow)?;
    if printer == Printer::Json {
        let mut quality = flow_json(&sources, &flow, &totals);
        quality["dso"] = json!(rows.map(|rows| rows.json()));
        json::value(out, &quality)?;
    }
    out.flush()?;
    finish(&sources, &flow.maps);
    Ok(status.unwrap_or(DONE))
}

/// The 95 % interval of a ratio; `None` where counts are the truth, too.
pub(super) fn interval_of(ratio: &Clusters, complete: bool) -> Option<Interval> {
    if complete { None } else { ratio.interval() }
}

/// The line that says what kept blocks out.
pub(super) fn print_blocks(out: &mut Out<'_>, flow: &Flow) -> io::Result<()> {
    let quality = &flow.block_quality;
    let odd = nonzero([
        ("blocks without code bytes", quality.without_code),
        ("blocks left out that the code bytes contradict", quality.contradicted),
        ("impossible blocks left out", quality.impossible()),
        ("neighbours across the kernel's boundary", quality.crossing),
        ("neighbours in other functions, how far apart is not known", quality.apart),
        ("stacks without blocks, because not every branch was recorded", quality.filtered),
    ]);
    let odd = if odd.is_empty() { String::new() } else { format!(", {}", odd.join(", ")) };
    out.line(format_args!("blocks: {} ran{odd}", grouped(quality.blocks)))
}
