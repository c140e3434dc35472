//! AMD's registers.

use super::{Field, LbrSelect, field::code, fields, flags, sign_extend, words};
use crate::record::BranchSpec;

const V2: &str = "Linux amd/lbr.c";
const BRS: &str = "Linux amd/brs.c";

fields! {
    /// LBR_SELECT of LbrExtV2: only bits 0 to 8 of [`LbrSelect`].
    AmdLbrSelect, "Linux amd/lbr.c" {}
    and [
        LbrSelect::FIELDS[0].cited(V2), LbrSelect::FIELDS[1].cited(V2),
        LbrSelect::FIELDS[2].cited(V2), LbrSelect::FIELDS[3].cited(V2),
        LbrSelect::FIELDS[4].cited(V2), LbrSelect::FIELDS[5].cited(V2),
        LbrSelect::FIELDS[6].cited(V2), LbrSelect::FIELDS[7].cited(V2),
        LbrSelect::FIELDS[8].cited(V2),
    ]
}

flags! {
    /// DBG_EXTN_CFG: bit 6 enables LbrExtV2, the others are for BRS.
    ///
    /// With BRS, bits 4:3 must be written 11b: always read, modify, write.
    DbgExtnCfg, "Linux amd/brs.c" {
        BRSMEN [2] "branches are sampled" / "branches are not sampled";
        VB [5] "valid branches are recorded" / "no valid branches are recorded";
        LBRV2EN [6] "branches are recorded" / "branches are not recorded" in "Linux amd/lbr.c";
    }
    and [ONES, MSROFF, PMC]
}

const ONES: Field = Field::codes(
    "RSVD_11B",
    (4, 3),
    "must be written 11b with BRS; keep the value read",
    &[code(3, "", "11b, as required")],
    "Linux amd/lbr.c, amd/brs.c",
)
.otherwise("not 11b, as required");
pub(crate) const MSROFF: Field =
    Field::value("MSROFF", (19, 16), "index of the next record to be written", words::msroff, BRS);
const PMC: Field = Field::value("PMC", (26, 24), "counter that triggers", words::number, BRS);

impl DbgExtnCfg {
    /// The bits that only BRS uses.
    pub(crate) const OF_BRS: u64 =
        DbgExtnCfg::BRSMEN.bits() | DbgExtnCfg::VB.bits() | MSROFF.mask() | PMC.mask();
    /// Bits 4:3, which must be set.
    pub(crate) const MUST_BE_SET: u64 = ONES.mask();

    /// Bits 19:16, MSROFF: the next index that BRS will write, 0 when all 16 are filled.
    pub const fn msroff(self) -> u8 {
        MSROFF.of(self.bits()) as u8
    }
}

const IP: Field =
    Field::value("IP", (57, 0), "the low 58 bits of the address", words::amd_address, V2);
/// A record holds 58 address bits, even if CPUID reports another width.
const fn address(register: u64, virt_bits: u8) -> u64 {
    let width = if virt_bits as u32 > IP.width() { IP.width() } else { virt_bits as u32 };
    sign_extend(register, width)
}
/// The sign bits above the address, up to bit `high`.
const fn sign(high: u8) -> Field {
    Field::value("SIGN_EXT", (high, 58), "copies of bit 57", words::sign_copies, V2)
}

fields! {
    /// FROM of LbrExtV2.
    AmdFrom, "Linux amd/lbr.c" {
        mispredicted MISPRED [63] "mispredicted" / "predicted";
    }
    and [IP, sign(62)]
}

impl AmdFrom {
    /// Bits 57:0, the address, sign-extended from the CPU's virtual address width (48 or 57), not
    /// from bit 57.
    pub const fn ip(self, virt_bits: u8) -> u64 {
        address(self.0, virt_bits)
    }
}

fields! {
    /// TO of LbrExtV2 and, address only, of BRS.
    AmdTo, "Linux amd/lbr.c" {
        speculative SPEC [62] "speculative (with VALID 0: on a wrong path)"
            / "not speculative (with VALID 0: no record)";
        valid VALID [63] "on the correct path" / "no record, or with SPEC 1 on a wrong path";
    }
    and [IP, sign(60)]
}

impl AmdTo {
    /// The value that Linux writes into TO of invalid BRS records.
    pub const BRS_POISON: AmdTo = AmdTo(0xFFFF_FFFF_FFFF_FFFE);

    /// Bits 57:0, the address, as in [`AmdFrom::ip`].
    pub const fn ip(self, virt_bits: u8) -> u64 {
        address(self.0, virt_bits)
    }
    /// Bits 63:62 together (LbrExtV2); `None` if both are 0: no record.
    pub const fn spec(self) -> Option<BranchSpec> {
        BranchSpec::from_code((self.valid() as u8) << 1 | self.speculative() as u8)
    }
}

/// FROM of BRS.
pub(crate) const BRS_FROM: &[Field] =
    &[Field::value("IP", (63, 0), "address", words::address, BRS)];
/// TO of BRS.
pub(crate) const BRS_TO: &[Field] = &[Field::value(
    "IP",
    (60, 0),
    "address, to be sign-extended from the CPU's width",
    words::amd_address,
    BRS,
)];
/// Either register of the one-entry pair.
pub(crate) const PAIR: &[Field] = &[PAIR_IP];
pub(crate) const PAIR_IP: Field = Field::value(
    "IP",
    (56, 0),
    "the low 57 bits of the address; those above differ between CPUs",
    words::address_alone,
    "APM",
);
