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

mod forest;
mod graph;
mod track;
mod trips;

use std::collections::HashMap;

use lbr_msr::insn::{self, Insn};

use crate::cycles::Cycles;
use crate::maps::{Location, Maps};
use crate::perf_data::ReadError;
use crate::quality::Quality;
use crate::recording::Recording;
use crate::walk::{self, Edges, Kind, Opening, Read, Visit, Walker, add};

use forest::Forest;
use graph::{Graph, Ran};
use track::{Ground, Seen, Tracker};

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
    fn stack(&mut self, walker: &mut Walker, opening: Opening) {
        self.ran.resize(walker.edges.list.len(), Ran::default());
        self.reach.resize(walker.edges.list.len(), 0);
        for step in &walker.steps {
            let Some(before) = step.before else { continue };
            if let Some(ran) = self.ran.get_mut(before) {
                add(&mut ran.begins, opening.weight);
            }
            if let Some(ran) = self.ran.get_mut(step.edge) {
                add(&mut ran.ends, opening.weight);
            }
            let exit = walker.edges.get(step.edge).map_or(0, |edge| edge.from);
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
        let (mut walker, mut counter) = (Walker::default(), Counter::default());
        let read = walk::walk(read_all, &mut walker, &mut counter)?;
        let Walker { edges, mut maps, .. } = walker;
        let passed = passed_backwards(&edges, &counter.reach, &mut maps);
        let graph = Graph::new(&edges.list, &counter.ran, &passed, &maps);
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
        let mut tracker = Tracker::new(ground);
        let mut walker = Walker::again(edges);
        // The first walk counted the branches, and the second one again.
        for edge in &mut walker.edges.list {
            edge.count = 0;
        }
        let read = walk::walk(read_all, &mut walker, &mut tracker)?;
        tracker.finish();
        let seen = std::mem::take(&mut tracker.seen);
        let complete = walker.is_complete();
        let mut loops = describe(&walker.edges, &graph, &forest, &seen, &known);
        name_never_taken(&mut loops, &graph, &forest, &passed, &known);
        name_falls(&mut loops, &walker.edges, &closes, &known);
        for (found, seen) in loops.iter_mut().zip(&seen) {
            found.mean = (!complete).then(|| Mean::of(&seen.exits));
        }
        for (found, test) in loops.iter_mut().zip(&tests) {
            found.tested_at_head = test.is_some();
        }
        let list = &walker.edges.list;
        let loops = Loops {
            loops: sorted(loops),
            taken: list.iter().fold(0, |sum, edge| sum.saturating_add(edge.count)),
            distinct: list.len() as u64,
            filtered: walker.filtered,
            broken: walker.broken,
            complete,
            quality: walker.quality,
            maps: known,
        };
        Ok((loops, read))
    }
}

/// Conditional branches backwards that code ran past without ever taking them:
/// loops that made one trip each time have no other.
fn passed_backwards(edges: &Edges, reach: &[u64], maps: &mut Maps) -> Vec<(u32, u64, u64)> {
    let mut found = Vec::new();
    for (edge, reach) in edges.list.iter().zip(reach) {
        let mut ip = edge.to;
        while ip < *reach {
            let location = maps.locate(edge.space as usize, ip);
            let Some(bytes) = maps.code(location) else { break };
            let len = match insn::decode(&bytes, ip) {
                Insn::Straight { len } => len,
                Insn::Branch(branch) if branch.is_conditional() => {
                    if let Some(to) = branch.target.filter(|to| *to <= ip) {
                        found.push((edge.space, ip, to));
                    }
                    branch.len
                }
                Insn::Branch(_) | Insn::Invalid => break,
            };
            ip = ip.wrapping_add(u64::from(len));
        }
    }
    found.sort_unstable();
    found.dedup();
    // Those that were taken elsewhere are known.
    found.retain(|(space, from, to)| !edges.has(*space, *from, *to));
    found
}

