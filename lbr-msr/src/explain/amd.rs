//! AMD's registers.

use super::{Entry, Field, Group, Place, control::AMD_SELECT, flag, words};
use crate::{Msr, address};

const V2: &str = "Linux amd/lbr.c";
const BRS: &str = "Linux amd/brs.c";
const EVERY_AMD: &[Group] = &[Group::AmdSingle, Group::AmdBrs, Group::AmdV2];
const V2_SAID: &str = "AMD LbrExtV2, Zen 4 and later";
const BRS_SAID: &str = "AMD BRS, Zen 3";

const fn must_be_3(source: &'static str) -> Field {
    const ABOUT: &str = "must be written 11b with BRS; keep what is read";
    Field::value("RSVD_11B", 4, 3, ABOUT, words::must_be_3, source)
}

const V2_CONFIG: &[Field] =
    &[must_be_3(V2), flag("LBRV2EN", 6, "branches are recorded", "branches are not recorded", V2)];

const BRS_CONFIG: &[Field] = &[
    flag("BRSMEN", 2, "branches are sampled", "branches are not sampled", BRS),
    must_be_3(BRS),
    flag("VB", 5, "there are valid branches", "there are no valid branches", BRS),
    Field::value("MSROFF", 19, 16, "index of the record to be written next", words::msroff, BRS),
    Field::value("PMC", 26, 24, "counter that triggers", words::number, BRS),
];

const V2_FROM: &[Field] = &[
    Field::value("IP", 57, 0, "the low 58 bits of the address", words::amd_address, V2),
    Field::value("SIGN_EXT", 62, 58, "copies of bit 57", words::amd_sign_copies, V2),
    flag("MISPRED", 63, "mispredicted", "predicted", V2),
];

const V2_TO: &[Field] = &[
    Field::value("IP", 57, 0, "the low 58 bits of the address", words::amd_address, V2),
    Field::value("SIGN_EXT", 60, 58, "copies of bit 57", words::amd_sign_copies, V2),
    flag(
        "SPEC",
        62,
        "speculative (with VALID 0: on a wrong path)",
        "not speculative (with VALID 0: no record)",
        V2,
    ),
    flag("VALID", 63, "on the correct path", "no record, or with SPEC 1 on a wrong path", V2),
];

const BRS_FROM: &[Field] = &[Field::value("IP", 63, 0, "address", words::address, BRS)];
const BRS_TO: &[Field] = &[Field::value(
    "IP",
    60,
    0,
    "address, to be sign-extended from the CPU's width",
    words::amd_address,
    BRS,
)];

const SINGLE: &[Field] = &[Field::value(
    "IP",
    56,
    0,
    "the low 57 bits of the address; those above differ between CPUs",
    words::address_alone,
    "APM",
)];

const DEBUGCTL: &[Field] = &[
    flag("LBR", 0, "the last branch is recorded", "branches are not recorded", "APM"),
    flag("BTF", 1, "TF single-steps on branches", "TF single-steps on instructions", "APM"),
    flag(
        "PB0",
        2,
        "pin 0 shows breakpoint matches (old parts)",
        "pin 0 shows performance events (old parts)",
        "APM",
    ),
    flag(
        "PB1",
        3,
        "pin 1 shows breakpoint matches (old parts)",
        "pin 1 shows performance events (old parts)",
        "APM",
    ),
    flag(
        "PB2",
        4,
        "pin 2 shows breakpoint matches (old parts)",
        "pin 2 shows performance events (old parts)",
        "APM",
    ),
    flag(
        "PB3",
        5,
        "pin 3 shows breakpoint matches (old parts)",
        "pin 3 shows performance events (old parts)",
        "APM",
    ),
    flag("FREEZE_LBRS_ON_PMI", 11, "a PMI stops recording", "recording goes on at a PMI", V2)
        .needs("CPUID.80000022H:EAX[2]"),
    flag(
        "FREEZE_PERFMON_ON_PMI",
        12,
        "a PMI stops the counters",
        "the counters go on at a PMI",
        V2,
    )
    .needs("CPUID.80000022H:EAX[2]"),
];

const STATUS: &[Field] = &[
    Field::value("OTHER", 57, 0, "of other facilities", words::elsewhere, "Linux msr-index.h"),
    flag(
        "LBRS_FROZEN",
        58,
        "a PMI has frozen recording",
        "recording is not frozen",
        "Linux msr-index.h",
    )
    .needs("CPUID.80000022H:EAX[2]"),
    Field::value(
        "OTHER_HIGH",
        63,
        59,
        "of other facilities",
        words::elsewhere,
        "Linux msr-index.h",
    ),
];

const STATUS_CLR: &[Field] = &[
    Field::value(
        "OTHER",
        57,
        0,
        "clears the status bits of the same places",
        words::elsewhere,
        "Linux msr-index.h",
    ),
    flag(
        "LBRS_FROZEN",
        58,
        "clears LBRS_FROZEN: recording goes on",
        "leaves LBRS_FROZEN",
        "Linux msr-index.h",
    )
    .needs("CPUID.80000022H:EAX[2]"),
    Field::value(
        "OTHER_HIGH",
        63,
        59,
        "clears the status bits of the same places",
        words::elsewhere,
        "Linux msr-index.h",
    ),
];

