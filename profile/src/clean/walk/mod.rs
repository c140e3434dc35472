//! Branches in the order in which they ran: what the views that look at more
//! than one entry at a time share.
//!
//! A stack becomes *steps*, oldest first. A step is a branch that was taken,
//! and the one before it where straight code joins the two.

mod frames;

use std::collections::HashMap;

use lbr_msr::record::{BranchType, Event, Head, Label};

use crate::clean::collect::{self, Collect, Thread};
use crate::clean::index;
use crate::clean::quality::{Entry, Quality};
use crate::clean::table::{Keyed, Table};
use crate::clean::{self, DUPLICATE_STRIDE, LONGEST_BLOCK, Streams};
use crate::code::maps::Maps;
use crate::code::straight;
use crate::read::names::Symbol;
use crate::read::note::Source;
use crate::read::perf_data::{EventAttr, ReadError};
use crate::read::recording::Recording;
use crate::read::select::LeftOut;
use crate::read::stack::{Entries, RawBranch, SampleHead, Stack};

pub(crate) use crate::clean::Holds;
pub(crate) use frames::{Frames, Returned, returns_behind};

/// What a branch does to the flow of control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Neither the recording nor the code says.
    #[default]
    Unknown,
    /// A conditional jump.
    Conditional,
    /// A jump to one place. Also a call of the next instruction, which no
    /// return belongs to.
    Jump,
    /// A jump to where a register or memory says.
    IndirectJump,
    /// A call, a system call, an interrupt or an exception.
    Call,
    /// A return from any of them.
    Return,
}

impl Kind {
    /// The kind of perf's type.
    #[must_use]
    pub(crate) const fn of(branch_type: Option<BranchType>) -> Kind {
        let Some(branch_type) = branch_type else { return Kind::Unknown };
        match branch_type {
            BranchType::COND => Kind::Conditional,
            BranchType::UNCOND | BranchType::NO_TX => Kind::Jump,
            BranchType::IND => Kind::IndirectJump,
            BranchType::CALL
            | BranchType::IND_CALL
            | BranchType::COND_CALL
            | BranchType::SYSCALL
            | BranchType::IRQ
            | BranchType::SERROR => Kind::Call,
            BranchType::RET | BranchType::COND_RET | BranchType::SYSRET | BranchType::ERET => {
                Kind::Return
            }
            _ => Kind::Unknown,
        }
    }

    /// Stays in the frame: no call and no return. What nobody knows is taken
    /// for a jump.
    #[must_use]
    pub(crate) const fn is_jump(self) -> bool {
        !matches!(self, Kind::Call | Kind::Return)
    }
}

/// A distinct taken branch of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) space: u32,
    pub(crate) kind: Kind,
    pub(crate) count: u64,
}

impl Keyed for Edge {
    type Key = (u32, u64, u64);

    #[inline]
    fn key(&self) -> (u32, u64, u64) {
        (self.space, self.from, self.to)
    }

    #[inline]
    fn hash((space, from, to): (u32, u64, u64)) -> u32 {
        index::hash(from, to, u64::from(space))
    }
}

/// The distinct branches, in the order in which they were first seen: a second
/// walk over the same recording gives them the same numbers.
#[derive(Debug, Default)]
pub(crate) struct Edges {
    table: Table<Edge>,
}

impl Edges {
    pub(crate) fn list(&self) -> &[Edge] {
        &self.table.list
    }

    pub(crate) fn get(&self, edge: usize) -> Option<&Edge> {
        self.table.list.get(edge)
    }

    /// Whether a branch was taken.
    pub(crate) fn has(&self, space: u32, from: u64, to: u64) -> bool {
        let key = (space, from, to);
        self.table.find(Edge::hash(key), key).is_some()
    }

    /// Where each entry of a stack will most likely be found: its hash and its
    /// number. All are fetched side by side.
    fn look_up(&self, entries: &Entries<'_>, space: u32, found: &mut Vec<(u32, u32)>) {
        found.clear();
        entries.for_each(|branch| found.push((Edge::hash((space, branch.from, branch.to)), 0)));
        let touched = found.iter().fold(0, |all, (hash, _)| all ^ self.table.touch(*hash));
        std::hint::black_box(touched);
        for (hash, number) in &mut *found {
            *number = self.table.guess(*hash);
        }
        let touch = |number: u32| self.table.get(number).map_or(0, |edge| edge.count);
        std::hint::black_box(found.iter().fold(0, |all, (_, number)| all ^ touch(*number)));
    }

