//! The Firefox profiler's processed format, version 55
//! (`docs-developer/CHANGELOG-formats.md` and `src/types/profile.ts` of
//! firefox-devtools/profiler, which upgrades what is older than itself): a frame
//! a function, a stack a calling context, a sample each stack that counts, whose
//! weight is how often it did.
//!
//! The format wants times, and sums have none: samples stand a millisecond
//! apart, in no order that means anything.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::code::maps::Location;
use crate::views::callgraph::CallGraph;

/// Which version of the format this is.
const VERSION: u32 = 55;
/// A resource that is a library.
const LIBRARY: u32 = 1;

/// Who calls whom; `name` is that of the recording.
#[must_use]
pub fn firefox(graph: &CallGraph, name: &str) -> Value {
    let functions = graph.functions.len();
    // A function's name has its number; those of files follow.
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
    // The root stands for no function: stacks are numbered from the node behind it.
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
            // Of the format that Firefox itself writes: there was none.
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
