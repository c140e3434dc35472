//! Performance-monitoring and tracing registers with bits that concern branch records.

use alloc::format;

use super::{Field, flags, table, words};
use crate::{LbrFormat, format::CODES};

flags! {
    /// IA32_PERF_CAPABILITIES, read-only; exists if CPUID.01H:ECX\[15\] is set. On hybrid parts it
    /// differs between core types.
    PerfCapabilities, "SDM 18.18" {
        PEBS_TRAP [6] "the PEBS assist is trap-like" / "the PEBS assist is fault-like";
        PEBS_SAVE_ARCH_REGS [7] "PEBS records save architectural registers"
            / "PEBS records do not save architectural registers";
        SMM_FREEZE [12] "IA32_DEBUGCTL.FREEZE_WHILE_SMM may be set"
            / "IA32_DEBUGCTL.FREEZE_WHILE_SMM does not exist";
        FW_WRITE [13] "IA32_A_PMCx, full-width counter aliases, exist"
            / "no full-width counter aliases";
        PEBS_BASELINE [14] "adaptive PEBS with a baseline" / "no adaptive PEBS"
            in "Linux perf_event.h";
        PERF_METRICS [15] "PERF_METRICS (0x329) exists" / "no PERF_METRICS"
            in "Linux perf_event.h";
        PEBS_OUTPUT_PT [16] "PEBS can write to Intel PT" / "PEBS cannot write to Intel PT"
            in "Linux perf_event.h";
        PEBS_TIMING_INFO [17] "timed PEBS: retire latency" / "no timed PEBS"
            in "Linux perf_event.h";
        RDPMC_METRICS_CLEAR [19] "RDPMC of the metrics can clear them"
            / "RDPMC does not clear the metrics" in "Linux perf_event.h";
    }
    and [LBR_FMT, PEBS_REC_FMT]
}

pub(crate) const LBR_FMT: Field =
    Field::codes("LBR_FMT", (5, 0), "format of branch records", CODES, "SDM 17.4.8.1")
        .otherwise("undocumented format");
const PEBS_REC_FMT: Field = Field::value(
    "PEBS_REC_FMT",
    (11, 8),
    "PEBS record layout",
    |_, value, _| format!("PEBS record layout {value}"),
    "SDM 18.18",
);

impl PerfCapabilities {
    /// Bits 5:0, LBR_FMT: the record format. SDM 17.4.8.1.
    #[must_use]
    pub const fn lbr_format(self) -> LbrFormat {
        LbrFormat(LBR_FMT.of(self.bits()) as u8)
    }
    /// Bits 11:8, PEBS_REC_FMT: the PEBS record layout. SDM 18.18.
    pub const fn pebs_record_format(self) -> u8 {
        PEBS_REC_FMT.of(self.bits()) as u8
    }
}

flags! {
    /// IA32_PERF_GLOBAL_STATUS: the bits that concern branch records. From perfmon version 4 on, a
    /// PMI sets LBR_FRZ while DEBUGCTL.LBR stays 1.
    PerfGlobalStatus, "SDM 18.2.4.1" {
        LBR_FRZ [58] "recording is frozen, even if DEBUGCTL.LBR is 1"
            / "recording is not frozen" in "SDM 17.4.7";
        CTR_FRZ [59] "the counters are frozen" / "the counters are not frozen" in "SDM 17.4.7";
        ASCI [60] "an SGX enclave influenced the counters"
            / "no SGX enclave influenced the counters";
    }
    besides [
        Field::value("OVF_PMC", (31, 0), "general counters that overflowed", words::overflows, STATUS),
        Field::value("OVF_FIXED_CTR", (47, 32), "fixed counters that overflowed", words::overflows, STATUS),
        other((57, 48), "OTHER", "used by other facilities", STATUS),
        Field::flag("OVF_UNCORE", 61, "an uncore counter overflowed", "no uncore counter overflowed", STATUS),
        Field::flag("OVF_BUF", 62, "the DS buffer overflowed", "the DS buffer did not overflow", STATUS),
        Field::flag("COND_CHGD", 63, "the state of the facility changed",
            "the state of the facility did not change", STATUS),
    ]
}

flags! {
    /// IA32_PERF_GLOBAL_STATUS_RESET: writing 1 clears the status bit at the same position.
    PerfGlobalStatusReset, "SDM 18.2.4.2" {
        LBR_FRZ [58] "clears LBR_FRZ: recording resumes" / "keeps LBR_FRZ"
            in "SDM 17.4.7, 18.2.4.2";
        CTR_FRZ [59] "clears CTR_FRZ: the counters resume" / "keeps CTR_FRZ"
            in "SDM 17.4.7, 18.2.4.2";
        ASCI [60] "clears ASCI" / "leaves ASCI";
    }
    besides [
        other((57, 0), "OTHER", CLEARS, "SDM 18.2.4.2"),
        other((63, 61), "OTHER_HIGH", CLEARS, "SDM 18.2.4.2"),
    ]
}

flags! {
    /// IA32_RTIT_CTL of Intel PT: the one bit that concerns branch records. While it is set, the
    /// branch-record registers of 06_3D, 47, 4E, 4F, 56 and 5E read 0 and ignore writes.
    RtitCtl, "SDM 36.3.1.2" {
        TRACE_EN "TraceEn" [0] "Intel PT traces; branch records may read 0 and ignore writes"
            / "Intel PT does not trace";
    }
    besides [other((63, 1), "TRACE_CONFIG", "configuration of Intel PT", "SDM 36.2.7")]
}

const STATUS: &str = "SDM 18.2.4.1";
const CLEARS: &str = "writing 1 clears the status bits at the same positions";
const LINUX: &str = "Linux msr-index.h";

const fn other(
    place: (u8, u8),
    name: &'static str,
    about: &'static str,
    source: &'static str,
) -> Field {
    Field::value(name, place, about, words::not_of_branches, source)
}

/// PerfCntrGlobalStatus of AMD.
pub(crate) const AMD_STATUS: [Field; 3] = table! {
    "Linux msr-index.h" {
        LBRS_FROZEN [58] "a PMI has frozen recording" / "recording is not frozen"
            needs "CPUID.80000022H:EAX[2]";
    }
    and [
        other((57, 0), "OTHER", "used by other facilities", LINUX),
        other((63, 59), "OTHER_HIGH", "used by other facilities", LINUX),
    ]
};

/// PerfCntrGlobalStatusClr of AMD.
pub(crate) const AMD_STATUS_CLR: [Field; 3] = table! {
    "Linux msr-index.h" {
        LBRS_FROZEN [58] "clears LBRS_FROZEN: recording resumes" / "leaves LBRS_FROZEN"
            needs "CPUID.80000022H:EAX[2]";
    }
    and [
        other((57, 0), "OTHER", CLEARS, LINUX),
        other((63, 59), "OTHER_HIGH", CLEARS, LINUX),
    ]
};
