//! `--event`, `--comm`, `--pid`, `--tid`, `--cpu`, `--time`, `--dso`: which samples and rows count,
//! and how the others are reported.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use flate2::{Compression, write::GzEncoder};
use lbr_msr::record::{
    BranchEntry, BranchStack, Comm, Event, Head, Integrity, Label, Sample, Sink, Task,
};
use profile::note::Source;
use profile::perf_data::{Meta, Writer};
use serde_json::{Value, json};

use crate::drawn;
use crate::support::lbr::{command, done, lbr, rows as json_lines, stdout, text};
use crate::support::mapping::mapping;
use crate::support::skip::{skipped, tool};

/// The last object: the quality.
fn quality(args: &[&str]) -> Value {
    serde_json::from_str(done(args).lines().last().unwrap()).unwrap()
}

const SECOND: u64 = 1_000_000_000;
/// The mapped addresses of `/nowhere/prog` and `/nowhere/lib.so`.
const PROG: u64 = 0x5555_0000_0000;
const LIB: u64 = 0x7777_0000_0000;

fn branch(from: u64, to: u64) -> BranchEntry {
    BranchEntry {
        from,
        to,
        mispredicted: Some(from.is_multiple_of(3)),
        cycles: Some((from % 50) as u32 + 1),
        ..BranchEntry::default()
    }
}

/// A stack that joins to its thread's previous one.
fn stack(time: u64, (pid, tid): (u32, u32), cpu: u32, entries: Vec<BranchEntry>) -> Event {
    let integrity = Integrity {
        head: Head::Joined,
        cut: false,
        label: Label::Stream,
        truncated: false,
        underflow: false,
    };
    let ip = entries.first().map_or(0, |entry| entry.to);
    let period = entries.len() as u64;
    let stack = BranchStack { entries, integrity, moves: Vec::new() };
    Event::Sample(Sample { time, pid, tid, cpu, ip, period, arguments: None, stack })
}

/// Two processes, three threads, three names, two CPUs, eight seconds, two files: a program that
/// calls a library in a loop. Every stack has four branches: two in the program, two in the
/// library.
fn recording(folder: &Path) -> PathBuf {
    let path = folder.join("perf.data");
    // perf accepts no CPU if the file lacks the number of CPUs.
    let meta = Meta { nrcpus: Some((2, 2)), ..drawn::meta(Source::Software) };
    let mut writer = Writer::new(std::fs::File::create(&path).unwrap(), meta).unwrap();
    let map = |pid, path: &str, addr| mapping(pid, addr, 0x1000, 0, path);
    let comm = |time, pid, tid, comm: &str| {
        Event::Comm(Comm { time, pid, tid, comm: comm.to_owned(), exec: false })
    };
    let task = |pid, tid| Event::Fork(Task { time: 3, pid, tid, ppid: 100, ptid: 100 });
    let mut events = vec![
        comm(1, 100, 100, "main"),
        map(100, "/nowhere/prog", PROG),
        map(100, "/nowhere/lib.so", LIB),
        task(100, 101),
        task(200, 200),
        comm(4, 100, 101, "a worker"),
        comm(4, 200, 200, "child"),
    ];
    for at in 0..64u64 {
        // Of eight samples four are from main, two from the worker, two from the child.
        let who = [(100, 100), (100, 101), (100, 100), (200, 200)][at as usize % 4];
        let back = PROG + 0x40 + 8 * (at % 3);
        let entries = vec![
            branch(back, PROG + 0x10),
            branch(LIB + 0x30, PROG + 0x28),
            branch(LIB + 0x18, LIB + 0x20),
            branch(PROG + 0x20, LIB + 0x10),
        ];
        let time = SECOND + at * SECOND / 8 + at;
        events.push(stack(time, who, u32::from(at % 8 > 4), entries));
    }
    events.iter().for_each(|event| writer.event(event).unwrap());
    writer.finish_file().unwrap();
    path
}

/// The two ends of each branch of each line, lines in any order.
fn ends(text: &str) -> Vec<Vec<String>> {
    let ends = |entry: &str| entry.split('/').take(2).collect::<Vec<_>>().join(">");
    let mut lines: Vec<Vec<String>> =
        text.lines().map(|line| line.split_whitespace().map(ends).collect()).collect();
    lines.sort();
    lines
}

