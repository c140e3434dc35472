//! Intel's record registers.

use super::{Entry, Field, Group, Place, flag, words};
use crate::{Msr, address};

const FMT: &str = "SDM 17.4.8.1";

const PLAIN: &[Field] =
    &[Field::value("IP", 63, 0, "linear or effective address", words::address, FMT)];

const ARCH_FROM: &[Field] = &[Field::value(
    "IP",
    63,
    0,
    "linear or effective address (CPUID.1CH:EAX[31]); all ones where it is hidden",
    words::address_or_hidden,
    "Linux intel/lbr.c",
)];

const fn data(words: fn(&Field, u64, u64) -> alloc::string::String, source: &'static str) -> Field {
    Field::value("Data", 47, 0, "the low 48 bits of the address", words, source)
}
const fn sign(high: u8, source: &'static str) -> Field {
    Field::value("SIGN_EXT", high, 48, "copies of bit 47", words::sign_copies, source)
}
const fn mispred(source: &'static str) -> Field {
    flag("MISPRED", 63, "mispredicted: direction or target", "predicted", source)
}
const fn in_tsx(source: &'static str) -> Field {
    flag("IN_TSX", 62, "inside a transaction", "not inside a transaction", source)
}
const fn tsx_abort(source: &'static str) -> Field {
    flag("TSX_ABORT", 61, "a transaction was aborted here", "no abort", source)
}
const fn cycles(high: u8, low: u8, source: &'static str) -> Field {
    const ABOUT: &str = "core cycles since the previous record, saturating at 65535";
    Field::value("CYC_CNT", high, low, ABOUT, words::cycles, source)
}

const FLAGS_FROM: &[Field] = &[
    data(words::address_under_flag, "SDM Table 17-8"),
    sign(62, "SDM Table 17-8"),
    mispred("SDM Table 17-8"),
];
const TSX_FROM: &[Field] = &[
    data(words::address_under_tsx, "SDM Table 17-14"),
    sign(60, "SDM Table 17-14"),
    tsx_abort("SDM Table 17-14"),
    in_tsx("SDM Table 17-14"),
    mispred("SDM Table 17-14"),
];
const PLAIN_48: &[Field] =
    &[data(words::address, "SDM Table 17-9, 17.10"), sign(63, "SDM Table 17-9, 17.10")];
const TIME_FROM: &[Field] =
    &[data(words::address_under_flag, "SDM 17.6"), sign(62, "SDM 17.6"), mispred("SDM 17.6")];
const TIME_TO: &[Field] =
    &[data(words::address_under_cycles, "SDM Table 17-7"), cycles(63, 48, "SDM Table 17-7")];
const INFO: &[Field] = &[
    cycles(15, 0, "SDM Table 17-16"),
    tsx_abort("SDM Table 17-16"),
    in_tsx("SDM Table 17-16"),
    mispred("SDM Table 17-16"),
];
const ARCH_INFO: &[Field] = &[
    Field::value(
        "CYC_CNT",
        15,
        0,
        "core cycles since the previous record, saturating at 65535, where CYC_CNT_VALID",
        words::valid_cycles,
        "Linux msr-index.h",
    ),
    counter("PMC0_CNT", 32),
    counter("PMC1_CNT", 34),
    counter("PMC2_CNT", 36),
    counter("PMC3_CNT", 38),
    Field::value("BR_TYPE", 59, 56, "type of the branch", words::branch_type, "SDM24 Table 20-2"),
    flag(
        "CYC_CNT_VALID",
        60,
        "CYC_CNT holds a count",
        "CYC_CNT holds no count",
        "Linux msr-index.h",
    ),
    tsx_abort("Linux msr-index.h"),
    in_tsx("Linux msr-index.h"),
    mispred("Linux msr-index.h"),
];
const fn counter(name: &'static str, low: u8) -> Field {
    const ABOUT: &str =
        "occurrences of the counter's event, saturating at 3, where CPUID.1CH:ECX[19:16]";
    Field::value(name, low + 1, low, ABOUT, words::counter, "Linux msr-index.h")
}
const PACKED: &[Field] = &[
    Field::value("FROM", 31, 0, "where the branch came from", words::address_alone, "SDM 17.13"),
    Field::value("TO", 63, 32, "where it went", words::address_alone, "SDM 17.13"),
];

/// CPUs with formats 5 and 7, in which INFO holds the flags.
const WITH_INFO: &[Group] = &[Group::Skylake, Group::GoldmontPlus, Group::Tremont];

const fn record(
    name: &'static str,
    (first, count): (Msr, u32),
    on: &'static [Group],
    variant: &'static str,
    summary: &'static str,
    fields: &'static [Field],
) -> Entry {
    Entry {
        name,
        aliases: &[],
        place: Place::Each { first, stride: 1, count },
        on,
        variant: Some(variant),
        summary,
        source: FMT,
        fields,
    }
}

