//! One line of text: a sample, a mapping, or something else.

use lbr_msr::record::{Comm, Mmap, Task};
use lbr_msr::text::AsText;

use super::aggregated::{self, Aggregated};
use super::columns::{self, Column, Layout, Reading};
use super::digits::decimal;
use super::entry::{
    first_entry, has_build_id, is_trailing, parse_entry, with_build_ids, with_files,
};
use super::error::{EntryError, LineError};
use super::instruction::{self, BranchCounters};
use super::offsets::{self, Files, Numbers};
use super::split::{self, Split, Starts};
use super::{dump, layout, record, run, symbolic, words};
use crate::read::names::Names;
use crate::read::stack::{RawBranch, SampleHead};

/// A parsed line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A sample; its entries were put into the buffer given to [`parse_line`].
    Sample(Box<SampleHead>),
    /// A branch with a count (aggregated counts).
    Counted {
        /// Its count.
        count: u64,
        /// Further data of the line.
        behind: Option<Behind>,
    },
    /// A fall-through range without the branches around it: its first byte, the branch at its end,
    /// and its count (aggregated counts).
    Straight((u64, u64), u64),
    /// The number of identical stacks that the next sample represents.
    Count(u64),
    /// A mapping.
    Mmap(Box<Mmap>),
    /// A thread or process started (`--show-task-events`).
    Fork(Task),
    /// A thread ended.
    Exit(Task),
    /// The process of a thread (`PERF_RECORD_COMM`).
    /// The process.
    /// The thread.
    Comm(Comm),
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

/// Further data after a branch in a line of aggregated counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The same branch, mispredicted, and its count.
    Branch(RawBranch, u64),
    /// The following fall-through range, as [`Line::Straight`].
    Straight((u64, u64), u64),
}

/// Parses a line. `entries` is cleared and filled with a sample's entries; symbols are added to
/// `names`, which maps the numbers that replace addresses in such entries.
///
/// # Errors
/// Why it was refused; the caller knows the line number.
pub fn parse_line(
    line: &[u8],
    entries: &mut Vec<RawBranch>,
    names: &mut Names,
) -> Result<Line, LineError> {
    entries.clear();
    let mut context = Context { names: std::mem::take(names), ..Context::default() };
    let found = parse(line, line.len(), 0, entries, &mut context);
    *names = context.names;
    found
}

/// The common properties of a text's lines, and the names in the last line.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Symbols that replace addresses.
    pub(crate) names: Names,
    pub(crate) layout: Option<Layout>,
    /// State of a text of aggregated counts.
    pub(crate) aggregated: Option<Aggregated>,
    /// The event of the last sample; empty if unknown.
    pub(crate) event: String,
    /// The name of its thread, if `wants_comm`.
    pub(crate) comm: String,
    /// Whether the caller needs names of threads.
    pub(crate) wants_comm: bool,
    /// The first build ID before an address: addresses with other IDs are in other files.
    pub(crate) build_id: Option<Box<[u8]>>,
    /// Set if the numbers of branches are file offsets.
    pub(crate) files: Option<Files>,
    /// Whether instructions have counts.
    pub(crate) has_counts: bool,
    /// Set if the entries of a stack are in several lines.
    pub(crate) split: Option<Split>,
    /// Bitmap of the counters whose event the text names.
    pub(crate) counters: u8,
}

impl Context {
    /// Finds the properties of a text that starts like this.
    ///
    /// # Errors
    /// The number, from 1, of a line that shows that the text is unreadable, and why.
    #[cold]
    pub(crate) fn settle(&mut self, head: &[u8]) -> Result<(), (u64, LineError)> {
        self.aggregated = aggregated::settle(head);
        if self.aggregated.is_some() {
            return Ok(());
        }
        let mut apart = Context { split: Some(Split::HEADS), ..Context::default() };
        let split = split::find(head, &mut apart);
        self.split = split.map_err(|line| (line, LineError::Split))?;
        self.has_counts = instruction::are_in(head);
        self.layout = layout::settle(head).map_err(|line| (line, LineError::Ambiguous))?;
        let mut apart = Context { layout: self.layout, ..Context::default() };
        self.files = match offsets::find(head, &mut apart) {
            Numbers::Addresses => None,
            Numbers::InFiles(files) => Some(files),
            Numbers::Offsets { line } => return Err((line, LineError::Offsets)),
        };
        Ok(())
    }

    /// Whether a line of branches is a complete sample.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.names.is_empty() && !self.has_counts && self.split.is_none()
    }

    fn sample(&mut self, reading: &Reading<'_>) -> Line {
        let name = |into: &mut String, bytes: &[u8]| {
            into.clear();
            into.push_str(&bytes.as_text());
        };
        name(&mut self.event, reading.event);
        name(&mut self.comm, if self.wants_comm { reading.comm } else { b"" });
        Line::Sample(Box::new(reading.head))
    }

    /// The number for an address in the file with a build ID.
    fn place(&mut self, id: &[u8], address: u64) -> Option<u64> {
        if &**self.build_id.get_or_insert_with(|| id.into()) == id {
            return Some(address);
        }
        self.names.number(id, None, address)
    }
}

