//! The cleaning pass: from one recorded stack to the branches that count.

use std::collections::{BTreeMap, HashSet, VecDeque};

use lbr_msr::record::{Event, Head, Label, Lost, MoveKind};

use super::ByThread;
use super::artefacts::{self, CleanStack, DUPLICATE_STRIDE};
use super::moves::{ContextChange, Continuity, Cuts, Interrupted, Passage};
use super::quality::{BlockQuality, Quality};
use super::streams::{RecordedBranches, Streams};
use crate::code::maps::Maps;
use crate::read::add;
use crate::read::names;
use crate::read::note::{Moves, Source};
use crate::read::perf_data::FileInfo;
use crate::read::registers::Registers;
use crate::read::stack::{Counters, Entries, RawBranch, SampleHead, Stack, Straight, Thread};
use crate::read::{LONGEST_BLOCK, crosses};

/// A taken branch, and the code executed since the previous one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transition {
    /// The branch.
    pub branch: RawBranch,
    /// Start of the fall-through range before it: the previous branch's target. Valid only with
    /// [`len`](Self::len).
    pub(crate) entry: u64,
    /// Length of that range up to the branch, bytes, or [`NO_BLOCK`].
    pub(crate) len: u32,
    /// Core cycles since the previous branch, 0 if unknown: as recorded, but never across two
    /// stacks.
    pub(crate) cycles: u32,
    /// Whether no branch is missing between the previous branch and this one, except filtered ones.
    pub follows: bool,
}

/// There is no fall-through range before a branch.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

impl Transition {
    /// The fall-through range before the branch, from its first byte to the branch; `None` if the
    /// previous branch is unknown, or no such code can have run.
    pub fn straight(&self) -> Option<(u64, u64)> {
        (self.len != NO_BLOCK).then_some((self.entry, self.branch.from))
    }

    /// Core cycles since the previous branch; `None` if unknown.
    pub fn cycles(&self) -> Option<u32> {
        (self.cycles != 0).then_some(self.cycles)
    }
}

/// The newest branch of a thread whose last stack was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastBranch {
    /// Address of the branch.
    pub from: u64,
    /// Its target, where the thread continued.
    pub to: u64,
    /// The address space of both addresses.
    pub space: u32,
    /// Start of the current straight-line code: `to`, unless the kernel has moved the thread since.
    /// `None` if unknown.
    pub(crate) entry: Option<u64>,
}

impl LastBranch {
    /// The start of the current straight-line code, and its address space.
    fn straight(self) -> (u64, u32) {
        (self.entry.unwrap_or(self.to), self.space)
    }
}

/// Counts that the recording does not report how far code ran on from an address.
fn leave_open(open: &mut BTreeMap<(u64, u32), u64>, gaps: &mut BlockQuality, at: (u64, u32)) {
    add(&mut gaps.open, 1);
    add(open.entry(at).or_default(), 1);
}

/// A stack that counts, after cleaning.
#[derive(Clone, Copy, Debug)]
pub struct Cleaned<'a> {
    /// The sample.
    pub head: &'a SampleHead,
    /// Its weight: number of identical stacks.
    pub weight: u64,
    /// Process and thread.
    pub thread: Thread,
    /// The address space of its addresses, a number of [`Maps`].
    pub space: u32,
    /// The recorded entries, newest first, including dropped ones.
    pub(crate) entries: Entries<'a>,
    /// The taken branches, newest first.
    pub branches: Entries<'a>,
    /// The same, oldest first, with the code before each; empty for views that do not need them
    /// ([`View::ORDERED`](super::View::ORDERED)).
    pub transitions: &'a [Transition],
    /// Straight-line code that no branch ended: its first instruction, the distance of the last
    /// one, the address space.
    pub(crate) ended: &'a [(u64, u32, u32)],
    /// Recorded branches that were not taken, newest first.
    pub(crate) not_taken: &'a [RawBranch],
    /// Changes of context, the oldest first; the same exception.
    pub(crate) contexts: &'a [ContextChange],
    /// How the oldest branch continues the previous stack.
    pub joins: Continuity,
    /// The branch before the oldest, if joined.
    pub before: Option<LastBranch>,
    /// Whether the thread's next stack may continue this one.
    pub goes_on: bool,
    /// The branches that the filter records.
    pub holds: RecordedBranches,
    /// Whether only branches that end in user mode were recorded.
    pub user_only: bool,
    /// The stride of the newest entry if it was recorded twice, bytes; see [`Cleaned::repeated`].
    pub newest_stride: Option<u64>,
    pub(crate) counters: Option<Counters<'a>>,
    /// The program's registers at the sample, if recorded.
    pub registers: Option<Registers<'a>>,
    /// The stack index of each branch; empty if nothing was dropped.
    at: &'a [usize],
}

