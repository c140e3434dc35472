//! What is counted for each block.

use super::counts::Space;
use crate::clean::add;
use crate::clean::table::{Keyed, Table};
use crate::index;
use crate::views::cycles::Cycles;

/// A conditional branch inside a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) site: u32,
    /// Its length, bytes.
    pub(super) len: u32,
}

/// What the code bytes said about a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Decoding {
    Runs,
    #[default]
    NoCode,
    Contradicts,
}

/// Straight code, with its length instead of its exit. What every visit needs:
/// two of them are a line of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct BlockSlot {
    pub(super) entry: u64,
    pub(super) count: u64,
    pub(super) len: u32,
    pub(super) space: Space,
    /// The number of its [`Insides`], counted from 1; 0 where there are none.
    insides: u32,
    pub(super) kind: Decoding,
}

const _: () = assert!(size_of::<BlockSlot>() == 32);

impl BlockSlot {
    /// Takes back what code bytes said that are not those that ran.
    pub(super) fn forget_code(&mut self) {
        (self.kind, self.insides) = (Decoding::NoCode, 0);
    }
}

impl Keyed for BlockSlot {
    type Key = (u64, u32, Space);

    #[inline]
    fn key(&self) -> (u64, u32, Space) {
        (self.entry, self.len, self.space)
    }

    #[inline]
    fn hash((entry, len, space): (u64, u32, Space)) -> u32 {
        index::hash(entry, u64::from(len), u64::from(space))
    }
}

/// The conditional branches inside each block that has any.
#[derive(Debug, Default)]
pub(super) struct Insides {
    all: Vec<Inside>,
    /// Where those of each block end.
    ends: Vec<u32>,
}

impl Insides {
    pub(super) fn of(&self, slot: &BlockSlot) -> &[Inside] {
        let Some(at) = (slot.insides as usize).checked_sub(1) else { return &[] };
        let end = |at: usize| self.ends.get(at).map_or(0, |end| *end as usize);
        let start = at.checked_sub(1).map_or(0, end);
        self.all.get(start..end(at)).unwrap_or_default()
    }

    /// Adds those of a block; `None` where there are more than numbers.
    fn push(&mut self, inside: &[Inside]) -> Option<u32> {
        if inside.is_empty() {
            return Some(0);
        }
        let end = u32::try_from(self.all.len() + inside.len()).ok()?;
        self.all.extend_from_slice(inside);
        self.ends.push(end);
        u32::try_from(self.ends.len()).ok()
    }
}

/// Blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) table: Table<BlockSlot>,
    pub(super) insides: Insides,
    /// By block; `None` where nobody asks for them.
    cycles: Option<Vec<Cycles>>,
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks { table: Table::default(), insides: Insides::default(), cycles: Some(Vec::new()) }
    }
}

impl Blocks {
    /// Without their cycles: what is left says what the code bytes say.
    pub(super) fn without_cycles() -> Blocks {
        Blocks { cycles: None, ..Blocks::default() }
    }

    /// Loads what a visit will need.
    #[inline]
    pub(super) fn touch(&self, block: u32) -> u32 {
        let slot = self.table.get(block).map_or(0, |slot| slot.insides);
        let cycles = self.cycles.as_ref().and_then(|cycles| cycles.get(block as usize));
        slot ^ cycles.map_or(0, |cycles| u32::from(cycles.is_few()))
    }

    /// The conditional branches inside a block that may be there.
    #[inline]
    pub(super) fn inside(&self, block: u32) -> &[Inside] {
        self.table.get(block).map_or(&[], |slot| self.insides.of(slot))
    }

    /// A new block; `None` where there are more than numbers.
    #[cold]
    pub(super) fn push(
        &mut self,
        (entry, len, space): (u64, u32, Space),
        kind: Decoding,
        inside: &[Inside],
    ) -> Option<u32> {
        let insides = self.insides.push(inside)?;
        let slot = BlockSlot { entry, len, space, kind, insides, count: 0 };
        let number = self.table.push(slot)?;
        if let Some(cycles) = &mut self.cycles {
            cycles.push(Cycles::default());
        }
        Some(number)
    }

    /// It ran, in so many cycles or, 0, nobody knows. What the code bytes said
    /// about it.
    #[inline]
    pub(super) fn run(&mut self, block: u32, cycles: u32, weight: u64) -> Decoding {
        let Some(slot) = self.table.list.get_mut(block as usize) else { return Decoding::NoCode };
        add(&mut slot.count, weight);
        if cycles != 0
            && let Some(all) = self.cycles.as_mut().and_then(|all| all.get_mut(block as usize))
        {
            all.add(cycles, weight);
        }
        slot.kind
    }

    /// The blocks with their cycles and what is inside; none where nobody asked
    /// for them.
    pub(super) fn into_parts(self) -> (Vec<BlockSlot>, Vec<Cycles>, Insides) {
        match self.cycles {
            Some(cycles) => (self.table.list, cycles, self.insides),
            None => Default::default(),
        }
    }
}
