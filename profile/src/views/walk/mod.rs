//! Branches by number, in the order in which they ran: what the views that look
//! at more than one branch at a time share.

mod frames;

use lbr_msr::record::{BranchType, Event};

use crate::clean::table::{Keyed, Table};
use crate::clean::{self, Cleaned, View, Whole, add};
use crate::code::maps::Maps;
use crate::code::straight;
use crate::index;
use crate::read::address::{KERNEL, crosses};

pub(crate) use frames::{Frames, Returned, returns_behind};

/// What a branch does to the flow of control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Transfer {
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

impl Transfer {
    /// The kind of perf's type.
    #[must_use]
    pub(crate) const fn of(branch_type: Option<BranchType>) -> Transfer {
        let Some(branch_type) = branch_type else { return Transfer::Unknown };
        match branch_type {
            BranchType::COND => Transfer::Conditional,
            BranchType::UNCOND | BranchType::NO_TX => Transfer::Jump,
            BranchType::IND => Transfer::IndirectJump,
            BranchType::CALL
            | BranchType::IND_CALL
            | BranchType::COND_CALL
            | BranchType::SYSCALL
            | BranchType::IRQ
            | BranchType::SERROR => Transfer::Call,
            BranchType::RET | BranchType::COND_RET | BranchType::SYSRET | BranchType::ERET => {
                Transfer::Return
            }
            _ => Transfer::Unknown,
        }
    }

    /// Stays in the frame: no call and no return. What nobody knows is taken
    /// for a jump.
    #[must_use]
    pub(crate) const fn is_jump(self) -> bool {
        !matches!(self, Transfer::Call | Transfer::Return)
    }
}

/// A distinct taken branch of one address space: half a line of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(32))]
pub(crate) struct Edge {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) space: u32,
    pub(crate) kind: Transfer,
    pub(crate) count: u64,
}

const _: () = assert!(size_of::<Edge>() == 32);

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

    /// The number of a branch; `None` where it was not taken.
    pub(crate) fn find(&self, space: u32, from: u64, to: u64) -> Option<usize> {
        let key = (space, from, to);
        self.table.find(Edge::hash(key), key).map(|number| number as usize)
    }

    /// All taken branches together, and the distinct ones.
    pub(crate) fn totals(&self, maps: &Maps) -> (u64, u64) {
        let taken = self.list().iter().fold(0, |sum: u64, edge| sum.saturating_add(edge.count));
        (taken, clean::distinct(maps, |at| self.get(at).map(Edge::key)))
    }

    /// Of each branch the first that is the same by file and offset, by number.
    pub(crate) fn firsts(&self, maps: &Maps) -> Vec<u32> {
        clean::firsts(maps, |at| self.get(at).map(Edge::key))
    }

    /// Counts each branch at the first that is the same.
    pub(crate) fn merge(&mut self, firsts: &[u32]) {
        let list = &mut self.table.list;
        for (at, first) in firsts.iter().enumerate().filter(|(at, first)| *at != **first as usize) {
            let Some(edge) = list.get_mut(at) else { continue };
            let (kind, count) = (edge.kind, std::mem::take(&mut edge.count));
            let Some(first) = list.get_mut(*first as usize) else { continue };
            add(&mut first.count, count);
            if first.kind == Transfer::Unknown {
                first.kind = kind;
            }
        }
    }

    /// The number of a branch; a new one if there was none. `None` where there
    /// are more than numbers.
    fn number(
        &mut self,
        (hash, guess): (u32, u32),
        key: (u32, u64, u64),
        kind: impl FnOnce() -> Transfer,
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

/// Loads what is needed of the branches of steps.
#[inline]
pub(crate) fn touch(steps: &[Step], load: impl Fn(usize) -> u64) {
    index::load_all(steps.iter().map(|step| load(step.edge)));
}

/// What looks at the steps of stacks.
pub(crate) trait Visit: Send {
    /// What it makes of what it saw.
    type Table;

    /// A stack, its steps oldest first, and what their numbers stand for.
    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, maps: &mut Maps);
    /// Anything but a stack.
    fn event(&mut self, _event: &Event) {}
    /// What follows comes from another recording: its threads are others,
    /// whatever their numbers.
    fn next_recording(&mut self) {}
    /// Everything was seen.
    fn finish(self, edges: Edges, whole: Whole) -> Self::Table;
}

