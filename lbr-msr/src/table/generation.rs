//! The geometry of each generation, with its sources.

use super::{Carries, ExpectedFormat, Generation, RecordKind, SelectScope};
use crate::{
    address::{
        IA32_LBR_0_FROM_IP, IA32_LBR_0_INFO, IA32_LBR_0_TO_IP, IA32_LBR_CTL,
        MSR_LASTBRANCH_0_FROM_IP, MSR_LASTBRANCH_0_FROM_IP_CORE2, MSR_LASTBRANCH_0_TO_IP,
        MSR_LASTBRANCH_0_TO_IP_CORE2, MSR_LASTBRANCH_TOS, MSR_LASTBRANCH_TOS_NETBURST,
        MSR_LASTBRANCHFROMIP, MSR_LASTBRANCHTOIP, MSR_LBR_INFO_0, MSR_LBR_SELECT,
    },
    format::LbrFormat,
};

/// A Core-era LBR at 40H and 60H without a filter, the simplest; the generations below list their
/// differences.
const CORE_RING: Generation = Generation {
    group: "",
    kind: RecordKind::Legacy,
    depth: Some(8),
    from: MSR_LASTBRANCH_0_FROM_IP_CORE2,
    to: Some(MSR_LASTBRANCH_0_TO_IP_CORE2),
    info: None,
    tos: Some(MSR_LASTBRANCH_TOS),
    select: None,
    format: ExpectedFormat::Exactly(LbrFormat::LIP),
    tsx: Carries::No,
    call_stack: Carries::No,
    select_scope: None,
    sources: "",
};

/// An LBR of 16 records at 680H and 6C0H with MSR_LBR_SELECT and format 3.
const NEHALEM_RING: Generation = Generation {
    depth: Some(16),
    from: MSR_LASTBRANCH_0_FROM_IP,
    to: Some(MSR_LASTBRANCH_0_TO_IP),
    select: Some(MSR_LBR_SELECT),
    format: ExpectedFormat::Exactly(LbrFormat::EIP_FLAGS),
    select_scope: Some(SelectScope::Thread),
    ..CORE_RING
};

/// The P6 family: one pair.
pub(super) const P6: Generation = Generation {
    group: "P6",
    kind: RecordKind::P6Single,
    depth: Some(1),
    from: MSR_LASTBRANCHFROMIP,
    to: Some(MSR_LASTBRANCHTOIP),
    tos: None,
    format: ExpectedFormat::NotApplicable,
    sources: "EDK2 P6Msr.h; SDM 17.14; Linux msr-index.h",
    ..CORE_RING
};

/// Pentium M: eight packed records.
pub(super) const PM: Generation = Generation {
    group: "PM",
    kind: RecordKind::Packed32,
    to: None,
    format: ExpectedFormat::NotApplicable,
    sources: "EDK2 PentiumMMsr.h; SDM 17.13",
    ..CORE_RING
};

/// Yonah: as Pentium M.
pub(super) const YNH: Generation = Generation {
    group: "YNH",
    format: ExpectedFormat::ZeroOrAbsent,
    sources: "EDK2 CoreMsr.h; SDM 17.12",
    ..PM
};

/// Core 2: four records.
pub(super) const C2: Generation = Generation {
    group: "C2",
    depth: Some(4),
    format: ExpectedFormat::Exactly(LbrFormat::EIP),
    sources: "Linux lbr.c (core); EDK2 Core2Msr.h; SDM Table 17-4; Xen",
    ..CORE_RING
};

/// Bonnell and Saltwell: eight records.
pub(super) const BNL: Generation = Generation {
    group: "BNL",
    sources: "Linux lbr.c (atom); EDK2 AtomMsr.h; SDM Table 17-4; Xen",
    ..CORE_RING
};

/// Silvermont and Airmont: as Bonnell, with MSR_LBR_SELECT.
pub(super) const SLM: Generation = Generation {
    group: "SLM",
    select: Some(MSR_LBR_SELECT),
    select_scope: Some(SelectScope::Core),
    sources: "Linux lbr.c (slm); EDK2 SilvermontMsr.h; SDM 17.5.2; Xen",
    ..CORE_RING
};

/// Knights Landing and Mill: eight records, reported as format 1, laid out as 3.
pub(super) const KNL: Generation = Generation {
    group: "KNL",
    depth: Some(8),
    format: ExpectedFormat::Lies { reported: LbrFormat::LIP, real: LbrFormat::EIP_FLAGS },
    sources: "Linux lbr.c (knl); EDK2 XeonPhiMsr.h",
    ..NEHALEM_RING
};

