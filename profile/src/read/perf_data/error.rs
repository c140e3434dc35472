//! Errors of reading a recording.

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
        /// The system's error message.
        cause: std::io::Error,
    },
    /// Reading failed.
    #[error("reading failed at byte {offset}: {cause}")]
    Io {
        /// The offset.
        offset: u64,
        /// The system's error message.
        cause: std::io::Error,
    },
    /// The header is invalid, in this way.
    #[error("damaged perf.data header: {0}")]
    Header(String),
    /// No event of the file has branch stacks; the names of its events.
    #[error("holds no branch stacks (events: {0}); record with perf record -b, or lbr record")]
    NoBranchStacks(String),
    /// It cannot be decompressed at all; the decompressor's error message.
    #[error("cannot be unpacked: {0}")]
    Packed(std::io::Error),
    /// A folder, not a file.
    #[error("is a directory; a recording is one file (of perf record --threads: the files in it)")]
    Directory,
    /// The whole file is compressed in an unsupported format, which this program decompresses.
    #[error("is compressed by {0}; unpack it into a pipe: {0} -dc FILE | lbr report -i -")]
    Wrapped(&'static str),
    /// The whole file is text in UTF-16.
    #[error(
        "is text in UTF-16, as PowerShell writes it: iconv -f UTF-16 -t UTF-8 FILE | lbr report -i -"
    )]
    Utf16,
    /// It is text with branches, but none can be parsed.
    #[error("holds no branches: line {number}: {error}")]
    NoLine {
        /// The first such line.
        number: u64,
        /// Its error.
        error: crate::read::brstack::LineError,
    },
    /// It is text that cannot be interpreted.
    #[error("line {number}: {error}")]
    Line {
        /// The line that shows it.
        number: u64,
        /// Its error, and what to do.
        error: crate::read::brstack::LineError,
    },
    /// Most of the text is something else.
    #[error(
        "{lines} of {of} lines are not perf script output: print the samples alone, as \
         perf script -F ip,brstack does"
    )]
    Prose {
        /// Lines of anything else.
        lines: u64,
        /// Number of lines that are neither empty nor comments.
        of: u64,
    },
    /// It is neither perf.data nor text with branches.
    #[error("not a recording with branches: neither perf.data nor perf script -F brstack text")]
    NoBranches,
}

/// Whether a read error means truncated or damaged data: decompressors' errors have no errno,
/// unlike a failed read.
pub(crate) fn is_damage(error: &std::io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() != std::io::ErrorKind::OutOfMemory
}

/// Anomalies of a recording that affect its results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The data ends here, inside a record or before its announced end: the rest is missing.
    pub cut_at: Option<u64>,
    /// The recorder did not finish the file, so its data length is unknown.
    pub unfinished: bool,
    /// Records that are shorter than announced; they were skipped.
    pub malformed: u64,
    /// Offset of the first of them.
    pub first_malformed: Option<u64>,
    /// Samples of events that the file does not describe; they were skipped.
    pub unknown_event: u64,
    /// The text has samples of several threads without their processes: branches are counted by
    /// address.
    pub processes_unsaid: bool,
    /// The text's branches have file offsets: their addresses are unknown.
    pub offsets_in_files: bool,
    /// Lines of aggregated counts with fall-through ranges: they count as blocks, but the branches
    /// around them are unknown.
    pub straights: u64,
    /// Dumped stacks that announce another number of branches than they have.
    pub short: u64,
    /// The line of the first of them.
    pub first_short: Option<u64>,
    /// Neighbouring branches of the text's stacks, if none of them join.
    pub unjoined: u64,
    /// The text's entries are in separate lines, and form stacks as far as they join.
    pub guessed: bool,
    /// Reading was stopped on request: the rest is missing.
    pub stopped: bool,
}
