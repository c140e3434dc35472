//! One line of text: a sample, a mapping, or something beside them.

use lbr_msr::record::{Mmap, Task};
use lbr_msr::text::AsText;

use super::aggregated::{self, Aggregated};
use super::columns::{self, Layout, Reading};
use super::digits::decimal;
use super::entry::{
    first_entry, has_build_id, is_trailing, parse_entry, with_build_ids, with_files,
};
use super::error::{EntryError, LineError};
use super::instruction::{self, BranchCounters};
use super::offsets::{self, Files, Numbers};
use super::{dump, layout, record, run, symbolic};
use crate::read::names::Names;
use crate::read::stack::{RawBranch, SampleHead};

/// What a line of text is.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A sample; its entries were put into the buffer given to [`parse_line`].
    Sample(Box<SampleHead>),
    /// A branch that was counted (aggregated counts).
    Counted {
        /// How often.
        count: u64,
        /// What the line says besides.
        behind: Option<Behind>,
    },
    /// Straight code that ran, without the branches around it: its first byte,
    /// and the branch at its end; and how often (aggregated counts).
    Straight((u64, u64), u64),
    /// How many identical stacks the next sample stands for.
    Count(u64),
    /// A mapping.
    Mmap(Box<Mmap>),
    /// A thread or process began (`--show-task-events`).
    Fork(Task),
    /// A thread ended.
    Exit(Task),
    /// Which process a thread is of (`PERF_RECORD_COMM`).
    Thread {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// The head of a dumped sample (`-D`).
    Dumped(Box<SampleHead>),
    /// The branches of the dumped sample follow.
    DumpedStack,
    /// One of them, newest first.
    DumpedEntry(RawBranch),
    /// A frame of a call chain.
    Frame,
    /// An instruction that ran (`-F brstackinsn`), and what was counted there.
    Instruction(Option<BranchCounters>),
    /// A comment, nothing.
    Other,
}

/// What a line of aggregated counts says behind a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// The same branch, mispredicted, and how often.
    Branch(RawBranch, u64),
    /// The straight code that ran then, as [`Line::Straight`].
    Straight((u64, u64), u64),
}

/// Reads a line. `entries` is cleared and holds the entries of a sample; symbols
/// in place of addresses are added to `names`, which say what the numbers mean
/// that the entries have for them.
///
/// # Errors
/// Why it was refused; the caller knows the line's number.
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

/// What the lines of a text have in common, and what the last one named.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Symbols in place of addresses.
    pub(crate) names: Names,
    pub(crate) layout: Option<Layout>,
    /// What a text of aggregated counts says of predictions.
    pub(crate) aggregated: Option<Aggregated>,
    /// The event of the last sample; empty where nothing says it.
    pub(crate) event: String,
    /// The name of its thread, if somebody wants it.
    pub(crate) comm: String,
    /// Somebody does.
    pub(crate) wants_comm: bool,
    /// The first build id before an address: those of others lie elsewhere.
    pub(crate) build_id: Option<Box<[u8]>>,
    /// The numbers of branches are offsets in the files beside them.
    pub(crate) files: Option<Files>,
    /// Instructions say what was counted at branches.
    pub(crate) has_counts: bool,
    /// Bit by counter: the text names its event.
    pub(crate) counters: u8,
}

impl Context {
    /// Of a text that begins so.
    ///
    /// # Errors
    /// A line that shows that it cannot be read, counted from 1, and why.
    #[cold]
    pub(crate) fn settle(&mut self, head: &[u8]) -> Result<(), (u64, LineError)> {
        self.aggregated = aggregated::settle(head);
        if self.aggregated.is_some() {
            return Ok(());
        }
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

    /// Whether a line of branches alone says all there is of its sample.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.names.is_empty() && !self.has_counts
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

    /// The number of an address in the file of a build id.
    fn place(&mut self, id: &[u8], address: u64) -> Option<u64> {
        if &**self.build_id.get_or_insert_with(|| id.into()) == id {
            return Some(address);
        }
        self.names.number(id, None, address)
    }
}

/// Blanks, and then entries as most are, from the start of `text` on, put into
/// `entries`, which is cleared. Gives where they end, 0 where there are none.
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

/// Reads the line that is the first `len` bytes of `text`. Of those the first
/// `begun` are entries, and lie in `entries`.
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
        // What stands behind the line is not read: no entry has its end in it.
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

/// Reads a line that holds no branch.
fn without_branches(line: &[u8], whole: &[u8], context: &mut Context) -> Result<Line, LineError> {
    if let Some(inside) = whole.strip_prefix(b"\t") {
        return Ok(instruction::parse(inside).map_or(Line::Frame, Line::Instruction));
    }
    let text = whole.trim_ascii_start();
    if let Some(dumped) = dump::parse(text) {
        return Ok(dumped);
    }
    // Events beside the samples (--show-task-events and its like), and what
    // dumps say of samples beside their branches.
    let raw = text.starts_with(b".") || find(text, b"]: event: ").is_some();
    if raw || find(text, b"PERF_RECORD_").is_some() {
        let damaged = text.starts_with(b".....") && find(text, b" -> ").is_some();
        return if damaged { Err(LineError::Unknown) } else { Ok(Line::Other) };
    }
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if let Some(count) = decimal(line) {
        return Ok(Line::Count(count));
    }
    match columns::head(line, context.layout, columns::Behind::Nothing) {
        Ok(reading) if !reading.columns.is_empty() => Ok(context.sample(&reading)),
        // The frames of some texts have lost their tab.
        _ if text.iter().all(u8::is_ascii_hexdigit) => Ok(Line::Frame),
        _ => Err(LineError::Unknown),
    }
}

/// Reads a line that has symbols in place of addresses.
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
