//! A line of register values.

use std::io::{self, BufRead, Read};

use lbr_msr::RawEntry;
use lbr_msr::decode::brbe::RawBrbe;
use lbr_msr::decode::pebs::{self, PebsError};
use lbr_msr::record::SourceKnowledge;

use super::Records;
use super::record::RecordRow;
use crate::commands::number::{NotHex, hex};

/// Why a line is not a record.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadLine {
    #[error(transparent)]
    Number(#[from] NotHex),
    #[error(transparent)]
    Pebs(#[from] PebsError),
    #[error("{found} of {needed} columns ({columns})")]
    Missing { found: usize, needed: usize, columns: &'static str },
    #[error("more than the columns {columns}")]
    Extra { columns: &'static str },
    #[error("it is not text")]
    NotText,
    #[error("it is longer than {LONGEST_LINE} bytes")]
    TooLong,
}

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
pub(super) fn parse(line: &[u8], records: Records) -> Result<Vec<RecordRow>, BadLine> {
    if line.trim_ascii_start().starts_with(b"#") {
        return Ok(Vec::new());
    }
    if line.len() > LONGEST_LINE {
        return Err(BadLine::TooLong);
    }
    let line = str::from_utf8(line).map_err(|_| BadLine::NotText)?;
    let mut words = line.split_ascii_whitespace();
    let Some(first) = words.next() else { return Ok(Vec::new()) };
    if let Records::Lbr(layout) = records
        && layout.is_packed()
    {
        let raw = RawEntry { from: hex(first)?, to: 0, info: None };
        return Ok(vec![RecordRow::of(None, layout, raw, SourceKnowledge::HARDWARE)]);
    }
    if let Records::Pebs(pebs, layout) = records {
        let words: Result<Vec<u64>, NotHex> = line.split_ascii_whitespace().map(hex).collect();
        let entries = pebs::lbr_entries(pebs, &words?)?;
        let row = |raw| RecordRow::of(None, layout, raw, SourceKnowledge::HARDWARE);
        return Ok(entries.into_iter().map(row).collect());
    }

    let (columns, needed) = match records {
        Records::Brbe => ("INF SRC TGT", 3),
        _ => ("FROM TO [INFO]", 2),
    };
    let first = hex(first)?;
    let second = words.next().ok_or(BadLine::Missing { found: 1, needed, columns })?;
    let second = hex(second)?;
    let third = match words.next() {
        None | Some("-") => None,
        Some(word) => Some(hex(word)?),
    };
    if words.next().is_some() {
        return Err(BadLine::Extra { columns });
    }
    Ok(vec![match records {
        Records::Lbr(layout) | Records::Pebs(_, layout) => RecordRow::of(
            None,
            layout,
            RawEntry { from: first, to: second, info: third },
            SourceKnowledge::HARDWARE,
        ),
        Records::Brbe => {
            let tgt = third.ok_or(BadLine::Missing { found: 2, needed, columns })?;
            RecordRow::of_brbe(RawBrbe { inf: first, src: second, tgt })
        }
    }])
}
