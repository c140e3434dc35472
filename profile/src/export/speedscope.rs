//! speedscope's format (`src/lib/file-format-spec.ts` of jlfwong/speedscope): a frame is a
//! function, a sample is a calling context.

use serde_json::{Value, json};

use crate::views::callgraph::CallGraph;

/// Converts a call graph; `name` is the recording's.
pub fn speedscope(graph: &CallGraph, name: &str) -> Value {
    let functions = graph.functions.iter();
    // An unknown file has no key: the schema does not allow null.
    let frames = functions.map(|of| match of.location.and_then(|at| graph.maps.path_of(at)) {
        Some(file) => json!({ "name": of.label(), "file": file }),
        None => json!({ "name": of.label() }),
    });
    let frames: Vec<Value> = frames.collect();
    let counted = graph.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
    let (samples, weights): (Vec<Vec<usize>>, Vec<u64>) =
        counted.map(|(at, node)| (graph.path(at), node.own)).unzip();
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("lbr ", env!("CARGO_PKG_VERSION")),
        "name": name,
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": [{
            "type": "sampled",
            "name": format!("{name}: {}", graph.unit.name()),
            "unit": "none",
            "startValue": 0,
            "endValue": weights.iter().fold(0, |sum: u64, of| sum.saturating_add(*of)),
            "samples": samples,
            "weights": weights,
        }],
    })
}
