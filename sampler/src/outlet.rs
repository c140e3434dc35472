//! A sampler thread's output: the queue to the decoder, and statistics of drains and dropped
//! stacks.

use std::sync::Arc;
use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::record::{Event, Label, Lost};

use crate::clock::monotonic_ns;
use crate::config::WhenFull;
use crate::drain::RawStack;
use crate::gate::{OpenError, Shared};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::queue::Producer;
use crate::sync::{mpsc, thread};
use crate::target::{SourceError, ThreadId};

/// The kernel's statistics of the samples it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// Records lost for lack of ring buffer space; also reported as lost in the recording.
    pub lost: u64,
    /// Number of times it throttled the event because of too many interrupts.
    pub throttled: u64,
    /// The time for which the event was enabled while the target ran, and for which it had a
    /// counter, which it may share with other events.
    pub scheduled: Option<(Duration, Duration)>,
}

/// Statistics of one sampler. Fields about a CPU have default values for software LBRs, which
/// belong to no CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerReport {
    /// The logical CPU whose registers it drained.
    pub cpu: u32,
    /// Whether it ran on that CPU.
    pub same_cpu: bool,
    /// Whether it had SCHED_FIFO there.
    pub first: bool,
    /// Number of drains.
    pub drains: u64,
    /// Register accesses of all drains.
    pub accesses: u64,
    /// Register accesses of the most expensive drain.
    pub most_accesses: u32,
    /// Drains before which the target lost its CPU to a task other than the sampler.
    pub switched: u64,
    /// Drains before which the sampler lost the CPU it shares with the target, other than by its
    /// own sleep: the target may have run unrecorded.
    pub not_held: u64,
    /// Stacks dropped because the queue was full.
    pub dropped: u64,
    /// Number of drains that started and ended on one CPU, and the TSC cycles they took in total;
    /// `None` without RDTSCP or such drains.
    pub timed: Option<(u64, u64)>,
    /// Whether the control or filter register had changed at the end.
    pub taken_over: bool,
    /// The kernel's statistics, if the kernel drains.
    pub kernel: Option<KernelReport>,
}

/// Why a sampler stopped early.
#[derive(Debug)]
pub enum SamplerError {
    /// An LBR could not be armed, or cannot be drained.
    Open(OpenError),
    /// A drain failed.
    Drain(MsrError),
    /// The sampler could not be moved to its CPU.
    Place(SourceError),
}

/// The work of a sampler thread: drains until the recording [is over](Outlet::is_over), and once
/// more.
pub type Sampler<'a> = Box<dyn FnOnce(&mut Outlet) -> Result<(), SamplerError> + Send + 'a>;

/// One sampler's connection to the decoder.
#[derive(Debug)]
pub struct Outlet {
    pub(crate) shared: Arc<Shared>,
    queue: Producer<RawStack>,
    when_full: WhenFull,
    /// All stacks older than this were delivered: CLOCK_MONOTONIC, nanoseconds.
    reached: Arc<AtomicU64>,
    ready: mpsc::Sender<()>,
    /// The sampler's statistics. This type counts drains and drops.
    pub report: SamplerReport,
    /// Drops not yet reported: thread, CPU, count.
    unreported: Option<(ThreadId, u32, u64)>,
}

impl Outlet {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Producer<RawStack>,
        when_full: WhenFull,
        reached: Arc<AtomicU64>,
        ready: mpsc::Sender<()>,
    ) -> Outlet {
        let report = SamplerReport::default();
        Outlet { shared, queue, when_full, reached, ready, report, unreported: None }
    }

    /// The main function of a sampler thread.
    pub(crate) fn run(mut self, sampler: Sampler<'_>) -> Result<SamplerReport, SamplerError> {
        self.shared.i_am_a_sampler();
        sampler(&mut self)?;
        Ok(self.end())
    }

    /// Drains have ended.
    pub(crate) fn end(mut self) -> SamplerReport {
        self.tell_dropped();
        self.reach(u64::MAX);
        self.report
    }

    /// The LBRs are armed: the target may run.
    pub fn ready(&self) {
        // The receiver is gone if the recording has already failed.
        let _ = self.ready.send(());
    }

    /// Whether the next drain is the last.
    pub fn is_over(&self) -> bool {
        self.shared.has_ended() || self.shared.has_failed()
    }

    /// Promises that all later stacks are at least this recent (CLOCK_MONOTONIC, nanoseconds);
    /// stacks of other samplers wait for that.
    pub fn reach(&self, time: u64) {
        self.reached.store(time, Ordering::Release);
    }

    /// Delivers a drained stack. Returns `false` if it was dropped because the queue is full or the
    /// recording has failed: the next one of that LBR is not joined.
    pub fn push(&mut self, stack: &RawStack) -> bool {
        self.report.drains += 1;
        self.report.accesses += u64::from(stack.accesses);
        self.report.most_accesses = self.report.most_accesses.max(stack.accesses);
        loop {
            if let Ok(room) = self.queue.write_chunk_uninit(1) {
                // Copied once, to its final place.
                room.fill_from_iter(std::iter::once(stack).copied());
                self.tell_dropped();
                return true;
            }
            if let WhenFull::Drop = self.when_full {
                return self.drop_stack(stack);
            }
            // The recording reports why. If the decoder lives on, the next stack is not joined.
            if self.shared.has_failed() || self.queue.is_abandoned() {
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn drop_stack(&mut self, stack: &RawStack) -> bool {
        if stack.entries().is_empty() && stack.integrity.label == Label::Stream {
            return true; // the next one says the same
        }
        self.report.dropped += 1;
        match &mut self.unreported {
            Some((thread, _, stacks)) if *thread == stack.thread => *stacks += 1,
            _ => {
                self.tell_dropped();
                self.unreported = Some((stack.thread, stack.cpu, 1));
            }
        }
        false
    }

    /// Reports drops to the recording, bypassing the full queue.
    fn tell_dropped(&mut self) {
        if let Some((thread, cpu, stacks)) = self.unreported.take() {
            // If the receiver is gone, the recording has failed anyway.
            let _ = self.shared.send(Event::Lost(Lost {
                time: monotonic_ns(),
                pid: thread.pid,
                tid: thread.tid,
                cpu,
                stacks,
                label: None,
            }));
        }
    }
}

#[cfg(test)]
#[path = "../../tests/sampler/unit/outlet.rs"]
mod tests;
