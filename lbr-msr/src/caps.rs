//! The capabilities of a CPU's branch records. Probing computes them; no later code looks at a
//! model number.

use alloc::{borrow::Cow, string::String};

use crate::{
    address::{
        AMD_PERF_CNTR_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS_CLR, IA32_PERF_GLOBAL_STATUS,
        IA32_PERF_GLOBAL_STATUS_RESET, Msr, brbe,
    },
    format::LbrFormat,
};

/// The mechanism that records branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Facility {
    /// Intel's model-specific LBR with a TOS register (P6-family cores from Pentium M on).
    IntelLegacy,
    /// Intel Architectural LBR.
    IntelArch,
    /// AMD LbrExtV2 (Zen 4 and later).
    AmdLbrV2,
    /// AMD Branch Sampling (Zen 3).
    AmdBrs,
    /// AMD's register pair for the last branch.
    AmdSingle,
    /// The P6 family's register pair for the last branch.
    P6,
    /// NetBurst's read-only records.
    NetBurst,
    /// Arm's Branch Record Buffer Extension: only in software.
    Brbe,
}

impl Facility {
    /// The name in `lbr probe --json`.
    pub const fn name(self) -> &'static str {
        match self {
            Facility::IntelLegacy => "intel_legacy",
            Facility::IntelArch => "intel_arch",
            Facility::AmdLbrV2 => "amd_lbr_v2",
            Facility::AmdBrs => "amd_brs",
            Facility::AmdSingle => "amd_single",
            Facility::P6 => "p6",
            Facility::NetBurst => "netburst",
            Facility::Brbe => "brbe",
        }
    }
}

/// The bit layout of a record: everything that decoding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One 64-bit register: FROM in bits 31:0, TO in bits 63:32 (LBR_FMT 0,
    /// Pentium M, Yonah, NetBurst models 0 to 2).
    Packed32,
    /// FROM and TO (and INFO) as LBR_FMT 1 to 7 lay them out.
    Legacy {
        /// The format to decode by: 3 for Knights Landing, which reports 1 but has MISPRED.
        format: LbrFormat,
        /// CPUID announces HLE or RTM, so the TSX bits are meaningful.
        tsx: bool,
    },
    /// NetBurst models 3 and later and the one-entry pairs of P6: plain
    /// addresses, no flags.
    Plain,
    /// Architectural LBR; CPUID leaf 1CH tells which fields of INFO are valid.
    Arch {
        /// INFO\[63\] is valid (ECX\[0\]).
        mispredict: bool,
        /// INFO\[15:0\] and INFO\[60\] are valid (ECX\[1\]).
        timed: bool,
        /// INFO\[59:56\] is valid (ECX\[2\]).
        types: bool,
        /// Bitmap of the counters logged in INFO\[39:32\] (ECX\[19:16\]).
        counters: u8,
        /// CPUID announces HLE or RTM.
        tsx: bool,
    },
    /// AMD LbrExtV2: 58-bit addresses to sign-extend from `virt_bits`.
    AmdV2 {
        /// Width of virtual addresses, 48 or 57.
        virt_bits: u8,
    },
    /// AMD BRS: TO to sign-extend from `virt_bits`.
    AmdBrs {
        /// Width of virtual addresses, 48 or 57.
        virt_bits: u8,
    },
    /// AMD's one-entry pair: the low 57 bits.
    AmdSingle,
    /// Arm's BRBE: FROM is BRBSRC, TO is BRBTGT, INFO is BRBINF.
    Brbe,
}

/// The order of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The newest record is at the index in TOS; older ones downward, modulo the depth.
    Tos,
    /// The newest record is at index 0; older ones upward.
    NewestFirst,
    /// AMD BRS: the newest record is at index (MSROFF or 16) − 1; older ones downward to 0.
    Saturating,
    /// There is only one record.
    Single,
}

/// The hardware's branch filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterRegister {
    /// No filter: every branch is recorded.
    None,
    /// MSR_LBR_SELECT: suppress bits 0 to 8. SDM 17.7.2.
    LbrSelect {
        /// Nehalem, Westmere, Silvermont: suppressing jumps also suppresses calls and returns of
        /// the same kind.
        jumps_swallow_calls: bool,
        /// Bit 9, EN_CALLSTACK, exists.
        call_stack: bool,
    },
    /// IA32_LBR_CTL: capture bits. CPUID leaf 1CH EBX tells which may be set.
    LbrCtl {
        /// EBX\[0\]: OS and USR may be set.
        cpl: bool,
        /// EBX\[1\]: the branch bits may be set.
        branch: bool,
        /// EBX\[2\]: CALL_STACK may be set.
        call_stack: bool,
    },
    /// AMD LBR_SELECT: suppress bits 0 to 8.
    AmdSelect,
    /// BRBFCR_EL1: capture bits 17 to 22. BRBCR_EL1 selects levels.
    Brbfcr,
}

