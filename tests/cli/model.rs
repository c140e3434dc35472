//! `lbr record --model`: predictions and cycles of the documented model, by hand, and their label
//! wherever they are shown.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::lbr::{done, json_lines, lbr, printed, rows, sources, stderr};
use crate::support::programs::{BARE, Program, build};

/// textbook.S, linked at the textbook's addresses.
fn textbook() -> Option<Program> {
    build("textbook.S", &[BARE, &["-Wl,-Ttext=0x4ed000"]].concat())
}

/// Records a program with the model.
fn record(file: &Path, source: &str, more: &[&str], program: &Program) {
    let options = ["record", "--model", "--source", source, "-o", file.to_str().unwrap()];
    let out = lbr(&[&options, more, &["--", program.name()]].concat());
    assert!(out.status.code().is_some_and(|code| code < 128), "{}", stderr(&out));
    assert!(stderr(&out).contains("predictions and cycles modelled"), "{}", stderr(&out));
    assert!(stderr(&out).contains("complete: every taken branch"), "{}", stderr(&out));
}

/// Branches by thread in execution order: source and target, misprediction, cycles.
fn branches(file: &Path) -> BTreeMap<u64, Vec<[Value; 4]>> {
    let mut threads: BTreeMap<u64, Vec<[Value; 4]>> = BTreeMap::new();
    for sample in rows(&["script", "--json", "-i", file.to_str().unwrap()]) {
        let thread = threads.entry(sample["tid"].as_u64().unwrap()).or_default();
        let entries = sample["entries"].as_array().unwrap().iter().rev();
        thread.extend(
            entries.map(|entry| {
                ["from", "to", "mispredicted", "cycles"].map(|key| entry[key].clone())
            }),
        );
    }
    threads
}

/// The loop runs for 5, -1, -7, 12, 0. An instruction takes one cycle, a misprediction 15 more in
/// the next record. JNS goes T N N T T: its counter starts at weakly not taken and is wrong except
/// for the third time. JNE is taken four times, and wrong the first time.
#[test]
fn the_textbook_loop() {
    let Some(program) = textbook() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let [jns, call, ret, jne] = [
        ("0x4eda14", "0x4eda1e"),
        ("0x4eda1e", "0x4edb26"),
        ("0x4edb29", "0x4eda23"),
        ("0x4eda2d", "0x4eda10"),
    ];
    let wanted = [
        (jns, true, 3),
        (call, false, 15 + 1),
        (ret, false, 2),
        (jne, true, 4),
        // JNE and JNS were mispredicted: mov test jns, mov shl lea call.
        (call, false, 15 + 3 + 15 + 4),
        (ret, false, 2),
        (jne, false, 4),
        (call, false, 3 + 4),
        (ret, false, 2),
        (jne, false, 4),
        (jns, true, 3),
        (call, false, 15 + 1),
        (ret, false, 2),
        (jne, false, 4),
        (jns, true, 3),
        (call, false, 15 + 1),
        (ret, false, 2),
    ];
    for source in sources() {
        for period in [31, 3] {
            let count = period.to_string();
            record(&file, source, &["--from", "loop", "-c", &count], &program);
            let wanted: Vec<[Value; 4]> = wanted
                .iter()
                .enumerate()
                .map(|(at, ((from, to), mispredicted, cycles))| {
                    // The first record after a drain has no cycles, as on a CPU.
                    let cycles = (at % period > 0).then_some(cycles);
                    [json!(from), json!(to), json!(mispredicted), json!(cycles)]
                })
                .collect();
            let threads = branches(&file);
            assert_eq!(threads.values().collect::<Vec<_>>(), [&wanted], "{source} -c {period}");
        }
        // A filter omits records: the cycles of JNS and JNE go to the next call.
        record(&file, source, &["--from", "loop", "-j", "any_call,u"], &program);
        let threads = branches(&file);
        let cycles = threads.values().flatten().map(|branch| branch[3].clone());
        let expected = [json!(null), json!(2 + 4 + 37), json!(2 + 4 + 7), json!(2 + 4 + 3 + 16)];
        assert_eq!(cycles.take(4).collect::<Vec<_>>(), expected, "{source}");
    }
}

/// Haswell's records have no cycles, Core 2's have neither cycles nor predictions.
#[test]
fn a_cpu_records_only_what_its_format_holds() {
    let Some(program) = textbook() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    for (cpu, predictions, cycles) in [("06_3C", true, false), ("06_8F", true, true)] {
        record(&file, "ptrace", &["--soft-cpu", cpu], &program);
        let threads = branches(&file);
        let later = threads.values().flatten().skip(1);
        for [_, _, mispredicted, count] in later {
            assert_eq!(mispredicted.is_boolean(), predictions, "{cpu}");
            assert_eq!(count.is_u64(), cycles, "{cpu}");
        }
    }
}

