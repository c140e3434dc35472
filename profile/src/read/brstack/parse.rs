//! Parses a line of text.

use std::collections::BTreeSet;

use lbr_msr::text::AsText;
use memchr::memmem::find;

use super::aggregated::Aggregated;
use super::columns::{self, AfterColumns, Column, Layout, Reading};
use super::entry::{End, ends_and_flags, first_entry, is_trailing};
use super::line::{EntryError, Line, LineError};
use super::{records, run, symbolic, words};
use crate::read::KERNEL;
use crate::read::names::Names;
use crate::read::stack::{RawBranch, SampleHead};

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

    /// The number for an end of a branch. An address with another build ID than the first is in
    /// another file.
    fn place(&mut self, End { id, address, path }: End<'_>) -> Result<u64, EntryError> {
        match (id, &self.files, path) {
            (Some(id), ..) if &**self.build_id.get_or_insert_with(|| id.into()) != id => {
                self.names.number(id, None, address).ok_or(EntryError::Impossible)
            }
            (None, Some(files), Some(path)) => files.number(path, address, &mut self.names),
            _ => Ok(address),
        }
    }
}

/// The lowest address of a linked program.
pub(super) const LOWEST: u64 = 0x20_0000;

/// The files for which a text has offsets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// Programs that are position-independent.
    pub(super) movable: BTreeSet<Box<[u8]>>,
    /// Whether all programs are.
    pub(super) all: bool,
}

impl Files {
    /// The number for a byte of a file; addresses are kept.
    fn number(&self, path: &[u8], number: u64, names: &mut Names) -> Result<u64, EntryError> {
        if number == 0 || number >= KERNEL || path == b"[unknown]" {
            return Ok(number);
        }
        let is_program = !path.starts_with(b"[") && !is_library(path);
        if is_program && number >= LOWEST && !self.all && !self.movable.contains(path) {
            return Err(EntryError::AddressOrOffset);
        }
        names.in_file(path, number).ok_or(EntryError::Impossible)
    }
}

pub(super) fn is_library(path: &[u8]) -> bool {
    find(path, b".so").is_some()
}

/// Where the stacks of a text start whose entries are in several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starts {
    /// At each line with the columns of a sample.
    Head,
    /// At each line with the sampled address alone, as `tr` leaves it.
    Ip,
    /// After this number of empty lines.
    Gap(usize),
    /// At each indented line.
    Indent,
    /// After this number of entries, and after any other line. The entries between must join.
    Every(usize),
    /// After any other line. The entries between must join.
    Once,
}

/// The layout of such a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) starts: Starts,
    /// perf prints the newest entry first.
    pub(crate) oldest_first: bool,
}

impl Split {
    /// The entries of each sample are in the lines after its columns.
    pub(super) const HEADS: Split = Split { starts: Starts::Head, oldest_first: false };
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
            context.counters |= records::legend(begin).map_or(0, |counter| 1 << counter);
            return Ok(Line::Other);
        }
        if let Some(mut aggregated) = context.aggregated {
            let line = aggregated.read(whole, entries, &mut context.names, &mut context.event);
            return line.ok_or(LineError::Unknown);
        }
        let first = first_entry(whole).unwrap_or(end);
        head = line.get(..first).unwrap_or(line);
        if let Some(record) = find(head, b"PERF_RECORD_").and_then(|at| whole.get(at..))
            && let Some(line) = records::record(record)
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
        let found = ends_and_flags(rest).and_then(|(ends, flags, rest)| {
            let [from, to] = ends.map(|end| context.place(end));
            Ok((RawBranch { from: from?, to: to?, flags }, rest))
        });
        let after = match found {
            Ok((branch, after)) => {
                entries.push(branch);
                after
            }
            Err(_) if symbolic::looks_symbolic(rest) => return by_name(whole, entries, context),
            Err(error) => return Err(LineError::Entry { index: entries.len() + 1, error }),
        };
        at = end - after.trim_ascii_start().len();
    }
    if !entries.is_empty() {
        let reading = columns::head(head, context.layout, AfterColumns::Entries)?;
        return Ok(context.sample(&reading));
    }
    without_branches(line, whole, context)
}

/// Parses a line without branches.
fn without_branches(line: &[u8], whole: &[u8], context: &mut Context) -> Result<Line, LineError> {
    if let Some(inside) = whole.strip_prefix(b"\t") {
        return Ok(records::instruction(inside).map_or(Line::Frame, Line::Instruction));
    }
    let text = whole.trim_ascii_start();
    if let Some(dumped) = records::dumped(text) {
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
    if let Some(count) = words::decimal(line) {
        return Ok(Line::Count(count));
    }
    match columns::head(line, context.layout, AfterColumns::Nothing) {
        Ok(reading) if !reading.columns.is_empty() => Ok(context.sample(&reading)),
        // Where branches follow, columns need not be aligned.
        _ if context.split == Some(Split::HEADS)
            && let Ok(reading) = columns::head(line, context.layout, AfterColumns::Entries)
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
