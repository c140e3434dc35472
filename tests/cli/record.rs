//! `lbr record`: complete recordings of programs with known branches.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::support::lbr::{lbr, sources, text};
use crate::support::programs::{BARE, Program, build};
use crate::support::skip::{skipped, tool};

/// A recording in a folder that is deleted with it.
struct Recorded {
    file: PathBuf,
    _folder: tempfile::TempDir,
    out: Output,
}

fn record(options: &[&str], program: &Program) -> Recorded {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let mut args = vec!["record", "--backend", "soft", "-o", file.to_str().unwrap()];
    args.extend(options);
    args.extend(["--", program.name()]);
    let out = lbr(&args);
    Recorded { file, _folder: folder, out }
}

impl Recorded {
    /// Samples as in `lbr script --json`.
    fn samples(&self) -> Vec<Value> {
        let out = lbr(&["script", "--json", "-i", self.file.to_str().unwrap()]);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The branches in execution order.
    fn edges(&self) -> Vec<(u64, u64)> {
        self.samples().iter().flat_map(|sample| stack(sample).into_iter().rev()).collect()
    }
}

/// One sample's branches, newest first.
fn stack(sample: &Value) -> Vec<(u64, u64)> {
    let address = |value: &Value| {
        u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let entries = sample["entries"].as_array().unwrap();
    entries.iter().map(|entry| (address(&entry["from"]), address(&entry["to"]))).collect()
}

fn at(program: &Program, edges: &[(&str, &str)]) -> Vec<(u64, u64)> {
    edges.iter().map(|(from, to)| (program.at(from), program.at(to))).collect()
}

/// oracle.S from its second part on: a call chain, indirect jump and call, `rep`, a zero-length
/// call, branches to the next instruction, a jump.
const ORACLE: [(&str, &str); 13] = [
    ("outer_c", "outer"),
    ("inner_c", "leaf"),
    ("leaf_ret", "inner_r"),
    ("inner_r", "outer_ret"),
    ("outer_ret", "outer_r"),
    ("ind_j", "landing"),
    ("ind_c", "leaf"),
    ("leaf_ret", "ind_r"),
    ("zero_c", "zero"),
    ("next_t", "next_1"),
    ("next_m", "next_4"),
    ("next_z", "next_5"),
    ("ss_j", "ss_l"),
];

#[test]
fn a_period_beyond_the_depth_takes_the_newest_of_each_period() {
    let Some(program) = build("loops.S", BARE) else { return };
    for source in sources() {
        let all = record(&["--source", source], &program).edges();
        for (options, depth) in [(&["-c", "1000"][..], 32), (&["-c", "37", "-z"], 32)] {
            let options = [options, &["--source", source]].concat();
            let sampled = record(&options, &program);
            let period: usize = options[1].parse().unwrap();
            let wanted: Vec<Vec<(u64, u64)>> = all
                .chunks(period)
                .map(|run| run.iter().rev().take(depth).copied().collect())
                .collect();
            assert!(wanted.len() > 3);
            let got: Vec<_> = sampled.samples().iter().map(stack).collect();
            assert_eq!(got, wanted, "{options:?}: {}", text(&sampled.out.stderr));
        }
    }
}

#[test]
fn a_known_trace_is_recorded_once_and_in_order_at_every_depth() {
    let Some(program) = build("oracle.S", BARE) else { return };
    for source in sources() {
        for (cpu, depth) in
            [("06_0F", 4), ("06_37", 8), ("06_3C", 16), ("06_5E", 32), ("06_8F", 32), ("19_61", 16)]
        {
            for count in [1, 2, depth - 1] {
                let period = count.to_string();
                let options = ["--soft-cpu", cpu, "-c", &period, "--source", source];
                let recorded = record(&[&options[..], &["--from", "outer_c"]].concat(), &program);
                let said = text(&recorded.out.stderr);
                assert_eq!(recorded.out.status.code(), Some(7), "the program's status: {said}");
                let mut wanted = ORACLE.to_vec();
                if cpu == "06_8F" {
                    // SDM24 Table 20-2: a call of the next instruction is not a NEAR_REL_CALL.
                    wanted.retain(|(from, _)| *from != "zero_c");
                }
                if source == "qemu" {
                    // The plugin cannot tell whether these are taken, and counts them.
                    wanted.retain(|(from, _)| !from.starts_with("next_"));
                    assert!(said.contains("5 conditional branches to the very next"), "{said}");
                } else {
                    assert!(said.contains("complete: every taken branch"), "{said}");
                }
                assert_eq!(recorded.edges(), at(&program, &wanted), "{cpu} -c {count} {source}");
                for sample in recorded.samples() {
                    assert_eq!(sample["exact"], true, "{sample}");
                    for entry in sample["entries"].as_array().unwrap() {
                        assert!(entry["mispredicted"].is_null() && entry["cycles"].is_null());
                        assert!(entry["type"].is_string(), "{entry}");
                    }
                }
            }
        }
    }
}

#[test]
fn an_lbr_without_a_filter_invents_no_kernel_entries() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let recorded = record(&["--soft-cpu", "06_0F", "-j", "any,u", "--source", "ptrace"], &program);
    assert!(recorded.edges().iter().all(|(_, to)| *to != 0));
    assert_eq!(recorded.edges().len(), 2 + ORACLE.len());
}

/// The instructions that change a call stack.
enum Move {
    Call(&'static str, &'static str),
    Return,
}
use Move::{Call, Return};

/// The calls and returns of nested.S in order.
const NESTED: [Move; 16] = [
    Call("start_c", "a"),
    Call("a_c", "b"),
    Call("b_c1", "c"),
    Return,
    Call("b_c2", "c"),
    Return,
    Return,
    Return,
    Call("start_d", "down"),
    Call("down_c", "down"),
    Call("down_c", "down"),
    Call("down_c", "down"),
    Return,
    Return,
    Return,
    Return,
];

/// The open frames after each change, newest first.
fn snapshots(moves: &[Move]) -> Vec<Vec<(&'static str, &'static str)>> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    let mut after = Vec::new();
    for step in moves {
        match step {
            Call(from, to) => open.push((from, to)),
            Return => drop(open.pop()),
        }
        after.push(open.iter().rev().copied().collect());
    }
    after
}

