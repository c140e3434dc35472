//! Decoding: from what the registers held to branches.
//!
//! Pure: nothing here touches a CPU. A record that holds nothing decodes to
//! `None`; a field that a layout does not record is `None` in the entry.
//! Each layout's rule is written once, without a branch on the data, and used
//! for one record ([`decode`]) and for many ([`decode_into`],
//! [`decode_stack`]), where the layout is looked at once.

use alloc::vec::Vec;

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

/// Calls `$run` with the rule of a layout, so that the layout is looked at
/// once for any number of records. A rule writes the entry of a record where
/// it is to stand and says whether the record holds anything: an entry that is
/// returned would be put together field by field.
macro_rules! with_rule {
    ($layout:expr, $none:expr, |$rule:ident| $run:expr) => {
        match $layout {
            Layout::Packed32 => {
                let $rule = intel::packed;
                $run
            }
            Layout::Plain => {
                let $rule = intel::plain;
                $run
            }
            Layout::Legacy { format, tsx } => match format.0 {
                0 => {
                    let $rule = intel::packed;
                    $run
                }
                1 | 2 => {
                    let $rule = intel::plain;
                    $run
                }
                3 => {
                    let $rule = intel::flags;
                    $run
                }
                4 => {
                    let templates = &template::FLAGS_TSX[usize::from(tsx)];
                    let $rule = |raw: &RawEntry, slot: &mut BranchEntry| {
                        intel::flags_tsx(raw, templates, slot)
                    };
                    $run
                }
                5 | 7 => {
                    let templates = &template::INFO[usize::from(tsx)];
                    let $rule =
                        |raw: &RawEntry, slot: &mut BranchEntry| intel::info(raw, templates, slot);
                    $run
                }
                6 => {
                    let $rule = intel::time;
                    $run
                }
                _ => $none,
            },
            Layout::Arch { mispredict: true, timed: true, types: true, counters, tsx }
                if counters & 0xF == 0 =>
            {
                let templates = &template::ARCH[usize::from(tsx)];
                let $rule =
                    |raw: &RawEntry, slot: &mut BranchEntry| intel::arch_full(raw, templates, slot);
                $run
            }
            Layout::Arch { mispredict: true, timed: true, types: true, counters, tsx } => {
                let templates = &template::ARCH[usize::from(tsx)];
                let logged = &template::COUNTERS[usize::from(counters & 0xF)];
                let $rule = |raw: &RawEntry, slot: &mut BranchEntry| {
                    intel::arch_counted(raw, templates, logged, slot)
                };
                $run
            }
            Layout::Arch { mispredict, timed, types, counters, tsx } => {
                let fields = intel::ArchFields { mispredict, timed, types, counters, tsx };
                if counters & 0xF == 0 {
                    let $rule = |raw: &RawEntry, slot: &mut BranchEntry| {
                        intel::arch::<false>(raw, fields, slot)
                    };
                    $run
                } else {
                    let $rule = |raw: &RawEntry, slot: &mut BranchEntry| {
                        intel::arch::<true>(raw, fields, slot)
                    };
                    $run
                }
            }
            Layout::AmdV2 { virt_bits } => {
                let $rule = |raw: &RawEntry, slot: &mut BranchEntry| amd::v2(raw, virt_bits, slot);
                $run
            }
            Layout::AmdBrs { virt_bits } => {
                let $rule = |raw: &RawEntry, slot: &mut BranchEntry| amd::brs(raw, virt_bits, slot);
                $run
            }
            Layout::AmdSingle => {
                let $rule = amd::single;
                $run
            }
        }
    };
}

/// Decodes one record.
///
/// `None` where it holds nothing: FROM is 0; AMD LbrExtV2: neither valid nor
/// speculative; AMD BRS: also where TO is Linux's poison. Also `None` for
/// [`Layout::Legacy`] with a format that nobody documents: its bits mean
/// nothing that could be told.
#[must_use]
#[inline]
pub fn decode(layout: Layout, raw: &RawEntry) -> Option<BranchEntry> {
    with_rule!(layout, None, |rule| {
        let mut entry = BranchEntry::default();
        rule(raw, &mut entry).then_some(entry)
    })
}

/// Decodes many records into `out` and returns how many of its entries were
/// written: records that hold nothing are left out, the others keep their
/// order. Records beyond the length of `out` are not decoded, and entries of
/// `out` beyond the returned count hold no meaning.
#[must_use]
pub fn decode_into(layout: Layout, raw: &[RawEntry], out: &mut [BranchEntry]) -> usize {
    with_rule!(layout, 0, |rule| fill(raw, out, rule))
}

/// Decodes many records and appends the entries to `out`, in the same order;
/// records that hold nothing are left out.
pub fn decode_stack(layout: Layout, raw: &[RawEntry], out: &mut Vec<BranchEntry>) {
    out.reserve(raw.len());
    with_rule!(layout, (), |rule| {
        out.extend(raw.iter().filter_map(|raw| {
            let mut entry = BranchEntry::default();
            rule(raw, &mut entry).then_some(entry)
        }));
    });
}

#[inline(always)]
fn fill(
    raw: &[RawEntry],
    out: &mut [BranchEntry],
    rule: impl Fn(&RawEntry, &mut BranchEntry) -> bool,
) -> usize {
    let count = raw.len().min(out.len());
    let mut written = 0;
    for raw in raw.iter().take(count) {
        // Every record is stored and an empty one overwritten by the next:
        // cheaper than a branch that empties would make unpredictable.
        let Some(slot) = out.get_mut(written) else { break };
        written += usize::from(rule(raw, slot));
    }
    written
}
