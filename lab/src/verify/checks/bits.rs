//! Checks which register bits can be written: writes them, reads them back, restores them.

use lbr_msr::Msr;
use lbr_msr::address::IA32_DEBUGCTL;
use lbr_msr::caps::{Facility, FilterRegister, Quirks};
use lbr_msr::register::DebugCtl;

use super::super::bench::{Bench, Facts, READ_ONLY, cannot_tell, require};
use super::super::check::{Finding, Spec, answer, applies_if, not_applicable};
use super::super::preserve::has_last_exception;
use super::super::{RunError, SubjectKind};
use super::written::{LOW, last_exception, records};

pub(in crate::verify) const CHECKS: &[Spec] = &[
    Spec {
        id: "bits.enable",
        what: "the bit that enables recording can be set and cleared",
        run: "The bit is set, read back, cleared and read back.",
        why: "Nothing is recorded without it, and a bit that stays set records after lbr has \
              ended.",
        falsified: "The bit does not read back as written, or a write raises #GP.",
        needs: &["registers.control"],
        documented: |facts| {
            may_be_written(facts)?;
            let (bit, control) = (facts.caps.registers.enable, facts.caps.registers.control);
            let expected = format!("bit {} of {control}", bit.trailing_zeros());
            answer(expected, "SDM 17.4.1; Linux msr-index.h")
        },
        look: |bench| {
            let map = bench.facts.caps.registers;
            if bench.facts.caps.facility == Facility::NetBurst {
                return cannot_tell(READ_ONLY);
            }
            own_bit(bench, map.control, map.enable)
        },
    },
    Spec {
        id: "bits.freeze_on_pmi",
        what: "DEBUGCTL.FREEZE_LBRS_ON_PMI can be set and cleared",
        run: "The bit is set, read back, cleared and read back.",
        why: "Without it, the interrupt handler's own branches overwrite those before the sample.",
        falsified: "The bit does not read back as written, or a write raises #GP.",
        needs: &["registers.control"],
        documented: |facts| answer("bit 11 of DEBUGCTL", freeze(facts)?),
        look: |bench| own_bit(bench, IA32_DEBUGCTL, DebugCtl::FREEZE_LBRS_ON_PMI.bits()),
    },
    Spec {
        id: "bits.debugctl",
        what: "the other bits of DEBUGCTL",
        run: "Each bit of DEBUGCTL is flipped, read back and flipped back. Never on real \
              hardware, which TR, BTS or BTF would crash.",
        why: "lbr writes DEBUGCTL back as it was read: a bit that does not hold would be lost.",
        falsified: "LBR or BTF cannot be set, or a reserved bit can.",
        needs: &["registers.control"],
        documented: |facts| {
            let (_, allowed) =
                debugctl_bits(facts).ok_or("AMD documents them in each family's own manual")?;
            let expected = format!("none beyond {allowed:#x} can be set");
            answer(expected, "SDM 17.4.1, 17.11.1, 17.13, 17.14")
        },
        look: debugctl,
    },
    Spec {
        id: "bits.select",
        what: "the bits of the filter register",
        run: "Each bit of the filter register is flipped, read back and flipped back.",
        why: "A filter bit that does not hold lets branches through that were to be suppressed.",
        falsified: "A documented bit does not read back as written, or a reserved bit does.",
        needs: &["registers.select"],
        documented: |facts| match facts.caps.filter {
            FilterRegister::None => not_applicable("no filter register"),
            filter => answer(
                format!("{:#x} can be set, others not", filter.writable()),
                "SDM Tables 17-11 to 17-13; Linux lbr.c, amd/lbr.c; CPUID 1CH",
            ),
        },
        look: |bench| {
            let select = require(bench.facts.caps.registers.select, "no filter register")?;
            let bits = bench.facts.caps.filter.writable();
            let enable = bench.facts.caps.registers.enable;
            let own = if select == bench.facts.caps.registers.control { enable } else { 0 };
            probe(bench, select, !own, bits, bits)
        },
    },
    Spec {
        id: "bits.depth",
        what: "the depths that IA32_LBR_DEPTH takes",
        run: "8, 16, and so on up to 64 are written to IA32_LBR_DEPTH and read back.",
        why: "lbr sets the depth before it records and reads as many records.",
        falsified: "A depth that CPUID 1CH lists is refused, or another is taken.",
        needs: &["cpuid", "registers.depth"],
        documented: |facts| {
            facts.caps.registers.depth.ok_or("the depth cannot be chosen")?;
            let depths: Vec<_> = facts.caps.depths().collect();
            answer(words(&depths), "CPUID 1CH EAX[7:0]; Linux lbr.c")
        },
        look: |bench| {
            let msr = require(bench.facts.caps.registers.depth, "the depth cannot be chosen")?;
            let listed: Vec<_> = bench.facts.caps.depths().collect();
            let mut taken = Vec::new();
            for depth in (1..=8).map(|n| n * 8) {
                if bench.takes(msr, u64::from(depth))? && bench.read(msr)? == u64::from(depth) {
                    taken.push(depth);
                }
            }
            bench.write(msr, u64::from(bench.facts.caps.depth))?;
            Ok(Finding::of(taken == listed, words(&taken)))
        },
    },
    Spec {
        id: "bits.tos",
        what: "the top-of-stack register holds each index",
        run: "Each index is written to the register and read back. On NetBurst, its own value is \
              written.",
        why: "Records are put back where they were only if TOS can be put back.",
        falsified: "An index does not read back as written, or its write raises #GP. On \
              NetBurst: the write succeeds.",
        needs: &["registers.tos"],
        documented: |facts| match facts.caps.registers.tos {
            None => not_applicable("no top-of-stack register"),
            Some(_) if facts.caps.facility == Facility::NetBurst => {
                answer("writing it raises #GP", "SDM 17.11.2")
            }
            Some(_) => answer(
                format!("0 to {}", facts.caps.depth.saturating_sub(1)),
                "SDM 17.5.1; Linux lbr.c (check_msr)",
            ),
        },
        look: tos,
    },
    Spec {
        id: "bits.records",
        what: "records can be written, their flags included",
        run: "FROM, TO and INFO of the first and the last record are written with a user \
              address, a kernel address and each flag, and read back. On NetBurst, FROM is \
              written with its own value.",
        why: "lbr puts records back after a check, as the kernel and hypervisors do at a switch.",
        falsified: "A write raises #GP, or a value reads back changed. On NetBurst: the write \
              succeeds.",
        needs: &["registers.from", "registers.to", "registers.info"],
        documented: |facts| {
            may_be_written(facts)?;
            match facts.caps.facility {
                Facility::NetBurst => answer("writing one raises #GP", "SDM 17.11.2"),
                _ => answer("values read back as written", "EDK2; Linux lbr.c"),
            }
        },
        look: records,
    },
    Spec {
        id: "bits.depth_clears",
        what: "writing IA32_LBR_DEPTH clears every record",
        run: "Every FROM is written, then IA32_LBR_DEPTH, then every FROM is read.",
        why: "This is how Linux clears the records: one that stays would be read as a new branch.",
        falsified: "A FROM register is not 0 afterwards.",
        needs: &["registers.depth", "bits.records"],
        documented: |facts| {
            facts.caps.registers.depth.ok_or("the depth cannot be chosen")?;
            answer("all are 0 afterwards", "Linux lbr.c, msr-index.h")
        },
        look: |bench| {
            let map = bench.facts.caps.registers;
            let depth = bench.facts.caps.depth;
            for index in 0..depth {
                bench.write(map.from_at(index), LOW)?;
            }
            if let Some(msr) = map.depth {
                bench.write(msr, u64::from(depth))?;
            }
            let mut left = 0;
            for index in 0..depth {
                left += u32::from(bench.read(map.from_at(index))? != 0);
            }
            let found = format!("{left} of {depth} records are still there");
            Ok(Finding::either(left == 0, "all are 0", found))
        },
    },
    Spec {
        id: "bits.last_exception",
        what: "the last-exception pair can be written and reads as it was written",
        run: "Two canonical addresses are written to LER_FROM and LER_TO and read back. Never on \
              real hardware.",
        why: "The pair can be put back only if it reads as it was written.",
        falsified: "A write raises #GP, or an address reads back changed.",
        needs: &["registers.last_exception"],
        documented: |facts| {
            let pair = has_last_exception(&facts.caps);
            applies_if(pair, "the pair is read-only or not documented")?;
            answer("canonical addresses, as they were written", "EDK2; Linux msr-index.h")
        },
        look: last_exception,
    },
];

