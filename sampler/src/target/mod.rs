//! The recorded program: the command, finding it, starting it held before its first instruction,
//! its CPUs, and its end.

mod affinity;
mod held;
mod program;

use lbr_msr::record::SourceKnowledge;
use lbr_msr::text::AsText;
use std::path::PathBuf;

use nix::libc;
use nix::unistd::{Gid, getegid, geteuid, getgid, getgroups, getuid};

pub use affinity::{Affinity, Moved};
pub use held::Held;
pub use program::{ProgramKind, find, inspect, isa};

/// A thread of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

/// How the target ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
}

impl Default for Exit {
    fn default() -> Exit {
        Exit::Code(0)
    }
}

impl Exit {
    /// Decodes the wait status of a process that ended.
    pub(crate) const fn of(status: i32) -> Exit {
        match libc::WIFEXITED(status) {
            true => Exit::Code(libc::WEXITSTATUS(status)),
            false => Exit::Signal(libc::WTERMSIG(status)),
        }
    }

    /// The status that a shell would report: the code, or 128 + signal.
    #[must_use]
    pub const fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// The registers of [`SignalStop::registers`], in this order.
pub const REGISTERS: [&str; 18] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15", "rip", "rflags",
];

/// A signal that is about to be delivered to a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignalStop {
    /// Its number.
    pub signal: i32,
    /// `si_code`; `None` if the source does not see it.
    pub code: Option<i32>,
    /// `si_addr` of a fault: the address that could not be accessed.
    pub address: Option<u64>,
    /// `si_pid`, if a process sent it.
    pub sender: Option<u32>,
    /// The next instruction; for a fault, the faulting one.
    pub ip: u64,
    /// The values of [`REGISTERS`].
    pub registers: Option<[u64; 18]>,
    /// The code bytes at `ip`, as far as they can be read.
    pub code_bytes: Vec<u8>,
}

/// The command to run, and where recording starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Program name; looked up in PATH if it has no slash.
    pub program: String,
    /// Its arguments, without the program.
    pub args: Vec<String>,
    /// Recording starts when execution first reaches this address of the program's file (as in its
    /// symbol table, before relocation).
    pub from: Option<u64>,
    /// A function of the program whose arguments are recorded at each entry: its first address,
    /// counted like [`from`](Self::from).
    pub arguments_of: Option<u64>,
    /// Whether child processes are recorded too.
    pub follow_children: bool,
    /// Whether branches carry predictions and cycles of the
    /// [model](lbr_msr::soft::Model).
    pub model: bool,
    /// Logical CPU to pin the target to.
    pub cpu: Option<u32>,
    /// The user whose rights it gets; `None`: the [user who started us](User::real).
    pub user: Option<User>,
}

impl Command {
    /// The fields that a source which runs it can record.
    pub(crate) const fn knowledge(&self) -> SourceKnowledge {
        if self.model { SourceKnowledge::MODELLED } else { SourceKnowledge::USER_BRANCHES }
    }

    /// The user whose rights it gets; `None`: this process's.
    pub fn rights(&self) -> Option<User> {
        self.user.clone().or_else(User::real)
    }
}

/// The user whose rights a program gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All of its groups.
    pub groups: Vec<u32>,
}

impl User {
    /// The user who started this process, if it runs with another user's rights (setuid, setgid):
    /// started programs must not inherit them.
    pub fn real() -> Option<User> {
        let (uid, gid) = (getuid(), getgid());
        (uid != geteuid() || gid != getegid()).then(|| User {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            groups: getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect(),
        })
    }
}

/// Why a source could not run its target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The program was not found.
    #[error("{program}: not found in PATH")]
    NotFound {
        /// The name as given.
        program: String,
    },
    /// It cannot be executed.
    #[error("{}: {cause}", path.as_text())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The system's error message.
        cause: std::io::Error,
    },
    /// The tool that would run it is missing.
    #[error("{why}")]
    Unavailable {
        /// The missing part.
        why: String,
    },
    /// The file is not a 64-bit program of x86 or Arm.
    #[error("{}: {what}; the software LBR runs ELF programs of x86-64 and AArch64", path.as_text())]
    NotX86_64 {
        /// The file.
        path: PathBuf,
        /// The file's actual type.
        what: String,
    },
    /// The program cannot be pinned to that CPU.
    #[error("CPU {cpu} is not available; this process may use: {allowed}")]
    NoSuchCpu {
        /// The requested CPU.
        cpu: u32,
        /// The CPUs in this process's affinity, as a list of ranges.
        allowed: String,
    },
    /// The kernel accepted the pinning, but the thread ran elsewhere.
    #[error("this thread was pinned to CPU {cpu} but runs on {seen}")]
    NotThere {
        /// The requested CPU.
        cpu: u32,
        /// The CPU it ran on.
        seen: usize,
    },
    /// The requested start was never reached.
    #[error("the program ended before it reached {symbol}: nothing was recorded")]
    NeverReached {
        /// The requested address or name.
        symbol: String,
    },
    /// A system call needed for tracing failed.
    #[error("{what}: {cause}")]
    Os {
        /// The failed operation.
        what: String,
        /// The system's error message.
        cause: std::io::Error,
    },
}

/// The error of a system call that failed.
pub(crate) trait Doing<T> {
    /// Names the failed operation.
    fn doing(self, what: impl Into<String>) -> Result<T, SourceError>;
}

impl<T, E: Into<std::io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T, SourceError> {
        self.map_err(|cause| SourceError::os(what, cause))
    }
}

impl SourceError {
    pub(crate) fn os(what: impl Into<String>, cause: impl Into<std::io::Error>) -> SourceError {
        SourceError::Os { what: what.into(), cause: cause.into() }
    }
}
