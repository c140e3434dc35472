//! Registers of other facilities that say something about branch records.

use super::{Entry, Field, Group, flag, words};
use crate::address;

/// CPUs of which some or all announce PDCM. The last NetBurst CPUs do.
const PDCM: (&[Group], &str) = (
    &[
        Group::Yonah,
        Group::Core2,
        Group::Bonnell,
        Group::Silvermont,
        Group::KnightsLanding,
        Group::Nehalem,
        Group::SandyBridge,
        Group::Haswell,
        Group::Skylake,
        Group::Goldmont,
        Group::GoldmontPlus,
        Group::Tremont,
        Group::Arch,
        Group::NetBurst3,
    ],
    "Intel with PDCM",
);
/// CPUs with perfmon version 2 or later.
const PERFMON_2: (&[Group], &str) = (
    &[
        Group::Core2,
        Group::Bonnell,
        Group::Silvermont,
        Group::KnightsLanding,
        Group::Nehalem,
        Group::SandyBridge,
        Group::Haswell,
        Group::Skylake,
        Group::Goldmont,
        Group::GoldmontPlus,
        Group::Tremont,
        Group::Arch,
    ],
    "Intel with perfmon version 2 or later",
);
/// CPUs of which some or all have Intel PT, Broadwell first.
const PT: (&[Group], &str) = (
    &[
        Group::Haswell,
        Group::Skylake,
        Group::Goldmont,
        Group::GoldmontPlus,
        Group::Tremont,
        Group::Arch,
    ],
    "Intel with Processor Trace",
);

const PERF_CAPABILITIES: &[Field] = &[
    Field::value("LBR_FMT", 5, 0, "format of branch records", words::lbr_format, "SDM 17.4.8.1"),
    flag(
        "PEBS_TRAP",
        6,
        "the PEBS assist is trap-like",
        "the PEBS assist is fault-like",
        "SDM 18.18",
    ),
    flag(
        "PEBS_SAVE_ARCH_REGS",
        7,
        "PEBS records save architectural registers",
        "PEBS records do not save architectural registers",
        "SDM 18.18",
    ),
    Field::value("PEBS_REC_FMT", 11, 8, "PEBS record layout", words::pebs_format, "SDM 18.18"),
    flag(
        "SMM_FREEZE",
        12,
        "IA32_DEBUGCTL.FREEZE_WHILE_SMM may be set",
        "IA32_DEBUGCTL.FREEZE_WHILE_SMM does not exist",
        "SDM 18.18",
    ),
    flag(
        "FW_WRITE",
        13,
        "IA32_A_PMCx, full-width counter aliases, exist",
        "no full-width counter aliases",
        "SDM 18.18",
    ),
    flag(
        "PEBS_BASELINE",
        14,
        "adaptive PEBS with a baseline",
        "no adaptive PEBS",
        "Linux perf_event.h",
    ),
    flag(
        "PERF_METRICS",
        15,
        "PERF_METRICS (0x329) exists",
        "no PERF_METRICS",
        "Linux perf_event.h",
    ),
    flag(
        "PEBS_OUTPUT_PT",
        16,
        "PEBS can write to Intel PT",
        "PEBS cannot write to Intel PT",
        "Linux perf_event.h",
    ),
    flag(
        "PEBS_TIMING_INFO",
        17,
        "timed PEBS: retire latency",
        "no timed PEBS",
        "Linux perf_event.h",
    ),
    flag(
        "RDPMC_METRICS_CLEAR",
        19,
        "RDPMC of the metrics can clear them",
        "RDPMC does not clear the metrics",
        "Linux perf_event.h",
    ),
];

