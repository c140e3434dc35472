//! Basic blocks: the blocks cut at every place where one begins or ends.

use std::collections::BTreeMap;

use crate::code::maps::{Location, Owner};
use crate::views::flow::Block;

/// One end of a basic block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// At this instruction: the first of the block, or the branch that ends
    /// it.
    At(u64),
    /// Begins behind the branch at this address; how long that is, is not
    /// known without code bytes.
    Behind(u64),
    /// Runs on into the block that begins at this address.
    Before(u64),
}

/// Code that always runs from its first instruction to its last, as far as
/// the recording shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Where it begins: [`Bound::At`] or [`Bound::Behind`].
    pub start: Bound,
    /// Where it ends: [`Bound::At`] or [`Bound::Before`].
    pub end: Bound,
    /// Where the address of `start` lies.
    pub location: Location,
    /// Times it ran.
    pub count: u64,
}

/// What happens at an address.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    begins: u64,
    ends: u64,
    leads: bool,
    leaves: bool,
    /// The branch here was passed: code goes on at this address.
    next: Option<u64>,
}

/// Addresses of one file, or of one process where there is no file, count
/// together. The first block's addresses stand for the others'.
#[derive(Debug, Default)]
struct Group {
    /// How far addresses lie above their places in the file.
    shift: i128,
    /// Where something happens, from low to high.
    addrs: Vec<u64>,
    points: Vec<Point>,
}

impl Group {
    /// An address of a block whose addresses lie `here` above the file's.
    fn moved(&self, addr: u64, here: i128) -> u64 {
        (i128::from(addr) - here + self.shift) as u64
    }

    /// Every address was named.
    fn settle(&mut self) {
        self.addrs.sort_unstable();
        self.addrs.dedup();
        self.addrs.shrink_to_fit();
        self.points = vec![Point::default(); self.addrs.len()];
    }

    fn at(&mut self, addr: u64, change: impl FnOnce(&mut Point)) {
        let found = self.addrs.binary_search(&addr).ok();
        if let Some(point) = found.and_then(|at| self.points.get_mut(at)) {
            change(point);
        }
    }

    fn add(&mut self, block: &Block, here: i128) {
        self.at(self.moved(block.entry, here), |first| {
            first.leads = true;
            first.begins = first.begins.saturating_add(block.count);
        });
        self.at(self.moved(block.exit, here), |last| {
            last.leaves = true;
            last.ends = last.ends.saturating_add(block.count);
        });
        for passed in &block.passed {
            let next = self.moved(passed.next, here);
            self.at(self.moved(passed.from, here), |branch| {
                branch.leaves = true;
                branch.next = Some(next);
            });
            self.at(next, |point| point.leads = true);
        }
    }

    /// Walks up the addresses. `running` is how often the code at hand ran.
    fn sweep(&self, mut found: impl FnMut(Bound, Bound, u64)) {
        let mut running = 0u64;
        let mut start: Option<Bound> = None;
        let mut next: Option<u64> = None;
        for (&addr, point) in self.addrs.iter().zip(&self.points) {
            if point.leads {
                // Right behind a branch nothing lies in between.
                if let Some(start) = start.filter(|_| next != Some(addr)) {
                    found(start, Bound::Before(addr), running);
                }
                running = running.saturating_add(point.begins);
                start = (running > 0).then_some(Bound::At(addr));
                next = None;
            }
            if point.leaves {
                if let Some(start) = start {
                    found(start, Bound::At(addr), running);
                }
                running = running.saturating_sub(point.ends);
                start = (running > 0).then_some(Bound::Behind(addr));
                next = point.next;
            }
        }
    }
}

/// The file of a block and its owner; and how far its addresses lie above
/// their places in the file, because processes may have mapped it elsewhere.
fn group_of(block: &Block) -> ((Option<usize>, Option<Owner>), i128) {
    let (file, place) = match block.entry_location {
        Location::File { file, offset } => (Some(file), offset),
        Location::Address(addr) => (None, addr),
    };
    ((file, block.owner), i128::from(block.entry) - i128::from(place))
}

/// Where blocks begin and end, and how often: all that is needed of them to cut
/// them into basic blocks.
#[derive(Debug, Default)]
pub struct Cuts {
    groups: BTreeMap<(Option<usize>, Option<Owner>), Group>,
}

impl Cuts {
    /// Takes blocks in.
    #[must_use]
    pub fn of(blocks: &[Block]) -> Cuts {
        let mut groups: BTreeMap<_, Group> = BTreeMap::new();
        // Code that did not run from end to end would count everything in between.
        for block in blocks.iter().filter(|block| !block.contradicted) {
            let (key, here) = group_of(block);
            let new = || Group { shift: here, ..Group::default() };
            let group = groups.entry(key).or_insert_with(new);
            let passed = block.passed.iter().flat_map(|passed| [passed.from, passed.next]);
            for addr in [block.entry, block.exit].into_iter().chain(passed) {
                group.addrs.push(group.moved(addr, here));
            }
        }
        groups.values_mut().for_each(Group::settle);
        for block in blocks.iter().filter(|block| !block.contradicted) {
            let (key, here) = group_of(block);
            if let Some(group) = groups.get_mut(&key) {
                group.add(block, here);
            }
        }
        Cuts { groups }
    }

    /// The basic blocks, the most often executed first.
    #[must_use]
    pub fn basic_blocks(self) -> Vec<BasicBlock> {
        let mut all = 0;
        self.groups.values().for_each(|group| group.sweep(|_, _, _| all += 1));
        let mut found = Vec::with_capacity(all);
        for ((file, _), group) in self.groups {
            let location = |edge: Bound| {
                let (Bound::At(addr) | Bound::Behind(addr) | Bound::Before(addr)) = edge;
                let offset = (i128::from(addr) - group.shift) as u64;
                file.map_or(Location::Address(addr), |file| Location::File { file, offset })
            };
            group.sweep(|start, end, count| {
                found.push(BasicBlock { start, end, location: location(start), count });
            });
        }
        found.sort_by(|a, b| b.count.cmp(&a.count).then(a.start.cmp(&b.start)));
        found
    }
}

/// Cuts blocks into basic blocks, the most often executed first.
#[must_use]
pub fn basic_blocks(blocks: &[Block]) -> Vec<BasicBlock> {
    Cuts::of(blocks).basic_blocks()
}
