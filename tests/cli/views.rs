//! `lbr report --view …` and `lbr lint`, on a program whose branches are all known because its
//! random numbers are.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::corpus::corpus;
use crate::support::lbr::{json_lines as lines, lbr, traced};
use crate::support::skip::{skipped, tool};

/// Labels of a program by name.
type Labels = HashMap<String, u64>;

/// Builds `tests/programs/outcomes.S`; `None`, with a message, without the tools.
fn build(dir: &Path) -> Option<(PathBuf, Labels)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/outcomes.S");
    let program = dir.join("program");
    let built = tool("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-o"])
        .args([&program, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        skipped("no C compiler (cc) to build outcomes.S");
        return None;
    }
    let Ok(symbols) = tool("nm").arg(&program).output() else {
        skipped("no nm to read the labels of outcomes.S");
        return None;
    };
    let labels = String::from_utf8(symbols.stdout).unwrap();
    let labels = labels.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let addr = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), addr))
    });
    Some((program, labels.collect()))
}

/// Records the program; `None`, with a message, if tracing is not permitted.
fn record(dir: &Path, program: &Path, count: &str) -> Option<String> {
    let file = dir.join("perf.data").to_str().unwrap().to_owned();
    let args = ["record", "--backend", "soft", "--source", "ptrace", "-c", count, "-o", &file];
    traced(&[&args[..], &["--", program.to_str().unwrap()]].concat())?;
    Some(file)
}

/// The program's behaviour, from its source alone.
#[derive(Default)]
struct Truth {
    /// (from, to) of taken branches.
    taken: BTreeMap<(&'static str, &'static str), u64>,
    not_taken: BTreeMap<&'static str, u64>,
    /// Basic blocks by first label and last label, between the first branch taken and the last.
    basics: BTreeMap<(&'static str, End), u64>,
}

/// The end of a basic block: a branch, or the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    At(&'static str),
    Before(&'static str),
}

const CASES: [&str; 4] = ["case0", "case1", "case2", "case3"];

impl Truth {
    fn take(&mut self, from: &'static str, to: &'static str) {
        *self.taken.entry((from, to)).or_default() += 1;
    }

    fn pass(&mut self, from: &'static str) {
        *self.not_taken.entry(from).or_default() += 1;
    }

    fn block(&mut self, start: &'static str, end: End) {
        *self.basics.entry((start, end)).or_default() += 1;
    }

