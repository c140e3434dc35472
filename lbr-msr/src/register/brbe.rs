//! Arm's Branch Record Buffer Extension (FEAT_BRBE). EL0 cannot read these registers; the types
//! decode captured values. Source: BRBE.

use alloc::{
    format,
    string::{String, ToString},
};

use super::{
    field::{Code, Field, code},
    fields, flags, table, words,
};

use crate::record::{BranchType, HwBranchType};

const SOURCE: &str = "BRBE";

fields! {
    /// BRBINF&lt;n&gt;_EL1: flags, type and cycles of record n. Bits without a method are RES0 and
    /// ignored.
    BrbInf, "BRBE" {
        mispredicted MPRED [5] "mispredicted" / "predicted";
        transactional T [16] "inside a transaction" / "not inside a transaction";
        last_failed LASTFAILED [17] "a transaction failed before this record"
            / "no transaction failed before";
        cycles_unknown CCU [46] "the cycle count is unknown" / "the cycle count is known";
    }
    and [VALID, EL, TYPE, CC_MANT, CC_EXP]
}

const VALID: Field = Field::codes(
    "VALID",
    (1, 0),
    "which addresses were recorded",
    &[
        code(0, "", "no record: the end of the list"),
        code(1, "", "the target address only"),
        code(2, "", "the source address only"),
        code(3, "", "both addresses"),
    ],
    SOURCE,
);
const EL: Field = Field::codes(
    "EL",
    (7, 6),
    "exception level",
    &[code(0, "EL0", ""), code(1, "EL1", ""), code(2, "EL2", ""), code(3, "EL3", "")],
    SOURCE,
);
const TYPE: Field =
    Field::codes("TYPE", (13, 8), "type of the branch or exception", BrbeType::CODES, SOURCE);
const CC_MANT: Field =
    Field::value("CC_MANT", (39, 32), "mantissa of the cycle count", brbe_cycles, SOURCE);
const CC_EXP: Field =
    Field::value("CC_EXP", (45, 40), "exponent of the cycle count", brbe_exponent, SOURCE);

impl BrbInf {
    /// Bits 1:0, VALID: whether the source was recorded, and whether the target was.
    pub(crate) const fn valid(self) -> (bool, bool) {
        let valid = VALID.of(self.0);
        (valid & 2 != 0, valid & 1 != 0)
    }
    /// Bits 7:6, EL: exception level, 0 to 3.
    pub const fn el(self) -> u8 {
        EL.of(self.0) as u8
    }
    /// Bits 13:8, TYPE.
    #[must_use]
    pub const fn branch_type(self) -> BrbeType {
        BrbeType(TYPE.of(self.0) as u8)
    }
    /// The cycle count from mantissa and exponent: the mantissa if the exponent is 0, else
    /// (mantissa + 256) × 2^(exponent − 1). `None` if CCU is set, and for an exponent above 56,
    /// whose count would not fit 64 bits (FEAT_BRBE's counter has 20).
    pub const fn cycles(self) -> Option<u64> {
        if self.cycles_unknown() {
            return None;
        }
        let mantissa = CC_MANT.of(self.0);
        match CC_EXP.of(self.0) {
            0 => Some(mantissa),
            exponent @ 1..=56 => Some((mantissa | 0x100) << (exponent - 1)),
            _ => None,
        }
    }
}

/// The highest count of BRBE's 20-bit cycle counter: mantissa 255, exponent 12.
pub const BRBE_CYCLES_MAX: u64 = 0x1FF << 11;

/// TYPE of a BRBE record. Unknown codes are kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrbeType(pub u8);

impl BrbeType {
    /// Every documented code with Arm's name, in ascending order.
    pub const CODES: &'static [Code] = &[
        code(0x00, "DIRECT_UNCOND", ""),
        code(0x01, "INDIRECT", ""),
        code(0x02, "DIRECT_LINK", ""),
        code(0x03, "INDIRECT_LINK", ""),
        code(0x05, "RET", ""),
        code(0x07, "ERET", ""),
        code(0x08, "DIRECT_COND", ""),
        code(0x21, "DEBUG_HALT", ""),
        code(0x22, "CALL", ""),
        code(0x23, "TRAP", ""),
        code(0x24, "SERROR", ""),
        code(0x26, "INSN_DEBUG", ""),
        code(0x27, "DATA_DEBUG", ""),
        code(0x2A, "ALIGN_FAULT", ""),
        code(0x2B, "INSN_FAULT", ""),
        code(0x2C, "DATA_FAULT", ""),
        code(0x2E, "IRQ", ""),
        code(0x2F, "FIQ", ""),
        code(0x30, "IMPDEF_TRAP_EL3", ""),
        code(0x39, "DEBUG_EXIT", ""),
    ];

    /// The class that filters distinguish.
    pub const fn class(self) -> HwBranchType {
        match self.0 {
            0x00 => HwBranchType::RelJmp,
            0x01 => HwBranchType::IndJmp,
            0x02 => HwBranchType::RelCall,
            0x03 => HwBranchType::IndCall,
            0x05 => HwBranchType::Ret,
            0x08 => HwBranchType::Cond,
            _ => HwBranchType::Other,
        }
    }

    /// perf's type of an exception or its return, if it has one.
    pub const fn exception(self) -> Option<BranchType> {
        Some(match self.0 {
            0x07 => BranchType::ERET,
            0x22 => BranchType::SYSCALL,
            0x23 | 0x2E => BranchType::IRQ,
            0x24 => BranchType::SERROR,
            0x2A => BranchType(BranchType::NEW_BASE),
            0x2B => BranchType(BranchType::NEW_BASE + 2),
            0x2C => BranchType(BranchType::NEW_BASE + 1),
            _ => return None,
        })
    }

    /// Arm's name; `None` for an undocumented code.
    pub fn name(self) -> Option<&'static str> {
        Self::CODES.iter().find(|code| code.first == u64::from(self.0)).map(|code| code.name)
    }
}

