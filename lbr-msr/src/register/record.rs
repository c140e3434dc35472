//! The registers of Intel's records: FROM, TO and INFO of each format.
//!
//! Each type is a 64-bit value with a method for each field; decoding uses these methods. A FROM or
//! TO that holds only an address (formats 1, 2, 5 and 7, Architectural LBR, P6, NetBurst models 3
//! and later) needs no type.

use alloc::{
    format,
    string::{String, ToString},
};

use super::{
    field::{Code, Field, code},
    fields, sign_extend, words,
};
use crate::record::HwBranchType;

const FORMATS: &str = "SDM 17.4.8.1";
const ARCH: &str = "Linux msr-index.h";

/// The low part of an address. Copies of bit 47 fill the bits up to `high`.
const fn data(words: super::field::Words, source: &'static str) -> Field {
    Field::value("Data", (47, 0), "the low 48 bits of the address", words, source)
}
const fn sign(high: u8, source: &'static str) -> Field {
    Field::value("SIGN_EXT", (high, 48), "copies of bit 47", words::sign_copies, source)
}

/// A full 64-bit address: linear or effective, as the CPU wrote it.
pub(crate) const ADDRESS: &[Field] =
    &[Field::value("IP", (63, 0), "linear or effective address", words::address, FORMATS)];
/// FROM of Architectural LBR.
pub(crate) const ARCH_FROM: &[Field] = &[Field::value(
    "IP",
    (63, 0),
    "linear or effective address (CPUID.1CH:EAX[31]); all ones if hidden",
    words::address_or_hidden,
    "Linux intel/lbr.c",
)];
/// A 48-bit address with sign copies.
pub(crate) const ADDRESS_48: &[Field] =
    &[data(words::address, "SDM Table 17-9, 17.10"), sign(63, "SDM Table 17-9, 17.10")];

const PACKED_FROM: Field =
    Field::value("FROM", (31, 0), "source address", words::address_alone, "SDM 17.13");
const PACKED_TO: Field =
    Field::value("TO", (63, 32), "target address", words::address_alone, "SDM 17.13");

fields! {
    /// Format 0, Pentium M, Yonah, NetBurst models 0 to 2: source and target address in one
    /// register. SDM 17.12, 17.13; Linux `intel/lbr.c`.
    PackedRecord, "SDM 17.13" {}
    and [PACKED_FROM, PACKED_TO]
}

impl PackedRecord {
    /// Bits 31:0: source address.
    pub const fn from_ip(self) -> u64 {
        PACKED_FROM.of(self.0)
    }
    /// Bits 63:32: target address.
    pub const fn to_ip(self) -> u64 {
        PACKED_TO.of(self.0)
    }
}

fields! {
    /// FROM of format 3 (Nehalem to Ivy Bridge) and format 6 (Goldmont). The SDM of 2009 inverts
    /// MISPRED; later editions and Linux agree on this meaning.
    FlagsFrom, "SDM Table 17-8, 17.6" {
        mispredicted MISPRED [63] "mispredicted: direction or target" / "predicted";
    }
    and [data(|_, _, from| format!("address {:#x}", FlagsFrom(from).ip()), "SDM Table 17-8, 17.6"),
        sign(62, "SDM Table 17-8, 17.6")]
}

impl FlagsFrom {
    /// Bits 62:0, sign-extended: the address.
    pub const fn ip(self) -> u64 {
        sign_extend(self.0, 63)
    }
}

fields! {
    /// FROM of format 4. With TSX_ABORT, FROM is the address of the abort, and TO the fallback
    /// handler (RTM) or the start of the region (HLE).
    TsxFrom, "SDM Table 17-14" {
        abort TSX_ABORT [61] "a transaction was aborted here" / "no abort";
        in_tx IN_TSX [62] "inside a transaction" / "not inside a transaction";
        mispredicted MISPRED [63] "mispredicted: direction or target" / "predicted";
    }
    and [data(|_, _, from| format!("address {:#x}", TsxFrom(from).ip()), "SDM Table 17-14"),
        sign(60, "SDM Table 17-14")]
}

impl TsxFrom {
    /// Bits 60:0, sign-extended: the address.
    pub const fn ip(self) -> u64 {
        sign_extend(self.0, 61)
    }
}

const fn cycles(bits: (u8, u8), source: &'static str) -> Field {
    const ABOUT: &str = "core cycles since the previous record, saturating at 65535";
    Field::value("CYC_CNT", bits, ABOUT, core_cycles, source)
}
const TO_CYCLES: Field = cycles((63, 48), "SDM Table 17-7");
const INFO_CYCLES: Field = cycles((15, 0), "SDM Table 17-16");

/// The maximum of CYC_CNT, in formats 5 to 7 and in Architectural LBR.
pub const CYCLES_MAX: u16 = u16::MAX;

fields! {
    /// TO of format 6.
    CyclesTo, "SDM Table 17-7" {}
    and [data(|_, _, to| format!("address {:#x}", CyclesTo(to).ip()), "SDM Table 17-7"),
        TO_CYCLES]
}

