//! Arm BRBE records. Source: BRBE.
//!
//! A record is the three registers BRBINF, BRBSRC and BRBTGT of one index.
//! Index 0 is the newest; the first record whose VALID is 0 ends the list.

use crate::record::{BranchEntry, RawEntry};
use crate::register::brbe::{BRBE_CYCLES_MAX, BrbInf, BrbeType};

/// One branch or exception that BRBE recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BrbeRecord {
    /// Source address; `None` if the CPU was not permitted to record it.
    pub from: Option<u64>,
    /// Target address; `None` if the CPU was not permitted to record it.
    pub to: Option<u64>,
    /// TYPE.
    pub branch_type: BrbeType,
    /// MPRED.
    pub mispredicted: bool,
    /// EL, 0 to 3.
    pub el: u8,
    /// T: in a transaction.
    pub transactional: bool,
    /// LASTFAILED: a transaction failed or was cancelled before this record.
    pub last_failed: bool,
    /// Cycles since the previous record, exact up to 255 and with nine significant bits above;
    /// `None` if unknown.
    pub cycles: Option<u64>,
    /// Whether the count is the maximum of its 20-bit counter; `None` without `cycles`.
    pub cycles_saturated: Option<bool>,
}

/// Decodes one record: BRBSRC as `from`, BRBTGT as `to` and BRBINF as `info`. `None` if VALID is 0.
pub fn decode(raw: &RawEntry) -> Option<BrbeRecord> {
    let inf = BrbInf(raw.info?);
    let (has_source, has_target) = inf.valid();
    if !has_source && !has_target {
        return None;
    }
    let cycles = inf.cycles();
    Some(BrbeRecord {
        from: has_source.then_some(raw.from),
        to: has_target.then_some(raw.to),
        branch_type: inf.branch_type(),
        mispredicted: inf.mispredicted(),
        el: inf.el(),
        transactional: inf.transactional(),
        last_failed: inf.last_failed(),
        cycles,
        cycles_saturated: cycles.map(|count| count >= BRBE_CYCLES_MAX),
    })
}

/// The common form of a record. Types and flags as in Linux `arm_brbe.c`.
pub(super) fn entry(raw: &RawEntry) -> Option<BranchEntry> {
    let record = decode(raw)?;
    let hw_type = record.branch_type.class();
    Some(BranchEntry {
        from: record.from.unwrap_or(0),
        to: record.to.unwrap_or(0),
        // A target without its source has no prediction.
        mispredicted: record.from.and(Some(record.mispredicted)),
        cycles: record.cycles.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        cycles_saturated: record.cycles_saturated,
        hw_type: Some(hw_type),
        branch_type: hw_type.branch_type().or_else(|| record.branch_type.exception()),
        ..BranchEntry::default()
    })
}
