//! Arm's Branch Record Buffer Extension (FEAT_BRBE). EL0 cannot read these
//! registers: the types serve to decode captured values. Source: BRBE.

use super::bits;

/// BRBINF&lt;n&gt;_EL1: what is known about record n besides its addresses.
/// Bits without a method are RES0 and ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BrbInf(pub u64);

impl BrbInf {
    /// The register's name.
    pub const NAME: &'static str = "BRBINFn_EL1";

    /// Bits 1:0, VALID.
    #[must_use]
    pub const fn valid(self) -> BrbeValid {
        match bits(self.0, 0, 2) {
            0 => BrbeValid::None,
            1 => BrbeValid::TargetOnly,
            2 => BrbeValid::SourceOnly,
            _ => BrbeValid::Both,
        }
    }
    /// Bit 5, MPRED: mispredicted.
    #[must_use]
    pub const fn mispredicted(self) -> bool {
        bits(self.0, 5, 1) != 0
    }
    /// Bits 7:6, EL: exception level, 0 to 3.
    #[must_use]
    pub const fn el(self) -> u8 {
        bits(self.0, 6, 2) as u8
    }
    /// Bits 13:8, TYPE.
    #[must_use]
    pub const fn branch_type(self) -> BrbeType {
        BrbeType(bits(self.0, 8, 6) as u8)
    }
    /// Bit 16, T: in a transaction.
    #[must_use]
    pub const fn transactional(self) -> bool {
        bits(self.0, 16, 1) != 0
    }
    /// Bit 17, LASTFAILED: a transaction failed or was cancelled before.
    #[must_use]
    pub const fn last_failed(self) -> bool {
        bits(self.0, 17, 1) != 0
    }
    /// Bits 39:32, CC_MANT.
    #[must_use]
    pub const fn cycle_mantissa(self) -> u8 {
        bits(self.0, 32, 8) as u8
    }
    /// Bits 45:40, CC_EXP.
    #[must_use]
    pub const fn cycle_exponent(self) -> u8 {
        bits(self.0, 40, 6) as u8
    }
    /// Bit 46, CCU: the cycle count is unknown.
    #[must_use]
    pub const fn cycles_unknown(self) -> bool {
        bits(self.0, 46, 1) != 0
    }
    /// The cycle count that mantissa and exponent make: the mantissa alone
    /// where the exponent is 0, else (mantissa + 256) × 2^(exponent − 1).
    /// `None` where CCU is set, and for an exponent above 56, whose count
    /// would not fit 64 bits (the counter of FEAT_BRBE has 20).
    #[must_use]
    pub const fn cycles(self) -> Option<u64> {
        if self.cycles_unknown() {
            return None;
        }
        let mantissa = self.cycle_mantissa() as u64;
        match self.cycle_exponent() {
            0 => Some(mantissa),
            exponent @ 1..=56 => Some((mantissa | 0x100) << (exponent - 1)),
            _ => None,
        }
    }
}

/// The highest count of BRBE's 20-bit cycle counter: mantissa 255, exponent 12.
pub const BRBE_CYCLES_MAX: u64 = 0x1FF << 11;

/// VALID of a BRBE record: which of its addresses were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrbeValid {
    /// 0: no record, and none above it.
    None,
    /// 1: the source address was not permitted to be recorded.
    TargetOnly,
    /// 2: the target address was not permitted to be recorded.
    SourceOnly,
    /// 3: both.
    Both,
}

/// TYPE of a BRBE record. The set is open: an unknown code is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrbeType(pub u8);

impl BrbeType {
    /// Every documented code with Arm's name, lower case, codes ascending.
    pub const NAMES: [(u8, &'static str); 20] = [
        (0x00, "direct_uncond"),
        (0x01, "indirect"),
        (0x02, "direct_link"),
        (0x03, "indirect_link"),
        (0x05, "ret"),
        (0x07, "eret"),
        (0x08, "direct_cond"),
        (0x21, "debug_halt"),
        (0x22, "call"),
        (0x23, "trap"),
        (0x24, "serror"),
        (0x26, "insn_debug"),
        (0x27, "data_debug"),
        (0x2A, "align_fault"),
        (0x2B, "insn_fault"),
        (0x2C, "data_fault"),
        (0x2E, "irq"),
        (0x2F, "fiq"),
        (0x30, "impdef_trap_el3"),
        (0x39, "debug_exit"),
    ];

    /// Arm's name, lower case; `None` for a code that nobody documents.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Self::NAMES.iter().find(|(code, _)| *code == self.0).map(|(_, name)| *name)
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
