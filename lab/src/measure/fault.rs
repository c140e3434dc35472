//! What measured code did instead of coming to its end, and why a run gave no
//! result.

use std::io;

use nix::errno::Errno;

/// What measured code did instead of coming to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it did.
    pub kind: FaultKind,
    /// Address of the instruction; `None` where it is not known.
    pub at: Option<u64>,
}

/// See [`Fault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// A signal, such as SIGSEGV; where it tells of an address, that address.
    Signal {
        /// The signal's number.
        signal: i32,
        /// `si_addr` of SIGSEGV and SIGBUS.
        address: Option<u64>,
    },
    /// It did not end within the time limit.
    Hang {
        /// It waits in a system call.
        in_call: bool,
    },
    /// It ended its process, with this status.
    Exit(i32),
    /// It starts another process or thread.
    Fork,
    /// It replaces its program.
    Exec,
    /// It was killed by this signal.
    Killed(i32),
}

/// Why a run gave no result.
#[derive(Debug)]
pub(super) enum NoResult {
    /// The code did something else.
    Fault(Fault),
    /// A system call of ours failed.
    Os(&'static str, io::Error),
    /// It was told to stop.
    Stopped,
}

pub(super) fn os(what: &'static str) -> impl Fn(Errno) -> NoResult {
    move |errno| NoResult::Os(what, errno.into())
}
