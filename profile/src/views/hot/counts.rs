//! The counters.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use crate::index::Product;
use crate::read::stack::{self, Entries, EntryFlags, RawBranch};

/// A branch in an address space.
#[derive(Clone, Copy, Debug)]
struct BranchKey {
    from: u64,
    to: u64,
    space: u32,
    /// Number of earlier branches. Not part of the identity, but stored here because it needs no
    /// extra memory.
    number: u32,
}

impl BranchKey {
    #[inline]
    fn of(branch: &RawBranch, space: u32) -> BranchKey {
        BranchKey { from: branch.from, to: branch.to, space, number: 0 }
    }
}

impl PartialEq for BranchKey {
    #[inline]
    fn eq(&self, other: &BranchKey) -> bool {
        // Compares all at once: a branch for each would cost more than it saves.
        (self.from ^ other.from) | (self.to ^ other.to) | u64::from(self.space ^ other.space) == 0
    }
}

impl Eq for BranchKey {}

impl Hash for BranchKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.from ^ u64::from(self.space) << 32);
        state.write_u64(self.to);
    }
}

/// The sums of up to [`Packed::MOST`] entries, so that one addition counts an entry, and the type.
///
/// | bits | |
/// |---|---|
/// | 0 to 7 | entries |
/// | 8 to 15 | mispredicted |
/// | 16 to 23 | predicted or mispredicted |
/// | 24 to 31 | without cycles |
/// | 32 to 55 | cycles |
/// | 56 to 63 | perf's code of the type, 0 if no entry had one |
#[derive(Clone, Copy, Debug, Default)]
struct Packed(u64);

impl Packed {
    const MOST: u64 = 0xFF;
    const MISPREDICTED: u32 = 8;
    const KNOWN: u32 = 16;
    const WITHOUT_CYCLES: u32 = 24;
    const CYCLES: u32 = 32;
    const TYPE: u32 = 56;

    /// One entry, without its type.
    #[inline]
    fn of(flags: EntryFlags) -> Packed {
        /// By the two bits of the prediction, as `mispredicted` reads them.
        const COUNTED: [u64; 4] = {
            let (known, missed) = (1 << Packed::KNOWN, 1 << Packed::MISPREDICTED);
            [1, 1 + known + missed, 1 + known, 1 + known + missed]
        };
        let [_, _, _, both] = COUNTED;
        let prediction = flags.0 & (EntryFlags::MISPREDICTED | EntryFlags::PREDICTED);
        let counted = COUNTED.get(prediction as usize).copied().unwrap_or(both);
        let cycles = u64::from(flags.cycles().unwrap_or(0));
        // Borrows from all bits above if cycles are 0.
        let without = cycles.wrapping_sub(1) & 1 << Packed::WITHOUT_CYCLES;
        Packed(counted + (cycles << Packed::CYCLES) + without)
    }

    /// Adds one entry. Returns whether there is no space for another.
    #[inline(always)]
    fn add(&mut self, flags: EntryFlags) -> bool {
        self.0 += Packed::of(flags).0;
        self.learn_type(flags);
        self.0 & Packed::MOST == Packed::MOST
    }

    const fn branch_type(self) -> u8 {
        (self.0 >> Packed::TYPE) as u8
    }

    /// Adds a type: of several, the lowest counts, independent of their order.
    #[inline]
    fn learn_type(&mut self, flags: EntryFlags) {
        // Usually the same as before, or none.
        if flags.type_code() != u64::from(self.branch_type()) {
            self.learn(flags.branch_type().map_or(0, |t| t.0));
        }
    }

    fn learn(&mut self, branch_type: u8) {
        let lowest = lowest_type(self.branch_type(), branch_type);
        self.0 = self.without_type().0 | u64::from(lowest) << Packed::TYPE;
    }

    /// Only the sums.
    const fn without_type(self) -> Packed {
        Packed(self.0 & ((1 << Packed::TYPE) - 1))
    }

