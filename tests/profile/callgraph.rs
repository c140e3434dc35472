//! Call stacks recorded by perf.

use std::io::Cursor;

use lbr_msr::BranchFilter;
use lbr_msr::record::{
    BranchEntry, BranchType, Event, Head, Integrity, Label, MoveKind, Sample, Task, ThreadMove,
};
use profile::Recording;
use profile::callgraph::{CallGraph, DEEPEST, MISSING, Unit, score};
use profile::note::Source;
use profile::perf_data::Meta;

use crate::recorded::{entry, exact, jit, map, meta, sample, stream};

/// The events as `perf record --call-graph lbr` opens them.
fn call_stacks(events: &[Event]) -> Vec<u8> {
    let filter: BranchFilter = "stack,u".parse().unwrap();
    stream(Meta { filter, source: Source::Unsaid, ..meta() }, events)
}

/// The open calls from number `inner` to number `outer`: call n goes from function n to function n
/// + 1.
fn open(time: u64, inner: u64, outer: u64) -> Event {
    let calls = (outer..=inner).rev().map(|n| entry(0x1000 * n + 8, 0x1000 * (n + 1)));
    sample(time, calls.collect(), Integrity::UNKNOWN)
}

fn recording(bytes: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

fn count(bytes: &[u8], stitch: bool) -> CallGraph {
    profile::callgraph::counter(stitch).count(&mut recording(bytes), |_, _| {}).unwrap()
}

/// Each path with its count.
fn paths(graph: &CallGraph) -> Vec<(Vec<String>, u64)> {
    let nodes = graph.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
    let label = |function: usize| graph.functions[function].label();
    nodes.map(|(at, node)| (graph.path(at).into_iter().map(label).collect(), node.own)).collect()
}

/// A stack: the calling addresses, and the sampled address.
fn wanted(inner: u64, outer: u64, whole: bool) -> Vec<String> {
    let missing = (!whole).then(|| MISSING.to_owned());
    let calls = (outer..=inner).map(|n| format!("{:#x}", 0x1000 * n + 8));
    let stands = format!("{:#x}", 0x1000 * (inner + 1));
    missing.into_iter().chain(calls).chain([stands]).collect()
}

#[test]
fn full_stacks_have_callers_missing_until_they_are_stitched() {
    let stacks = [(31, 1), (32, 1), (33, 2), (40, 9), (140, 109)];
    let events: Vec<Event> =
        stacks.iter().zip(1..).map(|((inner, outer), time)| open(time, *inner, *outer)).collect();
    let bytes = call_stacks(&events);
    let graph = count(&bytes, false);
    assert_eq!((graph.unit, graph.total(), graph.complete), (Unit::Stacks, 5, false));
    // A full ring of 32 may or may not have lost calls.
    assert_eq!((graph.passage.truncated, graph.passage.completed), (4, 0));
    let mut plain: Vec<_> =
        stacks.map(|(inner, outer)| (wanted(inner, outer, inner < 32), 1)).into();
    let sorted = |graph: &CallGraph| {
        let mut found = paths(graph);
        found.sort();
        found
    };
    plain.sort();
    assert_eq!(sorted(&graph), plain);

    let stitched = count(&bytes, true);
    assert_eq!((stitched.passage.truncated, stitched.passage.completed), (4, 3));
    let mut whole: Vec<_> = stacks
        .map(|(inner, outer)| if inner < 100 { (inner, 1, true) } else { (inner, outer, false) })
        .map(|(inner, outer, whole)| (wanted(inner, outer, whole), 1))
        .into();
    whole.sort();
    assert_eq!(sorted(&stitched), whole);
    // One of five is right without stitching, four of five with it.
    let truth = [(31, 1), (32, 1), (33, 1), (40, 1), (140, 1)];
    let events: Vec<Event> = truth.iter().zip(1..).map(|(s, time)| open(time, s.0, s.1)).collect();
    // A deeper ring than any hardware has.
    let mut truth = count(&call_stacks(&events), true);
    assert_eq!(truth.passage.truncated, 1);
    // The second stack fills a ring of 32 and is placed below the missing callers.
    assert!((score(&stitched, &truth).unwrap() - 0.8).abs() < 1e-9);
    assert!((score(&graph, &truth).unwrap() - 0.2).abs() < 1e-9);
    truth.nodes.truncate(1);
    assert_eq!([score(&graph, &truth), score(&truth, &graph)], [None, None]);
}

/// The previous stack was itself full: callers of both are missing.
#[test]
fn a_stack_extended_by_a_truncated_one_is_truncated() {
    let graph = count(&call_stacks(&[open(1, 40, 9), open(2, 42, 11)]), true);
    let passage = &graph.passage;
    assert_eq!((passage.truncated, passage.completed, passage.lengthened), (2, 0, 1));
    let mut found = paths(&graph);
    found.sort_by_key(|(path, _)| path.len());
    assert_eq!(found, [(wanted(40, 9, false), 1), (wanted(42, 9, false), 1)]);
}

/// The missing frames fit exactly, or are one too many: a stitched stack has at most 1024 frames.
#[test]
fn a_stack_is_extended_to_1024_frames() {
    for (inner, outer, (completed, lengthened)) in [(1024, 993, (1, 0)), (1025, 994, (0, 1))] {
        let passage = count(&call_stacks(&[open(1, 1000, 1), open(2, inner, outer)]), true).passage;
        assert_eq!((passage.completed, passage.lengthened), (completed, lengthened), "{inner}");
    }
}

/// Of an LBR with 16 records, a stack of 16 may have lost calls; of a deeper one it has not.
#[test]
fn a_stack_is_full_if_none_is_deeper() {
    let truncated = |stacks: &[(u64, u64)]| {
        let events =
            stacks.iter().zip(1..).map(|((inner, outer), time)| open(time, *inner, *outer));
        count(&call_stacks(&events.collect::<Vec<_>>()), false).passage.truncated
    };
    assert_eq!(truncated(&[(15, 1), (16, 1)]), 1);
    assert_eq!(truncated(&[(17, 1), (16, 1)]), 0);
    assert_eq!(truncated(&[(32, 1), (16, 1)]), 1);
    // Another recording may be of another CPU.
    let mut counter = profile::callgraph::counter(false);
    for inner in [17, 16] {
        let bytes = call_stacks(&[open(1, inner, 1)]);
        counter.recording(&mut recording(&bytes), |_, _| {}).unwrap();
    }
    assert_eq!(counter.finish().passage.truncated, 1);
}

/// The kernel ran for the program: its frame is above the program's.
#[test]
fn where_it_stood_is_the_innermost_frame() {
    const KERNEL: u64 = 1 << 63;
    let mut kernel = open(1, 2, 1);
    let mut tail = open(2, 2, 1);
    // The kernel called another kernel function.
    let mut inside = sample(3, vec![entry(0x1008, KERNEL + 0x100)], Integrity::UNKNOWN);
    if let (Event::Sample(kernel), Event::Sample(tail), Event::Sample(inside)) =
        (&mut kernel, &mut tail, &mut inside)
    {
        (kernel.ip, inside.ip) = (KERNEL, KERNEL);
        // A tail call continued elsewhere.
        tail.ip = 0x9000;
    }
    let graph = count(&call_stacks(&[kernel, tail, inside]), false);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut found = paths(&graph);
    found.sort();
    let wanted: [(Vec<String>, u64); 3] = [
        (names(&["0x1008", "0x2008", "0x3000", "0x8000000000000000"]), 1),
        (names(&["0x1008", "0x2008", "0x9000"]), 1),
        (names(&["0x1008", "0x8000000000000000"]), 1),
    ];
    assert_eq!(found, wanted);
}

/// A stack without a call counts for the outermost function, also before that is known, unless the
/// recorder says which function was executing. A full stack may lack the outermost function.
#[test]
fn empty_stacks_are_the_outermost_function() {
    let empty = |time: u64| sample(time, Vec::new(), Integrity::UNKNOWN);
    let events = [empty(1), open(2, 40, 9), empty(3), open(4, 2, 1), empty(5)];
    let graph = count(&call_stacks(&events), false);
    assert_eq!(graph.total(), 5);
    let mut found = paths(&graph);
    found.sort_by_key(|(path, _)| path.len());
    let outermost = vec!["0x1008".to_owned()];
    assert_eq!(found, [(outermost, 3), (wanted(2, 1, true), 1), (wanted(40, 9, false), 1)]);
    // The first executed a function without an open call, which need not be the outermost.
    let mut first = empty(1);
    let Event::Sample(sample) = &mut first else { unreachable!() };
    sample.ip = 0x9000;
    let mut found = paths(&count(&call_stacks(&[first, empty(2), open(3, 2, 1)]), false));
    found.sort();
    let one = |name: &str| (vec![name.to_owned()], 1);
    assert_eq!(found, [one("0x1008"), (wanted(2, 1, true), 1), one("0x9000")]);
}

/// Each thread has its own outermost function, whichever thread comes next.
#[test]
fn each_thread_has_its_outermost_function() {
    let of = |event: Event, thread| {
        let Event::Sample(sample) = event else { unreachable!() };
        Event::Sample(Sample { tid: thread, ..sample })
    };
    let empty = |thread| of(sample(3, Vec::new(), Integrity::UNKNOWN), thread);
    let events = [of(open(1, 2, 1), 101), of(open(2, 12, 11), 102), empty(101), empty(102)];
    let mut found = paths(&count(&call_stacks(&events), false));
    found.sort();
    let outermost = |name: &str| (vec![name.to_owned()], 1);
    let (first, second) = ((wanted(2, 1, true), 1), (wanted(12, 11, true), 1));
    assert_eq!(found, [outermost("0x1008"), first, outermost("0xb008"), second]);
}

/// The inverted tree: the callers of the innermost function.
#[test]
fn inverted() {
    let graph = count(&call_stacks(&[open(1, 2, 1), open(2, 2, 2), open(3, 1, 1)]), false);
    let up = graph.inverted();
    let mut found = paths(&up);
    found.sort();
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let wanted: [(Vec<String>, u64); 3] = [
        (names(&["0x2000", "0x1008"]), 1),
        (names(&["0x3000", "0x2008"]), 1),
        (names(&["0x3000", "0x2008", "0x1008"]), 1),
    ];
    assert_eq!(found, wanted);
    // 0x2000 is innermost once, 0x3000 twice: once called by an outermost function, once not.
    let totals: Vec<_> = up.children()[0].iter().map(|&node| up.nodes[node].total).collect();
    assert_eq!((up.total(), totals), (3, vec![2, 1]));
    let sums = graph.sums();
    let total = |name: &str| {
        sums.iter().find(|s| graph.functions[s.function].label() == name).map(|s| (s.total, s.own))
    };
    assert_eq!((total("0x1008"), total("0x3000")), (Some((2, 0)), Some((2, 2))));
    // Of equal totals, the one that counts for itself is first.
    let order: Vec<_> = sums.iter().map(|sum| (sum.total, sum.own)).collect();
    assert_eq!(order, [(2, 2), (2, 0), (2, 0), (1, 1)]);
}

/// A function that is open three times, in one stack of two.
#[test]
fn a_recursion_counts_once() {
    let call = |from| sample(1, vec![entry(from, 0x1000); 2], Integrity::UNKNOWN);
    let graph = count(&call_stacks(&[call(0x1000), call(0x2000)]), false);
    let label = |function: usize| graph.functions[function].label();
    let sums = graph.sums();
    let sums: Vec<_> = sums.iter().map(|sum| (label(sum.function), sum.total, sum.own)).collect();
    assert_eq!(sums, [("0x1000".to_owned(), 2, 2), ("0x2000".to_owned(), 1, 0)]);
    // 0x1000 calls itself in two contexts: directly, and more often from 0x3000.
    let inner = |from| vec![entry(from, 0x1000), entry(0x1000, from)];
    let calls = [inner(0x1000), inner(0x3000), inner(0x3000)];
    let stacks = calls.map(|calls| sample(1, calls, Integrity::UNKNOWN));
    let graph = count(&call_stacks(&stacks), false);
    assert_eq!(graph.sums().iter().map(|sum| sum.total).collect::<Vec<_>>(), [3, 2]);
    let outermost = graph.children()[0][0];
    let totals: Vec<_> =
        graph.children()[outermost].iter().map(|&node| graph.nodes[node].total).collect();
    assert_eq!(totals, [2, 1]);
}

/// A context has at most 1024 frames, and an inverted one 64. By hand: 1100 calls are of 1101
/// functions.
#[test]
fn deep_stacks_are_cut() {
    let graph = count(&call_stacks(&[open(1, 1100, 1)]), false);
    assert_eq!((DEEPEST, graph.passage.folded), (1024, 1101 - 1024));
    let [(path, 1)] = &paths(&graph)[..] else { panic!("{:?}", paths(&graph)) };
    assert_eq!(path[..], wanted(1100, 1, true)[..1024]);
    let [(path, 1)] = &paths(&graph.inverted())[..] else { panic!("one path") };
    assert_eq!(path.len(), 64);
}

/// Without types or code, a branch into the kernel is a call, and one out of it a return: after a
/// system call to the next instruction, after an interrupt to the interrupted one.
#[test]
fn untyped_branches_into_the_kernel_are_calls() {
    const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;
    for back in [0x1022, 0x1020] {
        let branches =
            [(0x1000, 0x1010), (0x1020, KERNEL), (KERNEL + 0x40, back), (0x1030, 0x1040)];
        let branches = branches.map(|(from, to)| entry(from, to));
        let newest_first = branches.into_iter().rev().collect();
        let graph = count(&stream(meta(), &[sample(1, newest_first, exact())]), false);
        // A branch is counted where it comes from.
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let kernel = path(&["0x1000", "0xffffffff81000000"]);
        assert_eq!(paths(&graph), [(path(&["0x1000"]), 3), (kernel, 1)], "{back:#x}");
        let passage = &graph.passage;
        assert_eq!((passage.underflow, passage.untyped, passage.unmatched), (0, 2, 0), "{back:#x}");
    }
}

/// perf's types of calls and returns, those of the kernel and of other architectures too.
#[test]
fn every_type_of_call_and_return_is_replayed() {
    for (call, ret) in [
        (BranchType::CALL, BranchType::RET),
        (BranchType::IND_CALL, BranchType::RET),
        (BranchType::COND_CALL, BranchType::COND_RET),
        (BranchType::SYSCALL, BranchType::SYSRET),
        (BranchType::IRQ, BranchType::ERET),
        (BranchType::SERROR, BranchType::ERET),
    ] {
        let typed = |from, to, branch_type| BranchEntry {
            branch_type: Some(branch_type),
            ..entry(from, to)
        };
        let newest_first = vec![
            typed(0x1030, 0x1040, BranchType::COND),
            typed(0x5040, 0x1022, ret),
            typed(0x1020, 0x5000, call),
        ];
        let graph = count(&stream(meta(), &[sample(1, newest_first, exact())]), false);
        let caller = vec!["0x1020".to_owned()];
        let called = [&caller[..], &["0x5000".to_owned()]].concat();
        assert_eq!(paths(&graph), [(caller, 2), (called, 1)], "{call:?} {ret:?}");
        let passage = &graph.passage;
        assert_eq!((passage.untyped, passage.unmatched, passage.unseen_calls), (0, 0, 0));
    }
}

/// Branches with types, oldest first.
fn typed(branches: &[(u64, u64, BranchType)]) -> Event {
    let entries = branches.iter().rev().map(|&(from, to, branch_type)| BranchEntry {
        branch_type: Some(branch_type),
        ..entry(from, to)
    });
    sample(1, entries.collect(), exact())
}

/// The longest instruction of x86 has 15 bytes (SDM volume 2, 2.3.11): a return to a later address
/// is not that of the call.
#[test]
fn a_return_is_at_most_15_bytes_after_its_call() {
    for (length, unmatched) in [(15, 0), (16, 1)] {
        let branches =
            [(0x1020, 0x5000, BranchType::CALL), (0x5040, 0x1020 + length, BranchType::RET)];
        let graph = count(&stream(meta(), &[typed(&branches)]), false);
        assert_eq!(graph.passage.unmatched, unmatched, "{length}");
    }
}

/// `call` to the next instruction, which reads its own address, has no return.
#[test]
fn a_call_of_the_next_instruction_is_a_jump() {
    let depth = |to: u64| {
        let branches = [(0x1020, to, BranchType::CALL), (0x1030, 0x1040, BranchType::COND)];
        let graph = count(&stream(meta(), &[typed(&branches)]), false);
        paths(&graph).iter().map(|(path, _)| path.len()).max()
    };
    // Its length is 5.
    assert_eq!([depth(0x1025), depth(0x1026)], [Some(1), Some(2)]);
}

/// A new thread with the number of one that ended has none of its callers.
#[test]
fn a_thread_that_ended_gives_no_callers() {
    let ended = Event::Exit(Task { time: 2, pid: 100, tid: 101, ppid: 100, ptid: 100 });
    let completed = |events: &[Event]| count(&call_stacks(events), true).passage.completed;
    assert_eq!(completed(&[open(1, 31, 1), open(3, 33, 2)]), 1);
    assert_eq!(completed(&[open(1, 31, 1), ended, open(3, 33, 2)]), 0);
}

/// A thread of another recording with the same number has neither its callers nor its outermost
/// function.
#[test]
fn a_thread_is_of_one_recording() {
    let both = |first: Event, second: &[Event]| {
        let mut counter = profile::callgraph::counter(true);
        for events in [&[first], second] {
            counter.recording(&mut recording(&call_stacks(events)), |_, _| {}).unwrap();
        }
        counter.finish()
    };
    let graph = both(open(1, 31, 1), &[open(1, 33, 2)]);
    assert_eq!((graph.passage.truncated, graph.passage.completed), (1, 0));
    let empty = sample(1, Vec::new(), Integrity::UNKNOWN);
    let mut found = paths(&both(open(1, 2, 1), &[empty, open(2, 12, 11)]));
    found.sort();
    let outermost = (vec!["0xb008".to_owned()], 1);
    assert_eq!(found, [(wanted(2, 1, true), 1), outermost, (wanted(12, 11, true), 1)]);
}

/// The caller of a branch is known at the start of a thread, and unknown after lost branches.
#[test]
fn a_branch_after_lost_ones_has_no_known_caller() {
    let stack = |head| sample(1, vec![entry(0x1008, 0x1010)], Integrity { head, ..exact() });
    for heads in [[Head::Joined, Head::Lost], [Head::Lost, Head::Joined]] {
        let mut events = heads.map(stack);
        let [_, Event::Sample(second)] = &mut events else { unreachable!() };
        second.tid += 1;
        let graph = count(&stream(meta(), &events), false);
        assert!(!graph.complete);
        let mut found = paths(&graph);
        found.sort_by_key(|(path, _)| path.len());
        let known = vec!["0x1008".to_owned()];
        let unknown = vec![MISSING.to_owned(), "0x1008".to_owned()];
        assert_eq!(found, [(known, 1), (unknown, 1)], "{heads:?}");
    }
}

/// A call, a call inside it, and the returns of both. Call stacks taken after each of the four are
/// the same contexts. Neither graph counts the last, which has no open call.
#[test]
fn a_replay_has_the_stacks_after_each_call_and_return() {
    let (outer, inner) = (entry(0x1008, 0x2000), entry(0x2000, 0x3000));
    let branches = [
        (0x1008, 0x2000, BranchType::CALL),
        (0x2000, 0x3000, BranchType::CALL),
        (0x3004, 0x2002, BranchType::RET),
        (0x2004, 0x100A, BranchType::RET),
    ];
    let replay = count(&stream(meta(), &[typed(&branches)]), false);
    assert_eq!((replay.unit, replay.complete), (Unit::Branches, true));
    let stacks = [vec![outer], vec![inner, outer], vec![outer], vec![]];
    for last_ip in [0, 0x100A] {
        let mut stacks = stacks.clone().map(|calls| sample(1, calls, Integrity::UNKNOWN));
        let [.., Event::Sample(last)] = &mut stacks else { unreachable!() };
        last.ip = last_ip;
        let score = score(&count(&call_stacks(&stacks), false), &replay).unwrap();
        assert!((score - 1.0).abs() < 1e-9, "{score}");
    }
}

/// A return of a call before the recording: the function that it returns to has unknown callers.
#[test]
fn a_return_of_an_unseen_call_leaves_the_callers_unknown() {
    let branches = [(0x3010, 0x1018, BranchType::RET), (0x1020, 0x1030, BranchType::COND)];
    let graph = count(&stream(meta(), &[typed(&branches)]), false);
    let unknown = vec![MISSING.to_owned(), "0x1018".to_owned()];
    assert_eq!(paths(&graph), [(vec!["0x3010".to_owned()], 1), (unknown, 1)]);
    assert_eq!(graph.passage.unseen_calls, 1);
}

/// Returns have emptied an LBR stack that had overflowed.
#[test]
fn callers_are_missing_after_an_underflow() {
    let meta = Meta { filter: "stack,u".parse().unwrap(), ..meta() };
    for underflow in [false, true] {
        let integrity = Integrity { label: Label::Snapshot, underflow, ..exact() };
        let calls = vec![entry(0x1008, 0x2000)];
        let graph = count(&stream(meta.clone(), &[sample(1, calls, integrity)]), false);
        assert_eq!(graph.passage.underflow, u64::from(underflow));
        assert_eq!(paths(&graph), [(wanted(1, 1, !underflow), 1)]);
        assert!(!graph.complete);
    }
}

/// Without returns, no branch can be replayed.
#[test]
fn calls_without_returns_give_no_complete_graph() {
    let filter: BranchFilter = "any_call,u".parse().unwrap();
    let stack = sample(1, vec![entry(0x1008, 0x2000)], exact());
    let graph = count(&stream(Meta { filter, ..meta() }, &[stack]), false);
    assert_eq!((graph.passage.unusable, graph.total(), graph.complete), (1, 0, false));
}

/// The call graph of branches in the functions f, f.cold and g at 0x1000, 0x2000 and 0x3000.
fn of_functions(branches: &[(u64, u64, BranchType)]) -> CallGraph {
    let (_names, sources) = jit("1000 40 f\n2000 40 f.cold\n3000 40 g\n");
    let bytes = stream(meta(), &[map("//anon", 0x1000, 0x3000, 0), typed(branches)]);
    let mut counter = profile::callgraph::counter(false);
    counter.maps().set_sources(sources);
    counter.count(&mut recording(&bytes), |_, _| {}).unwrap()
}

/// A jump to the cold part of a function is not a tail call, nor is one back.
#[test]
fn a_cold_part_is_in_its_function() {
    for (from, to, tail_calls) in [(0x1000, 0x2000, 0), (0x2000, 0x1000, 0), (0x1000, 0x3000, 1)] {
        let jump = |from, to| (from, to, BranchType::UNCOND);
        let graph = of_functions(&[jump(from + 4, from + 8), jump(from + 0x10, to)]);
        assert_eq!(graph.passage.tail_calls, tail_calls, "{from:#x} to {to:#x}");
        let label = |at: u64| ["f", "f.cold", "g"][(at >> 12) as usize - 1].to_owned();
        let labels: Vec<_> = graph.functions.iter().map(|function| function.label()).collect();
        assert_eq!(labels, [MISSING.to_owned(), label(from), label(to)]);
    }
}

/// f calls g, which continues in f.cold at its first instruction and there calls g: by hand, the
/// branches taken in each function, and the calls to it. A replaced outermost function has no caller
/// to return to.
#[test]
fn a_tail_call_replaces_the_caller() {
    let graph = of_functions(&[
        (0x1010, 0x3000, BranchType::CALL),
        (0x3010, 0x2000, BranchType::UNCOND),
        (0x2010, 0x3000, BranchType::CALL),
    ]);
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let found = [path(&["f"]), path(&["f", "g"]), path(&["f", "f.cold"])].map(|path| (path, 1));
    assert_eq!(paths(&graph), found);
    let label = |function: usize| graph.functions[function].label();
    let mut sums: Vec<_> =
        graph.sums().iter().map(|sum| (label(sum.function), sum.own, sum.calls)).collect();
    sums.sort();
    let sum = |name: &str, own, calls| (name.to_owned(), own, calls);
    assert_eq!(sums, [sum("f", 1, 0), sum("f.cold", 1, 1), sum("g", 1, 2)]);
    let graph =
        of_functions(&[(0x1010, 0x3000, BranchType::UNCOND), (0x3010, 0x3020, BranchType::UNCOND)]);
    assert_eq!(paths(&graph), [(path(&["f"]), 1), (path(&["g"]), 1)]);
    // A function that took no branch is listed with its calls.
    let sums = of_functions(&[(0x1010, 0x3000, BranchType::CALL)]).sums();
    assert_eq!(sums.iter().map(|s| (s.total, s.calls)).collect::<Vec<_>>(), [(1, 0), (0, 1)]);
}

/// A jump from g into the middle of f leaves the frames inside the innermost frame of f.
#[test]
fn a_longjmp_leaves_the_frames_inside_its_target() {
    let call = |from, to| (from, to, BranchType::CALL);
    let (f_to_g, g_to_g, g_to_f) =
        (call(0x1010, 0x3000), call(0x3010, 0x3000), call(0x3010, 0x1000));
    let jump = (0x3020, 0x1018, BranchType::IND);
    for (branches, unwound) in
        [(vec![f_to_g, g_to_g, jump], 2), (vec![f_to_g, g_to_f, f_to_g, jump], 1)]
    {
        let passage = of_functions(&branches).passage;
        assert_eq!((passage.unwound, passage.tail_calls), (unwound, 0), "{branches:x?}");
    }
    // So does a return that is not after a call.
    let passage = of_functions(&[f_to_g, g_to_g, (0x3020, 0x1030, BranchType::RET)]).passage;
    assert_eq!((passage.unmatched, passage.unwound), (1, 2));
}

/// A signal interrupts a function that was called: when the handler returns, the function still
/// has its caller, wherever the stack ends, also in a later one, whose branches nothing interrupts.
#[test]
fn a_handlers_return_leaves_the_callers_known() {
    let typed =
        |from, to, branch_type| BranchEntry { branch_type: Some(branch_type), ..entry(from, to) };
    // Newest first.
    let entries = [
        typed(0x2008, 0x3000, BranchType::CALL),
        typed(0x9018, 0x9100, BranchType::RET),
        typed(0x9008, 0x9010, BranchType::UNCOND),
        typed(0x1008, 0x2000, BranchType::CALL),
    ];
    // Before the branch with this number of newer ones.
    let moves = [
        (4, MoveKind::Start, 0, 0x1000),
        (3, MoveKind::Signal, 0x2004, 0x9000),
        (1, MoveKind::Return, 0x9108, 0x2004),
    ];
    // Offsets in the file, by the branches that each took.
    let expected: [(&[&str], u64); 4] = [
        (&["program+0x8"], 1),
        (&["program+0x8", "program+0x1000"], 1),
        (&["program+0x8008"], 2),
        (&["program+0x8", "program+0x1000", "program+0x2000"], 1),
    ];
    let expected =
        expected.map(|(path, own)| (path.iter().map(|&name| name.into()).collect(), own));
    for cut in [0, 1, 3] {
        let (late, early) = entries.split_at(cut as usize);
        let stack = |time, entries: &[BranchEntry], newer: std::ops::RangeInclusive<u32>| {
            let mut event = sample(time, entries.to_vec(), exact());
            let Event::Sample(sample) = &mut event else { unreachable!() };
            let here = moves.iter().filter(|(number, ..)| newer.contains(number));
            sample.stack.moves = here
                .map(|&(number, kind, from, to)| ThreadMove {
                    newer: number - newer.start(),
                    kind,
                    from,
                    to,
                })
                .collect();
            event
        };
        let program = map("/nowhere/program", 0x1000, 0x9000, 0);
        let next = sample(3, vec![typed(0x3008, 0x4000, BranchType::CALL)], exact());
        let (early, late) = (stack(1, early, cut..=4), stack(2, late, 0..=cut.saturating_sub(1)));
        let graph = count(&stream(meta(), &[program, early, late, next]), false);
        assert_eq!(paths(&graph), expected, "{cut}");
    }
}

/// Two more signals interrupt the first instruction of the handler, one after the other: each
/// return continues the innermost.
#[test]
fn signals_at_one_instruction_return_one_by_one() {
    let call = |from, to| BranchEntry { branch_type: Some(BranchType::CALL), ..entry(from, to) };
    // Newest first.
    let mut nested = sample(1, vec![call(0x2008, 0x3000), call(0x1008, 0x2000)], exact());
    let Event::Sample(first) = &mut nested else { unreachable!() };
    let moved = |newer, kind, from, to| ThreadMove { newer, kind, from, to };
    first.stack.moves = vec![
        moved(2, MoveKind::Start, 0, 0x1000),
        moved(1, MoveKind::Signal, 0x2004, 0x9000),
        moved(1, MoveKind::Signal, 0x9000, 0x9000),
        moved(1, MoveKind::Signal, 0x9000, 0x9000),
        moved(1, MoveKind::Return, 0x9010, 0x9000),
        moved(1, MoveKind::Return, 0x9010, 0x9000),
        moved(1, MoveKind::Return, 0x9010, 0x2004),
    ];
    let graph = count(&stream(meta(), &[nested]), false);
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(paths(&graph), [(path(&["0x1008"]), 1), (path(&["0x1008", "0x2000"]), 1)]);
}
