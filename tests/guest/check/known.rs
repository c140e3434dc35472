//! Code of which every branch is known, with recording turned on right before
//! and off right after it: the program has no other branch in between.
#![allow(unsafe_code, reason = "known to the instruction: inline assembly")]

use std::io;
use std::os::fd::RawFd;

/// The addresses of a loop that ran.
pub(crate) struct Loop {
    /// Its branch.
    pub(crate) branch: u64,
    /// Where that goes.
    pub(crate) top: u64,
    /// Where the system call that turned recording on returned to.
    pub(crate) start: u64,
}

/// Runs a loop of two instructions a given number of times.
pub(crate) fn run_loop(
    fd: RawFd,
    control: u32,
    on: u64,
    off: u64,
    rounds: u64,
) -> io::Result<Loop> {
    let (branch, top, start): (u64, u64, u64);
    let (first, second): (i64, i64);
    // SAFETY: two pwrite system calls of 8 bytes each from the two values
    // named, and a loop that counts a register down.
    unsafe {
        core::arch::asm!(
            "mov eax, 18",
            "mov edx, 8",
            "syscall",
            "4:",
            "mov r8, rax",
            "2:",
            "dec {rounds}",
            "3:",
            "jnz 2b",
            "mov eax, 18",
            "mov rsi, {off}",
            "syscall",
            "mov r9, rax",
            "lea {branch}, [rip + 3b]",
            "lea {top}, [rip + 2b]",
            "lea {start}, [rip + 4b]",
            rounds = inout(reg) rounds => _,
            off = in(reg) &raw const off,
            branch = out(reg) branch,
            top = out(reg) top,
            start = out(reg) start,
            in("rdi") i64::from(fd),
            inout("rsi") &raw const on => _,
            in("r10") u64::from(control),
            out("rdx") _,
            out("rax") _,
            out("r8") first,
            out("r9") second,
            out("rcx") _,
            out("r11") _,
        );
    }
    succeeded(first, second)?;
    Ok(Loop { branch, top, start })
}

/// The addresses of a call that was made.
pub(crate) struct Call {
    /// Of the call instruction.
    pub(crate) from: u64,
    /// Where the callee returns to.
    pub(crate) back: u64,
}

/// Calls `entry`.
///
/// # Safety
/// There must be code at `entry` that returns with the stack as it was, and
/// that changes no register but RAX, RCX and RDX.
pub(crate) unsafe fn run_call(
    fd: RawFd,
    control: u32,
    on: u64,
    off: u64,
    entry: u64,
) -> io::Result<Call> {
    let (from, back): (u64, u64);
    let (first, second): (i64, i64);
    // SAFETY: two pwrite system calls of 8 bytes each from the two values
    // named; the caller vouches for the code between.
    unsafe {
        core::arch::asm!(
            "mov eax, 18",
            "mov edx, 8",
            "syscall",
            "mov r8, rax",
            "2:",
            "call {entry}",
            "3:",
            "mov eax, 18",
            "mov edx, 8",
            "mov rsi, {off}",
            "syscall",
            "mov r9, rax",
            "lea {from}, [rip + 2b]",
            "lea {back}, [rip + 3b]",
            entry = in(reg) entry,
            off = in(reg) &raw const off,
            from = out(reg) from,
            back = out(reg) back,
            in("rdi") i64::from(fd),
            inout("rsi") &raw const on => _,
            in("r10") u64::from(control),
            out("rdx") _,
            out("rax") _,
            out("r8") first,
            out("r9") second,
            out("rcx") _,
            out("r11") _,
        );
    }
    succeeded(first, second)?;
    Ok(Call { from, back })
}

/// The addresses of a load that ran.
pub(crate) struct Load {
    /// Of the load.
    pub(crate) load: u64,
    /// Where the system call that turned recording on returned to.
    pub(crate) start: u64,
    /// Of the system call that turned it off.
    pub(crate) end: u64,
}

/// Loads from memory that has not been touched yet, which faults once.
pub(crate) fn run_load(fd: RawFd, control: u32, on: u64, off: u64) -> io::Result<Load> {
    const PAGE: usize = 4096;
    let (load, start, end): (u64, u64, u64);
    let (first, second): (i64, i64);
    // SAFETY: a new page is mapped, loaded from and unmapped again; two pwrite
    // system calls of 8 bytes each from the two values named.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        core::arch::asm!(
            "mov eax, 18",
            "mov edx, 8",
            "syscall",
            "4:",
            "mov r8, rax",
            "2:",
            "mov rax, [{page}]",
            "mov eax, 18",
            "mov edx, 8",
            "mov rsi, {off}",
            "3:",
            "syscall",
            "mov r9, rax",
            "lea {load}, [rip + 2b]",
            "lea {start}, [rip + 4b]",
            "lea {end}, [rip + 3b]",
            page = in(reg) page,
            off = in(reg) &raw const off,
            load = out(reg) load,
            start = out(reg) start,
            end = out(reg) end,
            in("rdi") i64::from(fd),
            inout("rsi") &raw const on => _,
            in("r10") u64::from(control),
            out("rdx") _,
            out("rax") _,
            out("r8") first,
            out("r9") second,
            out("rcx") _,
            out("r11") _,
        );
        libc::munmap(page, PAGE);
    }
    succeeded(first, second)?;
    Ok(Load { load, start, end })
}

/// The results of the two system calls.
fn succeeded(first: i64, second: i64) -> io::Result<()> {
    for result in [first, second] {
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result as i32));
        }
    }
    Ok(())
}
