//! The cleaning pass at its limits: where a stack continues another, which entries are dropped.

use std::io::Cursor;

use lbr_msr::record::{
    BranchEntry, Comm, Event, Integrity, Label, Lost, MoveKind, Task, ThreadMove,
};
use profile::flow::{Flow, FlowCounter};
use profile::interval::{Clusters, Interval};
use profile::maps::Maps;
use profile::note::{Moves, Source};
use profile::paths;
use profile::perf_data::Meta;
use profile::quality::{Periods, Quality};
use profile::{
    Cleaned, CommonResult, Counter, Entries, EntryFlags, RawBranch, RecordedBranches, Recording,
    SampleHead, Stack, View,
};

use crate::reader::Crafted;
use crate::recorded::{entry, exact, map, meta, sample, stream};
use crate::views::{AT, CODE, at, count, count_as, elf, ran, text};

fn recording(text: &str) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(text.as_bytes().to_vec()))).unwrap()
}

/// Whether the code between two stacks of one thread is a block, `between` them.
fn continues(first: Vec<BranchEntry>, between: &[Event]) -> bool {
    let second = vec![entry(at(0x24), at(0x30))];
    let mut events = vec![sample(1, first, exact())];
    events.extend_from_slice(between);
    events.push(sample(9, second, exact()));
    count(&events).blocks.iter().any(|block| (block.entry, block.exit) == (at(0x20), at(0x24)))
}

#[test]
fn a_stack_continues_the_one_before_unless_something_happened() {
    let first = || vec![entry(at(0x10), at(0x20))];
    assert!(continues(first(), &[]));
    let lost = |label| Lost { time: 2, pid: 0, tid: 0, cpu: 1, stacks: 1, label };
    // A loss without a reason may be of any thread.
    assert!(!continues(first(), &[Event::Lost(lost(None))]));
    let torn = |tid| Event::Lost(Lost { tid, ..lost(Some(Label::Torn)) });
    assert!(continues(first(), &[torn(102)]), "of another thread");
    assert!(!continues(first(), &[torn(101)]));
    assert!(continues(first(), &[sample(5, vec![], exact())]), "no branch was taken meanwhile");
    let comm = |exec| Comm { time: 2, pid: 100, tid: 101, comm: "other".to_owned(), exec };
    assert!(continues(first(), &[Event::Comm(comm(false))]), "only a new name");
    assert!(!continues(first(), &[Event::Comm(comm(true))]));
    let exit = |tid| Event::Exit(Task { time: 2, pid: 100, tid, ppid: 100, ptid: 100 });
    assert!(continues(first(), &[exit(102)]), "of another thread");
    assert!(!continues(first(), &[exit(101)]));
}

/// Two stacks with other events, or the start of another recording, between them.
fn parted(first: Event, second: Event) -> [Flow; 3] {
    let exit = Event::Exit(Task { time: 2, pid: 100, tid: 101, ppid: 100, ptid: 100 });
    let count_all = |recordings: &[&[Event]]| {
        let mut counter = FlowCounter::default();
        for events in recordings {
            let bytes = stream(meta(), events);
            let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap();
            counter.recording(&mut recording, |_, _| {}).unwrap();
        }
        counter.finish()
    };
    [
        count_all(&[&[first.clone(), second.clone()]]),
        count_all(&[&[first.clone(), exit, second.clone()]]),
        count_all(&[&[first], &[second]]),
    ]
}

/// The code before a thread's first branch and after its last one is unknown. A thread that ended,
/// and one of another recording, is not the one that has its number now.
#[test]
fn a_number_that_is_used_again_is_another_thread() {
    let stack = |time| ran(time, &[(0x10, 0x20)]);
    let open = parted(stack(1), stack(3)).map(|flow| flow.block_quality.open);
    assert_eq!(open, [2, 4, 4]);
}

