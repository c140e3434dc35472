//! The program that is recorded: what to run and from where, finding it,
//! starting it held back before its first instruction, where it may run, and
//! how it ended.

mod affinity;
mod held;
mod program;

use lbr_msr::text::AsText;
use std::path::PathBuf;

use nix::unistd::{Gid, getegid, geteuid, getgid, getgroups, getuid};

pub use affinity::{Affinity, Moved};
pub use held::Held;
pub use program::{ProgramKind, find, inspect};

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

impl Exit {
    /// The status a shell would report: the code, or 128 + signal.
    #[must_use]
    pub const fn status(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }
}

/// What to run and from where to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// Program, as typed; looked up in PATH where it has no slash.
    pub program: String,
    /// Its arguments, without the program.
    pub args: Vec<String>,
    /// Recording starts when execution first reaches this address of the
    /// program's file (as its symbol table counts, before relocation).
    pub from: Option<u64>,
    /// A function of the program whose arguments are recorded each time it is
    /// entered: its first address, counted as that of [`from`](Self::from).
    pub arguments_of: Option<u64>,
    /// Whether child processes are recorded too.
    pub follow_children: bool,
    /// Logical CPU to pin the target to.
    pub cpu: Option<u32>,
    /// Whose rights it gets; `None`: those of [who started us](User::real).
    pub user: Option<User>,
}

impl Command {
    /// Whose rights it gets; `None`: ours.
    pub(crate) fn rights(&self) -> Option<User> {
        self.user.clone().or_else(User::real)
    }
}

/// Whose rights a program gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// All its groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Who started this process, where it runs with another's rights (setuid,
    /// setgid): a program that it starts is not to have them.
    #[must_use]
    pub fn real() -> Option<User> {
        let (uid, gid) = (getuid(), getgid());
        let groups = || getgroups().unwrap_or_default().into_iter().map(Gid::as_raw).collect();
        (uid != geteuid() || gid != getegid()).then(|| User {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            groups: groups(),
        })
    }
}

/// Why a source could not run its target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is no such program.
    #[error("{program}: not found in PATH")]
    NotFound {
        /// As typed.
        program: String,
    },
    /// It cannot be executed.
    #[error("{}: {cause}", path.as_text())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// What would run it is not here.
    #[error("{why}")]
    Unavailable {
        /// What is missing.
        why: String,
    },
    /// It is not a 64-bit x86 program.
    #[error("{}: {what}; the software LBR runs x86-64 ELF programs", path.as_text())]
    NotX86_64 {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        what: String,
    },
    /// It cannot be pinned there.
    #[error("there is no CPU {cpu} to run on; this process may use: {allowed}")]
    NoSuchCpu {
        /// As asked.
        cpu: u32,
        /// The CPUs of our own affinity mask, as a list of ranges.
        allowed: String,
    },
    /// The kernel agreed to pin this thread, and it still ran elsewhere.
    #[error("this thread was pinned to CPU {cpu} and runs on {seen}")]
    NotThere {
        /// As asked.
        cpu: u32,
        /// Where it was seen.
        seen: usize,
    },
    /// The asked start was never reached.
    #[error("the program ended before it reached {symbol}: nothing was recorded")]
    NeverReached {
        /// The address or name asked for.
        symbol: String,
    },
    /// A system call that tracing needs failed.
    #[error("{what}: {cause}")]
    Os {
        /// What was tried.
        what: String,
        /// The system's words.
        cause: std::io::Error,
    },
}
