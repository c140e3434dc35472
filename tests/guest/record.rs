//! `lbr record` on the test machine: a real kernel's msr driver in front of a
//! modelled LBR.
//!
//! Runs if LBR_TEST_MACHINE names the folder of the test machine (scripts/test-machine fetches and
//! builds it); otherwise prints a message and passes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lbr_msr::insn::{self, Insn};
use lbr_msr::record::{BranchEntry, BranchType, Head, Label};
use object::{Object, ObjectSection, ObjectSymbol};
use profile::recording::{Item, Recording};

use super::graph::{Edge, Graph};

use crate::support::decoded::sample_of;
use crate::support::skip::skipped;

/// Rounds at the start of a program that take long, and how many bytes each stores.
pub(crate) const SLOW: (u64, u32) = (500, 400_000);

const SCRIPT: &str = r#"
# Each recording's status and summary go to its own file.
try() {
  name=$1
  shift
  "$@" >/out/$name.out 2>/out/$name.err
  echo $? >/out/$name.status
}
# What a summary in /tmp/err counts, by the words around the number.
counted() {
  sed -n "s/^lbr: .* \([0-9,]*\) $1.*/\1/p" /tmp/err | tr -d ,
}
# The same again until it has that many samples, or samples that join, where no
# program ends it for longer: where the host is busy the guest's clock goes on
# without the guest.
enough() {
  name=$1 least=$2
  shift 2
  : >/out/$name.err
  for seconds in 1 4 16 32; do
    case $name in
      pid | whole) "$@" --for ${seconds}000 >/out/$name.out 2>/tmp/err ;;
      *) "$@" >/out/$name.out 2>/tmp/err ;;
    esac
    echo $? >/out/$name.status
    cat /tmp/err >>/out/$name.err
    many=$(counted 'samples* to')
    case $name in
      same | raw)
        alone=$(counted 'not joined')
        many=$((${many:-0} - ${alone:-0}))
        ;;
    esac
    [ "${many:-0}" -lt "$least" ] || break
  done
}
try before lbr dump -C 1 --json
enough same 40 lbr record -C 1 -o /out/same.data -- /work/graph
enough beside 1 lbr record -C 1 --placement beside -o /out/beside.data -- /work/graph
enough raw 40 lbr record -C 1 -j any,u -o /out/raw.data -- /work/graph
/work/long & graph=$!
enough pid 50 lbr record -C 1 -p $graph -o /out/pid.data
kill $graph
/work/long & graph=$!
enough whole 50 lbr record -C 0,1 -o /out/whole.data
kill $graph
try period lbr record --backend msr -C 1 -c 5 -o /out/period.data -- /work/graph
try after lbr dump -C 1 --json
"#;

pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// `None`, with a message, if the machine is not available.
pub(crate) fn machine(cpu: &str, out: &Path, programs: &[&Path], script: &str) -> Option<Output> {
    machine_with(&[], cpu, out, programs, script)
}

/// The same with options, `--perf` first.
pub(crate) fn machine_with(
    options: &[&str],
    cpu: &str,
    out: &Path,
    programs: &[&Path],
    script: &str,
) -> Option<Output> {
    if std::env::var_os("LBR_TEST_MACHINE").is_none() {
        skipped(
            "LBR_TEST_MACHINE names no folder of the test machine; \
             scripts/test-machine fetch makes one",
        );
        return None;
    }
    let file = out.join("script.sh");
    std::fs::write(&file, script).unwrap();
    let run = Command::new(top().join("scripts/test-machine"))
        .arg("run")
        .args(options)
        .args(["--cpu", cpu, "--timeout", "420", "--out"])
        .arg(out)
        .args(programs.iter().flat_map(|program| [Path::new("--file"), program]))
        .arg("--script")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    if run.status.code() == Some(3) {
        skipped(said);
        return None;
    }
    assert!(run.status.success(), "{cpu}: {said}");
    Some(run)
}

/// A recorded program's code, and the path it takes.
pub(crate) struct Program {
    text: Vec<u8>,
    base: u64,
    labels: HashMap<String, u64>,
    pub(crate) path: Vec<(u64, u64)>,
}

