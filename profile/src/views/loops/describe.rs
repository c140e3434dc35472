//! Converts the graph and its loop counts into the result.

use std::collections::HashMap;

use lbr_msr::insn::Insn;

use super::forest::Forest;
use super::graph::{Graph, StraightRuns};
use super::{BackEdge, Loop, Mean};
use crate::code::maps::{Location, Maps};
use crate::read::add;
use crate::views::sorted_by_key;
use crate::views::walk::{Edge, Edges, Transfer};

/// Fixed data of the loops.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) graph: Graph,
    pub(super) forest: Forest,
    /// The node with the test at the loop's head, if any.
    pub(super) tests: Vec<Option<usize>>,
    /// Backward conditional branches that were never taken: space, from, to.
    pub(super) passed: Vec<(u32, u64, u64)>,
}

/// Backward conditional branches that were executed but never taken: the only sign of loops that
/// always made one trip.
pub(super) fn passed_backwards(
    edges: &Edges,
    ran: &[StraightRuns],
    maps: &mut Maps,
) -> Vec<(u32, u64, u64)> {
    let mut found = Vec::new();
    for (edge, StraightRuns { reach, .. }) in edges.list().iter().zip(ran) {
        let mut ip = edge.to;
        while ip < *reach {
            let location = maps.locate(edge.space as usize, ip);
            let Some(code) = maps.code(location) else { break };
            let len = match code.decode(ip) {
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
    // Branches taken elsewhere are already known.
    found.retain(|(space, from, to)| edges.find(*space, *from, *to).is_none());
    found
}

/// Names loops whose back edge was never taken: no branch led to their heads.
fn name_never_taken(loops: &mut [Loop], ground: &Ground, maps: &Maps) {
    let Ground { graph, forest, passed, .. } = ground;
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
            if one.location == Location::default() {
                (one.head, one.location) = (*to, head);
            }
        }
    }
}

/// Names the branches that end a round of loops whose head is reached by fall-through.
fn name_falls(loops: &mut [Loop], edges: &Edges, graph: &Graph, maps: &Maps) {
    // By loop and location; `None` for a back edge.
    let mut known: HashMap<(usize, Location), Option<usize>> = HashMap::new();
    for (number, one) in loops.iter().enumerate() {
        known.extend(one.back_edges.iter().map(|back| ((number, back.location), None)));
    }
    for (edge, ends) in edges.list().iter().zip(&graph.ends) {
        let number = ends.closes.map(|number| number as usize);
        let Some((number, one)) = number.and_then(|at| Some((at, loops.get_mut(at)?))) else {
            continue;
        };
        let location = maps.locate(edge.space as usize, edge.from);
        let next = one.falls_from.len();
        let Some(at) = *known.entry((number, location)).or_insert(Some(next)) else { continue };
        match one.falls_from.get_mut(at) {
            Some(from) => add(&mut from.count, edge.count),
            None => one.falls_from.push(BackEdge { from: edge.from, location, count: edge.count }),
        }
    }
    for one in loops {
        one.falls_from.sort_by(|a, b| b.count.cmp(&a.count).then(a.from.cmp(&b.from)));
    }
}

/// The node with the test at the head of a loop.
pub(super) fn head_test(graph: &Graph, forest: &Forest, number: usize) -> Option<usize> {
    let head = forest.loops.get(number)?.head;
    let mut at = head;
    // The first branch after the head.
    while !graph.nodes.get(at)?.has_site {
        at += 1;
        if at == head || !in_loop(forest, at, number) {
            return None;
        }
    }
    let next = graph.next(at);
    let leaves = next.iter().any(|to| !in_loop(forest, *to as usize, number));
    let back = next.iter().any(|to| *to as usize == head);
    (leaves && !back).then_some(at)
}

fn in_loop(forest: &Forest, node: usize, number: usize) -> bool {
    forest.is_in(forest.innermost(node), number)
}

/// Sets the loop whose round each branch ends: branches to the head or, if the head is reached by
/// fall-through, backward branches.
pub(super) fn closing(edges: &Edges, graph: &mut Graph, forest: &Forest) {
    let ends = graph.ends.iter().map(|ends| (ends.from as usize, ends.to as usize));
    let ends = || ends.clone().zip(edges.list());
    let to_head = |from: usize, to: usize| {
        forest.headed_by(to).filter(|number| in_loop(forest, from, *number))
    };
    let mut has_branch = vec![false; forest.loops.len()];
    for ((from, to), edge) in ends() {
        if edge.kind.is_jump()
            && let Some(number) = to_head(from, to)
        {
            has_branch[number] = true;
        }
    }
    let closing: Vec<Option<u32>> = ends()
        .map(|((from, to), edge)| {
            if !edge.kind.is_jump() {
                return None;
            }
            let closes = to_head(from, to).or_else(|| {
                let innermost = forest.innermost(from);
                let both = forest.chain(innermost).find(|number| in_loop(forest, to, *number))?;
                let falls = has_branch.get(both) == Some(&false);
                (falls && graph.is_backward(from, to)).then_some(both)
            });
            closes.map(|number| number as u32)
        })
        .collect();
    graph.ends.iter_mut().zip(closing).for_each(|(ends, closes)| ends.closes = closes);
}

/// Completes the loops, of which `seen` has the counts; by descending number of rounds.
pub(super) fn describe(
    edges: &Edges,
    ground: &Ground,
    seen: Vec<Loop>,
    complete: bool,
    maps: &Maps,
) -> Vec<Loop> {
    let Ground { graph, forest, tests, .. } = ground;
    let jumps: HashMap<usize, Vec<usize>> = graph.jumps_to(edges.list());
    let mut loops = Vec::with_capacity(forest.loops.len());
    for (number, (shape, seen)) in forest.loops.iter().zip(seen).enumerate() {
        let mut back_edges = Vec::new();
        let mut types_unknown = false;
        for &edge in jumps.get(&shape.head).map(Vec::as_slice).unwrap_or_default() {
            let Some((branch, ends)) = edges.get(edge).zip(graph.ends.get(edge)) else { continue };
            if in_loop(forest, ends.from as usize, number) {
                types_unknown |= branch.kind == Transfer::Unknown;
                let location = maps.locate(branch.space as usize, branch.from);
                let (from, count) = (branch.from, branch.count);
                // The same branch of several processes is merged.
                match back_edges.iter_mut().find(|back: &&mut BackEdge| back.location == location) {
                    Some(back) => add(&mut back.count, count),
                    None => back_edges.push(BackEdge { from, location, count }),
                }
            }
        }
        back_edges.sort_by(|a, b| b.count.cmp(&a.count).then(a.from.cmp(&b.from)));
        let before = shape.head.checked_sub(1).filter(|before| in_loop(forest, *before, number));
        let falls_back = before.and_then(|before| graph.nodes.get(before)).map_or(0, |n| n.falls);
        // A head without a branch to it follows a branch.
        let leader = graph.nodes.get(shape.head).and_then(|node| node.leader);
        let first = leader.and_then(|edge| edges.get(edge));
        let place = |edge: &Edge| (edge.to, maps.locate(edge.space as usize, edge.to));
        let (head, location) = first.map(place).unwrap_or_default();
        loops.push(Loop {
            head,
            location,
            parent: shape.parent,
            depth: shape.depth,
            back_edges,
            falls_back,
            tested_at_head: tests.get(number).copied().flatten().is_some(),
            irreducible: shape.irreducible,
            types_unknown,
            mean: (!complete).then(|| Mean::of(&seen.exits)),
            ..seen
        });
    }
    name_never_taken(&mut loops, ground, maps);
    name_falls(&mut loops, edges, graph, maps);
    sorted(loops)
}

/// Sorts by descending number of rounds.
fn sorted(loops: Vec<Loop>) -> Vec<Loop> {
    let work = |one: &Loop| one.rounds.saturating_add(one.trips.ended.n());
    let key = |one: &Loop| (std::cmp::Reverse(work(one)), one.head, one.depth);
    let (mut loops, moved) = sorted_by_key(loops, key);
    for one in &mut loops {
        one.parent = one.parent.and_then(|parent| moved.get(parent).copied());
    }
    loops
}
