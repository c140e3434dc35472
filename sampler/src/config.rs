//! Recording options common to all sources.

use std::sync::Arc;

use lbr_msr::arm::{Allowlisted, ArmError, ArmOptions, ArmPlan};
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{BranchEntry, BranchType, Event};
use lbr_msr::soft::SoftLbr;

use crate::clock::Pace;
use crate::drain::Mode;
use crate::gate::OpenRegisters;
use crate::interrupt::Interrupts;
use crate::sync::atomic::AtomicBool;

/// Returns the type of the branch at an address of a process, decoded from its code.
pub type Classify = Box<dyn FnMut(u32, u64) -> Option<BranchType> + Send>;

/// Whether to keep an entry, by the part of a filter that the hardware filter cannot express.
pub type Keep = Box<dyn FnMut(&BranchEntry) -> bool + Send>;

/// Whether all of these branches belong to the target, which a recording of a CPU must check. May
/// emit events for newly found mappings, with the given time.
pub type Owns = Box<dyn FnMut(u64, &[BranchEntry], &mut Vec<Event>) -> bool + Send>;

/// When LBR stacks are drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// After N new records (`-c N`). Up to depth - 1, every branch is recorded.
    Period(u64),
    /// By the sampler's clock (`-F HZ`).
    Rate {
        /// Drains per second, jittered by ±25%.
        hz: u32,
        /// Seed of the jitter.
        seed: u64,
    },
}

impl Sampling {
    /// The clock of the `nth` sampler; each has a different jitter. `None` with a period.
    pub(crate) fn pace(self, nth: u64) -> Option<Pace> {
        match self {
            Sampling::Period(_) => None,
            Sampling::Rate { hz, seed } => Some(Pace::new(hz, seed.wrapping_add(nth))),
        }
    }
}

/// How a sampler reacts if its queue to the decoder is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Waits for space: nothing is lost. For sources that can wait.
    Wait,
    /// Drops and counts the stack; the sampler never blocks. For hardware, which does not wait.
    Drop,
}

/// The queue from a sampler thread to the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Capacity in stacks, at least 1. One stack is about 2 KiB.
    pub stacks: usize,
    /// What to do when it is full.
    pub when_full: WhenFull,
}

/// What to record and how.
pub struct RecordConfig {
    /// The capabilities of the branch records: of the recorded CPUs, which must be alike, or of the
    /// modelled CPU.
    pub caps: LbrCaps,
    /// Whether they are armed in call-stack mode, so that drains are snapshots.
    pub call_stack: bool,
    /// When to drain. CPU registers do not support a period.
    pub sampling: Sampling,
    /// The queue between each sampler and the decoder.
    pub queue: Queue,
    /// Creates the armed registers of a new thread of the target; `None` for sources that have
    /// their own.
    pub open: Option<OpenRegisters>,
    /// The part of the filter that the hardware filter cannot express.
    pub keep: Option<Keep>,
    /// Set to end the recording and the program; the recorded data is kept.
    pub stop: Arc<AtomicBool>,
    /// SIGINT and SIGTERM, which are passed on to the program; if none was started, they set
    /// [`stop`](Self::stop).
    pub interrupts: Option<Interrupts>,
}

impl RecordConfig {
    /// A period of depth - 1, defaults for everything else, and no registers for new threads.
    pub fn new(caps: LbrCaps) -> RecordConfig {
        let period = u64::from(caps.depth.saturating_sub(1).max(1));
        RecordConfig {
            caps,
            call_stack: false,
            sampling: Sampling::Period(period),
            queue: Queue { stacks: 512, when_full: WhenFull::Wait },
            open: None,
            keep: None,
            stop: Arc::default(),
            interrupts: None,
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.call_stack { Mode::CallStack } else { Mode::Stream }
    }

    /// As [`new`](Self::new), with a software LBR for each thread of the target.
    /// `perf_capabilities` is IA32_PERF_CAPABILITIES of the modelled CPU, if it has one. `select`
    /// is the value of its filter register: MSR_LBR_SELECT, AMD's LBR_SELECT, or IA32_LBR_CTL
    /// without its enable bit; 0 if there is none.
    ///
    /// # Errors
    /// [`ArmError`] if such registers cannot record.
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

#[cfg(test)]
#[path = "../../tests/sampler/unit/config.rs"]
mod tests;
