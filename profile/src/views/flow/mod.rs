//! The flow of control: what each branch did, and which straight code ran
//! between the branches.
//!
//! Of two neighbours in a stack, code ran in a straight line from TO of the
//! older to FROM of the newer: a *block*, known by its entry and its exit. The
//! conditional branches inside it were passed without being taken. The oldest
//! entry of a stack ends a block whose entry nobody knows, unless the stack
//! joins exactly to the one before: the block that spans the two then counts,
//! but its cycles are not known.

mod blocks;
mod counts;
mod edges;
mod merge;
mod sites;
mod transitions;

use lbr_msr::record::BranchType;

use crate::clean::interval::Clusters;
use crate::clean::quality::Quality;
use crate::clean::{Cleaned, Counter, Run, View, Waiting, Whole};
use crate::code::maps::{Function, Location, Maps, Owner};
use crate::code::straight::Passed;
use crate::read::perf_data::ReadError;
use crate::read::recording::Recording;
use crate::views::cycles::Cycles;

use sites::{More, Surplus};

pub use crate::clean::quality::BlockQuality;
pub use counts::FlowCounts;

/// Reads recordings and follows the flow.
pub type FlowCounter = Counter<FlowCounts>;

impl FlowCounter {
    /// Begins with nothing, for those who ask for branches alone: blocks are
    /// not kept, and take less than half of the memory. What they say about
    /// branches stays.
    #[must_use]
    pub fn without_blocks() -> FlowCounter {
        Counter::of(FlowCounts::without_blocks())
    }

    /// Begins with nothing, for those who ask for blocks alone: the flow will
    /// have no sites.
    #[must_use]
    pub fn without_sites() -> FlowCounter {
        Counter::of(FlowCounts::without_sites())
    }
}

impl View for FlowCounts {
    type Table = Flow;

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        self.add(stack, maps);
    }

    fn straight(&mut self, code: (u64, u32, u32), weight: u64, maps: &mut Maps) {
        self.add_straight(code, weight, maps);
    }

    fn part(&self) -> Option<FlowCounts> {
        self.part_of()
    }

    fn count(&mut self, stack: &Waiting<'_>) {
        self.transitions.add(stack.space, stack.weight, stack.transitions, |_| 0);
    }

    fn numbers(&self) -> u32 {
        self.transitions.list.len() as u32
    }

    fn join(&mut self, parts: Vec<FlowCounts>, runs: &[Run]) {
        for Run { part, numbers } in runs {
            let Some(part) = parts.get(*part) else { continue };
            numbers.clone().for_each(|at| _ = self.join_number(part, at));
        }
    }

    fn finish(self, whole: Whole) -> Flow {
        self.flow(whole)
    }
}

/// A branch instruction and what it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its address, in the first process that ran it.
    pub from: u64,
    /// Where it lies.
    pub location: Location,
    /// perf's type, as recorded or from the code; `None` where neither says.
    pub branch_type: Option<BranchType>,
    /// It may fall through; `None` where its type is not known.
    pub conditional: Option<bool>,
    /// Times it was taken.
    pub taken: u64,
    /// Times it was passed without being taken, in the blocks that are known;
    /// `None` where its code bytes are not to be had.
    pub not_taken: Option<u64>,
    /// Taken entries that are known to be predicted or not.
    pub known: u64,
    /// How many of them were mispredicted; `None` where none is known.
    pub mispredicted: Option<u64>,
    /// Where it went, the most frequent first.
    pub targets: Vec<Target>,
    /// Times it was taken where the block before it is known.
    settled: u64,
    /// What sums over stacks have beside those over branches: few branches are
    /// in a stack more than once.
    surplus: Option<Box<Surplus>>,
}

impl Site {
    /// Mispredicted (y) of known (x), by stack.
    #[must_use]
    pub fn misses(&self) -> Clusters {
        let more = self.surplus.as_ref().map_or_else(More::default, |surplus| surplus.misses);
        more.clusters(self.known, self.mispredicted.unwrap_or(0))
    }

