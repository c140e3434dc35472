//! Output for people starts with the files of the recorded program.

use serde_json::Value;

use crate::export_program::{LIBC, Text, started};
use crate::support::lbr::{done, lbr, rows, stderr};
use crate::support::programs::build;
use crate::support::skip::skipped;

/// A program with 3 branches, 9 in the loader, 4 in its own library, 2 in a system library, and 1
/// in generated code.
fn recording(dir: &std::path::Path) -> String {
    let text = started(Text::default(), 7, "prog", 3)
        .map(7, 0x7d00_0000_0000, "/made/up/libown.so")
        .branches(7, 0x7d00_0000_0100, 4)
        .branches(7, 0x7e00_0000_0100, 2)
        .branches(7, 0x7000_0000_0100, 1);
    let input = dir.join("text");
    std::fs::write(&input, text.0).unwrap();
    input.to_str().unwrap().to_owned()
}

#[test]
fn files_of_the_system_are_omitted_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let input = recording(dir.path());
    let text = done(&["report", &input]);
    assert!(
        text.contains("omitted: 11 of 19 branches (57.89%) outside the program's own files"),
        "{text}"
    );
    assert!(text.contains("2 of 5 rows (--dso all shows them)"), "{text}");
    for (name, is_shown) in [
        ("prog+", true),
        ("libown.so+", true),
        ("0x700000000110", true),
        ("ld-linux", false),
        ("libc", false),
    ] {
        assert_eq!(text.contains(name), is_shown, "{name}: {text}");
    }
    let all = done(&["report", &input, "--dso", "all"]);
    assert!(all.contains("ld-linux") && all.contains("libc") && !all.contains("omitted"), "{all}");
}

/// Every row is in machine-readable output, and in reports for which the user selects files.
#[test]
fn requested_files_are_shown() {
    let dir = tempfile::tempdir().unwrap();
    let input = recording(dir.path());
    let counts = |args: &[&str]| {
        let made = rows(&[&["report", &input, "--json"], args].concat());
        made.iter().filter_map(|row| row["rank"].as_u64().and(row["count"].as_u64())).sum::<u64>()
    };
    assert_eq!(counts(&[]), 19);
    assert_eq!(counts(&["--dso", "all"]), 19);
    assert_eq!(counts(&["--dso", "libc.so.6"]), 2);
    let quality = rows(&["report", &input, "--json"]).pop().unwrap();
    assert_eq!((&quality["dso"], &quality["branches"]), (&Value::Null, &19.into()));
    assert_eq!(done(&["report", &input, "--csv"]).lines().count(), 6);
    let files = done(&["report", &input, "--group", "file"]);
    assert!(files.contains("ld-linux"), "{files}");
    let libc = done(&["report", &input, "--dso", "libc.so.6"]);
    assert!(libc.contains("libc.so.6+") && !libc.contains("prog+"), "{libc}");
}

/// A program that spends nothing in its own files, and recordings that do not show
/// which program was run.
#[test]
fn system_files_are_shown_if_there_are_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("text");
    let only_loader = started(Text::default(), 7, "prog", 0);
    let without = Text::default()
        .map(7, 0x7e00_0000_0000, LIBC)
        .branches(7, 0x7e00_0000_0100, 2)
        .branches(7, 0x7000_0000_0100, 1);
    let two = started(started(Text::default(), 7, "prog", 2), 9, "another", 3);
    for text in [only_loader, without, two] {
        std::fs::write(&input, text.0).unwrap();
        let shown = done(&["report", input.to_str().unwrap()]);
        assert!(!shown.contains("omitted"), "{shown}");
    }
}

/// So do the function and the block that are shown if none is named.
#[test]
fn the_hottest_function_and_block_are_the_programs() {
    let Some(program) = build("ending.c", &["-O1"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let file = file.to_str().unwrap();
    let record = ["record", "--backend", "soft", "--source", "ptrace", "--model", "-o", file];
    let out = lbr(&[&record[..], &["--", program.name()]].concat());
    if out.status.code() == Some(4) {
        return skipped(stderr(&out));
    }
    assert_eq!(out.status.code(), Some(99), "{}", stderr(&out));
    let title = |more: &[&str]| {
        let text = done(&[&["annotate", "-i", file], more].concat());
        text.lines().find(|line| line.contains(" instructions, ")).unwrap().to_owned()
    };
    assert!(title(&[]).contains(&format!(" in {}: ", program.name())), "{}", title(&[]));
    assert!(!title(&["--dso", "all"]).contains(program.name()), "{}", title(&["--dso", "all"]));
    let own = rows(&["report", file, "--view", "blocks", "--json", "--dso", program.name()]);
    let block = |more: &[&str]| {
        let text = done(&[&["hist", file], more].concat());
        text.lines().next().unwrap().to_owned()
    };
    let is_own = |block: &str| {
        let (function, _) = block.split_once('+').unwrap();
        own.iter().any(|row| row["entry_symbol"] == function)
    };
    assert!(is_own(&block(&[])), "{}", block(&[]));
    assert!(!is_own(&block(&["--dso", "all"])), "{}", block(&["--dso", "all"]));
}
