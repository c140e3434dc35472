//! The flow graph that a recording shows: code between the places where
//! branches lead to and come from, how often control fell from one piece into
//! the next, and the branches between them.

use std::collections::HashMap;

use crate::clean::add;
use crate::code::maps::{Location, Maps};
use crate::views::walk::{Edge, Transfer, returns_behind};

/// Addresses that count together: those of a file, or of a space where there
/// is no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Within {
    File(usize),
    Space(u32),
}

type Spot = (Within, u64);

fn place(maps: &Maps, space: u32, addr: u64) -> Spot {
    match maps.locate(space as usize, addr) {
        Location::File { file, offset } => (Within::File(file), offset),
        Location::Address(addr) => (Within::Space(space), addr),
    }
}

/// A piece of code: from the target of a branch, or from behind a branch, up
/// to the next such place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    start: Spot,
    /// A branch that leads here: its target is the start.
    pub(super) leader: Option<usize>,
    /// Its last instruction is a branch that was taken.
    pub(super) has_site: bool,
    /// How often control fell from here into the next node.
    pub(super) falls: u64,
    /// How often a call led here.
    called: u64,
}

/// How often straight code began behind a branch, and ended at it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct StraightRuns {
    pub(super) begins: u64,
    pub(super) ends: u64,
    /// The farthest that code ran straight from the target of the branch.
    pub(super) reach: u64,
}

/// The ends of a branch.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(super) struct Ends {
    /// The node that it comes from.
    pub(super) from: u32,
    /// The node that it leads to.
    pub(super) to: u32,
    /// The loop whose rounds it closes, as far as cycles go.
    pub(super) closes: Option<u32>,
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// Of each branch.
    pub(super) ends: Vec<Ends>,
    /// The node behind each call, where its return leads to.
    pub(super) behind: Vec<Option<usize>>,
    after: Ways,
}

/// Ways between nodes, by the node that they begin at.
#[derive(Debug, Default)]
struct Ways {
    /// Where those of each node begin; one more than nodes.
    starts: Vec<u32>,
    others: Vec<u32>,
    /// How often each was gone.
    counts: Vec<u64>,
}

impl Ways {
    /// Takes the ways sorted.
    fn new(nodes: usize, ways: &[(u32, u32, u64)]) -> Ways {
        let mut starts = Vec::with_capacity(nodes + 1);
        let mut at = 0;
        for node in 0..=nodes {
            while ways.get(at).is_some_and(|(from, ..)| (*from as usize) < node) {
                at += 1;
            }
            starts.push(at as u32);
        }
        let others = ways.iter().map(|(_, to, _)| *to).collect();
        Ways { starts, others, counts: ways.iter().map(|(.., count)| *count).collect() }
    }

    fn range(&self, node: usize) -> std::ops::Range<usize> {
        let start = self.starts.get(node).copied().unwrap_or(0);
        let end = self.starts.get(node + 1).copied().unwrap_or(start);
        start as usize..end as usize
    }

    fn of(&self, node: usize) -> &[u32] {
        self.others.get(self.range(node)).unwrap_or_default()
    }
}

