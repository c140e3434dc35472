//! Every register address, once.
//!
//! The published `x86` crate has constants for many of these, merged from several CPU tables that
//! disagree. Assertions at the end of this file record which agree and which are known to be wrong.

use core::fmt;

/// The address of a model-specific register: the value of ECX for RDMSR and WRMSR, and the file
/// offset in `/dev/cpu/N/msr`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Msr(pub u32);

impl Msr {
    /// The register `n` addresses above this one.
    #[must_use]
    pub const fn plus(self, n: u32) -> Msr {
        Msr(self.0 + n)
    }
}

impl fmt::Debug for Msr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Msr({:#x})", self.0)
    }
}

impl fmt::Display for Msr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Registers of Arm's BRBE, as `op0 << 14 | op1 << 11 | CRn << 7 | CRm << 3 | op2`. Source: BRBE.
pub mod brbe {
    use super::Msr;

    /// Flags, type and cycles of record 0 of the bank that BRBFCR.BANK selects.
    pub const BRBINF0: Msr = Msr(0x8C00);
    /// Source address of record 0.
    pub const BRBSRC0: Msr = Msr(0x8C01);
    /// Target address of record 0.
    pub const BRBTGT0: Msr = Msr(0x8C02);
    /// Levels, predictions, cycles, exceptions.
    pub const BRBCR: Msr = Msr(0x8C80);
    /// The same at EL2.
    pub const BRBCR_EL2: Msr = Msr(0xA480);
    /// BRBCR as accessed from EL2 with VHE.
    pub const BRBCR_EL12: Msr = Msr(0xAC80);
    /// Types of branches, bank, pause.
    pub const BRBFCR: Msr = Msr(0x8C81);
    /// Timestamp of the freeze.
    pub const BRBTS: Msr = Msr(0x8C82);
    /// The record that the instruction [`BRB_INJ`] adds: BRBINFINJ, BRBSRCINJ and BRBTGTINJ.
    pub const BRBINFINJ: Msr = Msr(0x8C88);
    /// Its source address.
    pub const BRBSRCINJ: Msr = Msr(0x8C89);
    /// Its target address.
    pub const BRBTGTINJ: Msr = Msr(0x8C8A);
    /// NUMREC, FORMAT, CC.
    pub const BRBIDR0: Msr = Msr(0x8C90);
    /// The instruction that invalidates every record: a write of any value. Here it reads as the
    /// number of records, so that it serves where other CPUs have IA32_LBR_DEPTH.
    pub const BRB_IALL: Msr = Msr(0x4B94);
    /// The instruction that injects a record: a write of any value.
    pub const BRB_INJ: Msr = Msr(0x4B95);

    /// Distance from a bank to the next in these addresses: stands for a write of BRBFCR.BANK.
    pub const BANK: u32 = 1 << 16;

    /// The distance from a register of record 0 to that of record `n`: `n` is in CRm, its bit 4 in
    /// op2, and its bit 5 is the bank.
    pub const fn distance(n: u32) -> u32 {
        ((n & 0xF) << 3) | ((n >> 4 & 1) << 2) | ((n >> 5) * BANK)
    }
}

