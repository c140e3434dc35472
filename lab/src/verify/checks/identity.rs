//! Checks the announcements of CPUID and IA32_PERF_CAPABILITIES, and which registers exist.

use lbr_msr::address::{IA32_DEBUGCTL, IA32_PERF_CAPABILITIES, MSR_LER_FROM_LIP, MSR_LER_TO_LIP};
use lbr_msr::address::{MSR_LER_FROM_LIP_NETBURST, MSR_LER_TO_LIP_NETBURST};
use lbr_msr::caps::{Facility, Layout, depths_in};
use lbr_msr::format::LbrFormat;
use lbr_msr::table::ExpectedFormat;
use lbr_msr::{LbrCaps, Msr};

use super::super::RunError;
use super::super::bench::{Bench, Facts};
use super::super::check::{Documented, Finding, Spec, answer, not_applicable};
use super::super::preserve::has_last_exception;

/// Defines a check that every register of a list can be read.
macro_rules! existence {
    ($id:literal, $what:literal, $none:literal, $list:expr) => {
        Spec {
            id: $id,
            what: $what,
            run: "Each of the registers is read once.",
            why: "lbr uses these addresses: one that does not exist would raise #GP in the midst \
                  of a recording.",
            falsified: "Reading one of the registers raises #GP.",
            needs: &[],
            documented: |facts| {
                let list: fn(&LbrCaps) -> Vec<Msr> = $list;
                documented_registers(facts, &list(&facts.caps), $none)
            },
            look: |bench| {
                let list: fn(&LbrCaps) -> Vec<Msr> = $list;
                look_for(bench, &list(&bench.facts.caps))
            },
        }
    };
}