fn perf(args: &[&str], file: &Path) -> Option<String> {
    let out = tool("perf").args(args).arg("-i").arg(file).stdin(Stdio::null()).output();
    match out {
        Ok(out) if out.status.success() => Some(text(&out.stdout)),
        Ok(out) => panic!("perf {args:?}: {}", text(&out.stderr)),
        Err(_) => {
            skipped("no perf");
            None
        }
    }
}

/// Samples that perf's selections keep, and branches that its report counts.
#[test]
fn perf_selects_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let path = file.to_str().unwrap();
    let selections: [(&[&str], &[&str], usize); 16] = [
        (&[], &[], 64),
        (&["--comms", "main"], &["--comm", "main"], 32),
        (&["--comms", "child,a worker"], &["--comms", "child,a worker"], 32),
        (&["--pid", "100"], &["--pid", "100"], 48),
        (&["--pid", "200,100"], &["--pid", "200,100"], 64),
        (&["--tid", "101"], &["--tid", "101"], 16),
        (&["-C", "0"], &["-C", "0"], 40),
        (&["-C", "1"], &["--cpu", "1"], 24),
        (&["-C", "0-1"], &["-C", "0-1"], 64),
        // Both ends are samples: 1 s and 8 ns, 2 s and 8 ns.
        (&["--time", "2.000000008,3.000000016"], &["--time", "2.000000008,3.000000016"], 9),
        (&["--time", "2.000000009,3.000000015"], &["--time", "2.000000009,3.000000015"], 7),
        (&["--time", "5,"], &["--time", "5,"], 32),
        (&["--time", ",5"], &["--time", ",5"], 32),
        (&["--time", "1,2 8,9"], &["--time", "1,2 8,9"], 16),
        (&["--time", "50%-100%"], &["--time", "50%-100%"], 32),
        (
            &["--comms", "main", "-C", "1", "--time", ",5"],
            &["--comm", "main", "-C", "1", "--time", ",5"],
            4,
        ),
    ];
    for (perfs, ours, samples) in selections {
        let own = done(&[&["script", "-i", path], ours].concat());
        assert_eq!(own.lines().count(), samples, "{ours:?}");
        let json = quality(&[&["report", "-i", path, "--json"], ours].concat());
        assert_eq!(json["samples"], samples, "{ours:?}");
        assert_eq!(json["left_out"], 64 - samples, "{ours:?}");
        assert_eq!(json["branches"], 4 * samples, "{ours:?}");
        let Some(script) = perf(&[&["script", "-F", "brstack"], perfs].concat(), &file) else {
            continue;
        };
        assert_eq!(ends(&script), ends(&own), "{ours:?}");
        // Rows merged by perf have the first one's task: tasks are kept separate.
        let sort = ["report", "--stdio", "-b", "-n", "--sort", "comm,pid,addr_from,addr_to"];
        let report = perf(&[&sort, perfs].concat(), &file).unwrap();
        let rows = report.lines().filter(|line| line.contains('%') && line.contains('['));
        let counted: usize =
            rows.map(|row| row.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(counted, 4 * samples, "{perfs:?}\n{report}");
    }
}

/// The same for text, if perf prints the columns.
#[test]
fn text_input_is_filtered_alike() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let columns = ["script", "--ns", "-F", "comm,pid,tid,cpu,time,event,ip,brstack"];
    let Some(script) = perf(&columns, &file) else { return };
    let texts = folder.path().join("perf.txt");
    std::fs::write(&texts, script).unwrap();
    for selection in [
        ["--comm", "a worker"],
        ["--comm", "main"],
        ["--event", "branches"],
        ["--event", "branches:u"],
        ["--pid", "200"],
        ["--tid", "101"],
        ["--cpu", "1"],
        ["--time", "2.000000008,3.000000016"],
    ] {
        let script = |file: &Path| {
            let args = [&["script", "-i", file.to_str().unwrap()][..], &selection].concat();
            ends(&done(&args))
        };
        assert_eq!(script(&texts), script(&file), "{selection:?}");
    }
    let head = done(&["report", "-i", texts.to_str().unwrap()]);
    assert!(head.contains("perf.txt: branches:u\n"), "{head}");
}

