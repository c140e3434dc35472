//! The content of a line, and why a line is refused.

use lbr_msr::record::Event;

use crate::read::stack::{RawBranch, SampleHead};

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A sample; its entries were put into the buffer given to the parser.
    Sample(Box<SampleHead>),
    /// A branch with a count (aggregated counts).
    Counted {
        /// Its count.
        count: u64,
        /// A second count in the line.
        second: Option<SecondCount>,
    },
    /// A fall-through range without the branches around it: its first byte, the branch at its end,
    /// and its count (aggregated counts).
    Straight((u64, u64), u64),
    /// The number of identical stacks that the next sample represents.
    Count(u64),
    /// A mapping, or the name, start or end of a thread (`--show-mmap-events`,
    /// `--show-task-events`).
    Event(Event),
    /// The head of a dumped sample (`-D`).
    Dumped(Box<SampleHead>),
    /// This number of branches of the dumped sample follows.
    DumpedStack(u64),
    /// A dumped branch and its index, newest first.
    DumpedEntry(u64, RawBranch),
    /// A frame of a call chain.
    Frame,
    /// An executed instruction (`-F brstackinsn`), and the counts logged there.
    Instruction(Option<BranchCounters>),
    /// A comment, or an empty line.
    Other,
}

/// The second count of a line of aggregated counts, next to that of its branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondCount {
    /// The same branch, mispredicted, and its count.
    Branch(RawBranch, u64),
    /// The following fall-through range, as [`Line::Straight`].
    Straight((u64, u64), u64),
}

/// The counts logged with a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchCounters {
    /// Its address.
    pub at: u64,
    /// Two bits per counter, the first counter lowest.
    pub word: u64,
}

/// An error in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// An address is not a hexadecimal number of at most 64 bits.
    #[error("an address is not 0x and up to 16 hexadecimal digits")]
    Address,
    /// An end of a branch is not an address or symbol, in an entry with symbols.
    #[error("neither an address nor a symbol with its offset (main+0x1c) nor [unknown]")]
    NoPlace,
    /// An impossible address among symbols.
    #[error("an impossible address (not canonical)")]
    Impossible,
    /// An ambiguous number.
    #[error("a number that may be an address or a file offset")]
    AddressOrOffset,
    /// The second address is missing.
    #[error("the second address is missing")]
    NoTarget,
    /// The prediction is not one of M, P, - with or without N.
    #[error("the prediction is not one of M, P, -, MN, PN")]
    Prediction,
    /// The transaction field is not X or -.
    #[error("the transaction field is neither X nor -")]
    Transaction,
    /// The abort field is not A or -.
    #[error("the abort field is neither A nor -")]
    Abort,
    /// The cycles are not a number.
    #[error("the cycles are not a decimal number")]
    Cycles,
    /// The number of fields matches no version of perf.
    #[error("it has {0} fields; perf prints 2, 6, 7 or 8")]
    Fields(usize),
}

/// Why a line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// An invalid entry.
    #[error("branch {index}: {error}")]
    Entry {
        /// Its index, from 1.
        index: usize,
        /// Its error.
        error: EntryError,
    },
    /// A PERF_RECORD_MMAP2 line that does not look like one.
    #[error("not a complete PERF_RECORD_MMAP line")]
    Mmap,
    /// Longer than any line that perf script prints.
    #[error("longer than 1 MiB")]
    TooLong,
    /// The columns are ambiguous.
    #[error(
        "a number before the branches may be a process, a thread or a period, because spaces were removed; \
         print it as perf does, or with perf script -F pid,tid,time,period,event,ip,brstack"
    )]
    Ambiguous,
    /// Probably file offsets instead of addresses.
    #[error(
        "the branches seem to hold file offsets instead of addresses (-F brstackoff): they \
         do not match any known code; print addresses with perf script -F ip,brstack"
    )]
    Offsets,
    /// Instructions without branch targets.
    #[error(
        "instructions without their branches (-F brstackinsn), which omit code that perf could not \
         read; print both with perf script -F +brstack,+brstackinsn"
    )]
    Instructions,
    /// The entries of one stack, each in a line.
    #[error(
        "the entries of stacks are in lines of their own, and where a stack starts is unknown; print \
         each stack in one line, as perf script -F ip,brstack does"
    )]
    Split,
    /// A dumped branch whose number is not the next one.
    #[error("not the next branch of its stack")]
    NotNext,
    /// Neither branches nor any other known output.
    #[error("not a line that perf script prints for samples with branches")]
    Unknown,
}
