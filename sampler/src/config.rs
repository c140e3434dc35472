//! How to record, whatever the source.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lbr_msr::arm::{Allowlisted, ArmError, ArmOptions, ArmPlan};
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{BranchEntry, BranchType, Event};
use lbr_msr::soft::SoftLbr;

use crate::drain::Mode;
use crate::gate::OpenRegisters;
use crate::interrupt::Interrupts;
use crate::pace::Pace;

/// Names the type of the branch at an address of a process, from its code.
pub type Classify = Box<dyn FnMut(u32, u64) -> Option<BranchType> + Send>;

/// Whether an entry is wanted: the part of a filter that the ring's own cannot
/// express.
pub type Keep = Box<dyn FnMut(&BranchEntry) -> bool + Send>;

/// Whether all of these branches are the target's, as a recording of a CPU has
/// to ask. May tell of mappings that it finds, with the time given.
pub type Owns = Box<dyn FnMut(u64, &[BranchEntry], &mut Vec<Event>) -> bool + Send>;

/// When rings are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// After so many records in a ring (`-c N`). Up to depth - 1 every branch
    /// is recorded.
    Period(u64),
    /// By the sampler's clock (`-F HZ`).
    Rate {
        /// Drains per second, jittered by ±25 %.
        hz: u32,
        /// Seed of the jitter.
        seed: u64,
    },
}

impl Sampling {
    /// The clock of the `nth` sampler: no two are in step with each other.
    /// `None` with a period.
    pub(crate) fn pace(self, nth: u64) -> Option<Pace> {
        match self {
            Sampling::Period(_) => None,
            Sampling::Rate { hz, seed } => Some(Pace::new(hz, seed.wrapping_add(nth))),
        }
    }
}

/// What a sampler does when its queue to the decoder is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits for room: nothing is lost. For sources that wait.
    Wait,
    /// Drops the stack and counts it: the sampler never blocks. For hardware,
    /// which does not wait.
    Drop,
}

/// The queue from a sampler thread to the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Stacks it holds; at least 1. One stack is about 2 KiB.
    pub stacks: usize,
    /// What happens when it is full.
    pub when_full: WhenFull,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { stacks: 512, when_full: WhenFull::Wait }
    }
}

/// What to record and how.
pub struct RecordConfig {
    /// The branch records: those of the CPUs, which are alike, or those that
    /// are modelled.
    pub caps: LbrCaps,
    /// Whether they are armed for call-stack mode: drains are snapshots then.
    pub call_stack: bool,
    /// When to drain. The registers of CPUs know no period.
    pub sampling: Sampling,
    /// The queue between each sampler and the decoder.
    pub queue: Queue,
    /// Makes the registers of a new thread of the target, armed; `None` for
    /// sources that bring their own.
    pub open: Option<OpenRegisters>,
    /// The part of the filter that the ring cannot express.
    pub keep: Option<Keep>,
    /// Set to end the recording, and the program; what is recorded is kept.
    pub stop: Arc<AtomicBool>,
    /// SIGINT and SIGTERM, to be passed on to the program; where there is none
    /// that was started, they set [`stop`](Self::stop).
    pub interrupts: Option<Interrupts>,
}

impl RecordConfig {
    /// A period of depth - 1, everything else at its default, and no registers
    /// for new threads.
    #[must_use]
    pub fn new(caps: LbrCaps) -> RecordConfig {
        let period = u64::from(caps.depth.saturating_sub(1).max(1));
        RecordConfig {
            caps,
            call_stack: false,
            sampling: Sampling::Period(period),
            queue: Queue::default(),
            open: None,
            keep: None,
            stop: Arc::default(),
            interrupts: None,
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.call_stack { Mode::CallStack } else { Mode::Stream }
    }

    /// The same on a software LBR for each thread of the target.
    /// `perf_capabilities` is IA32_PERF_CAPABILITIES of the modelled CPU, where
    /// it has one; `select` the value of its filter register: MSR_LBR_SELECT,
    /// AMD's LBR_SELECT, or IA32_LBR_CTL without its enable bit, 0 where there
    /// is none.
    ///
    /// # Errors
    /// [`ArmError`]: such registers cannot be recorded from.
    pub fn modelled(
        caps: LbrCaps,
        perf_capabilities: Option<u64>,
        select: u64,
    ) -> Result<RecordConfig, ArmError> {
        let plan = ArmPlan::new(&caps, select, ArmOptions::default())?;
        let call_stack = plan.call_stack();
        let model = caps.clone();
        let open: OpenRegisters = Box::new(move |_| {
            let mut registers = Allowlisted::new(SoftLbr::new(&model, perf_capabilities), &plan);
            let saved = plan.save(&mut registers)?;
            plan.arm(&mut registers, &saved).map_err(ArmError::from)?;
            Ok(Box::new(registers))
        });
        Ok(RecordConfig { call_stack, open: Some(open), ..RecordConfig::new(caps) })
    }
}

impl std::fmt::Debug for RecordConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordConfig")
            .field("cpu", &self.caps.cpu.key())
            .field("call_stack", &self.call_stack)
            .field("sampling", &self.sampling)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