impl Program {
    pub(crate) fn read(graph: &Graph, file: &Path) -> Program {
        let bytes = std::fs::read(file).unwrap();
        let elf = object::File::parse(&*bytes).unwrap();
        let section = elf.section_by_name(".text").unwrap();
        let labels = elf
            .symbols()
            .map(|symbol| (symbol.name().unwrap_or_default().to_owned(), symbol.address()))
            .collect();
        let text = section.data().unwrap().to_vec();
        let mut program = Program { text, base: section.address(), labels, path: Vec::new() };
        program.path = graph.path().into_iter().map(|edge| program.ends(edge)).collect();
        program
    }

    fn label(&self, kind: &str, n: usize) -> u64 {
        self.labels[&format!("{kind}{n}")]
    }

    pub(crate) fn start(&self) -> u64 {
        self.labels["_start"]
    }

    pub(crate) fn decode(&self, at: u64) -> Insn {
        let bytes = at.checked_sub(self.base).and_then(|at| self.text.get(at as usize..));
        bytes.map_or(Insn::Invalid, |bytes| insn::decode(bytes, at))
    }

    /// perf's name of the type of a branch.
    pub(crate) fn type_name(&self, from: u64) -> Option<&'static str> {
        match self.decode(from) {
            Insn::Branch(branch) => branch.branch_type.name(),
            Insn::Straight { .. } | Insn::Invalid => None,
        }
    }

    /// The n-th branch from `at` on.
    fn branch_after(&self, mut at: u64, n: usize) -> (u64, u64) {
        let mut seen = 0;
        loop {
            match self.decode(at) {
                Insn::Straight { len } => at += u64::from(len),
                Insn::Branch(branch) if seen == n => return (at, branch.next()),
                Insn::Branch(branch) => {
                    seen += 1;
                    at = branch.next();
                }
                Insn::Invalid => panic!("no code at {at:#x}"),
            }
        }
    }

    fn ends(&self, edge: Edge) -> (u64, u64) {
        // A block's first branch is its way out, the second its end.
        let end = |block| self.branch_after(self.label("b", block), 1);
        match edge {
            Edge::Block(block, to) => (end(block).0, self.label("b", to)),
            Edge::Call(block, leaf) => (end(block).0, self.label("f", leaf)),
            Edge::Return(leaf, block) => {
                (self.branch_after(self.label("f", leaf), 0).0, end(block).1)
            }
            Edge::Last => (self.labels["last"], self.label("b", 0)),
            Edge::Done(block) => {
                (self.branch_after(self.label("b", block), 0).0, self.labels["done"])
            }
        }
    }

    /// By disassembly alone: each FROM is a branch that can reach its TO, and
    /// from each TO straight code leads to the next FROM.
    /// Where the recorder saves types (`typed`), they are the branches' own.
    pub(crate) fn check_code(&self, entries: &[BranchEntry], typed: bool, what: &str) {
        for entry in entries {
            let Insn::Branch(branch) = self.decode(entry.from) else {
                panic!("{what}: {:#x} is not a branch of the program", entry.from)
            };
            match branch.target {
                Some(target) => assert_eq!(target, entry.to, "{what}: from {:#x}", entry.from),
                None => assert!(self.decode(entry.to) != Insn::Invalid, "{what}: {:#x}", entry.to),
            }
            let said = entry.branch_type.or_else(|| (!typed).then_some(branch.branch_type));
            assert_eq!(said, Some(branch.branch_type), "{what}");
        }
        for pair in entries.windows(2) {
            let mut at = pair[0].to;
            while at != pair[1].from {
                assert!(
                    at < pair[1].from,
                    "{what}: {:#x} is not after {:#x}",
                    pair[1].from,
                    pair[0].to
                );
                at = match self.decode(at) {
                    Insn::Straight { len } => at + u64::from(len),
                    Insn::Branch(branch) if branch.branch_type == BranchType::COND => branch.next(),
                    other => panic!("{what}: {other:x?} between two entries"),
                };
            }
        }
    }
}

