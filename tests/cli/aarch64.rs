//! Programs of 64-bit Arm: recorded in QEMU, and compared with QEMU's own log of each instruction
//! and with binutils' disassembler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use lbr_msr::disasm::{Disassembler, Syntax};
use lbr_msr::insn::{Insn, Isa};
use lbr_msr::record::HwBranchType as H;
use object::{Object, ObjectSymbol};
use sampler::source::qemu::Qemu;
use serde_json::{Value, json};

use crate::support::lbr::{done, lbr, rows, stderr, text};
use crate::support::skip::{run_tool, skipped, tool};

const GCC: &str = "aarch64-linux-gnu-gcc";
const OBJDUMP: &str = "aarch64-linux-gnu-objdump";

/// Counts of branches: FROM and TO.
type Edges = BTreeMap<(u64, u64), u64>;

struct Program {
    path: PathBuf,
    folder: tempfile::TempDir,
}

/// Builds `tests/programs/NAME` for Arm; `None`, after a skip message, without a compiler or QEMU.
fn build(name: &str, flags: &[&str]) -> Option<Program> {
    Qemu::find_for(Isa::Aarch64).map_err(skipped).ok()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs").join(name);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    let compile = run_tool(tool(GCC).args(flags).arg("-o").arg(&path).arg(&source))?;
    assert!(compile.status.success(), "{name}: {}", stderr(&compile));
    Some(Program { path, folder })
}

