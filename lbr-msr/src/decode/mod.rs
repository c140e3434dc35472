//! Decodes register values into branches.
//!
//! Nothing here touches a CPU. An empty record decodes to `None`; a field that the layout does not
//! record is `None` in the entry. Each layout is decoded in one place.

use crate::{
    caps::{Layout, Order},
    record::{BranchEntry, RawEntry},
    register::Tos,
};

mod amd;
pub mod brbe;
mod intel;
mod layout;
pub mod pebs;

/// Decodes one record.
///
/// `None` for an empty record: FROM is 0; AMD LbrExtV2: neither valid nor speculative; AMD BRS:
/// also if TO is Linux's poison value. Also `None` for [`Layout::Legacy`] with an undocumented
/// format, whose bits cannot be interpreted.
#[inline]
pub fn decode(layout: Layout, raw: &RawEntry) -> Option<BranchEntry> {
    let mut entry = BranchEntry::default();
    decode_into(layout, raw, &mut entry).then_some(entry)
}

/// [Decodes](decode) one record in place, which avoids a copy of the entry. Returns whether the
/// record holds anything; if not, `slot` is unspecified.
#[inline]
pub fn decode_into(layout: Layout, raw: &RawEntry, slot: &mut BranchEntry) -> bool {
    match layout {
        Layout::Packed32 => intel::packed(raw, slot),
        Layout::Plain => intel::plain(raw, slot),
        Layout::Legacy { format, tsx } => match format.0 {
            0 => intel::packed(raw, slot),
            1 | 2 => intel::plain(raw, slot),
            3 => intel::flags(raw, slot),
            4 => intel::flags_tsx(raw, tsx, slot),
            5 | 7 => intel::info(raw, tsx, slot),
            6 => intel::time(raw, slot),
            _ => false,
        },
        Layout::Arch { .. } => intel::arch(raw, layout, slot),
        Layout::AmdV2 { virt_bits } => amd::v2(raw, virt_bits, slot),
        Layout::AmdBrs { virt_bits } => amd::brs(raw, virt_bits, slot),
        Layout::AmdSingle => amd::single(raw, slot),
        Layout::Brbe => brbe::entry(raw, slot),
    }
}

/// The register indices of the records, **newest first**; reversed, oldest first.
///
/// `tos` locates the newest record: the value of MSR_LASTBRANCH_TOS for [`Order::Tos`] (bits above
/// the index are ignored), MSROFF for [`Order::Saturating`], unused otherwise. `depth` is the
/// number of records; every index is below it. SDM 17.4.8, 17.11.2; Linux `amd/brs.c`.
pub fn ring_order(
    order: Order,
    depth: u32,
    tos: u64,
) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator {
    let position = Tos(tos).index(depth);
    let (newest, count) = match order {
        Order::Tos => (position, depth),
        // MSROFF is the next index to be written; it wraps to 0 when all are used.
        Order::Saturating => {
            let filled = if position == 0 { depth } else { position };
            (filled.saturating_sub(1), filled)
        }
        Order::NewestFirst | Order::Single => (0, depth),
    };
    let upward = matches!(order, Order::NewestFirst);
    (0..count).map(move |age| {
        if upward {
            age
        } else if age <= newest {
            newest - age
        } else {
            depth - (age - newest)
        }
    })
}
