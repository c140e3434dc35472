//! What is counted for each branch and one of its targets.

use super::counts::Space;
use super::sites::Sites;
use crate::clean::add;
use crate::clean::table::{Keyed, Table};
use crate::index;

/// A branch and one of its targets: a line of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct EdgeSlot {
    /// As recorded: the site may be the branch behind it.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
    /// As in [`Target`](super::Target).
    pub(super) xy: u64,
    pub(super) yy: u64,
    pub(super) site: u32,
    pub(super) space: Space,
    stack: u32,
    /// Times in the stack at hand.
    now: u32,
    /// A record of it had a type.
    typed: bool,
}

const _: () = assert!(size_of::<EdgeSlot>() == 64);

impl EdgeSlot {
    pub(super) fn new(from: u64, to: u64, space: Space, site: u32) -> EdgeSlot {
        EdgeSlot { from, to, space, site, ..EdgeSlot::default() }
    }
}

impl Keyed for EdgeSlot {
    type Key = (u64, u64, Space);

    #[inline]
    fn key(&self) -> (u64, u64, Space) {
        (self.from, self.to, self.space)
    }

    #[inline]
    fn hash((from, to, space): (u64, u64, Space)) -> u32 {
        index::hash(from, to, u64::from(space))
    }
}

/// Targets of branches.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub(super) table: Table<EdgeSlot>,
    visited: Vec<u32>,
}

impl Edges {
    /// The site of an edge that may be there.
    #[inline]
    pub(super) fn site(&self, edge: u32) -> u32 {
        self.table.get(edge).map_or(u32::MAX, |slot| slot.site)
    }

    /// Begins a stack.
    pub(super) fn begin(&mut self, renumbered: bool) {
        self.visited.clear();
        if renumbered {
            self.table.list.iter_mut().for_each(|slot| slot.stack = 0);
        }
    }

    /// It was taken in the stack at hand. Its site, and whether its record is
    /// the first with a type.
    #[inline]
    pub(super) fn take(
        &mut self,
        edge: u32,
        weight: u64,
        typed: bool,
        sites: &Sites,
    ) -> (u32, bool) {
        let Some(slot) = self.table.list.get_mut(edge as usize) else { return (u32::MAX, false) };
        add(&mut slot.count, weight);
        if slot.stack != sites.stack {
            (slot.stack, slot.now) = (sites.stack, 0);
            self.visited.push(edge);
        }
        slot.now = slot.now.saturating_add(1);
        let first = typed && !slot.typed;
        slot.typed |= typed;
        (slot.site, first)
    }

    /// Adds the stack at hand up.
    pub(super) fn settle(&mut self, weight: u64, sites: &Sites) {
        for &edge in &self.visited {
            let Some(slot) = self.table.list.get_mut(edge as usize) else { continue };
            let (x, y) = (sites.taken_now(slot.site), u64::from(slot.now));
            if x > 1 {
                add(&mut slot.xy, weight.saturating_mul(x.saturating_mul(y) - y));
                add(&mut slot.yy, weight.saturating_mul(y.saturating_mul(y) - y));
            }
        }
    }
}
