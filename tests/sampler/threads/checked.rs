//! Checks the events of a recording against the branches that the LBRs recorded.

use std::collections::BTreeMap;

use lbr_msr::record::{Comm, Event, Head, HwBranchType, Label, Sink, Task};
use lbr_msr::soft::Retired;

use crate::Played;
use crate::engine::{RecordError, Summary};
use crate::random::Random;

/// The ring of a CPU or thread.
pub(crate) type Ring = u32;

/// Branch `n` of a ring, with addresses that every format can hold.
pub(crate) fn branch(ring: Ring, n: u64) -> Retired {
    let from = 0x40_1000 + (u64::from(ring) << 24) + 16 * n;
    Retired::user(from, from + 0x1000_0000, HwBranchType::Cond)
}

/// The program ends: two events of one time.
pub(crate) fn exit() -> [Event; 2] {
    let time = crate::sync::time::monotonic_ns();
    let name = Comm { time, pid: 70, tid: 70, comm: "ends".to_owned(), exec: false };
    [Event::Comm(name), Event::Exit(Task { time, pid: 70, tid: 70, ppid: 1, ptid: 1 })]
}

fn number(ring: Ring, from: u64, to: u64) -> u64 {
    let n = from.wrapping_sub(branch(ring, 0).from) / 16;
    let whole = branch(ring, n);
    assert_eq!((from, to), (whole.from, whole.to), "a mixed record in ring {ring}");
    n
}

/// Keeps the events; the disk may fill up.
pub(crate) struct Disk {
    pub(crate) events: Vec<Event>,
    room: usize,
    /// It refused an event.
    pub(crate) is_full: bool,
    slow: usize,
    chance: Random,
}

impl Disk {
    pub(crate) fn new(mut chance: Random) -> Disk {
        let room = if chance.one_in(8) { chance.below(30) } else { usize::MAX };
        let slow = [0, 2, 1][chance.below(3)];
        Disk { events: Vec::new(), room, is_full: false, slow, chance }
    }
}

impl Sink for Disk {
    type Error = &'static str;

    fn event(&mut self, event: &Event) -> Result<(), &'static str> {
        if self.chance.one_in(self.slow) {
            crate::sync::thread::sleep(std::time::Duration::from_micros(300));
        }
        if self.events.len() >= self.room {
            self.is_full = true;
            return Err("the disk is full");
        }
        self.events.push(event.clone());
        Ok(())
    }
}

/// The history of a ring.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// The numbers of the branches that the LBR recorded.
    pub(crate) recorded: Vec<u64>,
    /// It was cleared, which a drain may not notice if nothing was drained before.
    pub(crate) wiped: bool,
    /// The number of branches before each move of the thread.
    pub(crate) moves: Vec<u64>,
    /// The branches that enter a function whose arguments are recorded.
    pub(crate) entries: Vec<u64>,
    /// The recorder closed before the thread's end.
    pub(crate) closed: bool,
}

#[derive(Default)]
struct Seen {
    /// Number of delivered branches, as a position in the recorded ones.
    next: usize,
    /// Stacks reported as lost since the last sample.
    lost: u64,
    /// Those of them that a label excludes. A dropped stack may be reported after the next one.
    excluded: u64,
    moves: Vec<u64>,
    entries: Vec<u64>,
}

