//! `lbr crash`: the last taken branch before a program dies is the one that an independent
//! single-stepper and objdump find.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::lbr::{PROGRAM, stderr, text};
use crate::support::skip::{run_tool, skipped, tool};

struct Programs {
    folder: tempfile::TempDir,
}

impl Programs {
    /// Builds them; `None` without the tools. Static ones have no dynamic linker to step through.
    fn build(is_static: bool) -> Option<Programs> {
        let programs = Programs { folder: tempfile::tempdir().unwrap() };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs");
        let optimized = ["-O1", "-g", "-w", "-pthread", "-fno-stack-protector"];
        let panics = ["-O", "-g", "-C", "panic=abort"];
        for (compiler, options, file) in [
            ("gcc", &optimized[..], "crashes/crashes.c"),
            ("gcc", &optimized[..], "last_step.c"),
            ("g++", &optimized[..], "crashes/throws.cc"),
            ("rustc", &panics[..], "crashes/panics.rs"),
        ] {
            let file = source.join(file);
            let to = programs.path(file.file_stem().unwrap().to_str().unwrap());
            let link: &[&str] = match compiler {
                _ if !is_static => &[],
                "gcc" => &["-static"],
                // A whole static program sorts all its unwind tables at the first exception.
                "g++" => &["-static-libstdc++", "-static-libgcc"],
                _ => &[],
            };
            let options = [options, link].concat();
            let made = run_tool(tool(compiler).args(options).arg("-o").arg(to).arg(file))?;
            assert!(made.status.success(), "{}", text(&made.stderr));
        }
        run_tool(tool("objdump").arg("--version"))?;
        Some(programs)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `lbr crash` on `program way`, without address randomization.
    fn crash(&self, options: &[&str], program: &str, way: &str) -> Option<Output> {
        let mut command = tool("setarch");
        command.args(["-R", PROGRAM, "crash"]).args(options).arg("--").arg(self.path(program));
        run_tool(command.args([way]).env("RUST_BACKTRACE", "0"))
    }

    /// The last taken branch of the thread that dies, and its signal.
    fn stepped(&self, program: &str, way: &str) -> (u64, u64, i32) {
        let mut stepper = tool(self.path("last_step").to_str().unwrap());
        let run = stepper.arg(self.path(program)).arg(way).env("RUST_BACKTRACE", "0");
        let out = text(&run.output().unwrap().stdout);
        let mut lines = out.lines();
        let signal = lines.next().and_then(|line| line.strip_prefix("thread ")).unwrap();
        let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
        let steps: Vec<(u64, u64, Vec<u8>)> = lines
            .take_while(|line| !line.starts_with("thread"))
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let byte = |at: usize| hex(&words[2][at..at + 2]) as u8;
                (hex(words[0]), hex(words[1]), (0..16).map(|at| byte(2 * at)).collect())
            })
            .collect();
        let decoded = self.objdump(&steps);
        let taken = steps.iter().zip(decoded).find(|((from, to, _), (len, name))| {
            let jumps = ["jmp", "call", "ret"].iter().any(|branch| name.starts_with(branch));
            // A repeated string instruction goes nowhere.
            from != to && name != "syscall" && (jumps || *to != from + len)
        });
        let ((from, to, _), _) = taken.expect("a branch among the last steps");
        (*from, *to, signal.parse().unwrap())
    }

    /// Length and name of the first instruction of each step, as objdump decodes it.
    fn objdump(&self, steps: &[(u64, u64, Vec<u8>)]) -> Vec<(u64, String)> {
        // No instruction before a slot reaches past the NOPs into it.
        let bytes: Vec<u8> =
            steps.iter().flat_map(|(_, _, code)| [&code[..], &[0x90; 48]].concat()).collect();
        let file = self.path("code.bin");
        std::fs::write(&file, bytes).unwrap();
        let mut objdump = tool("objdump");
        objdump.args(["-D", "-w", "-b", "binary", "-m", "i386:x86-64"]).arg(file);
        let listing = text(&objdump.output().unwrap().stdout);
        let slots = listing.lines().filter_map(|line| {
            let mut parts = line.trim().split('\t');
            let at = u64::from_str_radix(parts.next()?.strip_suffix(':')?, 16).ok()?;
            let len = parts.next()?.split_whitespace().count() as u64;
            let mut words = parts.next().unwrap_or_default().split_whitespace();
            let prefixes = ["bnd", "notrack", "rep", "repz", "repnz"];
            let name = words.find(|word| !prefixes.contains(word)).unwrap_or_default();
            (at % 64 == 0).then(|| (len, name.to_owned()))
        });
        let slots: Vec<_> = slots.collect();
        assert_eq!(slots.len(), steps.len(), "{listing}");
        slots
    }
}

