//! `lbr report --view loops`, `paths` and `callgraph` on programs whose loops
//! and calls are known out of their source.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::lbr::{
    PROGRAM, alone, done as text, lbr, lbr_with_input, printed, rows, traced,
};
use crate::support::programs::{BARE, Program, build};
use crate::support::skip::skipped;

/// Records a program; `None`, after saying so, where it may not be traced.
fn record(dir: &Path, program: &Program, options: &[&str]) -> Option<String> {
    let file = dir.join(options.join("")).to_str().unwrap().to_owned();
    let mut args = vec!["record", "--backend", "soft", "--source", "ptrace", "-o", &file];
    args.extend(options);
    args.extend(["--", program.name()]);
    traced(&args)?;
    Some(file)
}

fn loops(file: &str) -> Vec<Value> {
    rows(&["report", "--view", "loops", "--json", "-i", file])
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Trips with the entries that made them, of the loop at a label.
fn trips(rows: &[Value], head: &str) -> Option<Vec<(u64, u64)>> {
    let row = rows.iter().find(|row| row["head_symbol"] == head && row["head_offset"] == 0)?;
    let histogram = row["histogram"].as_array().unwrap();
    Some(histogram.iter().map(|bar| (number(&bar["trips"]), number(&bar["entries"]))).collect())
}

/// A loop's head, its depth, the head of the loop around it, and what trips
/// its entries made.
type Known = (&'static str, u64, Option<&'static str>, &'static [(u64, u64)]);

/// Each loop of loops.S that runs round at least once.
const LOOPS: [Known; 21] = [
    ("main_h", 1, None, &[(3, 1)]),
    ("b1_h", 2, Some("main_h"), &[(1, 3)]),
    ("b2_h", 2, Some("main_h"), &[(2, 3)]),
    ("b7_h", 2, Some("main_h"), &[(7, 3)]),
    ("b31_h", 2, Some("main_h"), &[(31, 3)]),
    ("b32_h", 2, Some("main_h"), &[(32, 3)]),
    ("b33_h", 2, Some("main_h"), &[(33, 3)]),
    ("b1000_h", 2, Some("main_h"), &[(1000, 3)]),
    ("t1_h", 2, Some("main_h"), &[(1, 3)]),
    ("t7_h", 2, Some("main_h"), &[(7, 3)]),
    ("t33_h", 2, Some("main_h"), &[(33, 3)]),
    ("r1_h", 2, Some("main_h"), &[(1, 3)]),
    ("r7_h", 2, Some("main_h"), &[(7, 3)]),
    ("r33_h", 2, Some("main_h"), &[(33, 3)]),
    ("outer_h", 2, Some("main_h"), &[(5, 3)]),
    ("inner_h", 3, Some("outer_h"), &[(1, 3), (2, 3), (3, 3), (4, 3), (5, 3)]),
    ("early_h", 2, Some("main_h"), &[(10, 1), (20, 1), (30, 1)]),
    ("calls_h", 2, Some("main_h"), &[(6, 3)]),
    ("leaf_h", 1, None, &[(4, 18)]),
    ("cont_h", 2, Some("main_h"), &[(8, 3)]),
    ("ind_h", 2, Some("main_h"), &[(9, 3)]),
];

/// Only code shows a loop that always made one trip: it is read where `--symfs` says while branches
/// are counted.
#[test]
fn loops_are_found_in_the_code_that_symfs_names() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (here, there) = (dir.path().join("loops"), dir.path().join("there"));
    std::fs::copy(&program.path, &here).unwrap();
    let file = dir.path().join("perf.data").to_str().unwrap().to_owned();
    let record = ["record", "--backend", "soft", "--source", "ptrace", "-o", &file, "--"];
    let Some(_) = traced(&[&record[..], &[here.to_str().unwrap()]].concat()) else { return };
    let before = loops(&file);
    std::fs::create_dir(&there).unwrap();
    std::fs::rename(&here, there.join("loops")).unwrap();
    let symfs = ["--symfs", there.to_str().unwrap()];
    let report = ["report", "--view", "loops", "--json", "-i", &file];
    assert_eq!(rows(&[&report[..], &symfs[..]].concat()), before);
    assert!(trips(&before, "b1_h").is_some());
}

#[test]
fn trips_are_exact_if_every_branch_is_recorded() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    for count in ["31", "7", "1"] {
        let Some(file) = record(dir.path(), &program, &["-c", count]) else { return };
        let rows = loops(&file);
        let quality = rows.last().unwrap();
        assert_eq!((&quality["view"], &quality["complete"]), (&"quality".into(), &true.into()));
        // A body that never ran (t0, r0) shows no loop, and a recursion is none.
        assert_eq!(number(&quality["loops"]), LOOPS.len() as u64);
        assert_eq!(rows.len(), LOOPS.len() + 1);
        for (head, depth, parent, wanted) in LOOPS {
            let found = trips(&rows, head).unwrap_or_else(|| panic!("no loop at {head}"));
            assert_eq!(found, wanted, "{head} -c {count}");
            let row = rows.iter().find(|row| row["head_symbol"] == head).unwrap();
            assert_eq!(number(&row["depth"]), depth, "{head}");
            let around = row["parent_rank"].as_u64().map(|rank| &rows[rank as usize - 1]);
            let around = around.map(|row| row["head_symbol"].as_str().unwrap());
            assert_eq!(around, parent, "{head}");
            let n: u64 = wanted.iter().map(|(_, n)| n).sum();
            let sum: u64 = wanted.iter().map(|(trips, n)| trips * n).sum();
            assert_eq!((number(&row["n"]), number(&row["rounds"])), (n, sum), "{head}");
            assert!((row["mean"].as_f64().unwrap() - sum as f64 / n as f64).abs() < 1e-9);
            assert_eq!((&row["mean_low"], &row["exact"]), (&Value::Null, &true.into()));
            assert_eq!(number(&row["min"]), wanted[0].0, "{head}");
            assert_eq!(number(&row["max"]), wanted.last().unwrap().0, "{head}");
            assert_eq!(
                (number(&row["not_seen_to_end"]), &row["max_is_at_least"]),
                (0, &false.into())
            );
            // ptrace has no cycles: unknown is not zero.
            assert!(row["cycles_p50"].is_null() && number(&row["cycles_n"]) == 0);
            let tested = head.starts_with('t') || head.starts_with('r') || head == "cont_h";
            assert_eq!(row["tested_at_head"], tested, "{head}");
            assert_eq!(row["makes_calls"], head == "calls_h" || head == "main_h", "{head}");
        }
    }
}

