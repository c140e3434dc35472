//! Where branches come from: the registers of this machine's CPUs, the kernel
//! that reads them for its perf events, or a program that runs under something
//! that sees each of its branches.
//!
//! A source is a file (or folder) here that implements [`Source`].

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod cpu;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod perf;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod ptrace;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod qemu;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod sites;

use std::fmt;
use std::ops::Range;

use lbr_msr::record::{BranchEntry, RawEntry, SourceKnowledge};

use crate::config::{Classify, Owns, RecordConfig};
use crate::gate::Gate;
use crate::outlet::Sampler;
pub use crate::target::{Command, Exit, SourceError};

/// Every source that sees the branches of a program without registers of a CPU,
/// the preferred one first: a file here that implements [`Source`], and a line.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub const SOFTWARE: &[Software] = &[qemu::SOFTWARE, ptrace::SOFTWARE];

/// A source for the software LBR.
#[derive(Clone, Copy, Debug)]
pub struct Software {
    /// As `--source` spells it.
    pub name: &'static str,
    /// What it runs and how fast, for `--help`.
    pub about: &'static str,
    /// Makes a program ready to run in it; nothing runs yet. Where it is
    /// [not here](SourceError::Unavailable), the next one may be.
    pub open: fn(Command) -> Result<Box<dyn Source<'static>>, SourceError>,
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
    /// Each instruction was stepped, for want of debug registers: slow.
    pub without_breakpoints: bool,
}

/// Reads a record that is laid out as no CPU's; `None` where it holds no branch.
pub type Decode = Box<dyn Fn(&RawEntry) -> Option<BranchEntry> + Send>;

/// What the decoder has to know of the records, and of the code that ran.
#[derive(Default)]
pub struct Decoding {
    /// Reads the records; `None` where they are laid out as the CPU's are.
    pub decode: Option<Decode>,
    /// Names the types of branches; called for each.
    pub classify: Option<Classify>,
    /// Tells the target's branches from others; `None` where all are its own.
    pub owns: Option<Owns>,
    /// Code of a sampler that runs while a ring is on. Returns of the kernel to
    /// it are no part of the recording.
    pub ours: Option<Range<u64>>,
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoding").field("ours", &self.ours).finish_non_exhaustive()
    }
}

/// What can be recorded. The lifetime is that of registers it borrows.
pub trait Source<'a> {
    /// The name shown to people: `ptrace`, `qemu-x86_64`.
    fn name(&self) -> &'static str;

    /// What it knows beside the two ends of each branch; by default nothing.
    fn knowledge(&self) -> SourceKnowledge {
        SourceKnowledge::USER_BRANCHES
    }

    /// What it knows of the code. Called once, before [`run`](Self::run).
    fn decoding(&mut self) -> Decoding {
        Decoding::default()
    }

    /// The work of its samplers, each of which gets a thread. Called once, on
    /// the thread that will run the source. By default there are none: what is
    /// drained are the rings that [`run`](Self::run) opens at the gate.
    fn samplers(&mut self, _config: &RecordConfig) -> Vec<Sampler<'a>> {
        Vec::new()
    }

    /// Runs the target to its end, or until the gate closes. The samplers are
    /// ready.
    ///
    /// # Errors
    /// [`SourceError`]. A target that was started is dead when this returns,
    /// either way.
    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError>;
}
