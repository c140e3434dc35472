//! Each kernel as code.
//!
//! The code is a function of one argument, the [`Frame`]. It switches
//! recording on and off by system calls of its own: no code but the kernel's
//! runs in between in user mode. R15 holds the frame, R12 the data, RBP the
//! stack as it was.

use std::mem::offset_of;

use lbr_msr::record::HwBranchType::{Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::soft::machine::Event;

use super::super::{Kernel, Known};
use super::assembler::{Assembler, Label};

/// What the code takes and gives. The code counts its fields.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Frame {
    /// The system call: pwrite64, or another one that does nothing.
    pub(super) number: u64,
    pub(super) descriptor: u64,
    /// The control register.
    pub(super) msr: u64,
    /// Its value with recording on and off.
    pub(super) on: u64,
    pub(super) off: u64,
    /// What the two system calls returned.
    pub(super) returned: [i64; 2],
    /// What the kernel reads.
    pub(super) data: u64,
    /// A register of the test machine, and what is written to it.
    pub(super) event_msr: u64,
    pub(super) event: u64,
    /// A transaction was aborted, and RAX after it.
    pub(super) aborted: u64,
    pub(super) abort_status: u64,
}

/// RAX after XABORT has bit 0 set. SDM Vol. 1 16.3.5.
pub(super) const EXPLICIT_ABORT: u64 = 1;

/// Branches that a predictor may learn from before those that count.
const LEARNING: u32 = 64;

/// A kernel, ready to be put somewhere.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) code: Assembler,
    /// See [`Ran::before_event`](super::super::Ran::before_event).
    pub(super) before_event: Option<usize>,
    /// The bytes that [`Frame::data`] points to, drawn anew for each run:
    /// which conditional branches are taken.
    pub(super) choices: Vec<u8>,
    /// [`Frame::data`] points to a page that nobody has touched.
    pub(super) fault: bool,
}

/// A displacement of a field of the frame.
const fn field(offset: usize) -> u8 {
    assert!(offset < 128);
    offset as u8
}

const NUMBER: u8 = field(offset_of!(Frame, number));
const DESCRIPTOR: u8 = field(offset_of!(Frame, descriptor));
const MSR: u8 = field(offset_of!(Frame, msr));
const ON: u8 = field(offset_of!(Frame, on));
const OFF: u8 = field(offset_of!(Frame, off));
const RETURNED: u8 = field(offset_of!(Frame, returned));
const DATA: u8 = field(offset_of!(Frame, data));
const EVENT_MSR: u8 = field(offset_of!(Frame, event_msr));
const EVENT: u8 = field(offset_of!(Frame, event));
const ABORTED: u8 = field(offset_of!(Frame, aborted));
const ABORT_STATUS: u8 = field(offset_of!(Frame, abort_status));

/// mov rax, [r15 + number]; mov rdi, [r15 + descriptor];
/// lea rsi, [r15 + `value`]; mov edx, 8; mov r10, [r15 + `msr`]
fn arguments(code: &mut Assembler, value: u8, msr: u8) {
    code.raw(&[0x49, 0x8B, 0x47, NUMBER]);
    code.raw(&[0x49, 0x8B, 0x7F, DESCRIPTOR]);
    code.raw(&[0x49, 0x8D, 0x77, value]);
    code.raw(&[0xBA, 8, 0, 0, 0]);
    code.raw(&[0x4D, 0x8B, 0x57, msr]);
}

/// Up to the instruction that switches recording on, and behind it.
fn enter(code: &mut Assembler) {
    // push rbp; mov rbp, rsp; push rbx; push r12; push r13; push r14; push r15
    code.raw(&[0x55, 0x48, 0x89, 0xE5, 0x53, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]);
    // mov r15, rdi; mov r12, [r15 + data]
    code.raw(&[0x49, 0x89, 0xFF, 0x4D, 0x8B, 0x67, DATA]);
    arguments(code, ON, MSR);
    // syscall; mov [r15 + returned], rax
    code.raw(&[0x0F, 0x05, 0x49, 0x89, 0x47, RETURNED]);
}

/// Switches recording off and returns to the caller.
fn leave(code: &mut Assembler) {
    arguments(code, OFF, MSR);
    // syscall; mov [r15 + returned + 8], rax
    code.raw(&[0x0F, 0x05, 0x49, 0x89, 0x47, RETURNED + 8]);
    // lea rsp, [rbp - 40]; pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp; ret
    code.raw(&[0x48, 0x8D, 0x65, 0xD8, 0x41, 0x5F, 0x41, 0x5E, 0x41, 0x5D, 0x41, 0x5C]);
    code.raw(&[0x5B, 0x5D, 0xC3]);
}

