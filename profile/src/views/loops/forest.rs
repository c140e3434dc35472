//! Loops of a flow graph and how they nest.
//!
//! A loop is a strongly connected part of the graph; control enters it at its head. Without the
//! head, the part splits into smaller ones: the inner loops. On graphs whose loops have one
//! entrance these are the natural loops (Bourdoncle, Efficient chaotic iteration strategies with
//! widenings, 1993); loops with more entrances are found too, and marked.

use super::graph::Graph;

/// Maximum nesting depth of loops.
const DEEPEST: u32 = 64;

/// Maximum depth of a loop with several entrances that has inner loops. Where all parts of the code
/// jump to each other, as in an interpreter, the loop without its head is such a loop again.
const DEEPEST_IRREDUCIBLE: u32 = 16;

/// A loop of the graph.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) head: usize,
    pub(super) parent: Option<usize>,
    /// 1 for the outermost.
    pub(super) depth: u32,
    /// Whether control enters at more than one node.
    pub(super) irreducible: bool,
}

/// Loops, outer before inner, and the innermost loop of each node.
#[derive(Debug, Default)]
pub(super) struct Forest {
    pub(super) loops: Vec<Shape>,
    nodes: Vec<AtNode>,
    /// A number range for each loop and the loops inside it: the first number, and the one after
    /// the last.
    spans: Vec<(usize, usize)>,
}

/// The data needed when control reaches a node.
#[derive(Clone, Copy, Debug)]
struct AtNode {
    /// The innermost loop, or [`NO_LOOP`], and [whether](HEAD) this is its head.
    innermost: u32,
    /// The next node that is a head or in another loop than its predecessor.
    next_mark: u32,
}

const NO_LOOP: u32 = HEAD - 1;
const HEAD: u32 = 1 << 31;

impl Forest {
    pub(super) fn new(graph: &Graph) -> Forest {
        let mut loops = Vec::new();
        let mut search = Search::new(graph);
        let all = search.labels();
        let mut innermost: Vec<u32> = vec![NO_LOOP; all.len()];
        let mut left: Vec<(Vec<u32>, Option<usize>, u32)> = vec![(all, None, 1)];
        while let Some((region, parent, depth)) = left.pop() {
            for mut part in search.parts(&region) {
                let Some(Head { label, entrances }) = search.head(&part) else { continue };
                let number = loops.len();
                for label in &part {
                    innermost[*label as usize] = number as u32;
                }
                innermost[label as usize] |= HEAD;
                let (head, irreducible) = (search.node(label), entrances > 1);
                loops.push(Shape { head, parent, depth, irreducible });
                let deepest = if irreducible { DEEPEST_IRREDUCIBLE } else { DEEPEST };
                if part.len() > 1 && depth < deepest {
                    part.retain(|other| *other != label);
                    search.leave_out(label);
                    left.push((part, Some(number), depth + 1));
                }
            }
        }
        let none = AtNode { innermost: NO_LOOP, next_mark: u32::MAX };
        let mut nodes = vec![none; graph.nodes.len()];
        for (label, innermost) in innermost.into_iter().enumerate() {
            nodes[search.node(label as u32)].innermost = innermost;
        }
        let Search { passed, .. } = search;
        let mut forest = Forest { spans: spans(&loops), loops, nodes };
        // A skipped node is in the loops that contain both its predecessor and its successor.
        for node in (0..passed.len()).filter(|node| passed[*node]) {
            let (next, _) = end_of(graph, &passed, node, 0);
            let next = forest.innermost(next as usize);
            let before = forest.innermost(node - 1);
            let both = forest.chain(before).find(|number| forest.is_in(next, *number));
            forest.nodes[node].innermost = both.map_or(NO_LOOP, |number| number as u32);
        }
        let nodes = &mut forest.nodes;
        let mut next = u32::MAX;
        for node in (1..nodes.len()).rev() {
            let (at, before) = (nodes[node].innermost, nodes[node - 1].innermost);
            if at & HEAD != 0 || at != before & !HEAD {
                next = node as u32;
            }
            nodes[node - 1].next_mark = next;
        }
        forest
    }