/// Nehalem and Westmere: hyperthreads share the filter register.
pub(super) const NHM: Generation = Generation {
    group: "NHM",
    select_scope: Some(SelectScope::CoreShared),
    sources: "Linux lbr.c (nhm); EDK2 NehalemMsr.h; SDM 17.7; Xen",
    ..NEHALEM_RING
};

/// Sandy Bridge and Ivy Bridge.
pub(super) const SNB: Generation = Generation {
    group: "SNB",
    sources: "Linux lbr.c (snb); EDK2 SandyBridgeMsr.h; SDM 17.8; Xen",
    ..NEHALEM_RING
};

/// Haswell and Broadwell: transaction flags and call-stack mode.
pub(super) const HSW: Generation = Generation {
    group: "HSW",
    format: ExpectedFormat::Exactly(LbrFormat::EIP_FLAGS2),
    tsx: Carries::Yes,
    call_stack: Carries::Yes,
    sources: "Linux lbr.c (hsw); EDK2 HaswellMsr.h; SDM 17.9; Xen",
    ..NEHALEM_RING
};

/// Skylake to Rocket Lake: 32 records with INFO.
pub(super) const SKL: Generation = Generation {
    group: "SKL",
    depth: Some(32),
    info: Some(MSR_LBR_INFO_0),
    format: ExpectedFormat::Exactly(LbrFormat::INFO),
    sources: "Linux lbr.c (skl); EDK2 SkylakeMsr.h; SDM 17.10; Xen",
    ..HSW
};

/// Goldmont: cycles in TO, no INFO registers.
pub(super) const GLM: Generation = Generation {
    group: "GLM",
    depth: Some(32),
    format: ExpectedFormat::Exactly(LbrFormat::TIME),
    call_stack: Carries::Yes,
    select_scope: Some(SelectScope::Core),
    sources: "Linux lbr.c (skl, format 6); EDK2 GoldmontMsr.h; SDM 17.6; Xen",
    ..NEHALEM_RING
};

/// Goldmont Plus: INFO without transaction flags.
pub(super) const GLP: Generation = Generation {
    group: "GLP",
    info: Some(MSR_LBR_INFO_0),
    format: ExpectedFormat::Exactly(LbrFormat::INFO2),
    sources: "Linux lbr.c (skl, format 7); EDK2 GoldmontPlusMsr.h; Xen",
    ..GLM
};

/// Tremont: as Goldmont Plus; the sources do not say whether it reports 5 or 7.
pub(super) const TNT: Generation = Generation {
    group: "TNT",
    format: ExpectedFormat::Either(LbrFormat::INFO, LbrFormat::INFO2),
    sources: "Linux core.c (lbr_init_skl); Xen (86H only)",
    ..GLP
};

/// Architectural LBR: CPUID gives the depth.
pub(super) const ARCH: Generation = Generation {
    group: "ARCH",
    kind: RecordKind::Arch,
    depth: None,
    from: IA32_LBR_0_FROM_IP,
    to: Some(IA32_LBR_0_TO_IP),
    info: Some(IA32_LBR_0_INFO),
    tos: None,
    select: Some(IA32_LBR_CTL),
    format: ExpectedFormat::Exactly(LbrFormat::NONE),
    tsx: Carries::ByCpuid,
    call_stack: Carries::ByCpuid,
    select_scope: Some(SelectScope::Thread),
    sources: "Linux core.c and lbr.c (arch), intel-family.h",
};

/// NetBurst models 0 to 2: four packed records.
pub(super) const NB0: Generation = Generation {
    group: "NB0",
    kind: RecordKind::Packed32,
    depth: Some(4),
    from: MSR_LASTBRANCHFROMIP,
    to: None,
    tos: Some(MSR_LASTBRANCH_TOS_NETBURST),
    format: ExpectedFormat::NotApplicable,
    sources: "EDK2 Pentium4Msr.h; SDM 17.11",
    ..CORE_RING
};

/// NetBurst models 3 and later: 16 records.
pub(super) const NB3: Generation = Generation {
    group: "NB3",
    depth: Some(16),
    from: MSR_LASTBRANCH_0_FROM_IP,
    to: Some(MSR_LASTBRANCH_0_TO_IP),
    tos: Some(MSR_LASTBRANCH_TOS_NETBURST),
    format: ExpectedFormat::NotApplicable,
    sources: "EDK2 Pentium4Msr.h; SDM 17.11; Xen",
    ..CORE_RING
};

/// Every generation, oldest first within its family.
pub static GENERATIONS: [Generation; 17] =
    [P6, PM, YNH, C2, BNL, NHM, SNB, HSW, SKL, KNL, SLM, GLM, GLP, TNT, ARCH, NB0, NB3];
