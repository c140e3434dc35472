//! What is counted while stacks come: branches together with the straight code
//! before them.
//!
//! A recording of many branches visits these at random, outside the caches. So
//! a branch that ran costs one look-up, of one line, and is added up by branch,
//! by target and by block when all is counted.

use super::blocks::Decoding;
use super::counts::Space;
use crate::clean::pieces::Pieces;
use crate::clean::{NO_BLOCK, Transition, add};
use crate::index::{self, Index};
use crate::read::stack::EntryFlags;
use crate::views::cycles::Cycles;

/// Stands for no number.
pub(super) const NONE: u32 = u32::MAX;

/// A branch, one of its targets, and one of the blocks that end at it: a line of
/// the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
pub(super) struct TransitionSlot {
    pub(super) key: Key,
    /// Times it ran.
    pub(super) count: u64,
    /// How many of them are known to be predicted or not.
    pub(super) known: u64,
    /// How many were mispredicted.
    pub(super) missed: u64,
    /// The first one with this branch and target; [`NONE`] for straight code
    /// without its branch.
    pub(super) edge: u32,
    /// The branch, or what the code ends at.
    pub(super) site: u32,
    /// The conditional branches inside the block, by their number there; 0 where
    /// there are none.
    pub(super) insides: u32,
    pub(super) kind: Decoding,
    /// A record of it had a type.
    pub(super) typed: bool,
}

const _: () = assert!(size_of::<TransitionSlot>() == 64);

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

    /// Where the branch leads from and to.
    pub(super) fn branch(&self) -> (u64, u64, Space) {
        let len = self.block().map_or(0, |(_, len, _)| u64::from(len));
        (self.entry.wrapping_add(len), self.to, self.space)
    }
}

fn block_hash((entry, len, space): (u64, u32, Space)) -> u32 {
    index::hash(entry, u64::from(len), u64::from(space))
}

fn branch_hash((from, to, space): (u64, u64, Space)) -> u32 {
    index::hash(from, to, u64::from(space))
}

impl TransitionSlot {
    /// It ran.
    #[inline]
    pub(super) fn run(&mut self, flags: EntryFlags, weight: u64) {
        add(&mut self.count, weight);
        let known = u64::from(flags.mispredicted().is_some());
        add(&mut self.known, weight * known);
        add(&mut self.missed, weight * (flags.0 & EntryFlags::MISPREDICTED));
    }

    /// It is known what the code before the branch did.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.kind == Decoding::Runs
    }

    /// Takes back what code bytes said that are not those that ran.
    pub(super) fn forget_code(&mut self) {
        (self.kind, self.insides) = (Decoding::NoCode, 0);
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Transitions {
    index: Index,
    /// The first with each block, and the first with each branch and target.
    blocks: Index,
    edges: Index,
    pub(super) list: Pieces<TransitionSlot>,
    /// The cycles of their blocks; `None` where nobody asks for them.
    pub(super) cycles: Option<Pieces<Cycles>>,
}

impl Default for Transitions {
    fn default() -> Transitions {
        let (index, blocks, edges) = (Index::default(), Index::default(), Index::default());
        Transitions {
            index,
            blocks,
            edges,
            list: Pieces::default(),
            cycles: Some(Pieces::default()),
        }
    }
}

impl Transitions {
    /// Those of blocks whose cycles nobody asks for.
    pub(super) fn without_cycles() -> Transitions {
        Transitions { cycles: None, ..Transitions::default() }
    }

    /// Where each of some keys will most likely be found: its hash and its
    /// number. What is there is fetched, all of it side by side: one after the
    /// other, each would wait for its own.
    #[inline]
    pub(super) fn look_up(&self, keys: impl Iterator<Item = Key>, found: &mut Vec<(u32, u32)>) {
        found.clear();
        found.extend(keys.map(|key| (key.hash(), 0)));
        let touched = found.iter().fold(0, |all, (hash, _)| all ^ self.index.touch(*hash));
        std::hint::black_box(touched);
        for (hash, number) in &mut *found {
            *number = self.index.guess(*hash);
        }
        let load = |number: u32| {
            let cycles = self.cycles.as_ref().and_then(|cycles| cycles.get(number));
            let cycles = cycles.map_or(0, |cycles| u64::from(cycles.is_few()));
            self.list.get(number).map_or(0, |slot| slot.count) ^ cycles
        };
        std::hint::black_box(found.iter().fold(0, |all, (_, number)| all ^ load(*number)));
    }

    /// The number of a key, which `guess` most likely is.
    #[inline]
    pub(super) fn find_near(&self, guess: u32, hash: u32, key: &Key) -> Option<u32> {
        let is = |number: u32| self.list.get(number).is_some_and(|slot| slot.key == *key);
        if is(guess) { Some(guess) } else { self.index.find(hash, is) }
    }

    /// The number of a key.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        self.find_near(NONE, key.hash(), key)
    }

    /// The first that has a block.
    pub(super) fn with_block(&self, block: (u64, u32, Space)) -> Option<&TransitionSlot> {
        let is =
            |number: u32| self.list.get(number).is_some_and(|slot| slot.key.block() == Some(block));
        self.blocks.find(block_hash(block), is).and_then(|number| self.list.get(number))
    }

    /// The number of the first that has a branch with this target.
    pub(super) fn with_branch(&self, branch: (u64, u64, Space)) -> Option<u32> {
        let is = |number: u32| {
            let slot = self.list.get(number).filter(|slot| slot.edge != NONE);
            slot.is_some_and(|slot| slot.key.branch() == branch)
        };
        self.edges.find(branch_hash(branch), is)
    }

    /// The number that the next one will have; `None` where there are more than
    /// numbers.
    pub(super) fn next(&self) -> Option<u32> {
        u32::try_from(self.list.len()).ok().filter(|number| *number != NONE)
    }

    /// Adds one whose key is not there yet.
    pub(super) fn push(&mut self, slot: TransitionSlot) -> Option<u32> {
        let number = self.next()?;
        if let Some(block) = slot.key.block().filter(|block| self.with_block(*block).is_none()) {
            self.blocks.insert(block_hash(block), number);
        }
        if slot.edge == number {
            self.edges.insert(branch_hash(slot.key.branch()), number);
        }
        self.index.insert(slot.key.hash(), number);
        self.list.push(slot);
        self.cycles.iter_mut().for_each(|cycles| cycles.push(Cycles::default()));
        Some(number)
    }

    /// Without what finds them: nobody will look for any.
    pub(super) fn into_parts(self) -> (Pieces<TransitionSlot>, Option<Pieces<Cycles>>) {
        (self.list, self.cycles)
    }
}
