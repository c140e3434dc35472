//! A translated block: its address range and its last instruction.

use lbr_msr::insn::{BranchInsn, Insn, Isa};
use lbr_msr::record::HwBranchType;

use super::record;

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ending {
    /// No near branch: it falls through, or enters the kernel.
    Straight,
    /// A conditional branch to an address other than the next instruction.
    Conditional,
    /// A conditional branch to the next instruction. QEMU does not report whether it was taken: it
    /// computes the flags only when it needs them, and the flags that newer versions give to
    /// plugins (`eflags` of `qemu_plugin_read_register`) are the stored ones.
    Invisible,
    /// A direct jump or call.
    Direct,
    /// An indirect jump or call, or a return.
    Indirect,
}

/// A block of the program's code. It ends at its first branch, if not before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Block {
    /// Address of the first instruction.
    pub(super) start: u64,
    /// Address of the last instruction.
    pub(super) last: u64,
    /// Address after the last instruction.
    pub(super) next: u64,
    /// The branch's target, if direct and known; 0 otherwise.
    pub(super) target: u64,
    /// The fall-through address of a conditional branch, if known; 0 otherwise.
    pub(super) falls_to: u64,
    /// The first word of the branch's record; 0 if no record is wanted.
    pub(super) word: u64,
    /// Number of instructions.
    pub(super) instructions: u32,
    pub(super) ending: Ending,
}

impl Block {
    /// The block from `start` whose last instruction, at `last`, has these bytes.
    pub(super) fn new(isa: Isa, start: u64, last: u64, bytes: &[u8], count: usize) -> Block {
        let next = last.wrapping_add(bytes.len() as u64);
        let branch = match isa.decode(bytes, last) {
            Insn::Branch(branch) => ending(&branch)
                .zip(record::branch_word(last, branch.class, branch.is_zero_length_call()))
                .map(|(ending, word)| (ending, word, branch.target.unwrap_or(0))),
            Insn::Straight { .. } | Insn::Invalid => None,
        };
        let (ending, word, target) = branch.unwrap_or((Ending::Straight, 0, 0));
        let target = if ending == Ending::Invisible { 0 } else { target };
        let falls_to = if ending == Ending::Conditional { next } else { 0 };
        let instructions = u32::try_from(count).unwrap_or(u32::MAX);
        Block { start, last, next, target, falls_to, word, instructions, ending }
    }

    /// Whether the block contains an address.
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.next).contains(&address)
    }
}

fn ending(branch: &BranchInsn) -> Option<Ending> {
    Some(match branch.class {
        HwBranchType::Cond if branch.target == Some(branch.next()) => Ending::Invisible,
        HwBranchType::Cond => Ending::Conditional,
        HwBranchType::RelJmp | HwBranchType::RelCall => Ending::Direct,
        HwBranchType::IndJmp | HwBranchType::IndCall | HwBranchType::Ret => Ending::Indirect,
        HwBranchType::Other => return None,
    })
}

#[cfg(test)]
#[path = "../../../tests/machine/unit/user/block.rs"]
mod tests;
