//! `lbr hist` on recordings with known cycles, in every output format.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use object::{Object, ObjectSegment, SegmentFlags};
use profile::note::Source;
use serde_json::Value;

use crate::drawn::{HUMPS, Run, humps, meta, record};
use crate::support::lbr::command;
use crate::support::programs;

const ENTRY: u64 = 0x40_1000;
const EXIT: u64 = 0x40_1030;
const OTHER_EXIT: u64 = 0x40_1044;

fn lbr(dir: &Path, locale: &str, args: &[&str]) -> Output {
    command(&["hist"]).args(args).current_dir(dir).env("LC_ALL", locale).output().unwrap()
}

fn text(dir: &Path, args: &[&str]) -> String {
    let out = lbr(dir, "C.UTF-8", args);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// 740 runs in two peaks, three of them without a count, two saturated.
fn bimodal() -> Vec<Run> {
    let mut runs = humps(ENTRY, EXIT, 0);
    runs.extend([(ENTRY, EXIT, 0), (ENTRY, EXIT, 0), (ENTRY, EXIT, 0)]);
    runs.extend([(ENTRY, EXIT, 65_535), (ENTRY, EXIT, 65_535)]);
    runs
}

fn recorded(name: &str, source: Source, runs: &[Run]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    record(&dir.path().join(name), meta(source), None, runs);
    dir
}

const N: u64 = 742;

#[test]
fn two_humps_in_text() {
    let dir = recorded("perf.data", Source::Software, &bimodal());
    let block = format!("{ENTRY:#x}");
    let drawn = text(dir.path(), &["--block", &block]);
    assert!(drawn.contains("n 742, saturated 2, dropped 3, modes 12, 40\n"), "{drawn}");
    assert!(drawn.contains("modelled, not measured"), "{drawn}");
    // Rows: cycles, runs, share, bar; the gap between the peaks is one line.
    let rows: Vec<Vec<&str>> =
        drawn.lines().map(|line| line.split_whitespace().collect()).collect();
    let bar = |cycles: u32| {
        let row = rows.iter().find(|row| row.first() == Some(&cycles.to_string().as_str()));
        let row = row.unwrap_or_else(|| panic!("no row {cycles}: {drawn}"));
        let runs: u64 = row[1].parse().unwrap();
        let blocks = row.get(3).map_or(0, |bar| bar.chars().filter(|c| *c == '█').count());
        (runs, blocks)
    };
    for (cycles, n) in HUMPS {
        assert_eq!(bar(cycles).0, n, "{drawn}");
    }
    assert!(bar(12).1 > 2 * bar(10).1 && bar(12).1 > bar(14).1, "{drawn}");
    assert!(bar(40).1 > bar(38).1 && bar(12).1.abs_diff(2 * bar(40).1) <= 2, "{drawn}");
    let marked: Vec<&str> =
        drawn.lines().filter(|line| line.contains("◂ mode")).map(str::trim).collect();
    assert_eq!(marked.len(), 2, "{drawn}");
    assert!(marked[0].starts_with("12 ") && marked[1].starts_with("40 "), "{drawn}");
    assert_eq!(drawn.lines().filter(|line| line.trim() == "⋮").count(), 1, "{drawn}");
    assert!(drawn.contains("saturated"), "{drawn}");

    // Only ASCII if the locale has no more; and no line is wider than the terminal.
    let out = lbr(dir.path(), "C", &["--block", &block]);
    assert!(out.stdout.is_ascii());
    assert!(String::from_utf8(out.stdout).unwrap().contains("< mode 40"));
    assert!(drawn.lines().all(|line| line.chars().count() <= 100), "{drawn}");
}

/// The objects of a command's output.
fn json(dir: &Path, args: &[&str]) -> Vec<Value> {
    let args = [args, &["--json"]].concat();
    text(dir, &args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn two_humps_in_json() {
    let dir = recorded("perf.data", Source::Unsaid, &bimodal());
    let objects = json(dir.path(), &["--block", "0x401000"]);
    let [block, quality] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!((&block["view"], &quality["view"]), (&"hist".into(), &"quality".into()));
    assert_eq!(block["entry"], "0x401000");
    assert_eq!(block["exit"], "0x401030");
    assert_eq!(block["modes"], serde_json::json!([12, 40]));
    for (key, value) in [("n", N), ("count", N + 3), ("saturated", 2), ("dropped", 3)] {
        assert_eq!(block[key], value, "{key}");
    }
    assert_eq!(block["software"], false);
    let mut truth: BTreeMap<u64, u64> = HUMPS.iter().map(|&(c, n)| (u64::from(c), n)).collect();
    let bins: BTreeMap<u64, u64> = block["bins"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bin| (bin["first"].as_u64().unwrap(), bin["runs"].as_f64().unwrap() as u64))
        .filter(|(_, runs)| *runs > 0)
        .collect();
    assert_eq!((block["bin_width"].as_u64(), &bins), (Some(1), &truth));
    truth.insert(65_535, 2);
    let distribution: BTreeMap<u64, u64> = block["distribution"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| (of["cycles"].as_u64().unwrap(), of["samples"].as_u64().unwrap()))
        .collect();
    assert_eq!(distribution, truth);
}

/// Attributes of the elements of a kind.
fn elements<'a>(svg: &'a str, kind: &str) -> Vec<BTreeMap<&'a str, &'a str>> {
    let open = format!("<{kind} ");
    svg.split(&open)
        .skip(1)
        .map(|rest| {
            let tag = rest.split('>').next().unwrap();
            let parts: Vec<&str> = tag.split('"').collect();
            parts
                .chunks_exact(2)
                .map(|pair| (pair[0].trim().trim_end_matches('='), pair[1]))
                .collect()
        })
        .collect()
}

const BLUE: &str = "#0072B2";

/// Bars in the colour of the first series: (left, height), without the colour sample of the legend,
/// which is the topmost.
fn bars(svg: &str) -> Vec<(i64, i64)> {
    let mut bars: Vec<(i64, i64, i64)> = elements(svg, "rect")
        .iter()
        .filter(|rect| rect.get("fill") == Some(&BLUE))
        .map(|rect| {
            let number = |key: &str| rect[key].parse::<f64>().unwrap() as i64;
            (number("y"), number("x"), number("height"))
        })
        .collect();
    bars.sort_unstable();
    let mut bars: Vec<(i64, i64)> = bars.into_iter().skip(1).map(|(_, x, h)| (x, h)).collect();
    bars.sort_unstable();
    bars
}

#[test]
fn two_humps_in_svg() {
    let dir = recorded("perf.data", Source::Software, &bimodal());
    text(dir.path(), &["--block", "0x401000", "-o", "hist.svg"]);
    let svg = std::fs::read_to_string(dir.path().join("hist.svg")).unwrap();
    for words in [
        "n 742, saturated 2, dropped 3, modes 12, 40",
        ">mode 12<",
        ">mode 40<",
        "core cycles",
        "bins of 1 cycle",
        "modelled, not measured",
    ] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    let bars = bars(&svg);
    assert_eq!(bars.len(), HUMPS.len(), "{bars:?}");
    // Heights are proportional to the runs.
    let highest = bars.iter().map(|(_, height)| *height).max().unwrap() as f64;
    for ((_, height), (cycles, n)) in bars.iter().zip(HUMPS) {
        let expected = highest * n as f64 / 200.0;
        assert!((*height as f64 - expected).abs() <= 1.5, "{cycles}: {height}, not {expected}");
    }
    // One gap is wider than all others: two peaks.
    let gaps: Vec<i64> = bars.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let wide = gaps.iter().filter(|gap| **gap > 5 * gaps[0]).count();
    assert_eq!((wide, gaps[4] > 5 * gaps[0]), (1, true), "{gaps:?}");
}

#[test]
fn two_humps_in_html() {
    let dir = recorded("perf.data", Source::Software, &bimodal());
    text(dir.path(), &["--block", "0x401000", "-o", "hist.html"]);
    let page = std::fs::read_to_string(dir.path().join("hist.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>"));
    assert_eq!(bars(&page).len(), HUMPS.len());
    assert!(page.contains("modes 12, 40") && page.contains(">mode 40<"));
    assert!(!page.contains("src=") && !page.contains("@import"));
}

#[test]
fn exits_are_listed_and_drawn_over_each_other() {
    let mut runs = humps(ENTRY, EXIT, 0);
    runs.extend((0..50).map(|_| (ENTRY, OTHER_EXIT, 25)));
    let dir = recorded("perf.data", Source::Unsaid, &runs);
    let drawn = text(dir.path(), &["--block", "0x401000"]);
    assert!(drawn.contains(" 740  93.67%  740      13  0x401000 .. 0x401030\n"), "{drawn}");
    assert!(drawn.contains("  50   6.33%   50      25  0x401000 .. 0x401044\n"), "{drawn}");
    assert!(drawn.contains("█ to 0x401030: n 740,") && drawn.contains("▒ to 0x401044: n 50,"));
    assert!(drawn.contains("100.00%  ▒"), "of several the shares are drawn: {drawn}");
    let drawn = text(dir.path(), &["--block", "0x401000..0x401044"]);
    assert!(drawn.starts_with("0x401000 .. 0x401044\n"), "{drawn}");
    assert!(drawn.contains("n 50, saturated 0, dropped 0, mode 25\n"), "{drawn}");
    assert!(!drawn.contains("0x401030"), "{drawn}");
    let objects = json(dir.path(), &["--block", "0x401000"]);
    assert_eq!(objects.len(), 3);
    // An address inside.
    let out = lbr(dir.path(), "C", &["--block", "0x401010"]);
    assert!(said(&out).contains("no block begins at 0x401010: these run through it"));
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn two_recordings_over_each_other() {
    let dir = recorded("a.data", Source::Unsaid, &humps(ENTRY, EXIT, 0));
    let mut later = humps(ENTRY, EXIT, 5);
    later.extend([(ENTRY, EXIT, 17); 60]);
    record(&dir.path().join("b.data"), meta(Source::Unsaid), None, &later);
    let inputs = ["-i", "a.data", "-i", "b.data"];
    let objects = json(dir.path(), &[&inputs[..], &["--block", "0x401000"]].concat());
    let [a, b, quality, other] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!((&a["input"], &b["input"]), (&"a.data".into(), &"b.data".into()));
    assert_eq!((&a["n"], &b["n"]), (&740.into(), &800.into()));
    assert_eq!((&a["modes"][0], &b["modes"][0]), (&12.into(), &17.into()));
    assert_eq!(quality["inputs"], serde_json::json!(["a.data"]));
    assert_eq!(other["inputs"], serde_json::json!(["b.data"]));

    text(dir.path(), &[&inputs[..], &["--block", "0x401000", "-o", "two.svg"]].concat());
    let svg = std::fs::read_to_string(dir.path().join("two.svg")).unwrap();
    assert!(svg.contains("a.data: n 740") && svg.contains("b.data: n 800"), "{svg}");
    // The first is a solid line, the second is dashed and in another colour.
    let lines = elements(&svg, "polyline");
    let strokes: Vec<_> = lines.iter().map(|l| (l["stroke"], l["stroke-dasharray"])).collect();
    assert_eq!(strokes, [(BLUE, "none"), ("#D55E00", "9 4")]);
    assert!(svg.contains("share of the runs"));
}

#[test]
fn without_a_block_the_hottest_is_drawn_and_programs_get_all() {
    let mut runs = humps(ENTRY, EXIT, 0);
    runs.extend((0..50).map(|_| (ENTRY, OTHER_EXIT, 25)));
    let dir = recorded("perf.data", Source::Unsaid, &runs);
    let drawn = text(dir.path(), &[]);
    assert!(drawn.starts_with("0x401000 .. 0x401030\n") && drawn.contains("n 740,"), "{drawn}");
    let last = drawn.lines().last().unwrap();
    assert_eq!(last, "the program's hottest block; lbr report --view blocks lists others");
    assert_eq!(json(dir.path(), &[]).len(), 3, "two blocks and the quality");
    text(dir.path(), &["-o", "all.svg"]);
    let svg = std::fs::read_to_string(dir.path().join("all.svg")).unwrap();
    assert!(svg.contains("0x401000 .. 0x401030") && svg.contains("0x401000 .. 0x401044"));
}

#[test]
fn many_exits_are_not_all_drawn() {
    let runs: Vec<Run> =
        (0..9).flat_map(|exit| (0..20 - exit).map(move |_| (ENTRY, EXIT + 4 * exit, 10))).collect();
    let dir = recorded("perf.data", Source::Unsaid, &runs);
    let out = lbr(dir.path(), "C", &["--block", "0x401000"]);
    // 14, 13 and 12 runs remain.
    assert!(said(&out).contains("3 more, which ran 39 times, are not"), "{}", said(&out));
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("0x401000 .. ")).count(), 9, "{text}");
    assert_eq!(json(dir.path(), &["--block", "0x401000"]).len(), 10);
}

#[test]
fn refusals() {
    let dir = recorded("perf.data", Source::Software, &[(ENTRY, EXIT, 0), (ENTRY, EXIT, 0)]);
    let out = lbr(dir.path(), "C", &["--block", "0x401000"]);
    assert_eq!(out.status.code(), Some(5));
    assert!(said(&out).contains("no cycle counts: the software LBR"), "{}", said(&out));

    let dir = recorded("perf.data", Source::Unsaid, &[(ENTRY, EXIT, 7), (ENTRY, OTHER_EXIT, 0)]);
    let out = lbr(dir.path(), "C", &["--block", "0x401000..0x401044"]);
    assert_eq!(out.status.code(), Some(5));
    assert!(said(&out).contains("none of the runs"), "{}", said(&out));
    for (args, message) in [
        (&["--block", "0x500000"][..], "no block begins at 0x500000"),
        (&["--block", "0x401000..0x401234"], "its exits: 0x401030"),
        (&["--block", "nothing"], "function nothing"),
        (&["-o", "hist.gif"], ".svg or .html"),
    ] {
        let out = lbr(dir.path(), "C", args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", said(&out));
        assert!(said(&out).contains(message), "{args:?}: {}", said(&out));
    }
    let out = lbr(dir.path(), "C", &["-o", "no/such/folder.svg"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(said(&out).contains("no/such/folder.svg cannot be written"), "{}", said(&out));
}

/// By symbol and by line of a program with both.
#[test]
fn places() {
    let flags = [programs::BARE, &["-g"]].concat();
    let Some(program) = programs::build("outcomes.S", &flags) else { return };
    let bytes = std::fs::read(&program.path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let code = file
        .segments()
        .find(|s| matches!(s.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & 1 != 0))
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (top, bit, f1) = (program.at("top"), program.at("b_bit"), program.at("f1"));
    let mut runs = humps(top, bit, 0);
    runs.extend([(f1, program.at("b_f1"), 3); 8]);
    let mapped = (program.name(), code.address(), code.file_range().0);
    record(&dir.path().join("perf.data"), meta(Source::Unsaid), Some(mapped), &runs);
    let source = include_str!("../programs/outcomes.S");
    let line = 1 + source.lines().position(|line| line.starts_with("top:")).unwrap();
    let inside = format!("outcomes.S:{}", line + 1);
    let line = format!("outcomes.S:{line}");
    for place in ["top", "top+0", &format!("{top:#x}"), "top..b_bit", &line, &inside] {
        let drawn = text(dir.path(), &["--block", place]);
        assert!(drawn.contains("n 740, saturated 0, dropped 0, modes 12, 40"), "{place}: {drawn}");
        assert!(drawn.starts_with("top+0x0 .. b_bit+0x0\n"), "{place}: {drawn}");
    }
    let out = lbr(dir.path(), "C", &["--block", "outcomes.S:1"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
}
