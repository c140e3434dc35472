//! Registers of other facilities that say something about branch records.

use super::{bits, flag_register};
use crate::{LbrFormat, address};

bitflags::bitflags! {
    /// IA32_PERF_CAPABILITIES, read-only; exists where CPUID.01H:ECX\[15\].
    /// SDM 18.18, figure 18-49. On hybrid parts it differs between core
    /// types.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PerfCapabilities: u64 {
        /// The PEBS assist is trap-like. SDM 18.18.
        const PEBS_TRAP = 1 << 6;
        /// PEBS records save architectural registers. SDM 18.18.
        const PEBS_SAVE_ARCH_REGS = 1 << 7;
        /// IA32_DEBUGCTL\[14\] (FREEZE_WHILE_SMM) may be set. SDM 18.18.
        const SMM_FREEZE = 1 << 12;
        /// IA32_A_PMCx, the full-width aliases of the counters, exist. SDM 18.18.
        const FW_WRITE = 1 << 13;
        /// Adaptive PEBS baseline. Linux `msr-index.h`.
        const PEBS_BASELINE = 1 << 14;
        /// PERF_METRICS (0x329) exists. Linux `msr-index.h`.
        const PERF_METRICS = 1 << 15;
        /// PEBS output to Intel PT. Linux `msr-index.h`.
        const PEBS_OUTPUT_PT = 1 << 16;
        /// Timed PEBS: retire latency. Linux `perf_event.h`.
        const PEBS_TIMING_INFO = 1 << 17;
        /// RDPMC of the metrics can clear them. Linux.
        const RDPMC_METRICS_CLEAR = 1 << 19;
        const _ = !0;
    }
}

impl PerfCapabilities {
    /// LBR_FMT and PEBS_REC_FMT.
    const FIELDS: u64 = 0x3F | 0xF << 8;

    /// Bits 5:0, LBR_FMT: the record format. SDM 17.4.8.1.
    #[must_use]
    pub const fn lbr_format(self) -> LbrFormat {
        LbrFormat(bits(self.bits(), 0, 6) as u8)
    }
    /// Bits 11:8, PEBS_REC_FMT: the PEBS record layout. SDM 18.18.
    #[must_use]
    pub const fn pebs_record_format(self) -> u8 {
        bits(self.bits(), 8, 4) as u8
    }
}
flag_register!(PerfCapabilities, address::IA32_PERF_CAPABILITIES, "IA32_PERF_CAPABILITIES");

bitflags::bitflags! {
    /// IA32_PERF_GLOBAL_STATUS: the bits that concern branch records. SDM
    /// 18.2.4.1.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PerfGlobalStatus: u64 {
        /// Recording is frozen although DEBUGCTL.LBR is still 1 (perfmon
        /// version 4 and later). SDM 17.4.7.
        const LBR_FRZ = 1 << 58;
        /// The counters are frozen. SDM 17.4.7.
        const CTR_FRZ = 1 << 59;
        /// Anti-side-channel interference: an SGX enclave influenced the
        /// counters. SDM 18.2.4.1.
        const ASCI = 1 << 60;
        const _ = !0;
    }
}

impl PerfGlobalStatus {
    const FIELDS: u64 = 0;
}
flag_register!(PerfGlobalStatus, address::IA32_PERF_GLOBAL_STATUS, "IA32_PERF_GLOBAL_STATUS");

bitflags::bitflags! {
    /// IA32_PERF_GLOBAL_STATUS_RESET: a 1 clears the status bit of the same
    /// place. SDM 18.2.4.2.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct PerfGlobalStatusReset: u64 {
        /// Clears LBR_FRZ: recording goes on.
        const LBR_FRZ = 1 << 58;
        /// Clears CTR_FRZ.
        const CTR_FRZ = 1 << 59;
        /// Clears ASCI.
        const ASCI = 1 << 60;
        const _ = !0;
    }
}

impl PerfGlobalStatusReset {
    const FIELDS: u64 = 0;
}
flag_register!(
    PerfGlobalStatusReset,
    address::IA32_PERF_GLOBAL_STATUS_RESET,
    "IA32_PERF_GLOBAL_STATUS_RESET"
);

bitflags::bitflags! {
    /// IA32_RTIT_CTL of Intel PT: the one bit that concerns branch records.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct RtitCtl: u64 {
        /// Tracing is on. On 06_3D, 47, 4E, 4F, 56 and 5E the branch-record
        /// registers then read 0 and drop writes. SDM 36.3.1.2.
        const TRACE_EN = 1 << 0;
        const _ = !0;
    }
}

impl RtitCtl {
    const FIELDS: u64 = 0;
}
flag_register!(RtitCtl, address::IA32_RTIT_CTL, "IA32_RTIT_CTL");
