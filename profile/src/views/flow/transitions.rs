//! What is counted while stacks come: branches together with the straight code
//! before them.
//!
//! A recording of many branches visits these at random, outside the caches. So
//! a branch that ran costs one look-up, of half a line, and is added up by
//! branch, by target and by block when all is counted.

use std::collections::HashMap;

use lbr_msr::record::BranchType;

use super::counts::Space;
use crate::clean::pieces::Pieces;
use crate::clean::{NO_BLOCK, Transition, add};
use crate::index::{self, Index};
use crate::read::stack::EntryFlags;
use crate::views::cycles::Cycles;

/// Stands for no number.
pub(super) const NONE: u32 = u32::MAX;

/// A branch, one of its targets, and one of the blocks that end at it: half a line
/// of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct TransitionSlot {
    pub(super) key: Key,
    packed: Packed,
}

const _: () = assert!(size_of::<TransitionSlot>() == 32);

/// What tells it from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// Of the block; of the branch where there is no block.
    entry: u64,
    to: u64,
    /// Of the block, or [`NO_BLOCK`].
    len: u32,
    pub(super) space: Space,
}

/// In a length: the branch behind the block is not known.
const STRAIGHT: u32 = 1 << 31;

impl Key {
    #[inline]
    pub(super) fn of(space: Space, step: &Transition) -> Key {
        let Transition { branch, entry, len, .. } = *step;
        let entry = if len == NO_BLOCK { branch.from } else { entry };
        Key { entry, to: branch.to, len, space }
    }

    /// Of straight code without its branch.
    pub(super) fn straight((entry, len, space): (u64, u32, Space)) -> Key {
        Key { entry, to: 0, len: len | STRAIGHT, space }
    }

    #[inline]
    fn hash(&self) -> u32 {
        let Key { entry, to, len, space } = *self;
        index::hash(entry, to, u64::from(space) ^ u64::from(len) << 12)
    }

    /// Entry, length and space of the block, where there is one.
    pub(super) fn block(&self) -> Option<(u64, u32, Space)> {
        (self.len != NO_BLOCK).then_some((self.entry, self.len & !STRAIGHT, self.space))
    }

    /// Where the branch leads from and to, or the code ends.
    pub(super) fn branch(&self) -> (u64, u64, Space) {
        let len = self.block().map_or(0, |(_, len, _)| u64::from(len));
        (self.entry.wrapping_add(len), self.to, self.space)
    }

    /// Whether its branch is known.
    pub(super) fn has_branch(&self) -> bool {
        self.len == NO_BLOCK || self.len & STRAIGHT == 0
    }
}

/// The sums of up to [`Packed::MOST`] runs, so that one addition counts one, and
/// the type.
///
/// | bits | |
/// |---|---|
/// | 0 to 18 | runs |
/// | 19 to 37 | known to be predicted or not |
/// | 38 to 56 | mispredicted |
/// | 57 to 63 | perf's code of the type, 0 where no record had one |
#[derive(Clone, Copy, Debug, Default)]
struct Packed(u64);

impl Packed {
    const BITS: u32 = 19;
    const MOST: u64 = (1 << Packed::BITS) - 1;
    const TYPE: u32 = 3 * Packed::BITS;

    /// Adds a run, `weight` times; `false` where there is no room.
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

    /// Adds others, and their type; `false` where there is no room for the sums.
    fn join(&mut self, other: Packed) -> bool {
        self.learn_type(other.branch_type());
        let room = self.sums().count + other.sums().count <= Packed::MOST;
        if room {
            self.0 += other.0 & ((1 << Packed::TYPE) - 1);
        }
        room
    }

    /// Takes a type in: of several the lowest counts, in whichever order they come.
    #[inline]
    fn learn_type(&mut self, branch_type: Option<BranchType>) {
        let code = branch_type.map_or(0, |branch_type| u64::from(branch_type.0));
        let known = self.0 >> Packed::TYPE;
        if code != known && code != 0 && (known == 0 || code < known) {
            self.0 = self.0 & ((1 << Packed::TYPE) - 1) | code << Packed::TYPE;
        }
    }

    /// Takes the sums out, and leaves the type.
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

/// How often something ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    /// All times.
    pub(super) count: u64,
    /// How many of them are known to be predicted or not.
    pub(super) known: u64,
    /// How many were mispredicted.
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
    /// perf's type, as a record of it had it.
    pub(super) fn branch_type(&self) -> Option<BranchType> {
        self.packed.branch_type()
    }
}

/// Sums of transitions that have no room there, by number.
#[derive(Debug, Default)]
pub(super) struct Many(HashMap<u32, Sums>);

impl Many {
    /// All that was counted of a transition.
    pub(super) fn sums(&self, number: u32, slot: &TransitionSlot) -> Sums {
        let mut sums = slot.packed.sums();
        // Mostly there are none.
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
    /// Where nobody asks for those.
    Alone(Pieces<TransitionSlot>),
}

/// A transition with the cycles of its block, in one line of the cache.
#[derive(Debug)]
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

    /// One with its cycles, to be changed.
    #[inline]
    fn get_mut(&mut self, number: u32) -> Option<(&mut TransitionSlot, Option<&mut Cycles>)> {
        match self {
            Slots::Timed(all) => {
                all.get_mut(number).map(|Timed { slot, cycles }| (slot, Some(cycles)))
            }
            Slots::Alone(all) => all.get_mut(number).map(|slot| (slot, None)),
        }
    }

