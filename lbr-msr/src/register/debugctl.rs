//! The register at 1D9H, under each of its names.

use super::{
    field::{Field, replacing},
    flags, table,
};

flags! {
    /// IA32_DEBUGCTL of P6-family cores from Core on, and AMD's DebugCtl. SDM 17.4.1. NetBurst
    /// orders the bits differently: [`DebugCtlA`].
    ///
    /// The kernel owns BTF, BLD, the BTS bits and bits 11, 12 and 14: always read, modify, write.
    DebugCtl, "SDM 17.4.1" {
        LBR [0] "branches are recorded" / "branches are not recorded";
        BTF [1] "TF single-steps on branches" / "TF single-steps on instructions";
        BLD [2] "bus locks raise #DB" / "bus locks do not raise #DB"
            needs "CPUID.07H:ECX[24]" in "Linux msr-index.h";
        TR [6] "branch trace messages are sent" / "no branch trace messages";
        BTS [7] "branch trace messages go to the BTS buffer" / "the BTS buffer is not used";
        BTINT [8] "a full BTS buffer interrupts" / "the BTS buffer wraps around";
        BTS_OFF_OS [9] "no BTS or BTM at CPL 0" / "BTS and BTM at CPL 0 too";
        BTS_OFF_USR [10] "no BTS or BTM at CPL > 0" / "BTS and BTM at CPL > 0 too";
        FREEZE_LBRS_ON_PMI [11] "a PMI stops recording" / "recording continues at a PMI"
            needs "PDCM and perfmon version 2" in "SDM 17.4.7";
        FREEZE_PERFMON_ON_PMI [12] "a PMI stops the counters" / "the counters continue at a PMI"
            needs "PDCM and perfmon version 2" in "SDM 17.4.7";
        ENABLE_UNCORE_PMI [13] "uncore PMIs are received" / "no uncore PMIs"
            needs "06_1AH or later" in "SDM figure 17-11";
        FREEZE_WHILE_SMM [14] "recording and counting stop in SMM" / "SMM stops neither"
            needs "IA32_PERF_CAPABILITIES[12]";
        RTM_DEBUG [15] "advanced debugging of RTM regions" / "no advanced RTM debugging"
            needs "CPUID.07H:EBX[11]" in "EDK2";
    }
}

impl DebugCtl {
    /// The bits that freeze at a PMI.
    pub(crate) const FREEZES: DebugCtl =
        DebugCtl::FREEZE_LBRS_ON_PMI.union(DebugCtl::FREEZE_PERFMON_ON_PMI);
    /// The bits that exclude a ring from BTS and BTM.
    pub(crate) const BTS_OFF: DebugCtl = DebugCtl::BTS_OFF_OS.union(DebugCtl::BTS_OFF_USR);
    /// Bits 5:2 on P6, Pentium M and older AMD parts: the breakpoint pins.
    pub(crate) const PINS: u64 = 0xF << 2;
    /// The bits that Core 2 lacks: bus-lock detection, uncore, RTM.
    pub(crate) const AFTER_CORE_2: DebugCtl =
        DebugCtl::BLD.union(DebugCtl::ENABLE_UNCORE_PMI).union(DebugCtl::RTM_DEBUG);
    /// The bits that Core Solo and Duo lack: also BTS by ring, and all freezes.
    pub(crate) const AFTER_YONAH: DebugCtl = DebugCtl::AFTER_CORE_2
        .union(DebugCtl::BTS_OFF)
        .union(DebugCtl::FREEZES)
        .union(DebugCtl::FREEZE_WHILE_SMM);
}

flags! {
    /// MSR_DEBUGCTLA of NetBurst: the address of IA32_DEBUGCTL with other bits.
    DebugCtlA, "SDM 17.11.1" {
        LBR [0] "branches are recorded" / "branches are not recorded";
        BTF [1] "TF single-steps on branches" / "TF single-steps on instructions";
        TR [2] "branch trace messages are sent" / "no branch trace messages";
        BTS [3] "branch trace messages go to the BTS buffer" / "the BTS buffer is not used";
        BTINT [4] "a full BTS buffer interrupts" / "the BTS buffer wraps around";
        BTS_OFF_OS [5] "no BTS at CPL 0" / "BTS at CPL 0 too";
        BTS_OFF_USR [6] "no BTS at CPL > 0" / "BTS at CPL > 0 too";
    }
}

/// IA32_DEBUGCTL with Architectural LBR, which records instead.
pub(crate) const ARCH: [Field; 13] = {
    const DEAD: &str = "has no effect: IA32_LBR_CTL.LBREn records branches";
    replacing(DebugCtl::FIELDS, &[Field::flag("LBR", 0, DEAD, DEAD, "SDM 17.4.1")])
};

/// DEBUGCTLMSR of P6 and Pentium M.
pub(crate) const P6: &[Field] = &table! {
    "SDM 17.13, 17.14" {
        LBR [0] "the last branch is recorded" / "branches are not recorded" in "SDM 17.14";
        BTF [1] "TF single-steps on branches" / "TF single-steps on instructions";
        PB0 [2] "pin BP0 shows breakpoint matches" / "pin BP0 shows performance events";
        PB1 [3] "pin BP1 shows breakpoint matches" / "pin BP1 shows performance events";
        PB2 [4] "pin BP2 shows breakpoint matches" / "pin BP2 shows performance events";
        PB3 [5] "pin BP3 shows breakpoint matches" / "pin BP3 shows performance events";
        TR [6] "branch trace messages are sent; LBR contents are undefined"
            / "no branch trace messages" in "SDM 17.4.4, 17.14";
    }
};

const AMD_FREEZES: &str = "CPUID.80000022H:EAX[2]";

/// DebugCtl of AMD.
pub(crate) const AMD: &[Field] = &table! {
    "APM" {
        LBR [0] "the last branch is recorded" / "branches are not recorded";
        BTF [1] "TF single-steps on branches" / "TF single-steps on instructions";
        PB0 [2] "pin BP0 shows breakpoint matches (old parts)"
            / "pin BP0 shows performance events (old parts)";
        PB1 [3] "pin BP1 shows breakpoint matches (old parts)"
            / "pin BP1 shows performance events (old parts)";
        PB2 [4] "pin BP2 shows breakpoint matches (old parts)"
            / "pin BP2 shows performance events (old parts)";
        PB3 [5] "pin BP3 shows breakpoint matches (old parts)"
            / "pin BP3 shows performance events (old parts)";
    }
    and [
        DebugCtl::FIELDS[8].needs(AMD_FREEZES).cited("Linux amd/lbr.c"),
        DebugCtl::FIELDS[9].needs(AMD_FREEZES).cited("Linux amd/lbr.c"),
    ]
};
