//! What is hooked into the code that QEMU generates.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lbr_msr::insn::{self, BranchInsn, Insn};

use super::api::{Block, Registers};
use super::install::{self, Machine};

/// What a callback is told of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockStart {
    pub(super) address: u64,
    pub(super) instructions: u32,
}

/// Values that callbacks refer to for as long as the machine runs. QEMU may
/// translate the same code many times: each value is kept once.
#[derive(Debug, Default)]
pub(super) struct Kept {
    blocks: Mutex<HashMap<BlockStart, &'static BlockStart>>,
    /// By address: in another address space it may hold another branch.
    branches: Mutex<HashMap<u64, Vec<&'static BranchInsn>>>,
}

impl Kept {
    fn block(&self, block: BlockStart) -> &'static BlockStart {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.entry(block).or_insert_with(|| Box::leak(Box::new(block)))
    }

    fn branch(&self, branch: BranchInsn) -> &'static BranchInsn {
        let mut branches = self.branches.lock().unwrap_or_else(PoisonError::into_inner);
        let here = branches.entry(branch.ip).or_default();
        match here.iter().find(|known| ***known == branch) {
            Some(known) => known,
            None => {
                let kept: &'static BranchInsn = Box::leak(Box::new(branch));
                here.push(kept);
                kept
            }
        }
    }
}

/// Hooks a block. A vCPU that does not record pays one test per block and one
/// per branch.
pub(super) fn translate(machine: &'static Machine, block: &Block) {
    let instructions = block.instructions();
    let count = instructions.len();
    let start = BlockStart {
        address: block.start(),
        instructions: u32::try_from(count).unwrap_or(u32::MAX),
    };
    block.on_start(machine.switch, install::block_started, machine.kept.block(start));

    let mut after_cpuid = false;
    for (index, insn) in instructions.enumerate() {
        let (bytes, len) = insn.bytes();
        let bytes = bytes.get(..len).unwrap_or_default();
        let next = insn.address().wrapping_add(len as u64);
        let last = index + 1 == count;
        if std::mem::take(&mut after_cpuid) {
            insn.before(Registers::ReadWrite, install::after_cpuid, 0);
        }
        match System::of(bytes) {
            Some(System::ReadMsr) => {
                insn.before(Registers::ReadWriteAndPc, install::read_msr, next);
            }
            Some(System::WriteMsr) => {
                insn.before(Registers::ReadWriteAndPc, install::write_msr, next);
            }
            Some(System::Cpuid) => {
                insn.before(Registers::ReadWrite, install::before_cpuid, u64::from(last));
                after_cpuid = true;
            }
            Some(System::LoadIdt) => insn.on_read(install::idt_loaded),
            None => {}
        }
        // A branch ends the block that it is in.
        if last && let Insn::Branch(branch) = insn::decode(bytes, insn.address()) {
            insn.before_if(machine.switch, install::branch_started, machine.kept.branch(branch));
        }
    }
}

/// An instruction of the system that is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    ReadMsr,
    WriteMsr,
    Cpuid,
    LoadIdt,
}

impl System {
    /// `None` for any other instruction.
    fn of(bytes: &[u8]) -> Option<System> {
        let opcode = bytes.iter().position(|byte| !is_prefix(*byte))?;
        match bytes.get(opcode..)? {
            [0x0F, 0x32] => Some(System::ReadMsr),
            [0x0F, 0x30] => Some(System::WriteMsr),
            [0x0F, 0xA2] => Some(System::Cpuid),
            // 0F 01 /3 with an operand in memory.
            [0x0F, 0x01, modrm, ..] if modrm >> 6 != 3 && modrm >> 3 & 7 == 3 => {
                Some(System::LoadIdt)
            }
            _ => None,
        }
    }
}

/// Legacy prefixes and REX.
const fn is_prefix(byte: u8) -> bool {
    matches!(
        byte,
        0x26 | 0x2E | 0x36 | 0x3E | 0x40..=0x4F | 0x64..=0x67 | 0xF0 | 0xF2 | 0xF3
    )
}

#[cfg(test)]
mod tests {
    use super::System;

    #[test]
    fn system_instructions_are_told_from_immediates_that_look_like_them() {
        assert_eq!(System::of(&[0x0F, 0x32]), Some(System::ReadMsr));
        assert_eq!(System::of(&[0x48, 0x0F, 0x30]), Some(System::WriteMsr));
        assert_eq!(System::of(&[0x0F, 0xA2]), Some(System::Cpuid));
        assert_eq!(System::of(&[0x0F, 0x01, 0x1D, 0, 0, 0, 0]), Some(System::LoadIdt));
        assert_eq!(System::of(&[0x0F, 0x01, 0x18]), Some(System::LoadIdt));
        // ret 0x320f
        assert_eq!(System::of(&[0xC2, 0x0F, 0x32]), None);
        // lgdt [rax]; vmmcall (0F 01 D9, a register form of /3)
        assert_eq!(System::of(&[0x0F, 0x01, 0x10]), None);
        assert_eq!(System::of(&[0x0F, 0x01, 0xD9]), None);
        // rdpmc
        assert_eq!(System::of(&[0x0F, 0x33]), None);
        assert_eq!(System::of(&[]), None);
        assert_eq!(System::of(&[0x66]), None);
    }
}
