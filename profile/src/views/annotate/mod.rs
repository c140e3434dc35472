//! A function with what the recording says about each of its instructions:
//! how often it ran, what its branches did, in how many cycles its blocks ran.
//!
//! Counts come from [blocks](crate::views::flow::Block): each ran from its first
//! instruction to its last. Where every taken branch was recorded they are
//! exact, from the first branch recorded to the last; else they are of the
//! sample as it is, not scaled up.

mod error;
mod find;
mod listing;

use lbr_msr::disasm::Text;
use lbr_msr::record::BranchType;

use crate::clean::interval::Interval;
use crate::code::lines::SourceLine;
use crate::views::cycles::Cycles;

pub use error::FindError;
pub use find::{Hot, Stretch, find, hottest, hottest_one, nothing};
pub use lbr_msr::disasm::Syntax;
pub use listing::annotate;

/// A function as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotated {
    /// Which it is.
    pub function: Stretch,
    /// Its instructions, in the order of addresses.
    pub instructions: Vec<Instruction>,
    /// Blocks that end in it, the most often executed first.
    pub blocks: Vec<Timed>,
    /// Every taken branch was recorded and the code agrees: counts are exact,
    /// from the first branch recorded to the last.
    pub exact: bool,
    /// Blocks in it that its code bytes contradict, each time counted: they are
    /// left out.
    pub contradicted: u64,
    /// Stacks in which not every branch was recorded, anywhere in the
    /// recording: they have no blocks, and so no counts.
    pub filtered: u64,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Address, as the recording's views have it.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// In words; `None` where the bytes are no instruction.
    pub text: Option<Text>,
    /// The symbol that begins here; not the function's own.
    pub label: Option<String>,
    /// Its source line.
    pub source: Option<SourceLine>,
    /// A basic block begins here.
    pub leads: bool,
    /// Times it ran; `None` where no block covers it, unless the recording is
    /// complete.
    pub count: Option<u64>,
    /// What it did as a branch.
    pub branch: Option<Branch>,
}

/// A branch instruction of the function.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// perf's type, from the code.
    pub branch_type: BranchType,
    /// It may fall through.
    pub conditional: bool,
    /// Where it goes if it is direct.
    pub target: Option<Target>,
    /// Times it was recorded as taken.
    pub taken: u64,
    /// Times it was passed in the blocks that are known.
    pub not_taken: u64,
    /// Taken of executed, 0 to 1: of a conditional branch, over the entries
    /// for which both outcomes had the same chance to be seen.
    pub taken_share: Option<f64>,
    /// Its 95 % interval, by stack; `None` where it is exact or stacks are few.
    pub taken_interval: Option<Interval>,
    /// Taken entries that are known to be predicted or not.
    pub known: u64,
    /// How many of them were mispredicted; `None` where none is known.
    pub mispredicted: Option<u64>,
    /// 95 % interval of the rate; as above.
    pub mispredict_interval: Option<Interval>,
    /// Where it was seen to go, the most frequent first.
    pub went: Vec<Went>,
}

/// A place that a branch goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address, as the recording's views have it.
    pub address: u64,
    /// Index of the instruction, where it is one of the function's.
    pub inside: Option<usize>,
    /// Symbol, and bytes from its start.
    pub name: Option<(String, u64)>,
}

/// A target that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Went {
    /// Which.
    pub target: Target,
    /// How often.
    pub count: u64,
}

/// Straight code that ran from a branch's target to the next branch taken, and
/// its cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Address of its first instruction.
    pub entry: u64,
    /// Address of the branch that left it.
    pub exit: u64,
    /// Index of the instruction at `entry`; `None` where it is before the
    /// function.
    pub first: Option<usize>,
    /// Index of the instruction at `exit`.
    pub last: usize,
    /// Instructions from entry to exit; `None` where the code contradicts it.
    pub instructions: Option<u64>,
    /// Times it ran.
    pub count: u64,
    /// Core cycles, over the runs that have them.
    pub cycles: Cycles,
}

impl Timed {
    /// Mean of the cycles; `None` where none are known.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let n = self.cycles.n();
        let sum: f64 = self.cycles.iter().map(|(cycles, n)| f64::from(cycles) * n as f64).sum();
        (n > 0).then(|| sum / n as f64)
    }

    /// Instructions per core cycle: those of the block through the mean of its
    /// cycles. An upper bound where cycles are saturated.
    #[must_use]
    pub fn ipc(&self) -> Option<f64> {
        let mean = self.mean().filter(|mean| *mean > 0.0)?;
        self.instructions.map(|count| count as f64 / mean)
    }
}

/// A basic block of the function: instructions that run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Index of its first instruction.
    pub first: usize,
    /// Index behind its last.
    pub end: usize,
    /// Times it ran; as [`Instruction::count`].
    pub count: Option<u64>,
}

impl Annotated {
    /// Its basic blocks, in the order of addresses.
    #[must_use]
    pub fn basic_blocks(&self) -> Vec<BasicBlock> {
        let leads = |(_, insn): &(usize, &Instruction)| insn.leads;
        let starts: Vec<usize> =
            self.instructions.iter().enumerate().filter(leads).map(|(at, _)| at).collect();
        let ends = starts.iter().copied().skip(1).chain([self.instructions.len()]);
        let blocks = starts.iter().copied().zip(ends).map(|(first, end)| {
            let count = self.instructions.get(first).and_then(|insn| insn.count);
            BasicBlock { first, end, count }
        });
        blocks.collect()
    }

    /// The block to show at each instruction: of those that end there, the
    /// one with the most cycle counts, else the one that ran most often.
    #[must_use]
    pub fn blocks_by_end(&self) -> Vec<Option<&Timed>> {
        let mut ending: Vec<Option<&Timed>> = vec![None; self.instructions.len()];
        for block in &self.blocks {
            let Some(shown) = ending.get_mut(block.last) else { continue };
            let weight = |block: &Timed| (block.cycles.n(), block.count);
            if shown.is_none_or(|shown| weight(block) > weight(shown)) {
                *shown = Some(block);
            }
        }
        ending
    }

    /// How often its hottest instruction ran.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.instructions.iter().filter_map(|insn| insn.count).max().unwrap_or(0)
    }

    /// Instructions executed in it, as far as counted.
    #[must_use]
    pub fn executed(&self) -> u64 {
        let counts = self.instructions.iter().filter_map(|insn| insn.count);
        counts.fold(0, u64::saturating_add)
    }
}
