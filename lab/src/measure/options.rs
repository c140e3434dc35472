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
use super::fault::Fault;
use sampler::source::perf::{Counting, Host};
use sampler::target::Affinity;

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the code runs; `None` leaves it to the scheduler.
    pub pin: Option<Affinity>,
    /// Runs before those that count.
    pub warm_up: u32,
    /// Runs at full speed.
    pub repeat: u32,
    /// Runs that are single-stepped, to count instructions and branches.
    pub stepped: u32,
    /// Executions of the code in a stepped run at most, by fewer rounds of its loop (but two).
    pub stepped_iterations: u32,
    /// Time limit of one run. Single-stepping, which is thousands of times
    /// slower, has ten times as long.
    pub limit: Duration,
    /// The branches that end a block.
    pub filter: BranchFilter,
    /// Counters of the kernel's perf events that runs at full speed are counted with, where
    /// there is no ring.
    pub counters: Option<Counting>,
    /// Where the kernel takes branch stacks that carry cycles: what it knows of itself, and the
    /// branch records of the CPU. They tell the cycles of blocks beside the counters.
    pub stacks: Option<Box<(Host, LbrCaps)>>,
    /// The CPU whose branch records a stepped run fills.
    pub soft_cpu: SoftCpu,
    /// Confines code (not closures): it runs without the caller's rights, in 1 GiB of memory and one
    /// thread, and a system call that is not on the list raises SIGSYS.
    pub confined: bool,
    /// Set from outside (Ctrl-C) to make no more runs.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// 100 runs after 10 to warm up, two stepped ones, 5 seconds for each, all
    /// branches of user mode.
    #[must_use]
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

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// The code did not come to its end. The layout tells what lies where.
    #[error("the code did not come to its end")]
    Fault {
        /// What it did, and where.
        fault: Fault,
        /// Where the parts of the bracket lay.
        layout: Box<Layout>,
        /// It was single-stepped.
        stepped: bool,
        /// Where the CPU refused an instruction (SIGILL) that is one: the
        /// CPUID features that it needs, by iced-x86's names.
        needs: Vec<String>,
        /// It had come to its end once; it did not when it was executed again with the
        /// registers that it left.
        again: bool,
    },
    /// [`Options::stop`] was set before anything was counted or measured.
    #[error("stopped before anything was measured")]
    Stopped,
    /// The code changed R15.
    #[error("the code changes R15, which counts the rounds of the loop around it")]
    Counter,
    /// The closing system call could not switch recording off; it was switched
    /// off by other means.
    #[error("the registers could not be switched {what} from within the run: {cause}")]
    Switch {
        /// `on` or `off`.
        what: &'static str,
        /// The system's words.
        cause: io::Error,
    },
    /// The code cannot be given the rights of the user behind sudo.
    #[error(transparent)]
    Id(#[from] InvalidId),
    /// The filter cannot be had.
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
        /// What was tried.
        what: &'static str,
        /// The system's words.
        cause: io::Error,
    },
}