const fn from(
    place: (Msr, u32),
    on: &'static [Group],
    variant: &'static str,
    fields: &'static [Field],
) -> Entry {
    const SUMMARY: &str = "where the branch of this record came from; 0 where there is none";
    record("MSR_LASTBRANCH_{n}_FROM_IP", place, on, variant, SUMMARY, fields)
}

const fn to(
    place: (Msr, u32),
    on: &'static [Group],
    variant: &'static str,
    fields: &'static [Field],
) -> Entry {
    const SUMMARY: &str = "where the branch of this record went";
    record("MSR_LASTBRANCH_{n}_TO_IP", place, on, variant, SUMMARY, fields)
}

const fn packed(place: (Msr, u32), on: &'static [Group], variant: &'static str) -> Entry {
    const SUMMARY: &str = "both ends of the branch of this record; 0 where there is none";
    record("MSR_LASTBRANCH_{n}", place, on, variant, SUMMARY, PACKED)
}

const fn arch(
    name: &'static str,
    aliases: &'static [&'static str],
    first: Msr,
    summary: &'static str,
    fields: &'static [Field],
) -> Entry {
    Entry {
        name,
        aliases,
        place: Place::Each { first, stride: 1, count: 32 },
        on: &[Group::Arch],
        variant: Some("Architectural LBR"),
        summary,
        source: "Linux msr-index.h",
        fields,
    }
}

const fn last_exception(
    name: &'static str,
    aliases: &'static [&'static str],
    msr: Msr,
    on: &'static [Group],
    variant: &'static str,
    fields: &'static [Field],
) -> Entry {
    Entry {
        name,
        aliases,
        place: Place::At(msr),
        on,
        variant: Some(variant),
        summary: "last branch before the last exception or interrupt",
        source: "EDK2",
        fields,
    }
}

/// CPUs with the last-exception pair at 0x1DD. Pentium M is left out: its
/// table has the two swapped, and nothing else confirms that.
const LER: &[Group] = &[
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
];
const NETBURST: &[Group] = &[Group::NetBurst0, Group::NetBurst3];

const FROM: Msr = address::MSR_LASTBRANCH_0_FROM_IP;
const TO: Msr = address::MSR_LASTBRANCH_0_TO_IP;
const OLD_FROM: Msr = address::MSR_LASTBRANCH_0_FROM_IP_CORE2;
const OLD_TO: Msr = address::MSR_LASTBRANCH_0_TO_IP_CORE2;

const FORMAT_1: &[Group] = &[Group::Bonnell, Group::Silvermont];
const FORMAT_3: &[Group] = &[Group::Nehalem, Group::SandyBridge];
const FORMAT_1_SAID: &str = "LBR_FMT 1, Bonnell, Saltwell, Silvermont, Airmont";
const FORMAT_2_SAID: &str = "LBR_FMT 2, Core 2";
const FORMAT_3_SAID: &str = "LBR_FMT 3, Nehalem to Ivy Bridge";
const FORMAT_4_SAID: &str = "LBR_FMT 4, Haswell, Broadwell";
const FORMAT_5_SAID: &str = "LBR_FMT 5 and 7, Skylake to Rocket Lake, Goldmont Plus, Tremont";
const FORMAT_6_SAID: &str = "LBR_FMT 6, Goldmont";
const KNL_SAID: &str = "Knights Landing and Mill, which report LBR_FMT 1 but have MISPRED";
const NB3_SAID: &str = "NetBurst models 3 and later";

