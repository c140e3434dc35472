//! The text of `perf script -F brstack`: printing it and reading it.
//!
//! An entry is `0xFROM/0xTO/PREDICTION/TX/ABORT/CYCLES/TYPE/SPEC`. perf has
//! printed six (up to 5.17), seven (to 6.0) and eight fields; aggregated texts
//! have the two addresses alone. With `-F dso` a path in parentheses follows
//! each address.

use std::fmt;

use lbr_msr::record::{BranchSpec, BranchType, Mmap};

use crate::stack::{EntryFlags, RawBranch, SampleHead};

/// Prints an entry as perf 6.12 does.
#[derive(Clone, Copy, Debug)]
pub struct Printed(pub RawBranch);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RawBranch { from, to, flags } = self.0;
        let prediction = match flags.mispredicted() {
            Some(true) => "M",
            Some(false) => "P",
            None => "-",
        };
        let not_taken = if flags.not_taken() { "N" } else { "" };
        let in_tx = if flags.in_tx() { 'X' } else { '-' };
        let abort = if flags.abort() { 'A' } else { '-' };
        let cycles = flags.cycles().unwrap_or(0);
        write!(f, "{from:#x}/{to:#x}/{prediction}{not_taken}/{in_tx}/{abort}/{cycles}/")?;
        if let Some(branch_type) = flags.branch_type() {
            f.write_str(&type_name(branch_type))?;
        }
        write!(f, "/{}", flags.spec().map_or("-", BranchSpec::name))
    }
}

/// perf's name of a type; `TYPE_n` for one that nobody documents.
#[must_use]
pub fn type_name(branch_type: BranchType) -> std::borrow::Cow<'static, str> {
    match branch_type.name() {
        Some(name) => name.into(),
        None => format!("TYPE_{}", branch_type.0).into(),
    }
}

