//! Signal handlers are separate contexts: the interrupted code continues when they return.

use serde_json::{Value, json};

use crate::support::lbr::{rows, traced};
use crate::support::programs::build;

/// Rows of a view whose symbol is in the program.
fn of<'a>(rows: &'a [Value], key: &str, name: &str) -> Vec<&'a Value> {
    rows.iter().filter(|row| row[key] == name).collect()
}

#[test]
fn interrupted_code_continues_in_its_loop_its_caller_and_its_path() {
    let Some(program) = build("handlers.c", &["-O1", "-static"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let name = file.to_str().unwrap();
    let record =
        ["record", "--backend", "soft", "--source", "ptrace", "--from", "main", "-o", name];
    // Stacks that end before, in and after handlers.
    for period in ["1", "2", "3", "4", "5", "31"] {
        if traced(&[&record[..], &["-c", period, "--", program.name()]].concat()).is_none() {
            return;
        }
        let view = |view| rows(&["report", name, "--view", view, "--json", "--dso", "all"]);
        let loops = view("loops");
        for (function, entries, trips) in [("work", 1, 10), ("on_signal", 10, 3)] {
            let found = of(&loops, "head_symbol", function);
            let histograms: Vec<&Value> = found.iter().map(|row| &row["histogram"]).collect();
            let wanted = json!([{ "entries": entries, "trips": trips }]);
            assert_eq!(histograms, [&wanted], "-c {period}, {function}");
        }
        let graph = view("callgraph");
        for (function, calls) in [("work", 1), ("on_signal", 0)] {
            let found = of(&graph, "function", function);
            assert_eq!(found[0]["calls"], calls, "-c {period}, {function}");
        }
        // Rounds after the first signal are main's too.
        let total = |name| of(&graph, "function", name)[0]["total"].as_u64().unwrap();
        assert!(total("main") > total("work"), "-c {period}");
    }
}