/// A signal interrupts the code from 0x20 at 0x24. When its handler returns, this code continues,
/// but not in another thread.
#[test]
fn a_handler_returns_only_in_its_own_thread() {
    let moved = |event: Event, newer, kind, from, to| {
        let Event::Sample(mut sample) = event else { panic!("{event:?}") };
        sample.stack.moves = vec![ThreadMove { newer, kind, from: at(from), to: at(to) }];
        Event::Sample(sample)
    };
    let interrupted = moved(ran(1, &[(0x10, 0x20)]), 0, MoveKind::Signal, 0x24, 0x900);
    let back = moved(ran(3, &[(0x30, 0x40)]), 1, MoveKind::Return, 0x904, 0x24);
    let ends = |flow: Flow| -> Vec<_> {
        flow.blocks.iter().map(|block| (block.entry - at(0), block.exit - at(0))).collect()
    };
    let expected = [[(0x20, 0x30)], [(0x24, 0x30)], [(0x24, 0x30)]];
    assert_eq!(parted(interrupted, back).map(ends), expected);
}

/// The blocks of one branch with moves around it, and the number of places at which the end or the
/// start of straight-line code is unknown. The code is [`CODE`].
#[test]
fn code_that_no_branch_ends() {
    use MoveKind::{End, Return, Signal, SignalAtBranch, Start, Unknown};
    let (_dir, path) = elf(CODE);
    let mapped = map(&path, AT, 0x1000, 0x1000);
    let ran = |branch: Option<(u64, u64)>, moves: &[(u32, MoveKind, u64, u64)]| {
        let entries =
            branch.map(|(from, to)| BranchEntry { cycles: Some(7), ..entry(at(from), at(to)) });
        let mut event = sample(2000, entries.into_iter().collect(), exact());
        let Event::Sample(sample) = &mut event else { unreachable!() };
        let moved =
            |&(newer, kind, from, to)| ThreadMove { newer, kind, from: at(from), to: at(to) };
        sample.stack.moves = moves.iter().map(moved).collect();
        let flow = count(&[mapped.clone(), event]);
        let mut blocks: Vec<_> =
            flow.blocks.iter().map(|block| (block.entry - AT, block.exit - AT)).collect();
        blocks.sort_unstable();
        // The start of the recording, a signal and a return have no cycle count.
        assert!(flow.blocks.iter().all(|block| block.cycles.n() == 0));
        (blocks, flow.block_quality.open)
    };
    let start = (1, Start, 0, 0);
    // To the jump at 8, and then the two bytes at 2.
    assert_eq!(ran(Some((8, 0)), &[start, (0, End, 4, 0)]), (vec![(0, 3), (0, 8)], 0));
    // No instruction after the jump.
    assert_eq!(ran(Some((8, 0)), &[start, (0, End, 0, 0)]), (vec![(0, 8)], 0));
    // Code from 6 on cannot end at 4.
    assert_eq!(ran(Some((8, 6)), &[start, (0, End, 4, 0)]), (vec![(0, 8)], 0));
    // Without the end.
    assert_eq!(ran(Some((8, 0)), &[start]), (vec![(0, 8)], 1));
    // In a handler at 0xc.
    let signal = (0, Signal, 4, 0xc);
    let in_handler = (vec![(0, 3), (0, 8), (0xc, 0xc)], 0);
    assert_eq!(ran(Some((8, 0)), &[start, signal, (0, End, 0xe, 0)]), in_handler);
    // The branch at 8 executed, and its target is unknown.
    assert_eq!(
        ran(None, &[(0, Start, 0, 6), (0, SignalAtBranch, 8, 0xc), (0, End, 0xe, 0)]),
        (vec![(6, 7), (0xc, 0xc)], 1)
    );
    // The handler returns to where the signal was, or elsewhere.
    let begun = [(1, Start, 0, 0), (1, Signal, 4, 0xc)];
    let then = |back: &[(u32, MoveKind, u64, u64)]| {
        ran(Some((8, 0)), &[&begun[..], back, &[(0, End, 0, 0)]].concat())
    };
    assert_eq!(then(&[(1, Return, 0xe, 4)]), (vec![(0, 8), (0xc, 0xc)], 0));
    assert_eq!(then(&[(1, Return, 0xe, 6)]), (vec![(0, 3), (6, 8), (0xc, 0xc)], 0));
    // It gave up the interrupted code, which is not at 4 any more.
    let elsewhere = [(1, Return, 0xe, 6), (1, Signal, 8, 0xc), (1, Return, 0xe, 4)];
    assert_eq!(then(&elsewhere), (vec![(0, 3), (4, 8), (6, 7), (0xc, 0xc)], 0));
    // Of two signals at one instruction, the inner handler returns.
    let twice = [(1, Signal, 0xe, 2), (1, Signal, 4, 0xc), (1, Return, 0xe, 4)];
    assert_eq!(then(&twice), (vec![(0, 3), (2, 8), (0xc, 0xc)], 0));
    // 64 handlers may interrupt each other. With one more, the outermost code counts as left.
    let nested = |deeper: usize| {
        let (signals, returns) = ((1, Signal, 0xc, 0xc), (1, Return, 0xc, 0xc));
        let last = [(1, Return, 0xe, 4)];
        then(&[&vec![signals; deeper][..], &vec![returns; deeper], &last].concat())
    };
    assert_eq!(nested(63), (vec![(0, 8), (0xc, 0xc)], 0));
    assert_eq!(nested(64), (vec![(0, 3), (4, 8), (0xc, 0xc)], 0));
    // A thread that starts has no code to return to.
    let started = [(1, Start, 0, 0xc), (1, Return, 0xe, 4)];
    assert_eq!(then(&started), (vec![(0, 3), (4, 8), (0xc, 0xc)], 0));
    // The code after the return ends somewhere.
    assert_eq!(then(&[(1, Return, 0xe, 4), (1, Unknown, 0, 6)]), (vec![(6, 8), (0xc, 0xc)], 1));
}

