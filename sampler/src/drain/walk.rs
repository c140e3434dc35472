//! Reads a frozen LBR from the newest record to the end of the new ones.

use lbr_msr::access::MsrResult;
use lbr_msr::record::RawEntry;

use super::ring::{Edge, MarkKind, PACKED_FROM, RingPlan, is_blank};
use super::slots::Slots;
use super::stack::RawStack;

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At the previous drain's mark.
    Mark,
    /// At an expected empty slot.
    Blank,
    /// At an unexpected empty slot.
    Wiped,
    /// At a slot that someone else zeroed.
    Foreign,
    /// Every slot is new: the mark was overwritten.
    Full,
}

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) end: End,
    /// New slots.
    pub(super) new: u32,
    /// The newest slot as read, even if it is not a record.
    pub(super) newest: RawEntry,
}

/// Reads from `top` to `edge` and adds the records to `out`.
pub(super) fn walk(
    ring: &RingPlan,
    edge: &Edge,
    top: u32,
    slots: &mut impl Slots,
    out: &mut RawStack,
) -> MsrResult<Walk> {
    let mut newest = RawEntry::default();
    for age in 0..ring.depth {
        let index = ring.index(top, age);
        let step = match ring.kind {
            MarkKind::Intel => intel(edge, index, slots)?,
            MarkKind::Packed => packed(edge, index, slots)?,
            MarkKind::Brbe => brbe(edge, index, slots)?,
            MarkKind::Amd => amd(edge, index, age == 0, slots)?,
        };
        let (slot, end) = match step {
            WalkStep::Record(slot) => {
                out.push(slot);
                (slot, None)
            }
            WalkStep::NoRecord(slot) => (slot, None),
            WalkStep::End(slot, end) => (slot, Some(end)),
        };
        if age == 0 {
            newest = slot;
        }
        if let Some(end) = end {
            return Ok(Walk { end, new: age, newest });
        }
    }
    Ok(Walk { end: End::Full, new: ring.depth, newest })
}

/// Reads the frames of call-stack mode up to the first FROM = 0.
pub(super) fn frames(
    ring: &RingPlan,
    top: u32,
    slots: &mut impl Slots,
    out: &mut RawStack,
) -> MsrResult<Walk> {
    let mut end = End::Full;
    for age in 0..ring.depth {
        let index = ring.index(top, age);
        let from = slots.from(index)?;
        if from == 0 {
            end = End::Blank;
            break;
        }
        out.push(RawEntry { from, to: slots.to(index)?, info: slots.info(index)? });
    }
    let entries = out.entries();
    let newest = entries.first().copied().unwrap_or_default();
    Ok(Walk { end, new: entries.len() as u32, newest })
}

enum WalkStep {
    Record(RawEntry),
    /// AMD: valid and spec both 0. Skipped, as the manual requires.
    NoRecord(RawEntry),
    End(RawEntry, End),
}

fn intel(edge: &Edge, index: u32, slots: &mut impl Slots) -> MsrResult<WalkStep> {
    let from = slots.from(index)?;
    if from != 0 {
        return Ok(WalkStep::Record(RawEntry {
            from,
            to: slots.to(index)?,
            info: slots.info(index)?,
        }));
    }
    // One more register distinguishes the mark from cleared records: TO, or INFO for a branch to
    // address 0.
    let (slot, is_mark) = match edge {
        Edge::Mark { left, .. } if left.to == 0 => {
            let info = slots.info(index)?;
            (RawEntry { from, to: 0, info }, info == left.info)
        }
        Edge::Mark { .. } | Edge::Blank { .. } => {
            let to = slots.to(index)?;
            let is_mark = matches!(edge, Edge::Mark { left, .. } if left.to == to);
            (RawEntry { from, to, info: None }, is_mark)
        }
    };
    Ok(WalkStep::End(slot, end_at(edge, index, &slot, is_mark)))
}

fn packed(edge: &Edge, index: u32, slots: &mut impl Slots) -> MsrResult<WalkStep> {
    let slot = RawEntry { from: slots.from(index)?, to: 0, info: None };
    if slot.from & PACKED_FROM != 0 {
        return Ok(WalkStep::Record(slot));
    }
    let is_mark = matches!(edge, Edge::Mark { left, .. } if left.from == slot.from);
    Ok(WalkStep::End(slot, end_at(edge, index, &slot, is_mark)))
}

/// Why a walk ends at a slot without a record. `is_mark`: its contents are the mark's.
fn end_at(edge: &Edge, index: u32, slot: &RawEntry, is_mark: bool) -> End {
    let (Edge::Blank { index: at, .. } | Edge::Mark { index: at, .. }) = edge;
    let is_here = at.is_none_or(|at| at == index);
    match edge {
        Edge::Blank { .. } if is_blank(slot) && is_here => End::Blank,
        _ if is_blank(slot) => End::Wiped,
        _ if is_mark && is_here => End::Mark,
        _ => End::Foreign,
    }
}

fn brbe(edge: &Edge, index: u32, slots: &mut impl Slots) -> MsrResult<WalkStep> {
    let info = slots.info(index)?;
    if info.is_none_or(|info| info & 3 == 0) {
        let end = if matches!(edge, Edge::Blank { .. }) { End::Blank } else { End::Wiped };
        return Ok(WalkStep::End(RawEntry::default(), end));
    }
    Ok(WalkStep::Record(RawEntry { from: slots.from(index)?, to: slots.to(index)?, info }))
}

fn amd(edge: &Edge, index: u32, is_newest: bool, slots: &mut impl Slots) -> MsrResult<WalkStep> {
    let to = slots.to(index)?;
    if to >> 62 != 0 {
        return Ok(WalkStep::Record(RawEntry { from: slots.from(index)?, to, info: None }));
    }
    // FROM is needed if the slot may be a mark, empty, or the next to mark.
    if to != 0 && !is_newest {
        return Ok(WalkStep::NoRecord(RawEntry { from: 0, to, info: None }));
    }
    let slot = RawEntry { from: slots.from(index)?, to, info: None };
    let is_mark = matches!(edge, Edge::Mark { left, .. } if to == 0 && left.from == slot.from);
    Ok(match end_at(edge, index, &slot, is_mark) {
        End::Foreign => WalkStep::NoRecord(slot),
        end => WalkStep::End(slot, end),
    })
}
