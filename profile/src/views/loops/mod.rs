//! Loops: heads and back edges, trip counts, and nesting.
//!
//! **Loop.** A strongly connected part of the control flow, as far as the recorded branches and the
//! fall-through ranges between them show. Control enters it at its *head*; *back edges* lead from
//! inside to the head. Calls and returns are not edges: a recursion is not a loop, and a loop
//! continues across the calls it makes. A branch of unknown type, according to recording and code,
//! is treated as a jump.
//!
//! **Trips.** The trip count of an entry is the number of times that the body ran from entering the
//! loop to leaving it: the number of arrivals at the head, minus the last one if the loop was left
//! by the test at the head. That test is the first branch after the head, if it can leave the loop
//! and does not lead back to the head itself. So `while (n--)` with the test at the top or reached
//! by a jump makes n trips, possibly 0, and `do … while (--n)` makes n, at least 1. A round cut
//! short by `break` counts.
//!
//! **Exactness.** If a recording has every branch, each entry is followed from start to end. From a
//! sample there are two estimates: the mean from rounds per exit, see [`Mean`], and quantiles from
//! the entries whose start was recorded, see [`Trips::quantile`].
//!
//! Two loops with the same head are one. One pass finds the graph, a second one the trips,
//! from the branches that the first one kept.

mod describe;
mod forest;
mod graph;
mod inside;
mod track;
mod trips;

use lbr_msr::record::Event;

use crate::clean::interval::Clusters;
use crate::clean::quality::Quality;
use crate::clean::{Cleaned, CommonResult, Counter, View};
use crate::code::maps::{Location, Maps};
use crate::read::add;
use crate::views::cycles::Cycles;
use crate::views::walk::{Edges, Part, SpillError, Step, Trace, Visit, Walk, touch};

use describe::{Ground, closing, head_test, passed_backwards};
use forest::Forest;
use graph::{Graph, StraightRuns};
use track::Tracker;

pub use trips::{Mean, Quantile, Trips};

/// A loop with its counts.
#[derive(Clone, Debug, Default)]
pub struct Loop {
    /// Address of its head, in the first process that ran it.
    pub head: u64,
    /// The head's location.
    pub location: Location,
    /// Index of the enclosing loop; `None` for an outermost one.
    pub parent: Option<usize>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Branches back to the head, most frequent first. Control that falls through into the head
    /// from inside is counted in `falls_back`.
    pub back_edges: Vec<BackEdge>,
    /// Times that control fell through from inside into the head.
    pub falls_back: u64,
    /// If no branch leads to the head: backward branches inside from whose targets control falls
    /// through into it, most frequent first. Each ends a round.
    pub falls_from: Vec<BackEdge>,
    /// The loop's test is at its head.
    pub tested_at_head: bool,
    /// Control enters it at several locations; the head is the most frequent one.
    pub irreducible: bool,
    /// It makes calls.
    pub calls: bool,
    /// A back edge has an unknown type and is treated as a jump.
    pub types_unknown: bool,
    /// Number of arrivals at the head from inside: back edges, not trips.
    pub rounds: u64,
    /// Trips of the entries whose start was recorded.
    pub trips: Trips,
    /// Number of entries whose start was not recorded.
    pub headless: u64,
    /// The highest known minimum trip count of such an entry.
    pub longest_headless: u64,
    /// The mean estimated from a sample; `None` in a complete recording, where `trips` are exact.
    pub mean: Option<Mean>,
    /// Exits (y) among exits and rounds (x), by stack.
    pub exits: Clusters,
    /// Core cycles from one back edge to the next, calls included.
    pub cycles: Cycles,
}

impl Loop {
    /// Mean trip count, estimated if the recording is a sample; `None` if no entry was seen to end.
    pub fn mean_trips(&self) -> Option<f64> {
        match self.mean {
            Some(estimate) => estimate.mean,
            None => self.trips.mean(),
        }
    }

