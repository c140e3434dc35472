//! One entry of a stack in text form.

use lbr_msr::record::{BranchSpec, BranchType};

use super::line::EntryError;
use super::words::{decimal, leading_hex, not_empty};
use crate::read::stack::{EntryFlags, RawBranch};

/// The branch type with this name; `None` for an unknown name.
pub(super) fn type_of(name: &[u8]) -> Option<BranchType> {
    // perf's names of ARCH_1 to ARCH_5 on aarch64.
    const AARCH64: [&str; 5] = ["FIQ", "DEBUG_HALT", "DEBUG_EXIT", "DEBUG_INST", "DEBUG_DATA"];
    if let Some(name) = name.strip_prefix(b"ARM64_") {
        let at = AARCH64.iter().position(|known| known.as_bytes() == name)?;
        return Some(BranchType(BranchType::NEW_BASE + 3 + at as u8));
    }
    if let Some(code) = name.strip_prefix(b"TYPE_") {
        return u8::try_from(decimal(code)?).ok().map(BranchType);
    }
    let is = |known: &BranchType| known.name().is_some_and(|known| known.as_bytes() == name);
    (1..32).map(BranchType).find(is)
}

/// The speculation with this name.
pub(super) fn spec_of(name: &[u8]) -> Option<BranchSpec> {
    (1..=3).filter_map(BranchSpec::from_code).find(|spec| spec.name().as_bytes() == name)
}

/// Whether the text after the last entry is empty or something that perf prints there: the
/// instruction, physical address and page sizes of the sample. `lbr` prints counters there.
pub(super) fn is_trailing(text: &[u8]) -> bool {
    let mut words = not_empty(text);
    let Some(first) = words.next() else { return true };
    let is_hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let is_size = |word: &[u8]| {
        word == b"N/A"
            || word
                .split_last()
                .is_some_and(|(unit, digits)| b"KMGT".contains(unit) && decimal(digits).is_some())
    };
    let insn: &[u8] = b"insn:";
    match first {
        b"ilen:" => {
            words.next().and_then(decimal).is_some()
                && words.next().is_none_or(|word| word == insn)
                && words.all(is_hex)
        }
        b"insn:" => words.all(is_hex),
        b"IPC:" | b"br_cntr:" => true,
        word => (is_hex(word) || is_size(word)) && words.all(is_size),
    }
}

/// Parses the entry at the start of `text`, and returns the rest.
///
/// # Errors
/// The first error.
pub fn parse_entry(text: &[u8]) -> Result<(RawBranch, &[u8]), EntryError> {
    match ends_and_flags(text)? {
        ([End { id: None, address: from, .. }, End { id: None, address: to, .. }], flags, rest) => {
            Ok((RawBranch { from, to, flags }, rest))
        }
        _ => Err(EntryError::Address),
    }
}

/// One end of a branch as printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    /// The build ID before the address: `aabb1122:0x40062f`.
    pub(super) id: Option<&'a [u8]>,
    pub(super) address: u64,
    /// The path in parentheses after it.
    pub(super) path: Option<&'a [u8]>,
}