impl core::fmt::Debug for BrbeType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "BrbeType({:#x})", self.0),
        }
    }
}

/// BRBSRC and BRBTGT.
pub(crate) const ADDRESS: &[Field] =
    &[Field::value("ADDRESS", (63, 0), "address", words::address, SOURCE)];

/// BRBIDR0.
pub(crate) const IDR0: &[Field] = &[
    Field::codes(
        "NUMREC",
        (7, 0),
        "number of records",
        &[
            code(8, "", "8 records"),
            code(16, "", "16 records"),
            code(32, "", "32 records"),
            code(64, "", "64 records"),
        ],
        SOURCE,
    ),
    Field::value("FORMAT", (11, 8), "format of records", words::number, SOURCE),
    Field::codes("CC", (15, 12), "cycle counter", &[code(5, "", "20-bit cycle counter")], SOURCE),
];

/// BRBCR.
pub(crate) const CR: &[Field] = &table! {
    "BRBE" {
        E0BRE [0] "branches at EL0 are recorded" / "branches at EL0 are not recorded";
        ExBRE [1] "branches at this exception level are recorded"
            / "branches at this exception level are not recorded";
        CC [3] "cycles are counted" / "cycles are not counted";
        MPRED [4] "mispredictions are recorded" / "mispredictions are not recorded";
        FZP [8] "a counter overflow freezes recording"
            / "a counter overflow does not freeze recording";
        FZPSS [9] "a snapshot freezes recording" / "a snapshot does not freeze recording";
        ERTN [22] "exception returns are recorded" / "exception returns are not recorded";
        EXCEPTION [23] "exceptions are recorded" / "exceptions are not recorded";
    }
    and [CLOCK]
};

const CLOCK: Field = Field::codes(
    "TS",
    (6, 5),
    "clock of the timestamp",
    &[
        code(1, "", "virtual time"),
        code(2, "", "guest physical time"),
        code(3, "", "physical time"),
    ],
    SOURCE,
);

flags! {
    /// BRBFCR_EL1: branch types to record, and the bank to read.
    BrbFcr, "BRBE" {
        LASTFAILED [6] "a transaction failed after the newest record"
            / "no transaction failed after it";
        PAUSED [7] "recording is paused" / "recording is not paused";
        EN_I "EnI" [16] "the types below are excluded" / "the types below are recorded";
        DIRECT [17] "direct branches match" / "direct branches do not match";
        INDIRECT [18] "indirect branches match" / "indirect branches do not match";
        RTN [19] "returns match" / "returns do not match";
        INDCALL [20] "indirect calls match" / "indirect calls do not match";
        DIRCALL [21] "direct calls match" / "direct calls do not match";
        CONDDIR [22] "conditional direct branches match"
            / "conditional direct branches do not match";
    }
    and [BANK]
}

impl BrbFcr {
    /// Bits 22:16, which choose the types.
    pub(crate) const TYPES: BrbFcr = BrbFcr::from_bits_retain(0x7F << 16);
}

const BANK: Field = Field::codes(
    "BANK",
    (29, 28),
    "readable records",
    &[code(0, "", "records 0 to 31"), code(1, "", "records 32 to 63")],
    SOURCE,
);

/// BRBTS.
pub(crate) const TS: &[Field] = &[Field::value("TS", (63, 0), "timestamp", words::number, SOURCE)];

/// The cycle count, printed with its mantissa.
fn brbe_cycles(_: &Field, _: u64, register: u64) -> String {
    match BrbInf(register).cycles() {
        Some(count) => format!("{count} cycles since the previous record"),
        None if BrbInf(register).cycles_unknown() => "no count: CCU is 1".to_string(),
        None => "out of range".to_string(),
    }
}

fn brbe_exponent(_: &Field, value: u64, _: u64) -> String {
    match value {
        0 => "the mantissa alone".to_string(),
        e => format!("(256 + mantissa) << {}", e - 1),
    }
}
