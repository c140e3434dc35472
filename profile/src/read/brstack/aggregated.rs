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

use super::line::{Line, SecondCount};
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
    let mut found: Option<Aggregated> = None;
    let (mut entries, mut names, mut event) = (Vec::new(), Names::default(), String::new());
    for line in lines {
        found.get_or_insert_default().read(line, &mut entries, &mut names, &mut event)?;
    }
    found
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
    /// Parses a line, and notes whether predictions are known in the following lines. A branch with
    /// both predicted and mispredicted counts yields both, each with its count.
    pub(super) fn read(
        &mut self,
        line: &[u8],
        entries: &mut Vec<RawBranch>,
        names: &mut Names,
        event: &mut String,
    ) -> Option<Line> {
        let mut words = not_empty(line);
        let letter = words.next()?;
        let rest: Vec<&[u8]> = words.take(5).collect();
        let mut place = |(id, address): (&[u8], u64)| match id {
            // Without a build ID, it is in the main program.
            b"" | b"X" => Some(address),
            id => names.number(id, None, address),
        };
        Some(match (letter, &*rest) {
            (b"B", [from, to, count, mispredicted]) => {
                let (from, to) = (address(from)?, address(to)?);
                let (count, missed) = (decimal(count)?, decimal(mispredicted)?);
                let (from, to) = (place(from)?, place(to)?);
                let branch = |flags| RawBranch { from, to, flags: EntryFlags(flags) };
                let predicted = if self.knows_predictions { EntryFlags::PREDICTED } else { 0 };
                self.knows_predictions |= missed > 0;
                let (predicted, mispredicted) =
                    (branch(predicted), branch(EntryFlags::MISPREDICTED));
                if missed == 0 || missed >= count {
                    entries.push(if missed.min(count) > 0 { mispredicted } else { predicted });
                    return Some(Line::Counted { count, second: None });
                }
                entries.push(predicted);
                let second = Some(SecondCount::Branch(mispredicted, missed));
                Line::Counted { count: count - missed, second }
            }
            (b"T" | b"R", [from, to, end, count]) => {
                let (from, to, end) = (address(from)?, address(to)?, address(end)?);
                let count = decimal(count)?;
                let from = if from.1 < NO_BRANCH { Some(place(from)?) } else { None };
                let to = place(to)?;
                let ends = (to, place(end)?);
                let Some(from) = from else { return Some(Line::Straight(ends, count)) };
                let branch_type = (letter == b"R").then_some(BranchType::RET);
                entries.push(RawBranch { from, to, flags: EntryFlags(0).with_type(branch_type) });
                Line::Counted { count, second: Some(SecondCount::Straight(ends, count)) }
            }
            (b"F" | b"f" | b"r", [start, end, count]) => {
                let (start, end, count) = (address(start)?, address(end)?, decimal(count)?);
                Line::Straight((place(start)?, place(end)?), count)
            }
            (b"S", [at, count]) => {
                let (at, weight) = (address(at)?, decimal(count)?);
                Line::Sample(Box::new(SampleHead {
                    weight,
                    ip: place(at),
                    ..SampleHead::default()
                }))
            }
            (b"E", [name]) => {
                *event = name.as_text().into_owned();
                Line::Other
            }
            _ => return None,
        })
    }
}
