//! Entries with symbols instead of addresses, as printed by `-F brstacksym`:
//! `main+0x1c/loop+0x40/P/-/-/0`, with files (`-F dso`)
//! `main+0x1c(/usr/bin/x)/loop+0x40(/usr/bin/x)/P/-/-/0`, and `[unknown]` without a symbol.
//!
//! C++ names contain spaces, slashes, pluses and parentheses (`operator/`, `operator+`). The fields
//! after the two ends contain none of them, so they are used to find each entry.

use super::columns::{self, AfterColumns, Column, Layout, Reading};
use super::entry::{is_trailing, parse_flags, path_len};
use super::line::{EntryError, LineError};
use super::words::leading_hex;
use crate::read::names::{Names, is_name};
use crate::read::stack::{EntryFlags, RawBranch};

/// The start of the fields after the two ends (`/P/-/-/0`), if any.
pub(super) fn fields(text: &[u8]) -> Option<usize> {
    memchr::memchr_iter(b'/', text).find(|&at| {
        let rest = text.get(at + 1..).unwrap_or_default();
        let rest = match rest {
            [b'P' | b'M' | b'-', b'N', rest @ ..] | [b'P' | b'M' | b'-' | b'N', rest @ ..] => rest,
            _ => return false,
        };
        matches!(rest, [b'/', b'X' | b'-', b'/', b'A' | b'-', b'/', b'0'..=b'9', ..])
    })
}

/// Whether some words may be such an entry, and not one with addresses.
pub(super) fn looks_symbolic(text: &[u8]) -> bool {
    let Some(ends) = fields(text).and_then(|at| text.get(..at)) else { return false };
    let has = |what: &[u8]| memchr::memmem::find(ends, what).is_some();
    has(b"+0x") || has(UNKNOWN)
}

const UNKNOWN: &[u8] = b"[unknown]";

/// One end of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End<'a> {
    Address(u64),
    Named { name: &'a [u8], offset: u64, file: Option<&'a [u8]> },
    Unknown { file: Option<&'a [u8]> },
}

impl<'a> End<'a> {
    /// The end of a branch at the end of a text, and the text before it. A name is everything
    /// before its offset. `open` is the position of the parenthesis that the text's last one
    /// closes, if any.
    fn last_of(text: &'a [u8], open: Option<usize>) -> Option<(End<'a>, &'a [u8])> {
        let (text, file) = match text.strip_suffix(b")") {
            Some(inside) => {
                let (before, path) = inside.split_at_checked(open?)?;
                // perf 6.3 and later print a space before the path.
                let before = before.strip_suffix(b" ").unwrap_or(before);
                (before, Some(without_file_offset(path.strip_prefix(b"(")?)))
            }
            None => (text, None),
        };
        if let Some(before) = text.strip_suffix(UNKNOWN) {
            return Some((End::Unknown { file }, before));
        }
        let digits = text.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (before, digits) = text.split_at_checked(text.len() - digits)?;
        let before = before.strip_suffix(b"0x").filter(|_| (1..=16).contains(&digits.len()))?;
        let (value, _) = leading_hex(digits);
        Some(match before.strip_suffix(b"+") {
            Some(name) => (End::Named { name, offset: value, file }, &[]),
            None => (End::Address(value), before),
        })
    }

    fn number(self, names: &mut Names, is_target: bool) -> Result<u64, EntryError> {
        let number = match self {
            End::Address(address) if is_name(address) => None,
            End::Address(address) => Some(address),
            End::Named { name, offset, file } => names.number(name, file, offset),
            End::Unknown { file } => names.unknown(file, is_target),
        };
        number.ok_or(EntryError::Impossible)
    }

    fn is_address(&self) -> bool {
        matches!(self, End::Address(_))
    }
}

