//! Branches by number, in execution order: shared by the views that use more than one branch at a
//! time.

mod contexts;
mod frames;
mod trace;

use lbr_msr::record::{BranchType, Event};

use crate::clean::table::{Keyed, Table};
use crate::clean::{self, Cleaned, CommonResult, Continuity, View};
use crate::code::maps::Maps;
use crate::code::straight;
use crate::index;
use crate::read::add;
use crate::read::{KERNEL, crosses};

use contexts::Contexts;
pub(crate) use frames::{Frames, Returned, returns_after};
pub use trace::SpillError;
pub(crate) use trace::{Follow, Part, Trace};

/// The effect of a branch on control flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Transfer {
    /// Neither the recording nor the code tells.
    #[default]
    Unknown,
    /// A conditional jump.
    Conditional,
    /// A jump to a fixed target. Also a call of the next instruction, which has no matching return.
    Jump,
    /// A jump to a target in a register or memory.
    IndirectJump,
    /// A call, a system call, an interrupt or an exception.
    Call,
    /// A return from any of them.
    Return,
}

impl Transfer {
    /// The kind for perf's type.
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

    /// Whether it stays in the frame: neither call nor return. Unknown branches count as jumps.
    pub(crate) const fn is_jump(self) -> bool {
        !matches!(self, Transfer::Call | Transfer::Return)
    }
}

/// A distinct taken branch of one address space: half a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// The distinct branches, in order of first appearance: a second pass over the same recording gives
/// them the same numbers.
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

    /// The number of a branch; `None` if it was never taken.
    pub(crate) fn find(&self, space: u32, from: u64, to: u64) -> Option<usize> {
        let key = (space, from, to);
        self.table.find(Edge::hash(key), key).map(|number| number as usize)
    }

    /// The number of taken branches, and of distinct ones.
    pub(crate) fn totals(&self, maps: &Maps) -> (u64, u64) {
        let taken = self.list().iter().fold(0, |sum: u64, edge| sum.saturating_add(edge.count));
        (taken, clean::distinct(maps, |at| self.get(at).map(Edge::key)))
    }

    /// For each branch, the number of the first one with the same files and offsets.
    pub(crate) fn firsts(&self, maps: &Maps) -> Vec<u32> {
        clean::firsts(maps, |at| self.get(at).map(Edge::key))
    }

    /// Moves each branch's count to the first that is the same.
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

    /// The number of a branch, added if new. `None` if all numbers are in use.
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

/// A taken branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Its number among the [`Edges`].
    pub(crate) edge: usize,
    /// The previous branch, if the code from its target to here is known.
    pub(crate) before: Option<usize>,
    /// Whether no branch is missing between the previous step and this one, except filtered ones.
    pub(crate) follows: bool,
    /// Core cycles since the previous branch.
    pub(crate) cycles: Option<u32>,
}

/// Prefetches the data of the steps' branches.
#[inline]
pub(crate) fn touch(steps: &[Step], load: impl Fn(usize) -> u64) {
    index::load_all(steps.iter().map(|step| load(step.edge)));
}

/// Receives the steps of stacks.
pub(crate) trait Visit: Send {
    /// Its result.
    type Table;

    /// A stack, its steps oldest first, and the branches by number.
    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, maps: &mut Maps);
    /// An event other than a stack.
    fn event(&mut self, _event: &Event) {}
    /// Another recording follows: equal thread numbers mean other threads.
    fn next_recording(&mut self) {}
    /// The end of all recordings.
    fn finish(self, edges: Edges, whole: CommonResult) -> Self::Table;
}

/// Numbers branches for a visitor.
#[derive(Debug)]
pub(crate) struct Walk<V> {
    edges: Edges,
    contexts: Contexts,
    /// Mappings and files of the previous pass.
    known: Option<Maps>,
    visit: V,
    steps: Vec<Step>,
    found: Vec<(u32, u32)>,
}

impl<V> Walk<V> {
    /// Starts empty.
    pub(crate) fn new(visit: V) -> Walk<V> {
        let (edges, contexts) = (Edges::default(), Contexts::default());
        Walk { edges, contexts, known: None, visit, steps: Vec::new(), found: Vec::new() }
    }

    /// A pass over recordings that were read before: branches keep their numbers, and files their
    /// symbols; everything else is counted again.
    pub(crate) fn again(mut edges: Edges, maps: Maps, visit: V) -> Walk<V> {
        edges.table.list.iter_mut().for_each(|edge| edge.count = 0);
        // Names in the recording itself are read again, so the old ones are dropped.
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
        let mut parts = self.contexts.begin(stack, before);
        for (at, (taken, place)) in stack.transitions.iter().zip(&self.found).enumerate() {
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
            let resumes = at == 0 && parts.is_known && parts.context.joins == Continuity::Before;
            let mut follows = taken.follows || resumes && taken.straight().is_some();
            while let Some(change) = parts.next_before(at) {
                parts.visit(&mut self.visit, &mut self.steps, edges, maps, Some(change));
                follows = change.joins == Continuity::Before;
            }
            let before = parts.context.last.filter(|_| taken.straight().is_some());
            self.steps.push(Step { edge, before, follows, cycles: taken.cycles() });
            parts.context.last = Some(edge);
        }
        while let Some(change) = parts.next_before(usize::MAX) {
            parts.visit(&mut self.visit, &mut self.steps, edges, maps, Some(change));
        }
        parts.visit(&mut self.visit, &mut self.steps, edges, maps, None);
        self.contexts.keep(stack, parts.context);
    }

    fn event(&mut self, event: &Event) {
        self.visit.event(event);
    }

    fn next_recording(&mut self) {
        self.contexts = Contexts::default();
        self.visit.next_recording();
    }

    fn finish(self, whole: CommonResult) -> V::Table {
        let maps = self.known.unwrap_or(whole.maps);
        self.visit.finish(self.edges, CommonResult { maps, ..whole })
    }
}

/// The kind of a branch: as recorded, or else from its code bytes.
fn kind(
    maps: &mut Maps,
    (space, from, to): (u32, u64, u64),
    recorded: Option<BranchType>,
) -> Transfer {
    // perf's types do not identify a call of the next instruction: its length does.
    const CALL_REL32: u64 = 5;
    match recorded {
        Some(BranchType::CALL) if to == from.wrapping_add(CALL_REL32) => Transfer::Jump,
        Some(_) => Transfer::of(recorded),
        None => {
            let location = maps.locate(space as usize, from);
            match straight::branch_at(maps, location, from, to).1 {
                Some(branch) if branch.is_zero_length_call() => Transfer::Jump,
                Some(branch) if branch.can_reach(to) => Transfer::of(Some(branch.branch_type)),
                // Into the kernel by an interrupt or a call, and back.
                _ if crosses(from, to) && to >= KERNEL => Transfer::Call,
                _ if crosses(from, to) => Transfer::Return,
                branch => Transfer::of(branch.map(|branch| branch.branch_type)),
            }
        }
    }
}
