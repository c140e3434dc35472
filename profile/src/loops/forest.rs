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
}

impl Forest {
    pub(super) fn new(graph: &Graph) -> Forest {
        let nodes = graph.nodes.len();
        let mut forest = Forest { loops: Vec::new(), innermost: vec![None; nodes] };
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
        forest
    }

    /// Whether a loop is `outer` or lies inside it.
    pub(super) fn is_in(&self, inner: Option<usize>, outer: usize) -> bool {
        self.chain(inner).any(|one| one == outer)
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

struct Head {
    node: usize,
    entrances: usize,
}

/// Tarjan's search for strongly connected parts, without recursion.
struct Search {
    region: Vec<u32>,
    now: u32,
    part: Vec<u32>,
    parts: u32,
    order: Vec<u32>,
    low: Vec<u32>,
    open: Vec<bool>,
    /// How often control comes to a node from outside its part.
    entered: Vec<u64>,
}

impl Search {
    fn new(nodes: usize) -> Search {
        Search {
            region: vec![0; nodes],
            now: 0,
            part: vec![0; nodes],
            parts: 0,
            order: vec![0; nodes],
            low: vec![0; nodes],
            open: vec![false; nodes],
            entered: vec![0; nodes],
        }
    }

    /// The parts of a region that have a cycle.
    fn parts(&mut self, graph: &Graph, region: &[usize]) -> Vec<Vec<usize>> {
        self.now += 1;
        for &node in region {
            self.region[node] = self.now;
            self.order[node] = 0;
            self.open[node] = false;
            self.part[node] = 0;
        }
        let (mut next, mut found) = (1u32, Vec::new());
        let mut waiting: Vec<usize> = Vec::new();
        let mut path: Vec<(usize, usize)> = Vec::new();
        for &root in region {
            if self.order[root] != 0 {
                continue;
            }
            path.push((root, 0));
            while let Some((node, at)) = path.pop() {
                if at == 0 {
                    self.order[node] = next;
                    self.low[node] = next;
                    next += 1;
                    waiting.push(node);
                    self.open[node] = true;
                }
                let after = graph.next(node);
                let mut at = at;
                let mut deeper = None;
                while let Some(&(to, _)) = after.get(at) {
                    at += 1;
                    if self.region[to] != self.now {
                        continue;
                    }
                    if self.order[to] == 0 {
                        deeper = Some(to);
                        break;
                    }
                    if self.open[to] {
                        self.low[node] = self.low[node].min(self.order[to]);
                    }
                }
                if let Some(to) = deeper {
                    path.push((node, at));
                    path.push((to, 0));
                    continue;
                }
                if let Some(&(above, _)) = path.last() {
                    self.low[above] = self.low[above].min(self.low[node]);
                }
                if self.low[node] == self.order[node] {
                    self.parts += 1;
                    let mut part = Vec::new();
                    while let Some(member) = waiting.pop() {
                        self.open[member] = false;
                        self.part[member] = self.parts;
                        part.push(member);
                        if member == node {
                            break;
                        }
                    }
                    let cycle = part.len() > 1 || after.iter().any(|(to, _)| *to == node);
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
        for node in parts.iter().flatten() {
            self.entered[*node] = graph.called(*node);
        }
        for &node in parts.iter().flatten() {
            for &(before, count) in graph.before(node) {
                let same = self.region[before] == self.now && self.part[before] == self.part[node];
                if !same {
                    self.entered[node] = self.entered[node].saturating_add(count.max(1));
                }
            }
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
        let back =
            part.iter().flat_map(|&from| graph.next(from).iter().map(move |(to, _)| (from, *to)));
        let back = back.filter(|(from, to)| inside(*to) && graph.is_backward(*from, *to));
        let node = back.map(|(_, to)| to).min().or_else(|| part.first().copied())?;
        Some(Head { node, entrances })
    }
}
