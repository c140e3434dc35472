//! Decoding: from what the registers held to branches.
//!
//! Pure: nothing here touches a CPU. A record that holds nothing decodes to
//! `None`; a field that a layout does not record is `None` in the entry.
//! Each layout's rule is written once, without a branch on the data.

use crate::{
    caps::Layout,
    record::{BranchEntry, RawEntry},
};

mod amd;
pub mod brbe;
mod intel;
mod layout;
mod order;
mod template;

pub use order::ring_order;

/// Decodes one record.
///
/// `None` where it holds nothing: FROM is 0; AMD LbrExtV2: neither valid nor
/// speculative; AMD BRS: also where TO is Linux's poison. Also `None` for
/// [`Layout::Legacy`] with a format that nobody documents: its bits mean
/// nothing that could be told.
#[must_use]
#[inline]
pub fn decode(layout: Layout, raw: &RawEntry) -> Option<BranchEntry> {
    let mut entry = BranchEntry::default();
    decode_into(layout, raw, &mut entry).then_some(entry)
}

/// [Decodes](decode) one record to where its entry is to stand: one that is returned
/// is put together field by field and moved. Whether it holds anything; what stands in
/// `slot` otherwise means nothing.
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
            4 => intel::flags_tsx(raw, &template::FLAGS_TSX[usize::from(tsx)], slot),
            5 | 7 => intel::info(raw, &template::INFO[usize::from(tsx)], slot),
            6 => intel::time(raw, slot),
            _ => false,
        },
        Layout::Arch { mispredict: true, timed: true, types: true, counters, tsx } => {
            let templates = &template::ARCH[usize::from(tsx)];
            match usize::from(counters & 0xF) {
                0 => intel::arch_full(raw, templates, slot),
                logged => intel::arch_counted(raw, templates, &template::COUNTERS[logged], slot),
            }
        }
        Layout::Arch { mispredict, timed, types, counters, tsx } => {
            let fields = intel::ArchFields { mispredict, timed, types, counters, tsx };
            match counters & 0xF {
                0 => intel::arch::<false>(raw, fields, slot),
                _ => intel::arch::<true>(raw, fields, slot),
            }
        }
        Layout::AmdV2 { virt_bits } => amd::v2(raw, virt_bits, slot),
        Layout::AmdBrs { virt_bits } => amd::brs(raw, virt_bits, slot),
        Layout::AmdSingle => amd::single(raw, slot),
    }
}