/// The entry of current CPUs first: it is taken where no CPU is given.
pub(super) const ENTRIES: &[Entry] = &[
    from((FROM, 32), WITH_INFO, FORMAT_5_SAID, PLAIN_48),
    from((FROM, 16), &[Group::Haswell], FORMAT_4_SAID, TSX_FROM),
    from((FROM, 16), FORMAT_3, FORMAT_3_SAID, FLAGS_FROM),
    from((FROM, 32), &[Group::Goldmont], FORMAT_6_SAID, TIME_FROM),
    from((FROM, 8), &[Group::KnightsLanding], KNL_SAID, FLAGS_FROM),
    from((OLD_FROM, 8), FORMAT_1, FORMAT_1_SAID, PLAIN),
    from((OLD_FROM, 4), &[Group::Core2], FORMAT_2_SAID, PLAIN),
    from((FROM, 16), &[Group::NetBurst3], NB3_SAID, PLAIN),
    to((TO, 32), WITH_INFO, FORMAT_5_SAID, PLAIN_48),
    to((TO, 16), &[Group::Haswell], FORMAT_4_SAID, PLAIN_48),
    to((TO, 16), FORMAT_3, FORMAT_3_SAID, PLAIN_48),
    to((TO, 32), &[Group::Goldmont], FORMAT_6_SAID, TIME_TO),
    to((TO, 8), &[Group::KnightsLanding], KNL_SAID, PLAIN_48),
    to((OLD_TO, 8), FORMAT_1, FORMAT_1_SAID, PLAIN),
    to((OLD_TO, 4), &[Group::Core2], FORMAT_2_SAID, PLAIN),
    to((TO, 16), &[Group::NetBurst3], NB3_SAID, PLAIN),
    packed((OLD_FROM, 8), &[Group::PentiumM, Group::Yonah], "Pentium M, Core Solo and Duo"),
    Entry {
        name: "MSR_LBR_INFO_{n}",
        aliases: &["LASTBRANCH_{n}_INFO"],
        place: Place::Each { first: address::MSR_LBR_INFO_0, stride: 1, count: 32 },
        on: WITH_INFO,
        variant: Some(FORMAT_5_SAID),
        summary: "flags and cycles of this record; 62:61 mean something only where CPUID announces TSX",
        source: "SDM Table 17-16",
        fields: INFO,
    },
    arch(
        "IA32_LBR_{n}_FROM_IP",
        &["LBR_FROM_{n}", "LASTBRANCH_{n}_FROM_IP"],
        address::IA32_LBR_0_FROM_IP,
        "where the branch of this record came from; 0 where there is none; record 0 is the newest",
        ARCH_FROM,
    ),
    arch(
        "IA32_LBR_{n}_TO_IP",
        &["LBR_TO_{n}", "LASTBRANCH_{n}_TO_IP"],
        address::IA32_LBR_0_TO_IP,
        "where the branch of this record went; record 0 is the newest",
        PLAIN,
    ),
    arch(
        "IA32_LBR_{n}_INFO",
        &["LBR_INFO_{n}"],
        address::IA32_LBR_0_INFO,
        "what is known about this record; CPUID leaf 1CH ECX tells which fields are valid",
        ARCH_INFO,
    ),
    last_exception(
        "MSR_LER_FROM_LIP",
        &[],
        address::MSR_LER_FROM_LIP,
        LER,
        "Core and later, model-specific LBR",
        PLAIN,
    ),
    last_exception(
        "MSR_LER_TO_LIP",
        &[],
        address::MSR_LER_TO_LIP,
        LER,
        "Core and later, model-specific LBR",
        PLAIN,
    ),
    last_exception(
        "IA32_LER_FROM_IP",
        &["LER_FROM_LIP"],
        address::MSR_LER_FROM_LIP,
        &[Group::Arch],
        "Architectural LBR",
        PLAIN,
    ),
    last_exception(
        "IA32_LER_TO_IP",
        &["LER_TO_LIP"],
        address::MSR_LER_TO_LIP,
        &[Group::Arch],
        "Architectural LBR",
        PLAIN,
    ),
    last_exception(
        "IA32_LER_INFO",
        &[],
        address::IA32_LER_INFO,
        &[Group::Arch],
        "Architectural LBR",
        ARCH_INFO,
    ),
    last_exception(
        "MSR_LER_FROM_LIP",
        &[],
        address::MSR_LER_FROM_LIP_NETBURST,
        NETBURST,
        "NetBurst",
        PLAIN,
    ),
    last_exception(
        "MSR_LER_TO_LIP",
        &[],
        address::MSR_LER_TO_LIP_NETBURST,
        NETBURST,
        "NetBurst",
        PLAIN,
    ),
    pair("LASTBRANCHFROMIP", address::MSR_LASTBRANCHFROMIP, "where the last branch came from"),
    pair("LASTBRANCHTOIP", address::MSR_LASTBRANCHTOIP, "where the last branch went"),
    pair(
        "LASTINTFROMIP",
        address::MSR_LER_FROM_LIP,
        "where the last branch before the last interrupt came from",
    ),
    pair(
        "LASTINTTOIP",
        address::MSR_LER_TO_LIP,
        "where the last branch before the last interrupt went",
    ),
    // Last: without a CPU 0x1DB is P6's and AMD's register.
    packed((address::MSR_LASTBRANCHFROMIP, 4), &[Group::NetBurst0], "NetBurst models 0 to 2"),
];

/// One register of P6's pairs.
const fn pair(name: &'static str, msr: Msr, summary: &'static str) -> Entry {
    Entry {
        name,
        aliases: &[],
        place: Place::At(msr),
        on: &[Group::P6],
        variant: Some("P6"),
        summary,
        source: "SDM 17.14",
        fields: PLAIN,
    }
}
