//! The tree of calling contexts: one node per path to a function.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::code::maps::{Location, LocationFilter, Maps};
use crate::index::Product;
use crate::read::add;

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Product>>;

/// Maximum depth of nodes; deeper frames are counted at the last.
pub const DEEPEST: u32 = 1024;
/// Maximum number of nodes; further contexts are counted at their caller.
pub const MOST_NODES: usize = 1 << 20;

/// A function, or a placeholder for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, if known.
    pub name: Option<String>,
    /// Its first address, in the first process that ran it. Without a name, the recorded address.
    /// `None` if it was recorded by symbol.
    pub addr: Option<u64>,
    /// The location of that; `None` for the placeholder of missing callers.
    pub location: Option<Location>,
    /// For code without a name, its file and offset: `libc.so.6+0x26110`.
    pub place: Option<String>,
}

impl Function {
    /// The text to print.
    pub fn label(&self) -> String {
        match (self.name.as_ref().or(self.place.as_ref()), self.location) {
            (Some(name), _) => name.clone(),
            (None, Some(_)) => {
                self.addr.map_or_else(|| UNKNOWN.to_owned(), |addr| format!("{addr:#x}"))
            }
            (None, None) => MISSING.to_owned(),
        }
    }
}

/// Placeholder for unnamed functions in a recording without addresses.
pub(super) const UNKNOWN: &str = "[unknown]";

/// Placeholder for callers that the recording lacks.
pub const MISSING: &str = "[callers missing]";

/// A calling context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The function, by index.
    pub function: usize,
    /// The calling context; `None` only for the root.
    pub parent: Option<usize>,
    /// Counted while it ran: stacks with it as their innermost frame, or branches taken in it.
    pub own: u64,
    /// `own` plus the totals of its callees.
    pub total: u64,
    /// Calls to it, if calls were recorded.
    pub calls: u64,
    /// Calls and returns that ended here: the moments that call-stack mode can sample.
    pub(crate) moves: u64,
    depth: u32,
}

/// The contexts and functions so far.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    children: Map<(usize, usize), usize>,
    pub(super) functions: Vec<Function>,
    /// Whether each function has a name.
    pub(super) named: Vec<bool>,
    by_location: Map<Location, usize>,
    by_address: Map<(u32, u64), (usize, u64)>,
    /// Frames too deep to get their own node.
    pub(super) folded: u64,
}

/// The root node.
pub(super) const ROOT: usize = 0;
/// The function index that represents missing callers.
pub(super) const NOBODY: usize = 0;

impl Tree {
    pub(super) fn new() -> Tree {
        let nobody = Function { name: None, addr: None, location: None, place: None };
        Tree {
            nodes: vec![Node::default()],
            functions: vec![nobody],
            named: vec![false],
            ..Tree::default()
        }
    }

    /// The function at an address, and the offset in it.
    pub(super) fn function(&mut self, maps: &mut Maps, space: u32, addr: u64) -> (usize, u64) {
        if let Some(&known) = self.by_address.get(&(space, addr)) {
            return known;
        }
        let location = maps.locate(space as usize, addr);
        let (name, offset) = maps.name(location).map(|named| (named.name, named.offset)).unzip();
        let offset = offset.unwrap_or(0);
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
            let offset = maps.file_offset(start).filter(|_| name.is_none());
            let place = offset
                .map(|offset| format!("{}+{offset:#x}", LocationFilter::name_of(maps, start)));
            self.functions.push(Function { name, addr, location: Some(start), place });
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

    /// Adds to a count of a context.
    pub(super) fn add(&mut self, node: usize, count: impl Fn(&mut Node) -> &mut u64, weight: u64) {
        if let Some(node) = self.nodes.get_mut(node) {
            add(count(node), weight);
        }
    }

    /// Adds the counts of callees to each context.
    pub(super) fn add_up(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.total = node.own);
        // Parents come before their children.
        for at in (0..self.nodes.len()).rev() {
            let Node { parent, total, .. } = self.nodes[at];
            if let Some(parent) = parent {
                self.add(parent, |node| &mut node.total, total);
            }
        }
    }
}
