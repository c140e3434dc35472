//! Decoding of Intel's layouts. SDM 17.4.8.1; Linux `intel/lbr.c`.

use super::template::{Logged, Templates};
use crate::{
    record::{BranchEntry, RawEntry},
    register::record::{ArchInfo, CYCLES_MAX, CyclesTo, FlagsFrom, LbrInfo, PackedRecord, TsxFrom},
};

/// Format 0 and the packed records of Pentium M, Yonah and early NetBurst.
#[inline(always)]
pub(super) fn packed(raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    let record = PackedRecord(raw.from);
    *slot = BranchEntry { from: record.from_ip(), to: record.to_ip(), ..BranchEntry::default() };
    raw.from != 0
}

/// Formats 1 and 2, P6, NetBurst models 3 and later.
#[inline(always)]
pub(super) fn plain(raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    *slot = BranchEntry { from: raw.from, to: raw.to, ..BranchEntry::default() };
    raw.from != 0
}

/// Format 3.
#[inline(always)]
pub(super) fn flags(raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    let from = FlagsFrom(raw.from);
    *slot = BranchEntry {
        from: from.ip(),
        to: raw.to,
        mispredicted: Some(from.mispredicted()),
        ..BranchEntry::default()
    };
    raw.from != 0
}

/// Format 4. Without TSX, bits 62:61 are meaningless.
#[inline(always)]
pub(super) fn flags_tsx(raw: &RawEntry, templates: &Templates<8>, slot: &mut BranchEntry) -> bool {
    let from = TsxFrom(raw.from);
    *slot = *templates.of((raw.from >> 61) as usize);
    slot.from = from.ip();
    slot.to = raw.to;
    raw.from != 0
}

/// Formats 5 and 7. It is not documented whether INFO\[62:61\] of format 7 ever means TSX; no CPU
/// with format 7 announces TSX, so `tsx` decides for both.
#[inline(always)]
pub(super) fn info(raw: &RawEntry, templates: &Templates<8>, slot: &mut BranchEntry) -> bool {
    let Some(info) = raw.info else { return plain(raw, slot) };
    timed(raw, LbrInfo(info).cycles(), templates.of((info >> 61) as usize), slot)
}

/// Fills a template with addresses, and with cycles if its layout has them.
#[inline(always)]
fn timed(raw: &RawEntry, cycles: u16, template: &BranchEntry, slot: &mut BranchEntry) -> bool {
    *slot = *template;
    slot.from = raw.from;
    slot.to = raw.to;
    slot.cycles = template.cycles.map(|_| u32::from(cycles));
    // Templates are "not saturated"; saturated counts are rare.
    if cycles == CYCLES_MAX {
        slot.cycles_saturated = template.cycles_saturated.map(|_| true);
    }
    raw.from != 0
}

/// Format 6.
#[inline(always)]
pub(super) fn time(raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    let (from, to) = (FlagsFrom(raw.from), CyclesTo(raw.to));
    *slot = BranchEntry {
        from: from.ip(),
        to: to.ip(),
        mispredicted: Some(from.mispredicted()),
        cycles: Some(u32::from(to.cycles())),
        cycles_saturated: Some(to.cycles() == CYCLES_MAX),
        ..BranchEntry::default()
    };
    raw.from != 0
}

/// The fields of INFO that a CPU's Architectural LBR has.
#[derive(Clone, Copy)]
pub(super) struct ArchFields {
    pub(super) mispredict: bool,
    pub(super) timed: bool,
    pub(super) types: bool,
    pub(super) counters: u8,
    pub(super) tsx: bool,
}

/// Architectural LBR with every field except counters, as all CPUs so far have it.
#[inline(always)]
pub(super) fn arch_full(
    raw: &RawEntry,
    templates: &Templates<256>,
    slot: &mut BranchEntry,
) -> bool {
    let Some(info) = raw.info else { return plain(raw, slot) };
    timed(raw, ArchInfo(info).cycles(), templates.of((info >> 56) as usize), slot)
}

/// Architectural LBR with every field and with counters.
#[inline(always)]
pub(super) fn arch_counted(
    raw: &RawEntry,
    templates: &Templates<256>,
    logged: &Logged,
    slot: &mut BranchEntry,
) -> bool {
    let Some(info) = raw.info else { return plain(raw, slot) };
    let holds = timed(raw, ArchInfo(info).cycles(), templates.of((info >> 56) as usize), slot);
    slot.counters = Some(logged.of((info >> 32) as usize));
    holds
}

/// Architectural LBR. `COUNTED`: counters are logged. Decoding them costs as much as all other
/// fields together, and few CPUs have them.
#[inline(always)]
pub(super) fn arch<const COUNTED: bool>(
    raw: &RawEntry,
    has: ArchFields,
    slot: &mut BranchEntry,
) -> bool {
    let known = raw.info.is_some();
    let info = ArchInfo(raw.info.unwrap_or(0));
    let timed = known & has.timed & info.cycles_valid();
    let counter = |i: u32| ((has.counters >> i) & 1 != 0).then_some(info.counter(i));
    let typed = if known & has.types { info.branch_type() } else { None };
    *slot = BranchEntry {
        from: raw.from,
        to: raw.to,
        mispredicted: (known & has.mispredict).then_some(info.mispredicted()),
        in_tx: (known & has.tsx).then_some(info.in_tx()),
        abort: (known & has.tsx).then_some(info.abort()),
        cycles: timed.then_some(u32::from(info.cycles())),
        cycles_saturated: timed.then_some(info.cycles() == CYCLES_MAX),
        hw_type: typed,
        counters: (COUNTED & known).then(|| [counter(0), counter(1), counter(2), counter(3)]),
        ..BranchEntry::default()
    };
    raw.from != 0
}
