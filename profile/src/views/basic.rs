//! Basic blocks: recorded blocks, split wherever another one starts or ends.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::code::maps::{Location, Owner};
use crate::read::add;
use crate::views::flow::Block;

/// One end of a basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// At this instruction: the first of the block, or the branch at its end.
    At(u64),
    /// Starts after the branch at this address, whose length is unknown without code bytes.
    After(u64),
    /// Continues into the block that starts at this address.
    Before(u64),
}

/// Code that always ran from its first instruction to its last in this recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Its start: [`Bound::At`] or [`Bound::After`].
    pub start: Bound,
    /// Its end: [`Bound::At`] or [`Bound::Before`].
    pub end: Bound,
    /// The location of `start`'s address.
    pub location: Location,
    /// Executions.
    pub count: u64,
}

/// An event at an address.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A block starts, with this many executions.
    Begins(u64),
    /// A block ends, with this many executions.
    Ends(u64),
    /// The branch here was not taken: execution continues at this address.
    NotTaken(u64),
    /// Execution continues after a branch that was not taken.
    GoesOn,
}

/// Addresses of one file, or of one process for code outside of files, are counted together, at the
/// addresses of the first block.
#[derive(Debug, Default)]
struct Group {
    /// Difference between addresses and file offsets.
    shift: i128,
    /// The events by address; sorted at the end.
    events: Vec<(u64, What)>,
}

impl Group {
    fn add(&mut self, block: &Block, here: i128) {
        let shift = self.shift;
        let moved = |addr: u64| (i128::from(addr) - here + shift) as u64;
        self.events.push((moved(block.entry), What::Begins(block.count)));
        self.events.push((moved(block.exit), What::Ends(block.count)));
        for passed in &block.passed {
            let next = moved(passed.next);
            self.events.push((moved(passed.from), What::NotTaken(next)));
            self.events.push((next, What::GoesOn));
        }
    }

    /// Visits addresses in ascending order. `running` is the execution count of the current code.
    fn sweep(&self, mut found: impl FnMut(Bound, Bound, u64)) {
        let mut running = 0u64;
        let mut start: Option<Bound> = None;
        let mut next: Option<u64> = None;
        for events in self.events.chunk_by(|(one, _), (other, _)| one == other) {
            let Some((addr, _)) = events.first().copied() else { continue };
            let (mut begins, mut ends, mut leads, mut leaves, mut after) =
                (0, 0, false, false, None);
            for (_, what) in events {
                match *what {
                    What::Begins(count) => {
                        leads = true;
                        add(&mut begins, count);
                    }
                    What::GoesOn => leads = true,
                    What::Ends(count) => {
                        leaves = true;
                        add(&mut ends, count);
                    }
                    What::NotTaken(next) => {
                        leaves = true;
                        after = Some(next);
                    }
                }
            }
            if leads {
                // There is no code between a branch and the next instruction.
                if let Some(start) = start.filter(|_| next != Some(addr)) {
                    found(start, Bound::Before(addr), running);
                }
                running = running.saturating_add(begins);
                start = (running > 0).then_some(Bound::At(addr));
            }
            if leaves {
                if let Some(start) = start {
                    found(start, Bound::At(addr), running);
                }
                running = running.saturating_sub(ends);
                start = (running > 0).then_some(Bound::After(addr));
                next = after;
            }
        }
    }
}

/// The starts and ends of blocks with their counts: all that splitting into basic blocks needs.
#[derive(Debug, Default)]
pub struct Cuts {
    groups: BTreeMap<(Option<usize>, Option<Owner>), Group>,
}

impl Cuts {
    /// The starts and ends of these blocks.
    pub fn of(blocks: &[Block]) -> Cuts {
        let mut groups: BTreeMap<_, Group> = BTreeMap::new();
        // A contradicted block would count all code between its ends.
        for block in blocks.iter().filter(|block| !block.contradicted) {
            // Each process may map the file elsewhere.
            let at = block.entry_location;
            let here = i128::from(block.entry) - i128::from(at.position());
            let new = || Group { shift: here, ..Group::default() };
            groups.entry((at.file(), block.owner)).or_insert_with(new).add(block, here);
        }
        for Group { events, .. } in groups.values_mut() {
            events.sort_unstable_by_key(|(addr, _)| *addr);
        }
        Cuts { groups }
    }

    /// The basic blocks, most executed first.
    #[must_use]
    pub fn basic_blocks(self) -> Vec<BasicBlock> {
        let mut all = 0;
        self.groups.values().for_each(|group| group.sweep(|_, _, _| all += 1));
        let mut found = Vec::with_capacity(all);
        for ((file, _), group) in self.groups {
            let location = |edge: Bound| {
                let (Bound::At(addr) | Bound::After(addr) | Bound::Before(addr)) = edge;
                let offset = (i128::from(addr) - group.shift) as u64;
                file.map_or(Location::Address(addr), |file| Location::File { file, offset })
            };
            group.sweep(|start, end, count| {
                found.push(BasicBlock { start, end, location: location(start), count });
            });
        }
        found.sort_unstable_by_key(|block| (Reverse(block.count), block.start));
        found
    }
}
