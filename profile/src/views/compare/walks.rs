//! The two passes over a recording: the first finds its branches, the second counts their rows by
//! stack.

use crate::clean::interval::Clusters;
use crate::clean::quality::{BlockQuality, Quality};
use crate::clean::{Cleaned, CommonResult, Counter, View};
use crate::code::maps::{Location, Maps};
use crate::read::add;
use crate::read::stack::EntryFlags;
use crate::views::cycles::Cycles;
use crate::views::walk::{Edges, Step, Visit, Walk};

use super::Rows;

/// The result of the first pass.
#[derive(Debug, Default)]
pub struct Looked {
    edges: Edges,
    /// By branch.
    cycles: Vec<Cycles>,
    /// Taken branches.
    pub taken: u64,
    /// Distinct ones.
    pub distinct: u64,
    /// Branches with a known prediction.
    pub known: u64,
    /// Mispredicted branches.
    pub missed: u64,
    /// Branches with cycles.
    pub timed: u64,
    /// Quality of the data.
    pub quality: Quality,
    /// Why fall-through ranges are missing.
    pub gaps: BlockQuality,
    /// Mappings and files, for names.
    pub maps: Maps,
}

/// Finds the branches of recordings, in a first pass over them.
pub fn looker() -> Counter<impl View<Table = Looked>> {
    Counter::of(Walk::new(Looked::default()))
}

impl Visit for Looked {
    type Table = Looked;

    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, _: &mut Maps) {
        self.cycles.resize(edges.list().len(), Cycles::default());
        for (step, taken) in steps.iter().zip(stack.transitions) {
            if let Some(missed) = taken.branch.flags.mispredicted() {
                add(&mut self.known, stack.weight);
                add(&mut self.missed, if missed { stack.weight } else { 0 });
            }
            let (Some(cycles), Some(of)) = (step.cycles, self.cycles.get_mut(step.edge)) else {
                continue;
            };
            of.add(cycles, stack.weight);
            add(&mut self.timed, stack.weight);
        }
    }

    fn finish(self, edges: Edges, whole: CommonResult) -> Looked {
        let CommonResult { quality, gaps, maps, .. } = whole;
        let (taken, distinct) = edges.totals(&maps);
        Looked { edges, taken, distinct, quality, gaps, maps, ..self }
    }
}

impl Looked {
    /// The source location of each branch.
    pub(super) fn places(&self) -> Vec<(Location, u64)> {
        let place = |from, space: u32| (self.maps.locate(space as usize, from), from);
        self.edges.list().iter().map(|edge| place(edge.from, edge.space)).collect()
    }

    /// The cycles of each row, given the row of each branch.
    pub(super) fn cycles_of(&self, row_of: &[u32], rows: usize) -> Vec<Cycles> {
        let mut all = vec![Cycles::default(); rows];
        for (row, cycles) in row_of.iter().zip(&self.cycles) {
            all[*row as usize].merge(cycles);
        }
        all
    }
}

/// Sums of a row over stacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// Stacks that have the row.
    pub(super) stacks: u64,
    /// Taken there (y) of all branches (x).
    pub(super) taken: Clusters,
    /// Mispredicted (y) of known (x).
    pub(super) missed: Clusters,
    /// Above the split (y) of those with cycles (x).
    pub(super) slow: Clusters,
}

/// Counts of a row in the current stack.
#[derive(Clone, Copy, Debug, Default)]
struct InStack {
    taken: u64,
    known: u64,
    missed: u64,
    timed: u64,
    slow: u64,
}

/// The rows of one side, by stack.
#[derive(Debug, Default)]
pub struct StackSums {
    rows: Vec<Sums>,
    /// All branches (x).
    all: Clusters,
}

impl StackSums {
    /// The sums of a row; its share is of all stacks, including those without it.
    pub(super) fn row(&self, at: usize) -> Sums {
        let sums = self.rows.get(at).copied().unwrap_or_default();
        let Clusters { y, xy, yy, .. } = sums.taken;
        Sums { taken: Clusters { y, xy, yy, ..self.all }, stacks: sums.taken.stacks, ..sums }
    }
}

/// Counts rows by stack, in a second pass over the recordings of one side (0: baseline). Keeps the
/// maps.
pub fn counter(
    looked: &mut Looked,
    rows: &Rows,
    side: usize,
) -> Counter<impl View<Table = (StackSums, Maps)> + use<>> {
    let (edges, maps) = (std::mem::take(&mut looked.edges), std::mem::take(&mut looked.maps));
    let second = Second {
        row_of: rows.matched.of_place[side].clone(),
        splits: rows.splits.clone(),
        now: vec![InStack::default(); rows.splits.len()],
        visited: Vec::new(),
        counted: StackSums {
            rows: vec![Sums::default(); rows.splits.len()],
            ..StackSums::default()
        },
    };
    Counter::of(Walk::again(edges, maps, second))
}

struct Second {
    row_of: Vec<u32>,
    splits: Vec<Option<u32>>,
    /// By row.
    now: Vec<InStack>,
    visited: Vec<u32>,
    counted: StackSums,
}

impl Visit for Second {
    type Table = (StackSums, Maps);

    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], _: &Edges, _: &mut Maps) {
        for (step, taken) in steps.iter().zip(stack.transitions) {
            let Some(&row) = self.row_of.get(step.edge) else { continue };
            let Some(now) = self.now.get_mut(row as usize) else { continue };
            if now.taken == 0 {
                self.visited.push(row);
            }
            let EntryFlags(flags) = taken.branch.flags;
            now.taken += 1;
            now.known += u64::from(taken.branch.flags.mispredicted().is_some());
            now.missed += flags & EntryFlags::MISPREDICTED;
            if let (Some(cycles), Some(Some(split))) = (step.cycles, self.splits.get(row as usize))
            {
                now.timed += 1;
                now.slow += u64::from(cycles > *split);
            }
        }
        let all = steps.len() as u64;
        self.counted.all.add(stack.weight, all, 0);
        for row in self.visited.drain(..) {
            let sums = &mut self.counted.rows[row as usize];
            let now = std::mem::take(&mut self.now[row as usize]);
            let InStack { taken, known, missed, timed, slow } = now;
            sums.taken.add(stack.weight, all, taken);
            sums.missed.add(stack.weight, known, missed);
            sums.slow.add(stack.weight, timed, slow);
        }
    }

    fn finish(self, _: Edges, whole: CommonResult) -> (StackSums, Maps) {
        (self.counted, whole.maps)
    }
}
