//! Loops: heads and back edges, how often they ran round, and how they nest.
//!
//! **What a loop is.** Code that control can run round in, as far as the
//! recorded branches and the straight code between them show. Its *head* is
//! where control enters it; its *back edges* lead from inside to the head.
//! Calls and returns are no way round: a recursion is no loop, and a loop goes
//! on through the calls that it makes. Where neither recording nor code says
//! what a branch is, it is taken for a jump.
//!
//! **What a trip is.** The trips of an entry are the times that the body ran
//! from when control entered the loop until it left: the times that the head
//! was reached, less the last one where control left by the test at the head.
//! That test is the first branch behind the head, if it can leave the loop and
//! does not lead back to the head itself. So `while (n--)` with the test at
//! the top or reached by a jump makes n trips, 0 among them, and
//! `do … while (--n)` makes n, 1 at least. A round that a `break` cuts short
//! counts.
//!
//! **What is exact.** In a recording with every branch each entry is followed
//! from beginning to end. Out of a sample there are two estimates: the mean by
//! rounds per exit, see [`Mean`], and quantiles from the entries whose
//! beginning was seen, see [`Trips::quantile`].
//!
//! Two loops with the same head are one. The recording is read twice: once for
//! the graph, once for the trips.

mod describe;
mod forest;
mod graph;
mod inside;
mod track;
mod trips;

use crate::clean::interval::Clusters;
use crate::clean::quality::Quality;
use crate::clean::{Cleaned, Counter, View, Whole, add};
use crate::code::maps::{Location, Maps};
use crate::views::cycles::Cycles;
use crate::views::walk::{Edges, Step, Visit, Walk, touch};

use describe::{closing, head_test, passed_backwards};
use forest::Forest;
use graph::{Graph, StraightRuns};
use track::{Ground, Tracker};

pub use trips::{Mean, Quantile, Trips};

/// A loop and what it did.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Address of its head, in the first process that ran it.
    pub head: u64,
    /// Where the head lies.
    pub location: Location,
    /// The loop around it, by index; `None` for an outermost one.
    pub parent: Option<usize>,
    /// 1 for an outermost loop.
    pub depth: u32,
    /// Branches back to the head, the most frequent first. Where control also
    /// falls into the head from inside, that is in `falls_back`.
    pub back_edges: Vec<BackEdge>,
    /// Times that control ran straight from inside into the head.
    pub falls_back: u64,
    /// Where no branch leads to the head: the branches that lead backwards
    /// inside, from whose targets control falls into it. The most frequent
    /// first; each closes a round.
    pub falls_from: Vec<BackEdge>,
    /// The loop's test stands at its head.
    pub tested_at_head: bool,
    /// Control enters it at several places: the head is the most frequent.
    pub irreducible: bool,
    /// It makes calls.
    pub calls: bool,
    /// The type of a branch back is not known: it is taken for a jump.
    pub types_unknown: bool,
    /// Times that the head was reached from inside: back edges, not trips.
    pub rounds: u64,
    /// Trips of the entries whose beginning was seen.
    pub trips: Trips,
    /// Entries whose beginning is not in the recording.
    pub headless: u64,
    /// The most trips that one of those is known to have made.
    pub longest_headless: u64,
    /// Mean out of a sample; `None` in a complete recording, where the trips
    /// say it themselves.
    pub mean: Option<Mean>,
    /// Exits (y) among exits and rounds (x), by stack.
    pub exits: Clusters,
    /// Core cycles from one back edge to the next, calls included.
    pub cycles: Cycles,
}

impl Loop {
    /// Mean trips of an entry: out of a sample the estimate; `None` where no
    /// entry was seen to end.
    #[must_use]
    pub fn mean_trips(&self) -> Option<f64> {
        match self.mean {
            Some(estimate) => estimate.mean,
            None => self.trips.mean(),
        }
    }

    /// Trips of all entries: exact if every entry was seen whole, else the trips that
    /// were seen, where a loop with its test at the head may make one more at each exit
    /// from its middle.
    #[must_use]
    pub fn all_trips(&self) -> u64 {
        let begun = self.trips.n().saturating_add(self.trips.open());
        match (self.trips.open(), self.headless) {
            (0, 0) => self.trips.sum(),
            _ if self.tested_at_head => self.rounds,
            _ => self.rounds.saturating_add(begun),
        }
    }

    /// The most trips known of any entry, and whether that is all it made.
    #[must_use]
    pub fn longest(&self) -> Option<(u64, bool)> {
        let whole = self.trips.max().map(|max| (u64::from(max), true));
        let open = self.trips.longest_open().map(|max| (u64::from(max), false));
        let headless = (self.headless > 0).then_some((self.longest_headless, false));
        // Of equals the one that is known to have ended.
        [whole, open, headless].into_iter().flatten().max()
    }
}

/// A branch back to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackEdge {
    /// Address of the branch.
    pub from: u64,
    /// Where it lies.
    pub location: Location,
    /// Times it was taken.
    pub count: u64,
}

/// The loops of a recording.
#[derive(Debug)]
pub struct Loops {
    /// Loops, those with the most rounds first.
    pub loops: Vec<Loop>,
    /// How good the data are.
    pub quality: Quality,
    /// Taken branches.
    pub taken: u64,
    /// Distinct ones.
    pub distinct: u64,
    /// Stacks in which not every branch was recorded: they show no loops.
    pub filtered: u64,
    /// Neighbours that no straight code joins.
    pub broken: u64,
    /// Every taken branch is here.
    pub complete: bool,
    /// Mappings and files, for names.
    pub maps: Maps,
}

/// The first walk.
#[derive(Debug, Default)]
struct FirstWalk {
    ran: Vec<StraightRuns>,
}

impl Visit for FirstWalk {
    type Table = LoopFinder;

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
    }

    fn finish(self, edges: Edges, Whole { mut maps, .. }: Whole) -> LoopFinder {
        let passed = passed_backwards(&edges, &self.ran, &mut maps);
        let mut graph = Graph::new(edges.list(), &self.ran, &passed, &maps);
        let forest = Forest::new(&graph);
        closing(&edges, &mut graph, &forest);
        let ground = Ground {
            tests: (0..forest.loops.len()).map(|at| head_test(&graph, &forest, at)).collect(),
            graph,
            forest,
            passed,
        };
        LoopFinder { edges, ground, maps }
    }
}

/// What the first walk found: the loops without their trips.
#[derive(Debug)]
pub struct LoopFinder {
    edges: Edges,
    ground: Ground,
    maps: Maps,
}

/// Finds the loops of recordings, by a first walk over them.
#[must_use]
pub fn finder() -> Counter<impl View<Table = LoopFinder>> {
    Counter::of(Walk::new(FirstWalk::default()))
}

impl LoopFinder {
    /// Counts trips, by a second walk over the same recordings in the same
    /// order.
    #[must_use]
    pub fn counter(self) -> Counter<impl View<Table = Loops>> {
        Counter::of(Walk::again(self.edges, self.maps, Tracker::new(self.ground)))
    }
}