/// The registers of a facility.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegisterMap {
    /// FROM of record 0.
    pub from: Msr,
    /// TO of record 0; `None` for packed records.
    pub to: Option<Msr>,
    /// INFO of record 0, if records have one.
    pub info: Option<Msr>,
    /// Distance between the registers of two records: 1, 2 for AMD; for BRBE as
    /// [`brbe::distance`].
    pub stride: u32,
    /// The top-of-stack register.
    pub tos: Option<Msr>,
    /// The filter register (for Architectural LBR, IA32_LBR_CTL).
    pub select: Option<Msr>,
    /// The register whose [`enable`](Self::enable) bit starts recording.
    pub control: Msr,
    /// The bit in [`control`](Self::control).
    pub enable: u64,
    /// IA32_LBR_DEPTH, or BRB IALL; writing it clears every record.
    pub depth: Option<Msr>,
}

impl RegisterMap {
    /// FROM of record `i`.
    pub const fn from_at(&self, i: u32) -> Msr {
        self.from.plus(self.distance(i))
    }
    const fn distance(&self, i: u32) -> u32 {
        if self.control.0 == brbe::BRBCR.0 { brbe::distance(i) } else { i * self.stride }
    }
    /// TO of record `i`.
    pub fn to_at(&self, i: u32) -> Option<Msr> {
        self.to.map(|to| to.plus(self.distance(i)))
    }
    /// INFO of record `i`.
    pub fn info_at(&self, i: u32) -> Option<Msr> {
        self.info.map(|info| info.plus(self.distance(i)))
    }

    /// The registers of record `i`: FROM, TO and INFO, as far as they exist.
    pub fn record(&self, i: u32) -> impl Iterator<Item = Msr> + use<> {
        [Some(self.from_at(i)), self.to_at(i), self.info_at(i)].into_iter().flatten()
    }
}

bitflags::bitflags! {
    /// Deviations from the documented rules.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Quirks: u32 {
        /// Haswell/Broadwell without TSX: bits 62:61 of FROM are recorded as 0
        /// but checked as sign extension when written (HSM182, BDM127 and
        /// siblings). Writing 0 is safe.
        const TSX_LESS_FORMAT_4 = 1 << 0;
        /// Knights Landing and Mill report format 1 but have MISPRED.
        const REPORTS_LIP_HAS_MISPRED = 1 << 1;
        /// Nehalem, Westmere, Silvermont: recording calls and returns needs the jump bits open.
        const CALL_FILTERS_NEED_JUMPS = 1 << 2;
        /// Bonnell 1CH before stepping 10 cannot freeze LBR on PMI; Linux
        /// disables LBR there.
        const NO_FREEZE_ON_PMI = 1 << 3;
        /// Haswell can log a transaction abort twice.
        const DOUBLE_ABORT = 1 << 4;
        /// A C-state deeper than C1 may clear records and TOS.
        const DEEP_C_STATE_WIPES = 1 << 5;
        /// MSR_LBR_SELECT is shared by the hyperthreads of a core.
        const SELECT_SHARED_BY_CORE = 1 << 6;
        /// AMD macro-op fusion: FROM may be the instruction before the branch.
        const FUSED_FROM = 1 << 7;
        /// Intel PT with TraceEn makes LBR registers read 0 and ignore writes (SDM 36.3.1.2 names
        /// six models).
        const PT_DISABLES = 1 << 8;
        /// The records and TOS cannot be written (NetBurst).
        const READ_ONLY_RECORDS = 1 << 9;
        /// DEBUGCTL.TR must not be set with LBR (P6, Pentium M, Core 2).
        const TR_CONFLICTS = 1 << 10;
        /// Streamlined freeze: bit 58 of IA32_PERF_GLOBAL_STATUS (perfmon
        /// version 4 and later), or of AMD's PerfCntrGlobalStatus
        /// (CPUID.80000022H:EAX\[2\]), stops recording while the enable bit
        /// stays 1.
        const STREAMLINED_FREEZE = 1 << 11;
        /// Linux uses LBR or Intel PT, never both (models with PT before Ice Lake that
        /// [`PT_DISABLES`](Self::PT_DISABLES) does not name). The LBR's behaviour under TraceEn is
        /// undocumented.
        const PT_EXCLUDES = 1 << 12;
    }
}