/// A path without the offset that `-F dsoff` prints in it.
fn without_file_offset(mut path: &[u8]) -> &[u8] {
    loop {
        let digits = path.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let cut = path.get(..path.len() - digits).and_then(|path| path.strip_suffix(b"+0x"));
        match cut.filter(|_| digits > 0) {
            Some(cut) => path = cut,
            None => return path,
        }
    }
}

/// Matches parentheses in a single pass, so that hostile text is not slow.
#[derive(Debug, Default)]
struct Parentheses {
    open: Vec<usize>,
    /// Positions of the last closed pair.
    last: Option<(usize, usize)>,
}

impl Parentheses {
    fn see(&mut self, byte: u8, at: usize) {
        match byte {
            b'(' => self.open.push(at),
            b')' => self.last = self.open.pop().map(|open| (open, at)),
            _ => {}
        }
    }

    /// The position of the parenthesis that closes right before `at`.
    fn before(&self, at: usize) -> Option<usize> {
        self.last.filter(|(_, close)| close + 1 == at).map(|(open, _)| open)
    }
}

/// An entry as printed.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    from: End<'a>,
    to: End<'a>,
    flags: EntryFlags,
}

/// The entry at the start of a text, with its `/P/-/-/0` at `fields`. Text before its first name is
/// included.
fn entry(text: &[u8], fields: usize) -> Result<(Entry<'_>, &[u8], &[u8]), EntryError> {
    let (ends, rest) = text.split_at_checked(fields).ok_or(EntryError::NoPlace)?;
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (fields, rest) = rest.split_at_checked(end).unwrap_or((rest, &[]));
    let flags = parse_flags(fields)?;
    let mut pairs = Parentheses::default();
    memchr::memchr2_iter(b'(', b')', ends)
        .for_each(|at| pairs.see(ends.get(at).copied().unwrap_or_default(), at));
    let (to, before_to) =
        End::last_of(ends, pairs.before(ends.len())).ok_or(EntryError::NoPlace)?;
    // The slash with a valid end on both sides.
    let mut pairs = Parentheses::default();
    let found = memchr::memchr3_iter(b'/', b'(', b')', ends).find_map(|at| {
        let byte = *ends.get(at)?;
        if byte != b'/' {
            pairs.see(byte, at);
            return None;
        }
        let to = match to {
            End::Named { name, offset, file } => {
                let name = name.get(at + 1..).filter(|name| !name.is_empty())?;
                End::Named { name, offset, file }
            }
            to => Some(to).filter(|_| before_to.len() == at + 1)?,
        };
        let (from, before) = End::last_of(ends.get(..at)?, pairs.before(at))?;
        Some((Entry { from, to, flags }, before))
    });
    let (entry, before) = found.ok_or(EntryError::NoPlace)?;
    Ok((entry, before, rest))
}

/// The text before the first entry of a line, including the name at its start, if any.
pub(super) fn head(line: &[u8]) -> Option<(&[u8], AfterColumns)> {
    let (entry, before, _) = entry(line, fields(line)?).ok()?;
    Some(match entry.from {
        End::Named { name, .. } => (name, AfterColumns::Name),
        _ => (before, AfterColumns::Entries),
    })
}