#[test]
fn a_call_stack_holds_the_open_frames() {
    let Some(program) = build("nested.S", BARE) else { return };
    for (source, cpu) in
        sources().into_iter().flat_map(|s| ["06_3C", "06_5E", "06_8F"].map(|cpu| (s, cpu)))
    {
        let options = ["-j", "stack,u", "-c", "1", "--soft-cpu", cpu, "--source", source];
        let recorded = record(&options, &program);
        assert_eq!(recorded.out.status.code(), Some(0), "{}", text(&recorded.out.stderr));
        let got: Vec<Vec<(u64, u64)>> = recorded.samples().iter().map(stack).collect();
        // An empty stack is execution in the outermost function.
        let wanted: Vec<Vec<(u64, u64)>> =
            snapshots(&NESTED).iter().map(|frames| at(&program, frames)).collect();
        assert_eq!(got, wanted, "{cpu} {source}");
        assert!(recorded.samples().iter().all(|sample| sample["label"] == "snapshot"));
    }
}

/// textbook.S with its code at the address of the text.
fn textbook() -> Option<Program> {
    build("textbook.S", &[BARE, &["-Wl,-Ttext=0x4ed000"]].concat())
}

#[test]
fn the_textbook_loop_has_its_branch_history() {
    let Some(program) = textbook() else { return };
    let recorded = record(&["--source", "ptrace", "--from", "loop"], &program);
    // 5, -1, -7, 12, 0: JNS is taken for three of them and not for the others, JNE four times.
    let (jns, call, ret, jne) = (
        (0x4e_da14, 0x4e_da1e),
        (0x4e_da1e, 0x4e_db26),
        (0x4e_db29, 0x4e_da23),
        (0x4e_da2d, 0x4e_da10),
    );
    let wanted = [
        [Some(jns), Some(call), Some(ret), Some(jne)],
        [None, Some(call), Some(ret), Some(jne)],
        [None, Some(call), Some(ret), Some(jne)],
        [Some(jns), Some(call), Some(ret), Some(jne)],
        [Some(jns), Some(call), Some(ret), None],
    ];
    let wanted: Vec<(u64, u64)> = wanted.into_iter().flatten().flatten().collect();
    assert_eq!(recorded.edges(), wanted);
}

#[test]
fn the_textbook_leaf_leaves_the_call_stack_when_it_returns() {
    let Some(program) = textbook() else { return };
    let options = ["-j", "stack,u", "-c", "2", "--soft-cpu", "06_3C", "--source", "ptrace"];
    let recorded = record(&options, &program);
    // Every second change is the return: then no call is open, and the stack is empty.
    let stacks: Vec<_> = recorded.samples().iter().map(stack).collect();
    assert!(stacks.iter().all(Vec::is_empty), "{stacks:?}");
    let options = ["-j", "stack,u", "-c", "1", "--soft-cpu", "06_3C", "--source", "ptrace"];
    let recorded = record(&options, &program);
    let samples = recorded.samples();
    let stacks = samples.iter().map(stack).filter(|stack| !stack.is_empty());
    assert_eq!(stacks.collect::<Vec<_>>(), vec![vec![(0x4e_da1e, 0x4e_db26)]; 5]);
}