fn jumps(code: &mut Assembler, count: u32) {
    for _ in 0..count {
        let next = code.label();
        code.jump(next);
        code.place(next);
    }
}

impl Program {
    /// The code of a kernel.
    pub(super) fn of(kernel: Kernel) -> Program {
        let mut code = Assembler::default();
        let mut program = Program {
            code: Assembler::default(),
            before_event: None,
            choices: Vec::new(),
            fault: false,
        };
        enter(&mut code);
        match kernel {
            Kernel::Jumps(count) => jumps(&mut code, count),
            Kernel::EveryClass => every_class(&mut code),
            Kernel::Calls { calls, returns } => {
                calls_and_returns(&mut code, calls, returns.min(calls))
            }
            Kernel::Leaves(count) => leaves(&mut code, count),
            Kernel::ZeroLengthCall => zero_length_call(&mut code),
            Kernel::Predictable(count) => predictable(&mut code, count.saturating_add(LEARNING)),
            Kernel::Unpredictable(count) => program.choices = unpredictable(&mut code, count),
            Kernel::Chain(length) => chain(&mut code, length),
            Kernel::Transaction { abort } => transaction(&mut code, abort),
            Kernel::KernelAddresses => get_process_id(&mut code),
            Kernel::Exception => {
                jumps(&mut code, 2);
                program.before_event = Some(code.count());
                program.fault = true;
                // mov al, [r12]
                let at = code.here();
                code.raw(&[0x41, 0x8A, 0x04, 0x24]);
                code.took_kernel(at, at);
            }
            Kernel::AroundPmi => {
                program.before_event = Some(around_event(&mut code));
                jumps(&mut code, 1);
            }
            Kernel::AroundSmi => program.before_event = Some(around_event(&mut code)),
        }
        leave(&mut code);
        Program { code, ..program }
    }

    /// What the test machine has to bring about in the midst of a kernel.
    pub(super) const fn event(kernel: Kernel) -> Option<Event> {
        match kernel {
            Kernel::AroundPmi => Some(Event::Pmi),
            Kernel::AroundSmi => Some(Event::Smi),
            _ => None,
        }
    }

    /// Which of the conditional branches of [`Kernel::Unpredictable`] are
    /// taken: `choices`, one byte for each.
    pub(super) fn choose(branches: &[Known], choices: &[u8]) -> Vec<Known> {
        let taken = |choice: Option<&u8>| choice.is_none_or(|choice| choice & 1 != 0);
        let chosen = branches.iter().enumerate().filter(|(i, _)| taken(choices.get(*i)));
        chosen.map(|(_, branch)| *branch).collect()
    }
}

fn every_class(code: &mut Assembler) {
    let [jump, indirect, call, back, leaf, last] = [(); 6].map(|()| code.label());
    // xor eax, eax; jz
    code.raw(&[0x31, 0xC0]);
    let at = code.relative(&[0x0F, 0x84], jump);
    code.took(at, jump, Cond);
    code.place(jump);
    code.jump(indirect);
    code.place(indirect);
    code.address_to_rbx(call);
    jump_to_rbx(code, call);
    code.place(call);
    let at = code.call(leaf);
    code.took(at, leaf, RelCall);
    code.bind(back);
    code.address_to_rbx(last);
    let to_last = code.here();
    code.raw(&[0xFF, 0xD3]);
    code.place(leaf);
    let at = code.here();
    code.raw(&[0xC3]);
    code.took(at, back, Ret);
    code.took(to_last, last, IndCall);
    code.place(last);
    get_process_id(code);
}

fn jump_to_rbx(code: &mut Assembler, to: Label) {
    let at = code.here();
    code.raw(&[0xFF, 0xE3]);
    code.took(at, to, IndJmp);
}

/// A system call that does next to nothing.
fn get_process_id(code: &mut Assembler) {
    // mov eax, 39
    code.raw(&[0xB8, 39, 0, 0, 0]);
    code.system_call();
}

