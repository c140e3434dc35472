//! The registers that hold records: FROM, TO and INFO of each format.
//!
//! Each type is a 64-bit value with a method for each field. Decoding is
//! built from these methods, so a bit position is written once.

use super::{RecordRegister, bits, sign_extend};
use crate::record::{BranchSpec, HwBranchType};

/// Gives a newtype the grammar of a record register.
macro_rules! record_register {
    ($($type:ident = $name:literal),* $(,)?) => {$(
        impl RecordRegister for $type {
            const NAME: &'static str = $name;
            fn from_raw(value: u64) -> Self {
                $type(value)
            }
            fn raw(self) -> u64 {
                self.0
            }
        }
    )*};
}

record_register! {
    PackedRecord = "MSR_LASTBRANCH_n",
    PlainFrom = "MSR_LASTBRANCH_n_FROM_IP",
    PlainTo = "MSR_LASTBRANCH_n_TO_IP",
    FlagsFrom = "MSR_LASTBRANCH_n_FROM_IP",
    TsxFrom = "MSR_LASTBRANCH_n_FROM_IP",
    CyclesTo = "MSR_LASTBRANCH_n_TO_IP",
    LbrInfo = "MSR_LBR_INFO_n",
    ArchInfo = "IA32_LBR_n_INFO",
    AmdFrom = "AMD_SAMP_BR_FROM_n",
    AmdTo = "AMD_SAMP_BR_TO_n",
}

/// Format 0, Pentium M, Yonah, NetBurst models 0 to 2: both ends of the branch in one register. SDM
/// 17.12, 17.13; Linux `intel/lbr.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackedRecord(pub u64);

impl PackedRecord {
    /// Bits 31:0: where the branch came from.
    #[must_use]
    pub const fn from_ip(self) -> u64 {
        bits(self.0, 0, 32)
    }
    /// Bits 63:32: where it went.
    #[must_use]
    pub const fn to_ip(self) -> u64 {
        bits(self.0, 32, 32)
    }
}

/// FROM without flags: formats 1, 2, 5 and 7, Architectural LBR, P6,
/// NetBurst models 3 and later, AMD BRS. SDM 17.4.8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlainFrom(pub u64);

impl PlainFrom {
    /// Bits 63:0: the address, canonical as the CPU wrote it.
    #[must_use]
    pub const fn ip(self) -> u64 {
        self.0
    }
}

/// TO without cycles: all formats but 6. SDM Table 17-9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlainTo(pub u64);

impl PlainTo {
    /// Bits 63:0: the address, canonical as the CPU wrote it.
    #[must_use]
    pub const fn ip(self) -> u64 {
        self.0
    }
}

/// FROM of formats 3 and 6. SDM Table 17-8 (Nehalem to Ivy Bridge), 17.6
/// (Goldmont).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlagsFrom(pub u64);

impl FlagsFrom {
    /// Bits 62:0, sign-extended: the address.
    #[must_use]
    pub const fn ip(self) -> u64 {
        sign_extend(self.0, 63)
    }
    /// Bit 63, MISPRED: direction or target was mispredicted. The SDM of 2009
    /// describes the opposite; later editions and Linux agree on this.
    #[must_use]
    pub const fn mispredicted(self) -> bool {
        bits(self.0, 63, 1) != 0
    }
}

/// FROM of format 4. SDM Table 17-14.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TsxFrom(pub u64);

impl TsxFrom {
    /// Bits 60:0, sign-extended: the address.
    #[must_use]
    pub const fn ip(self) -> u64 {
        sign_extend(self.0, 61)
    }
    /// Bit 61, TSX_ABORT: a transaction was aborted here. FROM is then the
    /// address at the abort, TO the fallback handler (RTM) or the start of
    /// the region (HLE).
    #[must_use]
    pub const fn abort(self) -> bool {
        bits(self.0, 61, 1) != 0
    }
    /// Bit 62, IN_TSX: retired inside a transaction.
    #[must_use]
    pub const fn in_tx(self) -> bool {
        bits(self.0, 62, 1) != 0
    }
    /// Bit 63, MISPRED.
    #[must_use]
    pub const fn mispredicted(self) -> bool {
        bits(self.0, 63, 1) != 0
    }
}

/// TO of format 6. SDM Table 17-7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CyclesTo(pub u64);

impl CyclesTo {
    /// Bits 47:0, sign-extended: the address. The bits above are not stored.
    #[must_use]
    pub const fn ip(self) -> u64 {
        sign_extend(self.0, 48)
    }
    /// Bits 63:48, CYC_CNT: core cycles since the previous record, saturating
    /// at [`CYCLES_MAX`].
    #[must_use]
    pub const fn cycles(self) -> u16 {
        bits(self.0, 48, 16) as u16
    }
}

/// The count at which CYC_CNT saturates, in formats 5 to 7 and in
/// Architectural LBR.
pub const CYCLES_MAX: u16 = u16::MAX;

/// INFO of formats 5 and 7. SDM Table 17-16. Bits 60:16 are reserved and may
/// hold anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LbrInfo(pub u64);

