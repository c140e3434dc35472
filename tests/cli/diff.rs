//! `lbr diff` on two texts, or two recordings.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::lbr::{command, json_lines, lbr, stderr, stdout};
use crate::support::programs::BARE;
use crate::support::skip::{skipped, tool};

/// Stacks of an invented program: `loop` runs with mispredictions in some of ten stacks, and calls
/// a leaf.
pub(crate) fn text(missed: u64, cycles: u64, leaf: &str) -> String {
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

pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Of 400 branches of `loop` first 20 and then 100 were mispredicted, each in its own stack; the
/// block took 10 cycles both times.
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
    // Of loop+0xc, which is predicted 200 times, and loop+0x20.
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
    // From 3.33 % to 16.67 % is an increase of 400 %.
    for (above, status) in [("399", 6), ("401", 0)] {
        let out = lbr(&["diff", &a, &b, "--fail-above", above]);
        assert_eq!(out.status.code(), Some(status), "{}", stdout(&out));
    }
    // In the other direction it is better, and nothing grew.
    let out = lbr(&["diff", &b, &a, "--fail-above", "0"]);
    assert_eq!(out.status.code(), Some(0));
    assert!(stdout(&out).contains("better"), "{}", stdout(&out));
    let page = stdout(&lbr(&["diff", &a, &b, "--html", "-"]));
    assert!(page.contains("What changed") && page.contains("worse"));
    let csv = stdout(&lbr(&["diff", &a, &b, "--csv"]));
    assert_eq!(csv.lines().count(), 3, "{csv}");
    // Omitted rows do not affect the result.
    let out = lbr(&["diff", &a, &b, "--symbol", "leaf", "--fail-above", "0"]);
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn rows_on_one_side_only_are_gone_or_new() {
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
    // `twig` is new, with a quarter of the branches; there is no more than nothing.
    for (before, after, status) in [(&a, &b, 6), (&a, &a, 0)] {
        let out = lbr(&["diff", before, after, "--fail-above", "1000"]);
        assert_eq!(out.status.code(), Some(status), "{}", stdout(&out));
    }
}

/// The answer is in the first lines: the verdict, the two sides, the changes.
#[test]
fn significant_changes_come_first() {
    let folder = Folder::new();
    let (a, b) =
        (folder.file("a.txt", &text(1, 10, "leaf")), folder.file("b.txt", &text(5, 10, "leaf")));
    let shown = stdout(&lbr(&["diff", &a, &b]));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with("1 significant change"), "{shown}");
    assert_eq!(lines[1], format!("baseline: {a}: 800 branches in 200 samples"));
    assert_eq!(lines[2], format!("compared: {b}: 800 branches in 200 samples"));
    assert!(lines[5].contains("worse") && lines[5].contains("+400.0%"), "{shown}");
    let rows = json_lines(&lbr(&["diff", &b, &a, "--json"]));
    assert_eq!(rows[0]["significant"], true);
}

/// The last line, whatever the exit status.
fn last(args: &[&str]) -> Value {
    serde_json::from_str(stdout(&lbr(args)).lines().last().unwrap()).unwrap()
}