fn may_be_written(facts: &Facts) -> Result<(), String> {
    let kernels = facts.caps.facility == Facility::AmdBrs && facts.kind != SubjectKind::Software;
    applies_if(!kernels, "BRS is the kernel's")
}

/// Sets and clears one of the bits that `lbr` uses.
fn own_bit(bench: &mut Bench<'_>, msr: Msr, bit: u64) -> Result<Finding, RunError> {
    let before = bench.read(msr)?;
    let set = bench.takes(msr, before | bit)? && bench.read(msr)? & bit != 0;
    let cleared = bench.takes(msr, before & !bit)? && bench.read(msr)? & bit == 0;
    bench.write(msr, before)?;
    Ok(match (set, cleared) {
        (true, true) => Finding::same("both"),
        (false, _) => Finding::differs("it cannot be set"),
        (true, false) => Finding::differs("it cannot be cleared"),
    })
}

/// Flips each bit of `which`, one at a time, and restores it. Those in `required` must hold, those
/// outside `allowed` must not.
fn probe(
    bench: &mut Bench<'_>,
    msr: Msr,
    which: u64,
    required: u64,
    allowed: u64,
) -> Result<Finding, RunError> {
    let before = bench.read(msr)?;
    let mut kept = 0;
    for bit in (0..64).map(|bit| 1u64 << bit).filter(|bit| which & bit != 0) {
        if bench.takes(msr, before ^ bit)? {
            if bench.read(msr)? == before ^ bit {
                kept |= bit;
            }
            bench.write(msr, before)?;
        }
    }
    Ok(match (required & which & !kept, kept & !allowed) {
        (0, 0) => Finding::same(format!("{kept:#x} can be set")),
        (0, surplus) => Finding::differs(format!("reserved bits {surplus:#x} can be set")),
        (missing, _) => Finding::differs(format!("bits {missing:#x} cannot be set")),
    })
}

