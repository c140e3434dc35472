//! The registers that filter and place Intel's records.

use super::{Entry, Field, Group, Place, flag, words};
use crate::address;

const SELECT_WITH_STACK: &[Group] =
    &[Group::Haswell, Group::Skylake, Group::Goldmont, Group::GoldmontPlus, Group::Tremont];
const ARCH: (&[Group], &str) = (&[Group::Arch], "Architectural LBR");

/// The suppress bits. `jumps` is what the two jump bits swallow.
const fn select(
    source: &'static str,
    ind_jmp: (&'static str, &'static str),
    rel_jmp: (&'static str, &'static str),
) -> [Field; 10] {
    [
        flag(
            "CPL_EQ_0",
            0,
            "branches that end in ring 0 are not recorded",
            "branches that end in ring 0 are recorded",
            source,
        ),
        flag(
            "CPL_NEQ_0",
            1,
            "branches that end in a ring > 0 are not recorded",
            "branches that end in a ring > 0 are recorded",
            source,
        ),
        flag(
            "JCC",
            2,
            "conditional branches are not recorded",
            "conditional branches are recorded",
            source,
        ),
        flag(
            "NEAR_REL_CALL",
            3,
            "near relative calls are not recorded",
            "near relative calls are recorded",
            source,
        ),
        flag(
            "NEAR_IND_CALL",
            4,
            "near indirect calls are not recorded",
            "near indirect calls are recorded",
            source,
        ),
        flag("NEAR_RET", 5, "near returns are not recorded", "near returns are recorded", source),
        flag("NEAR_IND_JMP", 6, ind_jmp.0, ind_jmp.1, source),
        flag("NEAR_REL_JMP", 7, rel_jmp.0, rel_jmp.1, source),
        flag(
            "FAR_BRANCH",
            8,
            "far branches, interrupts and exceptions are not recorded",
            "far branches, interrupts and exceptions are recorded",
            source,
        ),
        Field::value(
            "EN_CALLSTACK",
            9,
            9,
            "1: call-stack mode: calls push, returns pop; 0: no call-stack mode",
            words::call_stack_mode,
            "SDM 17.9",
        ),
    ]
}

const PLAIN_IND: (&str, &str) =
    ("near indirect jumps are not recorded", "near indirect jumps are recorded");
const PLAIN_REL: (&str, &str) =
    ("near relative jumps are not recorded", "near relative jumps are recorded");
const STACK_SELECT: [Field; 10] = select("SDM 17.7.2, Table 17-13", PLAIN_IND, PLAIN_REL);
const SNB_SELECT: [Field; 10] = select("SDM 17.8, Table 17-12", PLAIN_IND, PLAIN_REL);
/// The jump bits swallow calls and returns, so what those bits say depends on
/// them.
const NHM_SELECT: [Field; 10] = {
    const SOURCE: &str = "SDM 17.7.2, Table 17-11";
    let mut fields = select(
        SOURCE,
        (
            "near indirect jumps, calls and returns are not recorded",
            "near indirect jumps are recorded",
        ),
        ("near relative jumps and calls are not recorded", "near relative jumps are recorded"),
    );
    fields[3] = Field::value(
        "NEAR_REL_CALL",
        3,
        3,
        "1: near relative calls are not recorded; 0: they are, where NEAR_REL_JMP is 0 too",
        words::relative_call_beside_jump,
        SOURCE,
    );
    fields[4] = Field::value(
        "NEAR_IND_CALL",
        4,
        4,
        "1: near indirect calls are not recorded; 0: they are, where NEAR_IND_JMP is 0 too",
        words::indirect_call_beside_jump,
        SOURCE,
    );
    fields[5] = Field::value(
        "NEAR_RET",
        5,
        5,
        "1: near returns are not recorded; 0: they are, where NEAR_IND_JMP is 0 too",
        words::return_beside_jump,
        SOURCE,
    );
    fields
};

