//! The register at 0x1D9, under each of its names.

use super::{Entry, Field, Group, Place, flag};
use crate::address;

/// IA32_DEBUGCTL with the bits of today.
const MODERN_DEBUGCTL: &[Group] = &[
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
];
const NETBURST: &[Group] = &[Group::NetBurst0, Group::NetBurst3];

const PERFMON_2: &str = "PDCM and perfmon version 2";

const DEBUGCTL: [Field; 13] = [
    flag("LBR", 0, "branches are recorded", "branches are not recorded", "SDM 17.4.1"),
    flag("BTF", 1, "TF single-steps on branches", "TF single-steps on instructions", "SDM 17.4.1"),
    flag("BLD", 2, "bus locks raise #DB", "bus locks raise no #DB", "Linux msr-index.h")
        .needs("CPUID.07H:ECX[24]"),
    flag("TR", 6, "branch trace messages are sent", "no branch trace messages", "SDM 17.4.1"),
    flag(
        "BTS",
        7,
        "branch trace messages go to the BTS buffer",
        "the BTS buffer is not used",
        "SDM 17.4.1",
    ),
    flag("BTINT", 8, "a full BTS buffer interrupts", "the BTS buffer wraps around", "SDM 17.4.1"),
    flag("BTS_OFF_OS", 9, "no BTS or BTM at CPL 0", "BTS and BTM at CPL 0 too", "SDM 17.4.1"),
    flag("BTS_OFF_USR", 10, "no BTS or BTM at CPL > 0", "BTS and BTM at CPL > 0 too", "SDM 17.4.1"),
    flag(
        "FREEZE_LBRS_ON_PMI",
        11,
        "a PMI stops recording",
        "recording goes on at a PMI",
        "SDM 17.4.7",
    )
    .needs(PERFMON_2),
    flag(
        "FREEZE_PERFMON_ON_PMI",
        12,
        "a PMI stops the counters",
        "the counters go on at a PMI",
        "SDM 17.4.7",
    )
    .needs(PERFMON_2),
    flag("ENABLE_UNCORE_PMI", 13, "uncore PMIs are received", "no uncore PMIs", "SDM figure 17-11")
        .needs("06_1AH or later"),
    flag(
        "FREEZE_WHILE_SMM",
        14,
        "recording and counting stop in SMM",
        "SMM stops nothing",
        "SDM 17.4.1",
    )
    .needs("IA32_PERF_CAPABILITIES[12]"),
    flag("RTM_DEBUG", 15, "advanced debugging of RTM regions", "no advanced RTM debugging", "EDK2")
        .needs("CPUID.07H:EBX[11]"),
];

/// Core 2: neither bus-lock detection nor the uncore nor RTM exists yet.
const CORE_2_DEBUGCTL: [Field; 10] = [
    DEBUGCTL[0],
    DEBUGCTL[1],
    DEBUGCTL[3],
    DEBUGCTL[4],
    DEBUGCTL[5],
    DEBUGCTL[6],
    DEBUGCTL[7],
    DEBUGCTL[8],
    DEBUGCTL[9],
    DEBUGCTL[11],
];
/// Core Solo and Duo: the BTS bits by ring and the freezes came with Core 2.
const YONAH_DEBUGCTL: [Field; 5] =
    [DEBUGCTL[0], DEBUGCTL[1], DEBUGCTL[3], DEBUGCTL[4], DEBUGCTL[5]];

/// IA32_DEBUGCTL where Architectural LBR does the recording.
const ARCH_DEBUGCTL: [Field; 13] = {
    let mut fields = DEBUGCTL;
    fields[0] = flag(
        "LBR",
        0,
        "has no effect: IA32_LBR_CTL.LBREn records branches",
        "has no effect: IA32_LBR_CTL.LBREn records branches",
        "SDM 17.4.1",
    );
    fields
};

