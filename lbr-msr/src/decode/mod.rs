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
    Some(match layout {
        Layout::AmdV2 { virt_bits } => return amd::v2(raw, virt_bits),
        Layout::Brbe => return brbe::entry(raw),
        _ if raw.from == 0 => return None,
        Layout::Packed32 => intel::packed(raw),
        Layout::Plain => intel::plain(raw),
        Layout::Legacy { format, tsx } => match format.0 {
            0 => intel::packed(raw),
            1 | 2 => intel::plain(raw),
            3 => intel::flags(raw),
            4 => intel::flags_tsx(raw, tsx),
            5 | 7 => intel::info(raw, tsx),
            6 => intel::time(raw),
            _ => return None,
        },
        Layout::Arch { .. } => intel::arch(raw, layout),
        Layout::AmdBrs { virt_bits } => return amd::brs(raw, virt_bits),
        Layout::AmdSingle => amd::single(raw),
    })
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