    fn of_the_program() -> Truth {
        let mut truth = Truth::default();
        let mut x = 12345u32;
        truth.block("_start", End::At("b_start"));
        truth.take("b_start", "top");
        for left in (0..1000).rev() {
            x = x.wrapping_mul(1_103_515_245).wrapping_add(12345);
            truth.block("top", End::At("b_bit"));
            if x & 0x10000 == 0 {
                truth.take("b_bit", "skip");
            } else {
                truth.pass("b_bit");
                truth.block("l_bit", End::Before("skip"));
            }
            truth.block("skip", End::At("b_switch"));
            let case = (x >> 20 & 3) as usize;
            truth.take("b_switch", CASES[case]);
            match case {
                0 => {
                    truth.block("case0", End::At("b_case0"));
                    truth.take("b_case0", "join");
                }
                1 => {
                    truth.block("case1", End::At("b_case1"));
                    truth.take("b_case1", "join");
                }
                2 => {
                    truth.block("case2", End::Before("case3"));
                    truth.block("case3", End::Before("join"));
                }
                _ => truth.block("case3", End::Before("join")),
            }
            truth.block("join", End::At("b_call"));
            if x >> 24 & 1 == 0 {
                truth.take("b_call", "f0");
                truth.block("f0", End::At("b_ret0"));
                truth.take("b_ret0", "back");
            } else {
                truth.take("b_call", "f1");
                truth.block("f1", End::At("b_f1"));
                if x & 0x2000 != 0 {
                    truth.take("b_f1", "f1_end");
                } else {
                    truth.pass("b_f1");
                    truth.block("l_f1", End::Before("f1_end"));
                }
                truth.block("f1_end", End::At("b_ret1"));
                truth.take("b_ret1", "back");
            }
            truth.block("back", End::At("b_loop"));
            if left > 0 {
                truth.take("b_loop", "top");
            } else {
                truth.pass("b_loop");
                truth.block("l_exit", End::At("b_exit"));
            }
        }
        truth
    }
}

fn addr(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok()
}

fn view(name: &str, file: &str) -> Vec<Value> {
    lines(&lbr(&["report", "--view", name, "--json", "-i", file]))
}

/// Stacks of 31 and of 7: most blocks at their ends are between two stacks.
#[test]
fn complete_recordings_equal_the_truth() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, labels)) = build(dir.path()) else { return };
    let truth = Truth::of_the_program();
    let at = |label: &str| *labels.get(label).unwrap();
    for count in ["31", "7"] {
        let Some(file) = record(dir.path(), &program, count) else { return };

        let taken: BTreeMap<(u64, u64), u64> =
            truth.taken.iter().map(|((from, to), n)| ((at(from), at(to)), *n)).collect();
        let hot: BTreeMap<(u64, u64), u64> = view("hot", &file)
            .iter()
            .filter(|row| row["view"] == "hot")
            .map(|row| {
                let ends = (addr(&row["from"]).unwrap(), addr(&row["to"]).unwrap());
                (ends, row["count"].as_u64().unwrap())
            })
            .collect();
        assert_eq!(hot, taken, "-c {count}");

        let rows = view("outcomes", &file);
        assert_eq!(rows.last().unwrap()["complete"], true);
        let of_kind = |kind: &'static str| rows.iter().filter(move |row| row["kind"] == kind);
        let conditional: BTreeMap<u64, (u64, u64)> = of_kind("conditional")
            .map(|row| {
                assert!(row["low"].is_null() && row["high"].is_null(), "{row}");
                let outcome = (row["taken"].as_u64().unwrap(), row["not_taken"].as_u64().unwrap());
                (addr(&row["from"]).unwrap(), outcome)
            })
            .collect();
        let expected = [("b_bit", "skip"), ("b_f1", "f1_end"), ("b_loop", "top")];
        let expected: BTreeMap<u64, (u64, u64)> = expected
            .into_iter()
            .map(|(from, to)| {
                let passed = truth.not_taken.get(from).copied().unwrap_or(0);
                (at(from), (truth.taken[&(from, to)], passed))
            })
            .collect();
        assert_eq!(conditional, expected, "-c {count}");

        let indirect: BTreeMap<(u64, u64), u64> = of_kind("indirect")
            .flat_map(|row| {
                let from = addr(&row["from"]).unwrap();
                let targets = row["targets"].as_array().unwrap().iter();
                targets.map(move |target| {
                    ((from, addr(&target["to"]).unwrap()), target["count"].as_u64().unwrap())
                })
            })
            .collect();
        let jumps = [at("b_switch"), at("b_call")];
        let expected: BTreeMap<(u64, u64), u64> = taken
            .iter()
            .filter(|((from, _), _)| jumps.contains(from))
            .map(|(k, n)| (*k, *n))
            .collect();
        assert_eq!(indirect, expected, "-c {count}");

        let rows = view("blocks", &file);
        let basics: BTreeMap<(u64, Option<u64>, Option<u64>), u64> = rows
            .iter()
            .filter(|row| row["kind"] == "basic_block")
            .map(|row| {
                let ends = (addr(&row["end"]), addr(&row["ends_before"]));
                ((addr(&row["start"]).unwrap(), ends.0, ends.1), row["count"].as_u64().unwrap())
            })
            .collect();
        let expected: BTreeMap<_, _> = truth
            .basics
            .iter()
            .map(|((start, end), n)| {
                let ends = match end {
                    End::At(label) => (Some(at(label)), None),
                    End::Before(label) => (None, Some(at(label))),
                };
                ((at(start), ends.0, ends.1), *n)
            })
            .collect();
        assert_eq!(basics, expected, "-c {count}");
        // Each taken branch ends a block, and the exit ends the last one.
        let all: u64 = taken.values().sum();
        let blocks = rows.iter().filter(|row| row["kind"] == "block");
        assert_eq!(blocks.map(|row| row["count"].as_u64().unwrap()).sum::<u64>(), all + 1);

        let predictions = view("mispredict", &file);
        for row in predictions.iter().filter(|row| row["view"] == "mispredict") {
            assert!(row["mispredicted"].is_null() && row["mispredict_rate"].is_null(), "{row}");
        }
        let out = lbr(&["lint", "--strict", "--json", "-i", &file]);
        assert_eq!(lines(&out).last().unwrap()["verdict"], "sound");
    }
}

