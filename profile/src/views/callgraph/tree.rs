//! The tree of calling contexts: a node for each way to come into a function.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::clean::add;
use crate::code::maps::{Location, Maps, Named};
use crate::index::Product;

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Product>>;

/// Frames of a path that are told apart: deeper ones count for the last.
pub const DEEPEST: u32 = 1024;
/// Nodes at most: what needs more counts for the caller.
pub const MOST_NODES: usize = 1 << 20;

/// A function, or what stands for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, where there is one.
    pub name: Option<String>,
    /// Its first address, in the first process that ran it. Without a name:
    /// the address that was seen. `None` where it was recorded by its symbol.
    pub addr: Option<u64>,
    /// Where that lies; `None` for what stands for callers that are missing.
    pub location: Option<Location>,
}

impl Function {
    /// How people read it.
    #[must_use]
    pub fn label(&self) -> String {
        match (&self.name, self.location) {
            (Some(name), _) => name.clone(),
            (None, Some(_)) => {
                self.addr.map_or_else(|| UNKNOWN.to_owned(), |addr| format!("{addr:#x}"))
            }
            (None, None) => MISSING.to_owned(),
        }
    }
}

/// Stands for functions that a recording without addresses does not name.
pub(super) const UNKNOWN: &str = "[unknown]";

/// Stands for callers that the recording does not have.
pub const MISSING: &str = "[callers missing]";

/// A calling context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function, by index.
    pub function: usize,
    /// The context it was called from; `None` for the root alone.
    pub parent: Option<usize>,
    /// What was counted while it ran: stacks whose innermost frame it is, or
    /// branches that it took.
    pub own: u64,
    /// `own` and that of everything it called.
    pub total: u64,
    /// Calls that led here, where calls were recorded.
    pub calls: u64,
    /// Calls and returns that ended here: what a recording in call-stack mode
    /// draws from.
    pub(crate) moves: u64,
    depth: u32,
}

/// Contexts and functions as they come.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    children: Map<(usize, usize), usize>,
    pub(super) functions: Vec<Function>,
    /// Whether each function has a name.
    named: Vec<bool>,
    by_location: Map<Location, usize>,
    by_address: Map<(u32, u64), (usize, u64)>,
    /// Frames that were too deep for a node of their own.
    pub(super) folded: u64,
}

/// The node above all others.
pub(super) const ROOT: usize = 0;
/// The function that stands for callers that are missing.
pub(super) const NOBODY: usize = 0;

impl Tree {
    pub(super) fn new() -> Tree {
        let nobody = Function { name: None, addr: None, location: None };
        Tree {
            nodes: vec![Node::default()],
            children: Map::default(),
            functions: vec![nobody],
            named: vec![false],
            by_location: Map::default(),
            by_address: Map::default(),
            folded: 0,
        }
    }

    /// The function at an address, and how far into it that is.
    pub(super) fn function(&mut self, maps: &mut Maps, space: u32, addr: u64) -> (usize, u64) {
        if let Some(&known) = self.by_address.get(&(space, addr)) {
            return known;
        }
        let location = maps.locate(space as usize, addr);
        let named = maps.name(location);
        let (name, offset) = match named {
            Some(Named { name, offset }) => (Some(name), offset),
            None => (None, 0),
        };
        let start = match location {
            Location::File { file, offset: at } => {
                Location::File { file, offset: at.wrapping_sub(offset) }
            }
            Location::Address(addr) => Location::Address(addr.wrapping_sub(offset)),
        };
        let start = maps.unknown(start).unwrap_or(start);
        let next = self.functions.len();
        let function = *self.by_location.entry(start).or_insert(next);
        if function == next {
            let addr = maps.address_of(start, addr.wrapping_sub(offset));
            self.named.push(name.is_some());
            self.functions.push(Function { name, addr, location: Some(start) });
        }
        self.by_address.insert((space, addr), (function, offset));
        (function, offset)
    }

    /// The context of a function called from another context.
    pub(super) fn child(&mut self, parent: usize, function: usize) -> usize {
        if let Some(&node) = self.children.get(&(parent, function)) {
            return node;
        }
        let depth = self.nodes.get(parent).map_or(0, |node| node.depth);
        let node = self.nodes.len();
        if depth >= DEEPEST || node >= MOST_NODES {
            add(&mut self.folded, 1);
            return parent;
        }
        let parent_of = Some(parent);
        self.nodes.push(Node { function, parent: parent_of, depth: depth + 1, ..Node::default() });
        self.children.insert((parent, function), node);
        node
    }

    pub(super) fn parent(&self, node: usize) -> usize {
        self.nodes.get(node).and_then(|node| node.parent).unwrap_or(ROOT)
    }

    pub(super) fn function_of(&self, node: usize) -> usize {
        self.nodes.get(node).map_or(NOBODY, |node| node.function)
    }

    pub(super) fn has_name(&self, function: usize) -> bool {
        self.named.get(function).copied().unwrap_or(false)
    }

    pub(super) fn own(&mut self, node: usize, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            add(&mut node.own, weight);
        }
    }

    pub(super) fn called(&mut self, node: usize, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            add(&mut node.calls, weight);
        }
    }

    pub(super) fn moved(&mut self, node: usize, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            add(&mut node.moves, weight);
        }
    }

    /// Adds what each context called up.
    pub(super) fn add_up(&mut self) {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        // A context comes after the one that it was called from.
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let total = totals.get(at).copied().unwrap_or(0);
            if let Some(sum) = node.parent.and_then(|parent| totals.get_mut(parent)) {
                add(sum, total);
            }
        }
        for (node, total) in self.nodes.iter_mut().zip(totals) {
            node.total = total;
        }
    }
}