/// Parses the entries of a line with at least one symbol. Returns the text before them.
///
/// # Errors
/// The first invalid entry.
pub(super) fn entries<'a>(
    line: &'a [u8],
    layout: Option<Layout>,
    into: &mut Vec<RawBranch>,
    names: &mut Names,
) -> Result<Reading<'a>, LineError> {
    into.clear();
    let wrong = |index: usize, error| LineError::Entry { index, error };
    let mut found: Vec<Entry<'_>> = Vec::new();
    let mut before: &[u8] = &[];
    let mut rest = line;
    loop {
        let index = found.len() + 1;
        let Some(fields) = fields(rest) else { break };
        let (entry, head, after) = entry(rest, fields).map_err(|error| wrong(index, error))?;
        let is_whole = match entry.from {
            End::Named { name, .. } => !name.is_empty(),
            _ => index == 1 || head.is_empty(),
        };
        if !is_whole {
            return Err(wrong(index, EntryError::NoPlace));
        }
        if index == 1 {
            before = head;
        }
        found.push(entry);
        rest = after.trim_ascii_start();
    }
    if !is_trailing(rest) {
        return Err(wrong(found.len() + 1, EntryError::NoPlace));
    }
    let second = found.get(1).map(|second| second.to);
    let reading = match found.first_mut() {
        Some(first) if let End::Named { name: text, offset, file } = first.from => {
            let reading = columns::head(text, layout, AfterColumns::Name)?;
            let begun = Head { text, reading, to: first.to, before: second, names };
            first.from = match begun.name() {
                Some(b"") => return Err(wrong(1, EntryError::NoPlace)),
                Some(name) => End::Named { name, offset, file },
                None => End::Unknown { file },
            };
            reading
        }
        _ => columns::head(before, layout, AfterColumns::Entries)?,
    };
    let found = without_repeats(&found);
    let empty = empty_from(found);
    for (index, entry) in found.iter().enumerate() {
        if index >= empty {
            into.push(RawBranch { from: 0, to: 0, flags: entry.flags });
            continue;
        }
        let from = entry.from.number(names, false);
        let to = entry.to.number(names, true);
        let (from, to) =
            (from.map_err(|e| wrong(index + 1, e))?, to.map_err(|e| wrong(index + 1, e))?);
        into.push(RawBranch { from, to, flags: entry.flags });
    }
    Ok(reading)
}

/// The index of the first empty record: perf prints those at the end of a partly filled LBR as
/// `[unknown]/[unknown]/P/-/-/0`, or with `-` in place of P. The oldest branch since the LBR was
/// enabled has 0 cycles too, but a prediction if the others have one.
fn empty_from(found: &[Entry<'_>]) -> usize {
    let cycles = |entry: &Entry<'_>| entry.flags.cycles().unwrap_or(0);
    let is_none = |end: End<'_>| matches!(end, End::Unknown { file: None | Some(UNKNOWN) });
    let may_be_empty = |entry: &&Entry<'_>| {
        let has_type = entry.flags.branch_type().is_some();
        is_none(entry.from) && is_none(entry.to) && cycles(entry) == 0 && !has_type
    };
    let first = found.len() - found.iter().rev().take_while(may_be_empty).count();
    let is_predicted = |entry: &Entry<'_>| entry.flags.mispredicted().is_some();
    let unpredicted = found.get(first).is_some_and(|entry| !is_predicted(entry));
    match first.checked_sub(1).and_then(|last| found.get(last)) {
        Some(last) if is_predicted(last) && unpredicted => first,
        // Without any cycles, the two cannot be distinguished.
        _ if found.iter().all(|entry| cycles(entry) == 0) => found.len(),
        Some(last) if cycles(last) > 0 => first + 1,
        _ => first,
    }
}

/// `-F brstack,brstacksym` prints every branch twice: first by address, then all of them by name.
fn without_repeats<'a, 'b>(found: &'b [Entry<'a>]) -> &'b [Entry<'a>] {
    let (first, again) = found.split_at(found.len() / 2);
    let twice = first.len() == again.len()
        && first.iter().zip(again).all(|(address, name)| {
            let addresses = address.from.is_address() && address.to.is_address();
            let none = name.from.is_address() || name.to.is_address();
            addresses && !none && address.flags == name.flags
        });
    if twice { first } else { found }
}

/// The text before the first entry, including the name at its start. perf prints that name directly
/// after the preceding columns, without a space.
struct Head<'a, 'n> {
    text: &'a [u8],
    reading: Reading<'a>,
    /// The target of the first branch, and of the previous one.
    to: End<'a>,
    before: Option<End<'a>>,
    names: &'n Names,
}

