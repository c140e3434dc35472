//! What can be wrong with a line of text.

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// An address is no hexadecimal number of at most 64 bits.
    #[error("an address is not 0x and up to 16 hexadecimal digits")]
    Address,
    /// An end of a branch is no place, in an entry that has symbols.
    #[error("neither an address nor a symbol with its offset (main+0x1c) nor [unknown]")]
    NoPlace,
    /// An address that no CPU has, among symbols.
    #[error("an address that no CPU has")]
    Impossible,
    /// It may be either.
    #[error("a number that may be an address or an offset in its file")]
    AddressOrOffset,
    /// There is no second address.
    #[error("the second address is missing")]
    NoTarget,
    /// The prediction is not one of M, P, - with or without N.
    #[error("the prediction is none of M, P, -, MN, PN")]
    Prediction,
    /// The transaction field is not X or -.
    #[error("the transaction field is neither X nor -")]
    Transaction,
    /// The abort field is not A or -.
    #[error("the abort field is neither A nor -")]
    Abort,
    /// The cycles are no number.
    #[error("the cycles are not a decimal number")]
    Cycles,
    /// There are more fields than any perf prints, or a field count that none has.
    #[error("it has {0} fields; perf prints 2, 6, 7 or 8")]
    Fields(usize),
}

/// Why a line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// One of its entries is none.
    #[error("branch {index}: {error}")]
    Entry {
        /// Which, counted from 1.
        index: usize,
        /// What is wrong with it.
        error: EntryError,
    },
    /// A PERF_RECORD_MMAP2 line that does not look like one.
    #[error("not a complete PERF_RECORD_MMAP line")]
    Mmap,
    /// Longer than any line that perf script prints.
    #[error("longer than 1 MiB")]
    TooLong,
    /// Its columns can be read in several ways, which differ in what they say.
    #[error(
        "a number before the branches may be a process, a thread or a period, because its blanks were cut; \
         print it as perf does, or with perf script -F pid,tid,time,period,event,ip,brstack"
    )]
    Ambiguous,
    /// Offsets in files in place of addresses, as far as one can tell.
    #[error(
        "the numbers of the branches seem to be offsets in files, and no addresses (-F brstackoff): they \
         lie where nothing is known to have run; print addresses with perf script -F ip,brstack"
    )]
    Offsets,
    /// Instructions, which do not say where a branch went to.
    #[error(
        "instructions without their branches (-F brstackinsn), which leave out what perf could not \
         read; print both with perf script -F +brstack,+brstackinsn"
    )]
    Instructions,
    /// Neither branches nor anything that goes with them.
    #[error("neither branches nor anything that perf script prints beside them")]
    Unknown,
}
