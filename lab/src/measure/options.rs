//! How to measure, and why nothing was measured.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::arm::ArmError;
use lbr_msr::caps::LbrCaps;
use lbr_msr::filter::{BranchFilter, FilterError};
use lbr_msr::soft::SoftCpu;

use super::bracket::Layout;
use super::confine::InvalidId;
use sampler::source::perf::{Counting, Host};
use sampler::target::Affinity;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The CPU that the code is pinned to; `None` leaves it to the scheduler.
    pub pin: Option<Affinity>,
    /// Warm-up runs.
    pub warm_up: u32,
    /// Runs at full speed.
    pub repeat: u32,
    /// Single-stepped runs, which count instructions and branches.
    pub stepped: u32,
    /// Maximum number of executions of the code in a stepped run: limits the iterations of its loop
    /// (to 2 or more).
    pub stepped_iterations: u32,
    /// Time limit of one run. Single-stepping, which is thousands of times slower, gets ten times
    /// as much.
    pub limit: Duration,
    /// The branches that end a block.
    pub filter: BranchFilter,
    /// Performance counters for runs at full speed, used if no LBR stack is read.
    pub counters: Option<Counting>,
    /// If the kernel can sample branch stacks with cycles: the host and the CPU's branch records.
    /// Gives cycles per block in addition to the counters.
    pub stacks: Option<Box<(Host, LbrCaps)>>,
    /// The CPU model whose LBR stack a stepped run fills.
    pub soft_cpu: SoftCpu,
    /// Confines code (not closures): drops the caller's rights, limits it to 1 GiB of memory and
    /// one thread, and raises SIGSYS on system calls that are not allowed.
    pub confined: bool,
    /// Set by the caller (Ctrl-C) to make no more runs.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// 100 runs after 10 warm-up runs, 2 stepped runs, 5 seconds for each, all user-mode branches.
    pub fn new(soft_cpu: SoftCpu) -> Options {
        Options {
            pin: None,
            warm_up: 10,
            repeat: 100,
            stepped: 2,
            stepped_iterations: u32::MAX,
            limit: Duration::from_secs(5),
            filter: BranchFilter::ANY.union(BranchFilter::USER),
            counters: None,
            stacks: None,
            soft_cpu,
            confined: true,
            stop: Arc::default(),
        }
    }
}

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

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The code did not reach its end.
    #[error("the code did not reach its end")]
    Fault {
        /// The fault and its address.
        fault: Fault,
        /// Addresses of the bracket's parts.
        layout: Box<Layout>,
        /// It happened during single-stepping.
        stepped: bool,
        /// After SIGILL on a valid instruction: the CPUID features that it needs, by iced-x86's
        /// names.
        needs: Vec<String>,
        /// The first execution reached its end; the fault occurred when it was repeated with the
        /// registers that it had left.
        again: bool,
    },
    /// [`Options::stop`] was set before anything was counted or measured.
    #[error("stopped before anything was measured")]
    Stopped,
    /// The code changed R15, the loop's count register.
    #[error("the code changes R15, which counts the rounds of the loop around it")]
    Counter,
    /// The closing system call could not switch recording off; it was switched off otherwise.
    #[error("the registers could not be switched {what} from within the run: {cause}")]
    Switch {
        /// `on` or `off`.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// The code cannot be given the rights of the user who called sudo.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// The filter is unsupported.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The software LBR cannot be armed.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// A register could not be read or written.
    #[error(transparent)]
    Register(#[from] MsrError),
    /// The operating system refused.
    #[error("{what}: {cause}")]
    Os {
        /// The attempted action.
        what: &'static str,
        /// The system's error.
        cause: io::Error,
    },
}

/// The operating system refused an action.
pub(super) fn os<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> MeasureError {
    move |cause| MeasureError::Os { what, cause: cause.into() }
}