impl Cleaned<'_> {
    /// The distance from a branch back to its target, bytes, if `older`, directly after `newer`, is
    /// the same branch: a short loop of one block also does that. `None` for different branches,
    /// and if records cannot be duplicated or were filtered.
    pub fn repeated(&self, newer: RawBranch, older: RawBranch) -> Option<u64> {
        may_repeat(self.head, self.holds).then(|| artefacts::repeated(newer, older)).flatten()
    }

    /// Whether that distance is too long for a loop.
    pub fn is_duplicate(stride: u64) -> bool {
        stride > DUPLICATE_STRIDE
    }

    /// The counts of the branch at an index, 0 being the newest, in all identical stacks.
    pub fn counts(&self, index: usize) -> [Option<u64>; 4] {
        let at = if self.at.is_empty() { Some(index) } else { self.at.get(index).copied() };
        let counts = at.zip(self.counters).and_then(|(at, counters)| counters.get(at));
        counts.unwrap_or_default().map(|n| n.map(|n| u64::from(n).saturating_mul(self.weight)))
    }
}

/// Whether equal neighbours can be duplicates: a software LBR writes no duplicates, and with a
/// filter equal neighbours mean nothing.
fn may_repeat(head: &SampleHead, holds: RecordedBranches) -> bool {
    head.source != Source::Software && holds == RecordedBranches::Everything
}

/// Cleans the stacks of recordings, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    pub(crate) quality: Quality,
    /// Counts of neighbours without a fall-through range.
    pub(crate) gaps: BlockQuality,
    pub(crate) maps: Maps,
    pub(super) streams: Streams,
    /// By thread, the newest branch if its last stack was not cut.
    last_branches: ByThread<LastBranch>,
    /// Code interrupted by signals, by thread, innermost last.
    interrupted: ByThread<VecDeque<Interrupted>>,
    cuts: Cuts,
    /// Number of times that the end of straight-line code is unknown, by its start and address
    /// space.
    pub(crate) open: BTreeMap<(u64, u32), u64>,
    /// [`Cleaned::ended`] of the current stack.
    ended: Vec<(u64, u32, u32)>,
    /// Threads already seen, for software LBRs.
    seen: HashSet<Thread>,
    /// The branches of a stack that is counted at other addresses.
    moved: Vec<RawBranch>,
    rest: CleanStack,
    transitions: Vec<Transition>,
}

impl Cleaner {
    /// Starts another recording.
    pub(crate) fn begin(&mut self, info: Option<&FileInfo>) {
        self.streams = Streams::default();
        if !self.maps.is_empty() {
            self.maps.next_recording();
            self.leave_open();
            self.interrupted.clear();
            self.seen.clear();
        }
        if let Some(info) = info {
            self.maps.expect(info);
        }
    }

    /// The recording ends: the last straight-line code of these threads is unknown.
    pub(crate) fn leave_open(&mut self) {
        for (_, last) in std::mem::take(&mut self.last_branches) {
            leave_open(&mut self.open, &mut self.gaps, last.straight());
        }
    }

    /// A thread ends or becomes another program.
    fn left(&mut self, thread: Thread) {
        if let Some(last) = self.last_branches.remove(&thread) {
            leave_open(&mut self.open, &mut self.gaps, last.straight());
        }
        self.seen.remove(&thread);
        self.interrupted.remove(&thread);
    }

