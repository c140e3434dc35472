//! Who calls whom, for viewers of calling contexts.

use profile::export;

use super::{Export, Kind, usage};
use crate::commands::report;
use crate::exit::{DONE, OrExit, Outcome, USAGE};
use crate::head;
use crate::output::Output;
use crate::present::json;

/// Writes one of these kinds.
pub(super) fn write(args: &Export, output: &Output) -> Outcome {
    let reading = args.reading();
    let (graph, read) = report::call_graph(args.inputs.paths(), &reading, &args.symbols, false)?;
    let name = read.first().map_or("-", |source| source.name.as_str());
    let mut text = Vec::new();
    match args.to {
        Kind::Speedscope => json::value(&mut text, &export::speedscope(&graph, name))?,
        Kind::Firefox => json::value(&mut text, &export::firefox(&graph, name))?,
        _ => report::print_folded(&mut text, &graph, |_| true)?,
    }
    if args.to == Kind::Flamegraph {
        if text.is_empty() {
            return usage("nothing to draw: no branches match the selection");
        }
        let title = format!("{name}: {}", graph.unit.name());
        text = export::flamegraph(&text, &title, graph.unit.name()).or_exit(USAGE)?;
    }
    output.write(text)?;
    head::finish(&read, &graph.maps);
    Ok(DONE)
}