const GLOBAL_STATUS: &[Field] = &[
    Field::value(
        "OVF_PMC",
        31,
        0,
        "general counters that overflowed",
        words::overflows,
        "SDM 18.2.4.1",
    ),
    Field::value(
        "OVF_FIXED_CTR",
        47,
        32,
        "fixed counters that overflowed",
        words::overflows,
        "SDM 18.2.4.1",
    ),
    Field::value("OTHER", 57, 48, "of other facilities", words::elsewhere, "SDM 18.2.4.1"),
    flag(
        "LBR_FRZ",
        58,
        "recording is frozen, whatever DEBUGCTL.LBR says",
        "recording is not frozen",
        "SDM 17.4.7",
    ),
    flag("CTR_FRZ", 59, "the counters are frozen", "the counters are not frozen", "SDM 17.4.7"),
    flag(
        "ASCI",
        60,
        "an SGX enclave influenced the counters",
        "no SGX enclave influenced the counters",
        "SDM 18.2.4.1",
    ),
    flag(
        "OVF_UNCORE",
        61,
        "an uncore counter overflowed",
        "no uncore counter overflowed",
        "SDM 18.2.4.1",
    ),
    flag(
        "OVF_BUF",
        62,
        "the DS buffer overflowed",
        "the DS buffer did not overflow",
        "SDM 18.2.4.1",
    ),
    flag(
        "COND_CHGD",
        63,
        "the state of the facility changed",
        "the state of the facility did not change",
        "SDM 18.2.4.1",
    ),
];

const GLOBAL_STATUS_RESET: &[Field] = &[
    Field::value(
        "OTHER",
        57,
        0,
        "clears the status bits of the same places",
        words::elsewhere,
        "SDM 18.2.4.2",
    ),
    flag(
        "LBR_FRZ",
        58,
        "clears LBR_FRZ: recording goes on",
        "leaves LBR_FRZ",
        "SDM 17.4.7, 18.2.4.2",
    ),
    flag(
        "CTR_FRZ",
        59,
        "clears CTR_FRZ: the counters go on",
        "leaves CTR_FRZ",
        "SDM 17.4.7, 18.2.4.2",
    ),
    flag("ASCI", 60, "clears ASCI", "leaves ASCI", "SDM 18.2.4.2"),
    Field::value(
        "OTHER_HIGH",
        63,
        61,
        "clears the status bits of the same places",
        words::elsewhere,
        "SDM 18.2.4.2",
    ),
];

const RTIT_CTL: &[Field] = &[
    flag(
        "TraceEn",
        0,
        "Intel PT traces; branch records may read 0 and drop writes",
        "Intel PT does not trace",
        "SDM 36.3.1.2",
    ),
    Field::value("TRACE_CONFIG", 63, 1, "what Intel PT traces", words::elsewhere, "SDM 36.2.7"),
];

pub(super) const ENTRIES: &[Entry] = &[
    Entry::one(
        "IA32_PERF_CAPABILITIES",
        &[],
        address::IA32_PERF_CAPABILITIES,
        PDCM,
        "what performance monitoring can do; exists where CPUID.01H:ECX[15] (PDCM) is 1, read-only",
        "SDM 18.18",
        PERF_CAPABILITIES,
    ),
    Entry::one(
        "IA32_PERF_GLOBAL_STATUS",
        &[],
        address::IA32_PERF_GLOBAL_STATUS,
        PERFMON_2,
        "what performance monitoring reports; freeze bits from perfmon version 4 on",
        "SDM 18.2.4.1",
        GLOBAL_STATUS,
    ),
    Entry::one(
        "IA32_PERF_GLOBAL_STATUS_RESET",
        &["PERF_GLOBAL_OVF_CTRL"],
        address::IA32_PERF_GLOBAL_STATUS_RESET,
        PERFMON_2,
        "a 1 clears the status bit of the same place",
        "SDM 18.2.4.2",
        GLOBAL_STATUS_RESET,
    ),
    Entry::one(
        "IA32_RTIT_CTL",
        &[],
        address::IA32_RTIT_CTL,
        PT,
        "Intel Processor Trace, which excludes branch records on some cores",
        "SDM 36.2.7",
        RTIT_CTL,
    ),
];