/// Callgrind's counts: taken and executed by conditional branch, and jumps and calls by (from, to).
/// `None`, with a message, if it is missing.
#[allow(clippy::type_complexity, reason = "two maps that one file gives")]
fn callgrind(
    dir: &Path,
    program: &Path,
) -> Option<(BTreeMap<u64, (u64, u64)>, BTreeMap<(u64, u64), u64>)> {
    let file = dir.join("callgrind.out");
    let flags = ["dump-instr=yes", "collect-jumps=yes", "compress-pos=no", "compress-strings=no"];
    let ran = tool("valgrind")
        .args(["-q", "--tool=callgrind"])
        .args(flags.map(|flag| format!("--{flag}")))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .status();
    if !ran.is_ok_and(|status| status.success()) {
        skipped("no valgrind with callgrind here");
        return None;
    }
    let text = std::fs::read_to_string(file).unwrap();
    let (mut conditional, mut edges) = (BTreeMap::new(), BTreeMap::new());
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let mut lines = text.lines();
    // `jcnd=TAKEN/EXECUTED TO LINE` or `jump=N TO LINE` or `calls=N TO LINE`; the next line starts
    // with FROM.
    while let Some(line) = lines.next() {
        let Some((kind, rest)) = line.split_once('=') else { continue };
        if !["jcnd", "jump", "calls"].contains(&kind) {
            continue;
        }
        let what: Vec<&str> = rest.split(' ').collect();
        let from = hex(lines.next().unwrap().split(' ').next().unwrap());
        if let Some((taken, executed)) = what[0].split_once('/') {
            let sums = conditional.entry(from).or_insert((0, 0));
            sums.0 += taken.parse::<u64>().unwrap();
            sums.1 += executed.parse::<u64>().unwrap();
        } else {
            *edges.entry((from, hex(what[1]))).or_insert(0) += what[0].parse::<u64>().unwrap();
        }
    }
    Some((conditional, edges))
}

#[test]
fn callgrind_counts_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, _)) = build(dir.path()) else { return };
    let Some((conditional, edges)) = callgrind(dir.path(), &program) else { return };
    let Some(file) = record(dir.path(), &program, "31") else { return };
    let rows = view("outcomes", &file);
    let mut compared = 0;
    for row in rows.iter().filter(|row| row["kind"] == "conditional") {
        let from = addr(&row["from"]).unwrap();
        let (taken, not_taken) =
            (row["taken"].as_u64().unwrap(), row["not_taken"].as_u64().unwrap());
        let (their_taken, executed) = conditional[&from];
        assert_eq!((taken, not_taken), (their_taken, executed - their_taken), "{row}");
        compared += 1;
    }
    for row in rows.iter().filter(|row| row["kind"] == "indirect") {
        let from = addr(&row["from"]).unwrap();
        for target in row["targets"].as_array().unwrap() {
            let theirs = edges[&(from, addr(&target["to"]).unwrap())];
            assert_eq!(target["count"].as_u64().unwrap(), theirs, "{row}");
            compared += 1;
        }
    }
    assert_eq!(compared, 3 + 4 + 2);
}

