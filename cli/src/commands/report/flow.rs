//! Shared by the views of control flow.

use std::io;

use profile::Flow;
use profile::flow::FlowCounter;
use profile::interval::{Clusters, Interval};

use super::Report;
use crate::exit::Outcome;
use crate::head::{Notes, Totals, flow_json, without};
use crate::input::Source;
use crate::present::number::counted_nonzero;
use crate::present::out::Out;

/// Runs a view of blocks or branches. `print` may return an exit status.
pub(super) fn run(
    args: &Report,
    out: &mut Out<'_>,
    blocks: bool,
    notes: impl FnOnce(&Flow) -> Notes,
    print: impl FnOnce(&mut Out<'_>, &mut Flow) -> io::Result<Option<u8>>,
) -> Outcome {
    let counter = if blocks { FlowCounter::without_sites() } else { FlowCounter::without_blocks() };
    let (mut flow, sources) = args.count(counter)?;
    let totals = Totals::from(&flow);
    let rows = args.shown().keep_flow(&mut flow, blocks)?;
    let read = (&*sources, &flow.quality, &totals);
    args.print_head(out, read, || notes(&flow), rows.as_ref())?;
    out.modelled = Source::any_models_fields(&sources);
    let status = print(out, &mut flow)?;
    let totals = flow_json(&sources, &flow, &totals);
    let done = args.end(out, totals, rows.as_ref(), (&sources, &flow.maps))?;
    Ok(status.unwrap_or(done))
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
