//! Loops of a flow graph and how they nest.
//!
//! A loop is a strongly connected part of the graph; its head is where control
//! comes in from outside. Without the head the part falls into smaller ones:
//! the inner loops. On graphs whose loops have one entrance these are the
//! natural loops (Bourdoncle, Efficient chaotic iteration strategies with
//! widenings, 1993); loops with more entrances come out too, and say so.

use super::graph::Graph;

/// Loops deeper inside than this are not looked for.
const DEEPEST: u32 = 64;

/// A loop of the graph.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) head: usize,
    pub(super) parent: Option<usize>,
    /// 1 for the outermost.
    pub(super) depth: u32,
    /// Control comes in at more than one place.
    pub(super) irreducible: bool,
}

/// Loops, outer before inner, and the innermost loop of each node.
#[derive(Debug, Default)]
pub(super) struct Forest {
    pub(super) loops: Vec<Shape>,
    pub(super) innermost: Vec<Option<usize>>,
    /// Numbers of each loop and of those inside it, in an order in which these
    /// follow on each other: the first, and one behind the last.
    spans: Vec<(usize, usize)>,
}

impl Forest {
    pub(super) fn new(graph: &Graph) -> Forest {
        let nodes = graph.nodes.len();
        let mut forest = Forest { innermost: vec![None; nodes], ..Forest::default() };
        let mut search = Search::new(nodes);
        let all: Vec<usize> = (0..nodes).collect();
        let mut left: Vec<(Vec<usize>, Option<usize>, u32)> = vec![(all, None, 1)];
        while let Some((region, parent, depth)) = left.pop() {
            let parts = search.parts(graph, &region);
            for part in parts {
                let Some(head) = search.head(graph, &part) else { continue };
                let number = forest.loops.len();
                for node in &part {
                    if let Some(innermost) = forest.innermost.get_mut(*node) {
                        *innermost = Some(number);
                    }
                }
                let Head { node, entrances } = head;
                forest.loops.push(Shape { head: node, parent, depth, irreducible: entrances > 1 });
                if part.len() > 1 && depth < DEEPEST {
                    let inside = part.into_iter().filter(|other| *other != node).collect();
                    left.push((inside, Some(number), depth + 1));
                }
            }
        }
        forest.spans = spans(&forest.loops);
        forest
    }

    /// Whether a loop is `outer` or lies inside it.
    pub(super) fn is_in(&self, inner: Option<usize>, outer: usize) -> bool {
        let span = |number: usize| self.spans.get(number).copied();
        match (inner.and_then(span), span(outer)) {
            (Some((at, _)), Some((first, end))) => (first..end).contains(&at),
            _ => false,
        }
    }

    /// A loop and those around it, the innermost first.
    pub(super) fn chain(&self, inner: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(inner, |at| self.loops.get(*at).and_then(|shape| shape.parent))
    }

    /// The loop whose head a node is.
    pub(super) fn headed_by(&self, node: usize) -> Option<usize> {
        let at = self.innermost.get(node).copied().flatten()?;
        self.loops.get(at).filter(|shape| shape.head == node).map(|_| at)
    }
}

/// Numbers loops, which stand outer before inner, so that those inside each
/// follow on it.
fn spans(loops: &[Shape]) -> Vec<(usize, usize)> {
    // How many each holds, itself among them.
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
    node: usize,
    entrances: usize,
}

/// What the search knows of a node, together: it comes to nodes in no order.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The last region that it was in.
    region: u32,
    /// Its part of that; 0 while it has none.
    part: u32,
    /// As how manyth it was come to; 0 before.
    order: u32,
    low: u32,
}

/// Tarjan's search for strongly connected parts, without recursion.
struct Search {
    marks: Vec<Mark>,
    /// How often control comes to a node from outside its part.
    entered: Vec<u64>,
    now: u32,
    parts: u32,
}

impl Search {
    fn new(nodes: usize) -> Search {
        Search { marks: vec![Mark::default(); nodes], entered: vec![0; nodes], now: 0, parts: 0 }
    }

    /// The parts of a region that have a cycle.
    fn parts(&mut self, graph: &Graph, region: &[usize]) -> Vec<Vec<usize>> {
        self.now += 1;
        for &node in region {
            self.marks[node] = Mark { region: self.now, ..Mark::default() };
        }
        let (mut next, mut found) = (1u32, Vec::new());
        let mut waiting: Vec<usize> = Vec::new();
        let mut path: Vec<(usize, usize)> = Vec::new();
        for &root in region {
            if self.marks[root].order != 0 {
                continue;
            }
            path.push((root, 0));
            while let Some((node, at)) = path.pop() {
                let mut mark = self.marks[node];
                if at == 0 {
                    (mark.order, mark.low) = (next, next);
                    next += 1;
                    waiting.push(node);
                }
                let after = graph.next(node);
                let mut at = at;
                let mut deeper = None;
                // A way to itself changes nothing.
                while let Some(&to) = after.get(at) {
                    at += 1;
                    let to = to as usize;
                    let other = &self.marks[to];
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
                self.marks[node] = mark;
                if let Some(to) = deeper {
                    path.push((node, at));
                    path.push((to, 0));
                    continue;
                }
                if let Some(&(above, _)) = path.last() {
                    let above = &mut self.marks[above];
                    above.low = above.low.min(mark.low);
                }
                if mark.low == mark.order {
                    self.parts += 1;
                    let mut part = Vec::new();
                    while let Some(member) = waiting.pop() {
                        self.marks[member].part = self.parts;
                        part.push(member);
                        if member == node {
                            break;
                        }
                    }
                    let cycle = part.len() > 1 || after.iter().any(|to| *to as usize == node);
                    if cycle {
                        part.sort_unstable();
                        found.push(part);
                    }
                }
            }
        }
        found.sort();
        self.count_entries(graph, &found);
        found
    }

    /// Counts what comes into the parts from outside.
    fn count_entries(&mut self, graph: &Graph, parts: &[Vec<usize>]) {
        for &node in parts.iter().flatten() {
            let part = self.marks[node].part;
            let mut entered = graph.called(node);
            for (before, count) in graph.before(node) {
                let mark = &self.marks[before];
                if mark.region != self.now || mark.part != part {
                    entered = entered.saturating_add(count.max(1));
                }
            }
            self.entered[node] = entered;
        }
    }

    /// Where control comes into a part; where nobody saw it, the lowest target
    /// of a branch backwards.
    fn head(&self, graph: &Graph, part: &[usize]) -> Option<Head> {
        let entered = part.iter().copied().filter(|node| self.entered[*node] > 0);
        let entrances = entered.clone().count();
        if let Some(node) = entered.max_by_key(|node| (self.entered[*node], usize::MAX - *node)) {
            return Some(Head { node, entrances });
        }
        let inside = |node: usize| part.binary_search(&node).is_ok();
        let back = part
            .iter()
            .flat_map(|&from| graph.next(from).iter().map(move |to| (from, *to as usize)));
        let back = back.filter(|(from, to)| inside(*to) && graph.is_backward(*from, *to));
        let node = back.map(|(_, to)| to).min().or_else(|| part.first().copied())?;
        Some(Head { node, entrances })
    }
}