const fn stack(
    name: &'static str,
    first: Msr,
    on: &'static [Group],
    variant: &'static str,
    summary: &'static str,
    fields: &'static [Field],
) -> Entry {
    Entry {
        name,
        aliases: &[],
        place: Place::Each { first, stride: 2, count: 16 },
        on,
        variant: Some(variant),
        summary,
        source: "Linux msr-index.h",
        fields,
    }
}

const fn pair(
    name: &'static str,
    aliases: &'static [&'static str],
    msr: Msr,
    summary: &'static str,
) -> Entry {
    Entry {
        name,
        aliases,
        place: Place::At(msr),
        on: EVERY_AMD,
        variant: Some("AMD"),
        summary,
        source: "APM",
        fields: SINGLE,
    }
}

const fn config(on: &'static [Group], variant: &'static str, fields: &'static [Field]) -> Entry {
    Entry {
        name: "DBG_EXTN_CFG",
        aliases: &["AMD_DBG_EXTN_CFG"],
        place: Place::At(address::AMD_DBG_EXTN_CFG),
        on,
        variant: Some(variant),
        summary: "switches branch recording on; read, modify, write",
        source: "Linux msr-index.h",
        fields,
    }
}

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "DebugCtl",
        aliases: &["AMD_DEBUGCTL", "IA32_DEBUGCTL"],
        place: Place::At(address::IA32_DEBUGCTL),
        on: EVERY_AMD,
        variant: Some("AMD"),
        summary: "switches recording of the last branch on",
        source: "APM",
        fields: DEBUGCTL,
    },
    Entry {
        name: "LBR_SELECT",
        aliases: &["AMD_LBR_SELECT", "AMD64_LBR_SELECT"],
        place: Place::At(address::AMD_LBR_SELECT),
        on: &[Group::AmdV2],
        variant: Some(V2_SAID),
        summary: "filter: bits suppress what they name; 0 records everything",
        source: V2,
        // No call-stack mode.
        fields: AMD_SELECT.split_at(9).0,
    },
    Entry::one(
        "PerfCntrGlobalStatus",
        &["AMD_PERF_CNTR_GLOBAL_STATUS", "AMD64_PERF_CNTR_GLOBAL_STATUS"],
        address::AMD_PERF_CNTR_GLOBAL_STATUS,
        (&[Group::AmdV2], V2_SAID),
        "what performance monitoring reports",
        "Linux msr-index.h",
        STATUS,
    ),
    Entry::one(
        "PerfCntrGlobalStatusClr",
        &["AMD_PERF_CNTR_GLOBAL_STATUS_CLR", "AMD64_PERF_CNTR_GLOBAL_STATUS_CLR"],
        address::AMD_PERF_CNTR_GLOBAL_STATUS_CLR,
        (&[Group::AmdV2], V2_SAID),
        "a 1 clears the status bit of the same place",
        "Linux msr-index.h",
        STATUS_CLR,
    ),
    config(&[Group::AmdV2], V2_SAID, V2_CONFIG),
    config(&[Group::AmdBrs], BRS_SAID, BRS_CONFIG),
    stack(
        "AMD_SAMP_BR_FROM_{n}",
        address::AMD_SAMP_BR_FROM,
        &[Group::AmdV2],
        V2_SAID,
        "where the branch of this record came from; record 0 is the newest",
        V2_FROM,
    ),
    stack(
        "AMD_SAMP_BR_TO_{n}",
        address::AMD_SAMP_BR_TO,
        &[Group::AmdV2],
        V2_SAID,
        "where the branch of this record went; VALID and SPEC both 0: no record",
        V2_TO,
    ),
    stack(
        "AMD_SAMP_BR_FROM_{n}",
        address::AMD_SAMP_BR_FROM,
        &[Group::AmdBrs],
        BRS_SAID,
        "where the branch of this record came from; 0 where there is none",
        BRS_FROM,
    ),
    stack(
        "AMD_SAMP_BR_TO_{n}",
        address::AMD_SAMP_BR_TO,
        &[Group::AmdBrs],
        BRS_SAID,
        "where the branch of this record went",
        BRS_TO,
    ),
    pair("LastBranchFromIP", &[], address::MSR_LASTBRANCHFROMIP, "where the last branch came from"),
    pair("LastBranchToIP", &[], address::MSR_LASTBRANCHTOIP, "where the last branch went"),
    pair(
        "LastExcpFromIP",
        &["LastIntFromIP"],
        address::MSR_LER_FROM_LIP,
        "where the last branch before the last exception or interrupt came from",
    ),
    pair(
        "LastExcpToIP",
        &["LastIntToIP"],
        address::MSR_LER_TO_LIP,
        "where the last branch before the last exception or interrupt went",
    ),
];
