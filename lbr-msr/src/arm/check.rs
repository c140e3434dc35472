//! Checks that a plan must pass before any register is touched.

use crate::caps::{Facility, LbrCaps, Order, Quirks};
use crate::filter::from_register;
use crate::table::unlisted;

use super::ArmError;

pub(super) fn ring(caps: &LbrCaps) -> Result<(), ArmError> {
    let facility = caps.facility;
    let refuse = |why| Err(ArmError::NoRing { facility, why });
    match facility {
        Facility::P6 | Facility::AmdSingle => {
            return refuse("it holds one record, so branches between two readings are lost");
        }
        Facility::NetBurst => return refuse("its records cannot be written"),
        Facility::AmdBrs => {
            return refuse("it records only for a counter's interrupt, which the kernel owns");
        }
        Facility::IntelLegacy | Facility::IntelArch | Facility::AmdLbrV2 | Facility::Brbe => {}
    }
    if let Some(msr) = unlisted(caps) {
        return Err(ArmError::Unlisted { facility, msr });
    }
    match caps.order {
        Order::Tos | Order::NewestFirst => Ok(()),
        Order::Single => refuse("it holds one record, so branches between two readings are lost"),
        Order::Saturating => refuse("it stops when it is full"),
    }
}

/// Splits a filter value into the value without its enable bit and whether it enables call-stack
/// mode.
pub(super) fn filter(caps: &LbrCaps, value: u64) -> Result<(u64, bool), ArmError> {
    let facility = caps.facility;
    let Some(msr) = caps.registers.select else {
        return if value == 0 {
            Ok((0, false))
        } else {
            Err(ArmError::NoFilter { facility, value })
        };
    };
    let valid = caps.filter.writable();
    if value & !valid != 0 {
        return Err(ArmError::FilterBits { facility, msr, value, valid });
    }
    let call_stack = match from_register(value, caps.filter) {
        Ok(captured) => captured.call_stack,
        Err(_) => return Err(ArmError::UndefinedCallStack { facility, value }),
    };
    let enable = if msr == caps.registers.control { caps.registers.enable } else { 0 };
    Ok((value & !enable, call_stack))
}

/// Checks that DEBUGCTL\[11\] exists: IA32_PERF_CAPABILITIES and perfmon version 2 (SDM 17.4.1), on
/// AMD CPUID's freeze bit.
pub(super) fn freeze(caps: &LbrCaps) -> Result<(), ArmError> {
    let refuse = |why| Err(ArmError::NoFreeze { facility: caps.facility, why });
    if caps.quirks.contains(Quirks::NO_FREEZE_ON_PMI) {
        return refuse("this stepping has an erratum");
    }
    if caps.facility == Facility::AmdLbrV2 {
        return if caps.quirks.contains(Quirks::STREAMLINED_FREEZE) {
            Ok(())
        } else {
            refuse("CPUID 80000022H EAX[2] does not announce it")
        };
    }
    if caps.perfmon_version < 2 || caps.format.is_none() {
        return refuse(
            "DEBUGCTL.FREEZE_LBRS_ON_PMI needs IA32_PERF_CAPABILITIES and perfmon version 2",
        );
    }
    Ok(())
}
