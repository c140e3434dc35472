//! Call graphs for viewers: the Firefox profiler, speedscope, and flame graphs.

use std::collections::HashMap;

use inferno::flamegraph::{Options, from_reader};
use serde_json::{Value, json};

use crate::code::maps::Location;
use crate::views::callgraph::CallGraph;

/// Version of the Firefox profiler's format.
const VERSION: u32 = 55;
/// The resource type of a library.
const LIBRARY: u32 = 1;

/// Converts a call graph to the Firefox profiler's processed format, version 55
/// (`docs-developer/CHANGELOG-formats.md` and `src/types/profile.ts` of firefox-devtools/profiler,
/// which upgrades older versions). `name` is the recording's. A frame is a function, a stack is a
/// calling context. Each counted stack is one sample, weighted by its count.
///
/// The format requires times, which aggregated counts do not have: samples are a millisecond apart,
/// in arbitrary order.
pub fn firefox(graph: &CallGraph, name: &str) -> Value {
    let functions = graph.functions.len();
    // Function names come first, so that their indices are the functions' numbers. File names
    // follow.
    let mut strings: Vec<String> = graph.functions.iter().map(|of| of.label()).collect();
    let mut resources: HashMap<usize, usize> = HashMap::new();
    let mut resource = |location: Option<Location>| {
        let Some(file) = location.and_then(Location::file) else { return -1 };
        let Some(path) = graph.maps.path(file) else { return -1 };
        let next = resources.len();
        let at = *resources.entry(file).or_insert(next);
        if at == next {
            strings.push(path.rsplit('/').next().unwrap_or(path).to_owned());
        }
        i64::try_from(at).unwrap_or(-1)
    };
    let resource_of: Vec<i64> = graph.functions.iter().map(|of| resource(of.location)).collect();
    let all = |value: Value, length: usize| vec![value; length];
    let libraries = strings.len() - functions;
    // The root is not a function: stack numbers start at the node after it.
    let contexts = || graph.nodes.iter().skip(1);
    let prefix = |parent: Option<usize>| parent.and_then(|parent| parent.checked_sub(1));
    let counted = || graph.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
    let numbers = |length: usize| (0..length).collect::<Vec<_>>();
    let thread = json!({
        "name": graph.unit.name(),
        "processName": name,
        "processType": "default",
        "pid": "0",
        "tid": 0,
        "isMainThread": true,
        "processStartupTime": 0,
        "processShutdownTime": null,
        "registerTime": 0,
        "unregisterTime": null,
        "pausedRanges": [],
        "samples": {
            "length": counted().count(),
            "stack": counted().map(|(at, _)| at.checked_sub(1)).collect::<Vec<_>>(),
            "time": numbers(counted().count()),
            "weight": counted().map(|(_, node)| node.own).collect::<Vec<_>>(),
            "weightType": "samples",
        },
        "stackTable": {
            "length": contexts().count(),
            "prefix": contexts().map(|node| prefix(node.parent)).collect::<Vec<_>>(),
            "frame": contexts().map(|node| node.function).collect::<Vec<_>>(),
        },
        "frameTable": {
            "length": functions,
            "address": all(json!(-1), functions),
            "inlineDepth": all(json!(0), functions),
            "category": all(json!(0), functions),
            "subcategory": all(json!(0), functions),
            "func": numbers(functions),
            "nativeSymbol": all(Value::Null, functions),
            "innerWindowID": all(json!(0), functions),
            "line": all(Value::Null, functions),
            "column": all(Value::Null, functions),
        },
        "funcTable": {
            "length": functions,
            "name": numbers(functions),
            "isJS": all(json!(false), functions),
            "relevantForJS": all(json!(false), functions),
            "resource": resource_of,
            "fileName": all(Value::Null, functions),
            "lineNumber": all(Value::Null, functions),
            "columnNumber": all(Value::Null, functions),
        },
        "resourceTable": {
            "length": libraries,
            "lib": all(Value::Null, libraries),
            "name": (functions..strings.len()).collect::<Vec<_>>(),
            "host": all(Value::Null, libraries),
            "type": all(json!(LIBRARY), libraries),
        },
        "nativeSymbols": {
            "length": 0, "libIndex": [], "address": [], "name": [], "functionSize": [],
        },
        "markers": {
            "length": 0, "data": [], "name": [], "startTime": [], "endTime": [], "phase": [],
            "category": [],
        },
        "stringArray": strings,
    });
    json!({
        "meta": {
            "preprocessedProfileVersion": VERSION,
            // Version of Firefox's own (Gecko) format; 0 because there is none.
            "version": 0,
            "product": concat!("lbr ", env!("CARGO_PKG_VERSION")),
            "processType": 0,
            "interval": 1,
            "startTime": 0,
            "stackwalk": 0,
            "debug": false,
            "symbolicated": true,
            "usesOnlyOneStackType": true,
            "sourceCodeIsNotOnSearchfox": true,
            "categories": [{ "name": "Other", "color": "grey", "subcategories": ["Other"] }],
            "markerSchema": [],
            "extensions": { "length": 0, "baseURL": [], "id": [], "name": [] },
        },
        "libs": [],
        "pages": [],
        "counters": [],
        "profilerOverhead": [],
        "threads": [thread],
    })
}

/// Converts a call graph to speedscope's format (`src/lib/file-format-spec.ts` of
/// jlfwong/speedscope); `name` is the recording's. A frame is a function, a sample is a calling
/// context.
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

/// Draws a flame graph of folded lines, at least one, as SVG; `unit` is the unit of their counts.
///
/// # Errors
/// inferno's error: no lines.
pub fn flamegraph(folded: &[u8], title: &str, unit: &str) -> std::io::Result<Vec<u8>> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.count_name = unit.to_owned();
    // The same recording must give the same picture.
    options.deterministic = true;
    let mut svg = Vec::new();
    from_reader(&mut options, folded, &mut svg).map_err(std::io::Error::other)?;
    Ok(svg)
}
