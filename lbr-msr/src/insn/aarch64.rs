//! Branches of AArch64 by their encodings. Arm ARM C4.1, "Branches, Exception Generating and System
//! instructions".

use super::{BranchInsn, Insn};
use crate::record::{BranchType, HwBranchType};

/// The length of every instruction, bytes.
pub(super) const LENGTH: u8 = 4;

pub(super) fn decode(bytes: &[u8], ip: u64) -> Insn {
    let Some(word) = bytes.first_chunk().filter(|_| ip.is_multiple_of(LENGTH.into())) else {
        return Insn::Invalid;
    };
    let word = u32::from_le_bytes(*word);
    let Some((branch_type, class, distance)) = branch(word) else {
        return match is_undefined(word) {
            true => Insn::Invalid,
            false => Insn::Straight { len: LENGTH },
        };
    };
    let target = distance.map(|distance| ip.wrapping_add_signed(distance));
    Insn::Branch(BranchInsn { ip, len: LENGTH, branch_type, class, target, condition: None })
}

/// perf's type, the LBR's class, and the distance to the target of a direct branch; `None` for a
/// non-branch.
///
/// HVC and SMC are not branches, like x86's VMCALL: the caller continues after them.
fn branch(word: u32) -> Option<(BranchType, HwBranchType, Option<i64>)> {
    let conditional =
        |low, width| (BranchType::COND, HwBranchType::Cond, Some(distance(word, low, width)));
    let indirect = |branch_type, class| (branch_type, class, None);
    Some(match word >> 24 {
        0x14..=0x17 => (BranchType::UNCOND, HwBranchType::RelJmp, Some(distance(word, 0, 26))),
        0x94..=0x97 => (BranchType::CALL, HwBranchType::RelCall, Some(distance(word, 0, 26))),
        // B.cond and BC.cond; CBZ and CBNZ.
        0x54 | 0x34 | 0x35 | 0xB4 | 0xB5 => conditional(5, 19),
        // TBZ and TBNZ.
        0x36 | 0x37 | 0xB6 | 0xB7 => conditional(5, 14),
        0xD6 | 0xD7 => match word >> 21 & 0xF {
            0 | 8 => indirect(BranchType::IND, HwBranchType::IndJmp),
            1 | 9 => indirect(BranchType::IND_CALL, HwBranchType::IndCall),
            2 => indirect(BranchType::RET, HwBranchType::Ret),
            4 => indirect(BranchType::ERET, HwBranchType::Other),
            _ => return None,
        },
        // SVC and BRK.
        0xD4 if word & 0xE0_001F == 1 => indirect(BranchType::SYSCALL, HwBranchType::Other),
        0xD4 if word & 0xE0_001F == 0x20_0000 => indirect(BranchType::IRQ, HwBranchType::Other),
        _ => return None,
    })
}

/// The signed offset in a field of `width` bits from bit `low`, which counts instructions.
fn distance(word: u32, low: u32, width: u32) -> i64 {
    let above = 32 - width - low;
    i64::from((word << above).cast_signed() >> (above + low)) * i64::from(LENGTH)
}

/// UDF, and the part of the branches that Armv8.0 leaves unallocated: later extensions have branches
/// there (FEAT_CMPBR, FEAT_PAuth_LR), which this table does not know.
fn is_undefined(word: u32) -> bool {
    word >> 16 == 0 || matches!(word >> 24, 0x55 | 0x74..=0x77 | 0xD7 | 0xF4..=0xF7)
}
