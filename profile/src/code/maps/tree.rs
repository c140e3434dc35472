//! The mappings of an address space in a balanced tree (AVL) whose clones share
//! their nodes.
//!
//! A process that maps over what was sampled starts a new space, and a hostile
//! recording does so at each sample. A clone of the tree costs nothing and a
//! change of it copies one path, so that such a recording takes N log N: `lbr
//! report` of 16,000 overlapping mappings with 1,600 samples between them took
//! 1.35 s with a `BTreeMap` a space, and takes 0.09 s, in a build without
//! optimisation.

use std::cmp::Ordering;
use std::sync::Arc;

/// One mapping of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) pgoff: u64,
    pub(super) file: usize,
}

/// Mappings by their first address; none overlap.
#[derive(Clone, Debug, Default)]
pub(super) struct Mappings {
    root: Link,
    len: usize,
    /// Nodes copied because another clone has them too.
    copied: usize,
}

type Link = Option<Arc<Node>>;

#[derive(Clone, Debug)]
struct Node {
    mapping: Mapping,
    height: u8,
    low: Link,
    high: Link,
}

/// A child: that of lower or of higher addresses.
#[derive(Clone, Copy)]
enum Side {
    Low,
    High,
}

impl Side {
    const fn other(self) -> Side {
        match self {
            Side::Low => Side::High,
            Side::High => Side::Low,
        }
    }
}

impl Node {
    fn child(&mut self, side: Side) -> &mut Link {
        match side {
            Side::Low => &mut self.low,
            Side::High => &mut self.high,
        }
    }

    fn update_height(&mut self) {
        self.height = 1 + height(&self.low).max(height(&self.high));
    }
}

impl Mappings {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes the number of nodes copied since it was last asked for.
    pub(super) fn take_copied(&mut self) -> usize {
        std::mem::take(&mut self.copied)
    }

    /// How many clones share all of it.
    pub(super) fn sharers(&self) -> usize {
        self.root.as_ref().map_or(1, Arc::strong_count)
    }

    /// Adds a mapping, in place of one that starts at the same address.
    pub(super) fn insert(&mut self, mapping: Mapping) {
        self.len += usize::from(insert(&mut self.root, mapping, &mut self.copied));
    }

    /// Removes the mapping that starts at an address.
    pub(super) fn remove(&mut self, start: u64) {
        self.len -= usize::from(remove(&mut self.root, start, &mut self.copied));
    }

    /// The last mapping that starts at an address or before it.
    pub(super) fn last_from(&self, address: u64) -> Option<&Mapping> {
        let (mut at, mut last) = (&self.root, None);
        while let Some(node) = at {
            if node.mapping.start <= address {
                last = Some(&node.mapping);
                at = &node.high;
            } else {
                at = &node.low;
            }
        }
        last
    }

    /// All of them, by address.
    pub(super) fn values(&self) -> impl Iterator<Item = &Mapping> {
        let (mut above, mut at) = (Vec::new(), &self.root);
        std::iter::from_fn(move || {
            while let Some(node) = at {
                above.push(node);
                at = &node.low;
            }
            let node = above.pop()?;
            at = &node.high;
            Some(&node.mapping)
        })
    }
}

fn height(link: &Link) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

/// A node that no other clone has.
fn own<'a>(node: &'a mut Arc<Node>, copied: &mut usize) -> &'a mut Node {
    *copied += usize::from(Arc::strong_count(node) > 1);
    Arc::make_mut(node)
}

/// Returns whether the tree has one more.
fn insert(link: &mut Link, new: Mapping, copied: &mut usize) -> bool {
    let Some(node) = link else {
        *link = Some(Arc::new(Node { mapping: new, height: 1, low: None, high: None }));
        return true;
    };
    let node = own(node, copied);
    let child = match new.start.cmp(&node.mapping.start) {
        Ordering::Less => &mut node.low,
        Ordering::Greater => &mut node.high,
        Ordering::Equal => {
            node.mapping = new;
            return false;
        }
    };
    let before = height(child);
    let added = insert(child, new, copied);
    if height(child) != before {
        balance(link, copied);
    }
    added
}

/// Returns whether the tree has one less.
fn remove(link: &mut Link, start: u64, copied: &mut usize) -> bool {
    let Some(node) = link else { return false };
    let node = own(node, copied);
    let removed = match start.cmp(&node.mapping.start) {
        Ordering::Less => remove(&mut node.low, start, copied),
        Ordering::Greater => remove(&mut node.high, start, copied),
        Ordering::Equal => match take_first(&mut node.high, copied) {
            Some(next) => {
                node.mapping = next;
                true
            }
            None => {
                *link = node.low.take();
                return true;
            }
        },
    };
    balance(link, copied);
    removed
}

/// Removes the first mapping of a subtree.
fn take_first(link: &mut Link, copied: &mut usize) -> Option<Mapping> {
    let node = own(link.as_mut()?, copied);
    let Some(first) = take_first(&mut node.low, copied) else {
        let (mapping, rest) = (node.mapping, node.high.take());
        *link = rest;
        return Some(mapping);
    };
    balance(link, copied);
    Some(first)
}

/// Restores the balance of a node after a change of one in a child.
fn balance(link: &mut Link, copied: &mut usize) {
    let Some(node) = link else { return };
    let node = own(node, copied);
    let heavy = match (height(&node.low), height(&node.high)) {
        (low, high) if low > high + 1 => Side::Low,
        (low, high) if high > low + 1 => Side::High,
        _ => return node.update_height(),
    };
    if let Some(child) = node.child(heavy) {
        let child = own(child, copied);
        let inner = height(child.child(heavy.other()));
        if inner > height(child.child(heavy)) {
            rotate(node.child(heavy), heavy.other(), copied);
        }
    }
    rotate(link, heavy, copied);
}

/// Makes the child of a side the top.
fn rotate(link: &mut Link, side: Side, copied: &mut usize) {
    let Some(mut old) = link.take() else { return };
    let node = own(&mut old, copied);
    let Some(mut top) = node.child(side).take() else {
        *link = Some(old);
        return;
    };
    let new = own(&mut top, copied);
    *node.child(side) = new.child(side.other()).take();
    node.update_height();
    *new.child(side.other()) = Some(old);
    new.update_height();
    *link = Some(top);
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/code/maps/tree.rs"]
mod tests;
