//! The ptrace requests that nix lacks, or supports without real-time signals.
#![allow(unsafe_code, reason = "raw ptrace(2) and waitpid(2)")]

use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::code::{LONGEST, bytes_at};
use crate::target::{Doing, SignalStop, SourceError};

/// RFLAGS.TF.
pub const TRAP_FLAG: u64 = 1 << 8;

/// RFLAGS.RF: the next instruction executes despite a breakpoint at its address.
pub(super) const RESUME_FLAG: u64 = 1 << 16;

/// Offset of the flags in a signal handler's frame, from RSP at its first instruction (the
/// `ucontext` follows, Linux arch/x86/include/uapi/asm/sigcontext.h). For rt_sigreturn RSP is one
/// word higher.
pub(super) const SAVED_FLAGS: u64 = 8 + 176;

/// Whether rt_sigreturn will restore a set trap flag.
pub(super) fn saved_trap_flag(tid: i32, rsp: u64) -> bool {
    let address = rsp.wrapping_add(SAVED_FLAGS - 8) as ptrace::AddressType;
    let word = ptrace::read(Pid::from_raw(tid), address);
    word.is_ok_and(|word| word.cast_unsigned() & TRAP_FLAG != 0)
}

/// Sets or clears the trap flag in the flags that were just pushed at `address`: a step has set it
/// in them, and a later POPF or rt_sigreturn would set it permanently.
pub fn put_trap_flag(tid: i32, address: u64, is_set: bool) {
    let (pid, address) = (Pid::from_raw(tid), address as ptrace::AddressType);
    if let Ok(word) = ptrace::read(pid, address) {
        let flag = if is_set { TRAP_FLAG } else { 0 };
        let put = word.cast_unsigned() & !TRAP_FLAG | flag;
        // The word was just pushed, so it is writable.
        let _ = ptrace::write(pid, address, put.cast_signed());
    }
}

/// The sender of the signal that a stopped thread is about to get; 0 is the kernel.
pub fn sender(tid: i32) -> i32 {
    // SAFETY: for SIGINT and SIGTERM from any sender, these bytes are the sender; for others they
    // are some number.
    ptrace::getsiginfo(Pid::from_raw(tid)).map_or(0, |info| unsafe { info.si_pid() })
}

/// A stopped thread's next instruction and registers.
///
/// # Errors
/// The system's error.
pub(super) fn state(tid: i32, signal: i32) -> Result<SignalStop, SourceError> {
    let r = ptrace::getregs(Pid::from_raw(tid)).doing("reading registers")?;
    let registers = Some([
        r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15, r.rip, r.eflags,
    ]);
    let code_bytes = bytes_at(tid, r.rip, LONGEST);
    Ok(SignalStop { signal, ip: r.rip, registers, code_bytes, ..SignalStop::default() })
}

/// The signal that a stopped thread is about to get.
///
/// # Errors
/// The system's error.
pub fn signal_stop(tid: i32, signal: i32) -> Result<SignalStop, SourceError> {
    let stop = state(tid, signal)?;
    let Ok(info) = ptrace::getsiginfo(Pid::from_raw(tid)) else { return Ok(stop) };
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
    // SAFETY: the kernel fills both fields for these codes: positive ones are a fault's, SI_USER
    // and SI_TKILL a process's. SI_KERNEL comes with neither.
    let (address, sender) = unsafe { (info.si_addr() as u64, info.si_pid()) };
    let is_fault = (1..libc::SI_KERNEL).contains(&info.si_code) && faults.contains(&info.si_signo);
    let is_sent = [libc::SI_USER, libc::SI_TKILL, libc::SI_QUEUE].contains(&info.si_code);
    let sender = is_sent.then_some(sender.unsigned_abs());
    Ok(SignalStop {
        code: Some(info.si_code),
        address: is_fault.then_some(address),
        sender,
        ..stop
    })
}