#[test]
fn status_of_the_program_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let run = |source: &str, script: &str| {
        let args = ["record", "--source", source, "-o", file.to_str().unwrap(), "--"];
        lbr(&[&args[..], &["/bin/sh", "-c", script]].concat()).status.code()
    };
    for source in sources() {
        assert_eq!(run(source, "exit 5"), Some(5), "{source}");
        assert_eq!(run(source, "kill -TERM $$"), Some(128 + 15), "{source}");
    }
}

/// A refusal: one line, a status, and an existing file is unchanged.
#[track_caller]
fn refused(args: &[&str], status: i32, words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    std::fs::write(&file, "older").unwrap();
    let out = lbr(&[&["record", "-o", file.to_str().unwrap()], args].concat());
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(status), "{said}");
    assert!(said.contains(words), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "older", "{args:?}: {said}");
}

#[test]
fn unsupported_recordings_are_refused_with_the_reason() {
    refused(&["--", "/no/such/program"], 2, "/no/such/program");
    refused(&["--", "no-such-program-anywhere"], 2, "no-such-program-anywhere");
    refused(&["-j", "any,k", "--", "true"], 2, "kernel");
    refused(&["-j", "sideways", "--", "true"], 2, "unknown branch filter `sideways`");
    refused(&["--soft-cpu", "66_66", "--", "true"], 2, "66_66");
    refused(&["-j", "stack,u", "--soft-cpu", "06_2A", "--", "true"], 2, "call-stack");
    refused(&["-c", "0", "--", "true"], 2, "0");
    refused(&["-F", "0", "--", "true"], 2, "0");
    refused(&["-C", "99999", "--source", "ptrace", "--", "true"], 2, "99999");
    refused(&["--from", "no_such_symbol", "--", "true"], 2, "no_such_symbol");
    // One-entry and read-only facilities.
    for cpu in ["06_07", "0F_02", "0F_04", "19_21"] {
        refused(&["--soft-cpu", cpu, "--source", "ptrace", "--", "true"], 3, "record");
    }
}

#[test]
fn a_program_for_another_cpu_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other");
    // The identification of a 32-bit Arm executable.
    let mut elf = vec![0x7F, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    elf.extend([2, 0, 40, 0, 1, 0, 0, 0]);
    elf.resize(52, 0);
    std::fs::write(&path, elf).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(&["--source", "ptrace", "--", path.to_str().unwrap()], 2, "x86-64");
}

/// perf's text of a recording; `None`, with a message, without perf.
fn perf(args: &[&str], file: &Path) -> Option<String> {
    match tool("perf").args(args).arg("-i").arg(file).stdin(Stdio::null()).output() {
        Ok(out) => {
            assert!(out.status.success(), "perf {args:?}: {}", text(&out.stderr));
            Some(text(&out.stdout))
        }
        Err(_) => {
            skipped("perf is not installed");
            None
        }
    }
}

#[test]
fn perf_reads_the_same_entries() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let recorded = record(&["--source", "ptrace", "-c", "5"], &program);
    let Some(theirs) = perf(&["script", "-F", "brstack"], &recorded.file) else { return };
    let ours = lbr(&["script", "-i", recorded.file.to_str().unwrap()]);
    // The fields after the addresses depend on perf's version: the first six exist in all.
    let entries = |text: &str| -> Vec<String> {
        let six = |entry: &str| entry.split('/').take(6).collect::<Vec<_>>().join("/");
        text.split_whitespace().filter(|word| word.starts_with("0x")).map(six).collect()
    };
    let ours = entries(&text(&ours.stdout));
    assert_eq!(entries(&theirs), ours);
    assert_eq!(ours.len(), 15);
    assert!(ours.iter().all(|entry| entry.ends_with("/-/-/-/0")), "unknown is not predicted");
}

#[test]
fn perf_reports_the_same_counts_by_symbol() {
    let Some(program) = build("nested.S", BARE) else { return };
    let recorded = record(&["--source", "ptrace", "-c", "3"], &program);
    let sort = ["report", "--stdio", "-n", "--sort", "symbol_from,symbol_to"];
    let Some(theirs) = perf(&sort, &recorded.file) else { return };
    // "  17.65%  3  [.] down_c  [.] down": count and the two names.
    // Labels at the same address are one symbol with two names, so addresses are compared.
    let mut counts: Vec<(u64, u64, u64)> = theirs
        .lines()
        .filter(|line| line.contains("[.]"))
        .map(|line| {
            let words: Vec<&str> =
                line.split_whitespace().filter(|word| *word != "[.]" && *word != "-").collect();
            (program.at(words[2]), program.at(words[3]), words[1].parse().unwrap())
        })
        .collect();
    let out = lbr(&["report", "--json", "-i", recorded.file.to_str().unwrap()]);
    let mut ours: Vec<(u64, u64, u64)> = text(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|row| row["view"] == "hot")
        .map(|row| {
            let symbol = |key: &str| program.at(row[key].as_str().unwrap());
            (symbol("from_symbol"), symbol("to_symbol"), row["count"].as_u64().unwrap())
        })
        .collect();
    counts.sort();
    ours.sort();
    assert_eq!(counts, ours);
    assert_eq!(ours.iter().map(|row| row.2).sum::<u64>(), 17, "16 calls and returns, one JS");
}

