//! The addresses that may be written: the branch-record registers of the table's generations and of
//! the facilities that CPUID announces.
//!
//! Capabilities can name other addresses, because the user may describe a CPU that the table does
//! not know. Those are only read.

use alloc::{vec, vec::Vec};

use super::{GENERATIONS, Generation};
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
    let within = |(start, count): &(Msr, u32), msr: Msr| {
        msr.0.checked_sub(start.0).is_some_and(|distance| distance < *count)
    };
    let mut blocks = blocks(caps.facility);
    blocks.retain(|block| within(block, first));
    // One block must contain both.
    match blocks.iter().any(|block| within(block, last)) {
        true => None,
        false if blocks.is_empty() => Some(first),
        false => Some(last),
    }
}

/// The register blocks of a facility's records: the first register of each, and their number.
fn blocks(facility: Facility) -> Vec<(Msr, u32)> {
    match facility {
        Facility::IntelArch => [IA32_LBR_0_FROM_IP, IA32_LBR_0_TO_IP, IA32_LBR_0_INFO]
            .map(|start| (start, MOST_ARCH_RECORDS))
            .to_vec(),
        Facility::AmdLbrV2 | Facility::AmdBrs => vec![(AMD_SAMP_BR_FROM, AMD_STACK)],
        Facility::AmdSingle => vec![(MSR_LASTBRANCHFROMIP, 2)],
        _ => generations(facility)
            .flat_map(|generation| {
                let starts = [Some(generation.from), generation.to, generation.info];
                starts.map(|start| Some((start?, generation.depth?)))
            })
            .flatten()
            .collect(),
    }
}

/// The generations with a facility.
fn generations(facility: Facility) -> impl Iterator<Item = &'static Generation> {
    GENERATIONS.iter().filter(move |generation| generation.facility() == facility)
}
