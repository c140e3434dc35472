//! Faults of the code under test, and why a run gave no result.

use std::io;

use nix::errno::Errno;

/// How code failed to reach its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// Address of the instruction; `None` if unknown.
    pub at: Option<u64>,
}

/// See [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A signal, such as SIGSEGV, with the faulting address if the kernel reports one.
    Signal {
        /// The signal's number.
        signal: i32,
        /// `si_addr` of SIGSEGV and SIGBUS.
        address: Option<u64>,
    },
    /// It exceeded the time limit.
    Hang {
        /// It was blocked in a system call.
        in_call: bool,
    },
    /// It ended its process, with this status.
    Exit(i32),
    /// It tried to start another process or thread.
    Fork,
    /// It tried to execute another program.
    Exec,
    /// It was killed by this signal.
    Killed(i32),
}

/// Why a run gave no result.
#[derive(Debug)]
pub(super) enum NoResult {
    /// The code faulted.
    Fault(Fault),
    /// A system call of `lbr` failed.
    Os(&'static str, io::Error),
    /// The caller asked to stop.
    Stopped,
}

pub(super) fn os(what: &'static str) -> impl Fn(Errno) -> NoResult {
    move |errno| NoResult::Os(what, errno.into())
}