/// Heads and JSON of all commands report omitted samples, and the views agree.
#[test]
fn omitted_samples_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let path = file.to_str().unwrap();
    let line = "selected: pid 100, cpu 0: 32 of 64 samples; omitted: 16 of other processes, \
                16 on other CPUs\n";
    let chosen = ["--pid", "100", "-C", "0"];
    let with = |args: &[&'static str]| -> Vec<String> {
        args.iter().chain(&["-i"]).map(|arg| (*arg).to_owned()).chain([path.to_owned()]).collect()
    };
    let run = |args: &[&'static str]| {
        let all: Vec<String> = with(args).into_iter().chain(chosen.map(str::to_owned)).collect();
        done(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    for view in ["hot", "types", "mispredict", "outcomes", "blocks", "loops", "paths", "callgraph"]
    {
        let text = run(&["report", "--view", view]);
        assert!(text.contains(line), "{view}: {text}");
        let json = run(&["report", "--json", "--view", view]);
        let json: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        assert_eq!(json["selected"], json!({ "pid": [100], "cpu": [0] }), "{view}");
        assert_eq!((&json["samples"], &json["left_out"]), (&json!(32), &json!(32)), "{view}");
        assert_eq!(json["left_out_by"], json!({ "pid_other": 16, "cpu_other": 16 }), "{view}");
        assert_eq!(json["events"], json!([{ "event": "branches:u", "samples": 32 }]), "{view}");
    }
    assert_eq!(run(&["report"]).lines().position(str::is_empty), Some(2), "two lines of head");
    assert!(run(&["lint"]).contains(line));
    let verdict = run(&["lint", "--json"]);
    assert!(verdict.lines().last().unwrap().contains("\"left_out\":32"), "{verdict}");
    let json = run(&["hist", "--json"]);
    assert!(json.lines().last().unwrap().contains("\"left_out\":32"), "{json}");
    // Text for readers of perf's format: messages go to standard error.
    let script = lbr(&["script", "-i", path, "--pid", "100", "-C", "0"]);
    assert_eq!(text(&script.stdout).lines().count(), 32);
    assert_eq!(text(&script.stderr), format!("lbr: {path}: {line}"));
    // Without a selection, none is reported.
    let json = quality(&["report", "-i", path, "--json"]);
    assert_eq!((&json["selected"], &json["left_out"]), (&Value::Null, &json!(0)));
    assert!(!done(&["report", "-i", path]).contains("selected"));
    // A page contains it too.
    let page = folder.path().join("page.html");
    let html = ["report", "-i", path, "--html", page.to_str().unwrap(), "--pid", "100", "-C", "0"];
    done(&html);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("pid 100, cpu 0: 32 of 64 samples"));
    assert!(page.contains("<dt>Event</dt><dd>branches:u</dd>"));
}

/// A thread has all its branches; a part of its time is a sample.
#[test]
fn complete_means_every_branch() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let path = file.to_str().unwrap();
    let complete = |args: &[&str]| {
        let args = [&["report", "-i", path, "--json", "--view", "blocks"], args].concat();
        quality(&args)["complete"].clone()
    };
    for whole in [&[][..], &["--pid", "100"], &["--tid", "101"], &["--comm", "child"]] {
        assert_eq!(complete(whole), true, "{whole:?}");
    }
    for whole in [&["--time", "1,9"], &["--cpu", "0,1"], &["--event", "branches"]] {
        assert_eq!(complete(whole), true, "{whole:?}");
    }
    for part in [&["--time", "1,8"], &["--cpu", "0"]] {
        assert_eq!(complete(part), false, "{part:?}");
    }
    let head = |args: &[&str]| done(&[&["report", "-i", path], args].concat());
    assert!(!head(&["--tid", "101"]).contains("shares ±"));
    assert!(head(&["--time", "1,8"]).contains("; shares ±"));
}