/// The recorder does not know where a thread went: the code after its branch is open, and the next
/// stack continues nothing.
#[test]
fn nothing_continues_after_an_unknown_move() {
    let mut first = ran(1, &[(0x10, 0x20)]);
    let Event::Sample(sample) = &mut first else { unreachable!() };
    sample.stack.moves = vec![ThreadMove { newer: 0, kind: MoveKind::Unknown, from: 0, to: 0 }];
    let flow = count(&[first, ran(2, &[(0x24, 0x30)])]);
    assert!(flow.blocks.is_empty(), "{:?}", flow.blocks);
    // The thread's first code, the code after each branch.
    assert_eq!((flow.block_quality.open, flow.block_quality.crossing), (3, 0));
}

/// Between the branches that a filter records, code does not run straight: no move of the thread
/// ends any.
#[test]
fn moves_among_filtered_branches_end_no_code() {
    let (_dir, path) = elf(CODE);
    let moved = |newer, kind, to| ThreadMove { newer, kind, from: at(4), to: at(to) };
    let mut event = ran(2000, &[(8, 0)]);
    let Event::Sample(sample) = &mut event else { unreachable!() };
    sample.stack.moves = vec![moved(1, MoveKind::Start, 0), moved(0, MoveKind::End, 0)];
    let events = [map(&path, AT, 0x1000, 0x1000), event];
    for (filter, blocks) in [("any,u", 2), ("any_call,u", 0)] {
        let meta = Meta { filter: filter.parse().unwrap(), ..meta() };
        assert_eq!(count_as(meta, &events).blocks.len(), blocks, "{filter}");
    }
}

/// Collects whether each branch follows the previous one, and its cycles.
#[derive(Default)]
struct Followed(Vec<(bool, Option<u32>)>);

impl View for Followed {
    type Table = Vec<(bool, Option<u32>)>;

    fn stack(&mut self, stack: &Cleaned<'_>, _: &mut Maps) {
        self.0.extend(stack.transitions.iter().map(|step| (step.follows, step.cycles())));
    }

    fn finish(self, _: CommonResult) -> Self::Table {
        self.0
    }
}

