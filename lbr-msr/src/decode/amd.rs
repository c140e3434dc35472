//! The rules of AMD's layouts. Linux `amd/lbr.c`, `amd/brs.c`.

use crate::{
    record::{BranchEntry, RawEntry},
    register::amd::{AmdFrom, AmdTo, PAIR_IP},
};

/// LbrExtV2. Only valid and spec tell an empty record: hardware renames the
/// registers, so one may lie between two that hold something.
#[inline(always)]
pub(super) fn v2(raw: &RawEntry, virt_bits: u8, slot: &mut BranchEntry) -> bool {
    let (from, to) = (AmdFrom(raw.from), AmdTo(raw.to));
    let spec = to.spec();
    *slot = BranchEntry {
        from: from.ip(virt_bits),
        to: to.ip(virt_bits),
        mispredicted: Some(from.mispredicted()),
        spec,
        ..BranchEntry::default()
    };
    spec.is_some()
}

/// BRS. FROM is complete as written.
#[inline(always)]
pub(super) fn brs(raw: &RawEntry, virt_bits: u8, slot: &mut BranchEntry) -> bool {
    let to = AmdTo(raw.to);
    *slot = BranchEntry { from: raw.from, to: to.ip(virt_bits), ..BranchEntry::default() };
    (raw.from != 0) & (to != AmdTo::BRS_POISON)
}

/// The one-entry pair: AMD's CPUs use the bits above 56 in different ways,
/// so only those below are told.
#[inline(always)]
pub(super) fn single(raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    *slot = BranchEntry {
        from: PAIR_IP.of(raw.from),
        to: PAIR_IP.of(raw.to),
        ..BranchEntry::default()
    };
    raw.from != 0
}
