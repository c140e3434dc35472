//! Every documented register: its address, CPUs and fields.
//!
//! CPUs are named by the short names of the [table](crate::table)'s generations, and AMD's by
//! [`AMD_ONE`], [`AMD_BRS`] and [`AMD_V2`].

use crate::{
    address::{self, *},
    register::{
        AmdLbrSelect, DbgExtnCfg, DebugCtl, DebugCtlA, Field, LbrCtl, LbrDepth, LbrSelect,
        NetBurstTos, PerfCapabilities, PerfGlobalStatus, PerfGlobalStatusReset, RtitCtl, Tos,
        amd::{self, AmdFrom, AmdTo},
        brbe::{self, BrbFcr, BrbInf},
        debugctl, perfmon, pmu,
        record::{
            ADDRESS, ADDRESS_48, ARCH_FROM, ArchInfo, CyclesTo, FlagsFrom, LbrInfo, PackedRecord,
            TsxFrom,
        },
        select::{SWALLOWING, WITH_STACK, tos},
    },
};

/// AMD CPUs with only a register pair.
pub(super) const AMD_ONE: &str = "one record";
/// Zen 3.
pub(super) const AMD_BRS: &str = "BRS";
/// Zen 4 and later.
pub(super) const AMD_V2: &str = "LbrExtV2";

/// A documented register.
#[derive(Debug)]
pub(super) struct Entry {
    /// The manual's name, with `{n}` for an index.
    pub(super) name: &'static str,
    /// Other names, without their optional prefix `MSR_` or `IA32_`.
    pub(super) aliases: &'static [&'static str],
    pub(super) source: &'static str,
    pub(super) summary: &'static str,
    /// If no CPU is given, the first applies.
    pub(super) variants: &'static [Variant],
}

/// The register's meaning on some CPUs.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) location: Location,
    /// The generations; empty for Arm's registers.
    pub(super) on: &'static [&'static str],
    /// The generations in words.
    pub(super) cpus: &'static str,
    /// In ascending order; gaps are reserved.
    pub(super) fields: &'static [Field],
    /// Bits of `fields` that these CPUs lack.
    pub(super) lacks: u64,
}

/// The address or addresses of a register.
#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    /// One MSR.
    At(Msr),
    /// `count` MSRs, `stride` apart.
    Each { first: Msr, stride: u32, count: u32 },
    /// An Arm system register, as in [`address::brbe`].
    System(Msr),
    /// `count` Arm system registers, [`address::brbe::distance`] from the first.
    SystemEach { first: Msr, count: u32 },
}

impl Entry {
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }
}

impl Variant {
    /// Number of registers; `None` for a register without an index.
    pub(super) const fn count(&self) -> Option<u32> {
        match self.location {
            Location::At(_) | Location::System(_) => None,
            Location::Each { count, .. } | Location::SystemEach { count, .. } => Some(count),
        }
    }

    const fn lacking(self, lacks: u64) -> Variant {
        Variant { lacks, ..self }
    }
}

const fn entry(
    name: &'static str,
    aliases: &'static [&'static str],
    source: &'static str,
    summary: &'static str,
    variants: &'static [Variant],
) -> Entry {
    Entry { name, aliases, source, summary, variants }
}

/// A register without an index.
const fn one(
    msr: Msr,
    on: &'static [&'static str],
    cpus: &'static str,
    fields: &'static [Field],
) -> Variant {
    Variant { location: Location::At(msr), on, cpus, fields, lacks: 0 }
}

/// A register for each of `count` records, `stride` apart.
const fn each(
    (first, stride, count): (Msr, u32, u32),
    on: &'static [&'static str],
    cpus: &'static str,
    fields: &'static [Field],
) -> Variant {
    Variant { location: Location::Each { first, stride, count }, on, cpus, fields, lacks: 0 }
}

/// An Arm register.
const fn arm(location: Location, fields: &'static [Field]) -> Variant {
    Variant { location, on: &[], cpus: "Arm", fields, lacks: 0 }
}

