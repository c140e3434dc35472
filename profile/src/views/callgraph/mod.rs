//! The call graph.
//!
//! The recording determines which of two methods is used:
//!
//! - **Call stacks** (`record -j stack`, `perf record --call-graph lbr`): each stack holds the
//!   calls that were open at one moment. The call's address names a frame, the sampled address the
//!   innermost one; `own` counts stacks. With more calls than records, hardware loses the outermost
//!   ones; such a stack is placed below [`MISSING`], unless it can be joined to the previous one
//!   (*stitched*). A tail call leaves the caller's record and adds none. In the middle of a stack,
//!   the function reached by it is still right, because the next call comes from there; the
//!   innermost frame is right only if the recording has the sampled address. Frames skipped by
//!   longjmp stay on the stack until returns remove them.
//! - **All branches**, or all calls and returns: they are replayed, so the stack is known after
//!   each; `own` counts branches. A return closes the call before its target, and the calls inside
//!   it. A jump to the first address of another function is a tail call: that function replaces the
//!   caller. A jump into the middle of a function that is open further out is a longjmp, to its
//!   innermost frame if it is open several times. Both need symbols. A call of the next instruction
//!   does not count as a call.

mod builder;
mod score;
mod stitch;
mod tree;

use crate::clean::quality::Quality;
use crate::clean::{Counter, View};
use crate::code::maps::Maps;
use crate::read::add;
use crate::views::walk::Walk;

use builder::Builder;
use tree::{ROOT, Tree};

pub use score::score;
pub use tree::{DEEPEST, Function, MISSING, MOST_NODES, Node};

/// The unit of the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Stacks of calls.
    Stacks,
    /// Taken branches, replayed.
    Branches,
}

impl Unit {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Stacks => "stacks",
            Unit::Branches => "branches",
        }
    }
}

/// Counts of special cases during the analysis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Stacks with more calls than records.
    pub truncated: u64,
    /// Stacks with outer calls missing that reach the outermost call after stitching.
    pub completed: u64,
    /// Stacks that stitching made longer, but not complete.
    pub lengthened: u64,
    /// Stacks with more returns than recorded calls: outer frames are missing.
    pub underflow: u64,
    /// Replayed tail calls.
    pub tail_calls: u64,
    /// Frames left by a longjmp, in replay.
    pub unwound: u64,
    /// Returns whose call was not recorded, in replay.
    pub unseen_calls: u64,
    /// Returns to no open call, in replay.
    pub unmatched: u64,
    /// Branches of unknown type, replayed as jumps: they may include calls and returns.
    pub untyped: u64,
    /// Frames too deep to get their own node.
    pub folded: u64,
    /// Stacks that hold neither calls in call-stack mode nor calls and returns.
    pub unusable: u64,
}

/// Callers and callees.
#[derive(Debug)]
pub struct CallGraph {
    /// Calling contexts; the first is the root, and parents come before their children.
    pub nodes: Vec<Node>,
    /// Functions.
    pub functions: Vec<Function>,
    /// The unit of the counts.
    pub unit: Unit,
    /// Counts of special cases.
    pub passage: Passage,
    /// Quality of the data.
    pub quality: Quality,
    /// Whether every branch was replayed.
    pub complete: bool,
    /// Taken branches, or open calls of all stacks.
    pub entries: u64,
    /// Distinct ones.
    pub distinct: u64,
    /// Mappings and files.
    pub maps: Maps,
}

/// Sums for a function over all contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The function, by index.
    pub function: usize,
    /// Counted in the function itself.
    pub own: u64,
    /// Counted in it and its callees; a recursion counts once.
    pub total: u64,
    /// Calls to it.
    pub calls: u64,
}

/// Builds the call graph of recordings. `stitch` joins truncated stacks to earlier ones. Functions
/// are identified by name while stacks are read, so other [sources](Maps::set_sources) of names
/// must be set before.
pub fn counter(stitch: bool) -> Counter<impl View<Table = CallGraph>> {
    Counter::of(Walk::new(Builder::new(stitch)))
}

impl CallGraph {
    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.nodes.first().map_or(0, |root| root.total)
    }

    /// The functions, by descending total.
    pub fn sums(&self) -> Vec<Sum> {
        let mut sums: Vec<Sum> =
            (0..self.functions.len()).map(|function| Sum { function, ..Sum::default() }).collect();
        for node in self.nodes.iter().skip(1) {
            let sum = &mut sums[node.function];
            add(&mut sum.own, node.own);
            add(&mut sum.calls, node.calls);
        }
        let mut open = vec![0u32; self.functions.len()];
        self.visit(|node, enters| {
            let open = &mut open[node.function];
            if !enters {
                *open = open.saturating_sub(1);
                return;
            }
            // A recursive call is already counted.
            if *open == 0 {
                add(&mut sums[node.function].total, node.total);
            }
            *open += 1;
        });
        sums.retain(|sum| sum.total > 0 || sum.calls > 0);
        sums.sort_by(|a, b| b.total.cmp(&a.total).then(b.own.cmp(&a.own)));
        sums
    }

    /// The children of each context, by descending total.
    pub fn children(&self) -> Vec<Vec<usize>> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate() {
            if let Some(list) = node.parent.and_then(|parent| children.get_mut(parent)) {
                list.push(at);
            }
        }
        for list in &mut children {
            list.sort_by_key(|at| std::cmp::Reverse(self.nodes.get(*at).map(|node| node.total)));
        }
        children
    }

    /// Calls `visit` for each context except the root: with `true` before its children, with
    /// `false` after them.
    fn visit(&self, mut visit: impl FnMut(&Node, bool)) {
        let children = self.children();
        let below = |at: usize| children.get(at).map(Vec::as_slice).unwrap_or_default();
        let mut path: Vec<(usize, bool)> = below(ROOT).iter().rev().map(|at| (*at, true)).collect();
        while let Some((at, enters)) = path.pop() {
            let Some(node) = self.nodes.get(at) else { continue };
            visit(node, enters);
            if enters {
                path.push((at, false));
                path.extend(below(at).iter().rev().map(|at| (*at, true)));
            }
        }
    }

    /// The functions from the outermost one to this context.
    pub fn path(&self, node: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let mut at = self.nodes.get(node);
        while let Some((node, parent)) = at.and_then(|node| Some((node, node.parent?))) {
            path.push(node.function);
            at = self.nodes.get(parent);
        }
        path.reverse();
        path
    }

    /// The inverted tree: below each function its callers, with the counts of the function itself.
    /// Paths are limited to 64 frames.
    pub fn inverted(&self) -> CallGraph {
        const FRAMES: usize = 64;
        let mut tree = Tree::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if node.own == 0 || node.parent.is_none() {
                continue;
            }
            let mut place = ROOT;
            for function in self.path(at).into_iter().rev().take(FRAMES) {
                place = tree.child(place, function);
            }
            tree.add(place, |node| &mut node.own, node.own);
        }
        tree.add_up();
        CallGraph {
            nodes: tree.nodes,
            functions: self.functions.clone(),
            unit: self.unit,
            passage: self.passage,
            quality: self.quality.clone(),
            complete: self.complete,
            entries: self.entries,
            distinct: self.distinct,
            maps: Maps::default(),
        }
    }
}
