//! Counts of branches that somebody else aggregated, in the letters of BOLT's
//! `perf2bolt -pa`:
//!
//! | line | what |
//! |---|---|
//! | `B from to count mispredicted` | a branch |
//! | `T from to end count`, `R …` | a branch, and straight code behind it |
//! | `F start end count`, `f …`, `r …` | straight code |
//! | `S address count` | samples without branches |
//! | `E name` | the event of the lines that follow |
//!
//! Addresses are hexadecimal without `0x`, with a build id before them where
//! they are not in the main program; `X:` is an unknown file, 0 any place
//! outside, and the last three numbers stand for no branch.

use super::digits::{decimal, hex};
use super::error::LineError;
use super::line::{Context, Line};
use crate::read::stack::{EntryFlags, RawBranch, SampleHead};

/// How such a text is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Aggregated {
    /// Some branch was mispredicted: what is not was predicted. Where none is,
    /// nobody knows.
    knows_predictions: bool,
}

/// From here up an address says that there is none.
const NO_BRANCH: u64 = u64::MAX - 2;

/// Whether the lines of a text are such counts, by those at its head.
pub(crate) fn settle(head: &[u8]) -> Option<Aggregated> {
    let mut found = None;
    let mut lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    // The last may be cut.
    if lines.len() > 1 {
        lines.pop();
    }
    for line in lines.into_iter().filter(|line| !line.trim_ascii().is_empty()) {
        let count = fields(line)?;
        let knows = found.is_some_and(|found: Aggregated| found.knows_predictions);
        found = Some(Aggregated {
            knows_predictions: knows
                || matches!(count, Fields::Branch { mispredicted: Some(1..), .. }),
        });
    }
    found
}

enum Fields<'a> {
    Branch { from: &'a [u8], to: &'a [u8], count: u64, mispredicted: Option<u64> },
    Range,
    Sample { at: &'a [u8], count: u64 },
    Event(&'a [u8]),
}

fn fields(line: &[u8]) -> Option<Fields<'_>> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let letter = words.next()?;
    let rest: Vec<&[u8]> = words.take(5).collect();
    let number = |word: &&[u8]| decimal(word);
    let are = |ends: &[&[u8]]| ends.iter().all(|end| address(end).is_some());
    Some(match (letter, &*rest) {
        (b"B", [from, to, count, mispredicted]) if are(&[from, to]) => {
            let mispredicted = Some(number(mispredicted)?);
            Fields::Branch { from, to, count: number(count)?, mispredicted }
        }
        (b"T" | b"R", [from, to, end, count]) if are(&[from, to, end]) => {
            let count = number(count)?;
            match address(from)?.1 >= NO_BRANCH {
                true => Fields::Range,
                false => Fields::Branch { from, to, count, mispredicted: None },
            }
        }
        (b"F" | b"f" | b"r", [start, end, count]) if are(&[start, end]) => {
            number(count)?;
            Fields::Range
        }
        (b"S", [at, count]) if are(&[at]) => Fields::Sample { at, count: number(count)? },
        (b"E", [name]) => Fields::Event(name),
        _ => return None,
    })
}

/// The build id, if there is one, and the number behind it.
fn address(word: &[u8]) -> Option<(&[u8], u64)> {
    let (id, digits) = match memchr::memchr(b':', word) {
        Some(at) => (word.get(..at)?, word.get(at + 1..)?),
        None => (&[][..], word),
    };
    let (value, count) = hex(digits);
    let is_id = id.is_empty() || id == b"X" || id.iter().all(u8::is_ascii_hexdigit);
    (is_id && count == digits.len() && (1..=16).contains(&count)).then_some((id, value))
}

impl Aggregated {
    /// Reads a line. Of a branch that was predicted and mispredicted both are
    /// put into `entries`, each counted as often as it was.
    pub(super) fn parse(
        self,
        line: &[u8],
        entries: &mut Vec<RawBranch>,
        context: &mut Context,
    ) -> Result<Line, LineError> {
        let mut place = |word: &[u8]| {
            let (id, address) = address(word)?;
            // What has none is in the main program.
            match id {
                b"" | b"X" => Some(address),
                id => context.names.number(id, None, address),
            }
        };
        let head = |weight, ip| SampleHead { weight, ip, ..SampleHead::default() };
        match fields(line).ok_or(LineError::Unknown)? {
            Fields::Branch { from, to, count, mispredicted } => {
                let ends = (place(from), place(to));
                let (Some(from), Some(to)) = ends else { return Err(LineError::Unknown) };
                let knows = self.knows_predictions && mispredicted.is_some();
                let wrong = mispredicted.unwrap_or_default().min(count);
                let flags = |wrong: bool| {
                    EntryFlags(match wrong {
                        true => EntryFlags::MISPREDICTED,
                        false if knows => EntryFlags::PREDICTED,
                        false => 0,
                    })
                };
                let branch = |wrong| RawBranch { from, to, flags: flags(wrong) };
                entries.push(branch(wrong > 0 && wrong == count));
                let rest = match wrong {
                    0 => None,
                    wrong if wrong == count => None,
                    wrong => Some((branch(true), wrong)),
                };
                Ok(Line::Counted {
                    head: Box::new(head(count - rest.map_or(0, |r| r.1), None)),
                    rest,
                })
            }
            Fields::Range => Ok(Line::Range),
            Fields::Sample { at, count } => Ok(Line::Sample(Box::new(head(count, place(at))))),
            Fields::Event(name) => {
                context.event = String::from_utf8_lossy(name).into_owned();
                Ok(Line::Other)
            }
        }
    }
}
