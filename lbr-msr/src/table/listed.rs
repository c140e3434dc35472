//! The addresses that may be written: the branch-record registers of the table's generations and of
//! the facilities that CPUID announces.
//!
//! Capabilities can name other addresses, because the user may describe a CPU that the table does
//! not know. Those are only read.

use super::{GENERATIONS, Generation, RecordKind};
use crate::{
    address::{
        AMD_DBG_EXTN_CFG, AMD_LBR_SELECT, AMD_SAMP_BR_FROM, IA32_DEBUGCTL, IA32_LBR_0_FROM_IP,
        IA32_LBR_0_INFO, IA32_LBR_0_TO_IP, IA32_LBR_CTL, IA32_LBR_DEPTH, MSR_LASTBRANCHFROMIP, Msr,
    },
    caps::{Facility, LbrCaps},
};

/// The largest depth of Architectural LBR: depth mask bit 7 of CPUID leaf 1CH.
const MOST_ARCH_RECORDS: u32 = 64;
/// The registers of AMD's stacks: sixteen FROM and sixteen TO.
const AMD_STACK: u32 = 32;

/// The first record, filter, control or depth register that no CPU of the facility has at that
/// address; `None` if all of them may be written.
pub fn unlisted(caps: &LbrCaps) -> Option<Msr> {
    if caps.facility == Facility::Brbe {
        return None;
    }
    let map = &caps.registers;
    let records = [Some(map.from), map.to, map.info].into_iter().flatten();
    let control = match caps.facility {
        Facility::IntelArch => IA32_LBR_CTL,
        Facility::AmdLbrV2 | Facility::AmdBrs => AMD_DBG_EXTN_CFG,
        _ => IA32_DEBUGCTL,
    };
    let select = map.select.filter(|&select| match caps.facility {
        Facility::AmdLbrV2 => select != AMD_LBR_SELECT,
        facility => !generations(facility).any(|generation| generation.select == Some(select)),
    });
    records
        .filter_map(|first| unlisted_record(caps, first))
        .next()
        .or(select)
        .or((map.control != control).then_some(map.control))
        .or(map.depth.filter(|depth| *depth != IA32_LBR_DEPTH))
}

/// The same check for the top of stack, which recording reads and only verifying writes.
pub fn unlisted_tos(caps: &LbrCaps) -> Option<Msr> {
    let listed = |tos| generations(caps.facility).any(|generation| generation.tos == Some(tos));
    caps.registers.tos.filter(|&tos| !listed(tos))
}

/// The first or last record register, if it is outside every register block of the facility; the
/// records start at `first`.
fn unlisted_record(caps: &LbrCaps, first: Msr) -> Option<Msr> {
    // An address that overflows is not in the table either.
    let length = caps.depth.saturating_sub(1).saturating_mul(caps.registers.stride);
    let last = Msr(first.0.saturating_add(length));
    let facility = caps.facility;
    let within = |start: Msr, count: u32, msr: Msr| {
        msr.0.checked_sub(start.0).is_some_and(|distance| distance < count)
    };
    // One block must contain both.
    let holds =
        |(start, count): (Msr, u32)| within(start, count, first) && within(start, count, last);
    let starts = |(start, count): (Msr, u32)| within(start, count, first);
    let known = |holds: &dyn Fn((Msr, u32)) -> bool| match facility {
        Facility::IntelArch => [IA32_LBR_0_FROM_IP, IA32_LBR_0_TO_IP, IA32_LBR_0_INFO]
            .into_iter()
            .any(|start| holds((start, MOST_ARCH_RECORDS))),
        Facility::AmdLbrV2 | Facility::AmdBrs => holds((AMD_SAMP_BR_FROM, AMD_STACK)),
        Facility::AmdSingle => holds((MSR_LASTBRANCHFROMIP, 2)),
        _ => generations(facility).any(|generation| {
            let count = generation.depth.unwrap_or(0);
            let starts = [Some(generation.from), generation.to, generation.info];
            starts.into_iter().flatten().any(|start| holds((start, count)))
        }),
    };
    if known(&holds) {
        None
    } else if known(&starts) {
        Some(last)
    } else {
        Some(first)
    }
}

/// The generations with a facility.
fn generations(facility: Facility) -> impl Iterator<Item = &'static Generation> {
    GENERATIONS.iter().filter(move |generation| {
        facility
            == match generation.kind {
                RecordKind::P6Single => Facility::P6,
                RecordKind::Arch => Facility::IntelArch,
                RecordKind::Packed32 | RecordKind::Legacy if generation.is_netburst() => {
                    Facility::NetBurst
                }
                RecordKind::Packed32 | RecordKind::Legacy => Facility::IntelLegacy,
            }
    })
}
