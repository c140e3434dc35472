//! Samples as dumped by `perf script -D` and `perf report -D`: a line for the sample, one with the
//! number of branches, and one per branch.

use lbr_msr::record::BranchSpec;

use super::digits::{decimal, hex};
use super::entry::type_of;
use super::line::Line;
use crate::stack::{EntryFlags, RawBranch, SampleHead};

/// Reads a line of a dumped sample; `None` for any other line.
///
/// `CPU TIME 0xOFFSET [0xSIZE]: PERF_RECORD_SAMPLE(IP, 0xMISC): PID/TID: 0xIP
/// period: N addr: 0xA`, then `... branch stack: nr:N`, then
/// `.....  I: FROM -> TO N cycles FLAGS RESERVED TYPE SPEC`, addresses without
/// `0x`, flags M, P, A and T (in a transaction). Type and spec are optional.
pub(super) fn parse(text: &[u8]) -> Option<Line> {
    if text.starts_with(b".....") {
        return entry(text).map(|(index, branch)| Line::DumpedEntry(index, branch));
    }
    if let Some(count) = text.strip_prefix(b"... branch stack: nr:") {
        return Some(Line::DumpedStack(decimal(count)?));
    }
    head(text).map(|head| Line::Dumped(Box::new(head)))
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn number(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"0x").unwrap_or(word);
    let (value, count) = hex(digits);
    (count == digits.len() && (1..=16).contains(&count)).then_some(value)
}

fn head(text: &[u8]) -> Option<SampleHead> {
    let at = memchr::memmem::find(text, b": PERF_RECORD_SAMPLE(")?;
    let (before, after) = text.split_at_checked(at)?;
    let before: Vec<u64> = words(before).map_while(decimal).collect();
    let (cpu, time) = match *before.as_slice() {
        [.., cpu, time] => (u32::try_from(cpu).ok(), Some(time)),
        [time] => (None, Some(time)),
        [] => (None, None),
    };
    let after = after.get(memchr::memmem::find(after, b"): ")? + 3..)?;
    let mut words = words(after);
    let task = std::str::from_utf8(words.next()?.strip_suffix(b":")?).ok()?;
    let (pid, tid) = task.split_once('/')?;
    let mut head = SampleHead {
        cpu,
        time,
        pid: pid.parse::<i64>().ok().map(|pid| pid as u32),
        tid: tid.parse::<i64>().ok().map(|tid| tid as u32),
        ip: words.next().and_then(number),
        ..SampleHead::default()
    };
    if words.next() == Some(b"period:") {
        head.period = words.next().and_then(decimal);
    }
    Some(head)
}

/// A branch, and its index in the stack.
fn entry(text: &[u8]) -> Option<(u64, RawBranch)> {
    let mut words = words(text.get(5..)?);
    let index = decimal(words.next()?.strip_suffix(b":")?)?;
    let from = number(words.next()?)?;
    if words.next()? != b"->" {
        return None;
    }
    let to = number(words.next()?)?;
    let cycles = decimal(words.next()?)?;
    if words.next()? != b"cycles" {
        return None;
    }
    let mut word = 0;
    let mut words = words.skip_while(|letters| {
        let all = letters.iter().all(|letter| b"MPAT".contains(letter));
        for letter in letters.iter().filter(|_| all) {
            word |= match letter {
                b'M' => EntryFlags::MISPREDICTED,
                b'P' => EntryFlags::PREDICTED,
                b'A' => EntryFlags::ABORT,
                _ => EntryFlags::IN_TX,
            };
        }
        all
    });
    // The reserved bits; names follow them.
    words.next().and_then(number)?;
    let (mut branch_type, mut spec) = (None, None);
    for name in words {
        let of_name = |spec: &BranchSpec| spec.name().as_bytes() == name;
        match (1..=3).filter_map(BranchSpec::from_code).find(of_name) {
            Some(found) => spec = Some(found),
            None => branch_type = branch_type.or(type_of(name)),
        }
    }
    let flags = EntryFlags(word)
        .with_cycles(u32::try_from(cycles).unwrap_or(u32::MAX))
        .with_type(branch_type)
        .with_spec(spec);
    Some((index, RawBranch { from, to, flags }))
}
