//! Branch sources: what stands in for the CPU's own recording where there is
//! none.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod ptrace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod qemu;

use std::path::PathBuf;

use lbr_msr::record::SourceKnowledge;

use crate::gate::Gate;

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Program, as typed; looked up in PATH where it has no slash.
    pub program: String,
    /// Its arguments, without the program.
    pub args: Vec<String>,
    /// Recording starts when execution first reaches this address of the
    /// program's file (as its symbol table counts, before relocation).
    pub from: Option<u64>,
    /// Whether child processes are recorded too.
    pub follow_children: bool,
    /// Logical CPU to pin the target to.
    pub cpu: Option<u32>,
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
    #[error("{}: {cause}", path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// It is not a 64-bit x86 program.
    #[error("{}: {what}; the software LBR runs x86-64 ELF programs", path.display())]
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

/// What a source saw and could not turn into branches. Shown in every summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceNotes {
    /// Returns from the kernel to user mode (system calls, signals) that are
    /// left out, because the source does not see the kernel.
    pub kernel_returns_omitted: u64,
    /// Transfers of control at instructions that could not be read or decoded.
    pub undecoded: u64,
    /// Child processes that were left alone.
    pub children_left: u64,
    /// Instructions executed under the source; 0 where it does not count.
    pub instructions: u64,
    /// Executions of conditional branches to the next instruction of which the
    /// source cannot see whether they were taken. Not recorded.
    pub invisible: u64,
    /// Branches that were interrupted, or followed by what is not their target,
    /// so that the source cannot tell whether they were taken. Not recorded.
    pub unresolved: u64,
    /// Threads that were not recorded, because there were too many at once.
    pub threads_left: u64,
}

/// Runs a target and retires its taken branches into the recorder's rings.
pub trait BranchSource {
    /// The name shown to people: `ptrace`, `qemu-x86_64`.
    fn name(&self) -> &'static str;

    /// What it knows beside the two ends of each branch.
    fn knowledge(&self) -> SourceKnowledge;

    /// Runs the target to its end, or until the gate closes.
    ///
    /// # Errors
    /// [`SourceError`]. The target is dead when this returns, either way.
    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError>;
}