/// Sets the breakpoint of a stopped thread: it will stop before the instruction at `address`.
/// `before` is the current breakpoint.
///
/// # Errors
/// The system's error: debug registers are unavailable, or not permitted.
pub(super) fn break_at(tid: i32, before: Option<u64>, address: u64) -> Result<(), Errno> {
    /// DR7.L0, with the condition and length of an instruction (SDM Vol. 3, 18.2.4).
    const LOCAL_0: i64 = 1;
    let debug_register = |number: usize, value: i64| {
        let offset = std::mem::offset_of!(libc::user, u_debugreg) + 8 * number;
        ptrace::write_user(Pid::from_raw(tid), offset as ptrace::AddressType, value)
    };
    if before == Some(address) {
        return Ok(());
    }
    debug_register(0, address.cast_signed())?;
    if before.is_none() {
        debug_register(7, LOCAL_0)?;
    }
    Ok(())
}

/// A request without data, or with a signal number as data.
fn request(request: libc::c_uint, tid: i32, data: i32) -> Result<(), Errno> {
    // SAFETY: none of these requests accesses our memory: address and data are plain numbers.
    let done =
        unsafe { libc::ptrace(request, tid, ptr::null_mut::<libc::c_void>(), data as usize) };
    Errno::result(done).map(drop)
}

/// Runs a stopped thread for one instruction, delivering `signal` (0: none).
///
/// # Errors
/// The system's error.
pub fn step(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SINGLESTEP, tid, signal)
}

/// Runs a stopped thread at full speed, delivering `signal`.
///
/// # Errors
/// The system's error.
pub fn cont(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_CONT, tid, signal)
}

/// Runs a stopped thread to the next entry or exit of a system call.
pub(super) fn to_syscall(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_SYSCALL, tid, 0)
}

/// Detaches from a stopped thread, delivering `signal`.
pub(super) fn detach(tid: i32, signal: i32) -> Result<(), Errno> {
    request(libc::PTRACE_DETACH, tid, signal)
}

/// Success also if the thread was killed: waiting reports how.
pub(in crate::source) fn unless_gone(
    done: Result<(), Errno>,
    what: &str,
) -> Result<(), SourceError> {
    match done {
        Err(Errno::ESRCH) => Ok(()),
        done => done.doing(what),
    }
}

/// Leaves a thread in its group stop, until SIGCONT.
///
/// # Errors
/// The system's error.
pub fn listen(tid: i32) -> Result<(), Errno> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// Unblocks SIGTRAP in a stopped thread's signal mask.
///
/// The kernel forces the step's SIGTRAP through: if it is blocked, the program's handler for it
/// would be reset to the default.
pub(super) fn unblock_sigtrap(tid: i32) -> Result<(), Errno> {
    const SIZE: usize = size_of::<u64>();
    let mut mask = 0u64;
    let sigtrap = 1u64 << (libc::SIGTRAP - 1);
    // SAFETY: both requests take the size of the kernel's signal set, 8 bytes on x86-64, and a
    // pointer to that many bytes.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, tid, SIZE, &raw mut mask) };
    Errno::result(done)?;
    if mask & sigtrap == 0 {
        return Ok(());
    }
    mask &= !sigtrap;
    // SAFETY: as above.
    let done = unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, tid, SIZE, &raw mut mask) };
    Errno::result(done).map(drop)
}

/// Waits for any child or tracee of **this thread**, not of other threads. Returns the thread and
/// its wait status.
pub(super) fn wait() -> Result<(i32, i32), Errno> {
    waitpid(-1, libc::__WNOTHREAD)
}

/// Checks once whether a child or tracee has changed state; returns its wait status.
///
/// # Errors
/// The system's error.
pub fn look_for(tid: i32) -> Result<Option<i32>, Errno> {
    waitpid(tid, libc::WNOHANG).map(|(found, status)| (found != 0).then_some(status))
}

fn waitpid(tid: i32, flags: i32) -> Result<(i32, i32), Errno> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the result.
        let found = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | flags) };
        match Errno::result(found) {
            Err(Errno::EINTR) => {}
            result => return result.map(|found| (found, status)),
        }
    }
}

/// The code segment of 64-bit programs, Linux arch/x86/include/asm/segment.h.
pub(super) const USER_CS: u64 = 0x33;
