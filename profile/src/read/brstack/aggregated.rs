//! Aggregated branch counts in the format of BOLT's `perf2bolt -pa`:
//!
//! | line | meaning |
//! |---|---|
//! | `B from to count mispredicted` | a branch |
//! | `T from to end count` | a branch, and the fall-through range from its target to `end` |
//! | `R from to end count` | the same for a return |
//! | `F start end count` | a fall-through range from a target to the next branch |
//! | `f …`, `r …` | the same, entered from outside of the counted code (`r`: by a return) |
//! | `S address count` | samples without branches |
//! | `E name` | the event of the lines that follow |
//!
//! Addresses are hexadecimal without `0x`. A build ID precedes those outside of the main program;
//! `X:` means an unknown file, 0 any outside address, and the three highest numbers mean no branch.

use lbr_msr::record::BranchType;

use super::line::{Line, LineError, SecondCount};
use super::words::{decimal, hex, not_empty};
use crate::read::names::Names;
use crate::read::stack::{EntryFlags, RawBranch, SampleHead};
use lbr_msr::text::AsText;

/// How to read such a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Aggregated {
    /// Whether any branch was mispredicted, so that the others were predicted. If none was,
    /// predictions are unknown.
    knows_predictions: bool,
}

/// Numbers from here on mean no branch.
const NO_BRANCH: u64 = u64::MAX - 2;

/// Whether a text consists of such counts, judged by its first lines.
pub(crate) fn settle(head: &[u8]) -> Option<Aggregated> {
    // The last line may be truncated.
    let whole = memchr::memrchr(b'\n', head).and_then(|end| head.get(..end)).unwrap_or(head);
    let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let mut found = None;
    for line in lines {
        let is_known = matches!(fields(line)?, Fields::Branch { mispredicted: Some(1..), .. });
        let Aggregated { knows_predictions } = found.get_or_insert_default();
        *knows_predictions |= is_known;
    }
    found
}

enum Fields<'a> {
    Branch { from: &'a [u8], to: &'a [u8], count: u64, mispredicted: Option<u64>, more: More<'a> },
    Straight { start: &'a [u8], end: &'a [u8], count: u64 },
    Sample { at: &'a [u8], count: u64 },
    Event(&'a [u8]),
}

/// Further data of a branch's line.
#[derive(Clone, Copy, Debug, Default)]
struct More<'a> {
    /// The end of the fall-through range after it.
    end: Option<&'a [u8]>,
    is_return: bool,
}

fn fields(line: &[u8]) -> Option<Fields<'_>> {
    let mut words = not_empty(line);
    let letter = words.next()?;
    let rest: Vec<&[u8]> = words.take(5).collect();
    let are = |ends: &[&[u8]]| ends.iter().all(|end| address(end).is_some());
    Some(match (letter, &*rest) {
        (b"B", [from, to, count, mispredicted]) if are(&[from, to]) => {
            let (count, mispredicted) = (decimal(count)?, Some(decimal(mispredicted)?));
            Fields::Branch { from, to, count, mispredicted, more: More::default() }
        }
        (b"T" | b"R", [from, to, end, count]) if are(&[from, to, end]) => {
            let count = decimal(count)?;
            if address(from)?.1 >= NO_BRANCH {
                return Some(Fields::Straight { start: to, end, count });
            }
            let more = More { end: Some(end), is_return: letter == b"R" };
            Fields::Branch { from, to, count, mispredicted: None, more }
        }
        (b"F" | b"f" | b"r", [start, end, count]) if are(&[start, end]) => {
            Fields::Straight { start, end, count: decimal(count)? }
        }
        (b"S", [at, count]) if are(&[at]) => Fields::Sample { at, count: decimal(count)? },
        (b"E", [name]) => Fields::Event(name),
        _ => return None,
    })
}

/// The build ID, if any, and the following number.
fn address(word: &[u8]) -> Option<(&[u8], u64)> {
    let (id, digits) = match memchr::memchr(b':', word) {
        Some(at) => (word.get(..at)?, word.get(at + 1..)?),
        None => (&[][..], word),
    };
    let is_id = id == b"X" || id.iter().all(u8::is_ascii_hexdigit);
    Some((id, hex(digits)?)).filter(|_| is_id)
}

impl Aggregated {
    /// Parses a line. A branch with both predicted and mispredicted counts yields both, each with
    /// its count.
    pub(super) fn parse(
        self,
        line: &[u8],
        entries: &mut Vec<RawBranch>,
        names: &mut Names,
        event: &mut String,
    ) -> Result<Line, LineError> {
        let mut place = |word: &[u8]| {
            let (id, address) = address(word)?;
            // Without a build ID, it is in the main program.
            match id {
                b"" | b"X" => Some(address),
                id => names.number(id, None, address),
            }
        };
        let mut places =
            |from: &[u8], to: &[u8]| place(from).zip(place(to)).ok_or(LineError::Unknown);
        match fields(line).ok_or(LineError::Unknown)? {
            Fields::Branch { from, to, count, mispredicted, more } => {
                let knows = self.knows_predictions && mispredicted.is_some();
                let wrong = mispredicted.unwrap_or_default().min(count);
                let (at, target) = places(from, to)?;
                let branch = |is_wrong: bool| {
                    let flags = EntryFlags(match is_wrong {
                        true => EntryFlags::MISPREDICTED,
                        false if knows => EntryFlags::PREDICTED,
                        false => 0,
                    });
                    let branch_type = more.is_return.then_some(BranchType::RET);
                    RawBranch { from: at, to: target, flags: flags.with_type(branch_type) }
                };
                entries.push(branch(wrong > 0 && wrong == count));
                let (count, second) = match more.end {
                    Some(end) => (count, Some(SecondCount::Straight(places(to, end)?, count))),
                    None if wrong > 0 && wrong < count => {
                        (count - wrong, Some(SecondCount::Branch(branch(true), wrong)))
                    }
                    None => (count, None),
                };
                Ok(Line::Counted { count, second })
            }
            Fields::Straight { start, end, count } => {
                Ok(Line::Straight(places(start, end)?, count))
            }
            Fields::Sample { at, count } => {
                let head = SampleHead { weight: count, ip: place(at), ..SampleHead::default() };
                Ok(Line::Sample(Box::new(head)))
            }
            Fields::Event(name) => {
                *event = name.as_text().into_owned();
                Ok(Line::Other)
            }
        }
    }
}
