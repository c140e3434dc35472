//! Shared by the views of control flow.

use std::io::{self, Write};

use profile::Flow;
use profile::flow::FlowCounter;
use profile::interval::{Clusters, Interval};
use serde_json::json;

use super::Report;
use crate::exit::{DONE, Outcome};
use crate::head::{Notes, Totals, finish, flow_json, without};
use crate::input::{self, Source};
use crate::present::json;
use crate::present::number::counted_nonzero;
use crate::present::out::Out;
use crate::present::table::Printer;

/// Runs a view of blocks or branches. `print` may return an exit status.
pub(super) fn run(
    args: &Report,
    out: &mut Out<'_>,
    blocks: bool,
    notes: impl FnOnce(&Flow) -> Notes,
    print: impl FnOnce(&mut Out<'_>, &mut Flow) -> io::Result<Option<u8>>,
) -> Outcome {
    let reading = args.select.reading();
    let mut counter =
        if blocks { FlowCounter::without_sites() } else { FlowCounter::without_blocks() };
    args.symbols.apply(counter.maps());
    let sources = input::read_all(args.inputs.paths(), &reading, |recording, at| {
        counter.recording(recording, at)
    })?;
    let mut flow = counter.finish();
    let totals = Totals::from(&flow);
    let rows = args.shown().keep_flow(&mut flow, blocks)?;
    let printer = args.printer();
    if printer == Printer::Text {
        let notes = notes(&flow);
        out.lines(&crate::head::lines(&sources, &flow.quality, &totals, notes, args.verbose))?;
        if let Some(rows) = &rows {
            out.line(rows.line())?;
        }
        out.gap()?;
    }
    out.modelled = Source::any_models_fields(&sources);
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

/// The 95% interval of a ratio; `None` also if the counts are exact.
pub(super) fn interval_of(ratio: &Clusters, complete: bool) -> Option<Interval> {
    if complete { None } else { ratio.interval() }
}

/// Counts of the stacks and blocks that could not be used.
pub(super) fn unusual(flow: &Flow) -> Vec<String> {
    let quality = &flow.block_quality;
    let counts = counted_nonzero([
        (quality.without_code, "block without code bytes", "blocks without code bytes"),
        (
            quality.contradicted,
            "block dropped that the code bytes contradict",
            "blocks dropped that the code bytes contradict",
        ),
        (quality.impossible(), "impossible block dropped", "impossible blocks dropped"),
        (
            quality.crossing,
            "fall-through across the kernel's boundary",
            "fall-throughs across the kernel's boundary",
        ),
        (
            quality.apart,
            "fall-through between two functions, distance unknown",
            "fall-throughs between two functions, distance unknown",
        ),
        (
            quality.open,
            "address from which the extent of straight-line code is unknown",
            "addresses from which the extent of straight-line code is unknown",
        ),
    ]);
    without(quality.filtered, "blocks").into_iter().chain(counts).collect()
}
