//! Perf events of the test machine, whose unmodified kernel reads the modelled LBR at its counter's
//! interrupt: `lbr record --backend perf` as an ordinary user, and Debian's `perf record -b`. Their
//! results are compared with the program's path, and with recordings of the same program by the msr
//! driver and the software LBR.

use std::collections::{HashMap, HashSet};

use lbr_msr::record::{BranchEntry, Head, Label};

use super::graph::Graph;
use super::guest_complete::software;
use super::guest_record::{Program, Read, SLOW, machine_with, read, stacks, text};

const SCRIPT: &str = r#"
echo 'tester:x:1000:1000::/:/bin/sh' >/etc/passwd
[ -e /bin/sh ] || ln -s busybox /bin/sh
chmod 777 /out
try() {
  name=$1
  shift
  "$@" >/out/$name.out 2>/out/$name.err
  echo $? >/out/$name.status
}
user() { su -s /bin/sh tester -c "$*"; }
try msr lbr record --backend msr -C 1 -o /out/msr.data -- /work/graph
echo 2 >/proc/sys/kernel/perf_event_paranoid
try perf user lbr record --backend perf -c 4999 -o /out/perf.data -- /work/graph
try auto user lbr record -c 49999 -o /out/auto.data -- /work/graph
try calls user lbr record --backend perf -c 49999 -j any_call,u -o /out/calls.data -- /work/graph
try kernel user lbr record --backend perf -j any,k -o /out/kernel.data -- /work/graph
try whole user lbr record --backend perf -C 0,1 --for 100 -o /out/whole.data
# It runs all the time: on a busy host, two seconds are few branches.
/work/long & long=$!
try all lbr record --backend perf -C 0,1 -c 49999 --for 2000 -j any -o /out/all.data
kill $long
# Linux would lower its rate, as each of the emulated registers takes so long.
# The rate first: it cannot be set any more afterwards.
echo 100000 >/proc/sys/kernel/perf_event_max_sample_rate
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
try linux perf record -q -b -e branches:u -c $PERIOD -o /out/linux.data /work/graph
try exec user lbr record --backend perf -o /out/exec.data -- /work/nothing
try children lbr record --backend perf --children -c 49999 -o /out/children.data -- sh -c '/work/graph; /work/graph'
try alone lbr record --backend perf -c 49999 -o /out/alone.data -- sh -c '/work/graph; exit 3'
# Stopped, it does not empty its ring buffer, of which no more is allowed.
echo 12 >/proc/sys/kernel/perf_event_mlock_kb
try lost user "ulimit -l 0; exec lbr record --backend perf -c 499 -o /out/lost.data -- /work/graph" & lost=$!
sleep 1
kill -STOP $(pidof lbr)
sleep 1
kill -CONT $(pidof lbr)
wait $lost
# Another's filter, which is not moved from the LBR.
/work/long & long=$!
try pid lbr record --backend perf -p $long -c 4999 --for 5000 -o /out/pid.data
perf record -q -j any_call,u -e branches:uD -c 1000003 -o /tmp/pinned.data -p $long & pinned=$!
until [ -s /tmp/pinned.data ]; do sleep 1; done
sleep 2
try shared lbr record --backend perf -p $long -c 4999 --for 1000 -o /out/shared.data
kill $pinned $long
"#;

/// From and to, and how often.
type Counts = HashMap<(u64, u64), u64>;

fn counted<'a>(edges: impl IntoIterator<Item = &'a (u64, u64)>) -> Counts {
    let mut counts = Counts::new();
    for edge in edges {
        *counts.entry(*edge).or_default() += 1;
    }
    counts
}

fn near(stack: &Read) -> Vec<BranchEntry> {
    stack.entries.iter().filter(|entry| entry.from >> 63 == 0).copied().collect()
}

fn ends(entries: &[BranchEntry]) -> Vec<(u64, u64)> {
    entries.iter().map(|entry| (entry.from, entry.to)).collect()
}

/// Each edge is on the path, and its share matches the path's, within the error for this number of
/// stacks: branches of one stack depend on each other.
fn check_shares(found: &Counts, truth: &Counts, stacks: usize, what: &str) {
    let (all, total) = (found.values().sum::<u64>() as f64, truth.values().sum::<u64>() as f64);
    for edge in found.keys() {
        assert!(truth.contains_key(edge), "{what}: the program has no {edge:x?}");
    }
    for (edge, count) in truth {
        let share = *count as f64 / total;
        let seen = found.get(edge).copied().unwrap_or(0) as f64 / all;
        // Five deviations, and the stacks at the two ends of the path.
        let ends = (2.0 / stacks as f64).max(0.002);
        let width = 5.0 * (share * (1.0 - share) / stacks as f64).sqrt() + ends;
        assert!((seen - share).abs() <= width, "{what}: {edge:x?}: {seen}, not {share} ± {width}");
    }
}

