//! Encodes a retired branch in the bits of a record, for every layout. Written from the manuals'
//! bit tables, independently of the decoder.

use crate::caps::{Facility, Layout, LbrCaps, Quirks};
use crate::record::HwBranchType;
use crate::register::sign_extend;

use super::{Fault, Faults, Retired};

/// The registers of one record; 0 for a register that the record lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Slot {
    /// FROM; for packed layouts the only register.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) info: u64,
}

/// A register of a record.
#[derive(Clone, Copy)]
pub(super) enum Bank {
    From,
    To,
    Info,
}

impl Slot {
    #[inline]
    pub(super) const fn get(&self, bank: Bank) -> u64 {
        [self.from, self.to, self.info][bank as usize]
    }

    pub(super) const fn get_mut(&mut self, bank: Bank) -> &mut u64 {
        match bank {
            Bank::From => &mut self.from,
            Bank::To => &mut self.to,
            Bank::Info => &mut self.info,
        }
    }
}

/// Width of a linear address on a CPU without five-level paging.
const VIRT_48: u32 = 48;
/// The width of WRMSR's canonical check on CPUs with Architectural LBR, which may have five-level
/// paging.
const VIRT_57: u32 = 57;

/// INFO\[63\] and FROM\[63\] of the formats with flags. SDM Tables 17-8, 17-16.
const MISPRED: u64 = 1 << 63;
/// INFO\[62\], FROM\[62\] of format 4.
const IN_TSX: u64 = 1 << 62;
/// INFO\[61\], FROM\[61\] of format 4.
const TSX_ABORT: u64 = 1 << 61;
/// INFO\[60\] of Architectural LBR: the cycle count is valid.
const CYC_CNT_VALID: u64 = 1 << 60;
/// Highest cycle count that 16 bits hold.
const CYC_CNT_MAX: u32 = 0xFFFF;

/// The count that [`Fault::CyclesConstant`] records.
const CONSTANT_CYCLES: u32 = 42;
/// How far before the branch [`Fault::FusedFrom`] sets FROM: a CMP of two registers.
const FUSED: u64 = 3;

/// AMD LbrExtV2: FROM and TO hold 58 bits of address. Linux amd/lbr.c.
const AMD_IP: u64 = (1 << 58) - 1;
/// AMD LbrExtV2: TO\[63\], the record is valid.
const AMD_VALID: u64 = 1 << 63;
/// AMD BRS: TO\[63:61\] are reserved. Linux amd/brs.c.
const BRS_TO: u64 = (1 << 61) - 1;

/// A CPU's record layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    /// FROM in bits 31:0, TO in 63:32 of one register. Format 0.
    Packed,
    /// 32-bit addresses, one per register: P6.
    Narrow,
    /// Canonical addresses without flags: formats 1 and 2, NetBurst models 3
    /// and later.
    Linear,
    /// MISPRED in FROM\[63\]. Format 3.
    Mispred,
    /// MISPRED, IN_TSX and TSX_ABORT in FROM\[63:61\]. Format 4.
    MispredTsx,
    /// Format 4 without TSX: FROM\[62:61\] are recorded as 0, but WRMSR checks them as part of the
    /// sign. Xen, HSM182, BDM127.
    MispredNoTsx,
    /// Flags and cycles in INFO. Formats 5 and 7.
    Info {
        /// INFO\[62:61\] are used.
        tsx: bool,
    },
    /// MISPRED in FROM\[63\], cycles in TO\[63:48\]. Format 6.
    Time,
    /// Full addresses, and INFO as CPUID leaf 1CH announces it.
    Arch {
        /// The bits of INFO that exist.
        info: u64,
    },
    /// AMD LbrExtV2.
    AmdV2,
    /// AMD BRS.
    AmdBrs,
    /// AMD's one-entry pair: full addresses.
    AmdSingle,
    /// Arm's BRBE, with the bits of BRBCR that record predictions and cycles.
    Brbe {
        /// MPRED.
        predictions: bool,
        /// CC.
        cycles: bool,
    },
}