fn calls_and_returns(code: &mut Assembler, calls: u32, returns: u32) {
    let levels: Vec<Label> = (0..=calls).map(|_| code.label()).collect();
    let mut behind = Vec::new();
    let mut rets = Vec::new();
    // The level that the last return comes back to.
    let last = calls - returns;
    for (level, next) in (0..calls).zip(levels.iter().skip(1)) {
        let at = if level % 2 == 0 {
            code.call(*next)
        } else {
            code.address_to_rbx(*next);
            let at = code.here();
            code.raw(&[0xFF, 0xD3]);
            at
        };
        code.took(at, *next, if level % 2 == 0 { RelCall } else { IndCall });
        let back = code.label();
        code.bind(back);
        behind.push(back);
        rets.push(code.here());
        if level > last {
            code.raw(&[0xC3]);
        } else if level == last {
            leave(code);
        }
        code.place(*next);
    }
    rets.push(code.here());
    if returns > 0 {
        code.raw(&[0xC3]);
    }
    for (ret, back) in rets.iter().skip(1).rev().zip(behind.iter().rev()).take(returns as usize) {
        code.took(*ret, *back, Ret);
    }
}

fn leaves(code: &mut Assembler, count: u32) {
    let [outer, leaf] = [(); 2].map(|()| code.label());
    let at = code.call(outer);
    code.took(at, outer, RelCall);
    code.place(leaf);
    let ret = code.here();
    code.raw(&[0xC3]);
    code.place(outer);
    for _ in 0..count {
        let at = code.call(leaf);
        code.took(at, leaf, RelCall);
        let back = code.label();
        code.bind(back);
        code.took(ret, back, Ret);
    }
}

fn zero_length_call(code: &mut Assembler) {
    let [outer, next] = [(); 2].map(|()| code.label());
    let at = code.call(outer);
    code.took(at, outer, RelCall);
    code.place(outer);
    let at = code.call(next);
    code.bind(next);
    code.took_like(at, next, Known { zero_length_call: true, ..Known::user(0, 0, RelCall) });
    // lea rsp, [rsp + 8]
    code.raw(&[0x48, 0x8D, 0x64, 0x24, 8]);
}

fn predictable(code: &mut Assembler, count: u32) {
    // mov ecx, count + 1; around: dec ecx; jnz around
    code.raw(&[0xB9]);
    code.raw(&count.saturating_add(1).to_le_bytes());
    let around = code.label();
    code.bind(around);
    code.raw(&[0xFF, 0xC9]);
    let at = code.relative(&[0x0F, 0x85], around);
    for _ in 0..count {
        code.took(at, around, Cond);
    }
}

/// Twice as many branches as are taken. All are noted; which are taken is
/// chosen for each run.
fn unpredictable(code: &mut Assembler, count: u32) -> Vec<u8> {
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

fn chain(code: &mut Assembler, length: u32) {
    let [start, end] = [(); 2].map(|()| code.label());
    code.jump(start);
    code.place(start);
    for _ in 0..length {
        // not eax: one cycle, and nothing that a CPU leaves out when it
        // renames registers, as some do with additions of constants.
        code.raw(&[0xF7, 0xD0]);
    }
    code.jump(end);
    code.place(end);
}

fn transaction(code: &mut Assembler, abort: bool) {
    let [inside, fallback] = [(); 2].map(|()| code.label());
    // xbegin fallback
    code.relative(&[0xC7, 0xF8], fallback);
    let like = Known { in_tx: true, ..Known::user(0, 0, RelJmp) };
    let at = code.relative(&[0xE9], inside);
    code.took_like(at, inside, like);
    code.place(inside);
    if abort {
        let at = code.here();
        // xabort 0
        code.raw(&[0xC6, 0xF8, 0]);
        let like = Known { abort: true, in_tx: true, ..Known::user(0, 0, Other) };
        code.took_like(at, fallback, like);
    } else {
        // xend
        code.raw(&[0x0F, 0x01, 0xD5]);
    }
    leave(code);
    code.place(fallback);
    // mov [r15 + abort_status], rax; mov qword [r15 + aborted], 1
    code.raw(&[0x49, 0x89, 0x47, ABORT_STATUS]);
    code.raw(&[0x49, 0xC7, 0x47, ABORTED, 1, 0, 0, 0]);
}

/// Three jumps and an event, brought about by a system call; how many branches
/// came before it.
fn around_event(code: &mut Assembler) -> usize {
    jumps(code, 3);
    arguments(code, EVENT, EVENT_MSR);
    code.system_call();
    code.count() - 1
}