    /// Whether a loop is `outer` or inside it.
    pub(super) fn is_in(&self, inner: Option<usize>, outer: usize) -> bool {
        let span = |number: usize| self.spans.get(number).copied();
        match (inner.and_then(span), span(outer)) {
            (Some((at, _)), Some((first, end))) => (first..end).contains(&at),
            _ => false,
        }
    }

    /// A loop and its enclosing loops, innermost first.
    pub(super) fn chain(&self, inner: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(inner, |at| self.around(*at))
    }

    /// The enclosing loop.
    pub(super) fn around(&self, number: usize) -> Option<usize> {
        self.loops.get(number).and_then(|shape| shape.parent)
    }

    /// The innermost loop that contains a node.
    #[inline]
    pub(super) fn innermost(&self, node: usize) -> Option<usize> {
        let number = self.nodes.get(node)?.innermost & !HEAD;
        (number != NO_LOOP).then_some(number as usize)
    }

    /// The loop with this node as its head.
    #[inline]
    pub(super) fn headed_by(&self, node: usize) -> Option<usize> {
        let number = self.nodes.get(node)?.innermost;
        (number & HEAD != 0).then_some((number & !HEAD) as usize)
    }

    /// The next node after this one where the set of loops changes.
    #[inline]
    pub(super) fn next_mark(&self, node: usize) -> Option<usize> {
        let next = self.nodes.get(node)?.next_mark;
        (next != u32::MAX).then_some(next as usize)
    }
}

/// Numbers loops, given outer before inner, so that the loops inside each one follow it.
fn spans(loops: &[Shape]) -> Vec<(usize, usize)> {
    // Number of loops in each, including itself.
    let mut holds = vec![1; loops.len()];
    for (number, shape) in loops.iter().enumerate().rev() {
        if let Some(parent) = shape.parent {
            holds[parent] += holds[number];
        }
    }
    let mut spans: Vec<(usize, usize)> = Vec::with_capacity(loops.len());
    // The next free number inside each.
    let mut free: Vec<usize> = Vec::with_capacity(loops.len());
    let mut outermost = 0;
    for (shape, holds) in loops.iter().zip(holds) {
        let next = shape.parent.map_or(&mut outermost, |parent| &mut free[parent]);
        let first = *next;
        *next += holds;
        spans.push((first, first + holds));
        free.push(first + 1);
    }
    spans
}

struct Head {
    label: u32,
    entrances: usize,
}

/// The search's data for a node, in one place: nodes are visited in no fixed order.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The last region that it was in.
    region: u32,
    /// Its part in that region; 0 if none yet.
    part: u32,
    /// Its number in order of visits; 0 before.
    order: u32,
    low: u32,
}

/// The nodes that the search skips: control reaches them only from their predecessor and continues
/// to only one other, as after a branch that was not taken. They are not loop heads, and are in the
/// loops that contain both of these.
fn passed(graph: &Graph) -> Vec<bool> {
    let count = graph.nodes.len();
    let mut ways_in = vec![0u32; count];
    for node in 0..count {
        graph.next(node).iter().for_each(|to| ways_in[*to as usize] += 1);
    }
    let is = |node: usize| {
        let Some(before) = node.checked_sub(1) else { return false };
        ways_in[node] == 1
            && graph.next(node).len() == 1
            && graph.called(node) == 0
            && graph.next(before).contains(&(node as u32))
            && graph.is_backward(node, before)
    };
    (0..count).map(is).collect()
}

