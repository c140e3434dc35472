//! The callbacks for executed instructions and blocks.
#![allow(unsafe_code, reason = "callbacks of QEMU's plugin interface are C")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use lbr_msr::Msr;
use lbr_msr::insn::BranchInsn;

use super::api;
use super::instruction::{Hooked, Transaction, abort_status};
use super::machine::{Access, BlockPart, BlockStart, Machine, Running, Transactional, on_vcpu};
use super::pmu::Leaf;
use super::registers::Answer;
use super::state::{self, RegisterFile};
use super::vcpu::Vcpu;

/// RDMSR and WRMSR of this unused register raise #GP in QEMU, in and outside of x2APIC mode.
const FAULTS: u64 = 0x8FF;
/// CR4: RDPMC is allowed in user mode.
const CR4_PCE: u64 = 1 << 8;
/// Continuing at a non-canonical address raises #GP.
const NOWHERE: u64 = 1 << 63;
/// RDPMC's bytes: 0F 33.
const RDPMC_LENGTH: u64 = 2;

/// Runs `action` on a vCPU, for a callback registered with [`api::Registers::ReadWriteAndPc`] whose
/// frame has nothing left to drop. The vCPU continues at the address that it returns.
fn redirect(index: c_uint, action: impl FnOnce(&'static Machine, &mut Running) -> Option<u64>) {
    if let Some(Some(next)) = on_vcpu(index, action) {
        // SAFETY: the callback is registered for it; nothing is left to drop in this frame either.
        unsafe { api::continue_at(next) }
    }
}

pub(super) extern "C" fn block_started(index: c_uint, block: *mut c_void) {
    // The interrupt comes before the block, which will be reported again.
    redirect(index, |machine, running| {
        // SAFETY: registered with a `BlockStart`.
        let block = unsafe { api::data::<BlockStart>(block) };
        finish_cpuid(machine, running);
        let Running { vcpu, registers } = running;
        machine.watch.count(index, vcpu, BlockPart::default());
        if vcpu.recording {
            let start = registers.rip.get();
            vcpu.located(start, block.address);
            vcpu.block(start, block.cycles, || level(registers));
        }
        let interrupted = vcpu.is_interrupted(|| level(registers)) && deliver_pmi(vcpu);
        if interrupted {
            vcpu.left(block.cycles);
        }
        machine.watch.settle(index, vcpu);
        interrupted.then(|| registers.rip.get())
    });
}

/// A far branch is about to execute; it ends its block.
pub(super) extern "C" fn far_branch_started(index: c_uint, branch: *mut c_void) {
    on_vcpu(index, |machine, Running { vcpu, .. }| {
        machine.watch.count(index, vcpu, BlockPart::default());
        vcpu.leaves_level = true;
        machine.watch.settle(index, vcpu);
    });
    branch_started(index, branch);
}

pub(super) extern "C" fn branch_started(index: c_uint, branch: *mut c_void) {
    on_vcpu(index, |_, running| {
        if running.vcpu.recording {
            // SAFETY: registered with a `BranchInsn`.
            running.vcpu.branch(*unsafe { api::data::<BranchInsn>(branch) });
        }
    });
}

pub(super) extern "C" fn read_msr(index: c_uint, access: *mut c_void) {
    // SAFETY: registered with an `Access`.
    let Access { next, rest } = *unsafe { api::data::<Access>(access) };
    redirect(index, |machine, Running { vcpu, registers }| {
        let msr = addressed(registers)?;
        vcpu.follow(&machine.model);
        if vcpu.is_of_monitor(msr) {
            machine.watch.count(index, vcpu, rest);
            machine.watch.settle(index, vcpu);
        }
        match vcpu.read(msr) {
            Answer::Done(value) => {
                registers.rax.set(value & 0xFFFF_FFFF);
                registers.rdx.set(value >> 32);
                Some(next)
            }
            Answer::Fault => fault(vcpu, registers),
            Answer::NotOurs => None,
        }
    });
}

/// RDPMC. For a missing counter it raises #GP (SDM Vol. 2B); the emulator, which has no counters,
/// raises #UD.
pub(super) extern "C" fn read_counter(index: c_uint, access: *mut c_void) {
    // SAFETY: registered with an `Access`.
    let Access { next, rest } = *unsafe { api::data::<Access>(access) };
    redirect(index, |machine, Running { vcpu, registers }| {
        if level(registers) != 0 && registers.cr4.get() & CR4_PCE == 0 || vcpu.pmu.is_none() {
            return None;
        }
        let counter = (registers.rcx.get() & 0xFFFF_FFFF) as u32;
        machine.watch.count(index, vcpu, rest);
        machine.watch.settle(index, vcpu);
        let Some(value) = vcpu.pmu.as_ref().and_then(|pmu| pmu.rdpmc(counter)) else {
            vcpu.faulting_ip = Some(next.wrapping_sub(RDPMC_LENGTH));
            return Some(NOWHERE);
        };
        registers.rax.set(value & 0xFFFF_FFFF);
        registers.rdx.set(value >> 32);
        Some(next)
    });
}

pub(super) extern "C" fn write_msr(index: c_uint, access: *mut c_void) {
    // SAFETY: registered with an `Access`.
    let Access { next, rest } = *unsafe { api::data::<Access>(access) };
    redirect(index, |machine, Running { vcpu, registers }| {
        let msr = addressed(registers)?;
        let value = registers.rax.get() & 0xFFFF_FFFF | registers.rdx.get() << 32;
        machine.watch.count(index, vcpu, rest);
        vcpu.follow(&machine.model);
        let before = machine.model.version();
        let answer = vcpu.write(msr, value, &machine.model);
        if machine.model.version() != before {
            // All software LBRs have their reset state.
            for select in &machine.selects {
                select.store(0, Ordering::Relaxed);
            }
        }
        machine.watch.settle(index, vcpu);
        match answer {
            Answer::Done(()) => Some(next),
            Answer::Fault => fault(vcpu, registers),
            Answer::NotOurs => None,
        }
    });
}

/// The register that RDMSR or WRMSR accesses; `None` if the instruction faults for any register.
fn addressed(registers: &RegisterFile) -> Option<Msr> {
    // Only ECX matters.
    (level(registers) == 0).then(|| Msr((registers.rcx.get() & 0xFFFF_FFFF) as u32))
}

fn level(registers: &RegisterFile) -> u8 {
    (registers.cs.get() & 3) as u8
}

/// Makes the instruction that is about to execute raise #GP in the emulator. [`diverted`] restores
/// RCX before the guest can see it. `None`: the instruction must execute.
fn fault(vcpu: &mut Vcpu, registers: &RegisterFile) -> Option<u64> {
    vcpu.faulting_rcx = Some(registers.rcx.get());
    registers.rcx.set(FAULTS);
    None
}

pub(super) extern "C" fn before_cpuid(index: c_uint, last_of_block: *mut c_void) {
    on_vcpu(index, |machine, Running { vcpu, registers }| {
        let low = |value: u64| (value & 0xFFFF_FFFF) as u32;
        vcpu.asked = Some((low(registers.rax.get()), low(registers.rcx.get())));
        if !last_of_block.is_null() {
            // No instruction of this block follows: the next block must report.
            machine.watch.count(index, vcpu, BlockPart::default());
            machine.watch.settle(index, vcpu);
        }
    });
}

pub(super) extern "C" fn after_cpuid(index: c_uint, _: *mut c_void) {
    on_vcpu(index, finish_cpuid);
}

fn finish_cpuid(machine: &Machine, Running { vcpu, registers }: &mut Running) {
    let Some((leaf, sub_leaf)) = vcpu.asked.take() else { return };
    let low = |value: u64| (value & 0xFFFF_FFFF) as u32;
    let answer = Leaf {
        eax: low(registers.rax.get()),
        ebx: low(registers.rbx.get()),
        ecx: low(registers.rcx.get()),
        edx: low(registers.rdx.get()),
    };
    let patched = machine.model.patch.apply(leaf, sub_leaf, answer);
    if patched != answer {
        registers.rax.set(patched.eax.into());
        registers.rbx.set(patched.ebx.into());
        registers.rcx.set(patched.ecx.into());
        registers.rdx.set(patched.edx.into());
    }
}

/// A block with TSX instructions starts.
pub(super) extern "C" fn block_located(index: c_uint, translated: *mut c_void) {
    on_vcpu(index, |_, Running { vcpu, registers }| {
        vcpu.located(registers.rip.get(), translated as u64);
    });
}

pub(super) extern "C" fn transactional(index: c_uint, insn: *mut c_void) {
    redirect(index, |machine, Running { vcpu, registers }| {
        // It ends its block.
        machine.watch.count(index, vcpu, BlockPart::default());
        machine.watch.settle(index, vcpu);
        // SAFETY: registered with a `Transactional`.
        let Transactional { insn, address } = *unsafe { api::data::<Transactional>(insn) };
        let address = vcpu.at(address);
        let next = address.wrapping_add(insn.length());
        // After the two-byte opcode; an unreadable operand raises #UD like an instruction that QEMU
        // lacks.
        let operand = || state::memory(address.wrapping_add(2));
        match insn {
            Hooked::Begin => vcpu.begin(Transaction {
                fallback: next.wrapping_add_signed(i64::from(operand()? as i32)),
                general: registers.general.map(state::Register::get),
            }),
            Hooked::Abort => {
                let status = abort_status(operand()? as u8);
                if let Some(undone) = vcpu.abort(address) {
                    for (register, value) in registers.general.iter().zip(undone.general) {
                        register.set(value);
                    }
                    registers.rax.set(status);
                    return Some(undone.fallback);
                }
            }
            _ => vcpu.transaction = None,
        }
        Some(next)
    });
}

pub(super) extern "C" fn halted(index: c_uint, _: *mut c_void) {
    on_vcpu(index, |machine, Running { vcpu, .. }| {
        if machine.deep_idle {
            vcpu.lbr.deep_c_state();
        }
    });
}

pub(super) extern "C" fn idt_loaded(index: c_uint, info: u32, _address: u64, _: *mut c_void) {
    on_vcpu(index, |_, running| {
        // LIDT reads a 2-byte limit and a base, which has 8 bytes in 64-bit mode.
        if let Some(base) = api::value_of_8_bytes(info) {
            running.vcpu.idt = Some(base);
        }
    });
}

pub(super) extern "C" fn diverted(index: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    on_vcpu(index, |machine, running| {
        // A CPUID that ended its block: its results are still in the registers.
        finish_cpuid(machine, running);
        let Running { vcpu, registers } = running;
        match kind {
            api::EXCEPTION => vcpu.raised(),
            api::INTERRUPT => {
                if let Some(rcx) = vcpu.faulting_rcx.take() {
                    registers.rcx.set(rcx);
                }
                let from = match vcpu.faulting_ip.take() {
                    // Above the error code.
                    Some(at) => {
                        state::set_memory(registers.rsp.get().wrapping_add(8), at);
                        at
                    }
                    None => from,
                };
                machine.watch.count(index, vcpu, BlockPart::default());
                let debug = vcpu.recording && vcpu.idt.and_then(debug_handler) == Some(to);
                vcpu.delivered(from, to, level(registers), debug);
                machine.watch.settle(index, vcpu);
            }
            _ => {}
        }
    });
}

/// The address of the handler of vector 1 (#DB), from the 16-byte gate of 64-bit mode.
fn debug_handler(idt: u64) -> Option<u64> {
    let low = state::memory(idt.wrapping_add(16))?;
    let high = state::memory(idt.wrapping_add(24))?;
    Some(low & 0xFFFF | (low >> 48) << 16 | high << 32)
}

/// The local APIC's registers for the performance monitor's interrupt and for sending interrupts
/// (the low half of ICR). SDM 11.5.1, 11.6.1.
const LVTPC: u64 = 0xFEE0_0340;
const ICR_LOW: u64 = 0xFEE0_0300;
/// LVTPC: no interrupt.
const MASKED: u32 = 1 << 16;
/// LVTPC and ICR: mode and vector.
const MODE_AND_VECTOR: u32 = 0x7FF;
/// ICR: to the CPU that sends it.
const TO_SELF: u32 = 1 << 18;

/// Makes the local APIC of the current vCPU send the interrupt configured in LVTPC. `false`: it is
/// masked, or the APIC is not at its reset address.
fn deliver_pmi(vcpu: &Vcpu) -> bool {
    let Some(lvt) = state::physical(LVTPC).filter(|lvt| lvt & MASKED == 0) else {
        return false;
    };
    if vcpu.delivery_masks() && !state::set_physical(LVTPC, lvt | MASKED) {
        return false;
    }
    state::set_physical(ICR_LOW, TO_SELF | lvt & MODE_AND_VECTOR)
}
