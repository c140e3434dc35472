//! What is counted for each branch, each target of it and each block.
//!
//! A recording of many branches visits these at random, outside the caches:
//! what every visit needs is one line of 64 bytes for each of the three.

use lbr_msr::record::BranchType;

use super::add;
use super::counter::Space;
use crate::cycles::Cycles;
use crate::index::{Index, hash};
use crate::interval::Clusters;
use crate::stack::EntryFlags;

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
#[derive(Clone, Copy, Debug, Default)]
struct More {
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

    /// The sums over stacks of `x` events, `y` of them of the kind in question.
    fn clusters(&self, x: u64, y: u64) -> Clusters {
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

#[derive(Clone, Copy, Debug, Default)]
struct Surplus {
    misses: More,
    outcomes: More,
    taken: More,
}

/// All that was counted for a branch.
pub(super) struct SiteTotals {
    pub(super) taken: u64,
    pub(super) passed: u64,
    pub(super) known: u64,
    pub(super) missed: u64,
    pub(super) misses: Clusters,
    pub(super) outcomes: Clusters,
    /// Taken by stack: x and its square, for the targets.
    pub(super) taken_by_stack: Clusters,
}

/// Branches.
#[derive(Debug, Default)]
pub(super) struct Sites {
    pub(super) slots: Vec<SiteSlot>,
    sums: Vec<SiteSums>,
    surplus: Vec<Surplus>,
    /// The stack at hand, and the branches it visited.
    stack: u32,
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
    fn taken_now(&self, site: u32) -> u64 {
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
        let surplus = self.surplus.get(surplus.wrapping_sub(1)).copied().unwrap_or_default();
        let SiteSums { taken, passed, known, missed, settled, .. } = sums;
        SiteTotals {
            taken,
            passed,
            known,
            missed,
            misses: surplus.misses.clusters(known, missed),
            outcomes: surplus.outcomes.clusters(settled.saturating_add(passed), settled),
            taken_by_stack: surplus.taken.clusters(taken, 0),
        }
    }
}

/// A branch and one of its targets.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct EdgeSlot {
    /// As recorded: the site may be the branch behind it.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
    xy: u64,
    yy: u64,
    pub(super) site: u32,
    pub(super) space: Space,
    stack: u32,
    /// Times in the stack at hand.
    now: u32,
    /// A record of it had a type.
    pub(super) typed: bool,
}

impl EdgeSlot {
    pub(super) fn new(from: u64, to: u64, space: Space, site: u32) -> EdgeSlot {
        EdgeSlot { from, to, space, site, ..EdgeSlot::default() }
    }

    /// There (y), by stack; what is about the branch (x) is left 0.
    pub(super) fn clusters(&self) -> Clusters {
        Clusters {
            y: self.count,
            xy: self.count.saturating_add(self.xy),
            yy: self.count.saturating_add(self.yy),
            ..Clusters::default()
        }
    }
}

/// Targets of branches.
#[derive(Debug, Default)]
pub(super) struct Edges {
    index: Index,
    pub(super) slots: Vec<EdgeSlot>,
    visited: Vec<u32>,
}

impl Edges {
    #[inline]
    pub(super) fn hash(from: u64, to: u64, space: Space) -> u32 {
        hash(from, to, u64::from(space))
    }

    #[inline]
    pub(super) fn touch_index(&self, hash: u32) -> u64 {
        self.index.touch(hash)
    }

    #[inline]
    pub(super) fn guess(&self, hash: u32) -> u32 {
        self.index.guess(hash)
    }

    /// The site of an edge that may be there.
    #[inline]
    pub(super) fn site(&self, edge: u32) -> u32 {
        self.slots.get(edge as usize).map_or(u32::MAX, |slot| slot.site)
    }

    /// The number of an edge, which `guess` most likely is.
    #[inline]
    pub(super) fn find(&self, guess: u32, hash: u32, key: (u64, u64, Space)) -> Option<u32> {
        let is = |number: u32| {
            let slot = self.slots.get(number as usize);
            slot.is_some_and(|slot| (slot.from, slot.to, slot.space) == key)
        };
        if is(guess) { Some(guess) } else { self.index.find(hash, is) }
    }

    /// A new edge; `None` where there are more than numbers.
    #[cold]
    pub(super) fn push(&mut self, hash: u32, slot: EdgeSlot) -> Option<u32> {
        let number = u32::try_from(self.slots.len()).ok()?;
        self.index.insert(hash, number);
        self.slots.push(slot);
        Some(number)
    }

    /// Begins a stack.
    pub(super) fn begin(&mut self, renumbered: bool) {
        self.visited.clear();
        if renumbered {
            self.slots.iter_mut().for_each(|slot| slot.stack = 0);
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
        let Some(slot) = self.slots.get_mut(edge as usize) else { return (u32::MAX, false) };
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
            let Some(slot) = self.slots.get_mut(edge as usize) else { continue };
            let (x, y) = (sites.taken_now(slot.site), u64::from(slot.now));
            if x > 1 {
                add(&mut slot.xy, weight.saturating_mul(x.saturating_mul(y) - y));
                add(&mut slot.yy, weight.saturating_mul(y.saturating_mul(y) - y));
            }
        }
    }
}

/// A conditional branch inside a block: its site, and its length in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) site: u32,
    pub(super) len: u32,
}

/// What the code bytes said about a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Runs,
    #[default]
    NoCode,
    Contradicts,
}

