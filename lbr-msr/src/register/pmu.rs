//! Performance-monitoring registers that decide when branch records are taken: counters, whose
//! interrupt freezes the LBR, and PEBS, which copies it into its records.

use alloc::format;

use super::{Field, field::code, table, words};

const LINUX: &str = "Linux perf_event.h";
const MSRS: &str = "Linux msr-index.h";
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
pub(crate) const PERFEVTSEL: [Field; 15] = table! {
    "SDM 18.2.2" {
        USR [16] "counts at CPL > 0" / "does not count at CPL > 0";
        OS [17] "counts at CPL 0" / "does not count at CPL 0";
        E [18] "counts rising edges" / "counts while the condition holds";
        PC [19] "toggles the PM pins" / "leaves the PM pins alone";
        INT [20] "a PMI at overflow, which may freeze the LBR" / "no PMI at overflow";
        ANY [21] "counts all threads of the core" / "counts this thread" in "SDM 18.2.3";
        EN [22] "the counter counts" / "the counter is off";
        INV [23] "counts below the counter mask" / "counts from the counter mask on";
        IN_TX [32] "counts in transactions only" / "counts everywhere" in "Linux perf_event.h";
        IN_TXCP [33] "aborted transactions do not count" / "aborted ones count too"
            in "Linux perf_event.h";
        BR_CNTR [35] "LBR INFO logs the counter's events by branch"
            / "LBR INFO does not log it" needs "CPUID.1CH:ECX[19:16]" in "Linux perf_event.h";
    }
    and [
        Field::value("EVENT", (7, 0), "event code", words::hex, SDM_2),
        Field::value("UMASK", (15, 8), "unit mask of the event", words::hex, SDM_2),
        Field::value("CMASK", (31, 24), "counter mask", words::hex, SDM_2),
        adaptive("ADAPTIVE", 34),
    ]
};

/// IA32_PEBS_ENABLE with adaptive PEBS.
pub(crate) const PEBS_ENABLE: [Field; 4] = table! {
    "Linux msr-index.h" {
        PMI_AFTER_REC [60] "a PMI after each record" / "no PMI after each record"
            needs "IA32_PERF_CAPABILITIES[16]";
    }
    and [
        Field::value("PEBS_EN_PMC", (31, 0), "general counters with PEBS", words::enabled, MSRS),
        Field::value("PEBS_EN_FIXED", (47, 32), "fixed counters with PEBS", words::enabled, MSRS),
        Field::codes(
            "OUTPUT",
            (62, 61),
            "where records go",
            &[code(0, "", "to the DS area"), code(1, "", "to Intel PT")],
            MSRS,
        ),
    ]
};

/// MSR_PEBS_DATA_CFG.
pub(crate) const PEBS_DATA_CFG: [Field; 9] = table! {
    "Linux perf_event.h" {
        MEMINFO [0] "records have the memory group" / "no memory group";
        GP [1] "records have general registers" / "no general registers";
        XMMS [2] "records have XMM registers" / "no XMM registers";
        LBRS [3] "records have LBR entries" / "no LBR entries";
        CNTR [4] "records have counters" / "no counters";
        METRICS [5] "records have PERF_METRICS" / "no PERF_METRICS";
    }
    and [
        Field::value("LBR_ENTRIES", (31, 24), ENTRIES_LESS_1, |_, value, _| format!("{} entries", value + 1), LINUX),
        Field::value("CNTR_MASK", (47, 32), "general counters in the record", words::enabled, LINUX),
        Field::value("FIX_MASK", (55, 48), "fixed counters in the record", words::enabled, LINUX),
    ]
};

const ENTRIES_LESS_1: &str = "LBR entries of a record, minus 1";

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
pub(crate) const CFG_C: [Field; 14] = table! {
    "Linux msr-index.h" {
        CNTR_ALLOW [35] "other counters' records may have this one" / "they may not";
        CNTR_GP [36] "records have general counters" / "no general counters";
        CNTR_FIXED [37] "records have fixed counters" / "no fixed counters";
        CNTR_METRICS [38] "records have PERF_METRICS" / "no PERF_METRICS";
        XMM [49] "records have XMM registers" / "no XMM registers";
        YMMH [50] "records have the upper halves of YMM registers" / "no YMM registers";
        OPMASK [53] "records have mask registers" / "no mask registers";
        ZMMH [54] "records have the upper halves of ZMM0 to 15" / "no ZMM0 to 15";
        H16ZMM [55] "records have ZMM16 to 31" / "no ZMM16 to 31";
        GPR [61] "records have general registers" / "no general registers";
        AUX [62] "records have the memory group" / "no memory group";
        EN [63] "the counter writes PEBS records" / "the counter writes none";
    }
    and [Field::value("RELOAD", (31, 0), RELOAD, words::hex, MSRS), LBR]
};

const RELOAD: &str = "low bits of the counter after a record";