/// Below EN_CALLSTACK, which these CPUs lack.
const fn without_stack(fields: &'static [Field; 10]) -> &'static [Field] {
    fields.split_at(9).0
}

/// LBR_SELECT of AMD has the same nine bits.
pub(super) const AMD_SELECT: [Field; 10] = select("Linux amd/lbr.c", PLAIN_IND, PLAIN_REL);

const LBR_CTL: &[Field] = &[
    flag("LBREn", 0, "branches are recorded", "branches are not recorded", "Linux msr-index.h"),
    flag(
        "OS",
        1,
        "branches that end at CPL 0 are recorded",
        "branches that end at CPL 0 are not recorded",
        "Linux msr-index.h",
    ),
    flag(
        "USR",
        2,
        "branches that end at CPL > 0 are recorded",
        "branches that end at CPL > 0 are not recorded",
        "Linux msr-index.h",
    ),
    flag(
        "CALL_STACK",
        3,
        "call-stack mode: calls push, returns pop",
        "no call-stack mode",
        "Linux msr-index.h",
    ),
    flag(
        "COND",
        16,
        "conditional branches are recorded",
        "conditional branches are not recorded",
        "SDM24 Table 20-3",
    ),
    flag(
        "NEAR_REL_JMP",
        17,
        "near relative jumps are recorded",
        "near relative jumps are not recorded",
        "SDM24 Table 20-3",
    ),
    flag(
        "NEAR_IND_JMP",
        18,
        "near indirect jumps are recorded",
        "near indirect jumps are not recorded",
        "SDM24 Table 20-3",
    ),
    flag(
        "NEAR_REL_CALL",
        19,
        "near relative calls are recorded",
        "near relative calls are not recorded",
        "SDM24 Table 20-3",
    ),
    flag(
        "NEAR_IND_CALL",
        20,
        "near indirect calls are recorded",
        "near indirect calls are not recorded",
        "SDM24 Table 20-3",
    ),
    flag(
        "NEAR_RET",
        21,
        "near returns are recorded",
        "near returns are not recorded",
        "SDM24 Table 20-3",
    ),
    flag(
        "OTHER_BRANCH",
        22,
        "far branches, interrupts and exceptions are recorded",
        "far branches, interrupts and exceptions are not recorded",
        "SDM24 Table 20-3",
    ),
];

const DEPTH: &[Field] = &[Field::value(
    "DEPTH",
    63,
    0,
    "number of records kept, not a code",
    words::depth,
    "Linux intel/lbr.c",
)];

/// TOS of a ring of 2^(`high` + 1) records.
const fn tos(high: u8, source: &'static str) -> [Field; 1] {
    [Field::value("TOS", high, 0, "index of the newest record", words::tos, source)]
}
const TOS_32: [Field; 1] = tos(4, "SDM 17.4.8");
const TOS_16: [Field; 1] = tos(3, "SDM 17.4.8");
const TOS_8: [Field; 1] = tos(2, "SDM 17.5.1");
const TOS_4: [Field; 1] = tos(1, "SDM 17.4.8");
const NETBURST_TOS_16: [Field; 1] = tos(3, "SDM 17.11.2");
const NETBURST_TOS_4: [Field; 1] = tos(1, "SDM 17.11.2");

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "MSR_LBR_SELECT",
        aliases: &[],
        place: Place::At(address::MSR_LBR_SELECT),
        on: SELECT_WITH_STACK,
        variant: Some("Haswell and later, Goldmont and later: with call-stack mode"),
        summary: "filter: bits 0 to 8 suppress what they name, bit 9 enables; 0 records everything",
        source: "SDM 17.7.2",
        fields: &STACK_SELECT,
    },
    Entry {
        name: "MSR_LBR_SELECT",
        aliases: &[],
        place: Place::At(address::MSR_LBR_SELECT),
        on: &[Group::SandyBridge, Group::KnightsLanding],
        variant: Some("Sandy Bridge, Ivy Bridge, Knights Landing: without call-stack mode"),
        summary: "filter: bits suppress what they name; 0 records everything",
        source: "SDM 17.8",
        fields: without_stack(&SNB_SELECT),
    },
    Entry {
        name: "MSR_LBR_SELECT",
        aliases: &[],
        place: Place::At(address::MSR_LBR_SELECT),
        on: &[Group::Nehalem, Group::Silvermont],
        variant: Some("Nehalem, Westmere, Silvermont: jump bits swallow calls and returns"),
        summary: "filter: bits suppress what they name; 0 records everything",
        source: "SDM 17.7.2",
        fields: without_stack(&NHM_SELECT),
    },
    Entry::one(
        "IA32_LBR_CTL",
        &["ARCH_LBR_CTL"],
        address::IA32_LBR_CTL,
        ARCH,
        "Architectural LBR: bits capture what they name; CPUID leaf 1CH EBX tells which may be set",
        "Linux msr-index.h",
        LBR_CTL,
    ),
    Entry::one(
        "IA32_LBR_DEPTH",
        &["ARCH_LBR_DEPTH"],
        address::IA32_LBR_DEPTH,
        ARCH,
        "Architectural LBR: depth; any write clears every record",
        "Linux intel/lbr.c",
        DEPTH,
    ),
    newest(
        "32 records",
        &[Group::Skylake, Group::Goldmont, Group::GoldmontPlus, Group::Tremont],
        &TOS_32,
    ),
    newest("16 records", &[Group::Nehalem, Group::SandyBridge, Group::Haswell], &TOS_16),
    newest(
        "8 records",
        &[Group::PentiumM, Group::Yonah, Group::Bonnell, Group::Silvermont, Group::KnightsLanding],
        &TOS_8,
    ),
    newest("4 records", &[Group::Core2], &TOS_4),
    netburst_newest("NetBurst, 16 records", &[Group::NetBurst3], &NETBURST_TOS_16),
    netburst_newest("NetBurst, 4 records", &[Group::NetBurst0], &NETBURST_TOS_4),
];

const fn newest(variant: &'static str, on: &'static [Group], fields: &'static [Field]) -> Entry {
    Entry {
        name: "MSR_LASTBRANCH_TOS",
        aliases: &["LBR_TOS", "TOS"],
        place: Place::At(address::MSR_LASTBRANCH_TOS),
        on,
        variant: Some(variant),
        summary: "index of the newest record; older ones stand below, modulo the depth",
        source: "SDM 17.4.8",
        fields,
    }
}

const fn netburst_newest(
    variant: &'static str,
    on: &'static [Group],
    fields: &'static [Field],
) -> Entry {
    Entry {
        name: "MSR_LASTBRANCH_TOS",
        aliases: &["LBR_TOS", "TOS"],
        place: Place::At(address::MSR_LASTBRANCH_TOS_NETBURST),
        on,
        variant: Some(variant),
        summary: "index of the newest record; read-only",
        source: "SDM 17.11.2",
        fields,
    }
}