    fn cycles(&self, number: u32) -> Option<&Cycles> {
        match self {
            Slots::Timed(all) => all.get(number).map(|timed| &timed.cycles),
            Slots::Alone(_) => None,
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

    /// Takes all of them, with their cycles, which are none where nobody asked for
    /// any.
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

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Transitions {
    index: Index,
    pub(super) list: Slots,
    pub(super) many: Many,
    /// Hash and number of the transitions of a stack.
    found: Vec<(u32, u32)>,
}

impl Transitions {
    /// Those of blocks whose cycles nobody asks for.
    pub(super) fn without_cycles() -> Transitions {
        Transitions { list: Slots::Alone(Pieces::default()), ..Transitions::default() }
    }

    /// Without what finds them: nobody will look for any.
    pub(super) fn into_parts(self) -> (Slots, Many) {
        (self.list, self.many)
    }

    /// Counts a stack, its transitions oldest first. What will be asked of each
    /// number is loaded with it, by `load`.
    pub(super) fn add(
        &mut self,
        space: Space,
        weight: u64,
        steps: &[Transition],
        load: impl Fn(u32) -> u32,
    ) {
        let mut found = std::mem::take(&mut self.found);
        let hashes = steps.iter().map(|step| Key::of(space, step).hash());
        self.index.look_up(hashes, &mut found, |number| {
            let slot = self.list.get(number).map_or(0, |slot| slot.packed.0);
            slot ^ u64::from(load(number))
        });
        for (step, (hash, number)) in steps.iter().zip(&mut found) {
            let key = Key::of(space, step);
            let known = self.find_near(*number, *hash, &key);
            *number = known.or_else(|| self.push(key, *hash)).unwrap_or(NONE);
            self.run(*number, (step.branch.flags, step.cycles), weight);
        }
        self.found = found;
    }

    /// The hash and the number of the transitions of the last stack.
    pub(super) fn found(&self) -> &[(u32, u32)] {
        &self.found
    }

    /// The number of a key, which `guess` most likely is.
    #[inline]
    fn find_near(&self, guess: u32, hash: u32, key: &Key) -> Option<u32> {
        let is = |number: u32| self.list.get(number).is_some_and(|slot| slot.key == *key);
        if is(guess) { Some(guess) } else { self.index.find(hash, is) }
    }

    /// The number of a key; a new one if there was none. `None` where there are
    /// more than numbers.
    pub(super) fn number(&mut self, key: Key) -> Option<u32> {
        let hash = key.hash();
        self.find_near(NONE, hash, &key).or_else(|| self.push(key, hash))
    }

    /// Adds one whose key is not there yet.
    #[cold]
    fn push(&mut self, key: Key, hash: u32) -> Option<u32> {
        let number = u32::try_from(self.list.len()).ok().filter(|number| *number != NONE)?;
        self.index.insert(hash, number);
        self.list.push(TransitionSlot { key, packed: Packed::default() });
        Some(number)
    }

    /// One ran, `weight` times.
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

    /// Takes in what another one counted of its number: our number of it.
    pub(super) fn join(&mut self, other: &Transitions, number: u32) -> Option<u32> {
        let theirs = other.list.get(number)?;
        let ours = self.number(theirs.key)?;
        let (slot, cycles) = self.list.get_mut(ours)?;
        if let Some((cycles, theirs)) = cycles.zip(other.list.cycles(number)) {
            cycles.merge(theirs);
        }
        if !slot.packed.join(theirs.packed) {
            self.many.0.entry(ours).or_default().add(theirs.packed.sums(), 1);
        }
        if let Some(more) = other.many.0.get(&number) {
            self.many.0.entry(ours).or_default().add(*more, 1);
        }
        Some(ours)
    }

    /// The same where there is no room: what is there goes elsewhere, and so does
    /// what never has room.
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
mod tests {
    use super::{Key, Packed, Transitions};
    use crate::read::stack::EntryFlags;
    use lbr_msr::record::BranchType;

    /// Sums are the same whether they fit or not, and whatever a stack stands for.
    #[test]
    fn sums_have_no_end() {
        let mut transitions = Transitions::without_cycles();
        let number = transitions.number(Key::straight((1, 2, 3))).expect("there is room");
        let typed = EntryFlags(EntryFlags::MISPREDICTED).with_type(Some(BranchType::COND));
        let weights = [1, Packed::MOST - 1, 1, 1, u64::from(u32::MAX), 7];
        for weight in weights {
            transitions.run(number, (typed, 0), weight);
            transitions.run(number, (EntryFlags(EntryFlags::PREDICTED), 0), weight);
            transitions.run(number, (EntryFlags(0), 0), weight);
        }
        let slot = transitions.list.get(number).expect("it was put there");
        let sums = transitions.many.sums(number, slot);
        let all: u64 = weights.iter().sum();
        assert_eq!((sums.count, sums.known, sums.missed), (3 * all, 2 * all, all));
        assert_eq!(slot.branch_type(), Some(BranchType::COND));
        transitions.run(number, (typed, 0), u64::MAX);
        let slot = transitions.list.get(number).expect("it was put there");
        assert_eq!(transitions.many.sums(number, slot).count, u64::MAX);
    }
}
