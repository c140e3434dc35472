//! Complete parts of recordings on the test machine: if no taken branch is missing, each block of a
//! program must be counted as often as in the software LBR's recording of all its branches.
//!
//! The part is determined without the recorded branches. A recording through perf events interrupts
//! the program after a fixed number of retired branches, taken or not, so the n-th interrupt gives
//! the position on the path; of its stack, the entries newer than the previous interrupt count. A
//! recording by the msr driver marks which stacks join.

use std::collections::HashMap;
use std::path::Path;

use lbr_msr::insn::Insn;
use lbr_msr::record::{BranchType, Head};

use super::graph::Graph;
use super::guest_record::{Program, Read, machine_with, read, stacks, text};
use crate::support::lbr::{lbr, stderr};
use crate::support::skip::skipped;

/// On an otherwise idle CPU (`isolcpus`), because Linux clears the branch records at each task
/// switch.
const SCRIPT: &str = r#"
try() {
  name=$1
  shift
  "$@" >/out/$name.out 2>/out/$name.err
  echo $? >/out/$name.status
}
try msr taskset 3 lbr record --backend msr -C 1 -o /out/msr.data -- /work/slow
echo 100000 >/proc/sys/kernel/perf_event_max_sample_rate
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
echo 8192 >/proc/sys/kernel/perf_event_mlock_kb
try perf taskset 3 lbr record --backend perf -C 1 -c $PERIOD -j any,u -o /out/perf.data -- /work/quick
try linux taskset 2 perf record -q -m 8M -b -e branches:u -c $PERIOD -o /out/linux.data /work/quick
"#;

type Edges = Vec<(u64, u64)>;

/// A contiguous sequence of branches, and its start on the path.
struct Part {
    at: usize,
    edges: Edges,
}

/// Fall-through ranges between two taken branches, with their counts.
fn blocks(edges: &[(u64, u64)]) -> HashMap<(u64, u64), u64> {
    let mut counts = HashMap::new();
    for pair in edges.windows(2) {
        *counts.entry((pair[0].1, pair[1].0)).or_default() += 1;
    }
    counts
}

/// The program's own branches, oldest first, without returns from the kernel.
fn near(stack: &Read) -> Edges {
    let own = stack.entries.iter().filter(|entry| entry.from >> 63 == 0);
    own.map(|entry| (entry.from, entry.to)).collect()
}

impl Program {
    /// For each of these branches, the number of retired branches, taken or not, up to it.
    fn retired(&self, path: &[(u64, u64)]) -> Vec<u64> {
        let (mut at, mut count) = (self.start(), 0);
        let upto = |&(from, to): &(u64, u64)| {
            while at != from {
                at = match self.decode(at) {
                    Insn::Straight { len } => at + u64::from(len),
                    Insn::Branch(branch) if branch.branch_type == BranchType::COND => {
                        count += 1;
                        branch.next()
                    }
                    other => panic!("{other:x?} at {at:#x} on the way to {from:#x}"),
                }
            }
            count += 1;
            at = to;
            count
        };
        path.iter().map(upto).collect()
    }
}

/// Concatenates stacks taken every `period` branches, by the count alone.
fn by_count(stacks: &[Read], retired: &[u64], period: u64, what: &str) -> Vec<Part> {
    let mut stacks: Vec<_> = stacks.iter().collect();
    stacks.sort_by_key(|stack| stack.time);
    let all = retired.last().copied().unwrap_or(0);
    // The last instruction, a SYSCALL, counts too.
    let expected = [all / period, (all + 1) / period].map(|count| count as usize);
    assert!(expected.contains(&stacks.len()), "{what}: {} stacks, not {expected:?}", stacks.len());
    let (mut parts, mut before) = (Vec::<Part>::new(), 0);
    for (n, stack) in stacks.into_iter().enumerate() {
        let until = retired.partition_point(|count| *count <= (n as u64 + 1) * period);
        let mut edges = near(stack);
        match parts.last_mut().filter(|_| edges.len() >= until - before) {
            Some(part) => part.edges.extend(edges.drain(edges.len() - (until - before)..)),
            // More branches may have been taken than the stack holds.
            None => {
                edges.drain(..edges.len().saturating_sub(until));
                parts.push(Part { at: until - edges.len(), edges });
            }
        }
        before = until;
    }
    parts
}