impl Program {
    fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The address of a symbol, and its end.
    fn at(&self, name: &str) -> (u64, u64) {
        let bytes = std::fs::read(&self.path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name));
        let symbol = symbol.unwrap_or_else(|| panic!("no symbol {name}"));
        (symbol.address(), symbol.address() + symbol.size())
    }

    /// The addresses of the executed instructions, by thread, from `start` on in the first.
    fn logged(&self, start: u64, args: &[&str]) -> Vec<Vec<u64>> {
        let log = self.file("log");
        let mut qemu = Command::new("qemu-aarch64");
        qemu.args(["-L", "/usr/aarch64-linux-gnu", "-cpu", "max,pauth-impdef=on"]);
        qemu.args(["-singlestep", "-d", "exec,nochain", "-D", &log, self.name()]).args(args);
        // Like the recorded run, it writes to a pipe.
        assert!(qemu.output().unwrap().status.code().is_some());
        let mut threads: Vec<Vec<u64>> = Vec::new();
        for line in std::fs::read_to_string(log).unwrap().lines() {
            // An instruction that was about to run is interrupted, and logged again later.
            if let Some(rest) = line.strip_prefix("Stopped execution of TB chain before ") {
                let pc = hex(rest.split(['[', ']']).nth(1).unwrap());
                let stopped = threads.iter_mut().find(|pcs| pcs.last() == Some(&pc));
                stopped.expect("its thread").pop();
                continue;
            }
            let Some((thread, rest)) =
                line.strip_prefix("Trace ").and_then(|rest| rest.split_once(':'))
            else {
                continue;
            };
            let pc = rest.split_once('[').unwrap().1.split('/').nth(1).unwrap();
            let (thread, pc) = (thread.parse::<usize>().unwrap(), hex(pc));
            threads.resize(threads.len().max(thread + 1), Vec::new());
            threads[thread].push(pc);
        }
        let first = threads[0].iter().position(|pc| *pc == start).expect("it starts there");
        threads[0].drain(..first);
        threads
    }

    /// Records from `main` on, and returns the recording's name.
    fn record(&self, more: &[&str], args: &[&str]) -> String {
        let file = self.file("perf.data");
        let mut words = vec!["record", "--from", "main", "-o", &file];
        words.extend(more);
        words.push(self.name());
        words.extend(args);
        let out = lbr(&words);
        assert!(out.status.code().is_some_and(|code| code < 2), "{}", stderr(&out));
        file
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// Transfers other than to the next instruction, and those of the jumps at these addresses.
fn taken(pcs: &[u64], jumps: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let pairs = pcs.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.filter(|(from, to)| *to != from + 4 || jumps.contains(from)).collect()
}

fn counted(branches: impl IntoIterator<Item = (u64, u64)>) -> Edges {
    let mut edges = Edges::new();
    branches.into_iter().for_each(|branch| *edges.entry(branch).or_default() += 1);
    edges
}

/// The recorded branches in the order of execution.
fn recorded(file: &str) -> Vec<(u64, u64)> {
    let script = done(&["script", "-i", file, "-F", "brstack"]);
    let entry = |entry: &str| {
        let mut parts = entry.split('/');
        Some((hex(parts.next()?), hex(parts.next()?)))
    };
    let stack = |line: &str| line.split_whitespace().rev().filter_map(entry).collect::<Vec<_>>();
    script.lines().flat_map(stack).collect()
}

/// Address, mnemonic and operands of each instruction, as binutils print them.
fn objdump(program: &Program) -> Option<Vec<(u64, String, String)>> {
    let out = run_tool(tool(OBJDUMP).args(["-d", "-w", "--no-show-raw-insn"]).arg(&program.path))?;
    let line = |line: &str| {
        let (address, rest) = line.trim_start().split_once(":\t")?;
        let mut parts = rest.split('\t');
        let mnemonic = parts.next()?.trim().to_owned();
        let operands = parts.next().unwrap_or_default().to_owned();
        Some((u64::from_str_radix(address, 16).ok()?, mnemonic, operands))
    };
    Some(text(&out.stdout).lines().filter_map(line).collect())
}

fn class_of(mnemonic: &str) -> Option<H> {
    Some(match mnemonic {
        "b" => H::RelJmp,
        "bl" => H::RelCall,
        "cbz" | "cbnz" | "tbz" | "tbnz" => H::Cond,
        "ret" | "retaa" | "retab" => H::Ret,
        "br" | "braa" | "brab" | "braaz" | "brabz" => H::IndJmp,
        "blr" | "blraa" | "blrab" | "blraaz" | "blrabz" => H::IndCall,
        "svc" | "brk" | "eret" => H::Other,
        name if name.starts_with("b.") => H::Cond,
        _ => return None,
    })
}

#[test]
fn every_instruction_of_libc_has_the_kind_and_target_that_objdump_prints() {
    let Some(program) = build("calls.c", &["-O1", "-static"]) else { return };
    let Some(listed) = objdump(&program) else { return };
    let bytes = std::fs::read(&program.path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut disassembler = Disassembler::of(Isa::Aarch64, Syntax::Intel);
    let (mut branches, mut same, mut all) = (0, 0, 0);
    for (address, mnemonic, operands) in &listed {
        use object::ObjectSegment;
        let code = file.segments().find_map(|s| s.data_range(*address, 4).ok().flatten());
        let code = code.expect("code");
        let class = class_of(mnemonic);
        match Isa::Aarch64.decode(code, *address) {
            Insn::Branch(branch) => {
                assert_eq!(Some(branch.class), class, "{address:x}: {mnemonic} {operands}");
                let target = operands.split(" <").next().unwrap().rsplit([' ', '\t']).next();
                let target = target.filter(|_| operands.contains('<')).map(hex);
                assert_eq!(branch.target, target, "{address:x}: {mnemonic} {operands}");
                branches += 1;
            }
            Insn::Straight { len } => {
                assert_eq!((class, len), (None, 4), "{address:x}: {mnemonic} {operands}");
            }
            Insn::Invalid => assert!(
                matches!(mnemonic.as_str(), "udf" | ".word" | ".inst"),
                "{address:x}: {mnemonic} {operands}"
            ),
        }
        if let Some(printed) = disassembler.text(code, *address) {
            all += 1;
            same += u32::from(printed.mnemonic == *mnemonic);
        }
    }
    assert!(branches > 10_000, "{branches}");
    // `b.cs` is printed as `b.hs`, and some aliases differ.
    assert!(same * 100 > all * 95, "{same} of {all} mnemonics");
}

const PROGRAMS: [(&str, &[&str], &[&str]); 6] = [
    ("calls.c", &["-O1", "-static"], &["20"]),
    ("kinds/recursion.c", &["-O1", "-static", "-fno-optimize-sibling-calls"], &[]),
    ("kinds/computed_goto.c", &["-O2", "-static"], &[]),
    ("kinds/longjmp.c", &["-O1", "-static"], &[]),
    ("calls.c", &["-O2"], &["7"]),
    ("kinds/plt.c", &["-O1"], &[]),
];

#[test]
fn taken_branches_and_outcomes_are_those_of_qemus_log() {
    for (name, flags, args) in PROGRAMS {
        let Some(program) = build(name, flags) else { return };
        let file = program.record(&[], args);
        let got = recorded(&file);
        // The first branch is in main.
        let shift = got[0].0.saturating_sub(program.at("main").0) & !0xFFF;
        let start = program.at("main").0 + shift;
        let threads = program.logged(start, args);
        let Some(listed) = objdump(&program) else { return };
        let unconditional = |mnemonic: &str| {
            class_of(mnemonic).is_some_and(|class| !matches!(class, H::Cond | H::Other))
        };
        let jumps = listed.iter().filter(|row| unconditional(&row.1));
        let wanted = taken(&threads[0], &jumps.map(|row| row.0 + shift).collect());
        let differ = got.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
        assert_eq!(differ, None, "{name}: {:x?}", differ.map(|at| (got[at], wanted[at])));
        assert!(wanted.len() - got.len() <= 1, "{name}: {} of {}", got.len(), wanted.len());
        assert!(wanted.len() > 20, "{name}");

        let outcomes = rows(&["report", "--view", "outcomes", "--json", "-i", &file]);
        let ran = counted(threads[0].iter().map(|pc| (*pc, 0)));
        let pairs = counted(threads[0].windows(2).map(|pair| (pair[0], pair[1])));
        let times = |counts: &Edges, key| counts.get(&key).copied().unwrap_or(0);
        let mut judged = 0;
        for (address, ..) in listed.iter().filter(|row| class_of(&row.1) == Some(H::Cond)) {
            let at = address + shift;
            let (executed, passed) = (times(&ran, (at, 0)), times(&pairs, (at, at + 4)));
            let Some(row) = outcomes.iter().find(|row| row["from"] == format!("{at:#x}")) else {
                assert_eq!(executed, 0, "{name}: {address:x} ran and has no row");
                continue;
            };
            let counts = (row["taken"].as_u64(), row["not_taken"].as_u64());
            assert_eq!(counts, (Some(executed - passed), Some(passed)), "{name}: {row}");
            judged += 1;
        }
        assert!(judged > 3 || name.contains("goto"), "{name}: {judged}");

        let blocks = rows(&["report", "--view", "blocks", "--json", "-n", "0", "-i", &file]);
        let address = |row: &Value, key: &str| hex(row[key].as_str().unwrap());
        let found: Edges = blocks
            .iter()
            .filter(|row| row["kind"] == "block")
            .map(|row| {
                ((address(row, "entry"), address(row, "exit")), row["count"].as_u64().unwrap())
            })
            .collect();
        // The first block starts at main, the last ends at the system call that exits.
        let entries = [start].into_iter().chain(wanted.iter().map(|branch| branch.1));
        let exits = wanted.iter().map(|branch| branch.0).chain(threads[0].last().copied());
        assert_eq!(found, counted(entries.zip(exits)), "{name}");

        let listing = rows(&["annotate", "--json", "main", "-i", &file]);
        let mut instructions = 0;
        for row in listing.iter().filter(|row| row["kind"] == "instruction") {
            let at = address(row, "address");
            assert_eq!(row["count"].as_u64(), Some(times(&ran, (at, 0))), "{name}: {row}");
            instructions += 1;
        }
        assert!(instructions > 5, "{name}");
    }
}

#[test]
fn each_thread_takes_the_branches_of_its_function() {
    let Some(program) = build("kinds/threads.c", &["-O1", "-static", "-pthread"]) else { return };
    let file = program.record(&[], &[]);
    let (start, end) = program.at("work");
    let inside = |branch: &(u64, u64)| (start..end).contains(&branch.0);
    let threads = program.logged(program.at("main").0, &[]);
    let all = threads.iter().flat_map(|pcs| taken(pcs, &BTreeSet::new())).filter(inside);
    let wanted = counted(all);
    // QEMU's log gives the number of a thread that has ended to the next one.
    assert!(wanted.len() > 3 && threads.len() > 1, "{wanted:x?}");
    assert_eq!(counted(recorded(&file).into_iter().filter(inside)), wanted);
}

#[test]
fn a_software_brbe_of_each_size_holds_the_newest_branches() {
    let Some(program) = build("kinds/recursion.c", &["-O1", "-static"]) else { return };
    let mut all = Vec::new();
    for records in [8, 16, 32, 64] {
        let cpu = format!("brbe-{records}");
        let file = program.record(&["--soft-cpu", &cpu], &[]);
        let script = done(&["script", "-i", &file, "-F", "brstack"]);
        let longest = script.lines().map(|line| line.split_whitespace().count()).max();
        assert_eq!(longest, Some(records - 1), "a stack every {records} - 1 branches");
        all.push(recorded(&file));

        let words = ["dump", "--soft-cpu", &cpu, "--arm", "any,u", "--json", "--", program.name()];
        let dumped = rows(&words);
        let header = &dumped[0];
        assert_eq!((&header["facility"], &header["depth"]), (&json!("brbe"), &json!(records)));
        // E0BRE, CC and MPRED are cleared at the end; every type is captured.
        assert_eq!((&header["control"], &header["select"]), (&json!("0x0"), &json!("0x7e0000")));
        let last = all[0].iter().rev().take(records);
        let held = dumped[1..].iter().map(|row| (&row["raw_from"], &row["raw_to"]));
        for ((from, to), branch) in held.zip(last) {
            assert_eq!((hex(from.as_str().unwrap()), hex(to.as_str().unwrap())), *branch);
        }
        // VALID 3, the type of the exit's last call, no count of cycles.
        assert_eq!(dumped[1]["raw_info"], json!("0x400000000203"), "{}", dumped[1]);
    }
    assert!(all.iter().all(|one| *one == all[0]) && all[0].len() > 200);

    let file = program.record(&["--model"], &[]);
    let report = rows(&["report", "--json", "-i", &file]);
    assert!(report.iter().any(|row| row["mispredicted"].as_u64() > Some(0)), "{report:?}");
}

#[test]
fn what_runs_no_program_of_arm_says_so() {
    let Some(program) = build("kinds/recursion.c", &["-O1", "-static"]) else { return };
    let said = |words: &[&str], status: i32, what: &str| {
        let out = lbr(words);
        assert_eq!(out.status.code(), Some(status), "{words:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(what), "{words:?}: {}", stderr(&out));
    };
    let file = program.file("refused.data");
    let arm = program.name();
    said(&["record", "-o", &file, "--soft-cpu", "skylake", arm], 2, "is an x86 CPU");
    said(&["record", "-o", &file, "--soft-cpu", "brbe-8", "true"], 2, "is an Arm CPU");
    said(&["record", "-o", &file, "--backend", "msr", arm], 2, "the program is for AArch64");
    said(
        &["record", "-o", &file, "--source", "ptrace", arm],
        1,
        "only lbr record and lbr dump run it",
    );
    said(&["verify", "--soft-cpu", "neoverse-v2"], 2, "only by lbr record, dump and learn");
    said(&["dump", "--soft-cpu", "skylake", "--arm", "any,u", "--", arm], 2, "is an x86 CPU");
}
