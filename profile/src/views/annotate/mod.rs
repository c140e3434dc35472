//! A function with the data for each of its instructions: how often it ran, its branch outcomes,
//! and the cycles of its blocks.
//!
//! Counts come from [blocks](crate::views::flow::Block): each ran from its first instruction to its
//! last. If every taken branch was recorded, they are exact, from the first recorded branch to the
//! last; otherwise they are the sample's counts, not scaled up.

mod error;
mod find;
mod graph;
mod listing;

use lbr_msr::disasm::Text;
use lbr_msr::insn::Isa;
use lbr_msr::record::BranchType;

use crate::clean::interval::Interval;
use crate::code::lines::SourceLine;
use crate::views::cycles::Cycles;

pub use error::FindError;
pub use find::{Hot, Stretch, find, hottest, hottest_one, nothing};
pub use graph::{Edge, EdgeKind, Graph, Node};
use lbr_msr::disasm::Disassembler;
pub use lbr_msr::disasm::Syntax;
pub use listing::annotate;

/// A function as data.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotated {
    /// The function.
    pub function: Stretch,
    /// Its instruction set.
    pub isa: Isa,
    /// Its instructions, in address order.
    pub instructions: Vec<Instruction>,
    /// Blocks that end in it, most executed first.
    pub blocks: Vec<Timed>,
    /// Whether every taken branch was recorded and matches the code: counts are then exact, from
    /// the first recorded branch to the last.
    pub exact: bool,
    /// Executions of blocks that its code bytes contradict: excluded.
    pub contradicted: u64,
    /// Stacks, anywhere in the recording, that lack some branches: they have no blocks, so they add
    /// no counts.
    pub filtered: u64,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Address, as in the recording's other views.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// As assembly text; `None` if the bytes are not an instruction.
    pub text: Option<Text>,
    /// The symbol that starts here, except the function's own.
    pub label: Option<String>,
    /// Its source line.
    pub source: Option<SourceLine>,
    /// Whether a basic block starts here.
    pub leads: bool,
    /// Executions; `None` if no block covers it, unless the recording is complete.
    pub count: Option<u64>,
    /// Its data as a branch.
    pub branch: Option<Branch>,
}

/// A branch instruction of the function.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// perf's type, from the code.
    pub branch_type: BranchType,
    /// Whether it can fall through.
    pub conditional: bool,
    /// The target of a direct branch.
    pub target: Option<Target>,
    /// Times taken.
    pub taken: u64,
    /// Times not taken, in known blocks.
    pub not_taken: u64,
    /// Taken of executed, 0 to 1. For a conditional branch, over the entries for which both
    /// outcomes were equally observable.
    pub taken_share: Option<f64>,
    /// Its 95% interval, by stack; `None` if it is exact or there are too few stacks.
    pub taken_interval: Option<Interval>,
    /// Taken entries with a known prediction.
    pub known: u64,
    /// Mispredicted ones among them; `None` if none is known.
    pub mispredicted: Option<u64>,
    /// 95% interval of the rate, as above.
    pub mispredict_interval: Option<Interval>,
    /// Recorded targets, most frequent first.
    pub went: Vec<Went>,
}

/// A branch target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address, as in the recording's other views.
    pub address: u64,
    /// Index of the instruction, if it is in the function.
    pub inside: Option<usize>,
    /// Symbol, and bytes from its start.
    pub name: Option<(String, u64)>,
}

/// A recorded target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Went {
    /// The target.
    pub target: Target,
    /// Its count.
    pub count: u64,
}

/// A fall-through range from a branch's target to the next taken branch, and its cycles.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Address of its first instruction.
    pub entry: u64,
    /// Address of the branch at its end.
    pub exit: u64,
    /// Index of the instruction at `entry`; `None` if it is before the function.
    pub first: Option<usize>,
    /// Index of the instruction at `exit`.
    pub last: usize,
    /// Instructions from entry to exit; `None` if the code contradicts it.
    pub instructions: Option<u64>,
    /// Executions.
    pub count: u64,
    /// Core cycles, of the executions with a cycle count.
    pub cycles: Cycles,
    /// Sums of the events of each counter, as [`Block::counters`](crate::views::flow::Block).
    pub counters: Option<Box<[Option<u64>; 4]>>,
}

impl Timed {
    /// Mean of the cycles; `None` if none are known.
    pub fn mean(&self) -> Option<f64> {
        let n = self.cycles.n();
        let sum: f64 = self.cycles.iter().map(|(cycles, n)| f64::from(cycles) * n as f64).sum();
        (n > 0).then(|| sum / n as f64)
    }

    /// Instructions per core cycle: the block's instructions divided by its mean cycles. An upper
    /// bound if cycles are saturated.
    pub fn ipc(&self) -> Option<f64> {
        Some(self.instructions? as f64 / self.mean()?)
    }
}

/// A basic block of the function: instructions that always run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasicBlock {
    /// Index of its first instruction.
    pub first: usize,
    /// Index after its last instruction.
    pub end: usize,
    /// Executions, as [`Instruction::count`].
    pub count: Option<u64>,
}

impl Annotated {
    /// The same code at its addresses in the file, as objdump prints it.
    #[must_use]
    pub fn at_file_addresses(mut self, syntax: Syntax) -> Annotated {
        let shift = self.function.address.wrapping_sub(self.function.file_address);
        if shift == 0 {
            return self;
        }
        let moved = |address: &mut u64| *address = address.wrapping_sub(shift);
        let mut disasm = Disassembler::of(self.isa, syntax);
        moved(&mut self.function.address);
        for insn in &mut self.instructions {
            moved(&mut insn.address);
            if insn.text.is_some() {
                insn.text = disasm.text(&insn.bytes, insn.address);
            }
            let Some(branch) = &mut insn.branch else { continue };
            // Other files are mapped at other distances.
            let own = branch.went.iter_mut().map(|went| &mut went.target);
            let own = own.filter(|target| target.inside.is_some());
            own.chain(&mut branch.target).for_each(|target| moved(&mut target.address));
        }
        for block in &mut self.blocks {
            moved(&mut block.entry);
            moved(&mut block.exit);
        }
        self
    }

    /// Its basic blocks, in address order.
    pub fn basic_blocks(&self) -> Vec<BasicBlock> {
        let starts = (0..self.instructions.len()).filter(|at| self.instructions[*at].leads);
        let ends = starts.clone().skip(1).chain([self.instructions.len()]);
        let block = |(first, end)| BasicBlock { first, end, count: self.instructions[first].count };
        starts.zip(ends).map(block).collect()
    }

    /// The block to show at each instruction: of those ending there, the one with the most cycle
    /// counts, or else the most executed one.
    pub fn blocks_by_end(&self) -> Vec<Option<&Timed>> {
        let mut ending: Vec<Option<&Timed>> = vec![None; self.instructions.len()];
        for block in &self.blocks {
            let Some(shown) = ending.get_mut(block.last) else { continue };
            // The more executed one comes first.
            if shown.is_none_or(|shown| block.cycles.n() > shown.cycles.n()) {
                *shown = Some(block);
            }
        }
        ending
    }

    /// Executions of its hottest instruction.
    pub fn peak(&self) -> u64 {
        self.instructions.iter().filter_map(|insn| insn.count).max().unwrap_or(0)
    }

    /// Instructions executed in it, of those counted.
    pub fn executed(&self) -> u64 {
        let counts = self.instructions.iter().filter_map(|insn| insn.count);
        counts.fold(0, u64::saturating_add)
    }
}