impl Encoding {
    /// The record layout of the CPU that `caps` describes. An undocumented format is laid out like
    /// format 1.
    pub(super) fn of(caps: &LbrCaps) -> Encoding {
        match caps.layout {
            Layout::Packed32 => Encoding::Packed,
            Layout::Plain if caps.facility == Facility::P6 => Encoding::Narrow,
            Layout::Plain => Encoding::Linear,
            Layout::Legacy { format, tsx } => match format.0 {
                0 => Encoding::Packed,
                3 => Encoding::Mispred,
                4 if tsx && !caps.quirks.contains(Quirks::TSX_LESS_FORMAT_4) => {
                    Encoding::MispredTsx
                }
                4 => Encoding::MispredNoTsx,
                5 | 7 => Encoding::Info { tsx },
                6 => Encoding::Time,
                _ => Encoding::Linear,
            },
            Layout::Arch { mispredict, timed, types, counters, tsx } => {
                let fields = [
                    (mispredict, MISPRED),
                    (tsx, IN_TSX | TSX_ABORT),
                    (timed, CYC_CNT_VALID | u64::from(CYC_CNT_MAX)),
                    (types, 0xF << 56),
                ];
                let counts = (0..4).map(|i| (counters >> i & 1 != 0, 3 << (32 + 2 * i)));
                let there = fields.into_iter().chain(counts).filter(|(is_there, _)| *is_there);
                Encoding::Arch { info: there.fold(0, |info, (_, field)| info | field) }
            }
            Layout::AmdV2 { .. } => Encoding::AmdV2,
            Layout::AmdBrs { .. } => Encoding::AmdBrs,
            Layout::AmdSingle => Encoding::AmdSingle,
            Layout::Brbe => Encoding::Brbe { predictions: false, cycles: false },
        }
    }

    /// The registers of a record. `from` replaces the branch's own FROM if that is hidden; `cycles`
    /// are those since the previous record, `None` if unknown.
    ///
    /// Inlined, because building a slot field by field and then moving it as a whole stalls.
    #[inline(always)]
    pub(super) fn record(self, branch: &Retired, from: u64, cycles: Option<u32>) -> Slot {
        let mispred = if branch.mispredicted == Some(true) { MISPRED } else { 0 };
        let count = || u64::from(cycles.unwrap_or(0).min(CYC_CNT_MAX));
        let tsx =
            || (if branch.in_tx { IN_TSX } else { 0 }) | (if branch.abort { TSX_ABORT } else { 0 });
        let pair = |from, to| Slot { from, to, info: 0 };
        let extended = |address| sign_extend(address, VIRT_48);
        match self {
            Encoding::Packed => pair(low32(from) | low32(branch.to) << 32, 0),
            Encoding::Narrow => pair(low32(from), low32(branch.to)),
            Encoding::Linear => pair(extended(from), extended(branch.to)),
            Encoding::Mispred => pair(extended(from) & !MISPRED | mispred, extended(branch.to)),
            Encoding::MispredTsx => pair(
                extended(from) & !(MISPRED | IN_TSX | TSX_ABORT) | mispred | tsx(),
                extended(branch.to),
            ),
            Encoding::MispredNoTsx => pair(
                extended(from) & !(MISPRED | IN_TSX | TSX_ABORT) | mispred,
                extended(branch.to),
            ),
            Encoding::Info { tsx: has_tsx } => Slot {
                info: mispred | count() | if has_tsx { tsx() } else { 0 },
                ..pair(extended(from), extended(branch.to))
            },
            Encoding::Time => pair(
                extended(from) & !MISPRED | mispred,
                branch.to & ((1 << VIRT_48) - 1) | count() << 48,
            ),
            Encoding::Arch { info } => {
                let valid = if cycles.is_some() { CYC_CNT_VALID } else { 0 };
                let all = mispred | tsx() | valid | count() | br_type(branch.class) << 56;
                Slot { from, to: branch.to, info: all & info }
            }
            Encoding::AmdV2 => pair(amd_ip(from, 63) | mispred, amd_ip(branch.to, 61) | AMD_VALID),
            Encoding::AmdBrs => pair(from, branch.to & BRS_TO),
            Encoding::AmdSingle => pair(from, branch.to),
            Encoding::Brbe { predictions, cycles: counts } => {
                let missed = u64::from(predictions && branch.mispredicted == Some(true)) << 5;
                let count = cycles.filter(|_| counts).map_or(BRBE_CCU, brbe_count);
                let info = BRBE_VALID | missed | brbe_type(branch.class) << 8 | count;
                Slot { from, to: branch.to, info }
            }
        }
    }

    /// [`record`](Self::record) with injected faults.
    pub(super) fn faulty_record(
        self,
        faults: Faults,
        branch: &Retired,
        from: u64,
        cycles: Option<u32>,
    ) -> Slot {
        let mut branch = *branch;
        let (mut from, mut cycles) = (from, cycles);
        if faults.has(Fault::MispredictNever) {
            branch.mispredicted = None;
        }
        if faults.has(Fault::MispredictInverted) {
            branch.mispredicted = branch.mispredicted.map(|missed| !missed);
        }
        if faults.has(Fault::TsxNever) {
            (branch.in_tx, branch.abort) = (false, false);
        }
        if faults.has(Fault::CyclesConstant) {
            cycles = Some(CONSTANT_CYCLES);
        }
        if faults.has(Fault::CyclesWrap) {
            cycles = cycles.map(|count| count & CYC_CNT_MAX);
        }
        if faults.has(Fault::FusedFrom) && branch.class == HwBranchType::Cond && from != !0 {
            from = from.wrapping_sub(FUSED);
        }
        if faults.has(Fault::TypesSwapped) {
            branch.class = match branch.class {
                HwBranchType::IndJmp => HwBranchType::RelJmp,
                HwBranchType::RelJmp => HwBranchType::IndJmp,
                HwBranchType::IndCall => HwBranchType::RelCall,
                HwBranchType::RelCall => HwBranchType::IndCall,
                other => other,
            };
        }
        let mut slot = self.record(&branch, from, cycles);
        if faults.has(Fault::NoSignExtension) {
            // The bits above an address that change with its sign.
            const ABOVE: u64 = !((1 << VIRT_48) - 1);
            let of = |address| {
                self.record(&Retired::user(address, address, branch.class), address, None)
            };
            let (high, low) = (of(u64::MAX), of(u64::MAX >> 17));
            slot.from &= !(high.from & !low.from & ABOVE);
            slot.to &= !(high.to & !low.to & ABOVE);
        }
        slot
    }