/// Rows of a file: the others are omitted, and nothing else changes.
#[test]
fn rows_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let path = file.to_str().unwrap();
    let rows = |args: &[&str]| -> Vec<Value> {
        let out = done(&[&["report", "-i", path, "--json"], args].concat());
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for (view, key, of) in
        [("hot", "from", 256), ("mispredict", "from", 256), ("blocks", "exit", 253)]
    {
        let all = rows(&["--view", view]);
        let ours = rows(&["--view", view, "--dso", "lib.so"]);
        let inside = |row: &&Value| {
            let at = row[key].as_str().map(|hex| &hex[2..]);
            row["kind"] != "basic"
                && at.is_some_and(|hex| u64::from_str_radix(hex, 16).unwrap() >= LIB)
        };
        let strip = |row: &Value| {
            let mut row = row.clone();
            row.as_object_mut().unwrap().remove("rank");
            row
        };
        // The same rows with the same counts and shares of the total.
        let expected: Vec<Value> = all.iter().filter(inside).map(strip).collect();
        let found: Vec<Value> = ours.iter().filter(inside).map(strip).collect();
        assert!(!expected.is_empty(), "{view}");
        assert_eq!(found, expected, "{view}");
        let (before, after) = (all.last().unwrap(), ours.last().unwrap());
        assert_eq!(after["branches"], before["branches"], "{view}");
        let dso = &after["dso"];
        let count: u64 = expected
            .iter()
            .map(|row| row.get("count").or(row.get("taken")).unwrap().as_u64().unwrap())
            .sum();
        assert_eq!((&dso["count"], &dso["of"]), (&json!(count), &json!(of)), "{view}");
        assert_eq!(before["dso"], Value::Null);
    }
    // 64 stacks of four branches: two each in either file.
    let head = done(&["report", "-i", path, "--dso", "/nowhere/lib.so"]);
    assert!(head.contains("rows of /nowhere/lib.so: 128 of 256 branches (50.00%), 2 of 6 rows"));
    let wrong = lbr(&["report", "-i", path, "--dso", "libfoo.so"]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = "lbr: no file of the recording is called \"libfoo.so\"; rows are of lib.so, prog\n";
    assert_eq!(text(&wrong.stderr), said);
    // A loop of the program keeps its overall rank.
    let loops = rows(&["--view", "loops", "--dso", "prog"]);
    assert!(loops.len() > 1);
    for view in ["paths", "callgraph", "outcomes", "loops"] {
        let ours = rows(&["--view", view, "--dso", "lib.so"]);
        assert_eq!(ours.last().unwrap()["dso"]["names"], json!(["lib.so"]), "{view}");
    }
}

/// Unknown names are rejected, with a list of the existing ones.
#[test]
fn unknown_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let path = file.to_str().unwrap();
    for command in ["report", "hist", "annotate", "lint", "script"] {
        let out = lbr(&[command, "-i", path, "--event", "cycles"]);
        let said = format!(
            "lbr: {path}: no event with branch stacks is called \"cycles\"; there is branches:u\n"
        );
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(2), said), "{command}");
        assert!(out.stdout.is_empty(), "{command}");
    }
    let out = lbr(&["report", "-i", path, "--comm", "Main"]);
    let said =
        format!("lbr: {path}: no thread is called \"Main\"; there is main, a worker, child\n");
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(2), said));
    // An unused number gives a table without rows.
    let out = lbr(&["report", "-i", path, "--pid", "7"]);
    assert_eq!(out.status.code(), Some(0));
    let said = format!("lbr: {path}: no samples match the selection (pid 7)\n");
    assert_eq!(text(&out.stderr), said);
    assert!(text(&out.stdout).contains("pid 7: 0 of 64 samples; omitted: 64 of other processes"));
    for wrong in [["--time", "2,1"], ["--cpu", "x"], ["--pid", "main"], ["--time", "0%/1"]] {
        let out = lbr(&[&["report", "-i", path][..], &wrong].concat());
        assert_eq!(out.status.code(), Some(2), "{wrong:?}");
    }
}

/// From a pipe, compressed, and with two passes.
#[test]
fn streams_are_filtered_too() {
    let folder = tempfile::tempdir().unwrap();
    let file = recording(folder.path());
    let packed = folder.path().join("perf.data.gz");
    let mut gzip = GzEncoder::new(File::create(&packed).unwrap(), Compression::fast());
    gzip.write_all(&std::fs::read(&file).unwrap()).unwrap();
    gzip.finish().unwrap();
    let chosen = ["--comm", "a worker", "--event", "branches", "--time", "50%-100%"];
    for view in ["hot", "loops"] {
        for file in [&file, &packed] {
            let piped = command(&["report", "--json", "-i", "-", "--view", view])
                .args(chosen)
                .stdin(File::open(file).unwrap())
                .output()
                .unwrap();
            assert_eq!(piped.status.code(), Some(0), "{}", text(&piped.stderr));
            let path = file.to_str().unwrap();
            let named =
                done(&[&["report", "--json", "-i", path, "--view", view][..], &chosen].concat());
            let piped = text(&piped.stdout).replace("standard input", path);
            assert_eq!(piped, named);
            let last: Value = serde_json::from_str(named.lines().last().unwrap()).unwrap();
            assert_eq!(last["samples"], 8, "{view}");
        }
    }
}

