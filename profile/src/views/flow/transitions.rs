//! Counts while stacks arrive: branches with the fall-through range before them.
//!
//! Recordings with many branches access these counts in random order, outside the caches. So each
//! recorded branch needs one look-up of half a cache line; sums by branch, target and block follow
//! at the end.

use std::collections::HashMap;

use lbr_msr::record::BranchType;

use super::Space;
use crate::clean::pieces::Pieces;
use crate::clean::{NO_BLOCK, Transition};
use crate::index::{self, Index};
use crate::read::LONGEST_BLOCK;
use crate::read::add;
use crate::read::stack::EntryFlags;
use crate::views::cycles::Cycles;

/// Represents no number.
pub(super) const NONE: u32 = u32::MAX;

/// A branch, one of its targets, and one of the blocks that end at it: half a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct TransitionSlot {
    pub(super) key: TransitionKey,
    packed: Packed,
}

const _: () = assert!(size_of::<TransitionSlot>() == 32);

/// Its identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TransitionKey {
    /// The block's entry; the branch if there is no block.
    entry: u64,
    to: u64,
    /// Length of the block, or [`NO_BLOCK`].
    len: u32,
    pub(super) space: Space,
}

/// A flag in a length: the branch after the block is unknown.
const STRAIGHT: u32 = 1 << 31;
/// In such a length: no branch ended the block, and its last instruction executed.
const ENDED: u32 = 1 << 30;
const _: () = assert!(LONGEST_BLOCK < ENDED as u64);

impl TransitionKey {
    #[inline]
    pub(super) fn of(space: Space, step: &Transition) -> TransitionKey {
        let Transition { branch, entry, len, .. } = *step;
        let entry = if len == NO_BLOCK { branch.from } else { entry };
        TransitionKey { entry, to: branch.to, len, space }
    }

    /// For a range with an unknown branch after it, or that no branch ended.
    pub(super) fn code((entry, len, space): (u64, u32, Space), ended: bool) -> TransitionKey {
        let flags = STRAIGHT | if ended { ENDED } else { 0 };
        TransitionKey { entry, to: 0, len: len | flags, space }
    }

    /// Whether no branch ended it.
    pub(super) fn is_ended(&self) -> bool {
        self.len != NO_BLOCK && self.len & ENDED != 0
    }

    #[inline]
    fn hash(&self) -> u32 {
        let TransitionKey { entry, to, len, space } = *self;
        index::hash(entry, to, u64::from(space) ^ u64::from(len) << 12)
    }

    /// Entry, length and space of the block, if any.
    pub(super) fn block(&self) -> Option<(u64, u32, Space)> {
        (self.len != NO_BLOCK).then_some((self.entry, self.len & !(STRAIGHT | ENDED), self.space))
    }

    /// Source and target of the branch, or the end of the code.
    pub(super) fn branch(&self) -> (u64, u64, Space) {
        let len = self.block().map_or(0, |(_, len, _)| u64::from(len));
        (self.entry.wrapping_add(len), self.to, self.space)
    }

    /// Whether its branch is known.
    pub(super) fn has_branch(&self) -> bool {
        self.len == NO_BLOCK || self.len & STRAIGHT == 0
    }
}

/// The sums of up to [`Packed::MOST`] executions, so that one addition counts one, and the type.
///
/// | bits | |
/// |---|---|
/// | 0 to 18 | executions |
/// | 19 to 37 | with a known prediction |
/// | 38 to 56 | mispredicted |
/// | 57 to 63 | perf's code of the type, 0 if no record had one |
#[derive(Clone, Copy, Debug, Default)]
struct Packed(u64);

impl Packed {
    const BITS: u32 = 19;
    const MOST: u64 = (1 << Packed::BITS) - 1;
    const TYPE: u32 = 3 * Packed::BITS;

