//! The flow graph of a recording: code between branch sources and targets, fall-through counts, and
//! the branches.

use std::collections::HashMap;

use crate::code::maps::{Location, Maps};
use crate::read::add;
use crate::views::walk::{Edge, Transfer, returns_after};

/// Addresses that are counted together: those of a file, or of an address space if there is no
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Image {
    File(usize),
    Space(u32),
}

type Spot = (Image, u64);

fn place(maps: &Maps, space: u32, addr: u64) -> Spot {
    match maps.locate(space as usize, addr) {
        Location::File { file, offset } => (Image::File(file), offset),
        Location::Address(addr) => (Image::Space(space), addr),
    }
}

/// A piece of code: from a branch target, or from after a branch, up to the next such address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    start: Spot,
    /// A branch to here: its target is the start.
    pub(super) leader: Option<usize>,
    /// Whether its last instruction is a taken branch.
    pub(super) has_site: bool,
    /// Number of fall-throughs into the next node.
    pub(super) falls: u64,
    /// Number of calls to here.
    pub(super) called: u64,
}

/// How often fall-through ranges started after a branch, and ended at it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct StraightRuns {
    pub(super) begins: u64,
    pub(super) ends: u64,
    /// The farthest address reached by fall-through from the branch's target.
    pub(super) reach: u64,
}

/// The ends of a branch.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(super) struct Ends {
    /// The source node.
    pub(super) from: u32,
    /// The target node.
    pub(super) to: u32,
    /// The loop whose round it ends, for the cycle counts.
    pub(super) closes: Option<u32>,
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// The ends of each branch.
    pub(super) ends: Vec<Ends>,
    /// The node after each call, where its return goes.
    pub(super) behind: Vec<Option<usize>>,
    after: Ways,
}

/// Edges between nodes, by source node.
#[derive(Debug, Default)]
struct Ways {
    /// Start of each node's edges; one more than nodes.
    starts: Vec<u32>,
    others: Vec<u32>,
    /// The count of each edge.
    counts: Vec<u64>,
}

impl Ways {
    /// From sorted edges.
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
}

impl Graph {
    /// `passed` are backward conditional branches in the code that were not taken: (space, from,
    /// to).
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

        let passed: Vec<(Spot, Spot)> = passed
            .iter()
            .map(|(space, from, to)| (place(maps, *space, *from), place(maps, *space, *to)))
            .collect();
        let mut starts: Vec<Spot> = Vec::with_capacity((ends.len() + passed.len()) * 2);
        for ((image, from), to) in ends.iter().chain(&passed) {
            starts.push(*to);
            starts.push((*image, from.saturating_add(1)));
        }
        starts.sort_unstable();
        starts.dedup();
        starts.shrink_to_fit();
        // The node that contains an address. A branch at the start of its piece that no other
        // evidence shows gets its own node.
        let holder = |starts: &[Spot], at: Spot| {
            let index = starts.partition_point(|start| *start <= at).checked_sub(1)?;
            starts.get(index).filter(|start| start.0 == at.0).map(|_| index)
        };
        let own = ends.iter().filter(|(from, _)| holder(&starts, *from).is_none());
        let own: Vec<Spot> = own.map(|(from, _)| (from.0, 0)).collect();
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
        // Fall-through ranges that have started but not ended continue in the next node.
        let mut running = vec![0i128; starts.len() + 1];
        for (number, (edge, (from, to))) in branches.iter().zip(&ends).enumerate() {
            let (from, to) = (index(*from), index(*to));
            // There are fewer nodes than twice the branches, which have numbers.
            graph.ends.push(Ends { from: from as u32, to: to as u32, closes: None });
            graph.nodes[from].has_site = true;
            graph.nodes[to].leader.get_or_insert(number);
            if edge.kind == Transfer::Call {
                add(&mut graph.nodes[to].called, edge.count);
            }
            let StraightRuns { begins, ends, .. } = ran.get(number).copied().unwrap_or_default();
            running[to] += i128::from(begins);
            running[from] -= i128::from(ends);
        }
        let (mut sum, mut image) = (0i128, None);
        for (node, change) in graph.nodes.iter_mut().zip(running) {
            // Code does not fall through from one file into another.
            if image != Some(node.start.0) {
                (sum, image) = (0, Some(node.start.0));
            }
            sum += change;
            node.falls = u64::try_from(sum).unwrap_or(0);
        }
        // Counts claimed by a file may be inconsistent: no fall-through after the last piece of a
        // file.
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

    /// Finds the return node of each call.
    fn returns(&mut self, branches: &[Edge], ends: &[(Spot, Spot)], starts: &[Spot]) {
        let mut back = vec![false; self.nodes.len()];
        for (edge, ends) in branches.iter().zip(&self.ends) {
            back[ends.to as usize] |= edge.kind == Transfer::Return;
        }
        self.behind = branches
            .iter()
            .zip(ends)
            .map(|(edge, (from, _))| {
                if edge.kind != Transfer::Call {
                    return None;
                }
                let first = starts.partition_point(|start| start <= from);
                let behind = starts.iter().enumerate().skip(first);
                let mut behind =
                    behind.take_while(|(_, at)| at.0 == from.0 && returns_after(from.1, at.1));
                behind.find(|(node, _)| back[*node]).map(|(node, _)| node)
            })
            .collect();
    }

    /// Adds every edge between nodes that stays in a frame.
    fn connect(&mut self, branches: &[Edge], passed: Vec<(usize, usize, u64)>) {
        passed.iter().for_each(|(from, ..)| self.nodes[*from].has_site = true);
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
        ways.sort_unstable();
        self.after = Ways::new(self.nodes.len(), &ways);
    }

    /// The successors of a node.
    pub(super) fn next(&self, node: usize) -> &[u32] {
        self.after.others.get(self.after.range(node)).unwrap_or_default()
    }

    /// The count of the edge at this index of [`next`](Self::next).
    pub(super) fn count(&self, node: usize, at: usize) -> u64 {
        let counts = self.after.counts.get(self.after.range(node));
        counts.and_then(|counts| counts.get(at)).copied().unwrap_or(0)
    }

    /// Whether two nodes are in one file, the first not after the second.
    pub(super) fn is_backward(&self, from: usize, to: usize) -> bool {
        let start = |node: usize| self.nodes.get(node).map(|node| node.start);
        let ends = start(from).zip(start(to));
        ends.is_some_and(|(from, to)| from.0 == to.0 && to.1 <= from.1)
    }

    /// The location of a node; `None` for a node known only by its file.
    pub(super) fn location(&self, node: usize) -> Option<Location> {
        let (image, at) = self.nodes.get(node)?.start;
        Some(match image {
            Image::File(file) => Location::File { file, offset: at },
            Image::Space(_) => Location::Address(at),
        })
    }

    /// Jumps by their target node.
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
#[path = "../../../../tests/profile/unit/views/loops/graph.rs"]
mod tests;