    /// The number of a branch; a new one if there was none. `None` where there
    /// are more than numbers.
    fn number(
        &mut self,
        (hash, guess): (u32, u32),
        key: (u32, u64, u64),
        kind: impl FnOnce() -> Kind,
    ) -> Option<usize> {
        let found = self.table.find_near(guess, hash, key);
        let number = found.or_else(|| {
            let (space, from, to) = key;
            self.table.push(Edge { from, to, space, kind: kind(), count: 0 })
        });
        number.map(|number| number as usize)
    }
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Its number among the [`Edges`].
    pub(crate) edge: usize,
    /// The branch before, where code ran straight from its target to here.
    pub(crate) before: Option<usize>,
    /// Nothing is missing between the step before and this one, as far as the
    /// filter lets branches in.
    pub(crate) follows: bool,
    /// Core cycles since the branch before.
    pub(crate) cycles: Option<u32>,
}

/// What is known of the time before the oldest branch of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    /// It is the next branch after the newest of the thread's stack before.
    Before,
    /// It is the first branch that the thread took since recording began with
    /// it.
    Start,
    /// Nothing.
    No,
}

/// A stack that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    pub(crate) thread: Thread,
    pub(crate) joins: Joins,
    /// How many stacks it stands for.
    pub(crate) weight: u64,
    /// The next stack of the thread may join to this one.
    pub(crate) goes_on: bool,
    /// Which branches were let in.
    pub(crate) holds: Holds,
    /// The address space of the process.
    pub(crate) space: u32,
    /// Everything else about it.
    pub(crate) head: SampleHead,
}

/// Turns stacks into steps.
#[derive(Debug, Default)]
pub(crate) struct Walker {
    pub(crate) quality: Quality,
    pub(crate) maps: Maps,
    pub(crate) edges: Edges,
    /// Stacks in which not every branch was recorded.
    pub(crate) filtered: u64,
    /// Pairs of neighbours that no straight code joins.
    pub(crate) broken: u64,
    /// The steps of the stack at hand, oldest first.
    pub(crate) steps: Vec<Step>,
    found: Vec<(u32, u32)>,
    /// The branches of a stack that is counted at other addresses.
    moved: Vec<RawBranch>,
    streams: Streams,
    /// The newest branch of each thread whose last stack ended uncut.
    stood: HashMap<Thread, usize>,
    seen: HashMap<Thread, ()>,
}

impl Walker {
    /// A walk over the same recording once more: branches keep their numbers,
    /// everything else is counted anew.
    pub(crate) fn again(mut edges: Edges) -> Walker {
        edges.table.list.iter_mut().for_each(|edge| edge.count = 0);
        Walker { edges, ..Walker::default() }
    }

    /// Every taken branch is here.
    pub(crate) fn is_complete(&self) -> bool {
        self.quality.is_complete() && self.filtered == 0
    }

