//! Decoding of AMD's layouts. Linux `amd/lbr.c`, `amd/brs.c`.

use crate::{
    record::{BranchEntry, RawEntry},
    register::amd::{AmdFrom, AmdTo, PAIR_IP},
};

/// LbrExtV2. A record is empty only if valid and spec are both 0. Hardware renames the registers,
/// so an empty record may lie between two others.
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

/// BRS. FROM is the full address.
#[inline(always)]
pub(super) fn brs(raw: &RawEntry, virt_bits: u8, slot: &mut BranchEntry) -> bool {
    let to = AmdTo(raw.to);
    *slot = BranchEntry { from: raw.from, to: to.ip(virt_bits), ..BranchEntry::default() };
    (raw.from != 0) & (to != AmdTo::BRS_POISON)
}

/// The one-entry pair. AMD's CPUs use the bits above 56 in different ways, so only the lower bits
/// are decoded.
#[inline(always)]
pub(super) fn single(raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    *slot = BranchEntry {
        from: PAIR_IP.of(raw.from),
        to: PAIR_IP.of(raw.to),
        ..BranchEntry::default()
    };
    raw.from != 0
}