    /// Trips of all entries: exact if every entry was recorded from start to end. Otherwise the
    /// recorded trips, to which a loop with its test at the head may add one for each exit from its
    /// middle.
    pub fn all_trips(&self) -> u64 {
        let begun = self.trips.ended.n().saturating_add(self.trips.open.n());
        match (self.trips.open.n(), self.headless) {
            (0, 0) => self.trips.sum,
            _ if self.tested_at_head => self.rounds,
            _ => self.rounds.saturating_add(begun),
        }
    }

    /// The highest known trip count of an entry, and whether that entry was recorded to its end.
    pub fn longest(&self) -> Option<(u64, bool)> {
        let whole = self.trips.ended.max().map(|max| (u64::from(max), true));
        let open = self.trips.open.max().map(|max| (u64::from(max), false));
        let headless = (self.headless > 0).then_some((self.longest_headless, false));
        // If equal, prefers one that is known to have ended.
        [whole, open, headless].into_iter().flatten().max()
    }
}

/// A branch back to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackEdge {
    /// Address of the branch.
    pub from: u64,
    /// Its location.
    pub location: Location,
    /// Times it was taken.
    pub count: u64,
}

/// The loops of a recording.
#[derive(Debug)]
pub struct Loops {
    /// Loops, by descending number of rounds.
    pub loops: Vec<Loop>,
    /// Quality of the data.
    pub quality: Quality,
    /// Taken branches.
    pub taken: u64,
    /// Distinct ones.
    pub distinct: u64,
    /// Stacks that lack some branches: they show no loops.
    pub filtered: u64,
    /// Neighbouring entries that no fall-through range connects.
    pub broken: u64,
    /// Whether every taken branch is included.
    pub complete: bool,
    /// Mappings and files, for names.
    pub maps: Maps,
}

/// The first pass.
#[derive(Debug)]
struct FirstWalk {
    ran: Vec<StraightRuns>,
    trace: Trace,
}

impl Visit for FirstWalk {
    type Table = Result<Loops, SpillError>;

    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, _: &mut Maps) {
        self.ran.resize(edges.list().len(), StraightRuns::default());
        touch(steps, |edge| self.ran.get(edge).map_or(0, |ran| ran.begins));
        for step in steps {
            let Some(before) = step.before else { continue };
            let exit = edges.get(step.edge).map_or(0, |edge| edge.from);
            if let Some(ran) = self.ran.get_mut(before) {
                add(&mut ran.begins, stack.weight);
                ran.reach = exit.max(ran.reach);
            }
            if let Some(ran) = self.ran.get_mut(step.edge) {
                add(&mut ran.ends, stack.weight);
            }
        }
        self.trace.stack(Part::of(stack), steps);
    }

    fn event(&mut self, event: &Event) {
        if let Event::Exit(task) = event {
            self.trace.exit((Some(task.pid), Some(task.tid)));
        }
    }

    fn finish(self, edges: Edges, mut whole: CommonResult) -> Result<Loops, SpillError> {
        let FirstWalk { ran, trace } = self;
        let passed = passed_backwards(&edges, &ran, &mut whole.maps);
        let mut graph = Graph::new(edges.list(), &ran, &passed, &whole.maps);
        drop(ran);
        let forest = Forest::new(&graph);
        closing(&edges, &mut graph, &forest);
        let ground = Ground {
            tests: (0..forest.loops.len()).map(|at| head_test(&graph, &forest, at)).collect(),
            graph,
            forest,
            passed,
        };
        let mut tracker = Tracker::new(ground);
        trace.replay(&edges, &mut tracker)?;
        Ok(tracker.finish(edges, whole))
    }
}

/// Finds the loops of recordings.
pub fn counter() -> Counter<impl View<Table = Result<Loops, SpillError>>> {
    Counter::of(Walk::new(FirstWalk { ran: Vec::new(), trace: Trace::with_cycles() }))
}
