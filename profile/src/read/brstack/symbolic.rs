//! Entries with symbols in place of addresses, as `-F brstacksym` prints them:
//! `main+0x1c/loop+0x40/P/-/-/0`, with files (`-F dso`)
//! `main+0x1c(/usr/bin/x)/loop+0x40(/usr/bin/x)/P/-/-/0`, and `[unknown]` for
//! what has no symbol.
//!
//! Names of C++ have blanks, slashes, pluses and parentheses in them
//! (`operator/`, `operator+`). What follows the two ends has none of that: each
//! entry is found by it.

use super::columns::{self, Behind, Column, Layout, Reading};
use super::digits;
use super::entry::{is_trailing, parse_flags};
use super::error::{EntryError, LineError};
use crate::names::{Names, is_name};
use crate::stack::{EntryFlags, RawBranch};

/// Where the fields behind the two ends begin (`/P/-/-/0`), if there are any.
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

/// Whether a word or more may be such an entry, and not one of addresses.
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
    /// What a text ends with, and what stands before it. A name is all that
    /// stands before its offset. `open` is where the parenthesis opens that the
    /// text ends with, if it does.
    fn last_of(text: &'a [u8], open: Option<usize>) -> Option<(End<'a>, &'a [u8])> {
        let (text, file) = match text.strip_suffix(b")") {
            Some(inside) => {
                let (before, path) = inside.split_at_checked(open?)?;
                // perf 6.3 and later print a blank before the path.
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
        let (value, _) = digits::hex(digits);
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

/// A path without the offset in it that `-F dsoff` prints.
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

/// Parentheses of a text, seen once each, so that hostile text takes no longer.
#[derive(Debug, Default)]
struct Parentheses {
    open: Vec<usize>,
    /// Where the last that closed had opened, and where it closed.
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

    /// Where the one opened that closes right before a place.
    fn before(&self, at: usize) -> Option<usize> {
        self.last.filter(|(_, close)| close + 1 == at).map(|(open, _)| open)
    }
}

/// An entry as it stands there.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    from: End<'a>,
    to: End<'a>,
    flags: EntryFlags,
}

/// The entry at the start of a text, as long as it is, and its `/P/-/-/0` at
/// `fields`. What stands before its first name belongs to it.
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
    // Of all slashes that one with an end on either side.
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

/// What stands before the first entry of a line, with the name that this begins
/// with, if it does.
pub(super) fn head(line: &[u8]) -> Option<(&[u8], Behind)> {
    let (entry, before, _) = entry(line, fields(line)?).ok()?;
    Some(match entry.from {
        End::Named { name, .. } => (name, Behind::Name),
        _ => (before, Behind::Entries),
    })
}

/// Reads the entries of a line of which at least one has symbols. Gives what
/// stands before them.
///
/// # Errors
/// The first that is none.
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
        let (entry, head, behind) = entry(rest, fields).map_err(|error| wrong(index, error))?;
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
        rest = behind.trim_ascii_start();
    }
    if !is_trailing(rest) {
        return Err(wrong(found.len() + 1, EntryError::NoPlace));
    }
    let second = found.get(1).map(|second| second.to);
    let reading = match found.first_mut() {
        Some(first) if let End::Named { name: text, offset, file } = first.from => {
            let reading = columns::head(text, layout, Behind::Name)?;
            let begun = Head { text, reading, to: first.to, before: second, names };
            first.from = match begun.name() {
                Some(b"") => return Err(wrong(1, EntryError::NoPlace)),
                Some(name) => End::Named { name, offset, file },
                None => End::Unknown { file },
            };
            reading
        }
        _ => columns::head(before, layout, Behind::Entries)?,
    };
    for (index, entry) in without_repeats(&found).iter().enumerate() {
        let from = entry.from.number(names, false);
        let to = entry.to.number(names, true);
        let (from, to) =
            (from.map_err(|e| wrong(index + 1, e))?, to.map_err(|e| wrong(index + 1, e))?);
        into.push(RawBranch { from, to, flags: entry.flags });
    }
    Ok(reading)
}

/// `-F brstack,brstacksym` says every branch twice: by address, and all of them
/// once more by name.
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

/// What stands before the first entry, with the name that this begins with.
/// perf prints that name without a blank before it, right behind what else it
/// prints of a sample.
struct Head<'a, 'n> {
    text: &'a [u8],
    reading: Reading<'a>,
    /// Where the first branch went, and the one before it.
    to: End<'a>,
    before: Option<End<'a>>,
    names: &'n Names,
}

impl<'a> Head<'a, '_> {
    /// The name; `None` where it cannot be told from what stands before it.
    fn name(&self) -> Option<&'a [u8]> {
        let end = self.reading.end;
        let has_ip = self.reading.columns.has(Column::Ip);
        let behind = match has_ip {
            true => behind_quality(self.text, end).or_else(|| behind_file(self.text, end)),
            false => None,
        };
        let start = behind.unwrap_or(end);
        let blanks = blanks(self.text, start);
        let text = self.text.get(start + blanks..)?;
        // Who moves addresses puts blanks between words.
        let is_glued = has_ip && behind.is_none() && self.reading.in_column && blanks == 1;
        if !is_glued {
            return Some(text);
        }
        if let Some(name) = text.strip_prefix(UNKNOWN) {
            return Some(name);
        }
        let name = |end: End<'a>| match end {
            End::Named { name, .. } => Some(name),
            _ => None,
        };
        // Code mostly runs from where the branch before led to, and the sample
        // was taken where this one led to.
        let (ran, stood) = (self.before.and_then(name), name(self.to));
        let known = |part: &[u8]| {
            [ran, stood].into_iter().flatten().any(|name| name == part) || self.names.has(part)
        };
        let both = |symbol: &[u8], name: &[u8]| known(without_offset(symbol)) && known(name);
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
        // Of several the longest name.
        let mut splits = (1..text.len().min(LONGEST_GLUED)).map(|at| text.split_at(at));
        splits.find(|(symbol, name)| both(symbol, name)).map(|(_, name)| name)
    }
}

/// Characters of two names in one that are looked through for where one ends.
const LONGEST_GLUED: usize = 1024;

/// What follows ` {label,head,cut}`, which `lbr script -F quality` prints.
fn behind_quality(text: &[u8], at: usize) -> Option<usize> {
    let words = text.get(at..)?.strip_prefix(b" {")?;
    let len = memchr::memchr(b'}', words)?;
    let is_word = |byte: &u8| byte.is_ascii_lowercase() || b",-".contains(byte);
    words.get(..len)?.iter().all(is_word).then_some(at + 2 + len + 1)
}

/// What follows the file of the sample's address.
fn behind_file(text: &[u8], from: usize) -> Option<usize> {
    let begins = |open: &&[u8]| memchr::memmem::rfind(text.get(from..)?, open);
    let start = from + [&b" (/"[..], b" ([", b" (//"].iter().find_map(begins)?;
    let mut depth = 0;
    let close = text.iter().enumerate().skip(start).find(|(_, byte)| {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => return false,
        }
        depth == 0
    });
    close.map(|(close, _)| close + 1)
}

/// `main` of `main+0x10`, which `-F ip,sym,symoff` prints.
fn without_offset(name: &[u8]) -> &[u8] {
    match End::last_of(name, None) {
        Some((End::Named { name, .. }, _)) => name,
        _ => name,
    }
}

/// Blanks at a place of a text.
fn blanks(text: &[u8], at: usize) -> usize {
    text.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}
