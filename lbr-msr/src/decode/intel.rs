//! Decoding of Intel's layouts. SDM 17.4.8.1; Linux `intel/lbr.c`.

use crate::{
    caps::Layout,
    record::{BranchEntry, RawEntry},
    register::record::{ArchInfo, CYCLES_MAX, CyclesTo, FlagsFrom, LbrInfo, PackedRecord, TsxFrom},
};

/// Format 0 and the packed records of Pentium M, Yonah and early NetBurst.
#[inline(always)]
pub(super) fn packed(raw: &RawEntry) -> BranchEntry {
    let record = PackedRecord(raw.from);
    BranchEntry { from: record.from_ip(), to: record.to_ip(), ..BranchEntry::default() }
}

/// Formats 1 and 2, P6, NetBurst models 3 and later.
#[inline(always)]
pub(super) fn plain(raw: &RawEntry) -> BranchEntry {
    BranchEntry { from: raw.from, to: raw.to, ..BranchEntry::default() }
}

/// Format 3.
#[inline(always)]
pub(super) fn flags(raw: &RawEntry) -> BranchEntry {
    let from = FlagsFrom(raw.from);
    BranchEntry {
        from: from.ip(),
        to: raw.to,
        mispredicted: Some(from.mispredicted()),
        ..BranchEntry::default()
    }
}

/// Format 4. Without TSX, bits 62:61 are meaningless.
#[inline(always)]
pub(super) fn flags_tsx(raw: &RawEntry, tsx: bool) -> BranchEntry {
    let from = TsxFrom(raw.from);
    BranchEntry {
        from: from.ip(),
        to: raw.to,
        mispredicted: Some(from.mispredicted()),
        in_tx: tsx.then_some(from.in_tx()),
        abort: tsx.then_some(from.abort()),
        ..BranchEntry::default()
    }
}

/// Formats 5 and 7. It is not documented whether INFO\[62:61\] of format 7 ever means TSX; no CPU
/// with format 7 announces TSX, so `tsx` decides for both.
#[inline(always)]
pub(super) fn info(raw: &RawEntry, tsx: bool) -> BranchEntry {
    let Some(info) = raw.info.map(LbrInfo) else { return plain(raw) };
    BranchEntry {
        from: raw.from,
        to: raw.to,
        mispredicted: Some(info.mispredicted()),
        in_tx: tsx.then_some(info.in_tx()),
        abort: tsx.then_some(info.abort()),
        cycles: Some(u32::from(info.cycles())),
        cycles_saturated: Some(info.cycles() == CYCLES_MAX),
        ..BranchEntry::default()
    }
}

/// Format 6.
#[inline(always)]
pub(super) fn time(raw: &RawEntry) -> BranchEntry {
    let (from, to) = (FlagsFrom(raw.from), CyclesTo(raw.to));
    BranchEntry {
        from: from.ip(),
        to: to.ip(),
        mispredicted: Some(from.mispredicted()),
        cycles: Some(u32::from(to.cycles())),
        cycles_saturated: Some(to.cycles() == CYCLES_MAX),
        ..BranchEntry::default()
    }
}

/// Architectural LBR, with the fields of INFO that `layout` names.
#[inline(always)]
pub(super) fn arch(raw: &RawEntry, layout: Layout) -> BranchEntry {
    let Layout::Arch { mispredict, timed, types, counters, tsx } = layout else {
        return plain(raw);
    };
    let Some(info) = raw.info.map(ArchInfo) else { return plain(raw) };
    let timed = timed && info.cycles_valid();
    let counter = |i: u32| ((counters >> i) & 1 != 0).then_some(info.counter(i));
    BranchEntry {
        from: raw.from,
        to: raw.to,
        mispredicted: mispredict.then_some(info.mispredicted()),
        in_tx: tsx.then_some(info.in_tx()),
        abort: tsx.then_some(info.abort()),
        cycles: timed.then_some(u32::from(info.cycles())),
        cycles_saturated: timed.then_some(info.cycles() == CYCLES_MAX),
        hw_type: if types { info.branch_type() } else { None },
        counters: (counters & 0xF != 0).then(|| [counter(0), counter(1), counter(2), counter(3)]),
        ..BranchEntry::default()
    }
}