pub(in crate::verify) const CHECKS: &[Spec] = &[
    Spec {
        id: "cpuid",
        what: "what CPUID announces",
        run: "CPUID leaves 01H, 07H, 1CH, 80000008H and 80000022H are read.",
        why: "They select the facility, and so every register and bit that lbr uses.",
        falsified: "A leaf of the facility is absent, its depth is out of range, or its reserved \
              bits are set.",
        needs: &[],
        documented: |facts| match facts.caps.facility {
            Facility::IntelArch => answer(
                "CPUID.07H:EDX[19] = 1, leaf 1CH with a depth and with reserved bits 0",
                "SDM24 17.4; Linux asm/perf_event.h",
            ),
            Facility::AmdLbrV2 => answer(
                "80000022H EAX[1] = 1, EBX[9:4] the depth, 1 to 32",
                "Linux asm/perf_event.h",
            ),
            Facility::AmdBrs => answer("80000008H EBX[31] = 1 on family 19H", "Linux amd/brs.c"),
            Facility::IntelLegacy
                if facts.row.is_some_and(|r| r.generation.format.needs_register()) =>
            {
                answer(
                    "PDCM (CPUID.01H:ECX[15]) = 1, Architectural LBR not announced",
                    facts.row_source(),
                )
            }
            _ => not_applicable("CPUID does not announce this facility"),
        },
        look: cpuid,
    },
    Spec {
        id: "perf_capabilities",
        what: "IA32_PERF_CAPABILITIES exists if PDCM announces it",
        run: "IA32_PERF_CAPABILITIES (345H) is read.",
        why: "lbr takes the record format from this register; reading it on a CPU without it \
              raises #GP.",
        falsified: "The read raises #GP although PDCM is 1, or succeeds although PDCM is 0.",
        needs: &["cpuid"],
        documented: |facts| match facts.caps.facility {
            Facility::AmdLbrV2 | Facility::AmdBrs | Facility::AmdSingle => {
                not_applicable("AMD does not have this register")
            }
            _ if facts.pdcm => answer("345H can be read", "SDM 17.4.8.1"),
            _ => answer("345H raises #GP", "SDM 17.4.8.1"),
        },
        look: |bench| {
            let there = bench.exists(IA32_PERF_CAPABILITIES)?;
            let found = if there { "345H can be read" } else { "345H raises #GP" };
            Ok(Finding::of(there == bench.facts.pdcm, found))
        },
    },
    Spec {
        id: "lbr_fmt",
        what: "the record format that IA32_PERF_CAPABILITIES[5:0] reports",
        run: "IA32_PERF_CAPABILITIES[5:0] is read.",
        why: "The format decides where a record's flags and cycles are: with a wrong one, \
              records decode to plausible nonsense.",
        falsified: "The register reports another format than the documented one.",
        needs: &["perf_capabilities"],
        documented: |facts| match expected_format(facts) {
            _ if !facts.pdcm => not_applicable("no IA32_PERF_CAPABILITIES"),
            Some(expected) => answer(format_words(expected), facts.row_source()),
            None => not_applicable("this model's format is undocumented"),
        },
        look: lbr_fmt,
    },
    existence!("registers.control", "the register that enables recording exists", "", |caps| {
        vec![caps.registers.control, IA32_DEBUGCTL]
    }),
    existence!("registers.from", "a FROM register for each record exists", "", |caps| {
        (0..caps.depth).map(|index| caps.registers.from_at(index)).collect()
    }),
    existence!(
        "registers.to",
        "a TO register for each record exists",
        "FROM and TO share a register",
        |caps| { (0..caps.depth).filter_map(|index| caps.registers.to_at(index)).collect() }
    ),
    existence!(
        "registers.info",
        "an INFO register for each record exists",
        "records have no INFO register",
        |caps| { (0..caps.depth).filter_map(|index| caps.registers.info_at(index)).collect() }
    ),
    existence!(
        "registers.tos",
        "the top-of-stack register exists",
        "no top-of-stack register",
        |caps| { caps.registers.tos.into_iter().collect() }
    ),
    existence!("registers.select", "the filter register exists", "no filter register", |caps| {
        caps.registers.select.into_iter().collect()
    }),
    existence!("registers.depth", "IA32_LBR_DEPTH exists", "the depth cannot be chosen", |caps| {
        caps.registers.depth.into_iter().collect()
    }),
    existence!(
        "registers.last_exception",
        "the last-exception registers exist",
        "no pair is reliably documented",
        |caps| {
            if caps.facility == Facility::NetBurst {
                return vec![MSR_LER_FROM_LIP_NETBURST, MSR_LER_TO_LIP_NETBURST];
            }
            if has_last_exception(caps) {
                vec![MSR_LER_FROM_LIP, MSR_LER_TO_LIP]
            } else {
                Vec::new()
            }
        }
    ),
];

fn documented_registers(facts: &Facts, list: &[Msr], none: &str) -> Documented {
    match (list.first(), list.last()) {
        (Some(first), Some(last)) if list.len() == 2 => {
            answer(format!("{first} and {last}"), facts.row_source())
        }
        (Some(first), Some(last)) if first != last => {
            answer(format!("{} registers from {first} to {last}", list.len()), facts.row_source())
        }
        (Some(only), _) => answer(format!("{only}"), facts.row_source()),
        (None, _) => not_applicable(none),
    }
}

