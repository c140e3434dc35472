//! `lbr time`: its output for code whose counts are known by hand.

use std::process::Output;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::lbr::{catches, command, lbr, piped, text};
use crate::support::skip::{run_tool, tool};

fn time(args: &[&str]) -> Output {
    let stepped = ["time", "--backend", "soft", "--repeat", "3", "--warm-up", "1"];
    lbr(&[&stepped, args].concat())
}

/// The lines of `--json`.
fn lines(args: &[&str]) -> Vec<Value> {
    let out = time(&[args, &["--json"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn has_as() -> bool {
    run_tool(tool("as").arg("--version")).is_some()
}

/// `mov ecx, 3; dec ecx; jnz -4`: 7 instructions, 2 of 3 branches taken.
const LOOP: &str = "b9 03 00 00 00 ff c9 75 fc";

#[test]
fn counts_are_exact_and_cycles_absent() {
    let out = lines(&["--hex", LOOP, "--loop", "5", "--unroll", "2"]);
    let whole = &out[0];
    assert_eq!(whole["iterations"], 10);
    assert_eq!(whole["instructions"], 70);
    assert_eq!(whole["branches_taken"], 20);
    assert_eq!(whole["branches_not_taken"], 10);
    assert_eq!(whole["rounds_seen"], 5);
    assert_eq!(whole["counts_vary"], false);
    for absent in ["cycles_per_iteration", "round_cycles_per_iteration", "instructions_per_cycle"] {
        assert!(whole[absent].is_null(), "{absent}");
    }
    assert_eq!(whole["tsc_ticks_per_iteration"]["n"], 3, "ticks are measured");
    assert!(whole["each_run"].as_array().unwrap().iter().all(|run| run["cycles"].is_null()));
    // The inner branch ends 4 blocks of a round: two a copy. In each copy the
    // first begins before it, the others at the DEC.
    let blocks: Vec<(&Value, &Value, u64)> = out[1..]
        .iter()
        .map(|block| (&block["entry"], &block["exit"], block["executions"].as_u64().unwrap()))
        .collect();
    let inner: u64 = blocks
        .iter()
        .filter(|(_, exit, _)| exit["at"] == "code" && exit["offset"] == "0x7")
        .map(|(_, _, n)| n)
        .sum();
    assert_eq!(inner, 2 * 20, "two stepped runs: {blocks:?}");
    let around: u64 =
        blocks.iter().filter(|(_, exit, _)| exit["at"] == "loop").map(|(_, _, n)| n).sum();
    assert_eq!(around, 2 * 4, "the loop's branch is taken four times");
    assert!(blocks.iter().all(|(entry, ..)| entry["at"] == "code"), "{blocks:?}");
}

#[test]
fn several_pieces_of_code_are_shown_side_by_side() {
    let out = lines(&["--hex", "90", "--hex", LOOP, "--hex", "90 90"]);
    let column = |key: &str| out.iter().map(|line| line[key].clone()).collect::<Vec<Value>>();
    assert_eq!(column("code"), ["90", LOOP, "90 90"]);
    assert_eq!(column("instructions_per_iteration"), [1.0, 7.0, 2.0]);
    // 20,000 ticks: a NOP takes 2 at most, and 341 copies of the loop may take them in one round
    // while its branches are not predicted.
    for (line, least) in out.iter().zip([10_000, 341, 10_000]) {
        let iterations = line["loop"].as_u64().unwrap() * line["unroll"].as_u64().unwrap();
        assert!(iterations >= least, "{line}");
    }
    // On a busy machine every turn may be disturbed.
    let ticks = column("tsc_ticks_per_iteration");
    assert!(out[0]["turns"] == 0 || ticks.iter().all(Value::is_number), "{out:?}");
    assert!(column("cycles_per_iteration").iter().all(Value::is_null), "{out:?}");
    assert!(column("modelled").iter().all(Value::is_null), "nothing is modelled: {out:?}");
    // The first is not compared with itself.
    assert!(out[0]["ratio"].is_null() && out[0]["verdict"].is_null(), "{out:?}");
    let ratio =
        |line: &Value| ["ratio_low", "ratio", "ratio_high"].map(|key| line[key].as_f64().unwrap());
    // On a busy machine it may be withheld, or so wide that it reaches below 0.
    for line in out[1..].iter().filter(|line| line["verdict"] != "not known") {
        let [low, ratio, high] = ratio(line);
        assert!(low <= ratio && ratio <= high, "{line}");
        assert!(low > 0.0 || line["verdict"] == "no difference seen", "{line}");
    }
}

#[test]
fn a_piece_of_code_that_fails_is_named() {
    let out = time(&["--hex", "90", "--hex", "0f 0b"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(out.stdout.is_empty());
    assert_eq!(text(&out.stderr).trim(), "lbr: `0f 0b`: the code raised SIGILL at +0x0");
}

#[test]
fn loop_counts_are_calibrated() {
    let whole = &lines(&["--hex", "90", "--loop", "auto", "--stepped", "0"])[0];
    let rounds = whole["loop"].as_u64().unwrap();
    let copies = whole["unroll"].as_u64().unwrap();
    assert!(copies > 1, "one byte in a loop would measure the loop");
    assert_eq!(whole["iterations"], rounds * copies);
    assert!(rounds * copies >= 10_000, "20,000 ticks, and a NOP takes 2 at most: {whole}");
    // One piece alone is measured as several are.
    let alone = &lines(&["--hex", "90", "--stepped", "0"])[0];
    assert!(alone["iterations"].as_u64() >= Some(10_000), "{alone}");
    let out = time(&["--hex", "90", "--loop", "often"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("or auto"), "{}", text(&out.stderr));
}

#[test]
fn a_missing_cpu_feature_is_named() {
    // V4FMADDPS zmm0, zmm4, [r14]: no CPU but Knights Mill has it.
    let out = time(&["--hex", "62 d2 5f 48 9a 06"]);
    assert_eq!(out.status.code(), Some(1));
    let said = text(&out.stderr);
    assert!(said.contains("SIGILL at +0x0: the instruction there needs AVX512_4FMAPS"), "{said}");
}

#[test]
fn the_answer_is_in_the_first_lines() {
    for loops in [&[][..], &["--loop", "100"]] {
        let out = time(&[&["--hex", LOOP], loops].concat());
        assert_eq!(out.status.code(), Some(0));
        let shown = text(&out.stdout);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "core cycles: unknown, --backend soft counts none");
        let counts = "7.00 instructions, branches 2.00 taken, 1.00 not taken";
        assert!(lines[1].ends_with(counts), "{shown}");
        assert!(
            lines[1].starts_with("per iteration: ") && lines[1].contains(" TSC ticks"),
            "{shown}"
        );
        // On a busy machine the overhead may vary by more than 100 iterations take.
        let too_short = lines[1].contains("fewer TSC ticks than can be measured");
        let runs = lines[2].starts_with("ticks of 3 runs: ");
        assert!(runs || (too_short && !loops.is_empty()), "{shown}");
        assert!(!shown.contains('-') || !shown.contains(" -0"), "no negative time: {shown}");
    }
    // The method.
    let shown = text(&time(&["--hex", LOOP, "-v"]).stdout).to_owned();
    for part in ["bracket of nothing", "copies", "exact: the same in every stepped run"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

/// A NOP takes less time than a reading of the time stamp counter varies by.
#[test]
fn no_time_is_negative() {
    for code in ["", "90"] {
        let shown =
            text(&time(&["--hex", code, "--loop", "1", "--repeat", "30"]).stdout).to_owned();
        assert!(!shown.contains("-0") && !shown.contains("-1") && !shown.contains("-2"), "{shown}");
        let whole = &lines(&["--hex", code, "--loop", "1"])[0];
        assert!(whole["tsc_ticks_per_iteration"]["min"].as_f64() >= Some(0.0), "{whole}");
    }
}

/// Assembles into an object file with two functions.
fn functions(folder: &std::path::Path) -> Option<String> {
    let (source, object) = (folder.join("f.s"), folder.join("f.o"));
    let code = ".globl one, two\n.type one,@function\none: nop; ret\n.size one, .-one\n\
                .type two,@function\ntwo: nop; nop; ret\n.size two, .-two\n";
    std::fs::write(&source, code).unwrap();
    run_tool(tool("as").arg("--64").arg("-o").arg(&object).arg(&source))?;
    run_tool(tool("ld").arg("--version"))?;
    Some(object.to_str().unwrap().to_owned())
}

#[test]
fn one_snippet_is_measured_like_several() {
    let folder = tempfile::tempdir().unwrap();
    let Some(object) = functions(folder.path()) else { return };
    let object = object.as_str();
    let file = folder.path().join("code.s");
    std::fs::write(&file, "# three\nnop\nnop; nop\n").unwrap();
    let file = file.to_str().unwrap();
    let instructions = |args: &[&str]| -> Vec<f64> {
        let all = lines(args);
        all.iter().map(|line| line["instructions_per_iteration"].as_f64().unwrap()).collect()
    };
    let two = ["--object", object, "--symbol", "one", "--symbol", "two"];
    // With the CALL of the bracket.
    let of_two = instructions(&two);
    assert_eq!(of_two[1] - of_two[0], 1.0, "{of_two:?}");
    let each = ["--object", object, "--symbol", "two", "--object", object, "--symbol", "one"];
    assert_eq!(instructions(&each), [of_two[1], of_two[0]]);
    let mixed = [&["nop", file, "--hex", "90 90"], &two[..]].concat();
    assert_eq!(instructions(&mixed), [1.0, 3.0, 2.0, of_two[0], of_two[1]]);
    assert_eq!(lines(&mixed)[1]["code"], file);
    let unpaired = ["--object", object, "--object", object, "--symbol", "one"];
    let out = time(&unpaired);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("each --object its --symbol"), "{}", text(&out.stderr));
    let out = time(&[object]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("--symbol NAME"), "{}", text(&out.stderr));
}

#[test]
fn a_file_is_read_and_a_mnemonic_is_not() {
    if !has_as() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, code) in [("nop", "inc eax; inc ecx"), ("my.s", "nop; nop; nop\n")] {
        std::fs::write(folder.path().join(name), code).unwrap();
    }
    let instructions = |given: &str| {
        let stepped = ["time", "--backend", "soft", "--repeat", "2", "--json", given];
        let out = command(&stepped).current_dir(folder.path()).output().unwrap();
        let first = text(&out.stdout).lines().next().map(str::to_owned).unwrap_or_default();
        let whole: Value = serde_json::from_str(&first).unwrap_or_default();
        let n = whole["instructions"].as_f64().unwrap_or(-1.0);
        let said = text(&out.stderr).to_owned();
        (n / whole["stepped_iterations"].as_f64().unwrap_or(1.0), out.status.code(), said)
    };
    for (given, expected) in [("nop", 1.0), ("./nop", 2.0), ("my.s", 3.0), ("./my.s", 3.0)] {
        let (found, status, said) = instructions(given);
        assert_eq!((found, status), (expected, Some(0)), "{given}: {said}");
    }
    for absent in ["other.s", "./other"] {
        let (_, status, said) = instructions(absent);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("no such file"), "{said}");
    }
}

#[test]
fn no_code_is_an_empty_measurement() {
    let out = lines(&["--hex", ""]);
    assert_eq!(out.len(), 1, "no blocks");
    assert_eq!((&out[0]["instructions"], &out[0]["branches_taken"]), (&0.into(), &0.into()));
}

#[test]
fn both_syntaxes_and_set_up_code() {
    if !has_as() {
        return;
    }
    let intel = ["mov rax, [r14]; 2: dec rax; jnz 2b", "--init", "mov qword ptr [r14], 6"];
    let att = ["movq (%r14), %rax; 2: dec %rax; jnz 2b", "--att", "--init", "movq $6, (%r14)"];
    for code in [&intel[..], &att] {
        // In a loop each round is set up again.
        for rounds in ["1", "20"] {
            let whole = &lines(&[code, &["--loop", rounds]].concat())[0];
            let n = rounds.parse::<u64>().unwrap();
            assert_eq!(whole["instructions"], 13 * n);
            assert_eq!(whole["branches_taken"], 5 * n);
        }
    }
}

#[test]
fn code_that_changes_the_counter_of_its_loop_is_an_error() {
    // mov r15d, 3
    for rounds in [&[][..], &["--loop", "100"], &["--loop", "100", "--stepped", "0"]] {
        let out = time(&[&["--hex", "41 bf 03 00 00 00"], rounds].concat());
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{rounds:?}: {said}");
        assert!(out.stdout.is_empty(), "no figure of it: {}", text(&out.stdout));
        assert!(said.contains("R15") && said.contains("--init ''"), "{said}");
    }
    time(&["--hex", "41 bf 03 00 00 00", "--loop", "1"]).status.success().then_some(()).unwrap();
}

#[test]
fn errors_name_the_cause() {
    let refused = |args: &[&str], word: &str, status: i32| {
        let out = time(args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: no {word:?} in {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(out.stdout.is_empty(), "{args:?}");
    };
    refused(&["--hex", "0f 0b"], "SIGILL at +0x0", 1);
    refused(&["--hex", "90 eb fe", "--timeout", "1"], "stopped at +0x1", 1);
    refused(&["--hex", "90 48 8b 04 25 10 00 00 00"], "SIGSEGV at +0x1, touching 0x10", 1);
    // mov eax, 60; mov edi, 3; syscall
    refused(&["--hex", "b8 3c 00 00 00 bf 03 00 00 00 0f 05"], "status 3 at +0xa", 1);
    refused(&["--hex", "9"], "odd number of digits (1)", 2);
    if has_as() {
        refused(&["nop", "--init", "nop; ud2"], "SIGILL at +0x1 of --init", 1);
    }
    refused(&["--hex", "zz"], "not hexadecimal", 2);
    refused(&["--hex", "90", "-j", "stack,u"], "call-stack mode", 2);
    refused(&["--hex", "90", "-j", "any,k"], "ask for `u`", 2);
    refused(&["--hex", "90", "-C", "4000"], "CPU 4000", 2);
    refused(&["--object", "/dev/null", "--symbol", "f"], "no regular file", 2);
    let text_file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    refused(&["--object", text_file, "--symbol", "f"], "not an object file", 2);
    if has_as() {
        refused(&["nop; foo"], "line 1: no such instruction", 2);
        refused(&["call foo"], "refers to `foo` at +0x1", 2);
    }
    let out = command(&["time", "nop"]).env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("there is no `as`"), "{}", text(&out.stderr));
}

#[test]
fn signals_end_it_quickly() {
    // mov ecx, 300000000; dec ecx; jnz: quick at full speed, hours step by step.
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let started = std::time::Instant::now();
        let child = piped(&["time", "--backend", "soft", "--timeout", "6000", "--hex"])
            .args(["b9 00 a3 e1 11 ff c9 75 fc", "--warm-up", "1"])
            .spawn()
            .unwrap();
        while !catches(child.id(), signal) {
            assert!(started.elapsed().as_secs() < 300, "{signal} is not waited for");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        // Into the midst of the stepping; earlier is as well.
        std::thread::sleep(std::time::Duration::from_millis(500));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(started.elapsed().as_secs() < 600, "{signal}");
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert_eq!(said, "lbr: stopped before anything was measured\n");
        assert!(out.stdout.is_empty());
    }
}

#[test]
fn csv() {
    let out = time(&["--hex", LOOP, "--csv"]);
    let shown = text(&out.stdout);
    assert!(shown.contains("\ninstructions_per_iteration,,,7,,,,,,\n"), "{shown}");
    assert!(shown.contains("\ncycles_per_iteration,,,,,,,,,\n"), "absent is empty: {shown}");
    assert!(shown.contains("\nblock_cycles,\"'+0x5 .. end\",2,,,,,,,\n"), "{shown}");
    let columns = |line: &str| line.matches(',').count();
    assert!(shown.lines().all(|line| columns(line) == 9), "{shown}");
}
