//! One line of text: a sample, a mapping, or something beside them.

use lbr_msr::record::{Mmap, Task};

use super::digits::decimal;
use super::dump;
use super::entry::{EntryError, parse_entry};
use super::{run, symbolic};
use crate::names::Names;
use crate::stack::{RawBranch, SampleHead};

/// What a line of text is.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A sample; its entries were put into the buffer given to [`parse_line`].
    Sample(Box<SampleHead>),
    /// How many identical stacks the next sample stands for.
    Count(u64),
    /// A mapping.
    Mmap(Box<Mmap>),
    /// A thread or process began (`--show-task-events`).
    Fork(Task),
    /// A thread ended.
    Exit(Task),
    /// The head of a dumped sample (`-D`).
    Dumped(Box<SampleHead>),
    /// The branches of the dumped sample follow.
    DumpedStack,
    /// One of them, newest first.
    DumpedEntry(RawBranch),
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
    /// Longer than any line that perf script prints.
    #[error("longer than 1 MiB")]
    TooLong,
    /// Neither branches nor anything that goes with them.
    #[error("neither branches nor anything that perf script prints beside them")]
    Unknown,
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
    parse(line, line.len(), 0, entries, &mut Named::default(), names)
}

/// Names that stand before the entries of a sample; empty where none does.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// Of the event.
    pub(crate) event: String,
    /// Of the thread, if somebody wants it.
    pub(crate) comm: String,
    /// Somebody does.
    pub(crate) wants_comm: bool,
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

impl Named {
    fn call<'a>(&mut self, comm: impl FnOnce() -> &'a str) {
        if self.wants_comm {
            self.comm.push_str(comm());
        }
    }
}

/// Reads the line that is the first `len` bytes of `text`. Of those the first
/// `begun` are entries, and lie in `entries`.
pub(crate) fn parse(
    text: &[u8],
    len: usize,
    begun: usize,
    entries: &mut Vec<RawBranch>,
    named: &mut Named,
    names: &mut Names,
) -> Result<Line, LineError> {
    let line = text.get(..len).unwrap_or(text);
    let end = line.trim_ascii_end().len();
    let mut at = begun;
    let mut head: &[u8] = &[];
    if begun == 0 {
        let start = line.len() - line.trim_ascii_start().len();
        let line = line.get(start..end).unwrap_or_default();
        if line.is_empty()
            || line.starts_with(b"#")
            || line.starts_with(b"//")
            || line.starts_with(b";")
        {
            return Ok(Line::Other);
        }
        let first = first_entry(line);
        head = line.get(..first).unwrap_or(line);
        if let Some(record) = find(head, b"PERF_RECORD_").and_then(|at| head.get(at..)) {
            if let Some(at) = find(head, b"PERF_RECORD_MMAP") {
                let rest = line.get(at..).and_then(|rest| std::str::from_utf8(rest).ok());
                let map = rest.and_then(parse_mmap).ok_or(LineError::Mmap)?;
                return Ok(Line::Mmap(Box::new(map)));
            }
            if let Some(task) = parse_task(record) {
                return Ok(task);
            }
        }
        if symbolic::fields(head).is_some() {
            return by_name(text.get(..end).unwrap_or_default(), entries, named, names);
        }
        at = start + first;
    }
    loop {
        // What stands behind the line is not read: no entry has its end in it.
        at += text.get(at..).map_or(0, |text| run::common(text, entries));
        let rest = line.get(at..end).unwrap_or_default().trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        let behind = match parse_entry(rest) {
            Ok((branch, behind)) => {
                entries.push(branch);
                behind
            }
            Err(error) => {
                if symbolic::looks_symbolic(rest) {
                    return by_name(text.get(..end).unwrap_or_default(), entries, named, names);
                }
                return Err(LineError::Entry { index: entries.len() + 1, error });
            }
        };
        at = end - behind.trim_ascii_start().len();
    }
    if !entries.is_empty() {
        return Ok(Line::Sample(Box::new(parse_head(head, true, named))));
    }
    let text = line.trim_ascii();
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
    let mut words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    match (words.next(), words.next()) {
        (Some(word), None)
            if !line.first().is_some_and(u8::is_ascii_whitespace) && decimal(word).is_some() =>
        {
            Ok(Line::Count(decimal(word).unwrap_or(1)))
        }
        (Some(word), None) if word.iter().all(u8::is_ascii_hexdigit) => Ok(Line::Other),
        (Some(_), _) => {
            let last = text.rsplit(u8::is_ascii_whitespace).next().unwrap_or_default();
            // A sample without branches still has what was printed of it.
            let head = parse_head(text, true, named);
            let full = if head.ip.is_some() {
                head.time.is_some() || head.pid.is_some() && ends_in_column(text)
            } else {
                head.tid.is_some() && last.contains(&b'/')
                    || head.time.is_some() && last.ends_with(b":")
            };
            if full { Ok(Line::Sample(Box::new(head))) } else { Err(LineError::Unknown) }
        }
        (None, _) => Err(LineError::Unknown),
    }
}

/// Reads a line that has symbols in place of addresses.
fn by_name(
    line: &[u8],
    entries: &mut Vec<RawBranch>,
    named: &mut Named,
    names: &mut Names,
) -> Result<Line, LineError> {
    let found = symbolic::entries(line, entries, names).inspect_err(|_| entries.clear())?;
    let head = line.get(..found.0).unwrap_or_default();
    Ok(Line::Sample(Box::new(parse_head(head, found.1, named))))
}

