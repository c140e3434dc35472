//! Recorders that are killed, with registers that survive them.
#![allow(unsafe_code, reason = "fork, for recorders that die")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};
use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2, setpgid};

const DEBUGCTL: Msr = Msr(0x1D9);
const SELECT: Msr = Msr(0x1C8);

/// Registers in a file, each at eight times its address: like a CPU's, they survive the process
/// that writes them.
#[derive(Debug)]
pub(crate) struct Filed {
    file: File,
    cpu: u32,
}

impl MsrRead for Filed {
    fn cpu(&self) -> u32 {
        self.cpu
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, u64::from(msr.0) * 8).unwrap();
        Ok(u64::from_le_bytes(bytes))
    }
}

impl MsrWrite for Filed {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.file.write_all_at(&value.to_le_bytes(), u64::from(msr.0) * 8).unwrap();
        Ok(())
    }
}

pub(crate) fn filed(cpu: u32) -> Filed {
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x2000 * 8).unwrap();
    let mut filed = Filed { file, cpu };
    filed.write(DEBUGCTL, 2).unwrap();
    filed.write(SELECT, 0x1C4).unwrap();
    filed
}

pub(crate) fn again(filed: &Filed) -> Filed {
    Filed { file: filed.file.try_clone().unwrap(), cpu: filed.cpu }
}

/// One recorder at a time, because a fork copies the pipes of all tests.
static ONE: Mutex<()> = Mutex::new(());

/// Starts a process that keeps this one's descriptors open, except `tell`, for half a minute.
pub(crate) fn bystander(tell: &File) -> Pid {
    // SAFETY: the child calls only async-signal-safe functions, and leaves by `_exit`.
    match unsafe { fork() }.unwrap() {
        // SAFETY: nothing else uses the descriptor in the child, which never returns.
        ForkResult::Child => unsafe {
            nix::libc::close(tell.as_raw_fd());
            nix::libc::sleep(30);
            nix::libc::_exit(0)
        },
        ForkResult::Parent { child } => child,
    }
}

/// Runs `recorder`, which must not return, in a separate process until it has written a byte to its
/// pipe; then applies `end`; returns its status when it and its watchdog are gone.
pub(crate) fn recorded(recorder: impl FnOnce(&mut File), end: impl FnOnce(Pid)) -> WaitStatus {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (read, write): (OwnedFd, OwnedFd) = pipe2(OFlag::O_CLOEXEC).unwrap();
    // SAFETY: the C library permits allocation in the child after a fork, and the child leaves by
    // `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop(read);
            let mut write = File::from(write);
            let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
            let ended = catch_unwind(AssertUnwindSafe(|| recorder(&mut write)));
            // SAFETY: ends the process.
            unsafe { nix::libc::_exit(if ended.is_ok() { 0 } else { 99 }) }
        }
        ForkResult::Parent { child } => {
            drop(write);
            let mut read = File::from(read);
            let told = read.read_exact(&mut [0]);
            if told.is_ok() {
                end(child);
            }
            let status = waitpid(child, None).unwrap();
            // The watchdog process holds the other end.
            let mut rest = Vec::new();
            read.read_to_end(&mut rest).unwrap();
            assert!(told.is_ok(), "the recorder failed: {status:?}");
            status
        }
    }
}