/// A signal comes before the second branch, and the return of its handler before the third: neither
/// follows a branch, and their cycles started elsewhere. Another signal comes after the last branch,
/// so the next stack's first branch does not follow it.
#[test]
fn no_branch_follows_across_a_move() {
    let mut event = ran(1, &[(0x10, 0x20), (0x108, 0x110), (0x28, 0x30), (0x38, 0x40)]);
    let Event::Sample(sample) = &mut event else { unreachable!() };
    let moved = |newer, kind, from, to| ThreadMove { newer, kind, from: at(from), to: at(to) };
    sample.stack.moves = vec![
        moved(3, MoveKind::Signal, 0x24, 0x100),
        moved(2, MoveKind::Return, 0x118, 0x24),
        moved(0, MoveKind::Signal, 0x44, 0x100),
    ];
    sample.stack.entries.iter_mut().for_each(|entry| entry.cycles = Some(7));
    let next = ran(2, &[(0x108, 0x110), (0x118, 0x120)]);
    let mut recording =
        Recording::from_stream(Box::new(Cursor::new(stream(meta(), &[event, next])))).unwrap();
    let found = Counter::<Followed>::default().count(&mut recording, |_, _| {}).unwrap();
    let first = [(false, Some(7)), (false, None), (false, None), (true, Some(7))];
    assert_eq!(found, [&first[..], &[(false, None), (true, None)]].concat());
}

/// An empty newest entry: unknown code ran after the branch before it.
#[test]
fn nothing_continues_after_an_empty_newest_entry() {
    let branch = |from, to| RawBranch { from, to, flags: EntryFlags(0) };
    let parted = |between: &[Event], stacks: &[&[RawBranch]]| {
        let integrity = exact();
        let head = SampleHead { source: Source::Software, integrity, ..SampleHead::default() };
        let mut counter = FlowCounter::default();
        for entries in stacks {
            let (entries, moves) = (Entries::Parsed(entries), Moves::default());
            counter.stack(&Stack { head, entries, counters: None, registers: None, moves });
            between.iter().for_each(|event| counter.event(event));
        }
        counter.finish().blocks.len()
    };
    let blocks = |stacks: &[&[RawBranch]]| parted(&[], stacks);
    let (first, next) = (branch(0x10, 0x20), branch(0x24, 0x30));
    assert_eq!(blocks(&[&[first], &[next]]), 1);
    assert_eq!(blocks(&[&[branch(0, 0), first], &[next]]), 0);
    assert_eq!(blocks(&[&[branch(0, 0), next, first]]), 1);
    let lost = Lost { time: 2, pid: 0, tid: 0, cpu: 1, stacks: 1, label: None };
    assert_eq!(parted(&[Event::Lost(lost)], &[&[first], &[next]]), 0);
    // The last of these stacks continues the one with an oldest empty entry.
    assert_eq!(blocks(&[&[branch(0, 0), first], &[first, branch(0, 0)], &[next]]), 1);
}

/// Around an empty entry, no block and no chain.
#[test]
fn nothing_follows_across_an_empty_entry() {
    let followed = |newest_first: &str| {
        let counter = paths::counter();
        let paths = counter.count(&mut recording(newest_first), |_, _| {}).unwrap().unwrap();
        paths.paths.iter().map(|path| path.links.len()).max()
    };
    let (one, two) = ("0x10/0x20", "0x24/0x10");
    assert_eq!(followed(&format!(" {two} {one} {two} {one}\n")), Some(2));
    assert_eq!(followed(&format!(" {two} 0x0/0x0 {one} 0x0/0x0 {two} 0x0/0x0 {one}\n")), Some(1));
}

/// Around an empty entry, calls that were open are unknown.
#[test]
fn a_call_graph_starts_again_after_an_empty_entry() {
    let depth = |newest_first: &str| {
        let counter = profile::callgraph::counter(true);
        let graph = counter.count(&mut recording(newest_first), |_, _| {}).unwrap();
        let own = graph.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
        own.map(|(at, _)| graph.path(at).len()).max()
    };
    let (call, inside) = ("0x1008/0x2000/P/-/-/0/CALL", "0x2004/0x2010/P/-/-/0/COND");
    // The callers of the first are missing, which is a frame.
    assert_eq!(depth(&format!(" {inside} {call}\n")), Some(3));
    assert_eq!(depth(&format!(" {inside} 0x0/0x0/P/-/-/0/- {call}\n")), Some(2));
}

/// Collects the branches that each stack holds.
#[derive(Default)]
struct Held(Vec<RecordedBranches>);

impl View for Held {
    type Table = Vec<RecordedBranches>;

    fn stack(&mut self, stack: &Cleaned<'_>, _: &mut Maps) {
        self.0.push(stack.holds);
    }

    fn finish(self, _: CommonResult) -> Vec<RecordedBranches> {
        self.0
    }
}