impl Graph {
    /// `passed` are conditional branches backwards that the code has and that
    /// were passed: (space, from, to).
    pub(super) fn new(
        branches: &[Edge],
        ran: &[StraightRuns],
        passed: &[(u32, u64, u64)],
        maps: &Maps,
    ) -> Graph {
        let ends: Vec<(Spot, Spot)> = branches
            .iter()
            .map(|edge| (place(maps, edge.space, edge.from), place(maps, edge.space, edge.to)))
            .collect();
        let mut starts: Vec<Spot> = Vec::with_capacity(ends.len() * 2);
        for ((image, from), to) in &ends {
            starts.push(*to);
            starts.push((*image, from.saturating_add(1)));
        }
        let passed: Vec<(Spot, Spot)> = passed
            .iter()
            .map(|(space, from, to)| (place(maps, *space, *from), place(maps, *space, *to)))
            .collect();
        for ((image, from), to) in &passed {
            starts.push(*to);
            starts.push((*image, from.saturating_add(1)));
        }
        starts.sort_unstable();
        starts.dedup();
        starts.shrink_to_fit();
        // The node that a place lies in. A branch whose piece begins at itself
        // and is known from nowhere else makes one of its own.
        let mut own: Vec<Spot> = Vec::new();
        let holder = |starts: &[Spot], at: Spot| {
            let index = starts.partition_point(|start| *start <= at).checked_sub(1)?;
            starts.get(index).filter(|start| start.0 == at.0).map(|_| index)
        };
        for (from, _) in &ends {
            if holder(&starts, *from).is_none() {
                own.push((from.0, 0));
            }
        }
        if !own.is_empty() {
            starts.extend(own);
            starts.sort_unstable();
            starts.dedup();
        }
        let mut graph = Graph {
            nodes: starts
                .iter()
                .map(|&start| Node { start, leader: None, has_site: false, falls: 0, called: 0 })
                .collect(),
            ..Graph::default()
        };
        let index = |at: Spot| holder(&starts, at).unwrap_or(0);
        // Straight code that began and did not end yet goes on into the next node.
        let mut running = vec![0i128; starts.len() + 1];
        for (number, (edge, (from, to))) in branches.iter().zip(&ends).enumerate() {
            let (from, to) = (index(*from), index(*to));
            // There are fewer nodes than twice the branches, which have numbers.
            graph.ends.push(Ends { from: from as u32, to: to as u32, closes: None });
            if let Some(node) = graph.nodes.get_mut(from) {
                node.has_site = true;
            }
            if let Some(node) = graph.nodes.get_mut(to) {
                node.leader.get_or_insert(number);
                if edge.kind == Transfer::Call {
                    add(&mut node.called, edge.count);
                }
            }
            let StraightRuns { begins, ends, .. } = ran.get(number).copied().unwrap_or_default();
            if let Some(sum) = running.get_mut(to) {
                *sum += i128::from(begins);
            }
            if let Some(sum) = running.get_mut(from) {
                *sum -= i128::from(ends);
            }
        }
        let (mut sum, mut image) = (0i128, None);
        for (node, change) in graph.nodes.iter_mut().zip(running) {
            // Nothing runs on from one file into another.
            if image != Some(node.start.0) {
                (sum, image) = (0, Some(node.start.0));
            }
            sum += change;
            node.falls = u64::try_from(sum).unwrap_or(0);
        }
        // Counts that a file claims need not add up: behind the last piece of a
        // file nothing is to fall into.
        for at in 0..graph.nodes.len() {
            let next = graph.nodes.get(at + 1).map(|next| next.start.0);
            if let Some(node) = graph.nodes.get_mut(at).filter(|node| next != Some(node.start.0)) {
                node.falls = 0;
            }
        }
        graph.returns(branches, &ends, &starts);
        let passed = passed.into_iter().map(|(from, to)| (index(from), index(to), 0)).collect();
        graph.connect(branches, passed);
        graph
    }

    /// Finds where each call returns to.
    fn returns(&mut self, branches: &[Edge], ends: &[(Spot, Spot)], starts: &[Spot]) {
        let mut back: Vec<usize> = vec![0; self.nodes.len()];
        for (edge, ends) in branches.iter().zip(&self.ends) {
            if edge.kind == Transfer::Return
                && let Some(count) = back.get_mut(ends.to as usize)
            {
                *count += 1;
            }
        }
        self.behind = branches
            .iter()
            .zip(ends)
            .map(|(edge, (from, _))| {
                let first = starts.partition_point(|start| start <= from);
                let behind = starts.iter().enumerate().skip(first);
                let mut behind =
                    behind.take_while(|(_, at)| at.0 == from.0 && returns_behind(from.1, at.1));
                let is_call = edge.kind == Transfer::Call;
                behind
                    .find(|(node, _)| is_call && back.get(*node).is_some_and(|n| *n > 0))
                    .map(|(node, _)| node)
            })
            .collect();
    }