    /// Handles any item except a stack.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Lost(lost) => {
                self.quality.lost(lost);
                self.forget(lost);
            }
            Event::Exit(task) => {
                self.left((Some(task.pid), Some(task.tid)));
            }
            Event::Comm(comm) if comm.exec => self.left((Some(comm.pid), Some(comm.tid))),
            _ => {}
        }
        self.maps.event(event);
    }

    /// After a loss, the next stack of its thread is not joined.
    fn forget(&mut self, lost: &Lost) {
        match lost.label {
            Some(_) => self.last_branches.retain(|(_, tid), _| *tid != Some(lost.tid)),
            // Other recorders do not report whose stack is missing.
            None => self.last_branches.clear(),
        }
    }

    /// Cleans a fall-through range: its entry, length and address space, if it counts.
    pub(crate) fn straight(&mut self, straight: &Straight) -> Option<(u64, u32, u32)> {
        let Straight { head, entry, exit } = straight;
        let space = self.maps.space(head.pid) as u32;
        let has_names = self.maps.has_names();
        let len = length(*entry, *exit, has_names, &mut self.gaps, head.weight);
        (len != NO_BLOCK && head.weight > 0).then_some((*entry, len, space))
    }

    /// Cleans a stack, unless it is excluded from all counts. Not generic over the view, so that it
    /// is compiled once, in this crate.
    pub(super) fn clean<'s>(
        &'s mut self,
        stack: &'s Stack<'_>,
        ordered: bool,
    ) -> Option<(Cleaned<'s>, &'s mut Maps)> {
        let (head, weight) = (&stack.head, stack.head.weight);
        let thread = (head.pid, head.tid);
        let before =
            if self.last_branches.is_empty() { None } else { self.last_branches.remove(&thread) };
        let first = head.source == Source::Software && self.seen.insert(thread);
        // Skips zero weight.
        if !self.quality.sample(head, stack.entries.len()) || weight == 0 {
            return None;
        }
        let holds = self.streams.holds(head);
        let (space, entries, moved) = self.maps.settle(head, stack.entries, &mut self.moved);
        let newest_stride = match (entries.get(0), entries.get(1)) {
            (Some(newest), Some(next)) if may_repeat(head, holds) => {
                artefacts::repeated(newest, next)
            }
            _ => None,
        };
        let duplicate = newest_stride.is_some_and(Cleaned::is_duplicate);
        let all = !duplicate && !artefacts::any_odd(&entries);
        if !all {
            self.rest.take(&entries, duplicate, &mut self.quality, weight);
        }
        let joined = head.integrity.head == Head::Joined && head.integrity.label == Label::Stream;
        let before = before.filter(|_| joined);
        let mut cleaned = Cleaned {
            head,
            weight,
            thread,
            space: space as u32,
            entries,
            branches: if all { entries } else { Entries::Parsed(&self.rest.branches) },
            transitions: &[],
            ended: &[],
            not_taken: if all { &[] } else { &self.rest.not_taken },
            contexts: &[],
            joins: match before {
                Some(_) => Continuity::Before,
                None if joined && first => Continuity::Start,
                None => Continuity::No,
            },
            before,
            goes_on: false,
            holds,
            user_only: self.streams.is_user_only(head),
            newest_stride,
            counters: stack.counters,
            registers: stack.registers,
            at: if all { &[] } else { &self.rest.at },
        };
        if ordered {
            let gaps = if all { &[][..] } else { &self.rest.gaps };
            let has_names = self.maps.has_names();
            self.transitions.clear();
            self.cuts.clear();
            self.ended.clear();
            let everything = holds == RecordedBranches::Everything;
            let moves = if everything { stack.moves } else { Moves::default() };
            let starts = moves.iter().next().is_some_and(|moved| moved.kind == MoveKind::Start);
            self.gaps.open += u64::from(cleaned.joins == Continuity::Start && !starts);
            let mut interrupted = self.interrupted.remove(&thread).unwrap_or_default();
            let cuts = &mut self.cuts;
            let passage = Passage { moves, interrupted: &mut interrupted, cuts };
            let (gap_counts, transitions) = (&mut self.gaps, &mut self.transitions);
            let entry = put_in_order(&cleaned, passage, gaps, has_names, gap_counts, transitions);
            if !interrupted.is_empty() {
                self.interrupted.insert(thread, interrupted);
            }
            self.cuts.ended(cleaned.space, &mut self.maps, &mut self.ended);
            for at in self.cuts.open.drain(..) {
                leave_open(&mut self.open, &mut self.gaps, (at, space as u32));
            }
            cleaned.ended = &self.ended;
            cleaned.contexts = &self.cuts.contexts;
            let transitions = &self.transitions[..];
            self.maps.gather_blocks(space, transitions.iter().filter_map(Transition::straight));
            cleaned.transitions = transitions;
            // After moving addresses, the thread's position is unknown.
            let gap = !all && self.rest.newest_gap;
            cleaned.goes_on = !head.integrity.cut && !moved && !gap && entry.is_some();
            let last = transitions.last().map(|last| last.branch);
            let last = last.map(|RawBranch { from, to, .. }| LastBranch {
                from,
                to,
                space: cleaned.space,
                entry,
            });
            if let Some(last) = last.or(before).filter(|_| cleaned.goes_on) {
                self.last_branches.insert(thread, LastBranch { entry, ..last });
            }
        }
        Some((cleaned, &mut self.maps))
    }
}