/// By the bits of `perf_branch_sample_type`.
#[test]
fn a_filter_decides_what_a_stack_holds() {
    use RecordedBranches::{CallStack, CallsAndReturns, Everything, Other};
    const USER: u64 = 1;
    let [any, any_call, any_return, ind_call] = [3, 4, 5, 6].map(|bit| 1 << bit);
    let [cond, call_stack, ind_jump, call] = [10, 11, 12, 13].map(|bit| 1 << bit);
    for (filter, held) in [
        (0, Everything),
        (any, Everything),
        (any | any_call, Everything),
        (any_call | any_return, CallsAndReturns),
        (call | ind_call | any_return, CallsAndReturns),
        (any_call, Other),
        (any_return, Other),
        (call | any_return, Other),
        (ind_call | any_return, Other),
        (call, Other),
        (ind_call, Other),
        (cond, Other),
        (ind_jump, Other),
        (call_stack, CallStack),
    ] {
        let mut file = Crafted::new(false);
        file.attr(128, 1 | 1 << 11, 0, USER | filter, &[]);
        file.sample(&[0xa0, 1, 0x10, 0x20, 2]);
        let mut recording = Recording::from_stream(Box::new(Cursor::new(file.bytes))).unwrap();
        let found = Counter::<Held>::default().count(&mut recording, |_, _| {}).unwrap();
        assert_eq!(found, [held], "{filter:#x}");
    }
}

/// AutoFDO's limit: a block of 0x1000 bytes is a loop, a longer one a duplicate.
#[test]
fn a_repeated_newest_entry_is_a_duplicate_above_the_stride() {
    let counted = |from: u64| {
        let flow = text(&format!(" {from:#x}/0x1000 {from:#x}/0x1000 0x10/0x20\n"));
        (flow.taken, flow.quality.duplicated_newest)
    };
    assert_eq!(counted(0x2000), (3, 0));
    assert_eq!(counted(0x2001), (2, 1));
    // Two interrupts at one instruction.
    let flow = text(" 0xffffffff81000000/0x1000 0xffffffff81000000/0x1000\n");
    assert_eq!((flow.taken, flow.quality.duplicated_newest), (2, 0));
    // Two calls from one address: PERF_SAMPLE_BRANCH_ANY_CALL.
    let mut file = Crafted::new(false);
    file.attr(128, 1 | 1 << 11, 0, 1 << 4, &[]);
    file.sample(&[0xa0, 2, 0x2001, 0x1000, 2, 0x2001, 0x1000, 2]);
    let mut calls = Recording::from_stream(Box::new(Cursor::new(file.bytes))).unwrap();
    let flow = FlowCounter::default().count(&mut calls, |_, _| {}).unwrap();
    assert_eq!((flow.taken, flow.quality.duplicated_newest), (2, 0));
    // A software LBR records nothing twice.
    let flow = count(&[ran(1, &[(0x10, 0x20), (0x9000, 0), (0x9000, 0)])]);
    assert_eq!((flow.taken, flow.quality.duplicated_newest), (3, 0));
}

/// Straight-line code of up to 1 MiB.
#[test]
fn the_longest_block() {
    let blocks = |exit: u64| {
        let flow = text(&format!(" {exit:#x}/0x10 0x20/0x1000\n"));
        (flow.blocks.len(), flow.block_quality.too_long)
    };
    assert_eq!(blocks(0x1000 + (1 << 20)), (1, 0));
    assert_eq!(blocks(0x1001 + (1 << 20)), (0, 1));
    assert_eq!(blocks(0x1000), (1, 0), "the branch is the target itself");
}

/// BRBE records 0 for an end at a level that is not recorded: no block ends or starts there.
#[test]
fn no_block_has_an_end_that_was_not_recorded() {
    for stack in ["0x0/0x10 0x20/0x1000", "0x1010/0x20 0x30/0x0"] {
        let quality = text(&format!(" {stack}\n")).block_quality;
        assert_eq!((quality.crossing, quality.backwards, quality.blocks), (1, 0, 0), "{stack}");
    }
    let backwards = text(" 0x10/0x20 0x30/0x1000\n").block_quality;
    assert_eq!((backwards.crossing, backwards.backwards), (0, 1));
}