/// Numbers branches for what visits them.
#[derive(Debug)]
pub(crate) struct Walk<V> {
    edges: Edges,
    /// Mappings and files of the walk before.
    known: Option<Maps>,
    visit: V,
    steps: Vec<Step>,
    found: Vec<(u32, u32)>,
}

impl<V> Walk<V> {
    /// Begins with nothing.
    pub(crate) fn new(visit: V) -> Walk<V> {
        Walk { edges: Edges::default(), known: None, visit, steps: Vec::new(), found: Vec::new() }
    }

    /// The same over recordings that were walked over before: branches keep
    /// their numbers, and files what was found in them; everything else is
    /// counted anew.
    pub(crate) fn again(mut edges: Edges, maps: Maps, visit: V) -> Walk<V> {
        edges.table.list.iter_mut().for_each(|edge| edge.count = 0);
        // Names of the recording's own come again, and are not kept twice.
        let known = Some(maps).filter(|maps| !maps.has_names());
        Walk { edges, known, ..Walk::new(visit) }
    }
}

impl<V: Visit> View for Walk<V> {
    type Table = V::Table;

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        let (space, edges) = (stack.space, &mut self.edges);
        let keys = stack.transitions.iter().map(|t| (space, t.branch.from, t.branch.to));
        edges.table.look_up(keys, &mut self.found, |edge| edge.count);
        let before = stack.before.and_then(|b| edges.find(b.space, b.from, b.to));
        let mut last = before.filter(|_| stack.transitions.first().is_some_and(|t| t.follows));
        self.steps.clear();
        for (taken, place) in stack.transitions.iter().zip(&self.found) {
            let (branch, recorded) = (&taken.branch, taken.branch.flags.branch_type());
            let key = (space, branch.from, branch.to);
            let number = edges.number(*place, key, || kind(maps, key, recorded));
            let Some(edge) = number else { continue };
            if let Some(edge) = edges.table.list.get_mut(edge) {
                add(&mut edge.count, stack.weight);
                if edge.kind == Transfer::Unknown && recorded.is_some() {
                    edge.kind = Transfer::of(recorded);
                }
            }
            let before = last.filter(|_| taken.straight().is_some());
            let (follows, cycles) = (taken.follows, taken.cycles());
            self.steps.push(Step { edge, before, follows, cycles });
            last = Some(edge);
        }
        self.visit.stack(stack, &self.steps, edges, maps);
    }

    fn event(&mut self, event: &Event) {
        self.visit.event(event);
    }

    fn next_recording(&mut self) {
        self.visit.next_recording();
    }

    fn finish(self, whole: Whole) -> V::Table {
        let maps = self.known.unwrap_or(whole.maps);
        self.visit.finish(self.edges, Whole { maps, ..whole })
    }
}

/// The kind of a branch: as recorded, else by its code bytes.
fn kind(
    maps: &mut Maps,
    (space, from, to): (u32, u64, u64),
    recorded: Option<BranchType>,
) -> Transfer {
    // perf's types do not tell a call of the next instruction: its length does.
    const CALL_REL32: u64 = 5;
    match recorded {
        Some(BranchType::CALL) if to == from.wrapping_add(CALL_REL32) => Transfer::Jump,
        Some(_) => Transfer::of(recorded),
        None => {
            let location = maps.locate(space as usize, from);
            match straight::branch_at(maps, location, from, to).1 {
                Some(branch) if branch.is_zero_length_call() => Transfer::Jump,
                Some(branch) if branch.can_reach(to) => Transfer::of(Some(branch.branch_type)),
                // Into the kernel by an interrupt or a call, and back again.
                _ if crosses(from, to) && to >= KERNEL => Transfer::Call,
                _ if crosses(from, to) => Transfer::Return,
                branch => Transfer::of(branch.map(|branch| branch.branch_type)),
            }
        }
    }
}
