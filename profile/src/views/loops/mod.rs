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
mod track;
mod trips;

use crate::clean::quality::Quality;
use crate::clean::{Cleaned, Whole, add};
use crate::code::maps::{Location, Maps};
use crate::code::symbols::Sources;
use crate::read::perf_data::ReadError;
use crate::read::recording::Recording;
use crate::views::cycles::Cycles;
use crate::views::walk::{self, Edges, Read, Step, Visit};

use describe::{
    closing, describe, head_test, marks, name_falls, name_never_taken, passed_backwards, sorted,
};
use forest::Forest;
use graph::{Graph, Ran};
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
    /// Times that the head was reached from inside.
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
    /// Core cycles from one back edge to the next, calls included.
    pub cycles: Cycles,
}

impl Loop {
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
struct Counter {
    ran: Vec<Ran>,
    /// The farthest that code ran straight from the target of each branch.
    reach: Vec<u64>,
}

impl Visit for Counter {
    fn stack(&mut self, stack: &Cleaned<'_>, steps: &[Step], edges: &Edges, _: &mut Maps) {
        self.ran.resize(edges.list().len(), Ran::default());
        self.reach.resize(edges.list().len(), 0);
        for step in steps {
            let Some(before) = step.before else { continue };
            if let Some(ran) = self.ran.get_mut(before) {
                add(&mut ran.begins, stack.weight);
            }
            if let Some(ran) = self.ran.get_mut(step.edge) {
                add(&mut ran.ends, stack.weight);
            }
            let exit = edges.get(step.edge).map_or(0, |edge| edge.from);
            if let Some(reach) = self.reach.get_mut(before) {
                *reach = exit.max(*reach);
            }
        }
    }
}

/// What the first walk found: the loops without their trips.
#[derive(Debug)]
pub struct LoopFinder {
    edges: Edges,
    graph: Graph,
    forest: Forest,
    passed: Vec<(u32, u64, u64)>,
    maps: Maps,
}

impl LoopFinder {
    /// Reads a recording to its end. `progress` is as for
    /// [`HotTable::count`](crate::HotTable::count).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn find(
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<LoopFinder, ReadError> {
        let mut progress = progress;
        LoopFinder::find_all(|read| read(recording, &mut progress)).map(|(found, ())| found)
    }

    /// Reads several recordings: `read_all` opens them and gives each to the
    /// function that it gets.
    ///
    /// # Errors
    /// What `read_all` gives.
    pub fn find_all<T, E>(
        read_all: impl FnOnce(&mut Read<'_>) -> Result<T, E>,
    ) -> Result<(LoopFinder, T), E> {
        let (walked, read) = walk::walk(read_all, Sources::default(), Counter::default())?;
        let (counter, edges, Whole { mut maps, .. }) = walked;
        let passed = passed_backwards(&edges, &counter.reach, &mut maps);
        let graph = Graph::new(edges.list(), &counter.ran, &passed, &maps);
        let forest = Forest::new(&graph);
        Ok((LoopFinder { edges, graph, forest, passed, maps }, read))
    }

    /// Reads the same recording once more and counts trips.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn count(
        self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<Loops, ReadError> {
        let mut progress = progress;
        self.count_all(|read| read(recording, &mut progress)).map(|(counted, ())| counted)
    }

    /// Reads the same recordings in the same order once more and counts trips.
    ///
    /// # Errors
    /// What `read_all` gives.
    pub fn count_all<T, E>(
        self,
        read_all: impl FnOnce(&mut Read<'_>) -> Result<T, E>,
    ) -> Result<(Loops, T), E> {
        let LoopFinder { edges, graph, forest, passed, maps: known } = self;
        let tests: Vec<Option<usize>> =
            (0..forest.loops.len()).map(|at| head_test(&graph, &forest, at)).collect();
        let closes = closing(&edges, &graph, &forest);
        let next_mark = marks(&graph, &forest);
        let ground = Ground {
            graph: &graph,
            forest: &forest,
            tests: &tests,
            closes: &closes,
            next_mark: &next_mark,
        };
        let tracker = Tracker::new(ground);
        let (walked, read) = walk::walk_again(read_all, edges, tracker)?;
        let (mut tracker, edges, whole) = walked;
        tracker.finish();
        let seen = std::mem::take(&mut tracker.seen);
        let complete = whole.is_complete();
        let mut loops = describe(&edges, &graph, &forest, &seen, &known);
        name_never_taken(&mut loops, &graph, &forest, &passed, &known);
        name_falls(&mut loops, &edges, &closes, &known);
        for (found, seen) in loops.iter_mut().zip(&seen) {
            found.mean = (!complete).then(|| Mean::of(&seen.exits));
        }
        for (found, test) in loops.iter_mut().zip(&tests) {
            found.tested_at_head = test.is_some();
        }
        let (taken, distinct) = edges.totals(&known);
        let loops = Loops {
            loops: sorted(loops),
            taken,
            distinct,
            filtered: whole.gaps.filtered,
            broken: whole.gaps.unjoined(),
            complete,
            quality: whole.quality,
            maps: known,
        };
        Ok((loops, read))
    }
}
