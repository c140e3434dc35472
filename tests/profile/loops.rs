//! Loops and call graphs of programs that are interpreted here.

use std::collections::BTreeMap;
use std::io::Cursor;

use lbr_msr::record::{BranchEntry, BranchType, Comm, Event, Integrity, MoveKind, ThreadMove};
use profile::Recording;
use profile::callgraph::CallGraph;
use profile::loops::{Loop, Loops, Quantile, Trips};
use profile::paths::{Break, Paths};

use crate::recorded::{entry, exact, here, map, meta, sample, stream};
use crate::structured::{Branch, Structured};
use crate::support::random::Random;
use crate::views::{AT, at, elf};

fn events(stacks: impl Iterator<Item = Vec<Branch>>, integrity: Integrity) -> Vec<Event> {
    stacks
        .enumerate()
        .map(|(time, stack)| {
            let entries = stack.iter().rev().map(|&(from, to, branch_type)| BranchEntry {
                from,
                to,
                branch_type: Some(branch_type),
                ..BranchEntry::default()
            });
            sample(time as u64 + 1, entries.collect(), integrity)
        })
        .collect()
}

fn open(bytes: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

fn loops(bytes: &[u8]) -> Loops {
    profile::loops::counter().count(&mut open(bytes), |_, _| {}).unwrap().unwrap()
}

fn paths(bytes: &[u8]) -> Paths {
    profile::paths::counter().count(&mut open(bytes), |_, _| {}).unwrap().unwrap()
}

/// Every branch of a run, `depth` of them per stack.
fn complete(trace: &[Branch], depth: usize) -> Vec<u8> {
    stream(meta(), &events(trace.chunks(depth).map(<[Branch]>::to_vec), exact()))
}

/// Stacks of `depth` branches from random positions of a run.
fn sampled(trace: &[Branch], depth: usize, stacks: usize, random: &mut Random) -> Vec<u8> {
    let stacks = (0..stacks).map(|_| {
        let start = random.below(trace.len() - depth);
        trace[start..start + depth].to_vec()
    });
    stream(meta(), &events(stacks, Integrity::UNKNOWN))
}

fn histogram(one: &Loop) -> BTreeMap<u64, u64> {
    one.trips.ended.iter().map(|(trips, n)| (u64::from(trips), n)).collect()
}

#[test]
fn random_programs_complete() {
    let mut compared = 0;
    for seed in 0..31 {
        let mut program = Structured::new(seed, 3000);
        program.run();
        let depth = 1 + seed as usize % 31;
        let found = loops(&complete(&program.trace, depth));
        assert!(found.complete, "{seed}");
        assert_eq!(found.taken, program.trace.len() as u64);
        for (head, wanted) in &program.trips {
            let one = found.loops.iter().find(|one| one.head == *head);
            let Some(one) = one else {
                // No back edge was taken, and there are no code bytes.
                assert!(wanted.keys().all(|trips| *trips <= 1), "{seed} {head:#x} {wanted:?}");
                continue;
            };
            assert_eq!(histogram(one), *wanted, "{seed} {head:#x}");
            assert_eq!((one.trips.open.n(), one.headless), (0, 0), "{seed} {head:#x}");
            assert!(one.mean.is_none() && !one.irreducible, "{seed} {head:#x}");
            compared += 1;
        }
        // The outermost loop, and no other.
        let others = found.loops.iter().filter(|one| !program.trips.contains_key(&one.head));
        let others: Vec<u64> = others.map(|one| one.head).collect();
        assert!(
            others.len() <= 1 && others.iter().all(|head| *head == 0x1000),
            "{seed} {others:x?}"
        );
    }
    assert!(compared > 75, "{compared}");
}

/// 200 subsamples of one run: the intervals contain its mean as often as they claim.
#[test]
fn means_of_subsamples_cover_the_truth() {
    let kinds = [(0, 12, false), (1, 6, false), (2, 9, true), (0, 20, true), (1, 40, false)];
    let mut program = Structured::of_loops(5, 150_000, &kinds);
    program.run();
    let truth: BTreeMap<u64, f64> = program
        .trips
        .iter()
        .map(|(head, trips)| {
            let entries: u64 = trips.values().sum();
            let sum: u64 = trips.iter().map(|(trips, n)| trips * n).sum();
            (*head, sum as f64 / entries as f64)
        })
        .collect();
    assert_eq!(truth.len(), kinds.len());
    let mut random = Random(99);
    let mut covered: BTreeMap<u64, u32> = BTreeMap::new();
    for _ in 0..200 {
        let found = loops(&sampled(&program.trace, 32, 100, &mut random));
        assert!(!found.complete);
        for (head, truth) in &truth {
            let one = found.loops.iter().find(|one| one.head == *head).unwrap();
            let mean = one.mean.unwrap();
            let low = mean.low.is_some_and(|low| low <= *truth);
            let high = mean.high.is_none_or(|high| *truth <= high);
            *covered.entry(*head).or_default() += u32::from(low && high);
        }
    }
    assert!(covered.values().all(|n| (181..=199).contains(n)), "{covered:?} of 200");
}

const ENTRY: Branch = (0x900, 0x1000, BranchType::UNCOND);
const BACK: Branch = (0x1020, 0x1000, BranchType::UNCOND);
/// The test at the head, which leaves the loop.
const EXIT: Branch = (0x1008, 0x1100, BranchType::COND);
const CALL: Branch = (0x1010, 0x2000, BranchType::CALL);

/// The loops of these stacks, of a sample or of a complete recording.
fn loops_of(stacks: &[Vec<Branch>], integrity: Integrity) -> Vec<Loop> {
    loops(&stream(meta(), &events(stacks.iter().cloned(), integrity))).loops
}

/// The last arrival at the head may be followed by the test that leaves the loop.
#[test]
fn an_entry_without_its_end_has_a_lower_bound() {
    let stacks = [vec![ENTRY, BACK, BACK, EXIT], vec![ENTRY, BACK, BACK, BACK]];
    let [one] = &loops_of(&stacks, Integrity::UNKNOWN)[..] else { panic!("one loop") };
    assert!(one.tested_at_head);
    assert_eq!(histogram(one), BTreeMap::from([(2, 1)]));
    assert_eq!((one.trips.open.n(), one.trips.open.max()), (1, Some(3)));
    // Each of the 2 + 3 back edges starts a trip.
    assert_eq!((one.rounds, one.all_trips()), (5, 5));
    assert_eq!(one.longest(), Some((3, false)));
    // Of two equally long ones, that which ended.
    let stacks = [vec![ENTRY, BACK, BACK, EXIT], vec![ENTRY, BACK, BACK]];
    assert_eq!(loops_of(&stacks, Integrity::UNKNOWN)[0].longest(), Some((2, true)));
    // A `do` loop makes one trip more than back edges.
    let back: Branch = (0x1020, 0x1000, BranchType::COND);
    let [one] = &loops_of(&[vec![ENTRY, back, back]], Integrity::UNKNOWN)[..] else {
        panic!("one loop")
    };
    assert!(!one.tested_at_head);
    assert_eq!((one.trips.open.n(), one.rounds, one.all_trips()), (1, 2, 3));
    // A complete recording that ends in the loop does not end the loop.
    let [one] = &loops_of(&[vec![ENTRY, back, back]], exact())[..] else { panic!("one loop") };
    assert_eq!((one.trips.ended.n(), one.trips.open.n(), one.trips.open.max()), (0, 1, Some(3)));
}

/// By hand: the first stack ends two trips later, at the test; the second one ends in its third.
#[test]
fn an_entry_without_its_start_has_a_lower_bound() {
    for (stack, longest) in [(vec![BACK, BACK, BACK, EXIT], 2), (vec![BACK; 4], 3)] {
        let stacks = [vec![ENTRY, BACK, EXIT], stack];
        let [one] = &loops_of(&stacks, Integrity::UNKNOWN)[..] else { panic!("one loop") };
        assert_eq!((histogram(one), one.trips.open.n()), (BTreeMap::from([(1, 1)]), 0));
        assert_eq!((one.headless, one.longest()), (1, Some((longest, false))));
    }
}

/// A return out of the loop's middle ends a trip.
#[test]
fn a_return_leaves_the_loops_of_its_frame() {
    let back: Branch = (0x2020, 0x2000, BranchType::UNCOND);
    let ret: Branch = (0x2010, 0x1015, BranchType::RET);
    let [one] = &loops_of(&[vec![ENTRY, CALL, back, back, ret]], exact())[..] else {
        panic!("one loop")
    };
    assert_eq!((histogram(one), one.trips.open.n()), (BTreeMap::from([(3, 1)]), 0));
    // A sample: the return leads into a loop whose start is unknown.
    let whole = vec![ENTRY, BACK, CALL, back, ret, BACK, EXIT];
    let found = loops_of(&[whole, vec![back, ret, BACK, EXIT]], Integrity::UNKNOWN);
    let outer = found.iter().find(|one| one.head == ENTRY.1).unwrap();
    assert_eq!((histogram(outer), outer.headless), (BTreeMap::from([(2, 1)]), 1));
}

/// The code after a return is another function, although a call in it returns close by.
#[test]
fn a_return_does_not_continue_after_it() {
    let trace = vec![
        (0x1010, 0x2009, BranchType::CALL),
        (0x2009, 0x3000, BranchType::CALL),
        (0x3008, 0x200E, BranchType::RET),
        (0x2010, 0x2000, BranchType::UNCOND),
        (0x2008, 0x1015, BranchType::RET),
    ];
    assert!(loops_of(&[trace], exact()).is_empty());
}

/// FROM and count of each back edge.
fn back_edges(one: &Loop) -> Vec<(u64, u64)> {
    one.back_edges.iter().map(|back| (back.from, back.count)).collect()
}

/// `while (n--)` whose body comes first: entered by a jump to the test at its end.
const TO_TEST: Branch = (0x1008, 0x1020, BranchType::UNCOND);
const TO_BODY: Branch = (0x1028, 0x1010, BranchType::COND);
const AGAIN: Branch = (0x1030, 0x1000, BranchType::COND);
const DONE: Branch = (0x1034, 0x1100, BranchType::UNCOND);

/// By hand: the inner loop makes two trips, then one. A stack that starts in it sees two arrivals
/// at its test.
#[test]
fn a_loop_is_entered_at_the_test_after_its_body() {
    let whole = vec![ENTRY, TO_TEST, TO_BODY, TO_BODY, AGAIN, TO_TEST, TO_BODY, DONE];
    let stacks = [whole, vec![TO_BODY, TO_BODY, DONE]];
    let [inner, outer] = &loops_of(&stacks, Integrity::UNKNOWN)[..] else { panic!("two loops") };
    assert_eq!((inner.head, inner.depth, inner.parent), (0x1020, 2, Some(1)));
    assert_eq!((outer.head, outer.depth, outer.parent), (0x1000, 1, None));
    assert!(!inner.irreducible && inner.tested_at_head && !outer.tested_at_head);
    let from: Vec<(u64, u64)> = inner.falls_from.iter().map(|f| (f.from, f.count)).collect();
    assert_eq!((from, inner.back_edges.len()), (vec![(TO_BODY.0, 5)], 0));
    assert_eq!((histogram(inner), inner.rounds), (BTreeMap::from([(1, 1), (2, 1)]), 5));
    assert_eq!((inner.headless, inner.longest()), (1, Some((2, true))));
    // Exits, and exits and rounds: the outer loop is left in its middle, which ends a round.
    assert_eq!((inner.exits.y, inner.exits.x), (3, 3 + 5));
    assert_eq!((outer.exits.y, outer.exits.x), (2, 2 + 3));
    // By a call instead of a jump from the loop around it.
    let call = (0x900, 0x1020, BranchType::CALL);
    let [one] = &loops_of(&[vec![call, TO_BODY, DONE]], exact())[..] else { panic!("one loop") };
    assert_eq!((one.head, histogram(one)), (0x1020, BTreeMap::from([(1, 1)])));
    // The same if a function returns to between the head and its test.
    let stacks =
        [vec![call, TO_BODY, DONE], vec![(0x2010, 0x1024, BranchType::RET), TO_BODY, DONE]];
    let [one] = &loops_of(&stacks, Integrity::UNKNOWN)[..] else { panic!("one loop") };
    assert_eq!((histogram(one), one.headless), (BTreeMap::from([(1, 1)]), 1));
    // The thread starts in the body, so the first entry is not known.
    let skip: Branch = (0x1014, 0x1018, BranchType::COND);
    let trace = vec![skip, TO_BODY, skip, TO_BODY, DONE, TO_TEST, TO_BODY, DONE];
    let [one] = &loops_of(&[trace], exact())[..] else { panic!("one loop") };
    assert_eq!((one.head, one.headless, histogram(one)), (0x1020, 1, BTreeMap::from([(1, 1)])));
}

/// Two branches lead to the head, one of them forwards; the branch back to the body does not.
#[test]
fn only_branches_to_the_head_are_back_edges() {
    let jump = |from, to| (from, to, BranchType::COND);
    let (up, near, far) = (jump(0x1030, 0x1000), jump(0x1008, 0x1020), jump(0x1038, 0x1020));
    let trace = vec![jump(0x900, 0x1020), up, near, up, near, far, jump(0x1040, 0x1100)];
    let [one] = &loops_of(&[trace], exact())[..] else { panic!("one loop") };
    let back = back_edges(one);
    assert_eq!((one.head, back, one.falls_from.len()), (0x1020, vec![(near.0, 2), (far.0, 1)], 0));
    assert!(!one.types_unknown);
    // Falls into the head from outside are entries.
    let trace = vec![(0x900, 0xFF0, BranchType::UNCOND), BACK, BACK, EXIT];
    let [one] = &loops_of(&[trace], exact())[..] else { panic!("one loop") };
    assert_eq!((one.head, one.falls_back, histogram(one)), (0x1000, 0, BTreeMap::from([(2, 1)])));
}

#[test]
fn loops_nest_at_most_64_deep() {
    let back = |n: u64| (0x2000 + 0x10 * n, 0x1800 - 0x10 * n, BranchType::COND);
    let trace = [ENTRY].into_iter().chain((0..65).map(back)).collect();
    let depths = loops_of(&[trace], exact()).iter().map(|one| one.depth).max();
    assert_eq!(depths, Some(64));
}

/// A signal interrupts the second of three trips. When its handler returns, the loop continues,
/// wherever stacks end: before the handler, after the signal, in the handler or after its return.
#[test]
fn an_interrupted_loop_continues_in_any_stack() {
    let handler: Branch = (0x9008, 0x9010, BranchType::UNCOND);
    let in_handler: Branch = (0x9018, 0x9020, BranchType::UNCOND);
    let trace = [ENTRY, BACK, handler, in_handler, BACK, BACK, EXIT];
    // Before the branches with these numbers.
    let moves = [(2, MoveKind::Signal, 0x1004, 0x9000), (4, MoveKind::Return, 0x9028, 0x1004)];
    let cuts = (1..trace.len()).map(|cut| vec![cut]).chain([vec![1, 2, 3, 4, 5, 6]]);
    for (cuts, late) in cuts.flat_map(|cuts| [(cuts.clone(), false), (cuts, true)]) {
        let ends = [&cuts[..], &[trace.len()]].concat();
        let starts = [&[0], &cuts[..]].concat();
        let stacks = starts.iter().zip(&ends).map(|(&start, &end)| trace[start..end].to_vec());
        let mut stacks = events(stacks, exact());
        for (before, kind, from, to) in moves {
            // A move between two stacks is in either.
            let earlier = |end: &&usize| **end < before || **end == before && late;
            let stack = ends.iter().take_while(earlier).count();
            let Event::Sample(sample) = &mut stacks[stack] else { unreachable!() };
            let newer = (ends[stack] - before) as u32;
            sample.stack.moves.push(ThreadMove { newer, kind, from, to });
        }
        let bytes = stream(meta(), &stacks);
        let found = loops(&bytes);
        let one = found.loops.iter().find(|one| one.head == ENTRY.1).unwrap();
        let trips = (histogram(one), one.trips.open.n(), one.headless);
        assert_eq!(trips, (BTreeMap::from([(3, 1)]), 0, 0), "{cuts:?} {late}");
        // Three rounds up to the branch back, to the exit, and in the handler.
        assert_eq!(paths(&bytes).bytes, 3 * 0x20 + 8 + 8, "{cuts:?} {late}");
    }
}

/// Instead of returning to the loop, the first handler continues elsewhere, in another loop, which
/// a second signal interrupts. By hand: its three rounds, of which the first starts at no branch,
/// and an exit in the middle.
#[test]
fn a_handler_continues_elsewhere() {
    let handler: Branch = (0x9008, 0x9010, BranchType::UNCOND);
    let other: Branch = (0x3008, 0x3000, BranchType::COND);
    let out: Branch = (0x300C, 0x3100, BranchType::UNCOND);
    let trace = vec![ENTRY, BACK, handler, other, other, handler, other, out];
    let mut stacks = events([trace].into_iter(), exact());
    let Event::Sample(sample) = &mut stacks[0] else { unreachable!() };
    let moved = |newer, kind, from, to| ThreadMove { newer, kind, from, to };
    sample.stack.moves = vec![
        moved(6, MoveKind::Signal, 0x1004, 0x9000),
        moved(5, MoveKind::Return, 0x9018, 0x3000),
        moved(3, MoveKind::Signal, 0x3004, 0x9000),
        moved(2, MoveKind::Return, 0x9018, 0x3004),
    ];
    let found = loops(&stream(meta(), &stacks));
    let one = found.loops.iter().find(|one| one.head == other.1).unwrap();
    assert_eq!((one.rounds, one.headless, one.longest()), (3, 1, Some((3, false))));
    assert_eq!((one.exits.y, one.exits.x), (1, 1 + 3));
}

/// A signal interrupts a round on its way to the head, and another one its handler, which returns to
/// the loop at once.
#[test]
fn a_handlers_return_ends_the_handlers_inside_it() {
    let round: Branch = (0x1020, 0xFF0, BranchType::COND);
    let handler = |at: u64| (at + 8, at + 0x10, BranchType::UNCOND);
    let trace = vec![ENTRY, round, handler(0x9000), handler(0xA000), round, EXIT];
    let mut stacks = events([trace].into_iter(), exact());
    let Event::Sample(sample) = &mut stacks[0] else { unreachable!() };
    let moved = |newer, kind, from, to| ThreadMove { newer, kind, from, to };
    sample.stack.moves = vec![
        moved(4, MoveKind::Signal, 0xFF4, 0x9000),
        moved(3, MoveKind::Signal, 0x9014, 0xA000),
        moved(2, MoveKind::Return, 0xA018, 0xFF4),
    ];
    let found = loops(&stream(meta(), &stacks));
    let one = found.loops.iter().find(|one| one.head == ENTRY.1).unwrap();
    assert_eq!((one.rounds, one.falls_back, histogram(one)), (2, 2, BTreeMap::from([(2, 1)])));
}

/// The thread starts after the head of a `do` loop: it is in its first trip.
#[test]
fn a_thread_that_starts_in_a_loop_is_in_its_first_trip() {
    let trace = [(0x1020, 0x1000, BranchType::COND); 3];
    let trace = [&trace[..], &[(0x1040, 0x3000, BranchType::UNCOND)]].concat();
    let [one] = &loops_of(std::slice::from_ref(&trace), exact())[..] else { panic!("one loop") };
    assert_eq!((histogram(one), one.headless), (BTreeMap::from([(4, 1)]), 0));
    // Also if it executes another program, in a loop of the first.
    let mut events = events([vec![ENTRY, trace[0]], trace].into_iter(), exact());
    let comm = "other".to_owned();
    events.insert(1, Event::Comm(Comm { time: 1, pid: 100, tid: 101, comm, exec: true }));
    let found = loops(&stream(meta(), &events));
    let one = found.loops.iter().find(|one| one.trips.ended.n() > 0).unwrap();
    assert_eq!((histogram(one), one.headless), (BTreeMap::from([(4, 1)]), 0));
}

/// By hand: three trips of the inner `do` loop in the first of three trips of the outer one, then
/// two and one.
#[test]
fn a_thread_that_starts_in_nested_loops_is_in_the_first_trip_of_each() {
    let inner: Branch = (0x1020, 0x1010, BranchType::COND);
    let outer: Branch = (0x1030, 0x1000, BranchType::COND);
    let trace = vec![inner, inner, outer, inner, outer, DONE];
    let [first, second] = &loops_of(&[trace], exact())[..] else { panic!("two loops") };
    assert_eq!((first.head, first.depth, second.head, second.depth), (0x1010, 2, 0x1000, 1));
    assert_eq!(histogram(first), BTreeMap::from([(1, 1), (2, 1), (3, 1)]));
    assert_eq!((histogram(second), second.headless), (BTreeMap::from([(3, 1)]), 0));
}

/// After a branch that does not lead to the next one, the thread is in a loop whose start is not
/// known.
#[test]
fn a_thread_starts_only_once() {
    let trace = vec![ENTRY, BACK, EXIT, BACK, EXIT];
    let [one] = &loops_of(&[trace], exact())[..] else { panic!("one loop") };
    assert_eq!((histogram(one), one.headless), (BTreeMap::from([(1, 1)]), 1));
}

/// Entered twice at the head, which ends without a branch, and once after it, before the test.
#[test]
fn the_test_at_the_head_is_its_first_branch() {
    let late: Branch = (0x910, 0x1004, BranchType::UNCOND);
    let stacks = [vec![ENTRY, BACK, EXIT], vec![ENTRY, BACK, EXIT], vec![late, BACK, EXIT]];
    let [one] = &loops_of(&stacks, Integrity::UNKNOWN)[..] else { panic!("one loop") };
    assert_eq!((one.head, one.irreducible, one.tested_at_head), (0x1000, true, true));
}

/// Of two entrances the head is the one that was entered more often, or the lower address.
#[test]
fn the_head_is_the_most_frequent_entrance() {
    let jump = |from, to| (from, to, BranchType::UNCOND);
    let (down, up) = (jump(0x1008, 0x1010), jump(0x1018, 0x1000));
    let at_low = vec![jump(0x900, 0x1000), down, up, down];
    let at_high = vec![jump(0x910, 0x1010), up, down, up];
    for (low, high, head) in [(1, 3, 0x1010), (3, 1, 0x1000), (2, 2, 0x1000)] {
        let stacks = [vec![at_low.clone(); low], vec![at_high.clone(); high]].concat();
        let [one] = &loops_of(&stacks, Integrity::UNKNOWN)[..] else { panic!("one loop") };
        assert_eq!((one.head, one.irreducible), (head, true), "{low} {high}");
    }
}

/// The test at the head ends a trip that is not made; a `break` ends one that is.
#[test]
fn trips_that_end_in_the_middle_are_counted() {
    let leave: Branch = (0x1010, 0x1100, BranchType::COND);
    let again: Branch = (0x1108, 0x880, BranchType::UNCOND);
    let trace = vec![ENTRY, BACK, BACK, leave, again, ENTRY, BACK, EXIT];
    let found = loops_of(&[trace], exact());
    let inner = found.iter().find(|one| one.head == ENTRY.1).unwrap();
    assert!(inner.tested_at_head);
    assert_eq!(histogram(inner), BTreeMap::from([(1, 1), (3, 1)]));
    assert_eq!((inner.rounds, inner.all_trips(), inner.mean_trips()), (3, 4, Some(2.0)));
}

/// A branch from inside to code before the head, which falls through into it, ends a round; the
/// branch that enters the loop does not.
#[test]
fn rounds_can_fall_through_into_the_head() {
    let round: Branch = (0x1020, 0xFF0, BranchType::COND);
    let [one] = &loops_of(&[vec![ENTRY, round, round, round, EXIT]], exact())[..] else {
        panic!("one loop")
    };
    let from: Vec<(u64, u64)> = one.falls_from.iter().map(|edge| (edge.from, edge.count)).collect();
    assert_eq!((one.head, from), (ENTRY.1, vec![(0x1020, 3)]));
    assert_eq!((one.falls_back, one.rounds, one.back_edges.len()), (3, 3, 0));
}

/// Neither loop was repeated: the one that was entered more often is first.
#[test]
fn loops_of_one_trip_are_in_the_order_of_their_entries() {
    // Twice: nop    jne to the nop    jmp 40    nop    nop    nop
    let code = [
        0x90, 0x75, 0xFD, 0xEB, 0x3B, 0x90, 0x90, 0x90, 0x90, 0x75, 0xFD, 0xEB, 0x33, 0x90, 0x90,
        0x90,
    ];
    let (_dir, path) = elf(&code);
    let through = |start: u64| {
        let branch = |from, to| (from, to, BranchType::UNCOND);
        vec![branch(0x900, at(start)), branch(at(start + 3), at(0x40))]
    };
    let stacks = [vec![through(0)], vec![through(8); 5]].concat();
    let mut events = events(stacks.into_iter(), Integrity::UNKNOWN);
    events.insert(0, map(&path, AT, 0x1000, 0x1000));
    let found = loops(&stream(here(), &events));
    let found = found.loops.iter().map(|one| {
        let back = back_edges(one);
        (one.head, back, one.rounds, one.trips.ended.n())
    });
    let wanted = [(at(8), vec![(at(9), 0)], 0, 5), (at(0), vec![(at(1), 0)], 0, 1)];
    assert_eq!(found.collect::<Vec<_>>(), wanted);
}

/// A loop's head, its back edges with their counts, and whether it tests at its head.
type Closed = (u64, Vec<(u64, u64)>, bool);

/// The loops of a program that enters the code at its start and takes these branches.
fn never_taken(code: &[u8], taken: &[(u64, u64)]) -> Vec<Closed> {
    let (_dir, path) = elf(code);
    let taken = taken.iter().map(|&(from, to)| (at(from), at(to), BranchType::UNCOND));
    let stack = [(0x900, at(0), BranchType::UNCOND)].into_iter().chain(taken).collect();
    let mut events = events([stack].into_iter(), exact());
    events.insert(0, map(&path, AT, 0x1000, 0x1000));
    let found = loops(&stream(here(), &events));
    found.loops.iter().map(|one| (one.head, back_edges(one), one.tested_at_head)).collect()
}

#[test]
fn branches_back_that_were_never_taken_are_back_edges() {
    // nop    jne to the nop    je 40    jmp to the nop
    // The first branch after the head leads back to it, so it does not test for the loop's end.
    let code = [0x90, 0x75, 0xFD, 0x74, 0x3B, 0xEB, 0xF9];
    let found = never_taken(&code, &[(5, 0), (5, 0), (3, 0x40)]);
    assert_eq!(found, [(at(0), vec![(at(5), 2), (at(1), 0)], false)]);
    // nop    nop    jne to the second nop    jne to itself    jmp 40
    let code = [0x90, 0x90, 0x75, 0xFD, 0x75, 0xFE, 0xEB, 0x38];
    let found = never_taken(&code, &[(6, 0x40)]);
    let back = |from| vec![(at(from), 0)];
    assert_eq!(found, [(at(1), back(2), false), (at(4), back(4), false)]);
}

/// The second jump back is after a taken branch, so that it never ran.
#[test]
fn code_that_never_ran_has_no_back_edges() {
    // nop    twice: jne to the nop
    let (_dir, path) = elf(&[0x90, 0x75, 0xFD, 0x75, 0xFB]);
    let stack =
        [vec![(0x900, at(0), BranchType::UNCOND)], vec![(at(1), at(0), BranchType::COND); 3]];
    let mut events = events([stack.concat()].into_iter(), Integrity::UNKNOWN);
    events.insert(0, map(&path, AT, 0x1000, 0x1000));
    let found = loops(&stream(here(), &events));
    let [one] = &found.loops[..] else { panic!("one loop") };
    assert_eq!(back_edges(one), [(at(1), 3)]);
}

/// The first range leads from the end of one file to the start of another, mapped after it. The
/// third file has no loop: only code between its jumps, which did not run, would close one.
#[test]
fn code_does_not_continue_in_another_file() {
    let [a, b, c] = [0x10_0000, 0x10_1000, 0x20_0000];
    let trace = [
        (c + 0x100, a + 0xFF0),
        (b + 0x10, c),
        (c + 0x8, c + 0x40),
        (c + 0x48, c + 0x10),
        (c + 0x18, c + 0x200),
    ];
    let trace = trace.map(|(from, to)| (from, to, BranchType::UNCOND));
    for order in [[a, c, b], [c, b, a]] {
        let maps = order.map(|addr| map(&format!("/nowhere/{addr:x}"), addr, 0x1000, 0));
        let stack = events([trace.to_vec()].into_iter(), exact());
        let found = loops(&stream(meta(), &[&maps[..], &stack[..]].concat()));
        assert!(found.loops.is_empty(), "{order:x?} {:?}", found.loops);
    }
}

/// Rounds through two files, of which no entry was recorded: the head is the target of the only
/// backward branch within a file, whichever file was mapped first.
#[test]
fn a_loop_through_two_files_starts_at_its_backward_branch() {
    let [a, b] = [0x10_0000, 0x20_0000];
    let round = [(a + 0x18, b + 0x10), (b + 0x18, b + 8), (b + 0xC, a + 0x10)]
        .map(|(from, to)| (from, to, BranchType::UNCOND));
    for order in [[a, b], [b, a]] {
        let maps = order.map(|addr| map(&format!("/nowhere/{addr:x}"), addr, 0x1000, 0));
        let stack = events([round.repeat(3)].into_iter(), exact());
        let found = loops(&stream(meta(), &[&maps[..], &stack[..]].concat()));
        assert_eq!(found.loops.iter().map(|one| one.head).collect::<Vec<_>>(), [b + 8]);
    }
}

/// 65,536 frames are kept. A frame that is forgotten is in a call: the test at the head of its loop
/// did not end the third trip.
#[test]
fn a_forgotten_frame_leaves_its_loop_open() {
    for (calls, open) in [((1 << 16) - 1, 2), (1 << 16, 3)] {
        let calls = vec![(0x2010, 0x2000, BranchType::CALL); calls];
        let trace = [&[ENTRY, EXIT, ENTRY, BACK, BACK, CALL][..], &calls].concat();
        let stacks: Vec<Vec<Branch>> = trace.chunks(1000).map(<[Branch]>::to_vec).collect();
        let [one] = &loops_of(&stacks, exact())[..] else { panic!("one loop") };
        let open = (1, Some(open));
        assert_eq!(histogram(one), BTreeMap::from([(0, 1)]));
        assert_eq!((one.trips.open.n(), one.trips.open.max()), open);
    }
}

/// Without recorded types. A call of the next instruction only reads its address.
#[test]
fn calls_in_loops_are_found_in_the_code() {
    // call 8    jmp 0    nop    ret
    let calls = [0xE8, 0x03, 0x00, 0x00, 0x00, 0xEB, 0xF9, 0x90, 0xC3];
    // call 5    pop %rax    jmp 0
    let reads = [0xE8, 0x00, 0x00, 0x00, 0x00, 0x58, 0xEB, 0xF8];
    for (code, round, is_call) in [
        (&calls[..], &[(0, 8), (8, 5), (5, 0)][..], true),
        (&reads[..], &[(0, 5), (6, 0)][..], false),
    ] {
        let (_dir, path) = elf(code);
        let stack = round.repeat(3);
        let entries = stack.iter().rev().map(|&(from, to)| entry(at(from), at(to))).collect();
        let events = [map(&path, AT, 0x1000, 0x1000), sample(1, entries, exact())];
        let found = loops(&stream(here(), &events));
        let [one] = &found.loops[..] else { panic!("one loop") };
        let back = back_edges(one);
        let last = round.last().unwrap().0;
        assert_eq!((one.head, back, one.calls), (at(0), vec![(at(last), 3)], is_call));
    }
}

/// A stack starts with a call in the inner of two loops: the outer one calls too.
#[test]
fn a_call_in_a_loop_is_in_the_loops_around_it() {
    let inner: Branch = (0x1020, 0x1010, BranchType::COND);
    let outer: Branch = (0x1030, 0x1000, BranchType::COND);
    let silent = vec![ENTRY, inner, inner, outer, inner, outer];
    let call: Branch = (0x1018, 0x2000, BranchType::CALL);
    let back: Branch = (0x2010, 0x101D, BranchType::RET);
    for (stacks, calls) in [
        (vec![silent.clone()], false),
        (vec![silent.clone(), vec![call, back, inner]], true),
        (vec![silent, vec![ENTRY, inner, call, back, inner]], true),
    ] {
        let found = loops_of(&stacks, Integrity::UNKNOWN);
        let made: Vec<(u64, bool)> = found.iter().map(|one| (one.head, one.calls)).collect();
        assert_eq!(made, [(0x1010, calls), (0x1000, calls)]);
    }
}

/// Without types and code, a call may be among the branches back.
#[test]
fn types_of_a_loop_are_unknown_without_code() {
    let [one] = &loops(b" 0x1020/0x1000 0x1020/0x1000\n").loops[..] else { panic!("one loop") };
    assert!(one.types_unknown);
}

/// A saturated count is a lower bound, so no trip that contains it is timed, nor one without a
/// count.
#[test]
fn saturated_or_unknown_cycles_time_no_trip() {
    // Newest first.
    let cycles = [15, 0, 20, 0xFFFF, 10, 30];
    let entries = cycles.map(|cycles| BranchEntry {
        from: BACK.0,
        to: BACK.1,
        cycles: Some(cycles).filter(|cycles| *cycles > 0),
        branch_type: Some(BACK.2),
        ..BranchEntry::default()
    });
    let stack = sample(1, entries.to_vec(), Integrity::UNKNOWN);
    let [one] = &loops(&stream(meta(), &[stack])).loops[..] else { panic!("one loop") };
    assert_eq!(one.cycles.iter().collect::<Vec<_>>(), [(10, 1), (15, 1), (20, 1)]);
}

/// A loop longer than any stack: still a mean, and bounds for quantiles.
#[test]
fn loops_longer_than_the_lbr_stack() {
    let mut program = Structured::of_loops(3, 200_000, &[(0, 400, false)]);
    program.run();
    let (head, trips) = program.trips.first_key_value().unwrap();
    let entries: u64 = trips.values().sum();
    let truth = trips.iter().map(|(trips, n)| trips * n).sum::<u64>() as f64 / entries as f64;
    let found = loops(&sampled(&program.trace, 32, 4000, &mut Random(8)));
    let one = found.loops.iter().find(|one| one.head == *head).unwrap();
    let mean = one.mean.unwrap();
    assert!(mean.low.unwrap() <= truth && truth <= mean.high.unwrap(), "{mean:?} {truth}");
    assert!((mean.mean.unwrap() / truth - 1.0).abs() < 0.2, "{mean:?} {truth}");
    assert!(matches!(one.trips.quantile(0.5), Quantile::AtLeast(most) if most < 32), "{one:?}");
    let (longest, whole) = one.longest().unwrap();
    assert!(longest < 32 && !whole);
}

/// Windows cut long entries: without the open ones, only the short ones would count.
#[test]
fn quantiles_include_truncated_entries() {
    let mut program = Structured::of_loops(4, 200_000, &[(1, 12, false)]);
    program.run();
    let (head, trips) = program.trips.first_key_value().unwrap();
    let entries: u64 = trips.values().sum();
    let quantile = |share: f64| {
        let mut below = 0;
        let reached = |(_, n): &(&u64, &u64)| {
            below += **n;
            below as f64 >= share * entries as f64
        };
        *trips.iter().find(reached).unwrap().0
    };
    let found = loops(&sampled(&program.trace, 32, 4000, &mut Random(8)));
    let one = found.loops.iter().find(|one| one.head == *head).unwrap();
    assert!(one.trips.open.n() > 500);
    for share in [0.25, 0.5, 0.75, 0.9] {
        let Quantile::Is(found) = one.trips.quantile(share) else { panic!("{share}") };
        assert!(u64::from(found).abs_diff(quantile(share)) <= 1, "{share}: {found}");
    }
}

/// The product-limit estimator by hand. Of 4 entries at risk at one trip, one ends: 3/4 remain. Of
/// those with one trip and no end, nothing more is known; the last one ends after three.
#[test]
fn quantiles_by_hand() {
    let trips = |ended: &[(u32, u64)], open: &[(u32, u64)]| {
        let mut trips = Trips::default();
        ended.iter().for_each(|&(count, n)| trips.ended.add(count, n));
        open.iter().for_each(|&(count, n)| trips.open.add(count, n));
        trips
    };
    let one = trips(&[(1, 1), (3, 1)], &[(1, 2)]);
    let found = [0.25, 0.26, 1.0].map(|share| one.quantile(share));
    assert_eq!(found, [Quantile::Is(1), Quantile::Is(3), Quantile::Is(3)]);
    // Half of them ran at least seven trips.
    let long = trips(&[(2, 1)], &[(7, 1)]);
    assert_eq!(
        [0.5, 0.51].map(|share| long.quantile(share)),
        [Quantile::Is(2), Quantile::AtLeast(7)]
    );
    assert_eq!(trips(&[], &[]).quantile(0.5), Quantile::Unknown);
}

/// Folded stacks of the replay, by function address.
fn stacks(graph: &CallGraph) -> BTreeMap<Vec<u64>, u64> {
    let nodes = graph.nodes.iter().enumerate().filter(|(_, node)| node.own > 0);
    nodes
        .map(|(at, node)| {
            let path = graph.path(at).into_iter().map(|f| graph.functions[f].addr.unwrap_or(0));
            (path.collect(), node.own)
        })
        .collect()
}

#[test]
fn random_calls_replayed_are_the_true_stacks() {
    for seed in 0..50 {
        let mut program = Structured::new(seed, 3000);
        program.run();
        let bytes = complete(&program.trace, 1 + seed as usize % 31);
        let graph = profile::callgraph::counter(false).count(&mut open(&bytes), |_, _| {}).unwrap();
        assert!(graph.complete);
        assert_eq!(stacks(&graph), program.stacks, "{seed}");
        assert_eq!(graph.total(), program.trace.len() as u64);
        assert_eq!(graph.passage.unseen_calls + graph.passage.unmatched, 0);
    }
}

/// Every branch is in one chain, and chain counts match those by hand.
#[test]
fn chains_match_the_execution() {
    for seed in 0..30 {
        let mut program = Structured::new(seed, 3000);
        program.run();
        let bytes = complete(&program.trace, 1 + seed as usize % 31);
        let paths = paths(&bytes);
        let all: u64 = paths.paths.iter().map(|path| path.branches).sum();
        assert_eq!((all, paths.taken), (program.trace.len() as u64, all), "{seed}");
        let links: usize = paths.paths.iter().map(|path| path.links.len()).sum();
        assert_eq!(links as u64, paths.distinct, "{seed}");
        for path in &paths.paths {
            let chain: Vec<(u64, u64)> = path.links.iter().map(|l| (l.from, l.to)).collect();
            let windows = program.trace.windows(chain.len());
            let same = |window: &&[Branch]| {
                window.iter().zip(&chain).all(|(branch, link)| (branch.0, branch.1) == *link)
            };
            assert_eq!(path.whole, windows.filter(same).count() as u64, "{seed} {chain:x?}");
            // Inside a chain, the next branch is the dominant follower.
            for pair in path.links.windows(2) {
                let ends = |link: &profile::paths::Link| (link.from, link.to);
                let (first, second) = (ends(&pair[0]), ends(&pair[1]));
                let mut after = program.trace.windows(2).filter(|w| (w[0].0, w[0].1) == first);
                let times = after.clone().count();
                let there = after.by_ref().filter(|w| (w[1].0, w[1].1) == second).count();
                assert!(there as f64 >= 0.6 * times as f64, "{seed} {first:x?} {second:x?}");
            }
            if let Break::Splits { followers, exact } = &path.ends {
                assert!(*exact && followers.iter().all(|f| f.share < 0.6), "{seed}");
            }
        }
    }
}

/// The chains of a branch with several followers, each of which follows it this many times.
fn paths_after(times: &[usize]) -> Paths {
    let jump = |from, to| (from, to, BranchType::UNCOND);
    let stacks = times
        .iter()
        .zip(0x1000..)
        .flat_map(|(times, from)| vec![vec![jump(0x900, 0x1000), jump(from, 0x2000)]; *times]);
    paths(&stream(meta(), &events(stacks, Integrity::UNKNOWN)))
}

/// The default threshold is 60%.
#[test]
fn a_chain_continues_with_exactly_the_least_share() {
    let split = paths_after(&[2, 2]);
    let Break::Splits { followers, exact: true } = &split.paths[0].ends else {
        panic!("{split:?}")
    };
    assert_eq!(followers.iter().map(|follower| follower.share).collect::<Vec<_>>(), [0.5, 0.5]);
    let (from, _, to, _) = split.follower(&followers[0]).unwrap();
    assert_eq!((from, to), (0x1000, 0x2000));
    let links: Vec<usize> =
        paths_after(&[3, 2]).paths.iter().map(|path| path.links.len()).collect();
    assert_eq!(links, [2, 1]);
}

/// Eight followers are kept: a ninth removes one count from each of them.
#[test]
fn shares_of_more_than_eight_followers_are_lower_bounds() {
    let exact = paths_after(&[3, 2, 2, 1, 1, 1, 1, 1]);
    assert_eq!(exact.crowded, 0);
    let crowded = paths_after(&[3, 2, 2, 1, 1, 1, 1, 1, 1]);
    assert_eq!(crowded.crowded, 1);
    let Break::Splits { followers, exact: false } = &crowded.paths[0].ends else {
        panic!("{crowded:?}")
    };
    let shares: Vec<f64> = followers.iter().map(|follower| follower.share).collect();
    assert_eq!(shares, [2, 1, 1].map(|count| f64::from(count) / 13.0));
}

/// The chain with the hottest branch is shorter than the one that joins it, and listed after it.
#[test]
fn a_chain_names_the_one_that_it_joins() {
    let jump = |from, to| (from, to, BranchType::UNCOND);
    let joint = jump(0x2010, 0x3000);
    let long = vec![
        jump(0x1000, 0x1100),
        jump(0x1108, 0x1200),
        jump(0x1208, 0x1300),
        jump(0x1308, 0x2000),
        joint,
    ];
    let stacks = [vec![long; 6], vec![vec![jump(0x1808, 0x2008), joint]; 7]].concat();
    let bytes = stream(meta(), &events(stacks.into_iter(), Integrity::UNKNOWN));
    let [joins, joined] = &paths(&bytes).paths[..] else { panic!("two chains") };
    assert_eq!((joins.links.len(), joined.links.len()), (4, 2));
    assert_eq!(joins.ends, Break::Joins { chain: 1, at: 1 });
}

/// A chain has at most 256 branches.
#[test]
fn a_long_chain_ends() {
    let jumps = (0..300).map(|n| (0x1008 + 0x10 * n, 0x1010 + 0x10 * n, BranchType::UNCOND));
    let trace: Vec<Branch> = jumps.chain([(0x22C8, 0x1000, BranchType::UNCOND)]).collect();
    let found = paths(&complete(&trace.repeat(2), 30));
    let longest = &found.paths[0];
    assert_eq!((longest.links.len(), &longest.ends), (256, &Break::Long));
}

/// By hand: 8 and 8 bytes from each target to the next branch of a chain; 0x20 bytes for each of
/// three rounds of a loop, whose last branch leads to its first.
#[test]
fn bytes_of_chains() {
    let jump = |from, to| (from, to, BranchType::UNCOND);
    let chain = vec![jump(0x10, 0x20), jump(0x28, 0x30), jump(0x38, 0x100)];
    for (stack, bytes) in [(chain, 16), (vec![BACK; 4], 3 * 0x20)] {
        let stacks = events(vec![stack; 5].into_iter(), Integrity::UNKNOWN);
        let found = paths(&stream(meta(), &stacks));
        let [path] = &found.paths[..] else { panic!("{:?}", found.paths) };
        assert_eq!((path.bytes, found.bytes), (5 * bytes, 5 * bytes));
    }
    // 4 bytes before the same last branch, from outside of its chain.
    let [inside, outside] = [jump(0x10, 0x20), jump(0x900, 0x24)];
    let stack = |first| vec![first, jump(0x28, 0x30)];
    let stacks = [vec![stack(inside); 5], vec![stack(outside); 2]].concat();
    let found = paths(&stream(meta(), &events(stacks.into_iter(), Integrity::UNKNOWN)));
    let of_chains: Vec<u64> = found.paths.iter().map(|path| path.bytes).collect();
    assert_eq!((of_chains, found.bytes), (vec![5 * 8, 0], 5 * 8 + 2 * 4));
}

/// A stack that ends within a chain leaves it unless the next one continues it.
#[test]
fn a_chain_is_lost_where_a_stack_ends_within_it() {
    let [a, b, c] = [(0x10, 0x20), (0x28, 0x30), (0x38, 0x100)]
        .map(|(from, to)| (from, to, BranchType::UNCOND));
    let whole = vec![vec![a, b, c]; 10];
    let stacks = [whole.clone(), vec![vec![a], vec![b, c]], whole].concat();
    for (integrity, lost) in [(Integrity::UNKNOWN, 1), (exact(), 0)] {
        let bytes = stream(meta(), &events(stacks.iter().cloned(), integrity));
        let paths = paths(&bytes);
        let [path] = &paths.paths[..] else { panic!("{:?}", paths.paths) };
        let of = |at: usize| (path.links[at].count, path.links[at].lost);
        // The branch after the target of the last one is never known.
        assert_eq!([of(0), of(1), of(2)], [(21, lost), (21, 0), (21, 21)], "{integrity:?}");
    }
}

/// By hand: of thirteen executions, two go from the second branch elsewhere. Only after the last one
/// does the chain end.
#[test]
fn a_chain_is_left_by_other_branches_within_it() {
    let jump = |from, to| (from, to, BranchType::UNCOND);
    let [a, b, c] = [jump(0x10, 0x20), jump(0x28, 0x30), jump(0x38, 0x100)];
    let whole = |then| vec![a, b, c, jump(then, 0x200)];
    let stacks = [
        vec![vec![a, b, c]; 9],
        vec![vec![a, b, jump(0x34, 0x300)]; 2],
        vec![whole(0x108), whole(0x118)],
    ];
    let bytes = stream(meta(), &events(stacks.concat().into_iter(), Integrity::UNKNOWN));
    let paths = paths(&bytes);
    let left: Vec<u64> = paths.paths[0].links.iter().map(|link| link.left).collect();
    assert_eq!((paths.paths[0].links[0].count, left), (13, vec![0, 2, 0]));
}

/// Of twelve executions of a branch, the five of one stack are lost at its end.
#[test]
fn a_stack_that_counts_several_times_is_lost_as_often() {
    let [first, second] = ["0x10/0x20/P/-/-/0", "0x28/0x30/P/-/-/0"];
    let paths = paths(format!("7\n{second} {first}\n5\n{first}\n1\n{second}\n").as_bytes());
    let [path] = &paths.paths[..] else { panic!("{:?}", paths.paths) };
    assert_eq!((path.links[0].count, path.links[0].lost), (12, 5));
    assert_eq!((path.links[1].count, path.links[1].entered), (8, 1));
}

/// Arbitrary recordings: addresses at every boundary, any type, weights, joined or not. Branch
/// counts must be consistent.
#[test]
fn odd_recordings() {
    let edges = [0, 1, 2, 5, 15, 16, 0x1000, 1 << 20, (1 << 20) + 6, (1 << 63) - 1, 1 << 63];
    let mut random = Random(77);
    for seed in 0..300 {
        let mut address = || match random.below(4) {
            0 => u64::MAX - random.below(20) as u64,
            1 => edges[random.below(edges.len())],
            _ => 0x4000 + random.below(40) as u64,
        };
        let stacks: Vec<Vec<Branch>> = (0..1 + seed % 7)
            .map(|length| {
                let kind = |at: u64| BranchType((at % 15) as u8);
                (0..length * 5 + 1)
                    .map(|_| (address(), address()))
                    .map(|(from, to)| (from, to, kind(from ^ to)))
                    .collect()
            })
            .collect();
        let integrity = if seed % 2 == 0 { exact() } else { Integrity::UNKNOWN };
        let bytes = stream(meta(), &events(stacks.into_iter(), integrity));
        let found = loops(&bytes);
        let graph = profile::callgraph::counter(true).count(&mut open(&bytes), |_, _| {}).unwrap();
        let paths = paths(&bytes);
        assert_eq!((found.taken, graph.total()), (paths.taken, paths.taken), "{seed}");
        let all: u64 = paths.paths.iter().map(|path| path.branches).sum();
        assert_eq!(all, paths.taken, "{seed}");
        for one in &found.loops {
            assert!(one.parent.is_none_or(|parent| parent < found.loops.len()), "{seed}");
        }
    }
}