#[test]
fn every_back_edge_is_listed() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = record(dir.path(), &program, &["-c", "31"]) else { return };
    let rows = loops(&file);
    let back = |head: &str| -> Vec<(u64, u64)> {
        let row = rows.iter().find(|row| row["head_symbol"] == head).unwrap();
        let edges = row["back_edges"].as_array().unwrap().iter();
        let addr = |edge: &Value| {
            u64::from_str_radix(edge["from"].as_str().unwrap().trim_start_matches("0x"), 16)
        };
        edges.map(|edge| (addr(edge).unwrap(), number(&edge["count"]))).collect()
    };
    // 7, 5, 3, 1 go on in the middle, 6, 4, 2, 0 at the end.
    assert_eq!(back("cont_h"), [(program.at("cont_c"), 12), (program.at("cont_b"), 12)]);
    assert_eq!(back("b33_h"), [(program.at("b33_b"), 96)]);
    // Never taken: known out of the code alone.
    assert_eq!(back("b1_h"), [(program.at("b1_b"), 0)]);
    // The test below the body is where control comes in: it is fallen into.
    let turned = rows.iter().find(|row| row["head_symbol"] == "r7_h").unwrap();
    assert_eq!((back("r7_h"), number(&turned["falls_back"])), (vec![], 21));
    // The branch to before it is the one to look at.
    let from = &turned["falls_from"];
    assert_eq!(from.as_array().unwrap().len(), 1);
    assert_eq!(from[0]["from"], format!("{:#x}", program.at("r7_b")));
    assert_eq!(from[0]["count"], 21);
    let table = text(&["report", "--view", "loops", "--limit", "0", "-i", &file]);
    let row = table.lines().find(|line| line.contains("r7_h+0x0 <-")).unwrap();
    assert!(row.contains("r7_h+0x0 <- falls in after r7_b+0x0 (tested at the head)"), "{row}");
    assert!(!table.contains("95%"), "the truth has no interval");
    // The page says the same.
    let html = dir.path().join("page.html");
    text(&["report", "--html", html.to_str().unwrap(), "-i", &file]);
    let page = std::fs::read_to_string(&html).unwrap();
    let ends = ">r7_h+0x0</td><td class=\"code\">falls in after r7_b+0x0 (tested at the head)</td>";
    assert!(page.contains(ends));
    assert!(page.contains("trip counts are the truth"));
}