    const fn sums(self) -> Sums {
        let count = self.0 & Packed::MOST;
        Sums {
            count,
            mispredicted: self.0 >> Packed::MISPREDICTED & Packed::MOST,
            known: self.0 >> Packed::KNOWN & Packed::MOST,
            with_cycles: count - (self.0 >> Packed::WITHOUT_CYCLES & Packed::MOST),
            cycles: self.0 >> Packed::CYCLES & Packed::MOST_CYCLES,
        }
    }

    /// Only the type.
    const fn without_sums(self) -> Packed {
        Packed(self.0 >> Packed::TYPE << Packed::TYPE)
    }

    const MOST_CYCLES: u64 = (1 << (Packed::TYPE - Packed::CYCLES)) - 1;
}

const _: () = assert!(Packed::MOST * EntryFlags::MAX_CYCLES as u64 <= Packed::MOST_CYCLES);

/// Sums over the entries of a branch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) count: u64,
    /// Mispredicted.
    pub(super) mispredicted: u64,
    /// With a known prediction.
    pub(super) known: u64,
    /// Sum of the known cycles.
    pub(super) cycles: u64,
    /// Number of entries with cycles.
    pub(super) with_cycles: u64,
}

impl Sums {
    /// Adds other sums, times the weight of a stack.
    fn add(&mut self, more: &Sums, weight: u64) {
        // Counts claimed by a file must not cause an overflow.
        let add = |sum: &mut u64, more: u64| {
            *sum = sum.saturating_add(more.saturating_mul(weight));
        };
        add(&mut self.count, more.count);
        add(&mut self.mispredicted, more.mispredicted);
        add(&mut self.known, more.known);
        add(&mut self.cycles, more.cycles);
        add(&mut self.with_cycles, more.with_cycles);
    }
}

/// The lower of two types; 0 is none.
fn lowest_type(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { a | b } else { a.min(b) }
}

/// Sums of four counters; `None` if nothing was counted.
pub(crate) type Counted = [Option<u64>; 4];

pub(crate) fn add_counted(sums: &mut Counted, more: &Counted) {
    for (sum, more) in sums.iter_mut().zip(more) {
        if let Some(more) = more {
            *sum = Some(sum.unwrap_or(0).saturating_add(*more));
        }
    }
}

/// A branch with its sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedBranch {
    /// Number of earlier branches.
    pub(super) number: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) space: u32,
    pub(super) branch_type: u8,
    pub(super) sums: Sums,
    pub(super) counters: Counted,
}

impl CountedBranch {
    /// Adds the sums of the same branch in another address space.
    pub(super) fn merge(&mut self, other: &CountedBranch) {
        self.sums.add(&other.sums, 1);
        add_counted(&mut self.counters, &other.counters);
        self.branch_type = lowest_type(self.branch_type, other.branch_type);
    }
}

/// Counts branches by address and address space.
#[derive(Debug, Default)]
pub struct BranchCounts {
    /// Half a cache line each: many of them are outside of the cache.
    few: HashMap<BranchKey, Packed, BuildHasherDefault<Product>>,
    /// Sums that do not fit into it, by number; may be shorter.
    many: Vec<Sums>,
    /// Values of counters at branches, by number; may be shorter.
    counters: Vec<Counted>,
}

const _: () = assert!(size_of::<(BranchKey, Packed)>() == 32);

impl BranchCounts {
    /// Counts the branches of a stack. Not inlined, because its loops need every register.
    #[inline(never)]
    pub(super) fn add(&mut self, entries: &Entries<'_>, space: u32, weight: u64) {
        if weight != 1 {
            return entries.for_each(|branch| self.weighted(&branch, space, weight));
        }
        // A separate loop for each byte order, without calls inside.
        match entries {
            Entries::Little(raw) => raw.iter().for_each(|b| self.once(&stack::little(b), space)),
            Entries::Big(raw) => raw.iter().for_each(|b| self.once(&stack::big(b), space)),
            Entries::Parsed(all) => all.iter().for_each(|branch| self.once(branch, space)),
        }
    }

    #[inline(always)]
    fn once(&mut self, branch: &RawBranch, space: u32) {
        let Some(few) = self.few.get_mut(&BranchKey::of(branch, space)) else {
            return self.weighted(branch, space, 1);
        };
        if few.add(branch.flags) {
            self.carry(branch, space);
        }
    }

