//! LBR entries in PEBS records. Linux perf_event.h (`pebs_basic`, `arch_pebs_header`).
//!
//! A record is a sequence of groups, each present if the record's format bits name it; the LBR
//! group follows the registers. Its entries are FROM, TO and INFO, the newest first.

use alloc::vec::Vec;

use crate::record::RawEntry;

/// How a PEBS record is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PebsLayout {
    /// Adaptive PEBS: the first word has the groups and sizes.
    Adaptive,
    /// Architectural PEBS: a header of two words, which announces further fragments.
    Arch,
}

/// Why a record has no LBR entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PebsError {
    /// It ends before its groups do.
    #[error("the PEBS record needs {needed} 64-bit words, and {found} are here")]
    Short {
        /// Words up to the end of the LBR group.
        needed: usize,
        /// Words of the record.
        found: usize,
    },
    /// The format bits do not name the LBR group.
    #[error("the PEBS record has no LBR group")]
    NoLbr,
}

/// Words of groups in front of the LBR entries: a bit of the format, and the size.
type Groups = [(u32, usize)];
/// Memory, general registers, XMM registers.
const ADAPTIVE: &Groups = &[(0, 4), (1, 18), (2, 32)];
/// Basic, memory, general registers.
const ARCH: &Groups = &[(63, 6), (62, 8), (61, 20)];
/// XMM, YMMH, mask registers, ZMMH, ZMM16 to 31. A header of two words precedes the first of them.
const VECTORS: &Groups = &[(49, 32), (50, 32), (53, 8), (54, 64), (55, 128)];

fn size(format: u64, groups: &Groups) -> usize {
    groups.iter().filter(|(bit, _)| format >> bit & 1 == 1).map(|(_, words)| words).sum()
}

/// The LBR entries of a record, newest first, up to the first empty one.
///
/// # Errors
/// [`PebsError`].
pub fn lbr_entries(layout: PebsLayout, mut record: &[u64]) -> Result<Vec<RawEntry>, PebsError> {
    let short = |needed, record: &[u64]| PebsError::Short { needed, found: record.len() };
    let (start, entries) = loop {
        let format = *record.first().ok_or(short(1, record))?;
        if layout == PebsLayout::Adaptive {
            if format >> 3 & 1 == 0 {
                return Err(PebsError::NoLbr);
            }
            break (4 + size(format, ADAPTIVE), (format >> 24 & 0xFF) as usize + 1);
        }
        let vectors = size(format, VECTORS);
        let header = 2 + size(format, ARCH) + vectors + 2 * usize::from(vectors > 0);
        match format >> 40 & 3 {
            0 if format >> 31 & 1 == 0 => return Err(PebsError::NoLbr),
            // The next fragment of the record.
            0 => {
                let next = (format & 0xFFFF) as usize / 8;
                record = record.get(next.max(2)..).ok_or(short(next, record))?;
            }
            3 => {
                let depth = *record.get(header + 2).ok_or(short(header + 6, record))?;
                break (header + 6, usize::try_from(depth).unwrap_or(usize::MAX));
            }
            eights => break (header + 6, eights as usize * 8),
        }
    };
    let needed = start.saturating_add(entries.saturating_mul(3));
    let all = record.get(start..needed).ok_or(short(needed, record))?;
    let (all, _) = all.as_chunks::<3>();
    let entries = all.iter().map(|&[from, to, info]| RawEntry { from, to, info: Some(info) });
    Ok(entries.take_while(|entry| entry.from != 0).collect())
}