/// 80 columns keep the entries, their trips and the mean, which explain each other.
#[test]
fn loops_on_a_narrow_terminal() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = record(dir.path(), &program, &["-c", "31"]) else { return };
    let command = format!("stty rows 40 cols 80; {PROGRAM} report --view loops -n 0 -i {file}");
    let mut script = alone(Command::new("script"));
    let out = script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").env("PAGER", "cat");
    let Ok(out) = out.output() else { return skipped("no script(1) to make a terminal") };
    let printed = String::from_utf8(out.stdout).unwrap();
    let table: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split_whitespace().collect()).collect();
    let heading = table.iter().find(|line| line.first() == Some(&"rank")).unwrap();
    let column = |name: &str| heading.iter().position(|heading| *heading == name).unwrap();
    let row = table.iter().find(|line| line.iter().any(|cell| cell.contains("b33_h"))).unwrap();
    // Three entries of 33 trips.
    let cells = ["entries", "trips", "mean"].map(|name| row[column(name)]);
    assert_eq!(cells, ["3", "99", "33.00"], "{printed}");
}

/// Without symbols and code bytes the types that were recorded are enough, and
/// without these the addresses.
#[test]
fn loops_without_code_bytes() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = record(dir.path(), &program, &["-c", "31"]) else { return };
    let script = text(&["script", "-i", &file]);
    let path = dir.path().join("stacks.txt");
    std::fs::write(&path, script).unwrap();
    let rows = loops(path.to_str().unwrap());
    let at = |label: &str| format!("{:#x}", program.at(label));
    for head in ["b2_h", "b33_h", "b7_h"] {
        let row = rows.iter().find(|row| row["head"] == *at(head)).unwrap();
        assert_eq!((&row["exact"], &row["head_symbol"]), (&false.into(), &Value::Null));
        assert!(row["back_edges"][0]["from"] == *at(&head.replace("_h", "_b")), "{row}");
    }
    assert_eq!(rows.last().unwrap()["complete"], false);
}

/// More branches between two readings than the ring holds.
#[test]
fn samples_have_intervals_and_bounds() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = record(dir.path(), &program, &["-c", "61"]) else { return };
    let rows = loops(&file);
    assert_eq!(rows.last().unwrap()["complete"], false);
    // 32 of every 61 branches: no entry of 1,000 rounds is seen whole.
    let row = rows.iter().find(|row| row["head_symbol"] == "b1000_h").unwrap();
    assert_eq!((number(&row["n"]), &row["exact"]), (0, &false.into()));
    assert_eq!(row["max_is_at_least"], true);
    assert!(number(&row["max"]) >= 30 && number(&row["max"]) <= 1000, "{row}");
    let (low, high) = (row["mean_low"].as_f64().unwrap(), row["mean_high"].as_f64());
    assert!(low > 50.0 && low < 1000.0, "{row}");
    assert!(high.is_none_or(|high| high > 1000.0), "{row}");
    let line = text(&["report", "--view", "loops", "-i", &file]);
    let line = line.lines().find(|line| line.contains("b1000_h")).unwrap().to_owned();
    assert!(line.contains(">= "), "{line}");
}

