//! `lbr diff` as somebody uses it: two texts, or two recordings.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::lbr::{json_lines, lbr, stderr, stdout};

/// Stacks of a made-up program: `loop` goes round with mispredictions in some of
/// ten stacks, and calls a leaf.
fn text(missed: u64, cycles: u64, leaf: &str) -> String {
    let mut text = String::new();
    for stack in 0..200 {
        let word = if stack % 10 < missed { 'M' } else { 'P' };
        let _ = writeln!(
            text,
            " {leaf}+0x8/loop+0x10/P/-/-/3 loop+0xc/{leaf}+0x0/P/-/-/2 \
             loop+0x20/loop+0x0/{word}/-/-/{cycles} loop+0x20/loop+0x0/P/-/-/{cycles}"
        );
    }
    text
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Of 400 branches of `loop` 20 and then 100 were missed, each in its stack; the
/// block took 10 and then 10 cycles.
#[test]
fn a_worse_function_is_found_and_fails() {
    let folder = Folder::new();
    let (a, b) =
        (folder.file("a.txt", &text(1, 10, "leaf")), folder.file("b.txt", &text(5, 10, "leaf")));
    let out = lbr(&["diff", &a, &b, "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let rows = json_lines(&out);
    let (total, rows) = rows.split_last().unwrap();
    let of = |name: &str| {
        let is = |row: &&Value| row["symbol"] == name && row["kind"] == "branch";
        rows.iter().find(is).unwrap()
    };
    let row = of("loop");
    assert_eq!(row["verdict"], "worse");
    // Of loop+0xc, which is 200 times predicted, and loop+0x20.
    assert_eq!(row["mispredict_rate_before"], json!(20.0 / 600.0));
    assert_eq!(row["mispredict_rate_after"], json!(100.0 / 600.0));
    assert!(row["mispredict_rate_p_holm"].as_f64().unwrap() < 1e-9, "{row}");
    assert_eq!((&row["share_before"], &row["share_after"]), (&json!(0.75), &json!(0.75)));
    assert_eq!(of("leaf")["verdict"], Value::Null);
    assert_eq!(total["significant"], 1);
    assert_eq!(
        (&total["gone"], &total["new"], &total["unit"]),
        (&json!(0), &json!(0), &json!("stack"))
    );
    // From 3.33 % to 16.67 % are 400 % more.
    for (above, status) in [("399", 6), ("401", 0)] {
        let out = lbr(&["diff", &a, &b, "--fail-above", above]);
        assert_eq!(out.status.code(), Some(status), "{}", stdout(&out));
    }
    // The other way round it is better, and nothing grew.
    let out = lbr(&["diff", &b, &a, "--fail-above", "0"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(stdout(&out).contains("better"), "{}", stdout(&out));
    let page = stdout(&lbr(&["diff", &a, &b, "--html", "-"]));
    assert!(page.contains("What changed") && page.contains("worse"));
    let csv = stdout(&lbr(&["diff", &a, &b, "--csv"]));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    // Nothing is asked of rows that are not shown.
    let out = lbr(&["diff", &a, &b, "--symbol", "leaf", "--fail-above", "0"]);
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn what_one_side_lacks_is_gone_or_new() {
    let folder = Folder::new();
    let (a, b) =
        (folder.file("a.txt", &text(1, 10, "leaf")), folder.file("b.txt", &text(1, 10, "twig")));
    let rows = json_lines(&lbr(&["diff", &a, &b, "--json"]));
    let verdict = |name: &str| {
        rows.iter().find(|row| row["symbol"] == name).map(|row| {
            (row["verdict"].clone(), row["share_before"].clone(), row["share_after"].clone())
        })
    };
    assert_eq!(verdict("leaf"), Some((json!("gone"), json!(0.25), Value::Null)));
    assert_eq!(verdict("twig"), Some((json!("new"), Value::Null, json!(0.25))));
    let shown = stdout(&lbr(&["diff", &a, &b]));
    assert!(shown.contains("1 gone, 1 new"), "{shown}");
}

#[test]
fn nothing_differs_from_itself() {
    let folder = Folder::new();
    let a = folder.file("a.txt", &text(3, 10, "leaf"));
    let out = lbr(&["diff", &a, &a, "--fail-above", "0"]);
    assert_eq!(out.status.code(), Some(0));
    let shown = stdout(&out);
    assert!(shown.contains("\n0 rows changed significantly"), "{shown}");
    // Twice the baseline, counted together.
    let out = lbr(&["diff", "--baseline", &a, "--baseline", &a, "--new", &a, "--json"]);
    let rows = json_lines(&out);
    assert_eq!(rows[0]["count_before"].as_u64(), rows[0]["count_after"].as_u64().map(|n| 2 * n));
}

/// What cannot be compared is refused, each with what is the matter.
#[test]
fn refusals() {
    let folder = Folder::new();
    let a = folder.file("a.txt", &text(1, 10, "leaf"));
    let empty = folder.file("empty.txt", "");
    let event = |name: &str| {
        let line =
            |n: u64| format!("prog 100 {n}.000000: {name}: 401000 0x401000/0x401010/P/-/-/1 \n");
        folder.file(name, &(1..40).map(line).collect::<String>())
    };
    let (cycles, misses) = (event("cycles"), event("branch-misses"));
    for (args, said) in [
        (vec!["diff", &a, &empty], "empty.txt"),
        (vec!["diff", &empty, &a], "empty.txt"),
        (vec!["diff", &cycles, &misses], "branch-misses"),
        (vec!["diff", "-", "-"], "once"),
        (vec!["diff", &a, &a, "--symbol", "nobody"], "nobody"),
        (vec!["diff", &a, &a, "--level", "x"], "percent"),
        (vec!["diff", &a, &a, &a], "unexpected"),
        (vec!["diff", "--new", &a], "--baseline"),
        (vec!["diff", &a, "/nowhere/perf.data"], "/nowhere/perf.data"),
    ] {
        let out = lbr(&args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stdout(&out));
        assert!(stderr(&out).contains(said), "{args:?}: {}", stderr(&out));
    }
}

/// A recording without predictions or cycles has no such columns, and says so.
#[test]
fn what_is_not_recorded_has_no_column() {
    let folder = Folder::new();
    let line = " leaf+0x8/loop+0x10/-/-/-/0 loop+0xc/leaf+0x0/-/-/-/0\n";
    let a = folder.file("a.txt", &line.repeat(30));
    let shown = stdout(&lbr(&["diff", &a, &a]));
    assert!(shown.contains("predictions are not compared"), "{shown}");
    assert!(shown.contains("cycles are not compared"), "{shown}");
    assert!(!shown.contains("missed is"), "{shown}");
    let rows = json_lines(&lbr(&["diff", &a, &a, "--json"]));
    assert_eq!(rows[0].get("mispredict_rate_after"), None);
}