/// The end of an edge after skipped nodes, and the count of its last part.
fn end_of(graph: &Graph, passed: &[bool], node: usize, at: usize) -> (u32, u64) {
    let (mut node, mut at) = (node, at);
    loop {
        let to = graph.next(node)[at];
        if !passed[to as usize] {
            return (to, graph.count(node, at));
        }
        // Each is reached from a lower one, so this ends.
        (node, at) = (to as usize, 0);
    }
}

/// Tarjan's search for strongly connected components, without recursion.
///
/// It visits the graph once for each nesting depth. Labels follow the edges, so the next data is
/// usually in nearby memory.
struct Search<'a> {
    graph: &'a Graph,
    /// By node.
    passed: Vec<bool>,
    /// The node of each label.
    nodes: Vec<u32>,
    /// The edges of each label: the start of each label's edges (one more than labels), and their target labels.
    starts: Vec<u32>,
    after: Vec<u32>,
    /// The count of each of these edges.
    counts: Vec<u64>,
    marks: Vec<Mark>,
    /// How often control enters a node from outside its part.
    entered: Vec<u64>,
    now: u32,
    parts: u32,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Search<'a> {
        let count = graph.nodes.len();
        let mut nodes: Vec<u32> = Vec::with_capacity(count);
        let mut labels = vec![u32::MAX; count];
        let mut waiting = Vec::new();
        let passed = passed(graph);
        let over = &passed;
        let ways = |node: u32| {
            let ways = 0..graph.next(node as usize).len();
            ways.map(move |at| end_of(graph, over, node as usize, at))
        };
        for root in (0..count as u32).filter(|root| !passed[*root as usize]) {
            waiting.push(root);
            while let Some(node) = waiting.pop() {
                let label = &mut labels[node as usize];
                if *label == u32::MAX {
                    *label = nodes.len() as u32;
                    nodes.push(node);
                    waiting.extend(ways(node).rev().map(|(to, _)| to));
                }
            }
        }
        let (mut starts, mut after) = (Vec::with_capacity(nodes.len() + 1), Vec::new());
        let mut counts = Vec::new();
        starts.push(0);
        for node in &nodes {
            after.extend(ways(*node).map(|(to, _)| labels[to as usize]));
            counts.extend(ways(*node).map(|(_, count)| count));
            starts.push(after.len() as u32);
        }
        let entered = nodes.iter().map(|node| graph.called(*node as usize)).collect();
        let marks = vec![Mark::default(); nodes.len()];
        Search { graph, passed, nodes, starts, after, counts, marks, entered, now: 0, parts: 0 }
    }

    fn labels(&self) -> Vec<u32> {
        (0..self.nodes.len() as u32).collect()
    }

    fn node(&self, label: u32) -> usize {
        self.nodes[label as usize] as usize
    }

    fn next(&self, label: u32) -> &[u32] {
        let (start, end) = (self.starts[label as usize], self.starts[label as usize + 1]);
        &self.after[start as usize..end as usize]
    }

    /// The parts of a region that contain a cycle, ordered by their lowest nodes.
    fn parts(&mut self, region: &[u32]) -> Vec<Vec<u32>> {
        self.now += 1;
        for &label in region {
            self.marks[label as usize] = Mark { region: self.now, ..Mark::default() };
        }
        let (mut next, mut found) = (1u32, Vec::new());
        let mut waiting: Vec<u32> = Vec::new();
        let mut path: Vec<(u32, u32)> = Vec::new();
        for &root in region {
            if self.marks[root as usize].order != 0 {
                continue;
            }
            path.push((root, 0));
            while let Some((label, mut at)) = path.pop() {
                let mut mark = self.marks[label as usize];
                if at == 0 {
                    (mark.order, mark.low) = (next, next);
                    next += 1;
                    waiting.push(label);
                }
                let mut deeper = None;
                // An edge to itself changes nothing.
                while let Some(&to) = self.next(label).get(at as usize) {
                    at += 1;
                    let other = &self.marks[to as usize];
                    if other.region != self.now || to == label {
                        continue;
                    }
                    if other.order == 0 {
                        deeper = Some(to);
                        break;
                    }
                    if other.part == 0 {
                        mark.low = mark.low.min(other.order);
                    }
                }
                self.marks[label as usize] = mark;
                if let Some(to) = deeper {
                    path.push((label, at));
                    path.push((to, 0));
                    continue;
                }
                if let Some(&(above, _)) = path.last() {
                    let above = &mut self.marks[above as usize];
                    above.low = above.low.min(mark.low);
                }
                if mark.low == mark.order {
                    self.parts += 1;
                    let first = waiting.iter().rposition(|member| *member == label).unwrap_or(0);
                    for member in &waiting[first..] {
                        self.marks[*member as usize].part = self.parts;
                    }
                    let cycle = waiting.len() - first > 1 || self.next(label).contains(&label);
                    let part = waiting.drain(first..);
                    if cycle {
                        found.push(part.collect::<Vec<u32>>());
                    }
                }
            }
        }
        self.count_entries(region, &found);
        let lowest = |part: &Vec<u32>| part.iter().map(|label| self.nodes[*label as usize]).min();
        found.sort_by_cached_key(lowest);
        found
    }

    /// Counts the edges into each part with a cycle from the others of its region.
    fn count_entries(&mut self, region: &[u32], found: &[Vec<u32>]) {
        let part = |marks: &[Mark], label: u32| marks[label as usize].part;
        let only = match found {
            [only] => only.first().map(|label| part(&self.marks, *label)),
            _ => None,
        };
        for &label in region {
            let ours = part(&self.marks, label);
            // Edges from the only part cannot enter another part.
            if Some(ours) != only {
                self.count_ways(label, |mark| mark.part != ours);
            }
        }
    }

    /// Counts the edges from a node, which is no longer in a part, into its former part.
    fn leave_out(&mut self, label: u32) {
        let part = self.marks[label as usize].part;
        self.count_ways(label, |mark| mark.part == part);
    }

    /// Counts the edges from a node to the nodes of its region for which `is` returns true.
    fn count_ways(&mut self, label: u32, is: impl Fn(&Mark) -> bool) {
        let Search { starts, after, counts, marks, entered, now, .. } = self;
        let start = starts[label as usize] as usize;
        let end = starts[label as usize + 1] as usize;
        for (to, count) in after[start..end].iter().zip(&counts[start..end]) {
            let mark = &marks[*to as usize];
            if mark.region == *now && is(mark) {
                let entered = &mut entered[*to as usize];
                *entered = entered.saturating_add((*count).max(1));
            }
        }
    }

    /// The node where control enters a part; if no entry was recorded, the lowest target of a
    /// backward branch.
    fn head(&self, part: &[u32]) -> Option<Head> {
        let mut entrances = 0;
        let mut most: Option<(u64, u32)> = None;
        for &label in part {
            let entered = self.entered[label as usize];
            if entered == 0 {
                continue;
            }
            entrances += 1;
            let node = |label: u32| self.nodes[label as usize];
            if most.is_none_or(|(known, of)| {
                entered > known || (entered == known && node(label) < node(of))
            }) {
                most = Some((entered, label));
            }
        }
        if let Some((_, label)) = most {
            return Some(Head { label, entrances });
        }
        let of = self.marks[*part.first()? as usize].part;
        let back = part.iter().flat_map(|from| self.next(*from).iter().map(move |to| (*from, *to)));
        let back = back.filter(|(from, to)| {
            let mark = &self.marks[*to as usize];
            let inside = mark.region == self.now && mark.part == of;
            inside && self.graph.is_backward(self.node(*from), self.node(*to))
        });
        let node = |label: &u32| self.nodes[*label as usize];
        let label = back.map(|(_, to)| to).min_by_key(node);
        let label = label.or_else(|| part.iter().copied().min_by_key(node))?;
        Some(Head { label, entrances })
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/views/loops/forest.rs"]
mod tests;