/// Cycles from back edge to back edge.
#[test]
fn cycles_of_a_round() {
    let dir = tempfile::tempdir().unwrap();
    // Two branches a round, 0x20 -> 0x28 and 0x30 -> 0x10 back: 3 + 4 cycles,
    // in the last round 3 + 9. Newest first.
    let stack = " 0x30/0x10/P/-/-/9/COND 0x20/0x28/P/-/-/3/COND 0x30/0x10/P/-/-/4/COND \
                 0x20/0x28/P/-/-/3/COND 0x30/0x10/P/-/-/4/COND 0x20/0x28/P/-/-/3/COND\n";
    let path = dir.path().join("stacks.txt");
    std::fs::write(&path, stack.repeat(20)).unwrap();
    let rows = loops(path.to_str().unwrap());
    let row = &rows[0];
    assert_eq!((&row["head"], number(&row["cycles_n"])), (&"0x10".into(), 40));
    let keys = ["cycles_min", "cycles_p50", "cycles_p90", "cycles_max"];
    assert_eq!(keys.map(|key| number(&row[key])), [7, 7, 12, 12]);
    // Nobody saw an exit: the mean has a lower end and nothing else.
    assert!(row["mean"].is_null() && row["mean_high"].is_null());
    assert!(row["mean_low"].as_f64().unwrap() > 1.0, "{row}");
    // The same from a pipe, which cannot be read twice.
    let piped = ["report", "--view", "loops", "--json", "-i", "-"];
    let piped = printed(&lbr_with_input(&piped, std::fs::read(&path).unwrap()));
    assert_eq!(piped.lines().next().unwrap(), row.to_string());
}

/// Stacks of stacks.S as flame graphs have them, with the branches taken
/// there, by hand.
fn true_stacks() -> BTreeMap<String, u64> {
    let mut stacks: BTreeMap<String, u64> = [
        // The call of main.
        ("", 1),
        // Six calls, one return.
        (";main", 7),
        // Twice: two calls and a return; two returns.
        (";main;work", 6),
        (";main;work;leaf", 4),
        // The jump to target, and what target does in its place.
        (";main;tail", 1),
        (";main;target", 2),
        (";main;target;leaf", 1),
        // The call of thrower; after the longjmp the call of leaf, the return.
        (";main;jumps", 3),
        (";main;jumps;thrower", 1),
        (";main;jumps;thrower;raise", 1),
        (";main;jumps;leaf", 1),
        // The call that is none, a call, a return.
        (";main;zero", 3),
        (";main;zero;leaf", 1),
    ]
    .map(|(path, n)| (format!("_start{path}"), n))
    .into();
    // 40 frames call and return; the innermost jumps, calls leaf, returns.
    for depth in 1..=41 {
        let path = format!("_start;main{}", ";deep".repeat(depth));
        stacks.insert(path, if depth <= 40 { 2 } else { 3 });
    }
    stacks.insert(format!("_start;main{};leaf", ";deep".repeat(41)), 1);
    stacks
}

fn folded(args: &[&str]) -> BTreeMap<String, u64> {
    let text = text(&[&["report", "--view", "callgraph", "--folded"], args].concat());
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(path, n)| (path.to_owned(), n.parse().unwrap())).collect()
}