/// The type of a name, `None` for a name that is not known.
#[must_use]
pub fn type_of_name(name: &str) -> Option<BranchType> {
    let code = name.strip_prefix("TYPE_").and_then(|n| n.parse().ok());
    let named = (1..=23).map(BranchType).find(|t| t.name() == Some(name));
    named.or(code.filter(|code| *code < 32).map(BranchType))
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryError {
    /// An address is no hexadecimal number of at most 64 bits.
    #[error("an address is not 0x and up to 16 hexadecimal digits")]
    Address,
    /// An address has symbols instead of a number.
    #[error("symbols in place of addresses (brstacksym); print it with -F brstack")]
    Symbolic,
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

/// Reads the entry at the start of `text` and gives the rest behind it.
///
/// # Errors
/// What is wrong with it.
pub fn parse_entry(text: &[u8]) -> Result<(RawBranch, &[u8]), EntryError> {
    let (from, rest) = address(text)?;
    let rest = rest.strip_prefix(b"/").ok_or(EntryError::NoTarget)?;
    let (to, rest) = address(rest)?;
    if let Some((flags, rest)) = common_flags(rest) {
        return Ok((RawBranch { from, to, flags }, rest));
    }
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (fields, rest) = rest.split_at_checked(end).unwrap_or((rest, &[]));
    let flags = parse_flags(fields)?;
    Ok((RawBranch { from, to, flags }, rest))
}

/// A hexadecimal address and the path in parentheses that may follow it.
fn address(text: &[u8]) -> Result<(u64, &[u8]), EntryError> {
    let digits = text.strip_prefix(b"0x").ok_or(EntryError::Address)?;
    let mut value = 0u64;
    let mut count = 0;
    for &b in digits {
        let digit = DIGITS[usize::from(b)];
        if digit == NO_DIGIT {
            break;
        }
        value = value << 4 | u64::from(digit);
        count += 1;
    }
    if !(1..=16).contains(&count) {
        return Err(EntryError::Address);
    }
    let rest = digits.get(count..).unwrap_or_default();
    match rest.strip_prefix(b"(") {
        None => Ok((value, rest)),
        Some(path) => {
            let end = path.iter().position(|&b| b == b')').ok_or(EntryError::Address)?;
            Ok((value, path.get(end + 1..).unwrap_or_default()))
        }
    }
}

/// Marks a byte that is no hexadecimal digit.
const NO_DIGIT: u8 = 0xFF;

/// The digit of every byte: a load instead of three comparisons.
const DIGITS: [u8; 256] = {
    let mut digits = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value] as usize] = value as u8;
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

fn is_hex(b: u8) -> bool {
    DIGITS[usize::from(b)] != NO_DIGIT
}

/// The flags of nearly every entry: outside transactions, type and spec not
/// printed. `None` for any other, which [`parse_flags`] reads.
#[inline]
fn common_flags(text: &[u8]) -> Option<(EntryFlags, &[u8])> {
    let [b'/', prediction, b'/', b'-', b'/', b'-', b'/', rest @ ..] = text else { return None };
    let word = match prediction {
        b'P' => EntryFlags::PREDICTED,
        b'M' => EntryFlags::MISPREDICTED,
        b'-' => 0,
        _ => return None,
    };
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    if !(1..=5).contains(&digits) {
        return None;
    }
    let (number, rest) = rest.split_at_checked(digits)?;
    let cycles = number.iter().fold(0, |n, b| n * 10 + u32::from(b - b'0'));
    let flags = EntryFlags(word).with_cycles(cycles);
    let rest = match rest {
        [b'/', b'/', b'-', rest @ ..] => rest,
        [b'/', rest @ ..] => rest,
        rest => rest,
    };
    let ended = rest.first().is_none_or(u8::is_ascii_whitespace);
    ended.then_some((flags, rest))
}

fn parse_flags(fields: &[u8]) -> Result<EntryFlags, EntryError> {
    let Some(fields) = fields.strip_prefix(b"/") else {
        return if fields.is_empty() { Ok(EntryFlags(0)) } else { Err(EntryError::Address) };
    };
    let mut parts = fields.split(|&b| b == b'/');
    let mut next = || parts.next();
    let count = || 2 + fields.split(|&b| b == b'/').count();
    let short = || EntryError::Fields(count());
    let mut word = match next().ok_or_else(short)? {
        b"P" => EntryFlags::PREDICTED,
        b"M" => EntryFlags::MISPREDICTED,
        b"-" => 0,
        b"PN" => EntryFlags::PREDICTED | EntryFlags::NOT_TAKEN,
        b"MN" => EntryFlags::MISPREDICTED | EntryFlags::NOT_TAKEN,
        b"N" | b"-N" => EntryFlags::NOT_TAKEN,
        _ => return Err(EntryError::Prediction),
    };
    match next().ok_or_else(short)? {
        b"X" => word |= EntryFlags::IN_TX,
        b"-" => {}
        _ => return Err(EntryError::Transaction),
    }
    match next().ok_or_else(short)? {
        b"A" => word |= EntryFlags::ABORT,
        b"-" => {}
        _ => return Err(EntryError::Abort),
    }
    let cycles = decimal(next().ok_or_else(short)?).ok_or(EntryError::Cycles)?;
    let mut flags = EntryFlags(word).with_cycles(u32::try_from(cycles).unwrap_or(u32::MAX));
    if let Some(name) = next().filter(|name| !matches!(*name, b"" | b"-")) {
        // A name that we do not know is no type that we know.
        flags = flags.with_type(std::str::from_utf8(name).ok().and_then(type_of_name));
    }
    if let Some(name) = next().filter(|name| !matches!(*name, b"" | b"-")) {
        let spec = (1..=3).filter_map(BranchSpec::from_code);
        flags = flags.with_spec(spec.into_iter().find(|s| s.name().as_bytes() == name));
    }
    if next().is_some() {
        return Err(EntryError::Fields(count()));
    }
    Ok(flags)
}

fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// What a line of text is.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A sample; its entries were put into the buffer given to [`parse_line`].
    Sample(Box<SampleHead>),
    /// How many identical stacks the next sample stands for.
    Count(u64),
    /// A mapping.
    Mmap(Box<Mmap>),
    /// A frame of a call chain, a comment, nothing.
    Other,
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
    /// Neither branches nor anything that goes with them.
    #[error("neither branches nor anything that perf script prints beside them")]
    Unknown,
}

/// Reads a line. `entries` is cleared and holds the entries of a sample.
///
/// # Errors
/// Why it was refused; the caller knows the line's number.
pub fn parse_line(line: &[u8], entries: &mut Vec<RawBranch>) -> Result<Line, LineError> {
    entries.clear();
    let text = line.trim_ascii();
    if text.is_empty()
        || text.starts_with(b"#")
        || text.starts_with(b"//")
        || text.starts_with(b";")
    {
        return Ok(Line::Other);
    }
    let start = first_entry(text);
    let (head, mut rest) = text.split_at_checked(start).unwrap_or((text, &[]));
    if let Some(at) = find(head, b"PERF_RECORD_MMAP") {
        let rest = text.get(at..).and_then(|rest| std::str::from_utf8(rest).ok());
        let map = rest.and_then(parse_mmap).ok_or(LineError::Mmap)?;
        return Ok(Line::Mmap(Box::new(map)));
    }
    while !rest.is_empty() {
        let index = entries.len() + 1;
        let (branch, behind) =
            parse_entry(rest).map_err(|error| LineError::Entry { index, error })?;
        entries.push(branch);
        rest = behind.trim_ascii_start();
    }
    if !entries.is_empty() {
        return Ok(Line::Sample(Box::new(parse_head(head))));
    }
    // Events beside the samples (--show-task-events and its like) carry no
    // branches; a dumped sample (-D) does, in lines of another shape.
    if find(text, b"PERF_RECORD_").is_some() {
        let dumped = find(text, b"PERF_RECORD_SAMPLE").is_some();
        return if dumped { Err(LineError::Unknown) } else { Ok(Line::Other) };
    }
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    match (words.next(), words.next()) {
        (Some(word), None)
            if !line.first().is_some_and(u8::is_ascii_whitespace) && decimal(word).is_some() =>
        {
            Ok(Line::Count(decimal(word).unwrap_or(1)))
        }
        (Some(word), None) if word.iter().all(|&b| is_hex(b)) => Ok(Line::Other),
        (Some(word), None) if looks_symbolic(word) => {
            Err(LineError::Entry { index: 1, error: EntryError::Symbolic })
        }
        (Some(_), Some(_)) => {
            // A sample without branches still has its task and address.
            let head = parse_head(text);
            let full = head.ip.is_some() && (head.pid.is_some() || head.time.is_some());
            if full { Ok(Line::Sample(Box::new(head))) } else { Err(LineError::Unknown) }
        }
        _ => Err(LineError::Unknown),
    }
}

