//! Decoding of AMD's layouts. Linux `amd/lbr.c`, `amd/brs.c`.

use crate::{
    record::{BranchEntry, RawEntry},
    register::amd::{AmdFrom, AmdTo, PAIR_IP},
};

/// LbrExtV2. A record is empty only if valid and spec are both 0. Hardware renames the registers,
/// so an empty record may lie between two others.
#[inline(always)]
pub(super) fn v2(raw: &RawEntry, virt_bits: u8) -> Option<BranchEntry> {
    let (from, to) = (AmdFrom(raw.from), AmdTo(raw.to));
    let spec = to.spec()?;
    Some(BranchEntry {
        from: from.ip(virt_bits),
        to: to.ip(virt_bits),
        mispredicted: Some(from.mispredicted()),
        spec: Some(spec),
        ..BranchEntry::default()
    })
}

/// BRS. FROM is the full address.
#[inline(always)]
pub(super) fn brs(raw: &RawEntry, virt_bits: u8) -> Option<BranchEntry> {
    let to = AmdTo(raw.to);
    let entry = BranchEntry { from: raw.from, to: to.ip(virt_bits), ..BranchEntry::default() };
    (to != AmdTo::BRS_POISON).then_some(entry)
}

/// The one-entry pair. AMD's CPUs use the bits above 56 in different ways, so only the lower bits
/// are decoded.
#[inline(always)]
pub(super) fn single(raw: &RawEntry) -> BranchEntry {
    BranchEntry { from: PAIR_IP.of(raw.from), to: PAIR_IP.of(raw.to), ..BranchEntry::default() }
}
