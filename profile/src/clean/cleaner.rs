//! The pass itself: one stack in, what counts of it out.

use std::collections::HashSet;

use lbr_msr::record::{Event, Head, Label, Lost};

use super::odd::{self, DUPLICATE_STRIDE, Rest};
use super::quality::{BlockQuality, Quality};
use super::streams::{Holds, Streams};
use super::{ByThread, View, add};
use crate::code::maps::Maps;
use crate::read::address::{LONGEST_BLOCK, crosses};
use crate::read::item::Straight;
use crate::read::names;
use crate::read::note::Source;
use crate::read::perf_data::{EventAttr, FileInfo};
use crate::read::registers::Registers;
use crate::read::stack::{Counters, Entries, RawBranch, SampleHead, Stack, Thread};

/// A branch that was taken, and what is known of the time before it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Transition {
    /// The branch.
    pub branch: RawBranch,
    /// Where the straight code before it begins: the target of the branch
    /// before. Means something only with [`len`](Self::len).
    pub(crate) entry: u64,
    /// Length of that code up to the branch, bytes, or [`NO_BLOCK`].
    pub(crate) len: u32,
    /// Core cycles since the branch before, 0 where they are not known: as the
    /// record says, but never from one stack to the next.
    pub(crate) cycles: u32,
    /// Nothing is missing between the branch before and this one, as far as the
    /// filter lets branches in.
    pub follows: bool,
}

/// No straight code lies before a branch.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

impl Transition {
    /// The straight code before the branch, from its first byte to the branch;
    /// `None` where the branch before is not known, or no such code can have
    /// run.
    #[must_use]
    pub fn straight(&self) -> Option<(u64, u64)> {
        (self.len != NO_BLOCK).then_some((self.entry, self.branch.from))
    }

    /// Core cycles since the branch before; `None` where they are not known.
    #[must_use]
    pub fn cycles(&self) -> Option<u32> {
        (self.cycles != 0).then_some(self.cycles)
    }
}

/// What is known of the time before the oldest branch of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// It is the next branch after the newest of the thread's stack before.
    Before,
    /// It is the first branch that the thread took since recording began with
    /// it.
    Start,
    /// Nothing.
    No,
}

/// The newest branch of a thread whose last stack ended uncut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Address of the branch.
    pub from: u64,
    /// Address it went to: the thread runs on from there.
    pub to: u64,
    /// The address space that both mean something in.
    pub space: u32,
}

/// What is left of a stack that counts.
#[derive(Clone, Copy, Debug)]
pub struct Cleaned<'a> {
    /// The sample.
    pub head: &'a SampleHead,
    /// How many stacks it stands for.
    pub weight: u64,
    /// Process and thread.
    pub thread: Thread,
    /// The address space that its addresses mean something in, by
    /// [`Maps`].
    pub space: u32,
    /// The entries as they were recorded, newest first, those that were left
    /// out included.
    pub(crate) entries: Entries<'a>,
    /// The branches that were taken, newest first.
    pub branches: Entries<'a>,
    /// The same, oldest first, each with the time before it; empty for views
    /// that do not ask ([`View::ORDERED`]).
    pub transitions: &'a [Transition],
    /// The time before the oldest branch.
    pub joins: Joins,
    /// The branch before the oldest, where it joins.
    pub before: Option<Standing>,
    /// The next stack of the thread may join to this one.
    pub goes_on: bool,
    /// Which branches were let in.
    pub holds: Holds,
    /// Only branches that end in user mode were asked for.
    pub user_only: bool,
    /// The stride of the newest entry where it was recorded twice, bytes; see
    /// [`Cleaned::repeated`].
    pub newest_stride: Option<u64>,
    counters: Option<Counters<'a>>,
    /// The registers of the program at the sample, where they were recorded.
    pub registers: Option<Registers<'a>>,
    /// Where each branch stood in the stack; empty where nothing was left out.
    at: &'a [usize],
}