    /// Taken (y) of executed (x), by stack: only where the block before the
    /// branch is known, so that both outcomes had the same chance to be seen.
    #[must_use]
    pub fn outcomes(&self) -> Clusters {
        let more = self.surplus.as_ref().map_or_else(More::default, |surplus| surplus.outcomes);
        let executed = self.settled.saturating_add(self.not_taken.unwrap_or(0));
        more.clusters(executed, self.settled)
    }

    /// To this target of it (y) of taken (x), by stack.
    #[must_use]
    pub fn to_target(&self, target: &Target) -> Clusters {
        let more = self.surplus.as_ref().map_or_else(More::default, |surplus| surplus.taken);
        let count = target.count;
        Clusters {
            y: count,
            xy: count.saturating_add(target.xy),
            yy: count.saturating_add(target.yy),
            ..more.clusters(self.taken, 0)
        }
    }
}

/// A target of a branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its address.
    pub to: u64,
    /// Where it lies.
    pub location: Location,
    /// Times the branch went there.
    pub count: u64,
    /// What the sums over stacks of taken (x) times there (y), and of there
    /// squared, have beside `count`.
    xy: u64,
    yy: u64,
}

/// Straight code that ran, from the target of a branch to the next branch
/// taken. Blocks with other ends are others, however they overlap.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Address that a branch went to, in the first process that ran it.
    pub entry: u64,
    /// Address of the branch that left.
    pub exit: u64,
    /// Where the entry lies.
    pub entry_location: Location,
    /// Where the exit lies.
    pub exit_location: Location,
    /// Times it ran.
    pub count: u64,
    /// Core cycles from entry to exit, over the runs that have them.
    pub cycles: Cycles,
    /// The code bytes show how it runs.
    pub decoded: bool,
    /// The code bytes show that it cannot have run: a branch is missing (a
    /// return from a signal handler is none), or the file is not what ran.
    pub contradicted: bool,
    /// The process it belongs to, where its addresses mean nothing elsewhere.
    pub owner: Option<Owner>,
    /// Conditional branches inside that were passed, each with the address
    /// behind it.
    pub(crate) passed: Box<[Passed]>,
}

/// The share of all runs of blocks that ran through a function, 0 to 1.
#[must_use]
pub fn share_of(blocks: &[Block], function: &Function) -> f64 {
    let runs = |inside: &dyn Fn(&Block) -> bool| {
        let counts = blocks.iter().filter(|block| inside(block)).map(|block| block.count);
        counts.fold(0, u64::saturating_add) as f64
    };
    let overlaps = |block: &Block| {
        let Location::File { file, offset } = block.entry_location else { return false };
        let last = offset.saturating_add(block.exit.wrapping_sub(block.entry));
        file == function.file && offset < function.offsets.end && last >= function.offsets.start
    };
    runs(&overlaps) / runs(&|_| true).max(1.0)
}

/// What a recording says about the flow of control.
#[derive(Debug)]
pub struct Flow {
    /// Branch instructions, the most often executed first.
    pub sites: Vec<Site>,
    /// Blocks, the most often executed first, those that the code bytes
    /// contradict among them.
    pub blocks: Vec<Block>,
    /// All taken branches.
    pub taken: u64,
    /// Distinct ones, by the places that they lead from and to.
    pub distinct: u64,
    /// Taken entries that are known to be predicted or not.
    pub known: u64,
    /// How many of them were mispredicted; `None` where none is known.
    pub mispredicted: Option<u64>,
    /// How good the data are.
    pub quality: Quality,
    /// What kept blocks out.
    pub block_quality: BlockQuality,
    /// Mappings and files, for names.
    pub maps: Maps,
}

impl Flow {
    /// Counts one recording; `progress` is called now and then with the bytes
    /// read and the bytes of the whole, where known.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn count(
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<Flow, ReadError> {
        FlowCounter::new().count(recording, progress)
    }

    /// Forgets the blocks that cannot have run.
    pub fn drop_contradicted(&mut self) {
        self.blocks.retain(|block| !block.contradicted);
    }

    /// Every taken branch is here: what is counted is the truth.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.quality.is_complete() && self.block_quality.filtered == 0
    }
}