/// More branches between two reads than the ring holds: a sample, in which no block crosses a gap.
#[test]
fn blocks_do_not_span_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let Some((program, labels)) = build(dir.path()) else { return };
    let Some(file) = record(dir.path(), &program, "75") else { return };
    let truth = Truth::of_the_program();
    let at = |label: &str| *labels.get(label).unwrap();
    let rows = view("blocks", &file);
    let quality = rows.last().unwrap();
    assert_eq!(quality["complete"], false);
    let number = |key: &str| quality[key].as_u64().unwrap();
    // Each stack has one block less than branches; but the program takes 5,268 branches, so the
    // last 18 were read without a gap before them.
    assert_eq!(number("blocks"), number("branches") - number("samples") + 1);
    assert!(number("branches") < 3000, "{quality}");
    let mut seen = 0;
    for row in rows.iter().filter(|row| row["kind"] == "basic_block") {
        let (start, end) = (addr(&row["start"]).unwrap(), addr(&row["end"]));
        let before = addr(&row["ends_before"]);
        let known = truth.basics.iter().find(|((from, to), _)| {
            at(from) == start
                && match to {
                    End::At(label) => end == Some(at(label)),
                    End::Before(label) => before == Some(at(label)),
                }
        });
        let (_, ran) = known.unwrap_or_else(|| panic!("{row}"));
        assert!(row["count"].as_u64().unwrap() <= *ran, "{row}");
        seen += 1;
    }
    // A sample does not report how the program starts and ends.
    assert_eq!(seen, truth.basics.len() - 2);
    // Every share has an interval, and b_bit's contains the true value.
    let rows = view("outcomes", &file);
    let bit = rows.iter().find(|row| row["from_symbol"] == "b_bit").unwrap();
    let truth = truth.taken[&("b_bit", "skip")] as f64 / 1000.0;
    let (low, high) = (bit["low"].as_f64().unwrap(), bit["high"].as_f64().unwrap());
    assert!(low <= truth && truth <= high && high - low < 0.3, "{bit}");
}

