//! `lbr crash`: the last taken branch before a program dies is the one that an independent
//! single-stepper and objdump find.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::lbr::{PROGRAM, stderr, text};
use crate::support::programs::{Program, build};
use crate::support::skip::{run_tool, skipped, tool};

/// `None` without a compiler. A static one has no dynamic linker to step through.
fn crashes(link: &str) -> Option<Program> {
    build("crashes/crashes.c", &["-O1", "-g", "-w", "-pthread", "-fno-stack-protector", link])
}

/// Builds a program of another language than C.
fn compiled(compiler: &str, options: &[&str], file: &str, folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/crashes").join(file);
    let program = folder.join(compiler);
    let made = run_tool(tool(compiler).args(options).arg("-o").arg(&program).arg(source))?;
    assert!(made.status.success(), "{}", text(&made.stderr));
    Some(program)
}

/// Runs `lbr crash` on `program way`, without address randomization.
fn crash(options: &[&str], program: &Path, way: &str) -> Option<Output> {
    let mut command = tool("setarch");
    command.args(["-R", PROGRAM, "crash"]).args(options).arg("--").arg(program);
    run_tool(command.args([way]).env("RUST_BACKTRACE", "0"))
}

/// tests/programs/last_step.c, and a folder for what objdump decodes.
struct Stepper {
    with_qemu: bool,
    program: Program,
    folder: tempfile::TempDir,
}

impl Stepper {
    fn build() -> Option<Stepper> {
        run_tool(tool("objdump").arg("--version"))?;
        let program = build("last_step.c", &["-O1"])?;
        Some(Stepper { with_qemu: has_qemu(), program, folder: tempfile::tempdir().unwrap() })
    }

    /// The last taken branch of the thread that dies, and its signal. Steps from an address on.
    fn last_branch(&self, first: u64, program: &Path, way: &str) -> (u64, u64, i32) {
        let mut stepper = tool(self.program.name());
        stepper.arg(format!("{first:x}")).arg(program).arg(way).env("RUST_BACKTRACE", "0");
        let out = text(&stepper.output().unwrap().stdout);
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
        let file = self.folder.path().join("code.bin");
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

/// The ways in which crashes.c dies.
const WAYS: [(&str, &str); 14] = [
    ("null", "SIGSEGV"),
    ("dangling", "SIGSEGV"),
    ("stack", "SIGSEGV"),
    ("smash", "SIGSEGV"),
    ("overrun", "SIGSEGV"),
    ("abort", "SIGABRT"),
    ("overflow", "SIGSEGV"),
    ("divide", "SIGFPE"),
    ("ud2", "SIGILL"),
    ("code", "SIGSEGV"),
    ("thread", "SIGSEGV"),
    ("handler", "SIGSEGV"),
    ("exec", "SIGSEGV"),
    ("child", "SIGSEGV"),
];

/// Compares a death as `lbr crash` prints it with what the stepper finds from an address on.
fn compare(stepper: &Stepper, first: u64, program: &Path, way: &str, signal: &str) -> Option<()> {
    let named = format!("{} {way}", program.display());
    let (from, to, number) = stepper.last_branch(first, program, way);
    let out = crash(&["--json", "--source", "ptrace", "--children"], program, way)?;
    let (last, end) = death(&out);
    assert_eq!((address(&last["from"]), address(&last["to"])), (from, to), "{named}");
    assert_eq!(end["signal"], signal, "{named}");
    // The test's child is reported, and its parent exits with the signal's number.
    let status = if way == "child" { number } else { 128 + number };
    assert_eq!(out.status.code(), Some(status), "{named}");
    // QEMU follows neither children nor exec.
    if !stepper.with_qemu || ["exec", "child"].contains(&way) {
        return Some(());
    }
    let out = crash(&["--json", "--source", "qemu"], program, way)?;
    let (emulated, end) = death(&out);
    assert_eq!(end["signal"], signal, "qemu: {named}");
    assert_eq!(out.status.code(), Some(status), "qemu: {named}");
    if way == "smash" {
        // QEMU faults after the return, a CPU before it.
        assert_eq!(emulated["to"], "0x4141414141414141");
        return Some(());
    }
    let keys = ["from_symbol", "to_symbol", "from_offset", "from_line", "to_offset", "type"];
    // The environment decides whether the stack ends at a call or at the store after it.
    let keys = if way == "overflow" { &keys[..2] } else { &keys };
    for key in keys {
        assert_eq!(emulated[*key], last[*key], "qemu: {named}: {key}");
    }
    Some(())
}

#[test]
fn the_last_branch_is_what_a_stepper_says() {
    let (Some(stepper), Some(program)) = (Stepper::build(), crashes("-static")) else { return };
    for (way, signal) in WAYS {
        if compare(&stepper, program.at("main"), &program.path, way, signal).is_none() {
            return;
        }
    }
    // A whole static program would sort all its unwind tables at the first exception.
    let throws = &["-O1", "-g", "-w", "-static-libstdc++", "-static-libgcc"];
    let panics = &["-O", "-g", "-C", "panic=abort"];
    for (compiler, options, file) in
        [("g++", &throws[..], "throws.cc"), ("rustc", panics, "panics.rs")]
    {
        if let Some(program) = compiled(compiler, options, file, stepper.folder.path()) {
            compare(&stepper, 0, &program, "", "SIGABRT");
        }
    }
}

#[test]
fn the_first_line_is_the_answer() {
    let (Some(program), Some(dynamic)) = (crashes("-static"), crashes("-no-pie")) else { return };
    let sources = if has_qemu() { &["ptrace", "qemu"][..] } else { &["ptrace"] };
    for source in sources {
        let first_line = |program: &Program, way: &str| {
            let out = crash(&["--source", source], &program.path, way);
            out.map(|out| text(&out.stdout).lines().next().unwrap_or_default().to_owned())
        };
        let first = |way| first_line(&program, way).unwrap();
        let Some(null) = first_line(&program, "null") else { return };
        assert!(null.starts_with("crash: SIGSEGV at 0x0, which is not code"), "{null}");
        assert!(null.contains("; reached by the call at through+"), "{null}");
        let code = first("code");
        assert!(code.starts_with("crash: SIGSEGV in store+0x"), "{code}");
        assert!(code.contains("(crashes.c:33): write to 0x"), "{code}");
        // The call into another file, or into code without source lines.
        for program in [&dynamic, &program] {
            let abort = first_line(program, "abort").unwrap();
            assert!(abort.starts_with("crash: SIGABRT in "), "{abort}");
            assert!(abort.contains("; reached by the call at compare+"), "{abort}");
            assert!(abort.ends_with("(crashes.c:35)"), "{abort}");
        }
        assert!(first("overflow").contains("(stack overflow?)"));
        assert!(first("").starts_with("no crash: "));
    }
}

#[test]
fn paths_are_kept_at_other_moments() {
    let Some(program) = crashes("-static") else { return };
    let sources = if has_qemu() { &["ptrace", "qemu"][..] } else { &["ptrace"] };
    for source in sources {
        let at = |when: &str, way: &str| {
            let options = ["--json", "--source", source, "--at", when];
            crash(&options, &program.path, way)
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
    let Some(program) = crashes("-static") else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crash.data");
    let file = file.to_str().unwrap();
    let options = ["--json", "--source", "ptrace", "--last", "16", "-o", file];
    let Some(out) = crash(&options, &program.path, "divide") else { return };
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