/// Two events in the pipe format, which perf reads: cycles:u with two samples, branch-misses with
/// one.
fn two_events(folder: &Path) -> PathBuf {
    let mut bytes = b"PERFILE2".to_vec();
    bytes.extend(16u64.to_le_bytes());
    let record = |bytes: &mut Vec<u8>, kind: u32, misc: u16, body: &[u8]| {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(misc.to_le_bytes());
        bytes.extend((8 + body.len() as u16).to_le_bytes());
        bytes.extend(body);
    };
    const FIELDS: u64 = 0x10000 | 1 | 2 | 4 | 0x80 | 0x800;
    for (config, flags, id) in [(0u64, 1 << 5 | 1 << 6, 1u64), (5, 1 << 20, 2)] {
        let mut body = 0u32.to_le_bytes().to_vec();
        body.extend(128u32.to_le_bytes());
        for word in [config, 1000, FIELDS, 0, flags, 0, 0, 0, 8] {
            body.extend(u64::to_le_bytes(word));
        }
        body.resize(128, 0);
        body.extend(id.to_le_bytes());
        record(&mut bytes, 64, 0, &body);
    }
    for (id, time) in [(1u64, 1000u64), (2, 2000), (1, 3000)] {
        let mut body = Vec::new();
        for word in [id, 0xa0, 7 | 7 << 32, time, 0, 1, 0x1000 + time, 0x2000, 2] {
            body.extend(u64::to_le_bytes(word));
        }
        record(&mut bytes, 9, 2, &body);
    }
    let path = folder.join("two.data");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Merged events are reported, each with its count; one of them can be selected.
#[test]
fn several_events() {
    let folder = tempfile::tempdir().unwrap();
    let file = two_events(folder.path());
    let path = file.to_str().unwrap();
    let both = "cycles:u (2 samples), branch-misses (1 sample)\n";
    for view in ["hot", "blocks", "loops", "callgraph"] {
        let head = done(&["report", "-i", path, "--view", view]);
        assert!(head.contains(both), "{head}");
    }
    assert!(done(&["lint", "-i", path]).contains(both.trim()));
    let json = quality(&["report", "-i", path, "--json"]);
    let events = json!([
        { "event": "cycles:u", "samples": 2 },
        { "event": "branch-misses", "samples": 1 },
    ]);
    assert_eq!(json["events"], events);
    let page = folder.path().join("page.html");
    done(&["report", "-i", path, "--html", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("<dt>Events</dt><dd>cycles:u (2 samples), branch-misses (1 sample)</dd>")
    );
    for (name, samples) in
        [("cycles:u", 2), ("cycles", 2), ("branch-misses", 1), ("cycles,branch-misses", 3)]
    {
        let json = quality(&["report", "-i", path, "--json", "--event", name]);
        assert_eq!((&json["samples"], &json["left_out"]), (&json!(samples), &json!(3 - samples)));
    }
    let alone = done(&["report", "-i", path, "--event", "cycles"]);
    assert!(
        alone.contains(
            "cycles:u; selected: event cycles: 2 of 3 samples; omitted: 1 of other events\n"
        ),
        "{alone}"
    );
    let wrong = lbr(&["report", "-i", path, "--event", "cycles:k"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("\"cycles:k\"; there is cycles:u, branch-misses"));
    // perf's names for them, in the file and in its text.
    let Some(listed) = perf(&["evlist"], &file) else { return };
    assert_eq!(listed.lines().collect::<Vec<_>>(), ["cycles:u", "branch-misses"]);
    let script = perf(&["script", "-F", "comm,pid,tid,time,event,brstack"], &file).unwrap();
    let texts = folder.path().join("two.txt");
    std::fs::write(&texts, script).unwrap();
    let texts = texts.to_str().unwrap();
    assert!(done(&["report", "-i", texts]).contains(both));
    let script = |file: &str| ends(&done(&["script", "-i", file, "--event", "cycles"]));
    assert_eq!(script(texts), script(path));
    assert_eq!(script(path).len(), 2);
}

/// Each group of options has its own heading.
#[test]
fn headings_of_the_help() {
    let help = done(&["report", "--help"]);
    let heading_of = |option: &str| {
        let option = format!("{option} ");
        let mut heading = "";
        for line in help.lines() {
            if !line.starts_with(' ') && line.ends_with(':') {
                heading = line;
            }
            if format!("{} ", line.trim_start()).starts_with(&option)
                || line.contains(&format!(", {option}"))
            {
                return heading.to_owned();
            }
        }
        panic!("{option} is not there: {help}");
    };
    for (option, heading) in [
        ("--view", "View:"),
        ("--event", "Selection:"),
        ("--cpu", "Selection:"),
        ("--dso", "Selection:"),
        ("--kallsyms", "Symbols:"),
        ("--no-source", "Symbols:"),
        ("--truth", "View:"),
    ] {
        assert_eq!(heading_of(option), heading, "{option}");
    }
    for command in ["hist", "annotate", "lint", "script"] {
        let help = done(&[command, "--help"]);
        assert!(help.contains("\nSelection:\n") && help.contains("--event <NAME>"), "{command}");
    }
}

/// Rows of some functions, by part of their name, in every view and output format; and rows summed
/// by function. The totals include all.
#[test]
fn rows_of_functions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("symbols.txt");
    let stack = "sort.isra.0+0x10/sort.isra.0+0x4/P/-/-/3  main+0x20/sort.isra.0+0x0/M/-/-/2\n";
    let other = "ns::walk+0x8/main+0x24/P/-/-/1\n";
    std::fs::write(&file, [stack, stack, other].concat()).unwrap();
    let path = file.to_str().unwrap();
    let rows = |args: &[&str]| json_lines(&[&["report", "-i", path, "--json"], args].concat());
    for (symbol, from, count) in
        [("sort", "sort.isra.0", 2), ("w*", "ns::walk", 1), ("ns::w?lk", "ns::walk", 1)]
    {
        for view in ["hot", "mispredict"] {
            let mut shown = rows(&["--symbol", symbol, "--view", view]);
            let quality = shown.pop().unwrap();
            assert_eq!(quality["branches"], 5);
            let dso = json!({
                "names": [], "symbols": [symbol], "unit": "branches",
                "count": count, "of": 5, "rows": 1, "all_rows": 3,
            });
            assert_eq!(quality["dso"], dso, "{view}");
            assert_eq!(shown.len(), 1);
            assert_eq!(shown[0]["from_symbol"], from);
        }
        let text = stdout(&lbr(&["report", "-i", path, "--symbol", symbol]));
        let said = format!("rows of functions {symbol}: {count} of 5 branches (");
        assert!(
            text.contains(&said) && text.contains(", 1 of 3 rows; shares are of all"),
            "{text}"
        );
        let csv = stdout(&lbr(&["report", "-i", path, "--csv", "--symbol", symbol]));
        assert_eq!(csv.lines().count(), 2, "{csv}");
        let html = stdout(&lbr(&["report", "-i", path, "--html", "-", "--symbol", symbol]));
        assert!(html.contains(&said), "{symbol}");
    }
    assert_eq!(rows(&["--symbol", "*", "--view", "blocks"]).pop().unwrap()["dso"]["rows"], 1);
    let out = lbr(&["report", "-i", path, "--symbol", "sotr"]);
    let said = "lbr: no function of the recording is called \"sotr\"; did you mean sort.isra.0?\n"
        .to_owned();
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(2), said));

    // Together with sums: branches by their source function, blocks by the function at their end.
    let sums = |args: &[&str], key: &str| -> Vec<(String, u64)> {
        let mut shown = rows(&[&["--group", "function"], args].concat());
        assert_eq!(shown.pop().unwrap()["branches"], 5);
        let sum = |row: &Value| {
            assert_eq!((&row["group"], &row["file"]), (&json!("function"), &Value::Null));
            (row["symbol"].as_str().unwrap().to_owned(), row[key].as_u64().unwrap_or(99))
        };
        shown.iter().map(sum).collect()
    };
    let named = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
        rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    };
    let all = [("main", 2), ("sort.isra.0", 2), ("ns::walk", 1)];
    assert_eq!(sums(&[], "count"), named(&all));
    assert_eq!(sums(&["--symbol", "sort"], "count"), named(&all[1..2]));
    let missed = [("main", 2), ("sort.isra.0", 0), ("ns::walk", 0)];
    assert_eq!(sums(&["--view", "mispredict"], "mispredicted"), named(&missed));
    assert_eq!(sums(&["--view", "blocks"], "count"), named(&[("sort.isra.0", 2)]));
    let html = stdout(&lbr(&["report", "-i", path, "--html", "-", "--group", "function"]));
    assert!(html.contains("summed by function"));
    for view in ["loops", "paths", "callgraph"] {
        let out = lbr(&["report", "-i", path, "--view", view, "--group", "file"]);
        assert_eq!(out.status.code(), Some(2), "{view}");
        assert!(text(&out.stderr).contains("--group sums rows of the views hot,"), "{view}");
    }
}
