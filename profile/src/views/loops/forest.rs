//! Loops of a flow graph and how they nest.
//!
//! A loop is a strongly connected part of the graph; control enters it at its head. Without the
//! head, the part splits into smaller ones: the inner loops. On graphs whose loops have one
//! entrance these are the natural loops (Bourdoncle, Efficient chaotic iteration strategies with
//! widenings, 1993); loops with more entrances are found too, and marked.

use std::cmp::Reverse;

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
        let none = AtNode { innermost: NO_LOOP, next_mark: u32::MAX };
        let mut nodes = vec![none; graph.nodes.len()];
        let all = (0..nodes.len() as u32).collect();
        let mut left: Vec<(Vec<u32>, Option<usize>, u32)> = vec![(all, None, 1)];
        while let Some((region, parent, depth)) = left.pop() {
            for mut part in search.parts(&region) {
                let Some(Head { node: head, entrances }) = search.head(&part) else { continue };
                let number = loops.len();
                for node in &part {
                    nodes[*node as usize].innermost = number as u32;
                }
                nodes[head as usize].innermost |= HEAD;
                let irreducible = entrances > 1;
                loops.push(Shape { head: head as usize, parent, depth, irreducible });
                let deepest = if irreducible { DEEPEST_IRREDUCIBLE } else { DEEPEST };
                if part.len() > 1 && depth < deepest {
                    part.retain(|other| *other != head);
                    search.leave_out(head);
                    left.push((part, Some(number), depth + 1));
                }
            }
        }
        let mut next = u32::MAX;
        for node in (1..nodes.len()).rev() {
            let (at, before) = (nodes[node].innermost, nodes[node - 1].innermost);
            if at & HEAD != 0 || at != before & !HEAD {
                next = node as u32;
            }
            nodes[node - 1].next_mark = next;
        }
        Forest { spans: spans(&loops), loops, nodes }
    }

    /// Whether a loop is `outer` or inside it.
    pub(super) fn is_in(&self, inner: Option<usize>, outer: usize) -> bool {
        let span = |number: usize| self.spans.get(number).copied();
        let both = inner.and_then(span).zip(span(outer));
        both.is_some_and(|((at, _), (first, end))| (first..end).contains(&at))
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
    node: u32,
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

/// Tarjan's search for strongly connected components, without recursion. It visits the graph once
/// for each nesting depth.
struct Search<'a> {
    graph: &'a Graph,
    /// By node, as the next.
    marks: Vec<Mark>,
    /// How often control enters a node from outside its part.
    entered: Vec<u64>,
    now: u32,
    parts: u32,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Search<'a> {
        let entered: Vec<u64> = graph.nodes.iter().map(|node| node.called).collect();
        Search { graph, marks: vec![Mark::default(); entered.len()], entered, now: 0, parts: 0 }
    }

    /// The parts of a region that contain a cycle, ordered by their lowest nodes.
    fn parts(&mut self, region: &[u32]) -> Vec<Vec<u32>> {
        self.now += 1;
        for &node in region {
            self.marks[node as usize] = Mark { region: self.now, ..Mark::default() };
        }
        let (mut next, mut found) = (1u32, Vec::new());
        let mut waiting: Vec<u32> = Vec::new();
        let mut path: Vec<(u32, u32)> = Vec::new();
        for &root in region {
            if self.marks[root as usize].order != 0 {
                continue;
            }
            path.push((root, 0));
            while let Some((node, mut at)) = path.pop() {
                let mut mark = self.marks[node as usize];
                if at == 0 {
                    (mark.order, mark.low) = (next, next);
                    next += 1;
                    waiting.push(node);
                }
                let mut deeper = None;
                // An edge to itself changes nothing.
                while let Some(&to) = self.graph.next(node as usize).get(at as usize) {
                    at += 1;
                    let other = &self.marks[to as usize];
                    if other.region != self.now || to == node {
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
                self.marks[node as usize] = mark;
                if let Some(to) = deeper {
                    path.push((node, at));
                    path.push((to, 0));
                    continue;
                }
                if let Some(&(above, _)) = path.last() {
                    let above = &mut self.marks[above as usize];
                    above.low = above.low.min(mark.low);
                }
                if mark.low == mark.order {
                    self.parts += 1;
                    let first = waiting.iter().rposition(|member| *member == node).unwrap_or(0);
                    for member in &waiting[first..] {
                        self.marks[*member as usize].part = self.parts;
                    }
                    let cycle =
                        waiting.len() - first > 1 || self.graph.next(node as usize).contains(&node);
                    let part = waiting.drain(first..);
                    if cycle {
                        found.push(part.collect::<Vec<u32>>());
                    }
                }
            }
        }
        self.count_entries(region, &found);
        found.sort_by_cached_key(|part| part.iter().min().copied());
        found
    }

    /// Counts the edges into each part with a cycle from the others of its region.
    fn count_entries(&mut self, region: &[u32], found: &[Vec<u32>]) {
        let part = |marks: &[Mark], node: u32| marks[node as usize].part;
        let only = match found {
            [only] => only.first().map(|node| part(&self.marks, *node)),
            _ => None,
        };
        for &node in region {
            let ours = part(&self.marks, node);
            // Edges from the only part cannot enter another part.
            if Some(ours) != only {
                self.count_ways(node, |mark| mark.part != ours);
            }
        }
    }

    /// Counts the edges from a node, which is no longer in a part, into its former part.
    fn leave_out(&mut self, node: u32) {
        let part = self.marks[node as usize].part;
        self.count_ways(node, |mark| mark.part == part);
    }

    /// Counts the edges from a node to the nodes of its region for which `is` returns true.
    fn count_ways(&mut self, node: u32, is: impl Fn(&Mark) -> bool) {
        let Search { graph, marks, entered, now, .. } = self;
        for (at, to) in graph.next(node as usize).iter().enumerate() {
            let mark = &marks[*to as usize];
            if mark.region == *now && is(mark) {
                let entered = &mut entered[*to as usize];
                *entered = entered.saturating_add(graph.count(node as usize, at).max(1));
            }
        }
    }

    /// The node where control enters a part; if no entry was recorded, the lowest target of a
    /// backward branch.
    fn head(&self, part: &[u32]) -> Option<Head> {
        let entered = |node: &u32| self.entered[*node as usize];
        let entrances = part.iter().filter(|node| entered(node) > 0).count();
        if entrances > 0 {
            // Of several, the lowest.
            let node = part.iter().copied().max_by_key(|node| (entered(node), Reverse(*node)))?;
            return Some(Head { node, entrances });
        }
        let of = self.marks[*part.first()? as usize].part;
        let next = |from: u32| self.graph.next(from as usize).iter().map(move |to| (from, *to));
        let back = part.iter().copied().flat_map(next).filter(|(from, to)| {
            let mark = &self.marks[*to as usize];
            let inside = mark.region == self.now && mark.part == of;
            inside && self.graph.is_backward(*from as usize, *to as usize)
        });
        let node = back.map(|(_, to)| to).min().or_else(|| part.iter().min().copied())?;
        Some(Head { node, entrances })
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/views/loops/forest.rs"]
mod tests;