/// Checks a recording. `identify`: the ring of a CPU and thread. `failed`: whether an
/// access or the disk failed.
pub(crate) fn check(
    result: &Result<Summary, RecordError<&'static str>>,
    events: &[Event],
    truth: &BTreeMap<Ring, Truth>,
    identify: impl Fn(u32, u32) -> Ring,
    failed: bool,
) -> Played {
    let mut played = Played::default();
    let mut rings: BTreeMap<Ring, Seen> = BTreeMap::new();
    let (mut samples, mut branches, mut unjoined, mut dropped) = (0, 0, 0, 0);
    let (mut time, mut others) = (0, Vec::new());
    for event in events {
        match event {
            Event::Lost(lost) => {
                assert!(lost.time >= time, "a loss out of order");
                time = lost.time;
                assert!(lost.stacks > 0, "nothing is lost");
                let seen = rings.entry(identify(lost.cpu, lost.tid)).or_default();
                seen.lost += lost.stacks;
                seen.excluded += if lost.label.is_some() { lost.stacks } else { 0 };
                played.lost += lost.stacks;
                dropped += if lost.label.is_none() { lost.stacks } else { 0 };
            }
            Event::Sample(sample) => {
                assert!(sample.time >= time, "a sample out of order");
                time = sample.time;
                let ring = identify(sample.cpu, sample.tid);
                let recorded = &truth[&ring].recorded;
                let seen = rings.entry(ring).or_default();
                let integrity = sample.stack.integrity;
                assert!(!integrity.label.is_excluded(), "{:?} is excluded", integrity.label);
                samples += 1;
                branches += sample.stack.entries.len() as u64;
                let is_joined = integrity.head == Head::Joined;
                unjoined += u64::from(!is_joined);
                for (at, entry) in sample.stack.oldest_first().enumerate() {
                    let n = number(ring, entry.from, entry.to);
                    let place = recorded.binary_search(&n).expect("a branch that was recorded");
                    assert!(place >= seen.next, "branch {n} of ring {ring} twice or out of order");
                    assert!(at == 0 || place == seen.next, "a gap inside a stack of ring {ring}");
                    // Before the first mark, a ring that was cleared looks as when it was armed.
                    let unseen = truth[&ring].wiped && seen.next == 0;
                    let follows = place == seen.next && seen.excluded == 0 || unseen;
                    assert!(at > 0 || !is_joined || follows, "a gap in ring {ring} is joined");
                    (seen.next, seen.lost, seen.excluded) = (place + 1, 0, 0);
                }
                let newest = seen.next.checked_sub(1).map_or(0, |at| recorded[at] + 1);
                for moved in &sample.stack.moves {
                    assert_eq!(newest - u64::from(moved.newer), moved.from, "a move's branch");
                    seen.moves.push(moved.from);
                }
                if let Some(arguments) = sample.arguments {
                    assert_eq!(arguments[0] + 1, newest, "arguments of another branch");
                    seen.entries.push(arguments[0]);
                }
            }
            Event::Comm(Comm { time: at, .. }) | Event::Exit(Task { time: at, .. }) => {
                assert!(*at >= time, "an event out of order");
                time = *at;
                others.push(matches!(event, Event::Exit(_)));
            }
            _ => unreachable!("{event:?}"),
        }
    }
    for truth in truth.values() {
        played.recorded += truth.recorded.len() as u64;
    }
    played.delivered = branches;
    assert_eq!(result.is_err(), failed, "{result:?}");
    let Ok(summary) = result else {
        played.failed = 1;
        return played;
    };
    assert_eq!(others, [false, true], "the events of the program's end");
    assert_eq!((summary.samples, summary.branches), (samples, branches), "the summary's samples");
    assert_eq!((summary.lost, summary.dropped), (played.lost, dropped), "the summary's losses");
    assert_eq!(summary.not_joined, unjoined, "the summary's gaps");
    assert_eq!(summary.unreadable, 0, "records that are not empty");
    let labelled: u64 = summary.labels.values().map(|tally| tally.stacks).sum();
    assert!(labelled + dropped <= summary.drains, "more stacks than drains");
    let drained: u64 = summary.labels.values().map(|tally| tally.branches).sum();
    let kept = summary.labels.iter().filter(|(label, _)| !label.is_excluded());
    assert_eq!(kept.map(|(_, tally)| tally.branches).sum::<u64>(), branches, "kept branches");
    assert!(drained >= branches);
    let mut is_whole = summary.labels.keys().all(|label| *label == Label::Stream);
    for (ring, truth) in truth {
        let seen = rings.remove(ring).unwrap_or_default();
        let is_all = seen.next == truth.recorded.len();
        assert!(
            is_all || seen.lost > 0 || truth.wiped,
            "of ring {ring} only {} of {} are there",
            seen.next,
            truth.recorded.len()
        );
        is_whole &= is_all && unjoined == 0;
        if summary.complete && !truth.closed {
            assert_eq!(seen.moves, truth.moves, "the moves of ring {ring}");
        }
        if dropped == 0 {
            assert_eq!(seen.entries, truth.entries, "the entries of ring {ring}");
        }
    }
    assert!(rings.is_empty(), "events of no ring");
    assert!(!summary.complete || is_whole && played.lost == 0, "not complete: {summary:?}");
    played.complete = u64::from(summary.complete);
    played
}