#[test]
fn replayed_calls_are_the_true_stacks() {
    let Some(program) = build("stacks.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    for count in ["31", "5"] {
        let Some(file) = record(dir.path(), &program, &["-c", count]) else { return };
        assert_eq!(folded(&["-i", &file]), true_stacks(), "-c {count}");
        let rows = rows(&["report", "--view", "callgraph", "--json", "-i", &file]);
        let quality = rows.last().unwrap();
        assert_eq!((&quality["unit"], &quality["complete"]), (&"branches".into(), &true.into()));
        let odd =
            ["tail_calls", "unwound_by_longjmp", "returns_without_call", "returns_to_no_call"];
        assert_eq!(odd.map(|key| number(&quality[key])), [1, 2, 0, 0]);
        let function = |name: &str| {
            let row = rows.iter().find(|row| row["kind"] == "function" && row["function"] == name);
            ["total", "self", "calls"].map(|key| number(&row.unwrap()[key]))
        };
        // A recursion counts once in its total.
        assert_eq!(function("deep"), [84, 83, 41]);
        assert_eq!(function("leaf"), [8, 8, 8]);
        assert_eq!(function("main"), [115, 7, 1]);
    }
    // Calls and returns alone say the same of who called whom.
    let calls = ["-c", "31", "-j", "any_call,any_ret,u"];
    let Some(file) = record(dir.path(), &program, &calls) else { return };
    let found = folded(&["-i", &file]);
    let count = |path: &str| found.get(&format!("_start{path}")).copied();
    let counts = ["", ";main", ";main;work", ";main;work;leaf"].map(count);
    assert_eq!(counts, [Some(1), Some(7), Some(6), Some(4)]);
    for depth in 1..=41 {
        // The innermost does not show its jump.
        assert_eq!(count(&format!(";main{}", ";deep".repeat(depth))), Some(2), "{depth}");
    }
    // Without jumps the tail call is invisible.
    assert_eq!((count(";main;tail"), count(";main;target")), (Some(2), None));
}