/// Samples with one period represent that many events each: 400 of 1,000 after 200.
/// By hand: the error of the logarithm is sqrt(1/200 + 1/400), so that the interval is
/// 2 e^(±1.96 · 0.0866), 1.69 to 2.37.
#[test]
fn totals_of_samples_with_a_period() {
    let folder = Folder::new();
    let file = |name: &str, samples: u64, period: &str| {
        let line = |n: u64| {
            format!("prog 100 {n}.000000: {period} cycles: 401000 0x401000/0x401010/P/-/-/1 \n")
        };
        folder.file(name, &(1..=samples).map(line).collect::<String>())
    };
    let (a, b) = (file("a", 200, "1000"), file("b", 400, "1000"));
    let row = last(&["diff", &a, &b, "--json", "--fail-above", "50"]);
    let total_of = &row["total"];
    assert_eq!(
        (&total_of["before"], &total_of["after"], &total_of["exact"], &total_of["grew"]),
        (&json!(200_000.0), &json!(400_000.0), &json!(false), &json!(true))
    );
    let end = |key: &str| (total_of[key].as_f64().unwrap() * 100.0).round();
    assert_eq!((end("ratio_low"), end("ratio_high")), (169.0, 237.0), "{total_of}");
    let out = lbr(&["diff", &a, &b, "--fail-above", "50"]);
    assert_eq!(out.status.code(), Some(6));
    assert!(stdout(&out).contains("total +100.0% (+68.8% to +137.0%)"), "{}", stdout(&out));
    // A total that grew insignificantly, and one that shrank, are not failures.
    let c = file("c", 210, "1000");
    for (before, after) in [(&a, &c), (&b, &a)] {
        let out = lbr(&["diff", before, after, "--fail-above", "0"]);
        assert_eq!(out.status.code(), Some(0), "{}", stdout(&out));
    }
    // Without a period, the number of events between samples is unknown.
    let row = last(&["diff", &file("d", 200, ""), &file("e", 400, ""), "--json"]);
    assert_eq!(row["total"], Value::Null);
    assert!(row["total_not_compared"].as_str().unwrap().contains("period"), "{row}");
    // A part of a recording has no total.
    let row = last(&["diff", &a, &a, "--baseline-time", "0,100", "--time", "100,200", "--json"]);
    assert!(row["total_not_compared"].as_str().unwrap().contains("part"), "{row}");
}

const FLAGS: [&str; 3] = ["-g", "-O1", "-fno-stack-protector"];

/// A program: `work` goes round `trips` times, `extra` is called in addition.
pub(crate) fn source(before: &str, trips: u64, extra: &str) -> String {
    format!(
        "volatile unsigned sink;\n{before}\
         #define APART __attribute__((noinline,noclone))\n\
         APART void work(void) {{ for (int i = 0; i < {trips}; i++) sink += i; }}\n\
         APART void other(int n) {{ for (int i = 0; i < n; i++) sink ^= i; }}\n\
         {extra}\n\
         void _start(void) {{\n\
           for (int k = 0; k < 300; k++) {{ work(); other(k % 7 + 5);\n\
             CALL }}\n\
           __asm__ volatile(\"mov $60, %eax; xor %edi, %edi; syscall\");\n}}\n"
    )
}

/// Records a build with its own name from a source file of that name; `None`, with a message,
/// without a compiler.
pub(crate) fn recorded(folder: &Folder, name: &str, code: &str, call: &str) -> Option<String> {
    let program = folder.0.path().join(name);
    let source = folder.file(&format!("{name}.c"), &code.replace("CALL", call));
    let built = tool("cc").args(BARE).args(FLAGS).arg("-o").arg(&program).arg(source).status();
    let Ok(status) = built else {
        skipped("no C compiler (cc)");
        return None;
    };
    assert!(status.success(), "{status}");
    let file = folder.0.path().join(format!("{name}.data")).to_str().unwrap().to_owned();
    let options = ["record", "--backend", "soft", "-o", &file, "--"];
    let out = lbr(&[&options[..], &[program.to_str().unwrap()]].concat());
    assert!(out.status.success(), "{}", stderr(&out));
    Some(file)
}

fn found<'a>(rows: &'a [Value], symbol: &str, kind: &str) -> &'a Value {
    let is = |row: &&Value| row["symbol"] == symbol && row["kind"] == kind;
    rows.iter().find(is).unwrap_or_else(|| panic!("no {kind} {symbol}"))
}

