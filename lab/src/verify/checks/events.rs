//! Checks the effect of events on the records: PMI, exceptions, C-states, SMIs, and the other
//! hyperthread.

use lbr_msr::address::{MSR_LER_FROM_LIP, MSR_LER_TO_LIP};
use lbr_msr::caps::{Facility, Quirks};
use lbr_msr::table::SelectScope;

use super::super::bench::{Bench, Facts, Filled, require};
use super::super::check::{Finding, Spec, answer, applies_if, not_applicable};
use super::super::preserve::{DEBUGCTL_LBR, FREEZE_LBRS_ON_PMI, LBR_FRZ, has_last_exception};
use super::super::{Kernel, Known, RunError};
use super::bits::freeze as freeze_bit;

pub(in crate::verify) const CHECKS: &[Spec] = &[
    Spec {
        id: "freeze",
        what: "a PMI freezes the records where FREEZE_LBRS_ON_PMI is set",
        run: "Branches run before and after a counter overflows, with FREEZE_LBRS_ON_PMI set.",
        why: "A sample is read in the interrupt handler: without the freeze, it holds the \
              handler's branches.",
        falsified: "A branch after the PMI is recorded, the newest before it is not, or LBR_FRZ \
              is not set where it is documented.",
        needs: &["records", "depth", "bits.freeze_on_pmi"],
        documented: |facts| {
            let source = freeze_bit(facts)?;
            let how = match facts.caps.freeze_status() {
                Some(_) => "LBR_FRZ is set",
                None => "the enable bit is cleared",
            };
            let expected = format!("the branches before it are there, none after it; {how}");
            answer(expected, source)
        },
        look: freeze,
    },
    Spec {
        id: "last_exception",
        what: "the last-exception pair holds the last branch before an exception",
        run: "A branch runs, then an instruction raises an exception, and the pair is read.",
        why: "After a crash, the pair tells where it came from.",
        falsified: "The pair is the exception itself or another branch.",
        needs: &["records", "registers.last_exception"],
        documented: |facts| {
            applies_if(has_last_exception(&facts.caps), "no pair is reliably documented")?;
            answer("the branch before it", "SDM 17.4.8, 17.14; Linux msr-index.h")
        },
        look: last_exception,
    },
    Spec {
        id: "c_state",
        what: "records after a C-state deeper than C1",
        run: "One jump is recorded, the CPU enters a C-state deeper than C1, and the records are \
              read again.",
        why: "Records that are lost in idle look like branches that never ran.",
        falsified: "Records are gone although they are documented to be kept.",
        needs: &["records"],
        documented: |facts| {
            let known = !facts.caps.assumed || facts.row.is_some();
            applies_if(known, "nothing is documented of an assumed CPU's C-states")?;
            if facts.caps.quirks.contains(Quirks::DEEP_C_STATE_WIPES) {
                answer("kept or cleared", "SDM 17.10.3; CPUID 1CH EAX[30]")
            } else {
                answer("kept", "SDM 17.10.3 names later CPUs; CPUID 1CH EAX[30] = 0")
            }
        },
        look: c_state,
    },
    Spec {
        id: "smi",
        what: "records after an SMI",
        run: "Branches run around an SMI.",
        why: "Branches of the firmware must not overwrite those of the program.",
        falsified: "The records are not the branches that ran.",
        needs: &["records", "depth"],
        documented: |_| answer("as before", "SDM 17.4.1, 34.4"),
        look: |bench| {
            let value = bench.facts.open();
            let (_, difference) = bench.compared(Kernel::AroundSmi, value)?;
            let changed = "the newest record has changed (BU10)";
            Ok(Finding::either(difference.is_none(), "as before", changed))
        },
    },
    Spec {
        id: "select.sharing",
        what: "whether the hyperthreads of a core share the filter register",
        run: "1 and 5 are written to the filter register, and the sibling thread's is read each \
              time.",
        why: "On a shared filter, two recordings on one core change each other's.",
        falsified: "The sibling reads the written values although each has its own register, or \
              does not although they share one.",
        needs: &["registers.select", "bits.select"],
        documented: |facts| match scope(facts) {
            Some(SelectScope::Thread) => answer("each has its own", "EDK2; SDM 17.8; Linux core.c"),
            Some(SelectScope::CoreShared) => {
                answer("they share it", "EDK2; SDM 17.8; Linux perf_event.h")
            }
            Some(SelectScope::Core) => not_applicable("no hyperthreads"),
            None => not_applicable("undocumented"),
        },
        look: sharing,
    },
];

