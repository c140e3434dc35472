//! Stacks without modelled data, for outputs that cannot label it as modelled.

use crate::read::item::Item;
use crate::read::note::Source;
use crate::read::stack::{Entries, EntryFlags, RawBranch, Stack};

/// Omits predictions and cycles of software LBRs, whose branches alone are real.
#[derive(Debug, Default)]
pub(super) struct Unmodelled {
    /// The entries of the current stack.
    entries: Vec<RawBranch>,
    omitted: bool,
}

impl Unmodelled {
    pub(super) const fn has_omitted(&self) -> bool {
        self.omitted
    }

    /// The item without predictions and cycles.
    pub(super) fn of<'a>(&'a mut self, item: Item<'a>) -> Item<'a> {
        let stack = match item {
            Item::Stack(stack) if stack.head.source == Source::Software => stack,
            other => return other,
        };
        const PREDICTION: u64 = EntryFlags::MISPREDICTED | EntryFlags::PREDICTED;
        self.entries.clear();
        stack.entries.for_each(|branch| {
            let flags = EntryFlags(branch.flags.0 & !PREDICTION).with_cycles(0);
            self.omitted |= flags != branch.flags;
            self.entries.push(RawBranch { flags, ..branch });
        });
        Item::Stack(Stack { entries: Entries::Parsed(&self.entries), ..stack })
    }
}