impl Program {
    /// Each run is a part of the path, none starts before the end of the previous one, and the
    /// first one is the start of the path if `starts` is set.
    pub(crate) fn check_path(&self, runs: &[Vec<(u64, u64)>], starts: bool, what: &str) {
        let mut at = 0;
        // One without a near branch still ends the run before.
        for (n, run) in runs.iter().enumerate().filter(|(_, run)| !run.is_empty()) {
            let is_here = |at: usize| self.path.get(at..at + run.len()) == Some(run);
            let found = match n == 0 && starts {
                true => is_here(0).then_some(0),
                false => (at..self.path.len()).find(|&at| self.path[at] == run[0] && is_here(at)),
            };
            let found = found.unwrap_or_else(|| {
                // Where it agrees for longest, and what comes next there.
                let agrees = |from: &usize| {
                    let path = self.path.get(*from..).unwrap_or_default();
                    path.iter().zip(run).take_while(|(a, b)| a == b).count()
                };
                let from = match n == 0 && starts {
                    true => 0,
                    false => (at..self.path.len()).rev().max_by_key(agrees).unwrap_or(at),
                };
                let agree = agrees(&from);
                let around = agree.saturating_sub(4);
                let few = |of: &[(u64, u64)], start: usize| {
                    let end = of.len().min(start + 12);
                    format!("{:x?}", of.get(start..end).unwrap_or_default())
                };
                let before = (0..at).rev().find(|&at| is_here(at));
                panic!(
                    "{what}: run {n} of {} branches is not on the path behind {at} (before it: \
                     {before:?}): from {from} on it agrees for {agree}; the path there is\n{}\n\
                     and the run\n{}",
                    run.len(),
                    few(&self.path, from + around),
                    few(run, around)
                )
            });
            at = found + run.len();
        }
    }
}

/// A stack as it was written.
pub(crate) struct Read {
    pub(crate) time: u64,
    pub(crate) pid: u32,
    cpu: u32,
    pub(crate) head: Head,
    pub(crate) cut: bool,
    pub(crate) label: Label,
    pub(crate) entries: Vec<BranchEntry>,
}

/// The stacks of a recording of the test machine's CPUs.
pub(crate) fn stacks(file: &Path) -> Vec<Read> {
    let (stacks, desc) = read(file);
    assert!(desc.contains("emulated CPU (TCG), cycles and predictions modelled"), "{desc}");
    stacks
}

/// The stacks of a recording, and its CPU in words.
pub(crate) fn read(file: &Path) -> (Vec<Read>, String) {
    let mut recording = Recording::open(file).unwrap();
    let mut stacks = Vec::new();
    while let Some(item) = recording.next_item().unwrap() {
        let Item::Stack(stack) = item else { continue };
        let sample = sample_of(&stack);
        stacks.push(Read {
            time: sample.time,
            pid: sample.pid,
            cpu: sample.cpu,
            head: sample.stack.integrity.head,
            cut: sample.stack.integrity.cut,
            label: sample.stack.integrity.label,
            entries: sample.stack.oldest_first().copied().collect(),
        });
    }
    let desc = recording.info().and_then(|info| info.cpudesc.clone()).unwrap_or_default();
    (stacks, desc)
}