/// Gives loops whose branch back was never taken their names: no branch led to
/// their heads.
fn name_never_taken(
    loops: &mut [Loop],
    graph: &Graph,
    forest: &Forest,
    passed: &[(u32, u64, u64)],
    maps: &Maps,
) {
    let mut by_head: HashMap<Location, Vec<&(u32, u64, u64)>> = HashMap::new();
    for back in passed {
        by_head.entry(maps.locate(back.0 as usize, back.2)).or_default().push(back);
    }
    for (one, shape) in loops.iter_mut().zip(&forest.loops) {
        let Some(head) = graph.location(shape.head) else { continue };
        for (space, from, to) in by_head.get(&head).into_iter().flatten() {
            let location = maps.locate(*space as usize, *from);
            if one.back_edges.iter().any(|back| back.location == location) {
                continue;
            }
            one.back_edges.push(BackEdge { from: *from, location, count: 0 });
            if one.location == Location::Address(0) {
                (one.head, one.location) = (*to, head);
            }
        }
    }
}

/// Names the branches that close the rounds of loops whose heads are fallen
/// into.
fn name_falls(loops: &mut [Loop], edges: &Edges, closes: &[Option<usize>], maps: &Maps) {
    for (edge, number) in edges.list.iter().zip(closes) {
        let Some(one) = number.and_then(|number| loops.get_mut(number)) else { continue };
        let location = maps.locate(edge.space as usize, edge.from);
        if one.back_edges.iter().any(|back| back.location == location) {
            continue;
        }
        match one.falls_from.iter_mut().find(|from| from.location == location) {
            Some(from) => add(&mut from.count, edge.count),
            None => one.falls_from.push(BackEdge { from: edge.from, location, count: edge.count }),
        }
    }
    for one in loops {
        one.falls_from.sort_by(|a, b| b.count.cmp(&a.count).then(a.from.cmp(&b.from)));
    }
}

/// The node with the test at the head of a loop.
fn head_test(graph: &Graph, forest: &Forest, number: usize) -> Option<usize> {
    let head = forest.loops.get(number)?.head;
    let mut at = head;
    // Straight on to the first branch.
    while !graph.nodes.get(at)?.has_site {
        at += 1;
        if at == head || !in_loop(forest, at, number) {
            return None;
        }
    }
    let next = graph.next(at);
    let leaves = next.iter().any(|(to, _)| !in_loop(forest, *to, number));
    let back = next.iter().any(|(to, _)| *to == head);
    (leaves && !back).then_some(at)
}

fn in_loop(forest: &Forest, node: usize, number: usize) -> bool {
    forest.is_in(forest.innermost.get(node).copied().flatten(), number)
}

/// For each branch the loop whose rounds it closes: branches to the head or,
/// where control falls into the head, those that lead backwards.
fn closing(edges: &Edges, graph: &Graph, forest: &Forest) -> Vec<Option<usize>> {
    let ends = || graph.from.iter().zip(&graph.to).zip(&edges.list);
    let to_head = |from: usize, to: usize| {
        forest.headed_by(to).filter(|number| in_loop(forest, from, *number))
    };
    let mut has_branch = vec![false; forest.loops.len()];
    for ((&from, &to), edge) in ends() {
        if edge.kind.is_jump()
            && let Some(number) = to_head(from, to)
            && let Some(has) = has_branch.get_mut(number)
        {
            *has = true;
        }
    }
    ends()
        .map(|((&from, &to), edge)| {
            if !edge.kind.is_jump() {
                return None;
            }
            to_head(from, to).or_else(|| {
                let innermost = forest.innermost.get(from).copied().flatten();
                let both = forest.chain(innermost).find(|number| in_loop(forest, to, *number))?;
                let falls = has_branch.get(both) == Some(&false);
                (falls && graph.is_backward(from, to)).then_some(both)
            })
        })
        .collect()
}

