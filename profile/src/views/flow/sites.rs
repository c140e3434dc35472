//! The counts of each branch.

use lbr_msr::record::BranchType;

use super::Space;
use crate::clean::few::Few;
use crate::clean::interval::Clusters;
use crate::read::stack::EntryFlags;

/// Counts of a branch in a stack that contains it more than once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InStack {
    pub(super) taken: u64,
    passed: u64,
    known: u64,
    missed: u64,
    /// Times taken after a known block.
    settled: u64,
}

/// A branch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SiteSlot {
    pub(super) from: u64,
    pub(super) space: Space,
    /// Number of its [`Surplus`], from 1; 0: none.
    pub(super) surplus: u32,
    pub(super) recorded: Option<BranchType>,
    pub(super) decoded: Option<BranchType>,
    pub(super) code: bool,
}

/// Sums over the stacks that contain a branch more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Surplus {
    /// Mispredicted (y) of known (x).
    pub(super) misses: Clusters,
    /// Taken (y) of executed (x), after known blocks.
    pub(super) outcomes: Clusters,
    /// Taken (x), for the targets.
    pub(super) taken: Clusters,
}

impl Surplus {
    pub(super) fn merge(&mut self, other: &Surplus) {
        self.misses.merge(&other.misses);
        self.outcomes.merge(&other.outcomes);
        self.taken.merge(&other.taken);
    }
}

/// Slots for the branches of a stack: twice as many as most stacks have.
const SEEN: usize = 1 << 8;

/// Branches.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) slots: Vec<SiteSlot>,
    surplus: Vec<Surplus>,
    /// By the low bits of its number: a branch of the current stack, and the stack's number.
    seen: Vec<(u32, u32)>,
    stack: u32,
    /// Branches in the current stack so far.
    len: usize,
    pub(super) now: Few<InStack>,
}

impl Sites {
    /// Starts a stack.
    pub(super) fn begin(&mut self) {
        self.len = 0;
        self.stack = self.stack.wrapping_add(1);
        if self.stack == 0 || self.seen.is_empty() {
            self.seen = vec![(0, 0); SEEN];
            self.stack = 1;
        }
    }

    /// Adds a branch to the current stack. Returns whether the stack may have contained it before;
    /// `false` is certain.
    #[inline]
    pub(super) fn visit(&mut self, site: u32) -> bool {
        let mut at = site as usize;
        // Half of the places stay free.
        while self.len < SEEN / 2
            && let Some(place) = self.seen.get_mut(at % SEEN)
        {
            if place.1 != self.stack {
                *place = (site, self.stack);
                self.len += 1;
                return false;
            }
            if place.0 == site {
                return true;
            }
            at += 1;
        }
        true
    }

    /// Counts a branch as not taken, in a stack with a repeated branch.
    pub(super) fn pass(&mut self, site: u32) {
        self.now.at(site).passed += 1;
    }

    /// Counts a taken branch in such a stack.
    pub(super) fn take(&mut self, site: u32, settled: bool, flags: EntryFlags) {
        let now = self.now.at(site);
        now.taken += 1;
        now.settled += u64::from(settled);
        now.known += u64::from(flags.mispredicted().is_some());
        now.missed += flags.0 & EntryFlags::MISPREDICTED;
    }

    /// Adds the current stack to the sums.
    pub(super) fn settle(&mut self, weight: u64) {
        for (site, now) in self.now.drain() {
            let InStack { taken, passed, known, missed, settled } = now;
            let executed = settled + passed;
            if taken <= 1 && executed <= 1 {
                continue;
            }
            let Some(slot) = self.slots.get_mut(site as usize) else { continue };
            if slot.surplus == 0 {
                self.surplus.push(Surplus::default());
                slot.surplus = u32::try_from(self.surplus.len()).unwrap_or(0);
            }
            let surplus = self.surplus.get_mut((slot.surplus as usize).wrapping_sub(1));
            if let Some(surplus) = surplus {
                surplus.misses.add(weight, known, missed);
                surplus.outcomes.add(weight, executed, settled);
                surplus.taken.add(weight, taken, 0);
            }
        }
    }

    pub(super) fn surplus(&self, slot: &SiteSlot) -> Option<&Surplus> {
        self.surplus.get((slot.surplus as usize).wrapping_sub(1))
    }
}