pub(crate) fn text(out: &Path, name: &str) -> String {
    std::fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of a dump but for the top of stack, which is read-only and stays
/// where the last branch left it.
fn lines(dump: &str) -> Vec<serde_json::Value> {
    dump.lines()
        .map(|line| {
            let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = line.as_object_mut().unwrap();
            fields.remove("tos");
            fields.remove("slot");
            line
        })
        .collect()
}

fn check(cpu: &str, depth: usize) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let Some((graph, file)) = Graph::seeded(2_000_000, SLOW, out, "graph") else { return };
    // The same code for longer than it takes to attach to it.
    let Some((_, long)) = Graph::seeded(1_000_000_000, SLOW, out, "long") else { return };
    if machine(cpu, out, &[&file, &long], SCRIPT).is_none() {
        return;
    }
    let program = Program::read(&graph, &file);
    for (name, exit) in [("same", "9"), ("beside", "9"), ("raw", "9"), ("pid", "0"), ("whole", "0")]
    {
        let said = text(out, &format!("{name}.err"));
        assert_eq!(text(out, &format!("{name}.status")).trim(), exit, "{cpu} {name}: {said}");
        assert!(said.starts_with("lbr: recording on "), "{cpu} {name}: {said}");
        assert!(!said.contains("torn"), "{cpu} {name}: {said}");
        let stacks = stacks(&out.join(format!("{name}.data")));
        // Each access from another CPU is an interrupt, which takes long in emulation.
        let least = if name == "beside" { 0 } else { 20 };
        assert!(stacks.len() > least, "{cpu} {name}: {} stacks; {said}", stacks.len());
        let what = format!("{cpu} {name}");
        let mut joined = 0;
        let starts = stacks.first().is_some_and(|s| s.head == Head::Joined && !s.cut);
        let mut runs: Vec<Vec<(u64, u64)>> = Vec::new();
        let mut whole = 0;
        for stack in &stacks {
            let entries = &stack.entries;
            assert!(entries.len() <= depth && !entries.is_empty(), "{what}");
            assert!(!matches!(stack.label, Label::Torn | Label::Foreign | Label::Wiped));
            if name == "whole" {
                assert!(stack.pid == u32::MAX && stack.cpu < 2, "{what}");
                // Anybody's: what is the program's is checked.
                whole += u64::from(entries.iter().all(|e| program.decode(e.from) != Insn::Invalid));
                continue;
            }
            assert_eq!(stack.cpu, 1, "{what}");
            assert_eq!(stack.cut, name == "beside", "{what}");
            // A return from an interrupt breaks the way from TO to FROM.
            let near: Vec<BranchEntry> =
                entries.iter().filter(|entry| entry.from >> 63 == 0).copied().collect();
            if name != "raw" {
                assert_eq!(near.len(), entries.len(), "{what}: no_far");
                program.check_code(&near, true, &what);
            }
            if name == "pid" {
                continue; // where it was when we came is not known
            }
            let ends: Vec<(u64, u64)> = near.iter().map(|entry| (entry.from, entry.to)).collect();
            // A joined stack continues at the end of the previous one.
            match runs.last_mut().filter(|_| stack.head == Head::Joined && !stack.cut) {
                Some(run) => {
                    joined += 1;
                    run.extend(ends);
                }
                None => runs.push(ends),
            }
        }
        eprintln!("{what}: {} stacks, {joined} joined", stacks.len());
        program.check_path(&runs, starts, &format!("{what} {said}"));
        if name == "same" || name == "raw" {
            assert!(joined > 20, "{what}: {joined} joined; {said}");
        }
        if name == "whole" {
            assert!(whole > 0, "{what}: the program was not seen");
        }
    }
    let said = text(out, "same.err");
    assert!(said.contains("taints the kernel"), "announced before the first write: {said}");
    assert!(!text(out, "raw.err").contains("taints the kernel"), "it is tainted already");
    assert_eq!(text(out, "period.status").trim(), "2");
    assert!(text(out, "period.err").contains("--backend soft"), "{}", text(out, "period.err"));
    assert!(!out.join("period.data").exists());
    // Our bits as before, records cleared.
    let [before, after] = ["before.out", "after.out"].map(|name| lines(&text(out, name)));
    assert!(before.len() > depth / 2, "{cpu}: {before:?}");
    assert_eq!(before, after, "{cpu}");
}

#[test]
#[ignore = "a minute of an emulated CPU more: by hand"]
fn haswell() {
    check("06_3C", 16);
}

#[test]
fn skylake() {
    check("06_5E", 32);
}

#[test]
#[ignore = "a minute of an emulated CPU more: by hand"]
fn goldmont() {
    check("06_5C", 32);
}

#[test]
#[ignore = "a minute of an emulated CPU more: by hand"]
fn goldmont_plus() {
    check("06_7A", 32);
}

#[test]
fn nehalem() {
    check("06_1A", 16);
}

#[test]
fn sapphire_rapids() {
    check("06_8F", 32);
}

#[test]
fn zen_4() {
    check("19_11", 16);
}

#[test]
fn core_2_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "lbr record --backend msr -C 1 -j u -- ls / >/out/o 2>/out/e\necho $? >/out/status\n";
    if machine("06_0F", folder.path(), &[], script).is_none() {
        return;
    }
    let said = text(folder.path(), "e");
    assert_eq!(text(folder.path(), "status").trim(), "3", "{said}");
    assert!(said.contains("has no filter") && said.contains("--backend soft"), "{said}");
}
