//! What is hooked into the code that QEMU generates.

use lbr_msr::insn::{self, Insn};

use super::api::{Block, Registers};
use super::callbacks;
use super::instruction::{Hooked, cycles};
use super::machine::{BlockStart, Machine, Transactional};

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
    block.on_start(machine.switch, callbacks::block_started, machine.callback_data.block(start));
    let transactional = |hooked: Option<Hooked>| hooked.is_some_and(Hooked::is_transactional);
    if decoded.iter().any(|(.., hooked)| transactional(*hooked))
        && let Some((first, ..)) = decoded.first()
    {
        first.before(Registers::ReadWrite, callbacks::block_located, start.address);
    }

    let mut after_cpuid = false;
    for (index, (insn, bytes, len, hooked)) in decoded.iter().enumerate() {
        let address = insn.address();
        let next = address.wrapping_add(*len as u64);
        let last = index + 1 == count;
        if std::mem::take(&mut after_cpuid) {
            insn.before(Registers::ReadWrite, callbacks::after_cpuid, 0);
        }
        match *hooked {
            Some(Hooked::ReadMsr) => {
                insn.before(Registers::ReadWriteAndPc, callbacks::read_msr, next);
            }
            Some(Hooked::WriteMsr) => {
                insn.before(Registers::ReadWriteAndPc, callbacks::write_msr, next);
            }
            Some(Hooked::Cpuid) => {
                insn.before(Registers::ReadWrite, callbacks::before_cpuid, u64::from(last));
                after_cpuid = true;
            }
            Some(Hooked::LoadIdt) => insn.on_read(callbacks::idt_loaded),
            Some(Hooked::Halt) => insn.before(Registers::Untouched, callbacks::halted, 0),
            Some(hooked @ (Hooked::Begin | Hooked::End | Hooked::Abort)) => {
                let data = Transactional { insn: hooked, address };
                let data = machine.callback_data.transactional(data);
                insn.before_with(Registers::ReadWriteAndPc, callbacks::transactional, data);
            }
            None => {}
        }
        // A branch ends the block that it is in.
        let code = bytes.get(..*len).unwrap_or_default();
        if last && let Insn::Branch(branch) = insn::decode(code, address) {
            insn.before_if(
                machine.switch,
                callbacks::branch_started,
                machine.callback_data.branch(branch),
            );
        }
    }
}