impl CyclesTo {
    /// Bits 47:0, sign-extended: the address. The upper bits are not stored.
    pub const fn ip(self) -> u64 {
        sign_extend(self.0, 48)
    }
    /// Bits 63:48, CYC_CNT: core cycles since the previous record, saturating
    /// at [`CYCLES_MAX`].
    pub const fn cycles(self) -> u16 {
        TO_CYCLES.of(self.0) as u16
    }
}

fields! {
    /// INFO of formats 5 and 7. Bits 60:16 are reserved and may hold anything.
    LbrInfo, "SDM Table 17-16" {
        abort TSX_ABORT [61] "a transaction was aborted here" / "no abort";
        in_tx IN_TSX [62] "inside a transaction" / "not inside a transaction";
        mispredicted MISPRED [63] "mispredicted: direction or target" / "predicted";
    }
    and [INFO_CYCLES]
}

impl LbrInfo {
    /// Bits 15:0, CYC_CNT: core cycles since the previous record, saturating
    /// at [`CYCLES_MAX`].
    pub const fn cycles(self) -> u16 {
        INFO_CYCLES.of(self.0) as u16
    }
}

fields! {
    /// INFO of Architectural LBR. SDM24 Tables 20-2 and 20-3. CPUID leaf 1CH ECX tells which fields
    /// are valid.
    ArchInfo, "Linux msr-index.h" {
        cycles_valid CYC_CNT_VALID [60] "CYC_CNT holds a count" / "CYC_CNT does not hold a count";
        abort TSX_ABORT [61] "a transaction was aborted here" / "no abort";
        in_tx IN_TSX [62] "inside a transaction" / "not inside a transaction";
        mispredicted MISPRED [63] "mispredicted: direction or target" / "predicted";
    }
    and [ARCH_CYCLES, PMC_COUNTS[0], PMC_COUNTS[1], PMC_COUNTS[2], PMC_COUNTS[3], BR_TYPE]
}

const ARCH_CYCLES: Field = Field::value(
    "CYC_CNT",
    (15, 0),
    "core cycles since the previous record, saturating at 65535; valid if CYC_CNT_VALID is 1",
    valid_cycles,
    ARCH,
);
const PMC_COUNTS: [Field; 4] = [
    pmc_count("PMC0_CNT", 32),
    pmc_count("PMC1_CNT", 34),
    pmc_count("PMC2_CNT", 36),
    pmc_count("PMC3_CNT", 38),
];
const fn pmc_count(name: &'static str, low: u8) -> Field {
    const ABOUT: &str =
        "occurrences of the counter's event, saturating at 3; valid if set in CPUID.1CH:ECX[19:16]";
    Field::value(name, (low + 1, low), ABOUT, words::occurrences, ARCH)
}
const BR_TYPE: Field =
    Field::codes("BR_TYPE", (59, 56), "type of the branch", BR_TYPES, "SDM24 Table 20-2");
const BR_TYPES: &[Code] = &[
    code(0, "COND", "Jcc, J*CXZ, LOOP*"),
    code(1, "NEAR_IND_JMP", "JMP r/m"),
    code(2, "NEAR_REL_JMP", "JMP rel"),
    code(3, "NEAR_IND_CALL", "CALL r/m"),
    code(4, "NEAR_REL_CALL", "CALL rel, not to the next instruction"),
    code(5, "NEAR_RET", "near RET"),
    Code {
        first: 8,
        last: 15,
        name: "OTHER_BRANCH",
        words: "far transfer, interrupt, exception etc.",
    },
];

impl ArchInfo {
    /// Bits 15:0, CYC_CNT, saturating at [`CYCLES_MAX`]; valid only with
    /// [`cycles_valid`](Self::cycles_valid).
    pub const fn cycles(self) -> u16 {
        ARCH_CYCLES.of(self.0) as u16
    }
    /// Bits 33+2i:32+2i: occurrences of the event of general counter `i` (0 to 3), saturating at 3.
    /// `i` is taken modulo 4.
    pub const fn counter(self, i: u32) -> u8 {
        PMC_COUNTS[(i & 3) as usize].of(self.0) as u8
    }
    /// Bits 59:56, BR_TYPE; `None` for the reserved codes 6 and 7. Codes 8 to 15 are
    /// [`HwBranchType::Other`].
    pub const fn branch_type(self) -> Option<HwBranchType> {
        Some(match BR_TYPE.of(self.0) {
            0 => HwBranchType::Cond,
            1 => HwBranchType::IndJmp,
            2 => HwBranchType::RelJmp,
            3 => HwBranchType::IndCall,
            4 => HwBranchType::RelCall,
            5 => HwBranchType::Ret,
            8..=15 => HwBranchType::Other,
            _ => return None,
        })
    }
}

fn core_cycles(_: &Field, value: u64, _: u64) -> String {
    if value == u64::from(CYCLES_MAX) {
        "65535 core cycles or more since the previous record".to_string()
    } else {
        format!("{value} core cycles since the previous record")
    }
}

/// Architectural LBR, with its valid bit.
fn valid_cycles(field: &Field, value: u64, register: u64) -> String {
    if ArchInfo(register).cycles_valid() {
        core_cycles(field, value, register)
    } else {
        "no count: CYC_CNT_VALID is 0".to_string()
    }
}