/// The distance of two symbols is unknown, that of two addresses is known, also in one text. A
/// perf.data has only addresses, even impossible ones.
#[test]
fn only_symbols_are_at_an_unknown_distance() {
    let quality =
        text(" 0x10/0x20/P/-/-/0 0x30/0x1000/P/-/-/0 f+0x1/g+0x2/P/-/-/0\n").block_quality;
    assert_eq!((quality.apart, quality.backwards, quality.unjoined()), (1, 1, 2));
    let mut file = Crafted::new(false);
    file.attr(128, 1 | 1 << 11, 0, 1 << 3, &[]);
    file.sample(&[0xa0, 2, 0x5a00_0000_0000_0010, 0x20, 2, 0x30, 0x5a00_0000_0000_0020, 2]);
    let mut recording = Recording::from_stream(Box::new(Cursor::new(file.bytes))).unwrap();
    let quality = FlowCounter::default().count(&mut recording, |_, _| {}).unwrap().block_quality;
    assert_eq!((quality.apart, quality.backwards, quality.unjoined()), (0, 1, 1));
}

/// Text tells neither its source nor labels.
#[test]
fn text_has_no_labels() {
    let flow = text(" 0x10/0x20 0x30/0x8\n");
    assert!(flow.quality.labels.is_empty(), "{:?}", flow.quality.labels);
    assert_eq!((flow.quality.software, flow.quality.hardware, flow.quality.exact), (0, 0, 0));
    assert_eq!(flow.quality.exact_share(), None);
}

/// Only the recorder that reads the registers itself knows continuity.
#[test]
fn the_exact_share_is_of_stacks_with_known_continuity() {
    let quality = Quality { samples: 10, hardware: 3, software: 1, exact: 2, ..Quality::default() };
    assert_eq!(quality.exact_share(), Some(0.5));
}

/// Two samples of 3 events, one of 5, and some of unknown periods.
#[test]
fn sums_of_periods() {
    let mut quality = Quality::default();
    for (period, weight) in [(Some(3), 2), (Some(5), 1), (None, 4), (Some(0), 1)] {
        quality.sample(&SampleHead { period, weight, ..SampleHead::default() }, 1);
    }
    assert_eq!(quality.periods, Periods { events: 11, squares: 9 + 9 + 25, unknown: 5 });
}

/// Stacks of unknown continuity count, unlike torn ones.
#[test]
fn torn_stacks_are_excluded() {
    let mut quality = Quality::default();
    let mut sample = |label, weight| {
        let integrity = Integrity { label, ..exact() };
        let source = Source::Hardware;
        quality.sample(&SampleHead { integrity, source, weight, ..SampleHead::default() }, 1)
    };
    assert!(sample(Label::Gap, 1) && !sample(Label::Torn, 2));
    assert_eq!((quality.samples, quality.excluded), (3, 2));
}

#[test]
fn excluded_and_empty_stacks_do_not_narrow_an_interval() {
    let quality = Quality { samples: 100, empty_stacks: 10, excluded: 30, ..Quality::default() };
    assert_eq!(quality.share_interval(0.25), Interval::widest(0.25, 60));
    assert_ne!(quality.share_interval(0.25), Interval::widest(0.25, 90));
}

/// By hand: ratio 6/20; residuals y - 0.3 x are -1.4, 1.8, -1.8, 1.4, whose squares sum to 10.4;
/// times the stacks divided by one less, divided by 20 squared.
#[test]
fn a_variance_of_large_counts() {
    let variance = |stacks: u64, unit: u64| {
        let mut sums = Clusters::default();
        for (x, y) in [(8, 1), (4, 3), (6, 0), (2, 2)] {
            sums.add(stacks, x * unit, y * unit);
        }
        sums.variance().unwrap()
    };
    // The last ones overflow integers of 128 bits.
    for (stacks, unit) in [(1, 1), (1, 1 << 28), (1 << 36, 1), (1 << 36, 1 << 10)] {
        let all = 4.0 * stacks as f64;
        let by_hand = all / (all - 1.0) * 10.4 / (400.0 * stacks as f64);
        let found = variance(stacks, unit);
        assert!((found / by_hand - 1.0).abs() < 1e-9, "{stacks}, {unit}: {found}, not {by_hand}");
    }
}
