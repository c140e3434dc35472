//! Counting in several threads, with the same result as in one.
//!
//! One thread at a time reads and cleans: mappings, forks, joining stacks and the selection are
//! processed in recording order. It then counts the resulting batch of stacks in its own part,
//! while others continue reading. Sums do not depend on the order, and the parts are merged in the
//! recording order of first appearance, so timing has no influence.

use std::sync::{Mutex, PoisonError};
use std::thread;

use super::cleaner::{Cleaned, Transition};
use super::counter::{Input, View};
use crate::read::perf_data::ReadError;
use crate::read::stack::RawBranch;

/// Branches per batch: as many as fit into the second-level cache. Tests use small batches to cover
/// their boundaries.
const BATCH: usize = if cfg!(any(fuzzing, debug_assertions)) { 1 << 6 } else { 1 << 13 };

/// A cleaned stack, buffered for counting.
#[derive(Clone, Copy, Debug)]
pub struct BufferedStack<'a> {
    /// The address space of its addresses.
    pub(crate) space: u32,
    /// Its weight: number of identical stacks.
    pub(crate) weight: u64,
    /// Its branches, newest first; empty for a view that needs [transitions](View::ORDERED).
    pub(crate) branches: &'a [RawBranch],
    /// The same as transitions, oldest first, for such a view.
    pub(crate) transitions: &'a [Transition],
    /// The counts logged with each branch; empty without.
    pub(crate) counts: &'a [[Option<u8>; 4]],
}

/// Consecutive numbers of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The part.
    pub(crate) part: usize,
    /// Its numbers.
    pub(crate) numbers: std::ops::Range<u32>,
}

/// Stacks to be counted.
#[derive(Debug, Default)]
struct Batch {
    /// Space, weight, and the number of branches and counts of each.
    stacks: Vec<(u32, u64, usize, usize)>,
    branches: Vec<RawBranch>,
    transitions: Vec<Transition>,
    counts: Vec<[Option<u8>; 4]>,
}

impl Batch {
    /// Adds a stack without its transitions, which the cleaner collects.
    fn push(&mut self, stack: &Cleaned<'_>, ordered: bool) {
        let len = stack.branches.len();
        if !ordered {
            stack.branches.for_each(|branch| self.branches.push(branch));
        }
        let counts = if stack.has_counters() { len } else { 0 };
        self.counts.extend((0..counts).map(|at| stack.counts(at)));
        self.stacks.push((stack.space, stack.weight, len, counts));
    }

    /// Counts all of them.
    fn count<V: View>(&self, part: &mut V) {
        let (mut branches, mut counted) = (0, 0);
        for &(space, weight, len, counts) in &self.stacks {
            let all = branches..branches + len;
            part.count(&BufferedStack {
                space,
                weight,
                branches: self.branches.get(all.clone()).unwrap_or_default(),
                transitions: self.transitions.get(all).unwrap_or_default(),
                counts: self.counts.get(counted..counted + counts).unwrap_or_default(),
            });
            branches += len;
            counted += counts;
        }
    }
}

/// The state of the thread that reads.
struct Front<'a, V> {
    input: Input<'a>,
    view: &'a mut V,
    /// Number of batches so far.
    batches: usize,
    end: Option<Result<(), ReadError>>,
}

impl<V: View> Front<'_, V> {
    /// Reads the next batch, and returns its number.
    fn fill(&mut self, batch: &mut Batch) -> usize {
        batch.stacks.clear();
        batch.branches.clear();
        batch.counts.clear();
        batch.transitions.clear();
        // Each thread collects in its own memory, in its CPU's cache.
        std::mem::swap(&mut self.input.cleaner.transitions, &mut batch.transitions);
        let mut branches = 0;
        while branches < BATCH && self.end.is_none() {
            let next = self.input.next(self.view, |view, stack, maps| {
                view.before(stack, maps);
                branches += stack.branches.len();
                batch.push(stack, V::ORDERED);
            });
            self.end = match next {
                Ok(true) => None,
                Ok(false) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
        }
        std::mem::swap(&mut self.input.cleaner.transitions, &mut batch.transitions);
        self.batches += 1;
        self.batches
    }
}

/// A thread's result: its part, and the number of things in the part before each batch.
type Counted<V> = (V, Vec<(usize, u32)>);

/// Counts a recording, with one thread per part.
pub(super) fn count<V: View>(
    input: Input<'_>,
    view: &mut V,
    mut parts: Vec<V>,
    progress: impl FnMut(u64),
) -> Result<(), ReadError> {
    input.cleaner.transitions.clear();
    input.cleaner.gathers = true;
    let front = Mutex::new(Front { input, view, batches: 0, end: None });
    let ours = parts.pop();
    let counted: Vec<Counted<V>> = thread::scope(|scope| {
        let front = &front;
        // Uses fewer threads if no more can be started.
        let spawn =
            |part| thread::Builder::new().spawn_scoped(scope, move || batches(front, part, |_| {}));
        let others: Vec<_> = parts.into_iter().map_while(|part| spawn(part).ok()).collect();
        let ours = ours.map(|part| batches(front, part, progress));
        let others = others.into_iter().map(|other| match other.join() {
            Ok(counted) => counted,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ours.into_iter().chain(others).collect()
    });
    let Front { input, view, end, .. } = front.into_inner().unwrap_or_else(PoisonError::into_inner);
    input.cleaner.gathers = false;
    let mut runs: Vec<(usize, Run)> = Vec::new();
    for (part, (counts, begins)) in counted.iter().enumerate() {
        let ends = begins.iter().skip(1).map(|(_, begin)| *begin);
        let ends = ends.chain(std::iter::once(counts.numbers()));
        let new = begins.iter().zip(ends).filter(|((_, begin), end)| begin < end);
        runs.extend(new.map(|(&(batch, begin), end)| (batch, Run { part, numbers: begin..end })));
    }
    runs.sort_unstable_by_key(|(batch, _)| *batch);
    let runs: Vec<Run> = runs.into_iter().map(|(_, run)| run).collect();
    view.join(counted.into_iter().map(|(part, _)| part).collect(), &runs);
    end.unwrap_or(Ok(()))
}

/// Reads and counts batches until the end.
fn batches<V: View>(
    front: &Mutex<Front<'_, V>>,
    mut part: V,
    mut progress: impl FnMut(u64),
) -> Counted<V> {
    let (mut batch, mut begins) = (Batch::default(), Vec::<(usize, u32)>::new());
    loop {
        let mut front = front.lock().unwrap_or_else(PoisonError::into_inner);
        if front.end.is_some() {
            return (part, begins);
        }
        let number = front.fill(&mut batch);
        progress(front.input.recording.position());
        drop(front);
        // The previous batch may have added nothing.
        begins.pop_if(|(_, begin)| *begin == part.numbers());
        begins.push((number, part.numbers()));
        batch.count(&mut part);
    }
}
