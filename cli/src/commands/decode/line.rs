//! A line of register values.

use std::io::{self, BufRead, Read};

use anyhow::{Context, Result, bail, ensure};
use lbr_msr::RawEntry;
use lbr_msr::decode::pebs;
use lbr_msr::record::SourceKnowledge;

use super::Records;
use super::record::RecordRow;
use crate::commands::number::hex;

/// Maximum line length, bytes: longer than any record, so that a file without line ends does not
/// fill the memory.
const LONGEST_LINE: usize = 1 << 16;

/// Reads the next line; `false` at the end. Truncates a line that is too long to one byte more than
/// allowed.
pub(super) fn read(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    let allowed = LONGEST_LINE as u64 + 1;
    let read = input.by_ref().take(allowed).read_until(b'\n', line)?;
    if read > LONGEST_LINE && line.last() != Some(&b'\n') {
        let skipped = input.by_ref().take(profile::ENDLESS).skip_until(b'\n')?;
        if skipped as u64 == profile::ENDLESS {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a line without end"));
        }
    }
    Ok(read != 0)
}

/// The records of a line; none for an empty line or a comment.
pub(super) fn parse(line: &[u8], records: Records) -> Result<Vec<RecordRow>> {
    if line.trim_ascii_start().starts_with(b"#") {
        return Ok(Vec::new());
    }
    ensure!(line.len() <= LONGEST_LINE, "it is longer than {LONGEST_LINE} bytes");
    let line = str::from_utf8(line).ok().context("it is not text")?;
    let row = |layout, raw| RecordRow::of(None, layout, raw, SourceKnowledge::HARDWARE);
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(Vec::new()) };
    if let Records::Lbr(layout) = records
        && layout.is_packed()
    {
        return Ok(vec![row(layout, RawEntry { from: hex(first)?, to: 0, info: None })]);
    }
    if let Records::Pebs(pebs, layout) = records {
        let words: Result<Vec<u64>> = line.split_ascii_whitespace().map(hex).collect();
        let entries = pebs::lbr_entries(pebs, &words?)?;
        return Ok(entries.into_iter().map(|raw| row(layout, raw)).collect());
    }

    let (columns, needed) = match records {
        Records::Brbe => ("INF SRC TGT", 3),
        _ => ("FROM TO [INFO]", 2),
    };
    let first = hex(first)?;
    let missing = |found| format!("{found} of {needed} columns ({columns})");
    let second = hex(words.next().with_context(|| missing(1))?)?;
    let third = match words.next() {
        None | Some("-") => None,
        Some(word) => Some(hex(word)?),
    };
    if words.next().is_some() {
        bail!("more than the columns {columns}");
    }
    Ok(vec![match records {
        Records::Lbr(layout) | Records::Pebs(_, layout) => {
            row(layout, RawEntry { from: first, to: second, info: third })
        }
        Records::Brbe => {
            let to = third.with_context(|| missing(2))?;
            RecordRow::of_brbe(RawEntry { from: second, to, info: Some(first) })
        }
    }])
}
