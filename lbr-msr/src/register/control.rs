//! The registers that switch recording on and choose what is recorded.
//!
//! Bits are declared in the order of the manual. `const _ = !0` tells
//! `bitflags` that other bits may be set and are not ours to drop.

use super::{Register, bits, flag_register};
use crate::{Msr, address};

bitflags::bitflags! {
    /// IA32_DEBUGCTL of P6-family cores and later, and AMD's DebugCtl.
    /// SDM 17.4.1; EDK2. NetBurst has another order: [`DebugCtlA`].
    ///
    /// The kernel owns BTF, BLD, the BTS bits and bits 11, 12 and 14: always
    /// read, modify, write.
    ///
    /// P6, Pentium M and AMD's older parts have breakpoint-pin controls PB0 to PB3
    /// in bits 5:2 (SDM 17.13, 17.14); [`pb_pins`](DebugCtl::pb_pins) reads them.
    ///
    /// [`DebugCtlA`]: super::DebugCtlA
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct DebugCtl: u64 {
        /// Record branches. With Architectural LBR the bit has no effect:
        /// it reads 0 and writes to it are ignored. SDM 17.4.1.
        const LBR = 1 << 0;
        /// TF single-steps on branches. EDK2.
        const BTF = 1 << 1;
        /// Bus-lock detection, where CPUID.7.0:ECX\[24\]. Linux `msr-index.h`.
        const BLD = 1 << 2;
        /// Send branch trace messages. Must not be set together with LBR on
        /// P6, Pentium M and Core. SDM 17.4.4.
        const TR = 1 << 6;
        /// Log branch trace messages in the BTS buffer. EDK2.
        const BTS = 1 << 7;
        /// Interrupt when the BTS buffer is full. EDK2.
        const BTINT = 1 << 8;
        /// No branch trace messages at CPL 0. EDK2.
        const BTS_OFF_OS = 1 << 9;
        /// No branch trace messages at CPL above 0. EDK2.
        const BTS_OFF_USR = 1 << 10;
        /// Stop recording at a performance-monitoring interrupt. EDK2.
        const FREEZE_LBRS_ON_PMI = 1 << 11;
        /// Stop the counters at a performance-monitoring interrupt. EDK2.
        const FREEZE_PERFMON_ON_PMI = 1 << 12;
        /// Receive interrupts of the uncore counters. SDM figure 17-11.
        const ENABLE_UNCORE_PMI = 1 << 13;
        /// Stop recording and counting in SMM; where
        /// IA32_PERF_CAPABILITIES\[12\]. SDM 17.4.1.
        const FREEZE_WHILE_SMM = 1 << 14;
        /// Advanced debugging of RTM regions, where CPUID.7.0:EBX\[11\]. EDK2.
        const RTM_DEBUG = 1 << 15;
        const _ = !0;
    }
}

impl DebugCtl {
    const FIELDS: u64 = 0;

    /// Bits 5:2, PB3 to PB0, on P6 and Pentium M. Bit 2 is BLD on later cores.
    #[must_use]
    pub const fn pb_pins(self) -> u8 {
        bits(self.bits(), 2, 4) as u8
    }
}
flag_register!(DebugCtl, address::IA32_DEBUGCTL, "IA32_DEBUGCTL");

bitflags::bitflags! {
    /// MSR_LBR_SELECT: bits 0 to 8 **suppress** what they name, bit 9
    /// enables. Zero records everything. SDM 17.7.2, Tables 17-11 to 17-13.
    ///
    /// On Nehalem, Westmere and Silvermont NEAR_IND_JMP also swallows
    /// indirect calls and returns, NEAR_REL_JMP relative calls.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct LbrSelect: u64 {
        /// Suppress branches that end in ring 0.
        const CPL_EQ_0 = 1 << 0;
        /// Suppress branches that end in a ring above 0.
        const CPL_NEQ_0 = 1 << 1;
        /// Suppress conditional branches.
        const JCC = 1 << 2;
        /// Suppress near relative calls.
        const NEAR_REL_CALL = 1 << 3;
        /// Suppress near indirect calls.
        const NEAR_IND_CALL = 1 << 4;
        /// Suppress near returns.
        const NEAR_RET = 1 << 5;
        /// Suppress near indirect jumps.
        const NEAR_IND_JMP = 1 << 6;
        /// Suppress near relative jumps.
        const NEAR_REL_JMP = 1 << 7;
        /// Suppress far branches: far jumps, calls and returns, system calls
        /// and returns, interrupts, exceptions, SGX transitions.
        const FAR_BRANCH = 1 << 8;
        /// Enable call-stack mode (Haswell and later, Goldmont and later).
        /// SDM 17.9.
        const EN_CALLSTACK = 1 << 9;
        const _ = !0;
    }
}

impl LbrSelect {
    const FIELDS: u64 = 0;
}
flag_register!(LbrSelect, address::MSR_LBR_SELECT, "MSR_LBR_SELECT");