fn look_for(bench: &mut Bench<'_>, list: &[Msr]) -> Result<Finding, RunError> {
    // Registers of records beyond IA32_LBR_DEPTH raise #GP (SDM Vol. 4 Table 2-2).
    let depth = match bench.facts.caps.registers.depth {
        Some(msr) if list.len() > 2 => usize::try_from(bench.read(msr)?).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let asked = list.get(..depth.max(1)).unwrap_or(list);
    let mut missing = Vec::new();
    for msr in asked {
        if !bench.exists(*msr)? {
            missing.push(*msr);
        }
    }
    Ok(match (missing.first(), missing.len()) {
        (None, _) if list.len() == 1 => Finding::same("it can be read"),
        (None, _) if asked.len() < list.len() => {
            Finding::same(format!("the {} within IA32_LBR_DEPTH can be read", asked.len()))
        }
        (None, _) => Finding::same("all can be read"),
        (Some(first), count) if count == asked.len() => Finding::differs(format!(
            "reading raises #GP: none of them exists, starting with {first}"
        )),
        (Some(first), count) => Finding::differs(format!(
            "reading raises #GP on {count} of {}, starting with {first}",
            asked.len()
        )),
    })
}

/// Checks CPUID's fields one by one, although the facility was chosen by the same leaves.
fn cpuid(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let leaf = |leaf| bench.cpu.cpuid().get(leaf, 0);
    let eax = |number| leaf(number).map_or(0, |answer| answer.eax);
    let announced = leaf(7).is_some_and(|answer| answer.edx >> 19 & 1 != 0);
    Ok(match bench.facts.caps.facility {
        Facility::IntelArch => {
            let Some(answer) = leaf(0x1C) else {
                return Ok(Finding::differs("leaf 1CH is absent"));
            };
            let depths: Vec<String> =
                depths_in(answer.eax as u8).map(|depth| depth.to_string()).collect();
            let reserved = answer.eax >> 8 & 0x3F_FFFF | answer.ecx >> 3 & 0x1FFF | answer.edx;
            let found = format!(
                "depths {}, EBX {:#x}, ECX {:#x}",
                depths.join(", "),
                answer.ebx,
                answer.ecx
            );
            match reserved {
                0 => Finding::of(announced && !depths.is_empty(), found),
                _ => Finding::differs(format!("{found}, reserved bits are set")),
            }
        }
        Facility::AmdLbrV2 => {
            let depth = leaf(0x8000_0022).map_or(0, |answer| answer.ebx >> 4 & 0x3F);
            let announced = eax(0x8000_0022) >> 1 & 1 != 0;
            Finding::of(announced && (1..=32).contains(&depth), format!("a depth of {depth}"))
        }
        Facility::AmdBrs => {
            let brs = leaf(0x8000_0008).is_some_and(|answer| answer.ebx >> 31 != 0);
            Finding::of(brs, if brs { "EBX[31] = 1" } else { "EBX[31] = 0" })
        }
        _ => match (bench.facts.pdcm, announced) {
            (true, false) => Finding::same("PDCM = 1"),
            (false, _) => Finding::differs("PDCM = 0"),
            (true, true) => Finding::differs("Architectural LBR is announced"),
        },
    })
}

/// The format according to the table or the user.
fn expected_format(facts: &Facts) -> Option<ExpectedFormat> {
    if facts.caps.facility == Facility::IntelArch {
        return Some(ExpectedFormat::Exactly(LbrFormat::NONE));
    }
    if facts.caps.assumed && facts.row.is_none() {
        // The user's assumption if there is one, else the register's own value.
        return match facts.caps.layout {
            Layout::Legacy { format, .. } => Some(ExpectedFormat::Exactly(format)),
            Layout::Packed32 => Some(ExpectedFormat::ZeroOrAbsent),
            _ => None,
        };
    }
    facts.row.map(|row| row.generation.format).filter(|format| format.tells_layout())
}

fn format_words(expected: ExpectedFormat) -> String {
    match expected {
        ExpectedFormat::NotApplicable => "-".into(),
        ExpectedFormat::ZeroOrAbsent => LbrFormat::FORMAT_32.to_string(),
        ExpectedFormat::Exactly(format) => format.to_string(),
        ExpectedFormat::Lies { reported, real } => {
            format!("{reported}, although records are laid out as {real}")
        }
        ExpectedFormat::Either(one, other) => format!("{one} or {other}"),
    }
}

fn lbr_fmt(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let format = LbrFormat((bench.read(IA32_PERF_CAPABILITIES)? & 0x3F) as u8);
    let same = match expected_format(&bench.facts) {
        Some(ExpectedFormat::Either(one, other)) => format == one || format == other,
        Some(expected) => expected.reported() == Some(format),
        None => true,
    };
    Ok(Finding::of(same, format.to_string()))
}