/// Whether DEBUGCTL\[11\] exists. SDM 17.4.1.
pub(super) fn freeze(facts: &Facts) -> Result<&'static str, &'static str> {
    let caps = &facts.caps;
    match caps.facility {
        _ if caps.quirks.contains(Quirks::NO_FREEZE_ON_PMI) => {
            Err("this stepping cannot freeze on PMI (Linux lbr.c)")
        }
        Facility::AmdLbrV2 if caps.quirks.contains(Quirks::STREAMLINED_FREEZE) => {
            Ok("CPUID 80000022H EAX[2]; Linux amd/lbr.c")
        }
        Facility::IntelLegacy | Facility::IntelArch if facts.pdcm && caps.perfmon_version > 1 => {
            Ok("SDM 17.4.1, 17.4.7")
        }
        _ => Err("a PMI freezes nothing here"),
    }
}

/// DEBUGCTL bits that must be writable, and all that may be.
fn debugctl_bits(facts: &Facts) -> Option<(u64, u64)> {
    const LBR: u64 = DebugCtl::LBR.bits();
    const BTF: u64 = DebugCtl::BTF.bits();
    let lbr = if facts.caps.facility == Facility::IntelArch { 0 } else { LBR };
    match facts.caps.facility {
        Facility::P6 | Facility::NetBurst => Some((LBR | BTF, 0x7F)),
        Facility::IntelLegacy | Facility::IntelArch => Some((lbr | BTF, 0xFFFE | lbr)),
        Facility::AmdLbrV2 | Facility::AmdBrs | Facility::AmdSingle | Facility::Brbe => None,
    }
}

fn debugctl(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    if bench.facts.kind == SubjectKind::Hardware {
        return cannot_tell("unsafe: flipping TR, BTS or BTF on a live machine crashes it");
    }
    let Some((required, allowed)) = debugctl_bits(&bench.facts) else {
        return cannot_tell("nothing is documented");
    };
    let which = match bench.facts.caps.facility {
        Facility::NetBurst => !bench.facts.caps.registers.enable,
        _ => u64::MAX,
    };
    probe(bench, IA32_DEBUGCTL, which, required, allowed)
}

fn words(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

fn tos(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let msr = require(bench.facts.caps.registers.tos, "no top-of-stack register")?;
    let before = bench.read(msr)?;
    if bench.facts.caps.facility == Facility::NetBurst {
        let taken = bench.takes(msr, before)?;
        return Ok(Finding::of(!taken, if taken { "it can be written" } else { "#GP" }));
    }
    let mut wrong = Vec::new();
    for index in 0..bench.facts.caps.depth {
        if !bench.takes(msr, u64::from(index))? || bench.read(msr)? != u64::from(index) {
            wrong.push(index);
        }
    }
    bench.write(msr, before)?;
    let found = format!("not {}", words(&wrong));
    Ok(Finding::either(wrong.is_empty(), "each is read as it was written", found))
}