/// The CPU's vendor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// GenuineIntel.
    Intel,
    /// AuthenticAMD (and HygonGenuine, which shares its registers).
    Amd,
    /// Any other vendor string.
    Other(String),
}

impl Vendor {
    /// The CPUID vendor string.
    pub fn as_str(&self) -> &str {
        match self {
            Vendor::Intel => "GenuineIntel",
            Vendor::Amd => "AuthenticAMD",
            Vendor::Other(s) => s,
        }
    }
}

/// Vendor, family, model and stepping of a CPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CpuIdentity {
    /// Vendor.
    pub vendor: Vendor,
    /// Display family (base plus extended).
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Microarchitecture, if the table knows the model.
    pub uarch: Option<Cow<'static, str>>,
    /// The hypervisor's name, or `unknown` if CPUID.1:ECX\[31\] is set but no name is given; `None`
    /// on bare metal.
    pub hypervisor: Option<String>,
}

impl CpuIdentity {
    /// `FF_MM` in upper-case hexadecimal, the CPU table's key.
    pub fn key(&self) -> String {
        alloc::format!("{:02X}_{:02X}", self.family, self.model)
    }
}

/// The depths that EAX\[7:0\] of CPUID leaf 1CH names, smallest first.
pub fn depths_in(mask: u8) -> impl Iterator<Item = u32> {
    (0..8).filter(move |n| mask >> n & 1 != 0).map(|n| 8 * (n + 1))
}

/// The capabilities of one CPU's branch records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LbrCaps {
    /// The CPU.
    pub cpu: CpuIdentity,
    /// The mechanism.
    pub facility: Facility,
    /// Number of records (Architectural LBR: the largest supported depth).
    pub depth: u32,
    /// Architectural LBR: bit n set means depth 8 × (n + 1) is supported.
    /// Otherwise 0.
    pub depth_mask: u8,
    /// IA32_PERF_CAPABILITIES\[5:0\]; `None` if it was not read or does not exist.
    pub format: Option<LbrFormat>,
    /// How to decode a record.
    pub layout: Layout,
    /// The register addresses.
    pub registers: RegisterMap,
    /// The order of the records.
    pub order: Order,
    /// The hardware filter.
    pub filter: FilterRegister,
    /// Deviations from the documented rules.
    pub quirks: Quirks,
    /// Architectural performance-monitoring version, CPUID.0AH:EAX\[7:0\]; 0 if the leaf is empty.
    pub perfmon_version: u8,
    /// The user supplied part of this (`--assume`).
    pub assumed: bool,
}

impl LbrCaps {
    /// Architectural LBR: the supported depths, smallest first.
    pub fn depths(&self) -> impl Iterator<Item = u32> + use<> {
        depths_in(self.depth_mask)
    }

    /// Whether records have a mispredict flag.
    pub const fn mispredict(&self) -> bool {
        match self.layout {
            Layout::Legacy { format, .. } => format.0 >= 3 && format.0 <= 7,
            Layout::Arch { mispredict, .. } => mispredict,
            Layout::AmdV2 { .. } | Layout::Brbe => true,
            Layout::Packed32 | Layout::Plain | Layout::AmdBrs { .. } | Layout::AmdSingle => false,
        }
    }

    /// Whether records have transaction flags.
    pub const fn tsx(&self) -> bool {
        match self.layout {
            Layout::Legacy { format, tsx } => tsx && matches!(format.0, 4 | 5 | 7),
            Layout::Arch { tsx, .. } => tsx,
            _ => false,
        }
    }

    /// Whether records have cycle counts.
    pub const fn cycles(&self) -> bool {
        match self.layout {
            Layout::Legacy { format, .. } => format.0 >= 5 && format.0 <= 7,
            Layout::Arch { timed, .. } => timed,
            Layout::Brbe => true,
            _ => false,
        }
    }

    /// Whether records have a branch type.
    pub const fn types(&self) -> bool {
        matches!(self.layout, Layout::Arch { types: true, .. } | Layout::Brbe)
    }

    /// The status register whose LBR_FRZ shows that a PMI froze recording, and the register whose
    /// LBR_FRZ thaws it; `None` if the enable bit is cleared instead.
    pub const fn freeze_status(&self) -> Option<(Msr, Msr)> {
        if !self.quirks.contains(Quirks::STREAMLINED_FREEZE) {
            return None;
        }
        Some(match self.cpu.vendor {
            Vendor::Amd => (AMD_PERF_CNTR_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS_CLR),
            Vendor::Intel | Vendor::Other(_) => {
                (IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_RESET)
            }
        })
    }

    /// Whether call-stack mode exists.
    pub const fn call_stack(&self) -> bool {
        self.filter.call_stack()
    }
}