bitflags::bitflags! {
    /// IA32_LBR_CTL of Architectural LBR: bits **capture** what they name.
    /// Which may be set is told by CPUID leaf 1CH EBX; setting another
    /// raises #GP. Linux `msr-index.h`, `intel/lbr.c`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct LbrCtl: u64 {
        /// Record branches. Cleared by #DB; saved and cleared by SMI.
        const LBR_EN = 1 << 0;
        /// Capture branches that end at CPL 0.
        const OS = 1 << 1;
        /// Capture branches that end at a CPL above 0.
        const USR = 1 << 2;
        /// Call-stack mode.
        const CALL_STACK = 1 << 3;
        /// Capture conditional branches.
        const COND = 1 << 16;
        /// Capture near relative jumps.
        const NEAR_REL_JMP = 1 << 17;
        /// Capture near indirect jumps.
        const NEAR_IND_JMP = 1 << 18;
        /// Capture near relative calls.
        const NEAR_REL_CALL = 1 << 19;
        /// Capture near indirect calls.
        const NEAR_IND_CALL = 1 << 20;
        /// Capture near returns.
        const NEAR_RET = 1 << 21;
        /// Capture far transfers, interrupts, exceptions and the like.
        const OTHER_BRANCH = 1 << 22;
        const _ = !0;
    }
}

impl LbrCtl {
    const FIELDS: u64 = 0;
}
flag_register!(LbrCtl, address::IA32_LBR_CTL, "IA32_LBR_CTL");

bitflags::bitflags! {
    /// LBR_SELECT of AMD LbrExtV2: all bits **suppress**. Linux `amd/lbr.c`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct AmdLbrSelect: u64 {
        /// Suppress branches that end at CPL 0.
        const CPL_EQ_0 = 1 << 0;
        /// Suppress branches that end at a CPL above 0.
        const CPL_NEQ_0 = 1 << 1;
        /// Suppress conditional branches.
        const JCC = 1 << 2;
        /// Suppress near relative calls.
        const NEAR_REL_CALL = 1 << 3;
        /// Suppress near indirect calls.
        const NEAR_IND_CALL = 1 << 4;
        /// Suppress near returns.
        const NEAR_RET = 1 << 5;
        /// Suppress near indirect jumps (not calls, not returns).
        const NEAR_IND_JMP = 1 << 6;
        /// Suppress near relative jumps (not calls).
        const NEAR_REL_JMP = 1 << 7;
        /// Suppress far branches.
        const FAR_BRANCH = 1 << 8;
        const _ = !0;
    }
}

impl AmdLbrSelect {
    const FIELDS: u64 = 0;
}
flag_register!(AmdLbrSelect, address::AMD_LBR_SELECT, "LBR_SELECT");

bitflags::bitflags! {
    /// AMD's DBG_EXTN_CFG: bit 6 enables LbrExtV2, the others belong to BRS.
    /// Linux `amd/lbr.c`, `amd/brs.c`.
    ///
    /// Bits 4:3 must be written 11b with BRS: always read, modify, write.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct DbgExtnCfg: u64 {
        /// BRSMEN: enables BRS.
        const BRSMEN = 1 << 2;
        /// VB: BRS holds valid branches.
        const VB = 1 << 5;
        /// LBRV2EN: enables LbrExtV2.
        const LBRV2EN = 1 << 6;
        const _ = !0;
    }
}

impl DbgExtnCfg {
    /// Bits 4:3, which BRS needs written as 11b, MSROFF and PMC.
    const FIELDS: u64 = 0b11 << 3 | 0xF << 16 | 0b111 << 24;

    /// Bits 4:3. Whoever enables BRS must write 3.
    #[must_use]
    pub const fn must_be_3(self) -> u8 {
        bits(self.bits(), 3, 2) as u8
    }
    /// Bits 19:16, MSROFF: the next index that BRS will write, 0 once all 16
    /// are filled.
    #[must_use]
    pub const fn msroff(self) -> u8 {
        bits(self.bits(), 16, 4) as u8
    }
    /// Bits 26:24, PMC: the counter that triggers BRS.
    #[must_use]
    pub const fn pmc(self) -> u8 {
        bits(self.bits(), 24, 3) as u8
    }
}
flag_register!(DbgExtnCfg, address::AMD_DBG_EXTN_CFG, "DBG_EXTN_CFG");

/// IA32_LBR_DEPTH: how many entries Architectural LBR keeps. Any write clears
/// every record; an unsupported depth raises #GP. Linux `intel/lbr.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LbrDepth(pub u64);

impl LbrDepth {
    /// The depth, in entries: a count, not a code.
    #[must_use]
    pub const fn entries(self) -> u64 {
        self.0
    }
}

impl Register for LbrDepth {
    const MSR: Msr = address::IA32_LBR_DEPTH;
    const NAME: &'static str = "IA32_LBR_DEPTH";
    const DOCUMENTED: u64 = u64::MAX;
    fn from_raw(value: u64) -> Self {
        LbrDepth(value)
    }
    fn raw(self) -> u64 {
        self.0
    }
}

/// MSR_LASTBRANCH_TOS: where the most recent record is. SDM 17.4.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tos(pub u64);

impl Tos {
    /// The index of the newest record in a ring of `depth`: the low
    /// log2(depth) bits, because those above are not promised to be 0. SDM
    /// 17.5.1. A depth of 0 has no index and yields 0.
    #[must_use]
    pub const fn index(self, depth: u32) -> u32 {
        match self.0.checked_rem(depth as u64) {
            Some(index) => index as u32,
            None => 0,
        }
    }
}

impl Register for Tos {
    const MSR: Msr = address::MSR_LASTBRANCH_TOS;
    const NAME: &'static str = "MSR_LASTBRANCH_TOS";
    const DOCUMENTED: u64 = 0x1F;
    fn from_raw(value: u64) -> Self {
        Tos(value)
    }
    fn raw(self) -> u64 {
        self.0
    }
}