impl Cleaned<'_> {
    /// The distance from a branch back to its target, bytes, where it stands
    /// there twice, `older` right behind `newer`: a loop of one block does that
    /// if it is short. `None` for two branches that differ, and where records
    /// are known not to repeat or not every branch was let in.
    #[must_use]
    pub fn repeated(&self, newer: RawBranch, older: RawBranch) -> Option<u64> {
        may_repeat(self.head, self.holds).then(|| odd::repeated(newer, older)).flatten()
    }

    /// Whether that distance is longer than is believed of a loop.
    #[must_use]
    pub fn is_duplicate(stride: u64) -> bool {
        stride > DUPLICATE_STRIDE
    }

    /// Whether events were counted branch by branch.
    #[must_use]
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// What was counted at the branch of an index, 0 being the newest.
    #[must_use]
    pub fn counts(&self, index: usize) -> [Option<u8>; 4] {
        let at = if self.at.is_empty() { Some(index) } else { self.at.get(index).copied() };
        let counts = at.zip(self.counters).and_then(|(at, counters)| counters.get(at));
        counts.unwrap_or_default()
    }
}

/// A software LBR writes nothing twice; where branches were kept out, two equal
/// neighbours mean nothing.
fn may_repeat(head: &SampleHead, holds: Holds) -> bool {
    head.source != Source::Software && holds == Holds::Everything
}

/// Cleans the stacks of recordings, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    pub(crate) quality: Quality,
    /// What kept neighbours apart.
    pub(crate) gaps: BlockQuality,
    pub(crate) maps: Maps,
    streams: Streams,
    /// By thread, where its last stack ended uncut.
    stood: ByThread<Standing>,
    /// Threads of a software LBR.
    seen: HashSet<Thread>,
    /// The branches of a stack that is counted at other addresses.
    moved: Vec<RawBranch>,
    rest: Rest,
    pub(super) transitions: Vec<Transition>,
    /// Those of one stack stand behind those of others, until somebody takes them.
    pub(super) gathers: bool,
}

impl Cleaner {
    /// What follows comes from another recording.
    pub(crate) fn begin(&mut self, info: Option<&FileInfo>) {
        if !self.maps.is_empty() {
            self.maps.next_recording();
            self.streams = Streams::default();
            self.stood.clear();
            self.seen.clear();
        }
        if let Some(info) = info {
            self.maps.expect(info);
        }
    }

    /// Learns which events there are: their filters say what lies between two
    /// branches.
    pub(crate) fn events(&mut self, events: &[EventAttr]) {
        self.streams.look(events);
    }

    /// Whether an event has been looked at.
    pub(crate) fn knows(&self, event: usize) -> bool {
        self.streams.knows(event)
    }

    /// Takes anything but a stack in.
    pub(crate) fn event(&mut self, event: &Event) {
        match event {
            Event::Lost(lost) => {
                self.quality.lost(lost);
                self.forget(lost);
            }
            Event::Exit(task) => {
                let thread = (Some(task.pid), Some(task.tid));
                self.stood.remove(&thread);
                self.seen.remove(&thread);
            }
            _ => {}
        }
        self.maps.event(event);
    }

    /// After a loss the next stack of its thread joins to nothing that is known.
    fn forget(&mut self, lost: &Lost) {
        match lost.label {
            Some(_) => self.stood.retain(|(_, tid), _| *tid != Some(lost.tid)),
            // Other recorders do not say whose stack is missing.
            None => self.stood.clear(),
        }
    }

    /// Cleans straight code for a view.
    pub(crate) fn straight<V: View>(&mut self, straight: &Straight, view: &mut V) {
        let Straight { head, entry, exit } = straight;
        let space = self.maps.space(head.pid) as u32;
        let has_names = self.maps.has_names();
        let len = length(*entry, *exit, has_names, &mut self.gaps, head.weight);
        if len != NO_BLOCK && head.weight > 0 {
            view.straight((*entry, len, space), head.weight, &mut self.maps);
        }
    }