/// CPUs with today's IA32_DEBUGCTL.
const MODERN: &[&str] = &["BNL", "SLM", "KNL", "NHM", "SNB", "HSW", "SKL", "GLM", "GLP", "TNT"];
/// CPUs that may announce PDCM. The last NetBurst CPUs do.
const PDCM: &[&str] = &[
    "YNH", "C2", "BNL", "SLM", "KNL", "NHM", "SNB", "HSW", "SKL", "GLM", "GLP", "TNT", "ARCH",
    "NB3",
];
/// CPUs with perfmon version 2 or later.
const PERFMON_2: (&[&str], &str) = (
    &["C2", "BNL", "SLM", "KNL", "NHM", "SNB", "HSW", "SKL", "GLM", "GLP", "TNT", "ARCH"],
    "Intel with perfmon version 2 or later",
);
/// CPUs that may have adaptive PEBS.
const ADAPTIVE: (&[&str], &str) =
    (&["SKL", "TNT", "ARCH"], "Intel with IA32_PERF_CAPABILITIES[14], Ice Lake, Tremont and later");
/// CPUs that may have Intel PT, Broadwell first.
const PT: &[&str] = &["HSW", "SKL", "GLM", "GLP", "TNT", "ARCH"];
/// CPUs with the last-exception pair at 1DDH. Without Pentium M: its table has the two swapped, and
/// no other source confirms that.
const LER: (&[&str], &str) = (
    &["YNH", "C2", "BNL", "SLM", "KNL", "NHM", "SNB", "HSW", "SKL", "GLM", "GLP", "TNT"],
    "Core and later, model-specific LBR",
);
const NETBURST: &[&str] = &["NB0", "NB3"];
const FORMAT_1: (&[&str], &str) =
    (&["BNL", "SLM"], "LBR_FMT 1, Bonnell, Saltwell, Silvermont, Airmont");
const FORMAT_3: (&[&str], &str) = (&["NHM", "SNB"], "LBR_FMT 3, Nehalem to Ivy Bridge");
/// CPUs whose INFO register holds the flags.
const FORMAT_5: (&[&str], &str) =
    (&["SKL", "GLP", "TNT"], "LBR_FMT 5 and 7, Skylake to Rocket Lake, Goldmont Plus, Tremont");
const FORMAT_6: &str = "LBR_FMT 6, Goldmont";
const KNL: &str = "Knights Landing and Mill, which report LBR_FMT 1 but have MISPRED";
const ARCH: (&[&str], &str) = (&["ARCH"], "Architectural LBR");
const EVERY_AMD: &[&str] = &[AMD_ONE, AMD_BRS, AMD_V2];
const ZEN_4: (&[&str], &str) = (&[AMD_V2], "AMD LbrExtV2, Zen 4 and later");
const ZEN_3: (&[&str], &str) = (&[AMD_BRS], "AMD BRS, Zen 3");

const OLD_FROM: Msr = MSR_LASTBRANCH_0_FROM_IP_CORE2;
const OLD_TO: Msr = MSR_LASTBRANCH_0_TO_IP_CORE2;
const FROM: Msr = MSR_LASTBRANCH_0_FROM_IP;
const TO: Msr = MSR_LASTBRANCH_0_TO_IP;

const SUPPRESSES: &str =
    "branch filter: bits 0 to 8 suppress the types they name; 0 records everything";
const NEWEST_FROM: &str =
    "source address of the branch; 0 if the record is empty; record 0 is the newest";
const LAST_EXCEPTION: &str = "last branch before the last exception or interrupt";
const EXCEPTION_FROM: &str =
    "source address of the last branch before the last exception or interrupt";
const EXCEPTION_TO: &str =
    "target address of the last branch before the last exception or interrupt";
const LINUX: &str = "Linux msr-index.h";
const ARCH_PEBS: &str = "Architectural PEBS of a counter: the groups of its records";