/// Another version has another name and another source file, and its code moved: the
/// functions are the same.
#[test]
fn versions_of_a_program_are_compared_by_function() {
    let folder = Folder::new();
    let one = recorded(&folder, "prog-1.0", &source("", 20, ""), "");
    let moved = source("// More\n// lines.\n", 28, "");
    let two = recorded(&folder, "prog-1.1", &moved, "");
    let (Some(one), Some(two)) = (one, two) else { return };
    let rows = json_lines(&lbr(&["diff", &one, &two, "--json"]));
    let total = rows.last().unwrap();
    assert_eq!((&total["gone"], &total["new"]), (&json!(0), &json!(0)), "{total}");
    let trips = found(&rows, "work", "loop");
    assert_eq!(
        (&trips["trips_before"], &trips["trips_after"], &trips["significant"]),
        (&json!(20.0), &json!(28.0), &json!(true))
    );
    assert_eq!(found(&rows, "work", "branch")["verdict"], "more");
    assert_eq!(found(&rows, "other", "branch")["verdict"], Value::Null);
    // Each of 300 calls makes 8 more branches.
    let total = &total["total"];
    assert_eq!(total["exact"], true);
    assert_eq!(total["after"].as_f64().unwrap() - total["before"].as_f64().unwrap(), 2400.0);
    for name in ["prog-1.0", "prog-1.1"] {
        let rows = json_lines(&lbr(&["diff", &one, &two, "--json", "--dso", name]));
        assert_eq!(found(&rows, "work", "branch")["verdict"], "more", "{name}");
    }
    let out = lbr(&["diff", &one, &two, "--dso", "prog-1.2"]);
    assert_eq!(out.status.code(), Some(2), "{}", stdout(&out));
}

/// A function that only the new build has makes 81% of its branches and more than
/// four times as many in all: both fail the gate, and neither does the other way round.
#[test]
fn a_new_function_and_a_grown_total_fail() {
    let folder = Folder::new();
    let extra = "APART void extra(void) { for (int i = 0; i < 160; i++) sink |= i; }";
    let one = recorded(&folder, "before", &source("", 20, ""), "");
    let two = recorded(&folder, "after", &source("", 20, extra), "extra();");
    let (Some(one), Some(two)) = (one, two) else { return };
    let rows = json_lines(&lbr(&["diff", &one, &two, "--json"]));
    let row = found(&rows, "extra", "branch");
    assert_eq!((&row["verdict"], &row["significant"]), (&json!("new"), &json!(true)));
    assert!(row["share_after"].as_f64().unwrap() > 0.8, "{row}");
    let total = last(&["diff", &one, &two, "--json", "--fail-above", "5"]);
    assert_eq!(total["total"]["grew"], true, "{total}");
    for (before, after, status) in [(&one, &two, 6), (&two, &one, 0)] {
        let out = lbr(&["diff", before, after, "--fail-above", "5"]);
        assert_eq!(out.status.code(), Some(status), "{}", stdout(&out));
    }
    // The rows of a file include those that are new in it.
    let rows = json_lines(&lbr(&["diff", &one, &two, "--json", "--dso", "before"]));
    assert_eq!(found(&rows, "extra", "branch")["verdict"], "new");
    // The total is not of the selected rows alone.
    let out = lbr(&["diff", &one, &two, "--fail-above", "5", "--symbol", "other"]);
    assert_eq!(out.status.code(), Some(6), "{}", stdout(&out));
}