    /// Adds an execution, `weight` times; `false` if there is no space.
    #[inline]
    fn add(&mut self, flags: EntryFlags, weight: u64) -> bool {
        /// By the two bits of the prediction, as `mispredicted` reads them.
        const COUNTED: [u64; 4] = {
            let (known, missed) = (1 << Packed::BITS, 1 << (2 * Packed::BITS));
            [1, 1 + known + missed, 1 + known, 1 + known + missed]
        };
        let [_, _, _, both] = COUNTED;
        let prediction = flags.0 & (EntryFlags::MISPREDICTED | EntryFlags::PREDICTED);
        let counted = COUNTED.get(prediction as usize).copied().unwrap_or(both);
        if weight > Packed::MOST - (self.0 & Packed::MOST) {
            return false;
        }
        self.0 += weight * counted;
        if flags.type_code() != self.0 >> Packed::TYPE {
            self.learn_type(flags.branch_type());
        }
        true
    }

    /// Adds a type: of several, the lowest counts, independent of their order.
    #[inline]
    fn learn_type(&mut self, branch_type: Option<BranchType>) {
        let code = branch_type.map_or(0, |branch_type| u64::from(branch_type.0));
        let known = self.0 >> Packed::TYPE;
        if code != 0 && (known == 0 || code < known) {
            self.0 = self.0 & ((1 << Packed::TYPE) - 1) | code << Packed::TYPE;
        }
    }

    /// Removes and returns the sums; keeps the type.
    fn take(&mut self) -> Sums {
        let sums = self.sums();
        self.0 = self.0 >> Packed::TYPE << Packed::TYPE;
        sums
    }

    fn sums(self) -> Sums {
        let part = |at: u32| self.0 >> (at * Packed::BITS) & Packed::MOST;
        Sums { count: part(0), known: part(1), missed: part(2) }
    }

    fn branch_type(self) -> Option<BranchType> {
        let code = (self.0 >> Packed::TYPE) as u8;
        (code != 0).then_some(BranchType(code))
    }
}

/// Execution counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// All executions.
    pub(super) count: u64,
    /// Executions with a known prediction.
    pub(super) known: u64,
    /// Mispredicted ones.
    pub(super) missed: u64,
}

impl Sums {
    fn add(&mut self, more: Sums, weight: u64) {
        add(&mut self.count, more.count.saturating_mul(weight));
        add(&mut self.known, more.known.saturating_mul(weight));
        add(&mut self.missed, more.missed.saturating_mul(weight));
    }
}

impl TransitionSlot {
    /// perf's type, from one of its records.
    pub(super) fn branch_type(&self) -> Option<BranchType> {
        self.packed.branch_type()
    }
}

/// Sums of transitions that exceed their packed fields, by number.
#[derive(Debug, Default)]
pub(super) struct Many(HashMap<u32, Sums>);

impl Many {
    /// All counts of a transition.
    pub(super) fn sums(&self, number: u32, slot: &TransitionSlot) -> Sums {
        let mut sums = slot.packed.sums();
        // Usually empty.
        if !self.0.is_empty()
            && let Some(more) = self.0.get(&number)
        {
            sums.add(*more, 1);
        }
        sums
    }
}

/// Transitions by number.
#[derive(Debug)]
pub(super) enum Slots {
    /// With the cycles of their blocks.
    Timed(Pieces<Timed>),
    /// If cycles are not needed.
    Alone(Pieces<TransitionSlot>),
}

/// A transition with the cycles of its block, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Timed {
    slot: TransitionSlot,
    cycles: Cycles,
}

const _: () = assert!(size_of::<Timed>() == 64);

