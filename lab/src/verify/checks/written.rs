//! What is written to records and the last-exception pair, and read back.

use lbr_msr::address::{MSR_LER_FROM_LIP, MSR_LER_TO_LIP};
use lbr_msr::caps::{Facility, Layout};

use super::super::bench::{Bench, Facts, cannot_tell};
use super::super::check::Finding;
use super::super::{RunError, SubjectKind};

/// An address of ring 0 and one of user code.
const HIGH: u64 = 0xFFFF_FFFF_8123_4560;
pub(super) const LOW: u64 = 0x0000_7FFF_1234_5670;
/// Bits 62:61, format 4's transaction flags.
const TSX_FLAGS: u64 = 3 << 61;
const MISPRED: u64 = 1 << 63;

/// Test values that FROM, TO and INFO of a layout accept, with descriptions.
fn patterns(facts: &Facts) -> [Vec<(&'static str, u64)>; 3] {
    let plain = || vec![("a user address", LOW), ("a kernel address", HIGH)];
    let flagged = |bits: u64| (LOW & !bits) | bits;
    let (mut from, mut to, mut info) = (plain(), plain(), Vec::new());
    match facts.caps.layout {
        Layout::Packed32 => {
            from = vec![("two addresses", 0x8123_4560_1234_5670)];
            to.clear();
        }
        Layout::Plain if facts.caps.facility == Facility::P6 => {
            from = vec![("an address", 0x1234_5670)];
            to.clone_from(&from);
        }
        Layout::Legacy { format, tsx } => match format.0 {
            3 => from.push(("MISPRED", flagged(MISPRED))),
            4 if tsx => {
                from.push(("MISPRED", flagged(MISPRED)));
                from.push(("transaction flags", flagged(TSX_FLAGS)));
            }
            // HSM182, BDM127: the flags are checked as part of the sign.
            4 => from.retain(|(_, value)| *value == LOW),
            5 | 7 => {
                info = vec![("MISPRED and cycles", MISPRED | 0xFFFF)];
                if tsx {
                    info.push(("transaction flags", TSX_FLAGS));
                }
            }
            6 => {
                from.push(("MISPRED", flagged(MISPRED)));
                to.push(("cycles", 0xFFFF << 48 | LOW));
            }
            _ => {}
        },
        Layout::Arch { mispredict, timed, types, tsx, .. } => {
            let mut bits = 0;
            for (there, field) in [
                (mispredict, MISPRED),
                (timed, 1 << 60 | 0xFFFF),
                (types, 0xF << 56),
                (tsx, TSX_FLAGS),
            ] {
                bits |= if there { field } else { 0 };
            }
            info = vec![("every field", bits)];
        }
        Layout::Plain
        | Layout::AmdV2 { .. }
        | Layout::AmdBrs { .. }
        | Layout::AmdSingle
        | Layout::Brbe => {}
    }
    [from, to, info]
}

pub(super) fn records(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let map = bench.facts.caps.registers;
    if bench.facts.caps.facility == Facility::NetBurst {
        // Saves its value in case the write succeeds.
        let before = bench.read(map.from)?;
        let taken = bench.takes(map.from, before)?;
        return Ok(Finding::of(!taken, if taken { "it can be written" } else { "#GP" }));
    }
    let patterns = patterns(&bench.facts);
    for index in [0, bench.facts.caps.depth.saturating_sub(1)] {
        let registers = [
            ("FROM", Some(map.from_at(index))),
            ("TO", map.to_at(index)),
            ("INFO", map.info_at(index)),
        ];
        for ((name, msr), patterns) in registers.into_iter().zip(&patterns) {
            let Some(msr) = msr else { continue };
            for (what, value) in patterns {
                if !bench.takes(msr, *value)? {
                    let known = if name == "FROM" && *what == "transaction flags" {
                        ": they are checked as a part of the sign (HSM182, BDM127)"
                    } else {
                        ""
                    };
                    return Ok(Finding::differs(format!("{name} with {what} raises #GP{known}")));
                }
                if bench.read(msr)? != *value {
                    return Ok(Finding::differs(format!("{name} does not keep {what}")));
                }
            }
        }
    }
    bench.clear()?;
    Ok(Finding::same("values read back as written"))
}

pub(super) fn last_exception(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    if bench.facts.kind == SubjectKind::Hardware {
        return cannot_tell(
            "unsafe: on a live machine nothing but records, TOS and controls is tried",
        );
    }
    let narrow = bench.facts.caps.facility == Facility::P6;
    let values = if narrow { [0x1234_5670, 0x0040_0000] } else { [LOW, HIGH] };
    let mut found = Finding::same("as written");
    for msr in [MSR_LER_FROM_LIP, MSR_LER_TO_LIP] {
        let before = bench.read(msr)?;
        for value in values {
            let name = if msr == MSR_LER_FROM_LIP { "LER_FROM" } else { "LER_TO" };
            if !bench.takes(msr, value)? {
                found = Finding::differs(format!("{name} does not take a canonical address"));
                continue;
            }
            let now = bench.read(msr)?;
            if now != value {
                let known = if msr == MSR_LER_TO_LIP && (now ^ value) & !(7 << 61) == 0 {
                    ": bits 63:61 do not copy its sign (BDM131)"
                } else {
                    ""
                };
                found = Finding::differs(format!("{name} reads otherwise{known}"));
            }
        }
        // The CPU may refuse a value that it reported itself.
        bench.takes(msr, before)?;
    }
    Ok(found)
}
