//! What is counted for each branch.
//!
//! A recording of many branches visits these at random, outside the caches:
//! what every visit needs is one line of 64 bytes.

use lbr_msr::record::BranchType;

use super::counts::Space;
use crate::clean::add;
use crate::clean::interval::Clusters;
use crate::read::stack::EntryFlags;

/// What a branch did in the stack at hand.
#[derive(Clone, Copy, Debug, Default)]
struct InStack {
    /// Number of the stack; another one means that nothing is here yet.
    stack: u32,
    taken: u32,
    passed: u32,
    known: u32,
    missed: u32,
    /// Taken, and the block before it is known.
    settled: u32,
}

/// What every visit of a branch needs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct SiteSums {
    taken: u64,
    passed: u64,
    known: u64,
    missed: u64,
    settled: u64,
    now: InStack,
}

const _: () = assert!(size_of::<SiteSums>() == 64);

/// What a visit seldom needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SiteSlot {
    pub(super) from: u64,
    pub(super) space: Space,
    /// Number of its [`Surplus`], counted from 1.
    surplus: u32,
    pub(super) recorded: Option<BranchType>,
    pub(super) decoded: Option<BranchType>,
    pub(super) code: bool,
}

impl SiteSlot {
    pub(super) fn new(
        from: u64,
        space: Space,
        code: bool,
        decoded: Option<BranchType>,
    ) -> SiteSlot {
        SiteSlot { from, space, code, decoded, ..SiteSlot::default() }
    }
}

/// How sums over stacks differ from those of the same events in a stack each:
/// what there is only for branches that a stack has more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct More {
    fewer_stacks: u64,
    xx: u64,
    xy: u64,
    yy: u64,
}

impl More {
    fn add(&mut self, weight: u64, x: u64, y: u64) {
        let sum = |sum: &mut u64, more: u64| add(sum, weight.saturating_mul(more));
        sum(&mut self.fewer_stacks, x.saturating_sub(1));
        sum(&mut self.xx, x.saturating_mul(x) - x);
        sum(&mut self.xy, x.saturating_mul(y) - y);
        sum(&mut self.yy, y.saturating_mul(y) - y);
    }

    fn merge(&mut self, other: &More) {
        add(&mut self.fewer_stacks, other.fewer_stacks);
        add(&mut self.xx, other.xx);
        add(&mut self.xy, other.xy);
        add(&mut self.yy, other.yy);
    }

    /// The sums over stacks of `x` events, `y` of them of the kind in question.
    pub(super) fn clusters(&self, x: u64, y: u64) -> Clusters {
        Clusters {
            stacks: x.saturating_sub(self.fewer_stacks),
            x,
            y,
            xx: x.saturating_add(self.xx),
            xy: y.saturating_add(self.xy),
            yy: y.saturating_add(self.yy),
        }
    }
}

/// What a stack that has a branch more than once adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Surplus {
    /// Mispredicted (y) of known (x).
    pub(super) misses: More,
    /// Taken (y) of executed (x), where the block before is known.
    pub(super) outcomes: More,
    /// Taken (x), for the targets.
    pub(super) taken: More,
}

impl Surplus {
    pub(super) fn merge(&mut self, other: &Surplus) {
        self.misses.merge(&other.misses);
        self.outcomes.merge(&other.outcomes);
        self.taken.merge(&other.taken);
    }
}

/// All that was counted for a branch.
pub(super) struct SiteTotals {
    pub(super) taken: u64,
    pub(super) passed: u64,
    pub(super) known: u64,
    pub(super) missed: u64,
    pub(super) settled: u64,
    pub(super) surplus: Option<Surplus>,
}

/// Branches.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) slots: Vec<SiteSlot>,
    sums: Vec<SiteSums>,
    surplus: Vec<Surplus>,
    /// The stack at hand, and the branches it visited.
    pub(super) stack: u32,
    visited: Vec<u32>,
}

impl Sites {
    pub(super) fn push(&mut self, slot: SiteSlot) {
        self.slots.push(slot);
        self.sums.push(SiteSums::default());
    }

    /// Loads what a visit will need.
    #[inline]
    pub(super) fn touch(&self, site: u32) -> u64 {
        self.sums.get(site as usize).map_or(0, |sums| sums.taken)
    }

    #[inline]
    fn visit(&mut self, site: u32) -> Option<&mut InStack> {
        let now = &mut self.sums.get_mut(site as usize)?.now;
        if now.stack != self.stack {
            *now = InStack { stack: self.stack, ..InStack::default() };
            self.visited.push(site);
        }
        Some(now)
    }

    /// A branch was passed without being taken.
    #[inline]
    pub(super) fn pass(&mut self, site: u32) {
        if let Some(now) = self.visit(site) {
            now.passed = now.passed.saturating_add(1);
        }
    }

    /// A branch was taken. A stack has fewer entries than would overflow.
    #[inline]
    pub(super) fn take(&mut self, site: u32, settled: bool, flags: EntryFlags) {
        if let Some(now) = self.visit(site) {
            let known = EntryFlags::MISPREDICTED | EntryFlags::PREDICTED;
            now.taken = now.taken.wrapping_add(1);
            now.settled = now.settled.wrapping_add(u32::from(settled));
            now.known = now.known.wrapping_add(u32::from(flags.0 & known != 0));
            now.missed = now.missed.wrapping_add((flags.0 & EntryFlags::MISPREDICTED) as u32);
        }
    }

    /// A branch left a block that is known; it was counted elsewhere.
    pub(super) fn end(&mut self, site: u32) {
        if let Some(now) = self.visit(site) {
            now.settled = now.settled.saturating_add(1);
        }
    }

    /// Begins a stack. `true` where the numbers of stacks begin anew, after
    /// four billion.
    pub(super) fn begin(&mut self) -> bool {
        self.visited.clear();
        let next = self.stack.checked_add(1);
        self.stack = next.unwrap_or(1);
        if next.is_none() {
            self.sums.iter_mut().for_each(|sums| sums.now = InStack::default());
        }
        next.is_none()
    }

    /// How often a branch was taken in the stack at hand.
    pub(super) fn taken_now(&self, site: u32) -> u64 {
        let now = self.sums.get(site as usize).map(|sums| sums.now);
        now.filter(|now| now.stack == self.stack).map_or(0, |now| u64::from(now.taken))
    }

    /// Adds the stack at hand up.
    pub(super) fn settle(&mut self, weight: u64) {
        for &site in &self.visited {
            let Some(sums) = self.sums.get_mut(site as usize) else { continue };
            let InStack { taken, passed, known, missed, settled, .. } = sums.now;
            let [taken, passed, known, missed, settled] =
                [taken, passed, known, missed, settled].map(u64::from);
            add(&mut sums.taken, taken.saturating_mul(weight));
            add(&mut sums.passed, passed.saturating_mul(weight));
            add(&mut sums.known, known.saturating_mul(weight));
            add(&mut sums.missed, missed.saturating_mul(weight));
            add(&mut sums.settled, settled.saturating_mul(weight));
            let executed = settled.saturating_add(passed);
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

    pub(super) fn totals(&self, site: usize) -> SiteTotals {
        let sums = self.sums.get(site).copied().unwrap_or_default();
        let surplus = self.slots.get(site).map_or(0, |slot| slot.surplus as usize);
        let surplus = self.surplus.get(surplus.wrapping_sub(1)).copied();
        let SiteSums { taken, passed, known, missed, settled, .. } = sums;
        SiteTotals { taken, passed, known, missed, settled, surplus }
    }
}