const P6_DEBUGCTL: &[Field] = &[
    flag("LBR", 0, "the last branch is recorded", "branches are not recorded", "SDM 17.13, 17.14"),
    flag(
        "BTF",
        1,
        "TF single-steps on branches",
        "TF single-steps on instructions",
        "SDM 17.13, 17.14",
    ),
    flag(
        "PB0",
        2,
        "pin BP0 shows breakpoint matches",
        "pin BP0 shows performance events",
        "SDM 17.13, 17.14",
    ),
    flag(
        "PB1",
        3,
        "pin BP1 shows breakpoint matches",
        "pin BP1 shows performance events",
        "SDM 17.13, 17.14",
    ),
    flag(
        "PB2",
        4,
        "pin BP2 shows breakpoint matches",
        "pin BP2 shows performance events",
        "SDM 17.13, 17.14",
    ),
    flag(
        "PB3",
        5,
        "pin BP3 shows breakpoint matches",
        "pin BP3 shows performance events",
        "SDM 17.13, 17.14",
    ),
    flag(
        "TR",
        6,
        "branch trace messages are sent; LBR contents are undefined",
        "no branch trace messages",
        "SDM 17.4.4, 17.14",
    ),
];

const DEBUGCTLA: &[Field] = &[
    flag("LBR", 0, "branches are recorded", "branches are not recorded", "SDM 17.11.1"),
    flag("BTF", 1, "TF single-steps on branches", "TF single-steps on instructions", "SDM 17.11.1"),
    flag("TR", 2, "branch trace messages are sent", "no branch trace messages", "SDM 17.11.1"),
    flag(
        "BTS",
        3,
        "branch trace messages go to the BTS buffer",
        "the BTS buffer is not used",
        "SDM 17.11.1",
    ),
    flag("BTINT", 4, "a full BTS buffer interrupts", "the BTS buffer wraps around", "SDM 17.11.1"),
    flag("BTS_OFF_OS", 5, "no BTS at CPL 0", "BTS at CPL 0 too", "SDM 17.11.1"),
    flag("BTS_OFF_USR", 6, "no BTS at CPL > 0", "BTS at CPL > 0 too", "SDM 17.11.1"),
];

const SUMMARY: &str =
    "switches branch recording and tracing on; the kernel owns most bits, so read, modify, write";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "IA32_DEBUGCTL",
        aliases: &["DEBUGCTLMSR"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: MODERN_DEBUGCTL,
        variant: Some("Intel Nehalem, Bonnell and later with model-specific LBR"),
        summary: SUMMARY,
        source: "SDM 17.4.1",
        fields: &DEBUGCTL,
    },
    Entry {
        name: "IA32_DEBUGCTL",
        aliases: &["DEBUGCTLMSR"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: &[Group::Core2],
        variant: Some("Core 2"),
        summary: SUMMARY,
        source: "SDM 17.4.1",
        fields: &CORE_2_DEBUGCTL,
    },
    Entry {
        name: "IA32_DEBUGCTL",
        aliases: &["DEBUGCTLMSR"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: &[Group::Yonah],
        variant: Some("Core Solo and Duo"),
        summary: SUMMARY,
        source: "SDM 17.4.1, 17.12",
        fields: &YONAH_DEBUGCTL,
    },
    Entry {
        name: "IA32_DEBUGCTL",
        aliases: &["DEBUGCTLMSR"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: &[Group::Arch],
        variant: Some("Intel with Architectural LBR"),
        summary: "freezing and tracing; branch recording is in IA32_LBR_CTL",
        source: "SDM 17.4.1",
        fields: &ARCH_DEBUGCTL,
    },
    Entry {
        name: "DEBUGCTLMSR",
        aliases: &["IA32_DEBUGCTL"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: &[Group::P6, Group::PentiumM],
        variant: Some("P6 and Pentium M"),
        summary: "switches branch recording on; controls the breakpoint pins",
        source: "SDM 17.13, 17.14",
        fields: P6_DEBUGCTL,
    },
    Entry {
        name: "MSR_DEBUGCTLA",
        aliases: &["IA32_DEBUGCTL"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: NETBURST,
        variant: Some("NetBurst"),
        summary: "switches branch recording and tracing on; another order than IA32_DEBUGCTL",
        source: "SDM 17.11.1",
        fields: DEBUGCTLA,
    },
];
