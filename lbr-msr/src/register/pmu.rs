//! Performance-monitoring registers that decide when branch records are taken: counters, whose
//! interrupt freezes the LBR, and PEBS, which copies it into its records.

use super::{Field, field::code, words};

const LINUX: &str = "Linux perf_event.h";
const LINUX_MSR: &str = "Linux msr-index.h";
const SDM_2: &str = "SDM 18.2.2";

const fn counters(place: (u8, u8), name: &'static str, about: &'static str) -> Field {
    Field::value(name, place, about, words::enabled, SDM_2)
}

/// IA32_PERF_GLOBAL_CTRL.
pub(crate) const GLOBAL_CTRL: [Field; 3] = [
    counters((31, 0), "EN_PMC", "general counters that may count"),
    counters((47, 32), "EN_FIXED_CTR", "fixed counters that may count"),
    Field::flag("EN_PERF_METRICS", 48, "PERF_METRICS counts", "PERF_METRICS does not count", LINUX),
];

const fn fixed(name: &'static str, low: u8) -> Field {
    let about =
        "bit 0: counts in the kernel; 1: in user mode; 2: of all threads; 3: PMI at overflow";
    Field::value(name, (low + 3, low), about, words::fixed_counter, "SDM 18.2.2, 18.2.3")
}

const fn adaptive(name: &'static str, bit: u8) -> Field {
    let set = "its PEBS records have the groups of MSR_PEBS_DATA_CFG";
    Field::flag(name, bit, set, "its PEBS records are basic", LINUX)
}

/// IA32_FIXED_CTR_CTRL.
pub(crate) const FIXED_CTR_CTRL: [Field; 8] = [
    fixed("CTR0", 0),
    fixed("CTR1", 4),
    fixed("CTR2", 8),
    fixed("CTR3", 12),
    adaptive("ADAPTIVE0", 32),
    adaptive("ADAPTIVE1", 36),
    adaptive("ADAPTIVE2", 40),
    adaptive("ADAPTIVE3", 44),
];

/// IA32_PERFEVTSELn.
pub(crate) const PERFEVTSEL: [Field; 15] = [
    Field::value("EVENT", (7, 0), "event code", words::hex, SDM_2),
    Field::value("UMASK", (15, 8), "unit mask of the event", words::hex, SDM_2),
    Field::flag("USR", 16, "counts at CPL > 0", "does not count at CPL > 0", SDM_2),
    Field::flag("OS", 17, "counts at CPL 0", "does not count at CPL 0", SDM_2),
    Field::flag("E", 18, "counts rising edges", "counts while the condition holds", SDM_2),
    Field::flag("PC", 19, "toggles the PM pins", "leaves the PM pins alone", SDM_2),
    Field::flag(
        "INT",
        20,
        "a PMI at overflow, which may freeze the LBR",
        "no PMI at overflow",
        SDM_2,
    ),
    Field::flag("ANY", 21, "counts all threads of the core", "counts this thread", "SDM 18.2.3"),
    Field::flag("EN", 22, "the counter counts", "the counter is off", SDM_2),
    Field::flag(
        "INV",
        23,
        "counts below the counter mask",
        "counts from the counter mask on",
        SDM_2,
    ),
    Field::value("CMASK", (31, 24), "counter mask", words::hex, SDM_2),
    Field::flag("IN_TX", 32, "counts in transactions only", "counts everywhere", LINUX),
    Field::flag(
        "IN_TXCP",
        33,
        "aborted transactions do not count",
        "aborted ones count too",
        LINUX,
    ),
    adaptive("ADAPTIVE", 34),
    Field::flag(
        "BR_CNTR",
        35,
        "LBR INFO logs the counter's events by branch",
        "LBR INFO does not log it",
        LINUX,
    )
    .needs("CPUID.1CH:ECX[19:16]"),
];

/// IA32_PEBS_ENABLE with adaptive PEBS.
pub(crate) const PEBS_ENABLE: [Field; 4] = [
    Field::value("PEBS_EN_PMC", (31, 0), "general counters with PEBS", words::enabled, LINUX_MSR),
    Field::value("PEBS_EN_FIXED", (47, 32), "fixed counters with PEBS", words::enabled, LINUX_MSR),
    Field::flag(
        "PMI_AFTER_REC",
        60,
        "a PMI after each record",
        "no PMI after each record",
        LINUX_MSR,
    )
    .needs("IA32_PERF_CAPABILITIES[16]"),
    Field::codes(
        "OUTPUT",
        (62, 61),
        "where records go",
        &[code(0, "", "to the DS area"), code(1, "", "to Intel PT")],
        LINUX_MSR,
    ),
];

const fn group(name: &'static str, bit: u8, set: &'static str, clear: &'static str) -> Field {
    Field::flag(name, bit, set, clear, LINUX)
}

/// MSR_PEBS_DATA_CFG.
pub(crate) const PEBS_DATA_CFG: [Field; 9] = [
    group("MEMINFO", 0, "records have the memory group", "no memory group"),
    group("GP", 1, "records have general registers", "no general registers"),
    group("XMMS", 2, "records have XMM registers", "no XMM registers"),
    group("LBRS", 3, "records have LBR entries", "no LBR entries"),
    group("CNTR", 4, "records have counters", "no counters"),
    group("METRICS", 5, "records have PERF_METRICS", "no PERF_METRICS"),
    Field::value(
        "LBR_ENTRIES",
        (31, 24),
        "LBR entries of a record, minus 1",
        words::one_more,
        LINUX,
    ),
    Field::value("CNTR_MASK", (47, 32), "general counters in the record", words::enabled, LINUX),
    Field::value("FIX_MASK", (55, 48), "fixed counters in the record", words::enabled, LINUX),
];

const fn arch(name: &'static str, bit: u8, set: &'static str, clear: &'static str) -> Field {
    Field::flag(name, bit, set, clear, LINUX_MSR)
}

const LBR: Field = Field::codes(
    "LBR",
    (41, 40),
    "LBR entries of a record",
    &[
        code(0, "", "no LBR group"),
        code(1, "", "8 entries"),
        code(2, "", "16 entries"),
        code(3, "", "IA32_LBR_DEPTH entries"),
    ],
    LINUX,
);

/// IA32_PMC_GPn_CFG_C and IA32_PMC_FXn_CFG_C: Architectural PEBS of one counter.
pub(crate) const CFG_C: [Field; 14] = [
    Field::value(
        "RELOAD",
        (31, 0),
        "low bits of the counter after a record",
        words::hex,
        LINUX_MSR,
    ),
    arch("CNTR_ALLOW", 35, "other counters' records may have this one", "they may not"),
    arch("CNTR_GP", 36, "records have general counters", "no general counters"),
    arch("CNTR_FIXED", 37, "records have fixed counters", "no fixed counters"),
    arch("CNTR_METRICS", 38, "records have PERF_METRICS", "no PERF_METRICS"),
    LBR,
    arch("XMM", 49, "records have XMM registers", "no XMM registers"),
    arch("YMMH", 50, "records have the upper halves of YMM registers", "no YMM registers"),
    arch("OPMASK", 53, "records have mask registers", "no mask registers"),
    arch("ZMMH", 54, "records have the upper halves of ZMM0 to 15", "no ZMM0 to 15"),
    arch("H16ZMM", 55, "records have ZMM16 to 31", "no ZMM16 to 31"),
    arch("GPR", 61, "records have general registers", "no general registers"),
    arch("AUX", 62, "records have the memory group", "no memory group"),
    arch("EN", 63, "the counter writes PEBS records", "the counter writes none"),
];