#[test]
fn the_report_after_a_recording_names_branches_and_unknowns() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let recorded = record(&["--source", "ptrace", "--report"], &program);
    let report = text(&recorded.out.stdout);
    assert!(report.contains("software LBR (Skylake), not measured"), "{report}");
    assert!(report.contains("predictions not recorded"), "{report}");
    let first = report.lines().find(|line| line.contains("->") && line.contains('%')).unwrap();
    let words: Vec<&str> = first.split_whitespace().collect();
    assert_eq!(words[..5], ["1", "2", "13.33%", "-", "-"], "{first}");
    assert!(first.contains("COND") && first.contains("loop_b+0x0 -> loop+0x0"), "{first}");
}

#[test]
fn a_rate_gives_samples() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let options = ["--source", "ptrace", "-v", "-F", "500"];
    let recorded = record(&options, &program);
    let said = text(&recorded.out.stderr);
    assert!(!said.contains("complete: every"), "a rate promises nothing: {said}");
    assert_eq!(recorded.out.status.code(), Some(7));
}

/// `arguments.S`: the values of each call, by hand.
#[test]
fn arguments_of_a_function() {
    let Some(program) = build("arguments.S", BARE) else { return };
    let recorded = record(&["--args", "work"], &program);
    if recorded.out.status.code() == Some(4) {
        return skipped(text(&recorded.out.stderr));
    }
    assert_eq!(recorded.out.status.code(), Some(0), "{}", text(&recorded.out.stderr));
    let out = lbr(&["report", "--view", "args", "--json", "-i", recorded.file.to_str().unwrap()]);
    let lines: Vec<Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let quality = lines.iter().find(|line| line["view"] == "quality").unwrap();
    // Eight calls, one of which falls through into the function.
    assert_eq!(quality["samples_with_registers"], 7, "{quality}");
    let values = |caller: &str, register: &str| -> Vec<(String, u64)> {
        let row = |line: &&Value| line["caller_symbol"] == caller && line["register"] == register;
        let row = lines.iter().find(row).unwrap_or_else(|| panic!("{caller} {register}"));
        assert_eq!(row["callee_symbol"], "work");
        let values = row["values"].as_array().unwrap().iter();
        values
            .map(|had| (had["value"].as_str().unwrap().to_owned(), had["count"].as_u64().unwrap()))
            .collect()
    };
    let all = |values: &[(&str, u64)]| {
        values.iter().map(|(value, n)| ((*value).to_owned(), *n)).collect::<Vec<_>>()
    };
    let down = [("0x1", 1), ("0x2", 1), ("0x3", 1), ("0x4", 1), ("0x5", 1)];
    assert_eq!(values("_start", "rdi"), all(&down));
    for (caller, register, value, n) in [
        ("_start", "rsi", "0x64", 5),
        ("_start", "rdx", "0x3", 5),
        ("_start", "r9", "0x0", 5),
        ("indirect", "rdi", "0xffffffffffffffff", 1),
        ("indirect", "rsi", "0x7", 1),
        ("indirect", "r9", "0x9", 1),
        ("conditional", "rdi", "0x21", 1),
    ] {
        assert_eq!(values(caller, register), all(&[(value, n)]), "{caller} {register}");
    }
    // Nothing else changes: all branches are the same as without it.
    assert_eq!(recorded.edges(), record(&["--source", "ptrace"], &program).edges());
    // perf reads the registers by the same numbers.
    let Ok(script) =
        tool("perf").args(["script", "-F", "uregs", "-i"]).arg(&recorded.file).output()
    else {
        return skipped("no perf to read the registers");
    };
    let first = text(&script.stdout);
    let first: Vec<&str> = first.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(first, ["ABI:2", "CX:0x0", "DX:0x3", "SI:0x64", "DI:0x5", "R8:0x0", "R9:0x0"]);
}

#[test]
fn arguments_that_are_unavailable() {
    let Some(program) = build("arguments.S", BARE) else { return };
    let no_such = record(&["--args", "nobody"], &program);
    assert_eq!(no_such.out.status.code(), Some(2), "{}", text(&no_such.out.stderr));
    let qemu = record(&["--source", "qemu", "--args", "work"], &program);
    assert_eq!(qemu.out.status.code(), Some(1), "{}", text(&qemu.out.stderr));
    assert!(!qemu.file.exists());
}
