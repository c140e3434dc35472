//! What can be wrong with a recording.

use lbr_msr::text::AsText;
use std::path::PathBuf;

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be opened.
    #[error("cannot open {}: {cause}", path.as_text())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// Reading failed.
    #[error("reading failed at byte {offset}: {cause}")]
    Io {
        /// Where.
        offset: u64,
        /// The system's words.
        cause: std::io::Error,
    },
    /// It does not begin with perf's magic.
    #[error("not a perf.data file: it does not begin with PERFILE2")]
    NotPerfData,
    /// The header makes no sense.
    #[error("damaged perf.data header: {what}")]
    Header {
        /// What about it.
        what: String,
    },
    /// No event of the file has branch stacks.
    #[error("holds no branch stacks (events: {events}); record with perf record -b, or lbr record")]
    NoBranchStacks {
        /// Names of the events.
        events: String,
    },
    /// It cannot be unpacked: not one byte of what it holds can be read.
    #[error("cannot be unpacked: {cause}")]
    Packed {
        /// The decompressor's words.
        cause: std::io::Error,
    },
    /// A folder, not a file.
    #[error("is a directory; a recording is one file (of perf record --threads: the files in it)")]
    Directory,
    /// The whole file is compressed in a way that is not read.
    #[error("is compressed by {by}; unpack it into a pipe: {by} -dc FILE | lbr report -i -")]
    Wrapped {
        /// The program that unpacks it.
        by: &'static str,
    },
    /// The whole file is text in UTF-16.
    #[error(
        "is text in UTF-16, as PowerShell writes it: iconv -f UTF-16 -t UTF-8 FILE | lbr report -i -"
    )]
    Utf16,
    /// It is text that was meant to hold branches, and not one can be read.
    #[error("holds no branches: line {number}: {error}")]
    NoLine {
        /// The first line that was meant so.
        number: u64,
        /// What is wrong with it.
        error: crate::read::brstack::LineError,
    },
    /// It is text that cannot be read as what it says.
    #[error("line {number}: {error}")]
    Line {
        /// The line that shows it.
        number: u64,
        /// What is wrong with it, and what to do.
        error: crate::read::brstack::LineError,
    },
    /// It is neither perf.data nor text with branches.
    #[error(
        "holds no branches: neither perf.data nor text of perf script -F brstack (perf record -b, \
         then perf script -F +brstack, prints them)"
    )]
    NoBranches,
}

/// Whether a stream broke because what it holds is cut or damaged: the
/// decompressors have no number of the system, which a failed read has.
pub(crate) fn is_damage(error: &std::io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() != std::io::ErrorKind::OutOfMemory
}

/// What was odd about a recording, for the person who trusts its numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The data end here, in the middle of a record or before their announced
    /// end: what comes after is missing.
    pub cut_at: Option<u64>,
    /// The recorder never finished the file: it has no length of its data.
    pub unfinished: bool,
    /// Records that announce more than they hold; they were skipped.
    pub malformed: u64,
    /// Where the first of them stands.
    pub first_malformed: Option<u64>,
    /// Samples of events that the file does not describe; they were skipped.
    pub unknown_event: u64,
    /// Samples of events without branch stacks; they were skipped.
    pub without_branches: u64,
    /// Text has samples of several threads, and does not say of which processes:
    /// their branches are counted by address.
    pub processes_unsaid: bool,
    /// Branches of text lead from and to offsets in files: their addresses are
    /// not known.
    pub offsets_in_files: bool,
    /// Lines of aggregated counts with straight code: it counts where blocks do,
    /// and nobody knows of the branches around it.
    pub straights: u64,
    /// Reading was stopped by whoever asked for it: what follows is missing.
    pub stopped: bool,
}