/// Current CPUs come before older ones: if a name or an address matches several and no CPU is
/// given, the first applies.
#[rustfmt::skip]
pub(super) static ENTRIES: &[Entry] = &[
    entry("IA32_PERF_CAPABILITIES", &[], "SDM 18.18",
        "performance-monitoring capabilities, read-only; exists if CPUID.01H:ECX[15] (PDCM) is 1",
        &[one(IA32_PERF_CAPABILITIES, PDCM, "Intel with PDCM", PerfCapabilities::FIELDS)]),
    entry("IA32_PERF_GLOBAL_STATUS", &[], "SDM 18.2.4.1",
        "performance-monitoring status; freeze bits from perfmon version 4 on",
        &[one(IA32_PERF_GLOBAL_STATUS, PERFMON_2.0, PERFMON_2.1, PerfGlobalStatus::FIELDS)]),
    entry("IA32_PERF_GLOBAL_STATUS_RESET", &["PERF_GLOBAL_OVF_CTRL"], "SDM 18.2.4.2",
        "writing 1 clears the status bit at the same position",
        &[one(IA32_PERF_GLOBAL_STATUS_RESET, PERFMON_2.0, PERFMON_2.1, PerfGlobalStatusReset::FIELDS)]),
    entry("IA32_PERF_GLOBAL_CTRL", &[], "SDM 18.2.2",
        "enables counters; a counter's PMI freezes branch records if IA32_DEBUGCTL[11] is 1",
        &[one(IA32_PERF_GLOBAL_CTRL, PERFMON_2.0, PERFMON_2.1, &pmu::GLOBAL_CTRL)]),
    entry("IA32_FIXED_CTR_CTRL", &["PERF_FIXED_CTR_CTRL"], "SDM 18.2.2",
        "controls of the fixed counters: rings, PMI, PEBS",
        &[one(IA32_FIXED_CTR_CTRL, PERFMON_2.0, PERFMON_2.1, &pmu::FIXED_CTR_CTRL)]),
    entry("IA32_PERFEVTSEL{n}", &["PERFEVTSEL{n}"], "SDM 18.2.2",
        "event of a general counter: rings, PMI, PEBS, logging in branch records",
        &[each((IA32_PERFEVTSEL0, 1, 8), PERFMON_2.0, PERFMON_2.1, &pmu::PERFEVTSEL)]),
    entry("IA32_PEBS_ENABLE", &[], LINUX,
        "counters that write PEBS records, with LBR entries if MSR_PEBS_DATA_CFG[3] is 1",
        &[one(IA32_PEBS_ENABLE, ADAPTIVE.0, ADAPTIVE.1, &pmu::PEBS_ENABLE)]),
    entry("MSR_PEBS_DATA_CFG", &["IA32_PEBS_DATA_CFG"], LINUX,
        "groups of PEBS records, the LBR's among them",
        &[one(MSR_PEBS_DATA_CFG, ADAPTIVE.0, ADAPTIVE.1, &pmu::PEBS_DATA_CFG)]),
    entry("IA32_PMC_GP{n}_CFG_C", &["PMC_V6_GP{n}_CFG_C"], LINUX, ARCH_PEBS,
        &[each((IA32_PMC_GP0_CFG_C, 4, 10), ARCH.0, "Intel with Architectural PEBS", &pmu::CFG_C)]),
    entry("IA32_PMC_FX{n}_CFG_C", &["PMC_V6_FX{n}_CFG_C"], LINUX, ARCH_PEBS,
        &[each((IA32_PMC_FX0_CFG_C, 4, 7), ARCH.0, "Intel with Architectural PEBS", &pmu::CFG_C)]),
    entry("IA32_RTIT_CTL", &[], "SDM 36.2.7",
        "Intel Processor Trace, which excludes branch records on some cores",
        &[one(IA32_RTIT_CTL, PT, "Intel with Processor Trace", RtitCtl::FIELDS)]),

    entry("IA32_DEBUGCTL", &["DEBUGCTLMSR"], "SDM 17.4.1",
        "enables branch recording and tracing; the kernel owns most bits, so read, modify, write",
        &[
            one(IA32_DEBUGCTL, MODERN, "Intel Nehalem, Bonnell and later with model-specific LBR", DebugCtl::FIELDS),
            one(IA32_DEBUGCTL, &["C2"], "Core 2", DebugCtl::FIELDS).lacking(DebugCtl::AFTER_CORE_2.bits()),
            one(IA32_DEBUGCTL, &["YNH"], "Core Solo and Duo", DebugCtl::FIELDS).lacking(DebugCtl::AFTER_YONAH.bits()),
        ]),
    entry("IA32_DEBUGCTL", &["DEBUGCTLMSR"], "SDM 17.4.1",
        "freezing and tracing; branch recording is in IA32_LBR_CTL",
        &[one(IA32_DEBUGCTL, ARCH.0, "Intel with Architectural LBR", &debugctl::ARCH)]),
    entry("DEBUGCTLMSR", &["IA32_DEBUGCTL"], "SDM 17.13, 17.14",
        "enables branch recording; controls the breakpoint pins",
        &[one(IA32_DEBUGCTL, &["P6", "PM"], "P6 and Pentium M", debugctl::P6)]),
    entry("MSR_DEBUGCTLA", &["IA32_DEBUGCTL"], "SDM 17.11.1",
        "enables branch recording and tracing; bit order differs from IA32_DEBUGCTL",
        &[one(IA32_DEBUGCTL, NETBURST, "NetBurst", DebugCtlA::FIELDS)]),

    entry("MSR_LBR_SELECT", &[], "SDM 17.7.2",
        SUPPRESSES,
        &[
            one(MSR_LBR_SELECT, &["HSW", "SKL", "GLM", "GLP", "TNT"],
                "Haswell and later, Goldmont and later: with call-stack mode", &WITH_STACK),
            one(MSR_LBR_SELECT, &["SNB", "KNL"],
                "Sandy Bridge, Ivy Bridge, Knights Landing: without call-stack mode", LbrSelect::FIELDS)
                .lacking(LbrSelect::EN_CALLSTACK.bits()),
            one(MSR_LBR_SELECT, &["NHM", "SLM"],
                "Nehalem, Westmere, Silvermont: jump bits swallow calls and returns", &SWALLOWING)
                .lacking(LbrSelect::EN_CALLSTACK.bits()),
        ]),
    entry("IA32_LBR_CTL", &["ARCH_LBR_CTL"], LINUX,
        "Architectural LBR: branch filter and enable; bits capture the types they name; CPUID leaf 1CH EBX tells which may be set",
        &[one(IA32_LBR_CTL, ARCH.0, ARCH.1, LbrCtl::FIELDS)]),
    entry("IA32_LBR_DEPTH", &["ARCH_LBR_DEPTH"], "Linux intel/lbr.c",
        "Architectural LBR: depth; any write clears every record",
        &[one(IA32_LBR_DEPTH, ARCH.0, ARCH.1, LbrDepth::FIELDS)]),
    entry("MSR_LASTBRANCH_TOS", &["LBR_TOS", "TOS"], "SDM 17.4.8",
        "index of the newest record; older ones at lower indices, modulo the depth",
        &[
            one(MSR_LASTBRANCH_TOS, &["SKL", "GLM", "GLP", "TNT"], "32 records", Tos::FIELDS),
            one(MSR_LASTBRANCH_TOS, &["NHM", "SNB", "HSW"], "16 records", &[tos(3, "SDM 17.4.8")]),
            one(MSR_LASTBRANCH_TOS, &["PM", "YNH", "BNL", "SLM", "KNL"], "8 records", &[tos(2, "SDM 17.5.1")]),
            one(MSR_LASTBRANCH_TOS, &["C2"], "4 records", &[tos(1, "SDM 17.4.8")]),
        ]),
    entry("MSR_LASTBRANCH_TOS", &["LBR_TOS", "TOS"], "SDM 17.11.2",
        "index of the newest record; read-only",
        &[
            one(MSR_LASTBRANCH_TOS_NETBURST, &["NB3"], "NetBurst, 16 records", NetBurstTos::FIELDS),
            one(MSR_LASTBRANCH_TOS_NETBURST, &["NB0"], "NetBurst, 4 records", &[tos(1, "SDM 17.11.2")]),
        ]),

    entry("MSR_LASTBRANCH_{n}_FROM_IP", &[], "SDM 17.4.8.1",
        "source address of the branch; 0 if the record is empty",
        &[
            each((FROM, 1, 32), FORMAT_5.0, FORMAT_5.1, ADDRESS_48),
            each((FROM, 1, 16), &["HSW"], "LBR_FMT 4, Haswell, Broadwell", TsxFrom::FIELDS),
            each((FROM, 1, 16), FORMAT_3.0, FORMAT_3.1, FlagsFrom::FIELDS),
            each((FROM, 1, 32), &["GLM"], FORMAT_6, FlagsFrom::FIELDS),
            each((FROM, 1, 8), &["KNL"], KNL, FlagsFrom::FIELDS),
            each((OLD_FROM, 1, 8), FORMAT_1.0, FORMAT_1.1, ADDRESS),
            each((OLD_FROM, 1, 4), &["C2"], "LBR_FMT 2, Core 2", ADDRESS),
            each((FROM, 1, 16), &["NB3"], "NetBurst models 3 and later", ADDRESS),
        ]),
    entry("MSR_LASTBRANCH_{n}_TO_IP", &[], "SDM 17.4.8.1",
        "target address of the branch",
        &[
            each((TO, 1, 32), FORMAT_5.0, FORMAT_5.1, ADDRESS_48),
            each((TO, 1, 16), &["HSW"], "LBR_FMT 4, Haswell, Broadwell", ADDRESS_48),
            each((TO, 1, 16), FORMAT_3.0, FORMAT_3.1, ADDRESS_48),
            each((TO, 1, 32), &["GLM"], FORMAT_6, CyclesTo::FIELDS),
            each((TO, 1, 8), &["KNL"], KNL, ADDRESS_48),
            each((OLD_TO, 1, 8), FORMAT_1.0, FORMAT_1.1, ADDRESS),
            each((OLD_TO, 1, 4), &["C2"], "LBR_FMT 2, Core 2", ADDRESS),
            each((TO, 1, 16), &["NB3"], "NetBurst models 3 and later", ADDRESS),
        ]),
    entry("MSR_LBR_INFO_{n}", &["LASTBRANCH_{n}_INFO"], "SDM Table 17-16",
        "flags and cycles of this record; bits 62:61 are valid only if CPUID announces TSX",
        &[each((MSR_LBR_INFO_0, 1, 32), FORMAT_5.0, FORMAT_5.1, LbrInfo::FIELDS)]),
    entry("IA32_LBR_{n}_FROM_IP", &["LBR_FROM_{n}", "LASTBRANCH_{n}_FROM_IP"], LINUX,
        NEWEST_FROM,
        &[each((IA32_LBR_0_FROM_IP, 1, 32), ARCH.0, ARCH.1, ARCH_FROM)]),
    entry("IA32_LBR_{n}_TO_IP", &["LBR_TO_{n}", "LASTBRANCH_{n}_TO_IP"], LINUX,
        "target address of the branch; record 0 is the newest",
        &[each((IA32_LBR_0_TO_IP, 1, 32), ARCH.0, ARCH.1, ADDRESS)]),
    entry("IA32_LBR_{n}_INFO", &["LBR_INFO_{n}"], LINUX,
        "flags, cycles and type of this record; CPUID leaf 1CH ECX tells which fields are valid",
        &[each((IA32_LBR_0_INFO, 1, 32), ARCH.0, ARCH.1, ArchInfo::FIELDS)]),

    entry("MSR_LER_FROM_LIP", &[], "EDK2", LAST_EXCEPTION,
        &[
            one(MSR_LER_FROM_LIP, LER.0, LER.1, ADDRESS),
            one(MSR_LER_FROM_LIP_NETBURST, NETBURST, "NetBurst", ADDRESS),
        ]),
    entry("MSR_LER_TO_LIP", &[], "EDK2", LAST_EXCEPTION,
        &[
            one(MSR_LER_TO_LIP, LER.0, LER.1, ADDRESS),
            one(MSR_LER_TO_LIP_NETBURST, NETBURST, "NetBurst", ADDRESS),
        ]),
    entry("IA32_LER_FROM_IP", &["LER_FROM_LIP"], "EDK2", LAST_EXCEPTION,
        &[one(MSR_LER_FROM_LIP, ARCH.0, ARCH.1, ADDRESS)]),
    entry("IA32_LER_TO_IP", &["LER_TO_LIP"], "EDK2", LAST_EXCEPTION,
        &[one(MSR_LER_TO_LIP, ARCH.0, ARCH.1, ADDRESS)]),
    entry("IA32_LER_INFO", &[], "EDK2", LAST_EXCEPTION,
        &[one(IA32_LER_INFO, ARCH.0, ARCH.1, ArchInfo::FIELDS)]),
    entry("LASTBRANCHFROMIP", &[], "SDM 17.14", "source address of the last branch",
        &[one(MSR_LASTBRANCHFROMIP, &["P6"], "P6", ADDRESS)]),
    entry("LASTBRANCHTOIP", &[], "SDM 17.14", "target address of the last branch",
        &[one(MSR_LASTBRANCHTOIP, &["P6"], "P6", ADDRESS)]),
    entry("LASTINTFROMIP", &[], "SDM 17.14", EXCEPTION_FROM,
        &[one(MSR_LER_FROM_LIP, &["P6"], "P6", ADDRESS)]),
    entry("LASTINTTOIP", &[], "SDM 17.14", EXCEPTION_TO,
        &[one(MSR_LER_TO_LIP, &["P6"], "P6", ADDRESS)]),
    // Without a CPU, 1DBH is the register of P6 and AMD.
    entry("MSR_LASTBRANCH_{n}", &[], "SDM 17.4.8.1",
        "source and target address of the branch; 0 if the record is empty",
        &[
            each((OLD_FROM, 1, 8), &["PM", "YNH"], "Pentium M, Core Solo and Duo", PackedRecord::FIELDS),
            each((MSR_LASTBRANCHFROMIP, 1, 4), &["NB0"], "NetBurst models 0 to 2", PackedRecord::FIELDS),
        ]),

    entry("DebugCtl", &["AMD_DEBUGCTL", "IA32_DEBUGCTL"], "APM",
        "enables recording of the last branch",
        &[one(IA32_DEBUGCTL, EVERY_AMD, "AMD", debugctl::AMD)]),
    entry("LBR_SELECT", &["AMD_LBR_SELECT", "AMD64_LBR_SELECT"], "Linux amd/lbr.c",
        SUPPRESSES,
        &[one(AMD_LBR_SELECT, ZEN_4.0, ZEN_4.1, AmdLbrSelect::FIELDS)]),
    entry("PerfCntrGlobalStatus", &["AMD_PERF_CNTR_GLOBAL_STATUS", "AMD64_PERF_CNTR_GLOBAL_STATUS"], LINUX,
        "performance-monitoring status",
        &[one(AMD_PERF_CNTR_GLOBAL_STATUS, ZEN_4.0, ZEN_4.1, &perfmon::AMD_STATUS)]),
    entry("PerfCntrGlobalStatusClr",
        &["AMD_PERF_CNTR_GLOBAL_STATUS_CLR", "AMD64_PERF_CNTR_GLOBAL_STATUS_CLR"], LINUX,
        "writing 1 clears the status bit at the same position",
        &[one(AMD_PERF_CNTR_GLOBAL_STATUS_CLR, ZEN_4.0, ZEN_4.1, &perfmon::AMD_STATUS_CLR)]),
    entry("DBG_EXTN_CFG", &["AMD_DBG_EXTN_CFG"], LINUX,
        "enables branch recording; read, modify, write",
        &[
            one(AMD_DBG_EXTN_CFG, ZEN_4.0, ZEN_4.1, DbgExtnCfg::FIELDS).lacking(DbgExtnCfg::OF_BRS),
            one(AMD_DBG_EXTN_CFG, ZEN_3.0, ZEN_3.1, DbgExtnCfg::FIELDS).lacking(DbgExtnCfg::LBRV2EN.bits()),
        ]),
    entry("AMD_SAMP_BR_FROM_{n}", &[], LINUX, NEWEST_FROM,
        &[each((AMD_SAMP_BR_FROM, 2, 16), ZEN_4.0, ZEN_4.1, AmdFrom::FIELDS)]),
    entry("AMD_SAMP_BR_TO_{n}", &[], LINUX,
        "target address of the branch; VALID and SPEC both 0: no record",
        &[each((AMD_SAMP_BR_TO, 2, 16), ZEN_4.0, ZEN_4.1, AmdTo::FIELDS)]),
    entry("AMD_SAMP_BR_FROM_{n}", &[], LINUX,
        "source address of the branch; 0 if the record is empty",
        &[each((AMD_SAMP_BR_FROM, 2, 16), ZEN_3.0, ZEN_3.1, amd::BRS_FROM)]),
    entry("AMD_SAMP_BR_TO_{n}", &[], LINUX,
        "target address of the branch",
        &[each((AMD_SAMP_BR_TO, 2, 16), ZEN_3.0, ZEN_3.1, amd::BRS_TO)]),
    entry("LastBranchFromIP", &[], "APM", "source address of the last branch",
        &[one(MSR_LASTBRANCHFROMIP, EVERY_AMD, "AMD", amd::PAIR)]),
    entry("LastBranchToIP", &[], "APM", "target address of the last branch",
        &[one(MSR_LASTBRANCHTOIP, EVERY_AMD, "AMD", amd::PAIR)]),
    entry("LastExcpFromIP", &["LastIntFromIP"], "APM", EXCEPTION_FROM,
        &[one(MSR_LER_FROM_LIP, EVERY_AMD, "AMD", amd::PAIR)]),
    entry("LastExcpToIP", &["LastIntToIP"], "APM", EXCEPTION_TO,
        &[one(MSR_LER_TO_LIP, EVERY_AMD, "AMD", amd::PAIR)]),

    entry("BRBINF{n}_EL1", &[], "BRBE",
        "flags, cycles and type of this record; record 0 of a bank is its newest",
        &[arm(Location::SystemEach { first: address::brbe::BRBINF0, count: 32 }, BrbInf::FIELDS)]),
    entry("BRBSRC{n}_EL1", &[], "BRBE", "source address of the branch",
        &[arm(Location::SystemEach { first: address::brbe::BRBSRC0, count: 32 }, brbe::ADDRESS)]),
    entry("BRBTGT{n}_EL1", &[], "BRBE", "target address of the branch",
        &[arm(Location::SystemEach { first: address::brbe::BRBTGT0, count: 32 }, brbe::ADDRESS)]),
    entry("BRBINFINJ_EL1", &[], "BRBE", "flags, cycles and type of a record to be injected",
        &[arm(Location::System(address::brbe::BRBINFINJ), BrbInf::FIELDS)]),
    entry("BRBSRCINJ_EL1", &[], "BRBE", "source of a record to be injected",
        &[arm(Location::System(address::brbe::BRBSRCINJ), brbe::ADDRESS)]),
    entry("BRBTGTINJ_EL1", &[], "BRBE", "target of a record to be injected",
        &[arm(Location::System(address::brbe::BRBTGTINJ), brbe::ADDRESS)]),
    entry("BRBIDR0_EL1", &[], "BRBE", "capabilities of BRBE",
        &[arm(Location::System(address::brbe::BRBIDR0), brbe::IDR0)]),
    entry("BRBCR_EL1", &[], "BRBE", "exception levels and events to record",
        &[arm(Location::System(address::brbe::BRBCR), brbe::CR)]),
    entry("BRBCR_EL2", &[], "BRBE", "the same, at EL2",
        &[arm(Location::System(address::brbe::BRBCR_EL2), brbe::CR)]),
    entry("BRBCR_EL12", &[], "BRBE", "BRBCR_EL1, as accessed from EL2 with VHE",
        &[arm(Location::System(address::brbe::BRBCR_EL12), brbe::CR)]),
    entry("BRBFCR_EL1", &[], "BRBE", "branch types to record, and the bank to read",
        &[arm(Location::System(address::brbe::BRBFCR), BrbFcr::FIELDS)]),
    entry("BRBTS_EL1", &[], "BRBE",
        "time of the freeze, in the clock that BRBCR.TS selects",
        &[arm(Location::System(address::brbe::BRBTS), brbe::TS)]),
];

#[cfg(test)]
#[path = "../../../tests/lbr_msr/unit/explain/catalogue.rs"]
mod tests;