/// Different cycle counts that stand in the block itself; few have more.
const FEW: usize = 6;

/// Straight code, with its length instead of its exit.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct BlockSlot {
    pub(super) entry: u64,
    pub(super) count: u64,
    pub(super) len: u32,
    pub(super) space: Space,
    inside: (u32, u32),
    /// Number of its [`Cycles`], counted from 1, once there is no more room.
    spilled: u32,
    /// Cycle counts in the order in which they came, and how often.
    cycles: [u16; FEW],
    times: [u16; FEW],
    pub(super) kind: Kind,
}

impl BlockSlot {
    /// Adds a cycle count; `false` where there is no room for it.
    #[inline]
    fn add_cycles(&mut self, cycles: u32, weight: u64) -> bool {
        let (Ok(cycles), Ok(weight)) = (u16::try_from(cycles), u16::try_from(weight)) else {
            return false;
        };
        for (value, times) in self.cycles.iter_mut().zip(&mut self.times) {
            if *value == cycles || *times == 0 {
                let Some(sum) = times.checked_add(weight) else { return false };
                (*value, *times) = (cycles, sum);
                return true;
            }
        }
        false
    }

    fn few_cycles(&self) -> Cycles {
        let few = self.cycles.iter().zip(self.times).filter(|(_, times)| *times > 0);
        let mut all = Cycles::with_capacity(few.clone().count());
        for (cycles, times) in few {
            all.add(u32::from(*cycles), u64::from(times));
        }
        all
    }
}

/// Blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    index: Index,
    pub(super) slots: Vec<BlockSlot>,
    inside: Vec<Inside>,
    spilled: Vec<Cycles>,
}

impl Blocks {
    #[inline]
    pub(super) fn hash(entry: u64, len: u32, space: Space) -> u32 {
        hash(entry, u64::from(len), u64::from(space))
    }

    #[inline]
    pub(super) fn touch_index(&self, hash: u32) -> u64 {
        self.index.touch(hash)
    }

    #[inline]
    pub(super) fn guess(&self, hash: u32) -> u32 {
        self.index.guess(hash)
    }

    #[inline]
    pub(super) fn find(&self, guess: u32, hash: u32, key: (u64, u32, Space)) -> Option<u32> {
        let is = |number: u32| {
            let slot = self.slots.get(number as usize);
            slot.is_some_and(|slot| (slot.entry, slot.len, slot.space) == key)
        };
        if is(guess) { Some(guess) } else { self.index.find(hash, is) }
    }

    /// The conditional branches inside a block that may be there.
    #[inline]
    pub(super) fn inside(&self, block: u32) -> &[Inside] {
        let slot = self.slots.get(block as usize);
        slot.map_or(&[], |slot| self.inside_of(slot))
    }

    pub(super) fn inside_of(&self, slot: &BlockSlot) -> &[Inside] {
        let (start, len) = slot.inside;
        let rest = self.inside.get(start as usize..).unwrap_or_default();
        rest.get(..len as usize).unwrap_or_default()
    }

    /// A new block; `None` where there are more than numbers.
    #[cold]
    pub(super) fn push(
        &mut self,
        hash: u32,
        (entry, len, space): (u64, u32, Space),
        kind: Kind,
        inside: &[Inside],
    ) -> Option<u32> {
        let number = u32::try_from(self.slots.len()).ok()?;
        let start = u32::try_from(self.inside.len()).ok()?;
        let many = u32::try_from(inside.len()).ok()?;
        self.inside.extend_from_slice(inside);
        let inside = (start, many);
        self.slots.push(BlockSlot { entry, len, space, kind, inside, ..BlockSlot::default() });
        self.index.insert(hash, number);
        Some(number)
    }

    /// It ran, in so many cycles or, 0, nobody knows. What the code bytes said
    /// about it.
    #[inline]
    pub(super) fn run(&mut self, block: u32, cycles: u32, weight: u64) -> Kind {
        let Some(slot) = self.slots.get_mut(block as usize) else { return Kind::NoCode };
        add(&mut slot.count, weight);
        let kind = slot.kind;
        if cycles != 0 && !(slot.spilled == 0 && slot.add_cycles(cycles, weight)) {
            self.spill(block, cycles, weight);
        }
        kind
    }

    #[cold]
    fn spill(&mut self, block: u32, cycles: u32, weight: u64) {
        let Some(slot) = self.slots.get_mut(block as usize) else { return };
        if slot.spilled == 0 {
            self.spilled.push(slot.few_cycles());
            slot.spilled = u32::try_from(self.spilled.len()).unwrap_or(0);
        }
        let spilled = (slot.spilled as usize).wrapping_sub(1);
        if let Some(all) = self.spilled.get_mut(spilled) {
            all.add(cycles, weight);
        }
    }

    /// Takes the cycles of a block out.
    pub(super) fn take_cycles(&mut self, slot: &BlockSlot) -> Cycles {
        let spilled = self.spilled.get_mut((slot.spilled as usize).wrapping_sub(1));
        spilled.map_or_else(|| slot.few_cycles(), std::mem::take)
    }

    /// What only counting needed.
    pub(super) fn drop_index(&mut self) {
        self.index = Index::default();
    }
}

// Aligned to lines of the cache, and not larger than one.
const _: () = assert!(size_of::<SiteSums>() == 64);
const _: () = assert!(size_of::<EdgeSlot>() == 64);
const _: () = assert!(size_of::<BlockSlot>() == 64);
