//! Who calls whom.
//!
//! There are two ways to know, and the recording decides which:
//!
//! - **Call stacks** (`record -j stack`, `perf record --call-graph lbr`): each
//!   stack holds the calls that were open at one moment. A frame is named by
//!   the place it calls from, the innermost by where execution stood; `own`
//!   counts stacks. Hardware loses the outermost calls when there are more than
//!   records; such a stack stands below [`MISSING`], unless it can be joined to
//!   the one before (*stitched*). A tail call leaves the caller's record in
//!   place of its own: in the middle of a stack the function that it went to is
//!   still right, because it is where the next call comes from; innermost it is
//!   right only where the recording says where execution stood. Frames that
//!   longjmp left behind stay on the stack until returns use them up.
//! - **All branches**, or all calls and returns: they are replayed, and the
//!   stack is known after each; `own` counts branches. A return closes the call
//!   that it goes behind, and those inside it. A jump to the first address of
//!   another function is a tail call: that function takes the caller's place. A
//!   jump into the middle of a function that is open further out is a longjmp
//!   to it, to its innermost frame where it is open several times. Both need
//!   symbols. A call of the next instruction is none.

mod builder;
mod score;
mod stitch;
mod tree;

use crate::clean::quality::Quality;
use crate::clean::{Counter, View, add};
use crate::code::maps::Maps;
use crate::views::walk::Walk;

use builder::Builder;
use tree::{ROOT, Tree};

pub use score::score;
pub use tree::{DEEPEST, Function, MISSING, MOST_NODES, Node};

/// What the numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Stacks of calls.
    Stacks,
    /// Taken branches, replayed.
    Branches,
}

impl Unit {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Stacks => "stacks",
            Unit::Branches => "branches",
        }
    }
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Stacks with more calls than records.
    pub truncated: u64,
    /// Stacks with outer calls missing, truncated or used up, that reach the
    /// outermost call by what was joined to them.
    pub completed: u64,
    /// Those that became longer, but not whole.
    pub lengthened: u64,
    /// Stacks with returns that outran the recorded calls: outer frames are
    /// missing.
    pub underflow: u64,
    /// Tail calls, replayed.
    pub tail_calls: u64,
    /// Frames left by a longjmp, replayed.
    pub unwound: u64,
    /// Returns whose call was not seen, replayed.
    pub unseen_calls: u64,
    /// Returns to no open call, replayed.
    pub unmatched: u64,
    /// Branches of unknown type, replayed as jumps: calls and returns may be
    /// among them.
    pub untyped: u64,
    /// Frames too deep for a place of their own.
    pub folded: u64,
    /// Stacks that hold neither calls in call-stack mode nor calls and returns.
    pub unusable: u64,
}

/// Callers and callees.
#[derive(Debug)]
pub struct CallGraph {
    /// Calling contexts; the first is the root, and each comes after its
    /// parent.
    pub nodes: Vec<Node>,
    /// Functions.
    pub functions: Vec<Function>,
    /// What is counted.
    pub unit: Unit,
    /// What happened on the way.
    pub passage: Passage,
    /// How good the data are.
    pub quality: Quality,
    /// Every branch was replayed.
    pub complete: bool,
    /// Taken branches, or open calls of all stacks.
    pub entries: u64,
    /// Distinct ones.
    pub distinct: u64,
    /// Mappings and files.
    pub maps: Maps,
}

/// A function with what it did anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The function, by index.
    pub function: usize,
    /// Counted in itself.
    pub own: u64,
    /// Counted in it and in what it called, a recursion once.
    pub total: u64,
    /// Calls of it.
    pub calls: u64,
}

/// Builds the call graph of recordings. `stitch` joins truncated stacks to
/// earlier ones. Functions are told apart by their names while stacks are read:
/// other [sources](Maps::set_sources) of these have to be set before.
#[must_use]
pub fn counter(stitch: bool) -> Counter<impl View<Table = CallGraph>> {
    Counter::of(Walk::new(Builder::new(stitch)))
}

impl CallGraph {
    /// All that was counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.nodes.first().map_or(0, |root| root.total)
    }

    /// The functions with the most in and below them first.
    #[must_use]
    pub fn sums(&self) -> Vec<Sum> {
        let mut sums: Vec<Sum> =
            (0..self.functions.len()).map(|function| Sum { function, ..Sum::default() }).collect();
        for node in self.nodes.iter().skip(1) {
            let Some(sum) = sums.get_mut(node.function) else { continue };
            add(&mut sum.own, node.own);
            add(&mut sum.calls, node.calls);
        }
        let mut open = vec![0u32; self.functions.len()];
        self.visit(|node, enters| {
            let Some(open) = open.get_mut(node.function) else { return };
            if !enters {
                *open = open.saturating_sub(1);
                return;
            }
            // Inside itself it was counted already.
            if *open == 0
                && let Some(sum) = sums.get_mut(node.function)
            {
                add(&mut sum.total, node.total);
            }
            *open += 1;
        });
        sums.retain(|sum| sum.total > 0 || sum.calls > 0);
        sums.sort_by(|a, b| b.total.cmp(&a.total).then(b.own.cmp(&a.own)));
        sums
    }

    /// The contexts below each, those with the most first.
    #[must_use]
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

    /// Calls `visit` at each context but the root: with `true` before those
    /// below it, with `false` after them.
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

    /// The functions from the outermost to this context.
    #[must_use]
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

    /// The same, the other way round: below each function those that called
    /// it, with what was counted in the function itself. Paths are followed 64
    /// frames out.
    #[must_use]
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
            tree.own(place, node.own);
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
