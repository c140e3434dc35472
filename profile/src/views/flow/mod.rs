//! Control flow: each branch's outcomes, and the code executed between branches.
//!
//! Between two neighbours in a stack, code ran without a taken branch from TO of the older to FROM
//! of the newer: a *block*, identified by its entry and exit. The conditional branches inside it
//! were not taken. A stack's oldest entry ends a block with an unknown entry, unless the stack
//! continues the previous one exactly: the block between the two then counts, but its cycles are
//! unknown.

mod blocks;
mod counts;
mod edges;
mod merge;
mod sites;
mod transitions;

use std::collections::{BTreeMap, HashMap};

use lbr_msr::record::BranchType;

use crate::clean::Counter;
use crate::clean::interval::Clusters;
use crate::clean::quality::Quality;
use crate::code::maps::{Function, Location, Maps, Owner};
use crate::code::straight::{self, NotTaken};
use crate::read::add;
use crate::views::cycles::Cycles;

use sites::Surplus;

pub use crate::clean::quality::BlockQuality;
pub use counts::FlowCounts;

/// The number of an address space.
type Space = u32;

/// Reads recordings and counts their control flow.
pub type FlowCounter = Counter<FlowCounts>;

/// A branch instruction with its counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its address, in the first process that ran it.
    pub from: u64,
    /// Its location.
    pub location: Location,
    /// perf's type, as recorded or from the code; `None` if neither is available.
    pub branch_type: Option<BranchType>,
    /// Whether it can fall through; `None` if its type is unknown.
    pub conditional: Option<bool>,
    /// Times taken.
    pub taken: u64,
    /// Times not taken: as recorded (Arm SPE), else in known blocks; `None` if neither is available.
    pub not_taken: Option<u64>,
    /// Number of times it may also have been passed: the end of the straight-line code is unknown.
    pub unsure: u64,
    /// Taken entries with a known prediction.
    pub known: u64,
    /// Mispredicted ones among them; `None` if none is known.
    pub mispredicted: Option<u64>,
    /// Its targets, most frequent first.
    pub targets: Vec<Target>,
    /// Times taken after a known block.
    settled: u64,
    /// The stacks that contain it more than once: few branches have any.
    surplus: Option<Box<Surplus>>,
}

impl Site {
    /// Mispredicted (y) of known (x), by stack.
    pub fn misses(&self) -> Clusters {
        let more = self.surplus.as_ref().map_or_else(Clusters::default, |surplus| surplus.misses);
        more.with_single(self.known, self.mispredicted.unwrap_or(0))
    }

    /// Taken (y) of executed (x), by stack: only after a known block, so that both outcomes were
    /// equally observable.
    pub fn outcomes(&self) -> Clusters {
        let more = self.surplus.as_ref().map_or_else(Clusters::default, |surplus| surplus.outcomes);
        let executed = self.settled.saturating_add(self.not_taken.unwrap_or(0));
        more.with_single(executed, self.settled)
    }

    /// Taken to this target (y) of taken (x), by stack.
    pub fn to_target(&self, target: &Target) -> Clusters {
        let more = self.surplus.as_ref().map_or_else(Clusters::default, |surplus| surplus.taken);
        let count = target.count;
        Clusters {
            y: count,
            xy: count.saturating_add(target.xy),
            yy: count.saturating_add(target.yy),
            ..more.with_single(self.taken, 0)
        }
    }
}

/// A target of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its address.
    pub to: u64,
    /// Its location.
    pub location: Location,
    /// Times taken to this target.
    pub count: u64,
    /// The difference from `count` of the sums over stacks of (taken × taken to here), and of
    /// (taken to here) squared.
    xy: u64,
    yy: u64,
}

/// A fall-through range from a branch's target to the next taken branch. Blocks with different ends
/// are different blocks, even if they overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Address of the target at its start, in the first process that ran it.
    pub entry: u64,
    /// Address of the branch at its end.
    pub exit: u64,
    /// The location of the entry.
    pub entry_location: Location,
    /// The location of the exit.
    pub exit_location: Location,
    /// Executions.
    pub count: u64,
    /// Core cycles from entry to exit, of executions with a cycle count.
    pub cycles: Cycles,
    /// Total occurrences of each counter's event, as in [`HotBranch`](crate::hot::HotBranch); `None`
    /// if the recording has no such counts.
    pub counters: Option<Box<[Option<u64>; 4]>>,
    /// Whether its code bytes were decoded.
    pub decoded: bool,
    /// Whether the code bytes show that it cannot have run: a branch is missing (except a return
    /// from a signal handler), or the file differs from the executed one.
    pub contradicted: bool,
    /// The process it belongs to, if its addresses are meaningful only there.
    pub owner: Option<Owner>,
    /// Conditional branches inside that were not taken, each with the address after it.
    pub(crate) passed: Box<[NotTaken]>,
}

/// The share (0 to 1) of all block executions that went through a function.
pub fn share_of(blocks: &[Block], function: &Function) -> f64 {
    let runs = |inside: &dyn Fn(&Block) -> bool| {
        let counts = blocks.iter().filter(|block| inside(block)).map(|block| block.count);
        counts.fold(0, u64::saturating_add) as f64
    };
    let overlaps = |block: &Block| {
        let Some(offset) = block.entry_location.in_file(function.file) else { return false };
        let last = offset.saturating_add(block.exit.wrapping_sub(block.entry));
        offset < function.offsets.end && last >= function.offsets.start
    };
    runs(&overlaps) / runs(&|_| true).max(1.0)
}

/// The control flow of a recording.
#[derive(Debug, Default)]
pub struct Flow {
    /// Branch instructions, most executed first.
    pub sites: Vec<Site>,
    /// Blocks, most executed first, including those that the code bytes contradict.
    pub blocks: Vec<Block>,
    /// All taken branches.
    pub taken: u64,
    /// Distinct ones, by source and target location.
    pub distinct: u64,
    /// Taken entries with a known prediction.
    pub known: u64,
    /// Mispredicted ones among them; `None` if none is known.
    pub mispredicted: Option<u64>,
    /// Quality of the data.
    pub quality: Quality,
    /// Why blocks are missing.
    pub block_quality: BlockQuality,
    /// Mappings and files, for names.
    pub maps: Maps,
}

impl Flow {
    /// Removes the blocks that cannot have run.
    pub fn drop_contradicted(&mut self) {
        self.blocks.retain(|block| !block.contradicted);
    }

    /// Marks the conditional branches that straight-line code of unknown end may have passed.
    fn mark_unsure(&mut self, open: &BTreeMap<(u64, u32), u64>) {
        if open.is_empty() {
            return;
        }
        let places = (0..).zip(&self.sites).map(|(at, site)| (site.location, at));
        let by_place: HashMap<Location, usize> = places.collect();
        for (&(addr, space), times) in open {
            for passed in straight::may_pass(&mut self.maps, space as usize, addr) {
                let place = self.maps.locate(space as usize, passed.from);
                let site = by_place.get(&place).and_then(|at| self.sites.get_mut(*at));
                site.into_iter().for_each(|site| add(&mut site.unsure, *times));
            }
        }
    }

    /// Whether every taken branch is included: counts are then exact.
    pub fn is_complete(&self) -> bool {
        self.quality.is_complete() && self.block_quality.filtered == 0
    }
}
