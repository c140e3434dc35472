//! What is hooked into the code that QEMU generates.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lbr_msr::insn::{self, BranchInsn, Insn};

use super::api::{Block, Registers};
use super::install::{self, Machine};
use super::instruction::{Hooked, cycles};

/// What a callback is told of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockStart {
    /// Where it was when QEMU translated it. QEMU keeps one translation of a
    /// page for all its mappings: it may execute elsewhere.
    pub(super) address: u64,
    /// What its instructions take together.
    pub(super) cycles: u32,
}

/// What a callback is told of an instruction of TSX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Transactional {
    pub(super) insn: Hooked,
    /// As QEMU translated it.
    pub(super) address: u64,
}

/// Values that callbacks refer to for as long as the machine runs. QEMU may
/// translate the same code many times: each value is kept once.
#[derive(Debug, Default)]
pub(super) struct Kept {
    blocks: Mutex<HashMap<BlockStart, &'static BlockStart>>,
    /// By address: in another address space it may hold another branch.
    branches: Mutex<HashMap<u64, Vec<&'static BranchInsn>>>,
    transactional: Mutex<HashMap<Transactional, &'static Transactional>>,
}

impl Kept {
    fn block(&self, block: BlockStart) -> &'static BlockStart {
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.entry(block).or_insert_with(|| Box::leak(Box::new(block)))
    }

    fn transactional(&self, insn: Transactional) -> &'static Transactional {
        let mut kept = self.transactional.lock().unwrap_or_else(PoisonError::into_inner);
        kept.entry(insn).or_insert_with(|| Box::leak(Box::new(insn)))
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
    let mut start = BlockStart { address: block.start(), cycles: 0 };
    let mut decoded = Vec::with_capacity(count);
    for insn in instructions {
        let (bytes, len) = insn.bytes();
        let code = bytes.get(..len).unwrap_or_default();
        start.cycles = start.cycles.saturating_add(cycles(code));
        let hooked = Hooked::of(code).filter(|hooked| machine.tsx() || !hooked.is_transactional());
        decoded.push((insn, bytes, len, hooked));
    }
    block.on_start(machine.switch, install::block_started, machine.kept.block(start));
    let transactional = |hooked: Option<Hooked>| hooked.is_some_and(Hooked::is_transactional);
    if decoded.iter().any(|(.., hooked)| transactional(*hooked))
        && let Some((first, ..)) = decoded.first()
    {
        first.before(Registers::ReadWrite, install::block_located, start.address);
    }

    let mut after_cpuid = false;
    for (index, (insn, bytes, len, hooked)) in decoded.iter().enumerate() {
        let address = insn.address();
        let next = address.wrapping_add(*len as u64);
        let last = index + 1 == count;
        if std::mem::take(&mut after_cpuid) {
            insn.before(Registers::ReadWrite, install::after_cpuid, 0);
        }
        match *hooked {
            Some(Hooked::ReadMsr) => {
                insn.before(Registers::ReadWriteAndPc, install::read_msr, next);
            }
            Some(Hooked::WriteMsr) => {
                insn.before(Registers::ReadWriteAndPc, install::write_msr, next);
            }
            Some(Hooked::Cpuid) => {
                insn.before(Registers::ReadWrite, install::before_cpuid, u64::from(last));
                after_cpuid = true;
            }
            Some(Hooked::LoadIdt) => insn.on_read(install::idt_loaded),
            Some(Hooked::Halt) => insn.before(Registers::Untouched, install::halted, 0),
            Some(hooked @ (Hooked::Begin | Hooked::End | Hooked::Abort)) => {
                let told = Transactional { insn: hooked, address };
                let told = machine.kept.transactional(told);
                insn.before_with(Registers::ReadWriteAndPc, install::transactional, told);
            }
            None => {}
        }
        // A branch ends the block that it is in.
        let code = bytes.get(..*len).unwrap_or_default();
        if last && let Insn::Branch(branch) = insn::decode(code, address) {
            insn.before_if(machine.switch, install::branch_started, machine.kept.branch(branch));
        }
    }
}