/// The ends of the entry at the start of a text, its flags, and the rest of the text.
pub(super) fn ends_and_flags(text: &[u8]) -> Result<([End<'_>; 2], EntryFlags, &[u8]), EntryError> {
    let (from, rest) = end(text)?;
    let (to, rest) = end(rest.strip_prefix(b"/").ok_or(EntryError::NoTarget)?)?;
    let len = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (fields, rest) = rest.split_at_checked(len).unwrap_or((rest, &[]));
    Ok(([from, to], parse_flags(fields)?, rest))
}

/// The end of a branch at the start of a text, and the rest of the text.
pub(super) fn end(text: &[u8]) -> Result<(End<'_>, &[u8]), EntryError> {
    let (id, digits) = match text.strip_prefix(b"0x") {
        Some(digits) => (None, Some(Some(digits))),
        None => build_id(text).map(|(id, rest)| (id, rest.strip_prefix(b"0x"))).unzip(),
    };
    let digits = digits.flatten().ok_or(EntryError::Address)?;
    let (address, count) = leading_hex(digits);
    if !(1..=16).contains(&count) {
        return Err(EntryError::Address);
    }
    let rest = digits.get(count..).unwrap_or_default();
    // perf 6.3 and later print a space before the path.
    match rest.strip_prefix(b"(").or_else(|| rest.strip_prefix(b" (").filter(|_| has_path(rest))) {
        None => Ok((End { id, address, path: None }, rest)),
        Some(path) => {
            let len = path_len(path)?;
            let rest = path.get(len + 1..).unwrap_or_default();
            Ok((End { id, address, path: path.get(..len) }, rest))
        }
    }
}

/// Whether a path in parentheses follows, and then the rest of the entry.
fn has_path(text: &[u8]) -> bool {
    text.starts_with(b" (") && memchr::memmem::find(text, b")/").is_some()
}

/// The start of a line's first entry: a word `0x…` whose digits are followed by a slash or path, or
/// preceded by a build ID.
pub(super) fn first_entry(text: &[u8]) -> Option<usize> {
    memchr::memmem::find_iter(text, b"0x").find_map(|at| {
        let (before, rest) = text.split_at_checked(at)?;
        let id = before.strip_suffix(b":").map_or(0, |before| 1 + build_id_before(before));
        let start = at - id;
        let is_start = id != 1 && before.get(..start)?.last().is_none_or(u8::is_ascii_whitespace);
        let end = rest.iter().position(|byte| b"/(@ \t\n".contains(byte))?;
        // A raw dump starts with `0xOFFSET@FILE`, whose path may contain slashes.
        let is_entry = match rest.get(end)? {
            b'/' | b'(' => true,
            b' ' => end > 2 && has_path(rest.get(end..)?),
            _ => false,
        };
        (is_start && is_entry).then_some(start)
    })
}

/// The length of the build ID at the end of a text, or 0.
fn build_id_before(text: &[u8]) -> usize {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits < SHORTEST_ID { 0 } else { digits }
}

const SHORTEST_ID: usize = 8;

/// The build ID at the start of a text, and the rest after the colon.
fn build_id(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (id, rest) = text.split_at_checked(memchr::memchr(b':', text)?)?;
    let is_id = id.len() >= SHORTEST_ID && id.iter().all(u8::is_ascii_hexdigit);
    Some((id, rest.strip_prefix(b":")?)).filter(|_| is_id)
}

/// The length of a path in parentheses, which may contain pairs of them: `/usr/lib/x(deleted)`.
pub(super) fn path_len(path: &[u8]) -> Result<usize, EntryError> {
    let mut open = 1;
    for (at, byte) in path.iter().enumerate() {
        match byte {
            b'(' => open += 1,
            b')' => open -= 1,
            _ => continue,
        }
        if open == 0 {
            return Ok(at);
        }
    }
    Err(EntryError::Address)
}

pub(super) fn parse_flags(fields: &[u8]) -> Result<EntryFlags, EntryError> {
    let Some(fields) = fields.strip_prefix(b"/") else {
        return if fields.is_empty() { Ok(EntryFlags(0)) } else { Err(EntryError::Address) };
    };
    let mut parts = fields.split(|&b| b == b'/');
    let mut next = || parts.next();
    let count = || EntryError::Fields(2 + fields.split(|&b| b == b'/').count());
    let mut word = match next().ok_or_else(count)? {
        b"P" => EntryFlags::PREDICTED,
        b"M" => EntryFlags::MISPREDICTED,
        b"-" => 0,
        b"PN" => EntryFlags::PREDICTED | EntryFlags::NOT_TAKEN,
        b"MN" => EntryFlags::MISPREDICTED | EntryFlags::NOT_TAKEN,
        b"N" | b"-N" => EntryFlags::NOT_TAKEN,
        _ => return Err(EntryError::Prediction),
    };
    for (letter, flag, error) in [
        (b"X", EntryFlags::IN_TX, EntryError::Transaction),
        (b"A", EntryFlags::ABORT, EntryError::Abort),
    ] {
        match next().ok_or_else(count)? {
            b"-" => {}
            found if found == letter => word |= flag,
            _ => return Err(error),
        }
    }
    let cycles = decimal(next().ok_or_else(count)?).ok_or(EntryError::Cycles)?;
    let mut flags = EntryFlags(word).with_cycles(u32::try_from(cycles).unwrap_or(u32::MAX));
    if let Some(name) = next().filter(|name| !matches!(*name, b"" | b"-")) {
        // An unknown name means an unknown type.
        flags = flags.with_type(type_of(name));
    }
    if let Some(name) = next().filter(|name| !matches!(*name, b"" | b"-")) {
        flags = flags.with_spec(spec_of(name));
    }
    if next().is_some() {
        return Err(count());
    }
    Ok(flags)
}