/// Adds the branches of a stack, oldest first, with the code before each. `gaps` tells for each,
/// newest first, whether unknown code ran before it; it is empty if there are no gaps. Returns the
/// start of the code after the newest branch; `None` if the thread ended.
fn put_in_order(
    stack: &Cleaned<'_>,
    mut passage: Passage<'_>,
    gaps: &[bool],
    has_names: bool,
    quality: &mut BlockQuality,
    transitions: &mut Vec<Transition>,
) -> Option<u64> {
    let straight = stack.holds == RecordedBranches::Everything;
    if !straight {
        add(&mut quality.filtered, stack.weight);
    }
    let mut last = stack.before.and_then(|before| before.entry);
    let mut follows = stack.before.is_some_and(|before| before.entry == Some(before.to));
    let mut spanning = last.is_some();
    for (at, branch) in stack.branches.iter().enumerate().rev() {
        if gaps.get(at) == Some(&true) {
            (last, follows) = (None, false);
        }
        let index = stack.at.get(at).copied().unwrap_or(at);
        if let Some(entry) = passage.before(index as u64 + 1, last, transitions.len()) {
            (last, follows, spanning) = (entry, false, true);
        }
        let cycles = if spanning { 0 } else { branch.flags.cycles().unwrap_or(0) };
        let (entry, len) = match last.filter(|_| straight) {
            Some(entry) => (entry, length(entry, branch.from, has_names, quality, stack.weight)),
            None => (0, NO_BLOCK),
        };
        transitions.push(Transition { branch, entry, len, cycles, follows });
        spanning = false;
        (last, follows) = (Some(branch.to), true);
    }
    passage.before(0, last, transitions.len()).unwrap_or(last)
}

/// The length of the fall-through range between two neighbours, bytes, or [`NO_BLOCK`] after
/// counting the reason.
#[inline]
fn length(entry: u64, exit: u64, has_names: bool, quality: &mut BlockQuality, weight: u64) -> u32 {
    let length = exit.wrapping_sub(entry);
    if length <= LONGEST_BLOCK && !crosses(entry, exit) && entry != 0 {
        return length as u32;
    }
    let why = if has_names && (names::is_name(entry) || names::is_name(exit)) {
        &mut quality.apart
    } else if crosses(entry, exit) || entry == 0 || exit == 0 {
        // BRBE records 0 for an address of a level that is not recorded.
        &mut quality.crossing
    } else if exit < entry {
        &mut quality.backwards
    } else {
        &mut quality.too_long
    };
    add(why, weight);
    NO_BLOCK
}