impl<'a> Head<'a, '_> {
    /// The name; `None` if it cannot be separated from the text before it.
    fn name(&self) -> Option<&'a [u8]> {
        let end = self.reading.end;
        let after = match self.reading.columns.has(Column::Ip) {
            true => after_quality(self.text, end).or_else(|| after_file(self.text, end)),
            false => None,
        };
        let start = after.unwrap_or(end);
        let blanks = blanks(self.text, start);
        let text = self.text.get(start + blanks..)?;
        if after.is_none()
            && let Some(name) = self.after_symbol(text)
        {
            return Some(name);
        }
        // Realigned texts have spaces between words.
        let is_glued = after.is_none() && self.reading.in_column && blanks == 1;
        if !is_glued {
            return Some(text);
        }
        if let Some(name) = text.strip_prefix(UNKNOWN) {
            return Some(name);
        }
        let (ran, stood) = self.neighbours();
        let both = |symbol: &[u8], name: &[u8]| {
            self.is_known(without_offset(symbol)) && self.is_known(name)
        };
        if let Some(name) = ran
            && let Some(symbol) = text.strip_suffix(name)
            && both(symbol, name)
        {
            return Some(name);
        }
        if let Some(symbol) = stood
            && let Some(name) = text.strip_prefix(symbol)
            && both(symbol, name)
        {
            return Some(name);
        }
        // Of several, the longest name.
        let mut splits = (1..text.len().min(LONGEST_GLUED)).map(|at| text.split_at(at));
        splits.find(|(symbol, name)| both(symbol, name)).map(|(_, name)| name)
    }

    /// The symbols that are usually named here too: this branch's source is in the same function as
    /// the previous branch's target, and the sampled address in that of this one's target.
    fn neighbours(&self) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let name = |end| if let End::Named { name, .. } = end { Some(name) } else { None };
        (self.before.and_then(name), name(self.to))
    }

    fn is_known(&self, part: &[u8]) -> bool {
        let (ran, stood) = self.neighbours();
        [ran, stood].into_iter().flatten().any(|name| name == part) || self.names.has(part)
    }

    /// The name after the symbol of the sample and a space. Names of C++ may contain spaces too.
    fn after_symbol(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        let is_plain = |word: &[u8]| {
            let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.$@".contains(byte);
            word != b"operator" && !word.is_empty() && word.iter().all(is_letter)
        };
        memchr::memchr_iter(b' ', text).find_map(|at| {
            let (symbol, name) = (without_offset(text.get(..at)?), text.get(at + 1..)?);
            let are_plain = is_plain(symbol) && is_plain(name);
            (are_plain || self.is_known(symbol) && self.is_known(name)).then_some(name)
        })
    }
}

/// Maximum length of two joined names that are searched for a boundary.
const LONGEST_GLUED: usize = 1024;

/// The text after ` {label,head,cut}`, which `lbr script -F quality` prints.
fn after_quality(text: &[u8], at: usize) -> Option<usize> {
    let words = text.get(at..)?.strip_prefix(b" {")?;
    let len = memchr::memchr(b'}', words)?;
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || b",-".contains(byte);
    words.get(..len)?.iter().all(is_word).then_some(at + 2 + len + 1)
}

/// The text after the file of the sample's address.
fn after_file(text: &[u8], from: usize) -> Option<usize> {
    let begins = |open: &&[u8]| memchr::memmem::rfind(text.get(from..)?, open);
    let start = from + [&b" (/"[..], b" ([", b" (//"].iter().find_map(begins)?;
    let inside = start + b" (".len();
    Some(inside + path_len(text.get(inside..)?).ok()? + 1)
}

/// `main` of `main+0x10`, which `-F ip,sym,symoff` prints.
fn without_offset(name: &[u8]) -> &[u8] {
    match End::last_of(name, None) {
        Some((End::Named { name, .. }, _)) => name,
        _ => name,
    }
}

/// Number of spaces at a position.
fn blanks(text: &[u8], at: usize) -> usize {
    text.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}
