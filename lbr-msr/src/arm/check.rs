//! What a plan is checked against before any register is touched.

use crate::caps::{Facility, FilterRegister, LbrCaps, Order, Quirks};

use super::ArmError;

/// The most records of any facility: depth mask bit 7 of CPUID leaf 1CH.
const MAX_DEPTH: u32 = 64;

/// MSR_LBR_SELECT.EN_CALLSTACK, and what SDM 17.9 asks of the other bits.
pub(super) mod select {
    pub(in crate::arm) const SUPPRESS: u64 = 0x1FF;
    pub(in crate::arm) const RINGS: u64 = 0b11;
    pub(in crate::arm) const EN_CALLSTACK: u64 = 1 << 9;
    pub(in crate::arm) const BRANCHES: u64 = 0x1FC;
    /// JCC, NEAR_IND_JMP, NEAR_REL_JMP and FAR_BRANCH suppressed, calls and
    /// returns not.
    pub(super) const BRANCHES_OF_CALL_STACK: u64 = 0x1C4;
}

/// IA32_LBR_CTL. Linux msr-index.h.
pub(super) mod ctl {
    pub(in crate::arm) const LBR_EN: u64 = 1;
    pub(in crate::arm) const RINGS: u64 = 0b110;
    pub(in crate::arm) const CALL_STACK: u64 = 1 << 3;
    pub(in crate::arm) const BRANCHES: u64 = 0x7F << 16;
    /// NEAR_REL_CALL, NEAR_IND_CALL and NEAR_RET.
    pub(super) const BRANCHES_OF_CALL_STACK: u64 = 0x38 << 16;
}

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
        Facility::IntelLegacy | Facility::IntelArch | Facility::AmdLbrV2 => {}
    }
    if caps.quirks.contains(Quirks::READ_ONLY_RECORDS) {
        return refuse("its records cannot be written");
    }
    if !addresses_exist(caps) {
        return refuse("its registers do not fit below the highest address there is");
    }
    match caps.order {
        Order::Tos | Order::NewestFirst => Ok(()),
        Order::Single => refuse("it holds one record, so branches between two readings are lost"),
        Order::Saturating => refuse("it stops when it is full"),
    }
}

/// Whether every register of every record has an address, so that the plan can
/// count upward without looking.
fn addresses_exist(caps: &LbrCaps) -> bool {
    let map = &caps.registers;
    let last = caps.depth.checked_mul(map.stride);
    caps.depth <= MAX_DEPTH
        && [Some(map.from), map.to, map.info]
            .into_iter()
            .flatten()
            .all(|base| last.is_some_and(|last| base.0.checked_add(last).is_some()))
}

/// The filter value without an enable bit, and whether it asks for call-stack
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
    let valid = match caps.filter {
        FilterRegister::None => 0,
        FilterRegister::LbrSelect { call_stack, .. } => {
            select::SUPPRESS | if call_stack { select::EN_CALLSTACK } else { 0 }
        }
        FilterRegister::AmdSelect => select::SUPPRESS,
        FilterRegister::LbrCtl { cpl, branch, call_stack } => {
            ctl::LBR_EN
                | if cpl { ctl::RINGS } else { 0 }
                | if branch { ctl::BRANCHES } else { 0 }
                | if call_stack { ctl::CALL_STACK } else { 0 }
        }
    };
    if value & !valid != 0 {
        return Err(ArmError::FilterBits { facility, msr, value, valid });
    }
    let (call_stack, defined) = match caps.filter {
        FilterRegister::LbrSelect { .. } => (
            value & select::EN_CALLSTACK != 0,
            value & select::BRANCHES == select::BRANCHES_OF_CALL_STACK
                && value & select::RINGS != select::RINGS,
        ),
        FilterRegister::LbrCtl { branch, .. } => (
            value & ctl::CALL_STACK != 0,
            !branch || value & ctl::BRANCHES == ctl::BRANCHES_OF_CALL_STACK,
        ),
        FilterRegister::AmdSelect | FilterRegister::None => (false, true),
    };
    if call_stack && !defined {
        return Err(ArmError::UndefinedCallStack { facility, value });
    }
    let enable = if msr == caps.registers.control { caps.registers.enable } else { 0 };
    Ok((value & !enable, call_stack))
}

/// DEBUGCTL\[11\] exists where IA32_PERF_CAPABILITIES does and perfmon is at
/// least version 2 (SDM 17.4.1), on AMD where CPUID announces the freeze.
pub(super) fn freeze(caps: &LbrCaps) -> Result<(), ArmError> {
    let refuse = |why| Err(ArmError::NoFreeze { facility: caps.facility, why });
    if caps.quirks.contains(Quirks::NO_FREEZE_ON_PMI) {
        return refuse("this stepping has an erratum");
    }
    if caps.facility == Facility::AmdLbrV2 {
        return if caps.quirks.contains(Quirks::STREAMLINED_FREEZE) {
            Ok(())
        } else {
            refuse("nothing says that CPUID 80000022H EAX[2] announces it")
        };
    }
    if caps.perfmon_version < 2 || caps.format.is_none() {
        return refuse(
            "DEBUGCTL.FREEZE_LBRS_ON_PMI needs IA32_PERF_CAPABILITIES and perfmon version 2",
        );
    }
    Ok(())
}
