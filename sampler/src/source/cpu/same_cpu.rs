//! The wait of a sampler that shares the CPU with its target: thaw, sleep, freeze, without taking a
//! branch.
//!
//! Every user-mode branch of the sampler between thaw and freeze is recorded like any other of that
//! CPU. One `pread` of libc takes up to nine taken branches in a multi-threaded program, so four of
//! them overwrite an LBR of 32. Therefore the system calls are consecutive instructions here, and
//! their results are checked afterwards.
#![allow(unsafe_code, reason = "four system calls in one block of assembly")]

use std::arch::asm;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use lbr_msr::access::Access;
use lbr_msr::{Msr, MsrError};
use nix::libc;

use super::RecordUntil;

/// Arguments and results of the four system calls. The assembly uses its field offsets.
#[repr(C)]
struct CallFrame {
    /// The control register value that enables recording.
    thawed: u64,
    /// Its value at the end of the sleep.
    seen: u64,
    /// The bits to keep when disabling recording.
    keep: u64,
    /// `seen & keep`.
    frozen: u64,
    /// The end of the sleep, CLOCK_MONOTONIC.
    deadline: [i64; 2],
    /// The results of pwrite, clock_nanosleep, pread and pwrite.
    returned: [i64; 4],
}

/// The control register of an LBR, through the `msr` driver.
#[derive(Clone, Copy, Debug)]
pub struct Control<'a> {
    /// `/dev/cpu/N/msr`, open for reading and writing.
    pub descriptor: BorrowedFd<'a>,
    /// The logical CPU.
    pub cpu: u32,
    /// The register.
    pub msr: Msr,
    /// Its enable bits.
    pub enable: u64,
}

impl RecordUntil for Control<'_> {
    fn record_until(&mut self, thawed: u64, deadline: Duration) -> Result<u64, MsrError> {
        let mut frame = CallFrame {
            thawed,
            // Stays unchanged if the read fails.
            seen: thawed,
            keep: !self.enable,
            frozen: 0,
            deadline: [
                i64::try_from(deadline.as_secs()).unwrap_or(i64::MAX),
                i64::from(deadline.subsec_nanos()),
            ],
            returned: [0; 4],
        };
        row(&mut frame, self.descriptor.as_raw_fd(), self.msr);
        let [thaw, _, read, freeze] = frame.returned;
        let check = |returned, access| transferred(returned, self.cpu, self.msr, access);
        check(thaw, Access::Write)?;
        check(read, Access::Read)?;
        check(freeze, Access::Write)?;
        Ok(frame.seen)
    }
}

/// Checks the result of a system call that reads or writes a register: eight bytes, or a negative
/// errno.
///
/// # Errors
/// The meaning of the errno, as in [`Device`](lbr_msr::access::Device).
pub fn transferred(returned: i64, cpu: u32, msr: Msr, access: Access) -> Result<(), MsrError> {
    match i32::try_from(returned) {
        Ok(8) => Ok(()),
        Ok(errno) if errno == -libc::EIO => Err(MsrError::Fault { cpu, msr, access }),
        Ok(errno) if errno == -libc::ENXIO => Err(MsrError::Offline { cpu }),
        Ok(errno) if errno == -libc::EPERM => Err(MsrError::WriteFiltered {
            msr,
            why: "kernel lockdown is active or msr.allow_writes=off".to_owned(),
        }),
        Ok(errno) if errno < 0 => {
            let cause = io::Error::from_raw_os_error(-errno).to_string();
            Err(MsrError::Os { cpu, msr, access, cause })
        }
        _ => {
            let cause = format!("{returned} bytes were transferred instead of 8");
            Err(MsrError::Os { cpu, msr, access, cause })
        }
    }
}

/// The four system calls. Not inlined, so that a test can find it by name in a program and inspect
/// its instructions.
#[inline(never)]
fn row(frame: &mut CallFrame, descriptor: i32, msr: Msr) {
    // SAFETY: the system calls access only `frame`, at offsets inside it (asserted below), for 8
    // and 16 bytes; `frame` is mutably borrowed for the whole block. A Linux system call changes
    // rax, rcx, r11 and the memory it was given; all other registers are preserved inputs.
    unsafe {
        asm!(
            // pwrite64(descriptor, &frame.thawed, 8, msr)
            "mov eax, {pwrite}",
            "mov rsi, r8",
            "mov edx, 8",
            "mov r10, r9",
            "syscall",
            "mov [r8 + {returned}], rax",
            // clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &frame.deadline, NULL)
            "mov r12, rdi",
            "mov eax, {sleep}",
            "mov edi, {clock}",
            "mov esi, {absolute}",
            "lea rdx, [r8 + {deadline}]",
            "xor r10d, r10d",
            "syscall",
            "mov [r8 + {returned} + 8], rax",
            // pread64(descriptor, &frame.seen, 8, msr)
            "mov eax, {pread}",
            "mov rdi, r12",
            "lea rsi, [r8 + {seen}]",
            "mov edx, 8",
            "mov r10, r9",
            "syscall",
            "mov [r8 + {returned} + 16], rax",
            // frame.frozen = frame.seen & frame.keep
            "mov rax, [r8 + {seen}]",
            "and rax, [r8 + {keep}]",
            "mov [r8 + {frozen}], rax",
            // pwrite64(descriptor, &frame.frozen, 8, msr)
            "mov eax, {pwrite}",
            "mov rdi, r12",
            "lea rsi, [r8 + {frozen}]",
            "mov edx, 8",
            "mov r10, r9",
            "syscall",
            "mov [r8 + {returned} + 24], rax",
            pwrite = const libc::SYS_pwrite64,
            pread = const libc::SYS_pread64,
            sleep = const libc::SYS_clock_nanosleep,
            clock = const libc::CLOCK_MONOTONIC,
            absolute = const libc::TIMER_ABSTIME,
            seen = const std::mem::offset_of!(CallFrame, seen),
            keep = const std::mem::offset_of!(CallFrame, keep),
            frozen = const std::mem::offset_of!(CallFrame, frozen),
            deadline = const std::mem::offset_of!(CallFrame, deadline),
            returned = const std::mem::offset_of!(CallFrame, returned),
            in("r8") std::ptr::from_mut(frame),
            in("r9") u64::from(msr.0),
            inout("rdi") i64::from(descriptor) => _,
            out("rsi") _,
            out("rdx") _,
            out("r10") _,
            out("r12") _,
            out("rax") _,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
}

/// The address range of that function's code, with a margin: after each system call the kernel
/// returns to it with recording on.
pub(super) fn ours() -> Range<u64> {
    let start = row as fn(&mut CallFrame, i32, Msr) as usize as u64;
    start..start.saturating_add(LONGEST)
}

/// An upper bound for the size of that function; checked by a test.
const LONGEST: u64 = 512;

const _: () = assert!(std::mem::offset_of!(CallFrame, thawed) == 0);

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu/same_cpu.rs"]
mod tests;