/// First of the FROM (or packed FROM/TO) registers of P6-family cores before
/// Nehalem, of Bonnell and of Silvermont. SDM Table 17-4, 17.13.
pub const MSR_LASTBRANCH_0_FROM_IP_CORE2: Msr = Msr(0x40);
/// First of the TO registers of the same cores. SDM Table 17-4.
pub const MSR_LASTBRANCH_0_TO_IP_CORE2: Msr = Msr(0x60);
/// Branch record filter. SDM 17.7.2, Tables 17-11 to 17-13.
pub const MSR_LBR_SELECT: Msr = Msr(0x1C8);
/// Index of the most recent record. SDM 17.4.8.
pub const MSR_LASTBRANCH_TOS: Msr = Msr(0x1C9);
/// Debug control; its bit 0 enables the model-specific LBR. SDM 17.4.1.
pub const IA32_DEBUGCTL: Msr = Msr(0x1D9);
/// NetBurst: index of the most recent record, read-only. SDM 17.11.2.
pub const MSR_LASTBRANCH_TOS_NETBURST: Msr = Msr(0x1DA);
/// P6 and AMD: FROM of the last branch. NetBurst family 0F models 0 to 2: the
/// first of four packed records. SDM 17.11, 17.14.
pub const MSR_LASTBRANCHFROMIP: Msr = Msr(0x1DB);
/// P6 and AMD: TO of the last branch. SDM 17.14.
pub const MSR_LASTBRANCHTOIP: Msr = Msr(0x1DC);
/// NetBurst: FROM of the last branch before the last exception. SDM 17.11.3.
pub const MSR_LER_FROM_LIP_NETBURST: Msr = Msr(0x1D7);
/// NetBurst: TO of the last branch before the last exception. SDM 17.11.3.
pub const MSR_LER_TO_LIP_NETBURST: Msr = Msr(0x1D8);
/// FROM of the last branch before the last exception or interrupt.
pub const MSR_LER_FROM_LIP: Msr = Msr(0x1DD);
/// TO of the last branch before the last exception or interrupt.
pub const MSR_LER_TO_LIP: Msr = Msr(0x1DE);
/// Architectural LBR: INFO of the last exception record. Linux msr-index.h.
pub const IA32_LER_INFO: Msr = Msr(0x1E0);
/// Capabilities of performance monitoring, the LBR format among them. Exists
/// only where CPUID.01H:ECX\[15\] (PDCM) is 1. SDM 18.18.
pub const IA32_PERF_CAPABILITIES: Msr = Msr(0x345);
/// First event selector of the general counters. SDM 18.2.2.
pub const IA32_PERFEVTSEL0: Msr = Msr(0x186);
/// Controls of the fixed counters. SDM 18.2.2.
pub const IA32_FIXED_CTR_CTRL: Msr = Msr(0x38D);
/// Enables counters. SDM 18.2.2.
pub const IA32_PERF_GLOBAL_CTRL: Msr = Msr(0x38F);
/// Counters with PEBS. Linux msr-index.h.
pub const IA32_PEBS_ENABLE: Msr = Msr(0x3F1);
/// Groups of adaptive PEBS records. Linux msr-index.h.
pub const MSR_PEBS_DATA_CFG: Msr = Msr(0x3F2);
/// Architectural PEBS of the first general counter; the next is 4 higher. Linux msr-index.h.
pub const IA32_PMC_GP0_CFG_C: Msr = Msr(0x1903);
/// The same of the first fixed counter. Linux msr-index.h.
pub const IA32_PMC_FX0_CFG_C: Msr = Msr(0x1983);
/// Performance-monitoring status; bit 58 is LBR_FRZ from perfmon version 4
/// on. SDM 18.2.4.1.
pub const IA32_PERF_GLOBAL_STATUS: Msr = Msr(0x38E);
/// Clears bits of [`IA32_PERF_GLOBAL_STATUS`]. SDM 18.2.4.2.
pub const IA32_PERF_GLOBAL_STATUS_RESET: Msr = Msr(0x390);
/// Sets bits of [`IA32_PERF_GLOBAL_STATUS`]; from perfmon version 4 on. SDM
/// 18.2.4.1.
pub const IA32_PERF_GLOBAL_STATUS_SET: Msr = Msr(0x391);
/// Intel Processor Trace control; bit 0 is TraceEn. SDM 36.2.7.
pub const IA32_RTIT_CTL: Msr = Msr(0x570);
/// First FROM register of Nehalem and later cores. SDM 17.7.
pub const MSR_LASTBRANCH_0_FROM_IP: Msr = Msr(0x680);
/// First TO register of Nehalem and later cores. SDM 17.7.
pub const MSR_LASTBRANCH_0_TO_IP: Msr = Msr(0x6C0);
/// First INFO register of formats 5 and 7. SDM 17.10.
pub const MSR_LBR_INFO_0: Msr = Msr(0xDC0);
/// First INFO register of Architectural LBR. Linux msr-index.h.
pub const IA32_LBR_0_INFO: Msr = Msr(0x1200);
/// Control of Architectural LBR. Linux msr-index.h.
pub const IA32_LBR_CTL: Msr = Msr(0x14CE);
/// Depth of Architectural LBR; any write clears every record. Linux msr-index.h.
pub const IA32_LBR_DEPTH: Msr = Msr(0x14CF);
/// First FROM register of Architectural LBR. Linux msr-index.h.
pub const IA32_LBR_0_FROM_IP: Msr = Msr(0x1500);
/// First TO register of Architectural LBR. Linux msr-index.h.
pub const IA32_LBR_0_TO_IP: Msr = Msr(0x1600);
/// AMD: filter of LbrExtV2. Linux msr-index.h.
pub const AMD_LBR_SELECT: Msr = Msr(0xC000_010E);
/// AMD: DBG_EXTN_CFG, which enables LbrExtV2 (bit 6) and BRS (bit 2). Linux
/// msr-index.h, amd/brs.c.
pub const AMD_DBG_EXTN_CFG: Msr = Msr(0xC000_010F);
/// AMD: first FROM register of LbrExtV2 and of BRS. FROM and TO alternate, so
/// record i is at `+ 2i`. Linux msr-index.h.
pub const AMD_SAMP_BR_FROM: Msr = Msr(0xC001_0300);
/// AMD: first TO register of LbrExtV2 and of BRS.
pub const AMD_SAMP_BR_TO: Msr = Msr(0xC001_0301);
/// AMD PerfMonV2: status; bit 58 is set when a PMI froze the LBR. Linux msr-index.h.
pub const AMD_PERF_CNTR_GLOBAL_STATUS: Msr = Msr(0xC000_0300);
/// AMD PerfMonV2: clears bits of [`AMD_PERF_CNTR_GLOBAL_STATUS`]. Linux
/// msr-index.h.
pub const AMD_PERF_CNTR_GLOBAL_STATUS_CLR: Msr = Msr(0xC000_0302);