/// Writes text; returns its path.
fn text(dir: &Path, text: &str) -> String {
    let path = dir.join("stacks.txt");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn table(args: &[&str]) -> Vec<String> {
    let out = lbr(args);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn never_seen_is_not_zero() {
    let dir = tempfile::tempdir().unwrap();
    // 0x30 mispredicted once of 40, 0x50 never of 40, 0x70 unknown.
    let stack = " 0x30/0x10/P/-/-/0 0x50/0x20/P/-/-/0 0x70/0x40/-/-/-/0\n";
    let stacks = stack.repeat(39) + &stack.replacen("/P/", "/M/", 1);
    let file = text(dir.path(), &stacks);
    let lines = table(&["report", "--view", "mispredict", "-i", &file]);
    assert!(lines[1].ends_with("; 95% intervals, by stack"), "{lines:?}");
    let rows: Vec<Vec<&str>> = lines[4..].iter().map(|line| words(line)).collect();
    assert_eq!(rows[0][..5], ["1", "1", "40", "40", "2.50%"]);
    assert_eq!(rows[1][..7], ["2", "0", "40", "40", "0%", "up", "to"]);
    assert_eq!(rows[2], ["3", "-", "-", "40", "-", "-", "-", "0x70"]);
    let rows = view("mispredict", &file);
    assert_eq!(rows[0]["mispredict_rate"], 0.025);
    let (low, high) = (rows[0]["low"].as_f64().unwrap(), rows[0]["high"].as_f64().unwrap());
    assert!(0.0 < low && low < 0.025 && 0.025 < high && high < 0.2, "{low} {high}");
    assert_eq!(rows[0]["never_seen_mispredicted"], false);
    assert!(rows[1]["mispredict_rate"].is_null());
    assert_eq!(rows[1]["never_seen_mispredicted"], true);
    assert!(rows[2]["never_seen_mispredicted"].is_null());
    // Below the minimum n the rate is absent.
    let few = ["report", "--view", "mispredict", "--json", "--min-n", "41", "-i", &file];
    let rows = lines_of(&few);
    assert!(rows[0]["mispredict_rate"].is_null() && rows[0]["high"].is_null());
    assert_eq!(rows[0]["mispredicted"], 1);
}

fn lines_of(args: &[&str]) -> Vec<Value> {
    lines(&lbr(args))
}

/// The table of the textbook: cycles, samples, rate.
#[test]
fn one_block_has_its_distribution() {
    let dir = tempfile::tempdir().unwrap();
    let one = |cycles: u32| format!(" 0x30/0x10/P/-/-/{cycles} 0x30/0x10/P/-/-/9\n");
    let file = text(dir.path(), &(one(4).repeat(6) + &one(7).repeat(3) + &one(65_535)));
    let args = ["report", "--view", "blocks", "--block", "0x10..0x30", "-i", &file];
    let lines = table(&args);
    assert_eq!(lines[4], "0x10 .. 0x30: ran 10 times, 10 of them with cycles, 1 saturated");
    assert_eq!(lines[5].trim(), "Cycles  Number of samples  Occurrence rate");
    let rows: Vec<Vec<&str>> = lines[6..].iter().map(|line| words(line)).collect();
    assert_eq!(rows, [["4", "6", "60.00%"], ["7", "3", "30.00%"], ["65535", "1", "10.00%"]]);
    let rows = view("blocks", &file);
    let block = &rows[0];
    assert_eq!((&block["entry"], &block["exit"]), (&"0x10".into(), &"0x30".into()));
    let numbers = ["count", "n", "min", "p50", "p90", "p99", "max", "saturated"];
    let numbers = numbers.map(|key| block[key].as_u64().unwrap());
    assert_eq!(numbers, [10, 10, 4, 4, 7, 65_535, 65_535, 1]);
    assert_eq!(block["distribution"][1], serde_json::json!({"cycles":7,"samples":3,"rate":0.3}));
    let missing = ["report", "--view", "blocks", "--block", "0x10..0x31", "-i", &file];
    assert_eq!(lbr(&missing).status.code(), Some(2));
    let hot = ["report", "--block", "0x10..0x30", "-i", &file];
    assert_eq!(lbr(&hot).status.code(), Some(2));
}

#[test]
fn lint_reports_findings() {
    let dir = tempfile::tempdir().unwrap();
    let file = text(dir.path(), &" 0x30/0x10/P/-/-/7 0x0/0x0/-/-/-/0\n".repeat(3));
    let lines = table(&["lint", "-i", &file]);
    assert_eq!(lines[0], format!("{file}: poor (3 samples, 6 entries)"));
    assert_eq!(lines[1..3], ["CPU not recorded", ""]);
    assert_eq!(lines[3], "error: zero_entries: 3 of 6 entries (50.00%)");
    assert!(lines[4].starts_with("  means: ") && lines[5].starts_with("  report: "));
    assert_eq!(lbr(&["lint", "--strict", "-i", &file]).status.code(), Some(5));
    let rows = lines_of(&["lint", "--json", "-i", &file]);
    assert_eq!((&rows[0]["id"], &rows[0]["count"]), (&"zero_entries".into(), &3.into()));
    assert_eq!(rows.last().unwrap()["verdict"], "poor");
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    assert_eq!(lbr(&["lint", "-i", &missing]).status.code(), Some(2));
}

#[test]
fn duplicates_of_a_real_recording() {
    let Some(corpus) = corpus() else { return };
    let file = corpus.join("autofdo/perfdata/test.lbr").to_str().unwrap().to_owned();
    let rows = lines_of(&["lint", "--json", "-i", &file]);
    let found = rows.iter().find(|row| row["id"] == "duplicated_newest").unwrap();
    assert_eq!(found["count"], 55);
}