    /// Every way from node to node that stays in a frame.
    fn connect(&mut self, branches: &[Edge], passed: Vec<(usize, usize, u64)>) {
        for (from, ..) in &passed {
            if let Some(node) = self.nodes.get_mut(*from) {
                node.has_site = true;
            }
        }
        let mut ways: Vec<(u32, u32, u64)> = Vec::new();
        let mut add = |from: usize, to: usize, count| ways.push((from as u32, to as u32, count));
        passed.into_iter().for_each(|(from, to, count)| add(from, to, count));
        for (at, node) in self.nodes.iter().enumerate() {
            if node.falls > 0 {
                add(at, at + 1, node.falls);
            }
        }
        for (number, edge) in branches.iter().enumerate() {
            let Some(&Ends { from, to, .. }) = self.ends.get(number) else { continue };
            let (from, to) = (from as usize, to as usize);
            let behind = self.behind.get(number).copied().flatten();
            if edge.kind.is_jump() {
                add(from, to, edge.count);
            } else if let Some(behind) = behind {
                add(from, behind, edge.count);
            }
        }
        let nodes = self.nodes.len();
        ways.sort_unstable();
        self.after = Ways::new(nodes, &ways);
    }

    /// Where control goes on from a node.
    pub(super) fn next(&self, node: usize) -> &[u32] {
        self.after.of(node)
    }

    /// How often the way of this place among [`next`](Self::next) was gone.
    pub(super) fn count(&self, node: usize, at: usize) -> u64 {
        let counts = self.after.counts.get(self.after.range(node));
        counts.and_then(|counts| counts.get(at)).copied().unwrap_or(0)
    }

    /// How often a call led to a node.
    pub(super) fn called(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |node| node.called)
    }

    /// Whether two nodes are of one file, the first not behind the second.
    pub(super) fn is_backward(&self, from: usize, to: usize) -> bool {
        let start = |node: usize| self.nodes.get(node).map(|node| node.start);
        match (start(from), start(to)) {
            (Some(from), Some(to)) => from.0 == to.0 && to.1 <= from.1,
            _ => false,
        }
    }

    /// The address of a node, in a space that has it at this place of its
    /// file; `None` for one that is known by its file alone.
    pub(super) fn location(&self, node: usize) -> Option<Location> {
        let (image, at) = self.nodes.get(node)?.start;
        Some(match image {
            Within::File(file) => Location::File { file, offset: at },
            Within::Space(_) => Location::Address(at),
        })
    }

    /// Branches by the node that they lead to, jumps alone.
    pub(super) fn jumps_to(&self, branches: &[Edge]) -> HashMap<usize, Vec<usize>> {
        let mut by_node: HashMap<usize, Vec<usize>> = HashMap::new();
        for (number, (edge, ends)) in branches.iter().zip(&self.ends).enumerate() {
            if edge.kind.is_jump() {
                by_node.entry(ends.to as usize).or_default().push(number);
            }
        }
        by_node
    }
}

#[cfg(test)]
mod tests {
    use super::super::forest::Forest;
    use super::{Graph, StraightRuns};
    use crate::code::maps::Maps;
    use crate::views::walk::{Edge, Transfer};

    #[test]
    fn nothing_falls_out_of_the_last_piece() {
        // Straight code that began behind a branch and never ended.
        let edge = Edge { from: 0x10, to: 0x20, space: 0, kind: Transfer::Conditional, count: 5 };
        let ran = StraightRuns { begins: 5, ..StraightRuns::default() };
        let graph = Graph::new(&[edge], &[ran], &[], &Maps::default());
        let last = graph.nodes.len() - 1;
        assert!(graph.next(last).is_empty());
        assert!(Forest::new(&graph).loops.is_empty());
    }
}
