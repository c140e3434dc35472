//! Generates each kernel's code in the [frame](crate::code::frame) that switches recording on and
//! off. In user mode only the kernel's own code branches in between.

use lbr_msr::record::HwBranchType::{Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::soft::Retired;
use lbr_msr::soft::machine::{self, Event};
use nix::libc;

use super::super::{Kernel, Known};
use super::noted::Noted;
use crate::code::assembler::Gpr;
use crate::code::assembler::{Assembler, Label};
use crate::code::frame::{CODE, Ends, enter, leave, write_register};
use crate::code::memory::PAGE;

/// The register that holds the address of [`KernelCode::choices`].
pub(super) const CHOICES: Gpr = Gpr::R12;
/// The register that is 1 after a transaction was aborted; RAX then has the CPU's abort status.
pub(super) const ABORTED: Gpr = Gpr::R13;
/// RAX after XABORT has bit 0 set. SDM Vol. 1 16.3.5.
pub(super) const EXPLICIT_ABORT: u64 = 1;

/// Branches to train a predictor before those that count.
const LEARNING: u32 = 64;

/// Switches recording, reads no counters.
const ENDS: Ends = Ends { switches: true, counters: false };

/// A kernel's code, not yet mapped.
#[derive(Debug)]
pub(super) struct KernelCode {
    pub(super) code: Noted,
    /// The function.
    pub(super) entry: u64,
    /// Return address of the system call that switches recording on.
    #[cfg(test)]
    pub(super) switched: u64,
    /// See [`Ran::before_event`](super::super::Ran::before_event).
    pub(super) before_event: Option<usize>,
    /// Random bytes, renewed for each run: which conditional branches are taken.
    pub(super) choices: Vec<u8>,
}

fn jumps(code: &mut Noted, count: u32) {
    for _ in 0..count {
        let next = code.label();
        code.jumps(next);
        code.place(next);
    }
}

impl KernelCode {
    /// Generates a kernel's code.
    pub(super) fn of(kernel: Kernel) -> KernelCode {
        let mut code = Noted::at(CODE);
        let init = if kernel == Kernel::Exception { untouched_page() } else { Vec::new() };
        let entered = enter(&mut code, &init, ENDS);
        let (mut before_event, mut choices) = (None, Vec::new());
        match kernel {
            Kernel::Jumps(count) => jumps(&mut code, count),
            Kernel::EveryClass => every_class(&mut code),
            Kernel::Calls { calls, returns } => {
                calls_and_returns(&mut code, calls, returns.min(calls))
            }
            Kernel::Leaves(count) => leaves(&mut code, count),
            Kernel::ZeroLengthCall => zero_length_call(&mut code),
            Kernel::Predictable(count) => predictable(&mut code, count.saturating_add(LEARNING)),
            Kernel::Unpredictable(count) => choices = unpredictable(&mut code, count),
            Kernel::Chain(length) => chain(&mut code, length),
            Kernel::Transaction { abort } => transaction(&mut code, abort),
            Kernel::KernelAddresses => get_process_id(&mut code),
            Kernel::Exception => {
                jumps(&mut code, 2);
                before_event = Some(code.count());
                // mov al, [r14]
                let at = code.bound();
                code.raw(&[0x41, 0x8A, 0x06]);
                code.took_kernel(code.address_of(at), at);
            }
            Kernel::AroundPmi => {
                before_event = Some(around_event(&mut code, Event::Pmi));
                jumps(&mut code, 1);
            }
            Kernel::AroundSmi => before_event = Some(around_event(&mut code, Event::Smi)),
        }
        leave(&mut code, ENDS);
        KernelCode {
            code,
            entry: entered.entry,
            #[cfg(test)]
            switched: entered.switched,
            before_event,
            choices,
        }
    }

    /// Keeps the conditional branches of [`Kernel::Unpredictable`] that `choices`, one byte each,
    /// selects as taken.
    pub(super) fn choose(branches: &[Known], choices: &[u8]) -> Vec<Known> {
        let taken = |choice: Option<&u8>| choice.is_none_or(|choice| choice & 1 != 0);
        let chosen = branches.iter().enumerate().filter(|(i, _)| taken(choices.get(*i)));
        chosen.map(|(_, branch)| *branch).collect()
    }
}

/// madvise(R14, 4096, MADV_DONTNEED): the next access to that page faults.
fn untouched_page() -> Vec<u8> {
    let mut code = Assembler::at(0);
    code.raw(&[0x4C, 0x89, 0xF7]); // mov rdi, r14
    code.constant(Gpr::Rsi, PAGE as u32);
    code.constant(Gpr::Rdx, libc::MADV_DONTNEED as u32);
    code.constant(Gpr::Rax, libc::SYS_madvise as u32);
    code.syscall();
    code.finish()
}

fn every_class(code: &mut Noted) {
    let [jump, indirect, call, leaf, last] = [(); 5].map(|()| code.label());
    // xor eax, eax; jz
    code.raw(&[0x31, 0xC0]);
    let at = code.relative(&[0x0F, 0x84], jump);
    code.took(at, jump, Cond);
    code.place(jump);
    code.jumps(indirect);
    code.place(indirect);
    address_to_rbx(code, call);
    let at = code.here();
    code.raw(&[0xFF, 0xE3]); // jmp rbx
    code.took(at, call, IndJmp);
    code.place(call);
    code.calls(leaf);
    let back = code.bound();
    let to_last = call_rbx(code, last);
    code.place(leaf);
    let at = code.here();
    code.ret();
    code.took(at, back, Ret);
    code.took(to_last, last, IndCall);
    code.place(last);
    get_process_id(code);
}

/// `lea rbx, [label]`
fn address_to_rbx(code: &mut Noted, of: Label) {
    code.relative(&[0x48, 0x8D, 0x1D], of);
}

/// An indirect call of a label; its address.
fn call_rbx(code: &mut Noted, to: Label) -> u64 {
    address_to_rbx(code, to);
    let at = code.here();
    code.raw(&[0xFF, 0xD3]);
    at
}

/// A cheap system call.
fn get_process_id(code: &mut Noted) {
    code.constant(Gpr::Rax, libc::SYS_getpid as u32);
    code.system_call();
}

fn calls_and_returns(code: &mut Noted, calls: u32, returns: u32) {
    let levels: Vec<Label> = (0..=calls).map(|_| code.label()).collect();
    let mut behind = Vec::new();
    let mut rets = Vec::new();
    // The level that the last return goes to.
    let last = calls - returns;
    for (level, next) in (0..calls).zip(levels.iter().skip(1)) {
        if level % 2 == 0 {
            code.calls(*next);
        } else {
            let at = call_rbx(code, *next);
            code.took(at, *next, IndCall);
        }
        behind.push(code.bound());
        rets.push(code.here());
        if level > last {
            code.ret();
        } else if level == last {
            leave(code, ENDS);
        }
        code.place(*next);
    }
    rets.push(code.here());
    if returns > 0 {
        code.ret();
    }
    for (ret, back) in rets.iter().skip(1).rev().zip(behind.iter().rev()).take(returns as usize) {
        code.took(*ret, *back, Ret);
    }
}

fn leaves(code: &mut Noted, count: u32) {
    let [outer, leaf] = [(); 2].map(|()| code.label());
    code.calls(outer);
    code.place(leaf);
    let ret = code.here();
    code.ret();
    code.place(outer);
    for _ in 0..count {
        code.calls(leaf);
        let back = code.bound();
        code.took(ret, back, Ret);
    }
}

fn zero_length_call(code: &mut Noted) {
    let [outer, next] = [(); 2].map(|()| code.label());
    code.calls(outer);
    code.place(outer);
    let at = code.call(next);
    code.bind(next);
    code.took_like(at, next, Retired { zero_length_call: true, ..Retired::user(0, 0, RelCall) });
    // lea rsp, [rsp + 8]
    code.raw(&[0x48, 0x8D, 0x64, 0x24, 8]);
}

fn predictable(code: &mut Noted, count: u32) {
    code.constant(Gpr::Rcx, count.saturating_add(1));
    let around = code.bound();
    let at = code.count_down(Gpr::Rcx, around);
    for _ in 0..count {
        code.took(at, around, Cond);
    }
}

/// Writes twice as many branches as will be taken, and notes all; each run chooses which are taken.
fn unpredictable(code: &mut Noted, count: u32) -> Vec<u8> {
    for site in 0..count.saturating_mul(2) {
        let to = code.label();
        // test byte [r12 + site], 1; jnz to
        code.raw(&[0x41, 0xF6, 0x84, 0x24]);
        code.raw(&site.to_le_bytes());
        code.raw(&[1]);
        let at = code.relative(&[0x0F, 0x85], to);
        code.took(at, to, Cond);
        // nop
        code.raw(&[0x90]);
        code.bind(to);
    }
    (0..count).flat_map(|_| [0, 1]).collect()
}

fn chain(code: &mut Noted, length: u32) {
    let [start, end] = [(); 2].map(|()| code.label());
    code.jumps(start);
    code.place(start);
    for _ in 0..length {
        // not eax: one cycle. CPUs do not eliminate it during register renaming, as some do
        // additions of constants.
        code.raw(&[0xF7, 0xD0]);
    }
    code.jumps(end);
    code.place(end);
}

fn transaction(code: &mut Noted, abort: bool) {
    let [inside, fallback] = [(); 2].map(|()| code.label());
    // xbegin fallback
    code.relative(&[0xC7, 0xF8], fallback);
    let like = Retired { in_tx: true, ..Retired::user(0, 0, RelJmp) };
    let at = code.jump(inside);
    code.took_like(at, inside, like);
    code.place(inside);
    if abort {
        let at = code.here();
        // xabort 0
        code.raw(&[0xC6, 0xF8, 0]);
        let like = Retired { abort: true, in_tx: true, ..Retired::user(0, 0, Other) };
        code.took_like(at, fallback, like);
    } else {
        // xend
        code.raw(&[0x0F, 0x01, 0xD5]);
    }
    leave(code, ENDS);
    code.place(fallback);
    code.constant(ABORTED, 1);
}

/// Three jumps and an event of the test machine, triggered by a system call; returns the number of
/// branches before it.
fn around_event(code: &mut Noted, event: Event) -> usize {
    jumps(code, 3);
    // push event; mov rsi, rsp
    code.raw(&[0x6A, event as u8, 0x48, 0x89, 0xE6]);
    code.constant(Gpr::R10, machine::EVENT.0);
    write_register(code);
    code.system_call();
    code.count() - 1
}