/// Static functions of one name in two source files stay two; a function that one
/// build inlined is the same function; a line inserted in one makes no line new.
#[test]
fn static_inlined_and_edited_functions() {
    let folder = Folder::new();
    let part = |trips: u64, line: &str| {
        format!(
            "extern volatile unsigned sink;\n\
             static __attribute__((noinline,noclone)) void same(int n)\n\
             {{\n{line}for (int i = 0; i < n; i++)\nsink += i;\n}}\n\
             void RUN(void) {{ same({trips}); }}\n"
        )
    };
    let main = |inlined: &str| {
        format!(
            "volatile unsigned sink; void a(void); void b(void);\n\
             static {inlined} void small(int n) {{ for (int i = 0; i < n; i++) sink ^= i; }}\n\
             void _start(void) {{ for (int k = 0; k < 60; k++) {{ a(); b(); small(9); }}\n\
             __asm__ volatile(\"mov $60, %eax; xor %edi, %edi; syscall\"); }}\n"
        )
    };
    let record = |name: &str, inlined: &str, trips: u64, line: &str| {
        let file = |part: &str, code: String| folder.file(&format!("{name}_{part}.c"), &code);
        let sources = [
            file("main", main(inlined)),
            file("a", part(10, "").replace("RUN", "a")),
            file("b", part(trips, line).replace("RUN", "b")),
        ];
        let program = folder.0.path().join(name);
        let built = tool("cc")
            .args(BARE)
            .args(FLAGS)
            .arg("-o")
            .arg(&program)
            .args(sources)
            .status()
            .ok()?;
        assert!(built.success(), "{built}");
        let data = folder.0.path().join(format!("{name}.data")).to_str().unwrap().to_owned();
        let options = ["record", "--backend", "soft", "-o", &data, "--"];
        let out = lbr(&[&options[..], &[program.to_str().unwrap()]].concat());
        assert!(out.status.success(), "{}", stderr(&out));
        Some(data)
    };
    let apart = "__attribute__((noinline,noclone))";
    let one = record("v1", apart, 10, "");
    let two = record("v2", "__attribute__((always_inline)) inline", 25, "sink = 0;\n");
    let (Some(one), Some(two)) = (one, two) else { return skipped("no C compiler (cc)") };
    let rows = json_lines(&lbr(&["diff", &one, &two, "--json"]));
    let total = rows.last().unwrap();
    assert_eq!((&total["gone"], &total["new"]), (&json!(0), &json!(0)), "{rows:#?}");
    let trips: Vec<_> = rows
        .iter()
        .filter(|row| row["symbol"] == "same" && row["kind"] == "loop")
        .map(|row| (row["trips_before"].as_f64().unwrap(), row["trips_after"].as_f64().unwrap()))
        .collect();
    assert!(trips.len() == 2 && trips.contains(&(10.0, 10.0)), "{trips:?}");
    assert!(trips.contains(&(10.0, 25.0)), "{trips:?}");
    let small = found(&rows, "small", "loop");
    assert_eq!((&small["trips_before"], &small["trips_after"]), (&json!(9.0), &json!(9.0)));
}

/// Without a baseline the error says which one is meant.
#[test]
fn one_recording_alone_names_its_baseline() {
    let folder = Folder::new();
    let a = folder.file("a.txt", &text(1, 10, "leaf"));
    let run = || command(&["diff", &a]).current_dir(folder.0.path()).output().unwrap();
    let out = run();
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("no perf.data.old here"), "{}", stderr(&out));
    assert!(stderr(&out).contains(&format!("lbr diff BASELINE {a}")), "{}", stderr(&out));
    folder.file("perf.data.old", &text(5, 10, "leaf"));
    let out = run();
    assert!(stdout(&out).contains("baseline: perf.data.old: 800 branches"));
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    let folder = Folder::new();
    let a = folder.file("a.txt", &text(3, 10, "leaf"));
    let out = lbr(&["diff", &a, &a, "--fail-above", "0"]);
    assert_eq!(out.status.code(), Some(0));
    let shown = stdout(&out);
    assert!(shown.starts_with("passed: nothing grew by more than 0%; no row changed"), "{shown}");
    // The baseline twice, counted together.
    let out = lbr(&["diff", "--baseline", &a, "--baseline", &a, "--new", &a, "--json"]);
    let rows = json_lines(&out);
    assert_eq!(rows[0]["count_before"].as_u64(), rows[0]["count_after"].as_u64().map(|n| 2 * n));
}

/// Incomparable inputs are rejected, with the reason.
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

/// A recording without predictions or cycles lacks these columns, with a note.
#[test]
fn unrecorded_fields_have_no_column() {
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