impl LbrInfo {
    /// Bits 15:0, CYC_CNT: core cycles since the previous record, saturating
    /// at [`CYCLES_MAX`].
    #[must_use]
    pub const fn cycles(self) -> u16 {
        bits(self.0, 0, 16) as u16
    }
    /// Bit 61, TSX_ABORT.
    #[must_use]
    pub const fn abort(self) -> bool {
        bits(self.0, 61, 1) != 0
    }
    /// Bit 62, IN_TSX.
    #[must_use]
    pub const fn in_tx(self) -> bool {
        bits(self.0, 62, 1) != 0
    }
    /// Bit 63, MISPRED.
    #[must_use]
    pub const fn mispredicted(self) -> bool {
        bits(self.0, 63, 1) != 0
    }
}

/// INFO of Architectural LBR. SDM24 Tables 20-2 and 20-3; Linux `msr-index.h`.
/// Which fields mean something is told by CPUID leaf 1CH ECX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArchInfo(pub u64);

impl ArchInfo {
    /// Bits 15:0, CYC_CNT, saturating at [`CYCLES_MAX`]; means something only
    /// where [`cycles_valid`](Self::cycles_valid).
    #[must_use]
    pub const fn cycles(self) -> u16 {
        bits(self.0, 0, 16) as u16
    }
    /// Bits 33+2i:32+2i: occurrences of general counter `i` (0 to 3),
    /// saturating at 3. A higher `i` is taken modulo 4.
    #[must_use]
    pub const fn counter(self, i: u32) -> u8 {
        bits(self.0, 32 + 2 * (i & 3), 2) as u8
    }
    /// Bits 59:56, BR_TYPE, as written.
    #[must_use]
    pub const fn branch_type_code(self) -> u8 {
        bits(self.0, 56, 4) as u8
    }
    /// Bits 59:56, BR_TYPE; `None` for the reserved codes 6 and 7. All of 8
    /// to 15 are [`HwBranchType::Other`].
    #[must_use]
    pub const fn branch_type(self) -> Option<HwBranchType> {
        const TYPES: [Option<HwBranchType>; 16] = [
            Some(HwBranchType::Cond),
            Some(HwBranchType::IndJmp),
            Some(HwBranchType::RelJmp),
            Some(HwBranchType::IndCall),
            Some(HwBranchType::RelCall),
            Some(HwBranchType::Ret),
            None,
            None,
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
            Some(HwBranchType::Other),
        ];
        TYPES[(self.branch_type_code() & 0xF) as usize]
    }
    /// Bit 60, CYC_CNT_VALID.
    #[must_use]
    pub const fn cycles_valid(self) -> bool {
        bits(self.0, 60, 1) != 0
    }
    /// Bit 61, TSX_ABORT.
    #[must_use]
    pub const fn abort(self) -> bool {
        bits(self.0, 61, 1) != 0
    }
    /// Bit 62, IN_TSX.
    #[must_use]
    pub const fn in_tx(self) -> bool {
        bits(self.0, 62, 1) != 0
    }
    /// Bit 63, MISPRED.
    #[must_use]
    pub const fn mispredicted(self) -> bool {
        bits(self.0, 63, 1) != 0
    }
}

/// FROM of AMD LbrExtV2. Linux `amd/lbr.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AmdFrom(pub u64);

impl AmdFrom {
    /// Bits 57:0 hold the address; it is sign-extended from the CPU's width
    /// of virtual addresses (48 or 57), not from bit 57.
    #[must_use]
    pub const fn ip(self, virt_bits: u8) -> u64 {
        sign_extend(self.0, amd_width(virt_bits))
    }
    /// Bit 63: mispredicted.
    #[must_use]
    pub const fn mispredicted(self) -> bool {
        bits(self.0, 63, 1) != 0
    }
}

/// TO of AMD LbrExtV2 and BRS. Linux `amd/lbr.c`, `amd/brs.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AmdTo(pub u64);

impl AmdTo {
    /// What Linux writes into TO of BRS records that are not to be believed.
    pub const BRS_POISON: AmdTo = AmdTo(0xFFFF_FFFF_FFFF_FFFE);

    /// Bits 57:0 hold the address, as in [`AmdFrom::ip`].
    #[must_use]
    pub const fn ip(self, virt_bits: u8) -> u64 {
        sign_extend(self.0, amd_width(virt_bits))
    }
    /// Bit 62, spec (LbrExtV2).
    #[must_use]
    pub const fn speculative(self) -> bool {
        bits(self.0, 62, 1) != 0
    }
    /// Bit 63, valid (LbrExtV2).
    #[must_use]
    pub const fn valid(self) -> bool {
        bits(self.0, 63, 1) != 0
    }
    /// Bits 63:62 together (LbrExtV2); `None` where both are 0: no record.
    #[must_use]
    pub const fn spec(self) -> Option<BranchSpec> {
        const SPEC: [Option<BranchSpec>; 4] = [
            None,
            Some(BranchSpec::WrongPath),
            Some(BranchSpec::NonSpecCorrectPath),
            Some(BranchSpec::SpecCorrectPath),
        ];
        SPEC[bits(self.0, 62, 2) as usize]
    }
}

/// A record holds 58 bits of address, whatever width CPUID claims.
const fn amd_width(virt_bits: u8) -> u32 {
    if virt_bits > 58 { 58 } else { virt_bits as u32 }
}
