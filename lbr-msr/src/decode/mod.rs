//! Decodes register values into branches.
//!
//! Nothing here touches a CPU. An empty record decodes to `None`; a field that the layout does not
//! record is `None` in the entry. Each layout is decoded in one place.

use crate::{
    caps::Layout,
    record::{BranchEntry, RawEntry},
};

mod amd;
pub mod brbe;
mod intel;
mod layout;
mod order;

pub use order::ring_order;

/// Decodes one record.
///
/// `None` for an empty record: FROM is 0; AMD LbrExtV2: neither valid nor speculative; AMD BRS:
/// also if TO is Linux's poison value. Also `None` for [`Layout::Legacy`] with an undocumented
/// format, whose bits cannot be interpreted.
#[must_use]
#[inline]
pub fn decode(layout: Layout, raw: &RawEntry) -> Option<BranchEntry> {
    let mut entry = BranchEntry::default();
    decode_into(layout, raw, &mut entry).then_some(entry)
}

/// [Decodes](decode) one record in place, which avoids a copy of the entry. Returns whether the
/// record holds anything; if not, `slot` is unspecified.
#[must_use]
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
        Layout::Arch { mispredict, timed, types, counters, tsx } => {
            let fields = intel::ArchFields { mispredict, timed, types, counters, tsx };
            intel::arch(raw, fields, slot)
        }
        Layout::AmdV2 { virt_bits } => amd::v2(raw, virt_bits, slot),
        Layout::AmdBrs { virt_bits } => amd::brs(raw, virt_bits, slot),
        Layout::AmdSingle => amd::single(raw, slot),
    }
}