/// Whether the last word is an address as perf prints it: to the right of a
/// column of 16 digits and a space. Other text ends in numbers as well.
fn ends_in_column(text: &[u8]) -> bool {
    let is_space = |b: &&u8| b.is_ascii_whitespace();
    let word = text.iter().rev().take_while(|b| !is_space(b)).count();
    let before = text.iter().rev().skip(word).take_while(is_space).count();
    before > 0 && word + before > 16
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, what)
}

/// Where the entries begin: at the first word `0x…` with a slash in it.
fn first_entry(text: &[u8]) -> usize {
    let mut at = 0;
    for word in text.split(u8::is_ascii_whitespace) {
        // A raw dump begins with `0xOFFSET@FILE`, and the path may have slashes.
        let ends = |b: &&u8| matches!(b, b'/' | b'(' | b'@');
        let is_offset = word.iter().find(ends) == Some(&b'@');
        if word.starts_with(b"0x") && word.contains(&b'/') && !is_offset {
            return at;
        }
        at += word.len() + 1;
    }
    text.len()
}

/// What stands before the entries, read from its end: address, period, event,
/// time, CPU, process and thread, in perf's order, each only if printed.
/// `has_ip` is whether its last word may be the address.
fn parse_head(head: &[u8], has_ip: bool, named: &mut Named) -> SampleHead {
    named.event.clear();
    named.comm.clear();
    let mut found = SampleHead::default();
    let Ok(text) = std::str::from_utf8(head) else { return found };
    let is_time = |word: &str| word.strip_suffix(':').and_then(seconds).is_some();
    let has_time = text.split_ascii_whitespace().any(is_time);
    let mut timed = false;
    let mut before = "";
    for (index, word) in text.split_ascii_whitespace().rev().enumerate() {
        let behind = std::mem::replace(&mut before, word);
        if !named.event.is_empty() && matches!(word, "raw" | "type:" | "attr" | "unknown") {
            // What perf calls events that nobody named.
            named.event.insert(0, ' ');
            named.event.insert_str(0, word);
            continue;
        }
        if let Some(label) = word.strip_suffix(':') {
            if let Some(time) = seconds(label) {
                found.time = Some(time);
                timed = true;
                continue;
            }
            if named.event.is_empty() {
                named.event.push_str(label);
            }
            if found.ip.is_none() {
                // Symbol and file may stand between the address and the end.
                found.ip = u64::from_str_radix(behind, 16).ok();
            }
            continue;
        }
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let is_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
        if index == 0 && is_hex && has_ip {
            found.ip = u64::from_str_radix(digits, 16).ok();
        } else if let Some(cpu) = cpu(word) {
            found.cpu = Some(cpu);
            timed = true;
        } else if let Some((pid, tid)) = word.split_once('/') {
            if let (Ok(pid), Ok(tid)) = (pid.parse(), tid.parse()) {
                (found.pid, found.tid) = (Some(pid), Some(tid));
                named.call(|| before_word(text, word));
                break;
            }
        } else if let Ok(number) = word.parse::<u64>() {
            // Before (right of) the time stands the period, behind it the task.
            if has_time && !timed {
                found.period = Some(number);
            } else {
                found.pid = u32::try_from(number).ok();
                named.call(|| before_word(text, word));
                break;
            }
        } else if (timed || found.ip.is_some()) && !is_misc(word) {
            // The name of a process whose number is not printed, or no head.
            let end = offset(text, word) + word.len();
            named.call(|| text.get(..end).unwrap_or(word).trim());
            break;
        }
    }
    found
}

/// What stands before a word of a text.
fn before_word<'a>(text: &'a str, word: &str) -> &'a str {
    text.get(..offset(text, word)).unwrap_or_default().trim()
}

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize)
}

/// The number of `[003]`; symbols in brackets are none.
fn cpu(word: &str) -> Option<u32> {
    word.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// What `-F misc` prints between the task and the address: the mode.
fn is_misc(word: &str) -> bool {
    matches!(word, "K" | "U" | "H" | "G" | "g" | "UE" | "KE")
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

/// `PERF_RECORD_FORK(pid:tid):(ppid:ptid)`, and the same of EXIT.
fn parse_task(record: &[u8]) -> Option<Line> {
    let text = std::str::from_utf8(record).ok()?;
    let (kind, text) = text.strip_prefix("PERF_RECORD_")?.split_once('(')?;
    let (own, parent) = text.strip_suffix(')')?.split_once("):(")?;
    let pair = |text: &str| -> Option<(u32, u32)> {
        let (pid, tid) = text.split_once(':')?;
        Some((id(pid)?, id(tid)?))
    };
    let ((pid, tid), (ppid, ptid)) = (pair(own)?, pair(parent)?);
    let task = Task { time: 0, pid, tid, ppid, ptid };
    match kind {
        "FORK" => Some(Line::Fork(task)),
        "EXIT" => Some(Line::Exit(task)),
        _ => None,
    }
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
        pid: id(pid.trim())?,
        tid: id(tid.trim())?,
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

/// The number of a process or thread; −1 is the kernel's.
fn id(text: &str) -> Option<u32> {
    text.parse::<i64>().ok().map(|id| id as u32)
}

/// A number, hexadecimal with `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