/// The tree from callers to callees, and the other way round.
#[test]
fn trees() {
    let Some(program) = build("stacks.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = record(dir.path(), &program, &["-c", "31"]) else { return };
    let tree = |options: &[&str]| -> Vec<String> {
        let base = ["report", "--view", "callgraph", "-i", &file];
        let text = text(&[&base, options].concat());
        let lines = text.lines().skip_while(|line| !line.contains("`--") && !line.contains("|--"));
        lines.map(|line| line.trim_end().to_owned()).collect()
    };
    let down = tree(&[]);
    assert_eq!(down[0], "100.00%  `-- _start (self 0.86%)");
    assert_eq!(down[1], " 99.14%      `-- main (self 6.03%)");
    // 4 of 116 branches in the leaf below work.
    assert!(down.contains(&"  3.45%          |   `-- leaf".to_owned()), "{down:#?}");
    let up = tree(&["--callee"]);
    let leaf = up.iter().position(|line| line.contains("-- leaf")).unwrap();
    assert_eq!(up[leaf], "  6.90%  |-- leaf (self 0.00%)".replace(" (self 0.00%)", ""));
    assert_eq!(up[leaf + 1].trim_start(), "3.45%  |   |-- work");
}

/// Call-stack mode: the same program, with what hardware cannot know.
#[test]
fn call_stacks() {
    let Some(program) = build("stacks.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(truth) = record(dir.path(), &program, &["-c", "31"]) else { return };
    // A sample after each call and return.
    let Some(file) = record(dir.path(), &program, &["-j", "stack,u", "-c", "1"]) else { return };
    let found = folded(&["-i", &file]);
    // Until the ring overflows everything is as it was: after the call of main
    // and two returns from work; after two calls of work and four returns to it.
    let start = |path: &str| found.get(&format!("_start;main{path}")).copied();
    assert_eq!((start(""), start(";work"), start(";work;leaf")), (Some(3), Some(6), Some(4)));
    for depth in 1..=30 {
        // On the way down; on the way up the outermost records are gone.
        assert_eq!(start(&";deep".repeat(depth)), Some(1), "{depth}");
    }
    assert!(found.keys().any(|path| path.starts_with("[callers missing];deep")));
    // The tail call's record stays in the place of target's: a documented limit.
    let score = |file: &str, options: &[&str]| {
        let base = ["report", "--view", "callgraph", "--json", "-i", file, "--truth", &truth];
        let rows = rows(&[&base, options].concat());
        let quality = rows.last().unwrap().clone();
        assert_eq!(quality["unit"], "stacks");
        (quality["score"].as_f64().unwrap(), quality)
    };
    let (plain, quality) = score(&file, &[]);
    // 43 calls are open at most, 32 records: those of the last 11 calls down,
    // and of the leaf's return.
    assert_eq!(number(&quality["truncated"]), 12);
    let (stitched, quality) = score(&file, &["--stitch"]);
    assert!(number(&quality["stitched_whole"]) > 12, "{quality}");
    assert!(plain < 0.5 && stitched > plain + 0.25, "{plain} {stitched}");
    // The truth agrees with itself.
    let (same, _) = {
        let base = ["report", "--view", "callgraph", "--json", "-i", &truth, "--truth", &truth];
        let rows = rows(&base);
        (rows.last().unwrap()["score"].as_f64().unwrap(), ())
    };
    assert!((same - 1.0).abs() < 1e-9);
}

#[test]
fn paths_of_known_loops() {
    let Some(program) = build("loops.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(file) = record(dir.path(), &program, &["-c", "31"]) else { return };
    let chains = |options: &[&str]| {
        rows(&[&["report", "--view", "paths", "--json", "-i", &file], options].concat())
    };
    let rows = chains(&[]);
    let taken = number(&rows.last().unwrap()["branches"]);
    assert_eq!(rows.last().unwrap()["complete"], true);
    let at = |label: &str| format!("{:#x}", program.at(label));
    // 999 times round each of three times.
    let first = &rows[0];
    assert_eq!(
        (&first["links"][0]["from"], &first["ends"]),
        (&at("b1000_b").into(), &"round".into())
    );
    assert_eq!((number(&first["branches"]), number(&first["whole"])), (2997, 2997));
    assert_eq!(number(&first["links"][0]["entered"]), 3);
    assert!((first["share"].as_f64().unwrap() - 2997.0 / taken as f64).abs() < 1e-9);
    // The loop with an early exit: 60 rounds begin, 57 end at the bottom.
    let early = rows.iter().find(|row| row["links"][1]["from"] == *at("early_b")).unwrap();
    assert_eq!((number(&early["length"]), number(&early["whole"])), (2, 57));
    assert_eq!(number(&early["links"][0]["left"]), 3);
    // Every branch is in one chain: shares add up.
    let all: u64 =
        rows.iter().filter(|row| row["view"] == "paths").map(|row| number(&row["branches"])).sum();
    assert_eq!(all, taken);
    let last = rows[rows.len() - 2]["cumulative_share"].as_f64().unwrap();
    assert!((last - 1.0).abs() < 1e-9);
    // The three targets of the indirect jump follow 9, 9 and 9 times: 27 rounds
    // less the first of each entry come after ind_b.
    let ends = |label: &str| {
        let leads = |row: &&Value| {
            let links = row["links"].as_array().into_iter().flatten();
            links.last().is_some_and(|link| link["from"] == *at(label))
        };
        rows.iter().find(leads).map(|row| row["ends"].as_str().unwrap().to_owned())
    };
    assert_eq!(ends("ind_b").as_deref(), Some("splits"));
    assert_eq!(ends("calls_h").as_deref(), Some("call"));
}

/// Real recordings hold interrupts that return into the middle of loops, and
/// no types.
#[test]
fn a_real_recording() {
    let Some(corpus) = crate::support::corpus::corpus() else { return };
    let file = corpus.join("autofdo/perfdata/propeller_sample_1.perfdata1");
    let file = file.to_str().unwrap();
    let rows = loops(file);
    // The program is one loop around a function; its start and end were not recorded.
    let row = &rows[0];
    assert_eq!((&row["depth"], &row["types_unknown"]), (&1.into(), &true.into()));
    assert!(number(&row["rounds"]) > 10_000 && row["mean_high"].is_null(), "{row}");
    assert_eq!(row["several_entrances"], false, "{row}");
    let rows = crate::paths::rows(&["report", "--view", "callgraph", "--json", "-i", file]);
    let quality = rows.last().unwrap();
    let unknown = number(&quality["types_unknown"]);
    assert!(unknown > 110_000 && unknown <= number(&quality["branches"]), "{quality}");
}

#[test]
fn options_of_other_views_are_refused() {
    for args in [
        &["report", "--folded"][..],
        &["report", "--view", "loops", "--stitch"],
        &["report", "--view", "loops", "--sort", "cycles"],
    ] {
        assert_eq!(lbr(args).status.code(), Some(2), "{args:?}");
    }
}