/// Concatenates stacks by their contiguity marks. A sequence that does not start with the program
/// is located by its first branches.
fn by_head(stacks: &[Read], path: &[(u64, u64)]) -> Vec<Part> {
    const FEW: usize = 16;
    let mut runs: Vec<(bool, Edges)> = Vec::new();
    for (n, stack) in stacks.iter().enumerate() {
        let joins = stack.head == Head::Joined && !stack.cut;
        match runs.last_mut().filter(|_| joins) {
            Some((_, edges)) => edges.extend(near(stack)),
            None => runs.push((joins && n == 0, near(stack))),
        }
    }
    let place = |(starts, edges): (bool, Edges)| {
        let first = edges.get(..FEW)?;
        let mut places = (0..path.len()).filter(|&at| path[at..].starts_with(first));
        let at = if starts { 0 } else { places.next()? };
        (starts || places.next().is_none()).then_some(Part { at, edges })
    };
    runs.into_iter().filter_map(place).collect()
}

/// Checks that each part has the same block counts as the path there; returns the number of
/// branches.
fn check_blocks(parts: &[Part], path: &[(u64, u64)], what: &str) -> usize {
    let mut covered = 0;
    for Part { at, edges } in parts {
        let there = path.get(*at..at + edges.len()).unwrap_or_default();
        assert_eq!(blocks(edges), blocks(there), "{what}: {} branches from {at} on", edges.len());
        covered += edges.len();
    }
    eprintln!("{what}: {covered} of {} branches in {} parts", path.len(), parts.len());
    covered
}

fn check(cpu: &str, period: u64) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let Some((_, slow_file)) = Graph::seeded(1_000, (1_000, 300_000), out, "slow") else { return };
    let Some((quick, quick_file)) = Graph::seeded(20_000, (0, 64), out, "quick") else { return };
    let Some(of_slow) = software(&slow_file, out) else { return };
    let Some(of_quick) = software(&quick_file, out) else { return };
    let period_is = format!("PERIOD={period}");
    let options = ["--perf", "--append", "isolcpus=1", "--env", &period_is];
    if machine_with(&options, cpu, out, &[&slow_file, &quick_file], SCRIPT).is_none() {
        return;
    }
    for name in ["msr", "perf", "linux"] {
        let said = text(out, &format!("{name}.err"));
        assert_eq!(text(out, &format!("{name}.status")).trim(), "9", "{cpu} {name}: {said}");
    }
    let retired = Program::read(&quick, &quick_file).retired(&of_quick);
    let of_perf = stacks(&out.join("perf.data"));
    let of_linux = read(&out.join("linux.data")).0;
    for (name, stacks) in [("perf", of_perf), ("linux", of_linux)] {
        let what = format!("{cpu} {name}");
        let covered = check_blocks(&by_count(&stacks, &retired, period, &what), &of_quick, &what);
        assert!(covered * 2 > of_quick.len(), "{what}: {covered} branches");
    }
    let of_msr = stacks(&out.join("msr.data"));
    let covered = check_blocks(&by_head(&of_msr, &of_slow), &of_slow, &format!("{cpu} msr"));
    // Whether the drains keep up depends on the host.
    let deepest = of_msr.iter().map(|stack| stack.entries.len()).max().unwrap_or(0);
    if covered <= deepest {
        skipped(format!("{cpu} msr: the host is too slow for stacks that join"));
    }
}

/// All taken branches of the program, recorded by the software LBR under QEMU.
pub(crate) fn software(file: &Path, out: &Path) -> Option<Edges> {
    let data = out.join("soft.data");
    let (data, file) = (data.to_str().unwrap(), file.to_str().unwrap());
    let args = ["record", "--backend", "soft", "--source", "qemu", "-o", data, "--", file];
    let said = stderr(&lbr(&args));
    // QEMU or the plugin may be missing.
    if said.contains("--source qemu: ") {
        skipped(said);
        return None;
    }
    assert!(said.contains("complete: every taken branch"), "{said}");
    Some(read(Path::new(data)).0.iter().flat_map(near).collect())
}

#[test]
#[ignore = "a minute of an emulated CPU more: by hand"]
fn haswell() {
    // Linux makes what is left of one 32 or more there (hsw_limit_period).
    check("06_3C", 48);
}

#[test]
fn skylake() {
    check("06_5E", 16);
}

#[test]
#[ignore = "a minute of an emulated CPU more: by hand"]
fn goldmont_plus() {
    check("06_7A", 16);
}

#[test]
#[ignore = "a minute of an emulated CPU more: by hand"]
fn sapphire_rapids() {
    check("06_8F", 16);
}

#[test]
fn zen_4() {
    check("19_11", 8);
}