fn check(cpu: &str, depth: usize) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let Some((graph, file)) = Graph::seeded(2_000_000, SLOW, out, "graph") else { return };
    let Some((_, long)) = Graph::seeded(1_000_000_000, SLOW, out, "long") else { return };
    // More than 100,000 entries, no stack reaching back to the one before.
    let period = format!("PERIOD={}", if depth == 32 { 499 } else { 249 });
    let options = ["--perf", "--env", &period];
    if machine_with(&options, cpu, out, &[&file, &long], SCRIPT).is_none() {
        return;
    }
    let program = Program::read(&graph, &file);
    let truth = counted(&program.path);

    for (name, status) in [
        ("msr", 9),
        ("perf", 9),
        ("auto", 9),
        ("calls", 9),
        ("kernel", 4),
        ("whole", 4),
        ("all", 0),
        ("linux", 9),
        ("exec", 2),
        ("children", 9),
        ("alone", 3),
        ("lost", 9),
        ("pid", 0),
        ("shared", 0),
    ] {
        let said = text(out, &format!("{name}.err"));
        assert_eq!(
            text(out, &format!("{name}.status")).trim(),
            status.to_string(),
            "{name}: {said}"
        );
    }
    for (name, word) in [
        ("perf", "through perf_event_open, the program"),
        ("auto", "through perf_event_open"),
        ("kernel", "kernel.perf_event_paranoid is 2, which forbids branches of the kernel"),
        ("kernel", "kernel.perf_event_paranoid=1"),
        ("whole", "kernel.perf_event_paranoid is 2, which forbids recording whole CPUs"),
        ("all", "all that runs on CPU 0-1"),
        ("exec", "/work/nothing"),
        ("children", "the program and its children"),
        ("alone", "1 child process left alone"),
        ("pid", "process "),
    ] {
        let said = text(out, &format!("{name}.err"));
        assert!(said.contains(word), "{cpu} {name}: {said}");
    }

    let of_msr = stacks(&out.join("msr.data"));
    let of_perf = stacks(&out.join("perf.data"));
    let of_linux = read(&out.join("linux.data")).0;
    let entries = of_linux.iter().map(|stack| stack.entries.len()).sum::<usize>();
    assert!(entries > 100_000, "{cpu}: {entries} entries; {}", text(out, "linux.err"));
    for (name, stacks) in [("msr", &of_msr), ("perf", &of_perf), ("linux", &of_linux)] {
        let what = format!("{cpu} {name}");
        assert!(
            stacks.len() > 40,
            "{what}: {} stacks; {}",
            stacks.len(),
            text(out, &format!("{name}.err"))
        );
        let stacks: Vec<Vec<BranchEntry>> = stacks.iter().map(near).collect();
        // Plain `perf record -b` saves no types.
        let typed = name != "linux";
        stacks.iter().for_each(|entries| program.check_code(entries, typed, &what));
        let edges: Vec<_> = stacks.iter().flat_map(|entries| ends(entries)).collect();
        check_shares(&counted(&edges), &truth, stacks.len(), &what);
    }
    for stack in &of_perf {
        let is_one = stack.head == Head::Unknown && stack.cut && stack.label == Label::Stream;
        assert!(is_one && stack.pid > 1 && stack.entries.len() <= depth, "{cpu}");
    }
    for (name, stacks) in [("perf", &of_perf), ("linux", &of_linux)] {
        // perf writes what came of one CPU after the other, and the program moves.
        let mut stacks: Vec<_> = stacks.iter().collect();
        stacks.sort_by_key(|stack| stack.time);
        let runs: Vec<_> = stacks.into_iter().map(|stack| ends(&near(stack))).collect();
        program.check_path(&runs, false, &format!("{cpu} {name}"));
    }

    let calls = stacks(&out.join("calls.data"));
    let is_call = |from: u64| matches!(program.type_name(from), Some("CALL" | "IND_CALL"));
    let entries: Vec<_> = calls.iter().flat_map(near).collect();
    for entry in &entries {
        assert!(is_call(entry.from), "{cpu}: {entry:x?} is not a call");
    }
    // Not every graph has calls on its way.
    let has_calls = truth.iter().any(|((from, _), count)| is_call(*from) && *count > 1_000);
    let said = text(out, "calls.err");
    assert!(!has_calls || !entries.is_empty(), "{cpu}: no calls; {said}");
    // Anybody's: the program's among them, under its own number.
    let all = stacks(&out.join("all.data"));
    let is_its =
        |stack: &&Read| near(stack).iter().any(|entry| truth.contains_key(&(entry.from, entry.to)));
    assert!(all.iter().filter(is_its).count() > 0, "{cpu}: the program is not among {}", all.len());
    assert!(all.iter().flat_map(|stack| &stack.entries).any(|entry| entry.to >> 63 == 1), "{cpu}");

    let pids = |name: &str| {
        let stacks = stacks(&out.join(name));
        stacks.iter().map(|stack| stack.pid).collect::<HashSet<_>>().len()
    };
    assert!(pids("children.data") >= 2, "{cpu}: the two runs of the program");
    assert_eq!(pids("pid.data"), 1, "{cpu}: the process that was asked for");
    let said = text(out, "lost.err");
    assert!(!said.contains("the kernel lost 0 records"), "{cpu}: {said}");
    // AMD's driver lets the last filter win.
    let said = text(out, "shared.err");
    let kept_out = said.contains("it recorded for 0% of the time, as others use the counters");
    assert!(cpu == "19_11" || kept_out, "{cpu}: {said}");

    // The same program on the software LBR, here: all of its path.
    if let Some(path) = software(&file, out) {
        assert_eq!(counted(&path), truth);
    }
}

#[test]
#[ignore = "minutes of an emulated CPU more: by hand"]
fn haswell() {
    check("06_3C", 16);
}

#[test]
fn skylake() {
    check("06_5E", 32);
}

#[test]
#[ignore = "minutes of an emulated CPU more: by hand"]
fn goldmont_plus() {
    check("06_7A", 32);
}

#[test]
#[ignore = "minutes of an emulated CPU more: by hand"]
fn sapphire_rapids() {
    check("06_8F", 32);
}

#[test]
fn zen_4() {
    check("19_11", 16);
}
