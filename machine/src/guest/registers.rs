//! The registers of the LBR facilities, which the software LBR answers: the chosen CPU's exist, all
//! others raise #GP.

use lbr_msr::Msr;
use lbr_msr::address::{
    AMD_DBG_EXTN_CFG, AMD_LBR_SELECT, AMD_PERF_CNTR_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS_CLR,
    AMD_SAMP_BR_FROM, IA32_DEBUGCTL, IA32_LBR_0_FROM_IP, IA32_LBR_0_INFO, IA32_LBR_0_TO_IP,
    IA32_LBR_CTL, IA32_LBR_DEPTH, IA32_LER_INFO, IA32_PERF_CAPABILITIES, IA32_PERF_GLOBAL_STATUS,
    IA32_PERF_GLOBAL_STATUS_RESET, IA32_RTIT_CTL, MSR_LASTBRANCH_0_FROM_IP,
    MSR_LASTBRANCH_0_FROM_IP_CORE2, MSR_LASTBRANCH_0_TO_IP, MSR_LASTBRANCH_0_TO_IP_CORE2,
    MSR_LASTBRANCH_TOS, MSR_LASTBRANCH_TOS_NETBURST, MSR_LASTBRANCHFROMIP, MSR_LBR_INFO_0,
    MSR_LBR_SELECT, MSR_LER_FROM_LIP, MSR_LER_FROM_LIP_NETBURST, MSR_LER_TO_LIP,
};
use lbr_msr::soft::machine;

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer<T> {
    /// The emulator handles the register.
    NotOurs,
    /// Done.
    Done(T),
    /// The access raises #GP.
    Fault,
}

/// First register and size of every register family, of all CPUs.
const FAMILIES: [(Msr, u32); 19] = [
    // At most eight records (Silvermont): 0x48 is IA32_SPEC_CTRL.
    (MSR_LASTBRANCH_0_FROM_IP_CORE2, 8),
    (MSR_LASTBRANCH_0_TO_IP_CORE2, 8),
    (MSR_LBR_SELECT, 1),
    (MSR_LASTBRANCH_TOS, 1),
    (MSR_LER_FROM_LIP_NETBURST, 2),
    (IA32_DEBUGCTL, 1),
    (MSR_LASTBRANCH_TOS_NETBURST, 1),
    (MSR_LASTBRANCHFROMIP, 4),
    (IA32_LER_INFO, 1),
    (IA32_PERF_CAPABILITIES, 1),
    (MSR_LASTBRANCH_0_FROM_IP, 32),
    (MSR_LASTBRANCH_0_TO_IP, 32),
    (MSR_LBR_INFO_0, 32),
    (IA32_LBR_0_INFO, 32),
    (IA32_LBR_CTL, 2),
    (IA32_LBR_0_FROM_IP, 32),
    (IA32_LBR_0_TO_IP, 32),
    (AMD_LBR_SELECT, 2),
    // FROM and TO alternate; 16 records.
    (AMD_SAMP_BR_FROM, 32),
];
const _: () = assert!(IA32_LBR_DEPTH.0 == IA32_LBR_CTL.0 + 1);
const _: () = assert!(AMD_DBG_EXTN_CFG.0 == AMD_LBR_SELECT.0 + 1);

/// Further registers that the software LBR models if the chosen CPU has them: the last-exception
/// pair, the status of the performance monitor, Processor Trace. Otherwise the emulator handles
/// them.
const BESIDE: [Msr; 7] = [
    MSR_LER_FROM_LIP,
    MSR_LER_TO_LIP,
    IA32_PERF_GLOBAL_STATUS,
    IA32_PERF_GLOBAL_STATUS_RESET,
    AMD_PERF_CNTR_GLOBAL_STATUS,
    AMD_PERF_CNTR_GLOBAL_STATUS_CLR,
    IA32_RTIT_CTL,
];

/// The component that answers for a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The software LBR; refused accesses raise #GP.
    Lbr,
    /// The software LBR if it has the register, else the emulator.
    LbrOrEmulator,
    /// The emulator.
    Emulator,
    /// The machine.
    Machine,
}

/// The machine's control registers.
const MACHINE: [Msr; 3] = [machine::IDENT, machine::FAULTS, machine::EVENT];

impl Owner {
    pub(super) fn of(msr: Msr) -> Owner {
        if BESIDE.contains(&msr) {
            Owner::LbrOrEmulator
        } else if FAMILIES.iter().any(|(first, count)| (first.0..first.0 + count).contains(&msr.0))
        {
            Owner::Lbr
        } else if MACHINE.contains(&msr) {
            Owner::Machine
        } else {
            Owner::Emulator
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/machine/unit/guest/registers.rs"]
mod tests;