    /// Cleans a stack, unless it stays out of every count. Apart from the view, so
    /// that it is compiled once and with this crate.
    pub(super) fn clean<'s>(
        &'s mut self,
        stack: &'s Stack<'_>,
        ordered: bool,
    ) -> Option<(Cleaned<'s>, &'s mut Maps)> {
        let (head, weight) = (&stack.head, stack.head.weight);
        let thread = (head.pid, head.tid);
        let before = if self.stood.is_empty() { None } else { self.stood.remove(&thread) };
        let first = head.source == Source::Software && self.seen.insert(thread);
        // What stands for no stack is counted no times.
        if !self.quality.sample(head, stack.entries.len()) || weight == 0 {
            return None;
        }
        let holds = self.streams.holds(head);
        let (space, entries, moved) = self.maps.settle(head, stack.entries, &mut self.moved);
        let newest_stride = match (entries.get(0), entries.get(1)) {
            (Some(newest), Some(next)) if may_repeat(head, holds) => odd::repeated(newest, next),
            _ => None,
        };
        let duplicate = newest_stride.is_some_and(Cleaned::is_duplicate);
        let all = !duplicate && !odd::any_odd(&entries);
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
            joins: match before {
                Some(_) => Joins::Before,
                None if joined && first => Joins::Start,
                None => Joins::No,
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
            if !self.gathers {
                self.transitions.clear();
            }
            let begin = self.transitions.len();
            put_in_order(&cleaned, gaps, has_names, &mut self.gaps, &mut self.transitions);
            let transitions = self.transitions.get(begin..).unwrap_or_default();
            self.maps.gather_blocks(space, transitions.iter().filter_map(Transition::straight));
            cleaned.transitions = transitions;
            // What was moved says nothing of where the thread stands.
            let gap = !all && self.rest.newest_gap;
            cleaned.goes_on = !head.integrity.cut && !moved && !gap;
            let last = transitions.last().map(|last| last.branch);
            let last =
                last.map(|RawBranch { from, to, .. }| Standing { from, to, space: cleaned.space });
            if let Some(last) = last.or(before).filter(|_| cleaned.goes_on) {
                self.stood.insert(thread, last);
            }
        }
        Some((cleaned, &mut self.maps))
    }
}

/// Adds the branches of a stack oldest first, each with what lies before it. `gaps`
/// says of each, newest first, whether something unknown does; it is empty
/// where nothing does.
fn put_in_order(
    stack: &Cleaned<'_>,
    gaps: &[bool],
    has_names: bool,
    quality: &mut BlockQuality,
    transitions: &mut Vec<Transition>,
) {
    let straight = stack.holds == Holds::Everything;
    if !straight {
        add(&mut quality.filtered, stack.weight);
    }
    let mut last = stack.before.map(|before| before.to);
    let mut spanning = last.is_some();
    let mut at = stack.branches.len();
    stack.branches.for_each_back(|branch| {
        at = at.wrapping_sub(1);
        if gaps.get(at) == Some(&true) {
            last = None;
        }
        let cycles = if spanning { 0 } else { branch.flags.cycles().unwrap_or(0) };
        let follows = last.is_some();
        let (entry, len) = match last.filter(|_| straight) {
            Some(entry) => (entry, length(entry, branch.from, has_names, quality, stack.weight)),
            None => (0, NO_BLOCK),
        };
        transitions.push(Transition { branch, entry, len, cycles, follows });
        spanning = false;
        last = Some(branch.to);
    });
}

/// The length of the straight code between two neighbours, bytes, or
/// [`NO_BLOCK`] and why not.
#[inline]
fn length(entry: u64, exit: u64, has_names: bool, quality: &mut BlockQuality, weight: u64) -> u32 {
    let length = exit.wrapping_sub(entry);
    if length <= LONGEST_BLOCK && !crosses(entry, exit) {
        return length as u32;
    }
    let why = if has_names && (names::is_name(entry) || names::is_name(exit)) {
        &mut quality.apart
    } else if crosses(entry, exit) {
        &mut quality.crossing
    } else if exit < entry {
        &mut quality.backwards
    } else {
        &mut quality.too_long
    };
    add(why, weight);
    NO_BLOCK
}
