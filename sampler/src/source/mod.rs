//! Sources of branches: the registers of this machine's CPUs, the kernel's perf events, or a
//! program under an emulator or single-stepper.
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

/// Every software source, which needs no CPU registers, preferred ones first: a file here that
/// implements [`Source`], and a line.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub const SOFTWARE: &[Software] = &[qemu::SOFTWARE, ptrace::SOFTWARE];

/// A source for the software LBR.
#[derive(Clone, Copy, Debug)]
pub struct Software {
    /// Its name for `--source`.
    pub name: &'static str,
    /// Its description for `--help`.
    pub about: &'static str,
    /// Prepares a program; does not run it yet. If this source is
    /// [unavailable](SourceError::Unavailable), the next one may work.
    pub open: fn(Command) -> Result<Box<dyn Source<'static>>, SourceError>,
}

/// Why a source ends before its target does.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
enum Stop {
    /// The recorder has closed.
    Closed(#[from] crate::gate::Closed),
    /// The target cannot be recorded further.
    Failed(#[from] SourceError),
}

/// Events that a source could not record as branches. Part of every summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceNotes {
    /// Returns from the kernel to user mode (system calls, signals), which are omitted because the
    /// source does not see the kernel.
    pub kernel_returns_omitted: u64,
    /// Control transfers at instructions that could not be read or decoded.
    pub undecoded: u64,
    /// Child processes that were not followed.
    pub children_left: u64,
    /// The program ran another one in its place (`execve`), which was not followed.
    pub replaced: bool,
    /// Instructions executed under the source; 0 if it does not count them.
    pub instructions: u64,
    /// Conditional branches to the next instruction, if the source cannot see whether they were
    /// taken. Not recorded.
    pub invisible: u64,
    /// Branches that were interrupted, or followed by code other than their target, so that the
    /// source cannot tell whether they were taken. Not recorded.
    pub unresolved: u64,
    /// Threads that were not recorded because too many ran at once.
    pub threads_left: u64,
    /// Every instruction was single-stepped, because debug registers are unavailable or emulated:
    /// slow.
    pub without_breakpoints: bool,
}

/// Decodes a record with a layout that no CPU has; `None` if it holds no branch.
pub type Decode = Box<dyn Fn(&RawEntry) -> Option<BranchEntry> + Send>;

/// Information for the decoder about the records and the executed code.
#[derive(Default)]
pub struct Decoding {
    /// Decodes records; `None` if they have the CPU's layout.
    pub decode: Option<Decode>,
    /// Returns the types of branches; called for each.
    pub classify: Option<Classify>,
    /// Identifies the target's branches; `None` if all are.
    pub owns: Option<Owns>,
    /// Code of a sampler that runs while recording is on. Returns from the kernel to it are not
    /// recorded.
    pub ours: Option<Range<u64>>,
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoding").field("ours", &self.ours).finish_non_exhaustive()
    }
}

/// A source of branches. The lifetime is that of borrowed registers.
pub trait Source<'a> {
    /// Its printed name: `ptrace`, `qemu-x86_64`.
    fn name(&self) -> &'static str;

    /// Which fields it knows besides the two addresses of each branch; by default none.
    fn knowledge(&self) -> SourceKnowledge {
        SourceKnowledge::USER_BRANCHES
    }

    /// Its decoding functions. Called once, before [`run`](Self::run).
    fn decoding(&mut self) -> Decoding {
        Decoding::default()
    }

    /// Its samplers, each of which gets a thread. Called once, on the thread that will run the
    /// source. Without samplers (the default), [`run`](Self::run) feeds rings that it opens at
    /// the gate.
    fn samplers(&mut self, _config: &RecordConfig) -> Vec<Sampler<'a>> {
        Vec::new()
    }

    /// Runs the target to its end, or until the gate closes. The samplers are ready.
    ///
    /// # Errors
    /// [`SourceError`]. A started target is dead when this returns, with or without an error.
    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError>;
}