    /// The contents of a record's register after WRMSR of `value`; `None` if that raises #GP.
    ///
    /// INFO drops reserved bits; no manual read here says that they fault.
    pub(super) fn write(self, bank: Bank, value: u64) -> Option<u64> {
        let canonical = match (self, bank) {
            (Encoding::Arch { info }, Bank::Info) => return Some(value & info),
            (_, Bank::Info) => {
                return Some(value & (MISPRED | IN_TSX | TSX_ABORT | u64::from(CYC_CNT_MAX)));
            }
            (Encoding::Narrow, _) => return Some(low32(value)),
            (
                Encoding::Packed
                | Encoding::AmdV2
                | Encoding::AmdBrs
                | Encoding::AmdSingle
                | Encoding::Brbe { .. },
                _,
            )
            | (Encoding::Time, Bank::To) => true,
            // The check ignores the flag bits: copies of the next lower bit replace them.
            (Encoding::Mispred | Encoding::MispredNoTsx | Encoding::Time, Bank::From) => {
                is_sign_extended(sign_extend(value, 63), VIRT_48)
            }
            (Encoding::MispredTsx, Bank::From) => is_sign_extended(sign_extend(value, 61), VIRT_48),
            (Encoding::Arch { .. }, _) => is_sign_extended(value, VIRT_57),
            _ => is_sign_extended(value, VIRT_48),
        };
        canonical.then_some(value)
    }

    /// Flags in FROM\[63:61\], or space for them.
    pub(super) const fn is_format_4(self) -> bool {
        matches!(self, Encoding::MispredTsx | Encoding::MispredNoTsx)
    }

    /// Whether bits 62:61 of FROM are copies of its sign, bit 47.
    pub(super) const fn flags_extend_sign(self, value: u64) -> bool {
        let flags = value & (IN_TSX | TSX_ABORT);
        flags == sign_extend(value, VIRT_48) & (IN_TSX | TSX_ABORT)
    }
}

/// INFO\[59:56\] of Architectural LBR. SDM24 Table 20-2.
const fn br_type(class: HwBranchType) -> u64 {
    match class {
        HwBranchType::Other => 8,
        // In the order of the table.
        class => class as u64,
    }
}

/// BRBINF.VALID: both addresses. EL is 0, the level of programs.
const BRBE_VALID: u64 = 3;
/// BRBINF.CCU: no cycle count.
const BRBE_CCU: u64 = 1 << 46;

/// BRBINF.CC_EXP and CC_MANT of a count, which lose its low bits and saturate at 20 bits.
const fn brbe_count(cycles: u32) -> u64 {
    const MAX: u32 = 0x1FF << 11;
    let cycles = if cycles > MAX { MAX } else { cycles };
    let shift = (32 - cycles.leading_zeros()).saturating_sub(9);
    let exponent = if cycles > 0xFF { shift + 1 } else { 0 };
    (exponent as u64) << 40 | (cycles as u64 >> shift & 0xFF) << 32
}

/// BRBINF.TYPE. No far branch is recorded, but one may be injected: SVC's.
const fn brbe_type(class: HwBranchType) -> u64 {
    match class {
        HwBranchType::RelJmp => 0x00,
        HwBranchType::IndJmp => 0x01,
        HwBranchType::RelCall => 0x02,
        HwBranchType::IndCall => 0x03,
        HwBranchType::Ret => 0x05,
        HwBranchType::Cond => 0x08,
        HwBranchType::Other => 0x22,
    }
}

pub(super) const fn low32(value: u64) -> u64 {
    value & 0xFFFF_FFFF
}

/// 58 address bits, with sign copies up to but not including bit `end`.
const fn amd_ip(address: u64, end: u32) -> u64 {
    sign_extend(address & AMD_IP, 58) & ((1 << end) - 1)
}

const fn is_sign_extended(value: u64, width: u32) -> bool {
    sign_extend(value, width) == value
}