    /// Counts an entry that is new, or in a stack with a weight.
    #[cold]
    fn weighted(&mut self, branch: &RawBranch, space: u32, weight: u64) {
        let key = BranchKey::of(branch, space);
        let new = self.few.len();
        if !self.few.contains_key(&key) {
            let Ok(number) = u32::try_from(new) else { return };
            self.few.insert(BranchKey { number, ..key }, Packed::default());
        }
        let Some(few) = self.few.get_mut(&key) else { return };
        if weight == 1 {
            if few.add(branch.flags) {
                self.carry(branch, space);
            }
        } else {
            few.learn_type(branch.flags);
            if let Some(many) = self.many(&key) {
                many.add(&Packed::of(branch.flags).sums(), weight);
            }
        }
    }

    /// Moves the packed sums of a branch, which are full, to the large ones.
    #[cold]
    fn carry(&mut self, branch: &RawBranch, space: u32) {
        let key = BranchKey::of(branch, space);
        let Some(few) = self.few.get_mut(&key) else { return };
        let sums = few.sums();
        *few = few.without_sums();
        if let Some(many) = self.many(&key) {
            many.add(&sums, 1);
        }
    }

    fn number(&self, key: &BranchKey) -> Option<usize> {
        let (key, _) = self.few.get_key_value(key)?;
        Some(key.number as usize)
    }

    fn many(&mut self, key: &BranchKey) -> Option<&mut Sums> {
        let number = self.number(key)?;
        if self.many.len() <= number {
            self.many.resize(self.few.len(), Sums::default());
        }
        self.many.get_mut(number)
    }

    /// Adds counter values for a branch in the table.
    #[cold]
    pub(super) fn counted(&mut self, branch: &RawBranch, space: u32, counts: &Counted) {
        let Some(number) = self.number(&BranchKey::of(branch, space)) else { return };
        if self.counters.len() <= number {
            self.counters.resize(self.few.len(), Counted::default());
        }
        if let Some(sums) = self.counters.get_mut(number) {
            add_counted(sums, counts);
        }
    }

    /// The address space of all branches; `None` if there are several.
    pub(super) fn one_space(&self) -> Option<u32> {
        let mut spaces = self.few.keys().map(|key| key.space);
        let first = spaces.next()?;
        spaces.all(|space| space == first).then_some(first)
    }

    /// The branches with their sums, in order of first appearance.
    pub(super) fn rows(&self) -> Vec<CountedBranch> {
        let mut rows: Vec<CountedBranch> =
            self.few.iter().map(|(key, few)| self.row(*key, *few)).collect();
        rows.sort_unstable_by_key(|row| row.number);
        rows
    }

    /// The branches with their sums, by number of entries and then by address.
    pub(super) fn ranked(mut self) -> impl Iterator<Item = CountedBranch> {
        struct Ranked {
            /// The count, descending, followed by an address.
            rank: u128,
            key: BranchKey,
            few: Packed,
        }
        // Frees the table before the rows are created.
        let ranked = std::mem::take(&mut self.few).into_iter().map(|(key, few)| {
            let many = self.many.get(key.number as usize).map_or(0, |many| many.count);
            let count = many.saturating_add(few.sums().count);
            let rank = u128::from(!count) << 64 | u128::from(key.from);
            Ranked { rank, key, few }
        });
        let mut ranked: Vec<Ranked> = ranked.collect();
        ranked.sort_unstable_by(|a, b| a.rank.cmp(&b.rank).then_with(|| a.key.to.cmp(&b.key.to)));
        ranked.into_iter().map(move |ranked| self.row(ranked.key, ranked.few))
    }

    fn row(&self, key: BranchKey, few: Packed) -> CountedBranch {
        let BranchKey { from, to, space, number } = key;
        let at = number as usize;
        let mut sums = self.many.get(at).copied().unwrap_or_default();
        sums.add(&few.sums(), 1);
        let counters = self.counters.get(at).copied().unwrap_or_default();
        CountedBranch { number, from, to, space, branch_type: few.branch_type(), sums, counters }
    }
}