/// The same branches of a thread get the same numbers, up to where two runs wait differently for
/// other threads.
#[test]
fn the_model_is_deterministic() {
    let Some(program) = build("threads.c", &["-O1", "-static", "-pthread"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let run = || {
        record(&file, "ptrace", &["--from", "main"], &program);
        branches(&file).into_values().next().unwrap()
    };
    let (first, second) = (run(), run());
    let same = first.iter().zip(&second).take_while(|(a, b)| a[..2] == b[..2]);
    let same: Vec<_> = same.collect();
    assert!(same.len() > 10, "{}", same.len());
    for (a, b) in same {
        assert_eq!(a, b);
    }
}

#[test]
fn every_view_is_labelled_modelled() {
    let Some(program) = textbook() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let name = file.to_str().unwrap();
    record(&file, "ptrace", &["--from", "loop"], &program);
    let label = "software LBR (Skylake), predictions and cycles modelled, not measured";
    for view in ["hot", "types", "mispredict", "outcomes", "blocks", "loops", "callgraph", "paths"]
    {
        let text = done(&["report", "--view", view, "-i", name]);
        assert!(text.contains(label), "{view}: {text}");
        let out = lbr(&["report", "--view", view, "--json", "-i", name]);
        let quality = json_lines(&out).into_iter().find(|row| row["view"] == "quality").unwrap();
        assert_eq!(quality["modelled"], true, "{view}");
    }
    for command in [&["annotate"][..], &["hist"], &["report", "--html", "-"]] {
        let text = done(&[command, &["-i", name]].concat());
        assert!(text.contains("modelled, not measured"), "{command:?}: {text}");
    }
    for command in [
        &["report", "--csv"][..],
        &["report", "--csv", "--view", "mispredict"],
        &["report", "--csv", "--view", "blocks"],
        &["report", "--csv", "--view", "loops"],
        &["report", "--csv", "--view", "paths"],
        &["report", "--csv", "--group", "function"],
    ] {
        let text = done(&[command, &["-i", name]].concat());
        let mut lines = text.lines();
        assert!(lines.next().is_some_and(|keys| keys.ends_with(",modelled")), "{command:?}");
        assert!(lines.all(|row| row.ends_with(",true")), "{command:?}: {text}");
    }
    let misses = rows(&["report", "--view", "mispredict", "--json", "--min-n", "1", "-i", name]);
    let missed = misses.iter().filter(|row| row["view"] == "mispredict");
    assert_eq!(missed.filter_map(|row| row["mispredicted"].as_u64()).sum::<u64>(), 4);
}

/// Exports contain the real branches and nothing modelled, except for a copy of the recording,
/// which keeps the label.
#[test]
fn exports_omit_what_was_modelled() {
    let Some(program) = textbook() else { return };
    let dir = tempfile::tempdir().unwrap();
    let [modelled, plain] = ["modelled", "plain"].map(|name| dir.path().join(name));
    record(&modelled, "ptrace", &["--from", "loop"], &program);
    let options = ["record", "--source", "ptrace", "--from", "loop", "-o", plain.to_str().unwrap()];
    assert!(lbr(&[&options[..], &["--", program.name()]].concat()).status.code().is_some());
    for kind in ["llvm-raw", "preagg", "preagg:T", "autofdo", "csv:uprof"] {
        let export = |file: &Path| lbr(&["export", "--to", kind, "-i", file.to_str().unwrap()]);
        let (of_model, of_plain) = (export(&modelled), export(&plain));
        assert_eq!(printed(&of_model), printed(&of_plain), "{kind}");
        let says = "predictions and cycles are modelled, and are omitted here";
        assert!(stderr(&of_model).contains(says), "{kind}: {}", stderr(&of_model));
        assert!(!stderr(&of_plain).contains(says), "{kind}: {}", stderr(&of_plain));
    }
    let modelled = modelled.to_str().unwrap();
    for row in rows(&["export", "--to", "jsonl:edges", "-i", modelled]) {
        assert_eq!((&row["mispredicted"], &row["predictions_known"]), (&json!(null), &json!(0)));
    }
    let text = done(&["export", "--to", "brstack", "-i", modelled]);
    assert!(text.contains("/-/-/-/0/COND") && !text.contains("/M/"), "{text}");
    let selected = done(&["export", "--to", "brstack", "-i", modelled, "--event", "branches:u"]);
    assert_eq!(selected, text, "with a selection too");
    let copy = dir.path().join("copy");
    let copy = copy.to_str().unwrap();
    done(&["export", "--to", "perfdata", "-i", modelled, "-o", copy]);
    let report = done(&["report", "-i", copy]);
    assert!(report.contains("predictions and cycles modelled, not measured"), "{report}");
    assert!(report.contains("; 4 mispredicted"), "{report}");
}

#[test]
fn only_the_software_lbr_models() {
    for backend in ["perf", "msr"] {
        let out = lbr(&["record", "--backend", backend, "--model", "--", "true"]);
        assert_eq!(out.status.code(), Some(2), "{backend}: {}", stderr(&out));
        assert!(stderr(&out).contains("--model: only the software LBR"), "{}", stderr(&out));
    }
    assert_eq!(lbr(&["record", "--model", "-C", "0"]).status.code(), Some(2));
}
