//! Hooks in the code that QEMU generates.

use lbr_msr::insn;

use super::api::{Block, Registers};
use super::callbacks;
use super::instruction::{Hooked, cycles};
use super::machine::{Access, BlockPart, BlockStart, DUE, Machine, Transactional};

/// Hooks a block. A vCPU that does not record costs one test per block and one per branch and, with
/// a performance monitor, the counting.
pub(super) fn translate(machine: &'static Machine, block: &Block) {
    let instructions = block.instructions();
    let count = instructions.len();
    let mut start = BlockStart { address: block.start(), cycles: 0 };
    let mut decoded = Vec::with_capacity(count);
    let mut branch = None;
    for insn in instructions {
        let (bytes, len) = insn.bytes();
        let code = bytes.get(..len).unwrap_or_default();
        let cycles = cycles(code);
        start.cycles = start.cycles.saturating_add(cycles);
        let hooked =
            Hooked::of(code).filter(|hooked| machine.model.tsx || !hooked.is_transactional());
        if decoded.len() + 1 == count {
            branch = insn::decode(code, insn.address()).branch();
        }
        decoded.push((insn, len, hooked, cycles));
    }
    let watch = machine.watch;
    let data = machine.callback_data.blocks.get(start);
    block.on_start(watch.cycles, DUE, callbacks::block_started, data);
    if machine.model.pmu.is_some() {
        // After the callback, so that it sees only executed blocks.
        block.add(watch.cycles, start.cycles);
        block.add(watch.instructions, count as u32);
        if branch.is_some() {
            block.add(watch.retired, 1);
        }
    }
    if decoded.iter().any(|(_, _, hooked, _)| hooked.is_some_and(Hooked::is_transactional))
        && let Some((first, ..)) = decoded.first()
    {
        first.before(Registers::ReadWrite, callbacks::block_located, start.address);
    }

    let mut after_cpuid = false;
    for (index, (insn, len, hooked, _)) in decoded.iter().enumerate() {
        let address = insn.address();
        let next = address.wrapping_add(*len as u64);
        let last = index + 1 == count;
        let access = || {
            let rest = decoded.get(index + 1..).unwrap_or_default();
            machine.callback_data.accesses.get(Access {
                next,
                rest: BlockPart {
                    instructions: rest.len() as u32,
                    cycles: rest.iter().map(|(.., cycles)| cycles).sum(),
                    branches: u32::from(branch.is_some() && !last),
                },
            })
        };
        if std::mem::take(&mut after_cpuid) {
            insn.before(Registers::ReadWrite, callbacks::after_cpuid, 0);
        }
        match *hooked {
            Some(Hooked::ReadMsr) => insn.before_with(callbacks::read_msr, access()),
            Some(Hooked::WriteMsr) => insn.before_with(callbacks::write_msr, access()),
            Some(Hooked::ReadCounter) => insn.before_with(callbacks::read_counter, access()),
            Some(Hooked::Cpuid) => {
                insn.before(Registers::ReadWrite, callbacks::before_cpuid, u64::from(last));
                after_cpuid = true;
            }
            Some(Hooked::LoadIdt) => insn.on_read(callbacks::idt_loaded),
            Some(Hooked::Halt) => insn.before(Registers::Untouched, callbacks::halted, 0),
            Some(hooked @ (Hooked::Begin | Hooked::End | Hooked::Abort)) => {
                let data = Transactional { insn: hooked, address };
                let data = machine.callback_data.transactional.get(data);
                insn.before_with(callbacks::transactional, data);
            }
            None => {}
        }
        // A branch ends its block.
        if last && let Some(branch) = branch {
            let data = machine.callback_data.branches.get(branch);
            match branch.is_far() {
                true => insn.before_if(watch.far_branches, callbacks::far_branch_started, data),
                false => insn.before_if(watch.branches, callbacks::branch_started, data),
            }
        }
    }
}
