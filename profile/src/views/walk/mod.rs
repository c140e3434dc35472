//! Branches by number, in the order in which they ran: what the views that look
//! at more than one branch at a time share.

mod frames;

use lbr_msr::record::{BranchType, Event};

use crate::clean::table::{Keyed, Table};
use crate::clean::{self, Cleaned, Counter, Transition, View, Whole, add, index};
use crate::code::maps::Maps;
use crate::code::straight;
use crate::code::symbols::Sources;
use crate::read::address::{KERNEL, crosses};
use crate::read::perf_data::ReadError;
use crate::read::recording::Recording;

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

/// A distinct taken branch of one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) space: u32,
    pub(crate) kind: Transfer,
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

    /// The number of a branch; `None` where it was not taken.
    pub(crate) fn find(&self, space: u32, from: u64, to: u64) -> Option<usize> {
        let key = (space, from, to);
        self.table.find(Edge::hash(key), key).map(|number| number as usize)
    }

    /// All taken branches together, and the distinct ones.
    pub(crate) fn totals(&self, maps: &Maps) -> (u64, u64) {
        let taken = self.list().iter().fold(0, |sum: u64, edge| sum.saturating_add(edge.count));
        let ends = |at: usize| self.get(at).map(|edge| (edge.space, edge.from, edge.to));
        (taken, clean::distinct(maps, ends))
    }

    /// Where each branch of a stack will most likely be found: its hash and its
    /// number. All are fetched side by side.
    fn look_up(&self, branches: &[Transition], space: u32, found: &mut Vec<(u32, u32)>) {
        found.clear();
        let hash = |step: &Transition| Edge::hash((space, step.branch.from, step.branch.to));
        found.extend(branches.iter().map(|step| (hash(step), 0)));
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

/// What looks at the steps of stacks.
pub(crate) trait Visit {
    /// A stack, its steps oldest first, and what their numbers stand for.
    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, maps: &mut Maps);
    /// Anything but a stack.
    fn event(&mut self, _event: &Event) {}
    /// What follows comes from another recording: its threads are others,
    /// whatever their numbers.
    fn next_recording(&mut self) {}
}

/// Numbers branches for what visits them.
#[derive(Debug, Default)]
struct Walk<V> {
    edges: Edges,
    visit: V,
    steps: Vec<Step>,
    found: Vec<(u32, u32)>,
}

impl<V: Visit> View for Walk<V> {
    type Table = (V, Edges, Whole);

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        let (space, edges) = (stack.space, &mut self.edges);
        edges.look_up(stack.transitions, space, &mut self.found);
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

    fn finish(self, whole: Whole) -> (V, Edges, Whole) {
        (self.visit, self.edges, whole)
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

/// Takes one recording to its end. The second argument is called now and then
/// with the bytes read and the bytes of the whole, where known.
pub type Read<'a> =
    dyn FnMut(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError> + 'a;

/// What a walk found: what visited, the branches, and everything else; and what
/// `read_all` gave.
type Walked<V, T> = ((V, Edges, Whole), T);

/// Walks over recordings to their ends, one after the other, as `read_all`
/// hands them out: their address spaces stay apart. `sources` say where names
/// are looked for.
pub(crate) fn walk<V: Visit, T, E>(
    read_all: impl FnOnce(&mut Read<'_>) -> Result<T, E>,
    sources: Sources,
    visit: V,
) -> Result<Walked<V, T>, E> {
    walk_with(read_all, sources, Edges::default(), visit)
}

/// The same over recordings that were walked over before: branches keep their
/// numbers, everything else is counted anew.
pub(crate) fn walk_again<V: Visit, T, E>(
    read_all: impl FnOnce(&mut Read<'_>) -> Result<T, E>,
    mut edges: Edges,
    visit: V,
) -> Result<Walked<V, T>, E> {
    edges.table.list.iter_mut().for_each(|edge| edge.count = 0);
    walk_with(read_all, Sources::default(), edges, visit)
}

fn walk_with<V: Visit, T, E>(
    read_all: impl FnOnce(&mut Read<'_>) -> Result<T, E>,
    sources: Sources,
    edges: Edges,
    visit: V,
) -> Result<Walked<V, T>, E> {
    let view = Walk { edges, visit, steps: Vec::new(), found: Vec::new() };
    let mut counter = Counter::with_sources(view, sources);
    let read = read_all(&mut |recording, progress| counter.recording(recording, progress))?;
    Ok((counter.finish(), read))
}