/// Compile-time comparison with `x86` 0.52.
#[cfg(target_arch = "x86_64")]
mod against_x86 {
    use super::*;
    use x86::msr;

    // Right in x86 0.52.
    const _: () = assert!(IA32_DEBUGCTL.0 == msr::IA32_DEBUGCTL);
    const _: () = assert!(MSR_LBR_SELECT.0 == msr::MSR_LBR_SELECT);
    const _: () = assert!(IA32_PERF_CAPABILITIES.0 == msr::IA32_PERF_CAPABILITIES);
    const _: () = assert!(MSR_LASTBRANCH_0_TO_IP.0 == msr::MSR_LASTBRANCH_0_TO_IP);
    const _: () = assert!(MSR_LASTBRANCH_0_FROM_IP.0 + 8 == msr::MSR_LASTBRANCH_8_FROM_IP);
    const _: () = assert!(MSR_LASTBRANCH_0_FROM_IP.0 + 15 == msr::MSR_LASTBRANCH_15_FROM_IP);
    const _: () = assert!(MSR_LASTBRANCH_0_TO_IP.0 + 15 == msr::MSR_LASTBRANCH_15_TO_IP);

    // Wrong in x86 0.52 for Nehalem and later. If one of these assertions fails, the crate was
    // corrected: delete it.
    const _: () = assert!(msr::MSR_LASTBRANCH_TOS == 0x1DA, "x86 had NetBurst's TOS address");
    const _: () = assert!(
        msr::MSR_LASTBRANCH_0_FROM_IP == 0x40,
        "x86 had Core 2's FROM_0 next to Nehalem's TO_0"
    );
    const _: () =
        assert!(msr::MSR_LASTBRANCH_1_TO_IP == 0x61, "x86 had Core 2's TO_1 after Nehalem's TO_0");
    const _: () = assert!(
        msr::MSR_LER_FROM_LIP == 0x1DE && msr::MSR_LER_TO_LIP == 0x1DD,
        "x86 had the LER pair swapped"
    );
}