/// The JSON Lines of a program that may have died.
fn json_lines(out: &Output) -> Vec<Value> {
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn address(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// The last branch before a death, and the object of the death.
fn death(out: &Output) -> (Value, Value) {
    let rows = json_lines(out);
    let at = rows.iter().position(|row| row["deadly"] == true);
    let at = at.unwrap_or_else(|| panic!("no death: {}", stderr(out)));
    (rows[at - 1].clone(), rows[at].clone())
}

fn has_qemu() -> bool {
    let found = sampler::source::qemu::Qemu::find();
    found.inspect_err(|why| skipped(format_args!("the qemu source: {why}"))).is_ok()
}

const WAYS: [(&str, &str, &str); 16] = [
    ("crashes", "null", "SIGSEGV"),
    ("crashes", "dangling", "SIGSEGV"),
    ("crashes", "stack", "SIGSEGV"),
    ("crashes", "smash", "SIGSEGV"),
    ("crashes", "overrun", "SIGSEGV"),
    ("crashes", "abort", "SIGABRT"),
    ("crashes", "overflow", "SIGSEGV"),
    ("crashes", "divide", "SIGFPE"),
    ("crashes", "ud2", "SIGILL"),
    ("crashes", "code", "SIGSEGV"),
    ("crashes", "thread", "SIGSEGV"),
    ("crashes", "handler", "SIGSEGV"),
    ("crashes", "exec", "SIGSEGV"),
    ("crashes", "child", "SIGSEGV"),
    ("throws", "", "SIGABRT"),
    ("panics", "", "SIGABRT"),
];

#[test]
fn the_last_branch_is_what_a_stepper_says() {
    let Some(programs) = Programs::build(true) else { return };
    let with_qemu = has_qemu();
    for (program, way, signal) in WAYS {
        let (from, to, number) = programs.stepped(program, way);
        let options = ["--json", "--source", "ptrace", "--children"];
        let Some(out) = programs.crash(&options, program, way) else { return };
        let (last, end) = death(&out);
        assert_eq!((address(&last["from"]), address(&last["to"])), (from, to), "{program} {way}");
        assert_eq!(end["signal"], signal, "{program} {way}");
        // The test's child is reported, and its parent exits with the signal's number.
        let status = if way == "child" { number } else { 128 + number };
        assert_eq!(out.status.code(), Some(status), "{program} {way}");
        // QEMU follows neither children nor exec.
        if !with_qemu || ["exec", "child"].contains(&way) {
            continue;
        }
        let out = programs.crash(&["--json", "--source", "qemu"], program, way).unwrap();
        let (emulated, end) = death(&out);
        assert_eq!(end["signal"], signal, "qemu: {program} {way}");
        assert_eq!(out.status.code(), Some(status), "qemu: {program} {way}");
        if way == "smash" {
            // QEMU faults after the return, a CPU before it.
            assert_eq!(emulated["to"], "0x4141414141414141");
            continue;
        }
        for key in ["from_symbol", "from_offset", "from_line", "to_symbol", "to_offset", "type"] {
            assert_eq!(emulated[key], last[key], "qemu: {program} {way}: {key}");
        }
    }
}

#[test]
fn the_first_line_is_the_answer() {
    let Some(programs) = Programs::build(false) else { return };
    let sources = if has_qemu() { &["ptrace", "qemu"][..] } else { &["ptrace"] };
    for source in sources {
        let first = |way: &str| {
            let out = programs.crash(&["--source", source], "crashes", way);
            out.map(|out| text(&out.stdout).lines().next().unwrap_or_default().to_owned())
        };
        let Some(null) = first("null") else { return };
        assert!(null.starts_with("crash: SIGSEGV at 0x0, which is not code"), "{null}");
        assert!(null.contains("; reached by the call at through+"), "{null}");
        let code = first("code").unwrap();
        assert!(code.starts_with("crash: SIGSEGV in store+0x"), "{code}");
        assert!(code.contains("(crashes.c:33): write to 0x"), "{code}");
        let abort = first("abort").unwrap();
        assert!(abort.starts_with("crash: SIGABRT in "), "{abort}");
        assert!(abort.contains("; reached by the call at compare+"), "{abort}");
        assert!(first("overflow").unwrap().contains("(stack overflow?)"));
        assert!(first("").unwrap().starts_with("no crash: "));
    }
}

#[test]
fn paths_are_kept_at_other_moments() {
    let Some(programs) = Programs::build(false) else { return };
    let sources = if has_qemu() { &["ptrace", "qemu"][..] } else { &["ptrace"] };
    for source in sources {
        let at = |when: &str, way: &str| {
            let options = ["--json", "--source", source, "--at", when];
            programs.crash(&options, "crashes", way)
        };
        let Some(out) = at("signal:USR1", "handler") else { return };
        let ends: Vec<Value> =
            json_lines(&out).into_iter().filter(|row| row["kind"] == "end").collect();
        let signals: Vec<_> = ends.iter().map(|end| (&end["signal"], &end["deadly"])).collect();
        let wanted = [("SIGSEGV".into(), true.into()), ("SIGUSR1".into(), false.into())];
        assert_eq!(signals, wanted.each_ref().map(|(signal, deadly)| (signal, deadly)));

        let rows = json_lines(&at("call:abort", "abort").unwrap());
        let end = rows.iter().position(|row| row["deadly"] == false).unwrap();
        assert_eq!(rows[end - 1]["to_symbol"], "abort", "{source}");

        let out = at("exit", "").unwrap();
        let rows = json_lines(&out);
        assert_eq!(rows.last().unwrap()["signal"], Value::Null);
        assert_eq!(rows.len(), 65, "64 branches and the end");
        assert_eq!(out.status.code(), Some(0));

        let out = at("call:nothing", "").unwrap();
        assert!(stderr(&out).contains("no function nothing was called"), "{}", stderr(&out));
    }
}

#[test]
fn the_path_can_be_kept_as_a_recording() {
    let Some(programs) = Programs::build(false) else { return };
    let file = programs.path("crash.data");
    let file = file.to_str().unwrap();
    let options = ["--json", "--source", "ptrace", "--last", "16", "-o", file];
    let Some(out) = programs.crash(&options, "crashes", "divide") else { return };
    let (last, _) = death(&out);
    let script = crate::support::lbr::lbr(&["script", "--json", file]);
    let samples = json_lines(&script);
    let [sample] = samples.as_slice() else { panic!("{}", stderr(&script)) };
    assert_eq!(sample["entries"].as_array().unwrap().len(), 16);
    assert_eq!(sample["entries"][0]["from"], last["from"]);
}

#[test]
fn what_cannot_work_is_refused() {
    let crash = |options: &[&str]| {
        crate::support::lbr::lbr(&[&["crash"], options, &["--", "/bin/true"]].concat())
    };
    for (options, why) in [
        (&["--backend", "msr", "--children"][..], "need every branch"),
        (&["--backend", "perf"], "perf events deliver branches at a counter's interrupt"),
        (&["--at", "signal:NONE"], "there is no signal NONE"),
        (&["--at", "never"], "exit, signal:NAME or call:FUNCTION"),
    ] {
        let out = crash(options);
        assert_eq!(out.status.code(), Some(2), "{options:?}");
        assert!(stderr(&out).contains(why), "{options:?}: {}", stderr(&out));
    }
}