fn freeze(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let status = bench.facts.caps.freeze_status();
    let value = bench.facts.open();
    bench.debugctl(FREEZE_LBRS_ON_PMI, 0)?;
    let tried = freeze_once(bench, value);
    bench.debugctl(0, FREEZE_LBRS_ON_PMI)?;
    let (filled, frozen) = tried?;
    if let (Some((_, reset)), true) = (status, frozen) {
        bench.write(reset, LBR_FRZ)?;
    }
    let branches = &filled.ran.branches;
    let event = filled.ran.before_event.unwrap_or(0).min(branches.len());
    let (before, after) = branches.split_at(event);
    // The event occurs in a system call; the filter may suppress its entry to ring 0.
    let before = bench.facts.passing(value, before).unwrap_or_default();
    let is_there = |known: &Known| {
        filled.entries().any(|(_, entry)| bench.facts.branch_of(&filled, entry) == Some(known))
    };
    Ok(if after.iter().any(is_there) {
        Finding::differs("recording goes on after it")
    } else if before.last().is_some_and(|newest| !is_there(newest)) {
        Finding::differs("the newest branch before it is missing: the freeze is early (AM94)")
    } else if status.is_some() && !frozen {
        Finding::differs("LBR_FRZ is not set")
    } else {
        Finding::same("as expected")
    })
}

/// Runs around a PMI; returns whether the PMI set LBR_FRZ.
fn freeze_once(bench: &mut Bench<'_>, value: u64) -> Result<(Filled, bool), RunError> {
    let filled = bench.fill(Kernel::AroundPmi, value)?;
    let status = match bench.facts.caps.freeze_status() {
        Some((msr, _)) => bench.read(msr)?,
        None => 0,
    };
    Ok((filled, status & LBR_FRZ != 0))
}

fn last_exception(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    // On AMD, DEBUGCTL.LBR enables the pair separately from the LBR stack.
    let beside = matches!(bench.facts.caps.facility, Facility::AmdLbrV2 | Facility::AmdBrs);
    if beside {
        bench.debugctl(DEBUGCTL_LBR, 0)?;
    }
    let found = last_exception_once(bench);
    if beside {
        bench.debugctl(0, DEBUGCTL_LBR)?;
    }
    found
}

fn last_exception_once(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open();
    let mut equal = false;
    // Any interrupt before the pair is read overwrites it: more attempts than for records.
    let tries = match bench.cpu.attempts() {
        1 => 1,
        attempts => 4 * attempts,
    };
    for _ in 0..tries {
        // Reads the pair before the records: the next interrupt overwrites it.
        let switch = bench.switch(value)?;
        bench.clear()?;
        let ran = bench.run(Kernel::Exception, switch)?;
        let pair = [bench.read(MSR_LER_FROM_LIP)?, bench.read(MSR_LER_TO_LIP)?];
        let keys = pair.map(|end| Some(bench.facts.key(end)));
        let filled = Filled { ran, seen: bench.ring()? };
        let key = |address: Option<u64>| address.map(|address| bench.facts.key(address));
        let before = filled.ran.before_event.unwrap_or(0);
        let is = |index: usize| {
            filled
                .ran
                .branches
                .get(index)
                .is_some_and(|known| keys == [key(known.from), key(known.to)])
        };
        if before > 0 && is(before - 1) {
            return Ok(Finding::same("the branch before it"));
        }
        let newest = filled.entries().next();
        let newest = newest.map(|(_, entry)| [entry.from, entry.to].map(|end| key(Some(end))));
        if is(before) || newest == Some(keys) {
            equal = true;
        }
    }
    // An interrupt would make the pairs differ, so once is enough.
    Ok(Finding::differs(if equal {
        "the exception itself: both pairs are equal (C9)"
    } else {
        "another branch"
    }))
}

fn c_state(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let value = bench.facts.open();
    let before = bench.fill(Kernel::Jumps(1), value)?.entries().count();
    bench.cpu.deep_c_state()?;
    let after = bench.ring()?.iter().filter(|seen| seen.entry.is_some()).count();
    let may = bench.facts.caps.quirks.contains(Quirks::DEEP_C_STATE_WIPES);
    Ok(if after == before {
        Finding::same("kept")
    } else {
        Finding::of(may, if after == 0 { "cleared" } else { "some cleared" })
    })
}

fn scope(facts: &Facts) -> Option<SelectScope> {
    if facts.caps.facility != Facility::IntelLegacy {
        return None;
    }
    facts.row.and_then(|row| row.generation.select_scope)
}

fn sharing(bench: &mut Bench<'_>) -> Result<Finding, RunError> {
    let select = require(bench.facts.caps.registers.select, "no filter register")?;
    let before = bench.read(select)?;
    let mut follows = true;
    for value in [1, 5] {
        bench.write(select, value)?;
        follows &= bench.cpu.read_sibling(select)? == value;
    }
    bench.write(select, before)?;
    let shared = scope(&bench.facts) == Some(SelectScope::CoreShared);
    let found = if follows { "they share it" } else { "each has its own" };
    Ok(Finding::of(follows == shared, found))
}