    /// What follows comes from another recording.
    fn begin(&mut self, recording: &Recording) {
        if !self.maps.is_empty() {
            self.maps.next_recording();
            self.streams = Streams::default();
            self.stood.clear();
            self.seen.clear();
        }
        if let Some(info) = recording.info() {
            self.maps.expect(info);
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Lost(lost) => {
                self.quality.lost(lost);
                collect::forget_lost(&mut self.stood, lost);
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

    /// Takes a stack in; its steps are in `steps` then. `None` where it stays
    /// out of every count.
    fn stack(&mut self, stack: &Stack<'_>) -> Option<Opening> {
        let head = &stack.head;
        let thread = (head.pid, head.tid);
        let before = self.stood.remove(&thread);
        self.steps.clear();
        let first = self.seen.insert(thread, ()).is_none();
        if !self.quality.sample(head, stack.entries.len()) || head.weight == 0 {
            return None;
        }
        let weight = head.weight;
        let straight = self.streams.is_straight(head);
        if !straight {
            add(&mut self.filtered, weight);
        }
        let mut moved = std::mem::take(&mut self.moved);
        let (space, entries) = self.maps.settle(head, stack.entries, &mut moved);
        let space = space as u32;
        let duplicate = self.streams.is_duplicated(head, &entries, DUPLICATE_STRIDE);
        if duplicate {
            add(&mut self.quality.duplicated_newest, weight);
        }
        let joined = joins(head);
        let mut last = before.filter(|_| joined);
        let joins = match last {
            Some(_) => Joins::Before,
            None if joined && first && head.source == Source::Software => Joins::Start,
            None => Joins::No,
        };
        let mut spanning = last.is_some();
        let aborts = clean::second_aborts(&entries);
        let mut found = std::mem::take(&mut self.found);
        self.edges.look_up(&entries, space, &mut found);
        for index in (usize::from(duplicate)..entries.len()).rev() {
            let Some(branch) = entries.get(index) else { continue };
            match self.quality.entry(branch, index, &aborts, weight) {
                Entry::Taken => {}
                Entry::Gap => {
                    last = None;
                    continue;
                }
                Entry::LeftOut => continue,
            }
            let key = (space, branch.from, branch.to);
            let (maps, recorded) = (&mut self.maps, branch.flags.branch_type());
            let place = found.get(index).copied().unwrap_or_default();
            let number = self.edges.number(place, key, || kind(maps, key, recorded));
            let Some(edge) = number else { continue };
            let entry = last.filter(|_| straight).and_then(|last| self.edges.get(last));
            let entry = entry.map(|edge| edge.to);
            let follows = last.is_some();
            let runs = entry.is_some_and(|entry| runs_straight(entry, branch.from));
            if entry.is_some() && !runs {
                add(&mut self.broken, weight);
            }
            if let Some(edge) = self.edges.table.list.get_mut(edge) {
                add(&mut edge.count, weight);
                if edge.kind == Kind::Unknown && recorded.is_some() {
                    edge.kind = Kind::of(recorded);
                }
            }
            let cycles = branch.flags.cycles().filter(|_| !spanning);
            let before = last.filter(|_| runs);
            self.steps.push(Step { edge, before, follows, cycles });
            spanning = false;
            last = Some(edge);
        }
        self.found = found;
        // What was moved says nothing of where the thread stands.
        let goes_on = !head.integrity.cut && moved.is_empty();
        self.moved = moved;
        if let Some(edge) = last.filter(|_| goes_on) {
            self.stood.insert(thread, edge);
        }
        let holds = self.streams.holds(head);
        Some(Opening { thread, joins, weight, goes_on, holds, space, head: *head })
    }
}

/// Whether code can have run straight from one address to the other.
fn runs_straight(entry: u64, exit: u64) -> bool {
    !clean::crosses(entry, exit)
        && exit.checked_sub(entry).is_some_and(|length| length <= LONGEST_BLOCK)
}

/// The kind of a branch: as recorded, else by its code bytes.
fn kind(maps: &mut Maps, (space, from, to): (u32, u64, u64), recorded: Option<BranchType>) -> Kind {
    // perf's types do not tell a call of the next instruction: its length does.
    const CALL_REL32: u64 = 5;
    match recorded {
        Some(BranchType::CALL) if to == from.wrapping_add(CALL_REL32) => Kind::Jump,
        Some(_) => Kind::of(recorded),
        None => {
            let location = maps.locate(space as usize, from);
            match straight::branch_at(maps, location, from, to).1 {
                Some(branch) if branch.is_zero_length_call() => Kind::Jump,
                Some(branch) if branch.can_reach(to) => Kind::of(Some(branch.branch_type)),
                // Into the kernel by an interrupt or a call, and back again.
                _ if clean::crosses(from, to) && to >= clean::KERNEL => Kind::Call,
                _ if clean::crosses(from, to) => Kind::Return,
                branch => Kind::of(branch.map(|branch| branch.branch_type)),
            }
        }
    }
}

fn joins(head: &SampleHead) -> bool {
    head.integrity.head == Head::Joined && head.integrity.label == Label::Stream
}

/// What looks at the steps.
pub(crate) trait Visit {
    /// The steps of a stack are in the walker.
    fn stack(&mut self, walker: &mut Walker, opening: Opening);
    /// Something was lost, or a thread ended: nothing joins to what it left.
    fn forget(&mut self, _thread: Option<Thread>) {}
    /// What follows comes from another recording: its threads are others,
    /// whatever their numbers.
    fn next_recording(&mut self) {}
}

struct Walk<'a, V> {
    walker: &'a mut Walker,
    visit: &'a mut V,
}

impl<V: Visit> Collect for Walk<'_, V> {
    fn events(&mut self, events: &[EventAttr]) {
        self.walker.streams.look(events);
    }
    fn knows(&self, event: usize) -> bool {
        self.walker.streams.knows(event)
    }
    fn stack(&mut self, stack: &Stack<'_>) {
        if let Some(opening) = self.walker.stack(stack) {
            self.visit.stack(self.walker, opening);
        }
    }
    fn event(&mut self, event: &Event) {
        self.walker.event(event);
        if let Event::Exit(task) = event {
            self.visit.forget(Some((Some(task.pid), Some(task.tid))));
        }
    }
    fn left_out(&mut self, left: &LeftOut) {
        self.walker.quality.left_out.add(left);
    }
    fn symbol(&mut self, symbol: &Symbol) {
        self.walker.maps.symbol(symbol);
    }
}

/// Takes one recording to its end. The second argument is called now and then
/// with the bytes read and the bytes of the whole, where known.
pub type Read<'a> =
    dyn FnMut(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError> + 'a;

/// Walks over recordings to their ends, one after the other, as `read_all`
/// hands them out: their address spaces stay apart.
pub(crate) fn walk<T, E>(
    read_all: impl FnOnce(&mut Read<'_>) -> Result<T, E>,
    walker: &mut Walker,
    visit: &mut impl Visit,
) -> Result<T, E> {
    read_all(&mut |recording, progress| {
        visit.next_recording();
        walker.begin(recording);
        collect::collect(recording, &mut Walk { walker, visit }, progress)?;
        if let Some(info) = recording.info() {
            walker.maps.recorded(info);
        }
        Ok(())
    })
}

/// Counts claimed by a file must not overflow ours.
pub(crate) fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