impl Slots {
    pub(super) fn has_cycles(&self) -> bool {
        matches!(self, Slots::Timed(_))
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Slots::Timed(all) => all.len(),
            Slots::Alone(all) => all.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&TransitionSlot> {
        match self {
            Slots::Timed(all) => all.get(number).map(|timed| &timed.slot),
            Slots::Alone(all) => all.get(number),
        }
    }

    /// A transition with its cycles, for changes.
    #[inline]
    fn get_mut(&mut self, number: u32) -> Option<(&mut TransitionSlot, Option<&mut Cycles>)> {
        match self {
            Slots::Timed(all) => {
                all.get_mut(number).map(|Timed { slot, cycles }| (slot, Some(cycles)))
            }
            Slots::Alone(all) => all.get_mut(number).map(|slot| (slot, None)),
        }
    }

    fn push(&mut self, slot: TransitionSlot) {
        match self {
            Slots::Timed(all) => all.push(Timed { slot, cycles: Cycles::default() }),
            Slots::Alone(all) => all.push(slot),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &TransitionSlot> {
        (0..).map_while(|number| self.get(number))
    }

    /// Moves out all transitions with their cycles, which are empty if they were not needed.
    pub(super) fn take(self) -> impl Iterator<Item = (TransitionSlot, Cycles)> {
        let (timed, alone) = match self {
            Slots::Timed(all) => (all, Pieces::default()),
            Slots::Alone(all) => (Pieces::default(), all),
        };
        let alone = alone.take().map(|slot| (slot, Cycles::default()));
        timed.take().map(|Timed { slot, cycles }| (slot, cycles)).chain(alone)
    }
}

impl Default for Slots {
    fn default() -> Slots {
        Slots::Timed(Pieces::default())
    }
}

/// All transitions.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    index: Index,
    pub(super) list: Slots,
    pub(super) many: Many,
    /// Hash and number of the last stack's transitions.
    pub(super) found: Vec<(u32, u32)>,
}

impl Transitions {
    /// For callers that do not need the cycles of blocks.
    pub(super) fn without_cycles() -> Transitions {
        Transitions { list: Slots::Alone(Pieces::default()), ..Transitions::default() }
    }

    /// Drops the hash table: no more look-ups follow.
    pub(super) fn into_parts(self) -> (Slots, Many) {
        (self.list, self.many)
    }

    /// Counts a stack, its transitions oldest first. `load` prefetches the data that each number
    /// will need.
    pub(super) fn add(
        &mut self,
        space: Space,
        weight: u64,
        steps: &[Transition],
        load: impl Fn(u32) -> u32,
    ) {
        let mut found = std::mem::take(&mut self.found);
        let hashes = steps.iter().map(|step| TransitionKey::of(space, step).hash());
        self.index.look_up(hashes, &mut found, |number| {
            let slot = self.list.get(number).map_or(0, |slot| slot.packed.0);
            slot ^ u64::from(load(number))
        });
        for (step, (hash, number)) in steps.iter().zip(&mut found) {
            let key = TransitionKey::of(space, step);
            let known = self.find_near(*number, *hash, &key);
            *number = known.or_else(|| self.push(key, *hash)).unwrap_or(NONE);
            self.run(*number, (step.branch.flags, step.cycles), weight);
        }
        self.found = found;
    }

    /// The number of a key, which is most likely `guess`.
    #[inline]
    fn find_near(&self, guess: u32, hash: u32, key: &TransitionKey) -> Option<u32> {
        let is = |number: u32| self.list.get(number).is_some_and(|slot| slot.key == *key);
        if is(guess) { Some(guess) } else { self.index.find(hash, is) }
    }

    /// The number of a key, added if new. `None` if all numbers are in use.
    pub(super) fn number(&mut self, key: TransitionKey) -> Option<u32> {
        let hash = key.hash();
        self.find_near(NONE, hash, &key).or_else(|| self.push(key, hash))
    }

    /// Adds a new key.
    #[cold]
    fn push(&mut self, key: TransitionKey, hash: u32) -> Option<u32> {
        let number = u32::try_from(self.list.len()).ok().filter(|number| *number != NONE)?;
        self.index.insert(hash, number);
        self.list.push(TransitionSlot { key, packed: Packed::default() });
        Some(number)
    }

    /// Counts an execution, `weight` times.
    #[inline]
    pub(super) fn run(&mut self, number: u32, (flags, cycles): (EntryFlags, u32), weight: u64) {
        let Some((slot, sums)) = self.list.get_mut(number) else { return };
        if let Some(sums) = sums.filter(|_| cycles != 0) {
            sums.add(cycles, weight);
        }
        if !slot.packed.add(flags, weight) {
            self.carry(number, flags, weight);
        }
    }

    /// As [`run`](Self::run), if there is no space: moves the packed sums elsewhere, together with
    /// counts that never fit.
    #[cold]
    fn carry(&mut self, number: u32, flags: EntryFlags, weight: u64) {
        let Some((slot, _)) = self.list.get_mut(number) else { return };
        let many = self.many.0.entry(number).or_default();
        many.add(slot.packed.take(), 1);
        if !slot.packed.add(flags, weight) {
            slot.packed.add(flags, 1);
            many.add(slot.packed.take(), weight);
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/views/flow/transitions.rs"]
mod tests;