/// The first node behind each that is a head or in another loop than the one
/// before it.
fn marks(graph: &Graph, forest: &Forest) -> Vec<usize> {
    let mut marks = vec![usize::MAX; graph.nodes.len()];
    let mut next = usize::MAX;
    for node in (1..graph.nodes.len()).rev() {
        let differs = forest.innermost.get(node) != forest.innermost.get(node - 1);
        if differs || forest.headed_by(node).is_some() {
            next = node;
        }
        if let Some(mark) = marks.get_mut(node - 1) {
            *mark = next;
        }
    }
    marks
}

fn describe(
    edges: &Edges,
    graph: &Graph,
    forest: &Forest,
    seen: &[Seen],
    maps: &Maps,
) -> Vec<Loop> {
    let jumps: HashMap<usize, Vec<usize>> = graph.jumps_to(&edges.list);
    let mut loops = Vec::with_capacity(forest.loops.len());
    for (number, (shape, seen)) in forest.loops.iter().zip(seen).enumerate() {
        let mut back_edges = Vec::new();
        let mut types_unknown = false;
        for &edge in jumps.get(&shape.head).map(Vec::as_slice).unwrap_or_default() {
            let Some((branch, &from)) = edges.get(edge).zip(graph.from.get(edge)) else { continue };
            if in_loop(forest, from, number) {
                types_unknown |= branch.kind == Kind::Unknown;
                let location = maps.locate(branch.space as usize, branch.from);
                let (from, count) = (branch.from, branch.count);
                // The same branch of several processes is one.
                match back_edges.iter_mut().find(|back: &&mut BackEdge| back.location == location) {
                    Some(back) => add(&mut back.count, count),
                    None => back_edges.push(BackEdge { from, location, count }),
                }
            }
        }
        back_edges.sort_by(|a, b| b.count.cmp(&a.count).then(a.from.cmp(&b.from)));
        let before = shape.head.checked_sub(1).filter(|before| in_loop(forest, *before, number));
        let falls_back = before.and_then(|before| graph.nodes.get(before)).map_or(0, |n| n.falls);
        // A head that no branch leads to stands behind one.
        let leader = graph.nodes.get(shape.head).and_then(|node| node.leader);
        let first = leader.and_then(|edge| edges.get(edge));
        let (head, location) = match first {
            Some(edge) => (edge.to, maps.locate(edge.space as usize, edge.to)),
            None => (0, Location::Address(0)),
        };
        loops.push(Loop {
            head,
            location,
            parent: shape.parent,
            depth: shape.depth,
            back_edges,
            falls_back,
            falls_from: Vec::new(),
            tested_at_head: false,
            irreducible: shape.irreducible,
            calls: seen.calls,
            types_unknown,
            rounds: seen.rounds,
            trips: seen.trips.clone(),
            headless: seen.headless,
            longest_headless: seen.longest_headless,
            mean: None,
            cycles: seen.cycles.clone(),
        });
    }
    loops
}

/// Those with the most rounds first.
fn sorted(loops: Vec<Loop>) -> Vec<Loop> {
    let work = |one: &Loop| one.rounds.saturating_add(one.trips.n());
    let mut order: Vec<usize> = (0..loops.len()).collect();
    order.sort_by_key(|at| {
        loops.get(*at).map(|one| (std::cmp::Reverse(work(one)), one.head, one.depth))
    });
    let mut place = vec![0; loops.len()];
    for (new, old) in order.iter().enumerate() {
        if let Some(place) = place.get_mut(*old) {
            *place = new;
        }
    }
    let mut found: Vec<(usize, Loop)> = loops
        .into_iter()
        .enumerate()
        .map(|(old, mut one)| {
            one.parent = one.parent.and_then(|parent| place.get(parent).copied());
            (place.get(old).copied().unwrap_or(old), one)
        })
        .collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, one)| one).collect()
}