/// `symbol+0x10/symbol+0x0/P/-/-/0`.
fn looks_symbolic(word: &[u8]) -> bool {
    find(word, b"+0x").is_some() && word.iter().filter(|&&b| b == b'/').count() >= 4
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Where the entries begin: at the first word `0x…` with a slash in it.
fn first_entry(text: &[u8]) -> usize {
    let mut at = 0;
    for word in text.split(u8::is_ascii_whitespace) {
        if word.starts_with(b"0x") && word.contains(&b'/') {
            return at;
        }
        at += word.len() + 1;
    }
    text.len()
}

/// What stands before the entries, read from its end: address, period, event,
/// time, CPU, process and thread, in perf's order, each only if printed.
fn parse_head(head: &[u8]) -> SampleHead {
    let mut found = SampleHead::default();
    let Ok(text) = std::str::from_utf8(head) else { return found };
    let is_time = |word: &str| word.strip_suffix(':').and_then(seconds).is_some();
    let has_time = text.split_ascii_whitespace().any(is_time);
    let mut timed = false;
    for (index, word) in text.split_ascii_whitespace().rev().enumerate() {
        if let Some(label) = word.strip_suffix(':') {
            if let Some(time) = seconds(label) {
                found.time = Some(time);
                timed = true;
            }
            continue;
        }
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let is_hex = !digits.is_empty() && digits.bytes().all(is_hex);
        if index == 0 && is_hex {
            found.ip = u64::from_str_radix(digits, 16).ok();
        } else if let Some(cpu) = word.strip_prefix('[').and_then(|w| w.strip_suffix(']')) {
            found.cpu = cpu.parse().ok();
            timed = true;
        } else if let Some((pid, tid)) = word.split_once('/') {
            if let (Ok(pid), Ok(tid)) = (pid.parse(), tid.parse()) {
                (found.pid, found.tid) = (Some(pid), Some(tid));
                break;
            }
        } else if let Ok(number) = word.parse::<u64>() {
            // Before (right of) the time stands the period, behind it the task.
            if has_time && !timed {
                found.period = Some(number);
            } else {
                found.pid = u32::try_from(number).ok();
                break;
            }
        } else {
            // The name of a process whose number is not printed, or no head.
            break;
        }
    }
    found
}

/// `174024.746063` in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|len| (1..=9).contains(len))?;
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = fraction.parse().ok()?;
    let nanos = fraction.checked_mul(10u64.pow(9 - digits))?;
    whole.checked_mul(1_000_000_000)?.checked_add(nanos)
}

/// `PERF_RECORD_MMAP2 pid/tid: [0xADDR(0xLEN) @ OFF maj:min ino gen]: r-xp PATH`,
/// and the old form without device and inode.
fn parse_mmap(text: &str) -> Option<Mmap> {
    let (_, text) = text.split_once(' ')?;
    let (task, text) = text.trim_start().split_once(": [")?;
    let (pid, tid) = task.split_once('/')?;
    let (range, text) = text.split_once(']')?;
    let (addr, range) = range.split_once('(')?;
    let (len, range) = range.split_once(')')?;
    let mut words = range.split_ascii_whitespace().filter(|word| *word != "@");
    let pgoff = number(words.next()?)?;
    let dev = words.next().and_then(|dev| dev.split_once(':')).and_then(|(major, minor)| {
        Some((u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?))
    });
    let (access, path) = text.strip_prefix(':')?.trim_start().split_once(' ')?;
    let bits = [('r', 1), ('w', 2), ('x', 4)];
    let prot = bits.into_iter().filter(|(c, _)| access.contains(*c)).map(|(_, bit)| bit).sum();
    Some(Mmap {
        time: 0,
        pid: pid.trim().parse::<i64>().ok()? as u32,
        tid: tid.trim().parse::<i64>().ok()? as u32,
        addr: number(addr)?,
        len: number(len)?,
        pgoff,
        dev: dev.unwrap_or((0, 0)),
        ino: words.next().and_then(|ino| ino.parse().ok()).unwrap_or(0),
        ino_generation: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        build_id: None,
        prot,
        flags: if access.contains('p') { 2 } else { 1 },
        path: path.trim_end().to_owned(),
    })
}

/// A number, hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