/// Parses leading spaces and common entries of `text` into `entries`, which is cleared. Returns
/// their end, 0 if there are none.
#[inline]
pub(crate) fn begin(text: &[u8], entries: &mut Vec<RawBranch>) -> usize {
    entries.clear();
    let blanks = text.iter().take_while(|byte| **byte == b' ').count();
    match text.get(blanks..).filter(|rest| rest.starts_with(b"0x")) {
        Some(rest) => match run::common(rest, entries) {
            0 => 0,
            len => blanks + len,
        },
        None => 0,
    }
}

/// Parses the line in the first `len` bytes of `text`. Its first `begun` bytes are already parsed
/// into `entries`.
pub(crate) fn parse(
    text: &[u8],
    len: usize,
    begun: usize,
    entries: &mut Vec<RawBranch>,
    context: &mut Context,
) -> Result<Line, LineError> {
    let line = text.get(..len).unwrap_or(text);
    let end = line.trim_ascii_end().len();
    let whole = line.get(..end).unwrap_or_default();
    let mut at = begun;
    let mut head: &[u8] = &[];
    if begun == 0 {
        let begin = whole.trim_ascii_start();
        if begin.first().is_none_or(|byte| b"#;|".contains(byte)) || begin.starts_with(b"//") {
            context.counters |= instruction::legend(begin).map_or(0, |counter| 1 << counter);
            return Ok(Line::Other);
        }
        if let Some(aggregated) = context.aggregated {
            return aggregated.parse(whole, entries, context);
        }
        let first = first_entry(whole).unwrap_or(end);
        head = line.get(..first).unwrap_or(line);
        if let Some(record) = find(head, b"PERF_RECORD_").and_then(|at| whole.get(at..))
            && let Some(line) = record::parse(record)
        {
            return line;
        }
        if symbolic::fields(head).is_some() {
            return by_name(whole, entries, context);
        }
        at = first;
    }
    loop {
        // Stops at the end of the line, which no entry contains.
        at += text.get(at..).map_or(0, |text| run::common(text, entries));
        let rest = line.get(at..end).unwrap_or_default().trim_ascii_start();
        if rest.is_empty() || !entries.is_empty() && is_trailing(rest) {
            break;
        }
        let behind = match (&context.files, parse_entry(rest)) {
            (_, Err(EntryError::Address)) if has_build_id(rest) => {
                with_build_ids(rest, |id, address| context.place(id, address))
            }
            (Some(files), Ok(_)) => {
                with_files(rest, |path, number| files.number(path, number, &mut context.names))
            }
            (_, found) => found,
        };
        let behind = match behind {
            Ok((branch, behind)) => {
                entries.push(branch);
                behind
            }
            Err(_) if symbolic::looks_symbolic(rest) => return by_name(whole, entries, context),
            Err(error) => return Err(LineError::Entry { index: entries.len() + 1, error }),
        };
        at = end - behind.trim_ascii_start().len();
    }
    if !entries.is_empty() {
        let reading = columns::head(head, context.layout, columns::Behind::Entries)?;
        return Ok(context.sample(&reading));
    }
    without_branches(line, whole, context)
}

/// Parses a line without branches.
fn without_branches(line: &[u8], whole: &[u8], context: &mut Context) -> Result<Line, LineError> {
    if let Some(inside) = whole.strip_prefix(b"\t") {
        return Ok(instruction::parse(inside).map_or(Line::Frame, Line::Instruction));
    }
    let text = whole.trim_ascii_start();
    if let Some(dumped) = dump::parse(text) {
        return Ok(dumped);
    }
    // Events besides samples (--show-task-events etc.), and what dumps print of samples besides
    // their branches.
    let raw = text.starts_with(b".") || find(text, b"]: event: ").is_some();
    if raw || find(text, b"PERF_RECORD_").is_some() {
        let damaged = text.starts_with(b".....") && find(text, b" -> ").is_some();
        return if damaged { Err(LineError::Unknown) } else { Ok(Line::Other) };
    }
    if context.split.is_some_and(|split| split.starts == Starts::Ip)
        && let Some(ip) = words::hex(text)
    {
        return Ok(Line::Sample(Box::new(SampleHead { ip: Some(ip), ..SampleHead::default() })));
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if let Some(count) = decimal(line) {
        return Ok(Line::Count(count));
    }
    match columns::head(line, context.layout, columns::Behind::Nothing) {
        Ok(reading) if !reading.columns.is_empty() => Ok(context.sample(&reading)),
        // Where branches follow, columns need not be aligned.
        _ if context.split == Some(Split::HEADS)
            && let Ok(reading) = columns::head(line, context.layout, columns::Behind::Entries)
            && reading.columns.has(Column::Time) | reading.columns.has(Column::Task) =>
        {
            Ok(context.sample(&reading))
        }
        // The frames of some texts have lost their tab.
        _ if text.iter().all(u8::is_ascii_hexdigit) => Ok(Line::Frame),
        _ => Err(LineError::Unknown),
    }
}

/// Parses a line with symbols instead of addresses.
fn by_name(
    line: &[u8],
    entries: &mut Vec<RawBranch>,
    context: &mut Context,
) -> Result<Line, LineError> {
    let found = symbolic::entries(line, context.layout, entries, &mut context.names);
    let reading = found.inspect_err(|_| entries.clear())?;
    Ok(context.sample(&reading))
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}
