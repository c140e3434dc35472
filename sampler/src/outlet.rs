//! What a sampler thread drains into: the queue to the decoder, and the
//! account of what each drain cost and which stacks were dropped.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::record::{Event, Label, Lost};
use rtrb::Producer;

use crate::clock::monotonic_ns;
use crate::config::WhenFull;
use crate::drain::{DrainError, RawStack};
use crate::gate::Shared;
use crate::target::{SourceError, ThreadId};

/// What the kernel told of the samples that it took for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// Records that its ring buffers had no room for; announced as lost.
    pub lost: u64,
    /// Times it held the event back, because interrupts came too often.
    pub throttled: u64,
    /// For how long the event was on while what is recorded ran, and for how long
    /// of that it had a counter, which it may share with others.
    pub scheduled: Option<(Duration, Duration)>,
}

/// What one sampler did. What it says of a CPU is at its default for the
/// sampler of software branch records, which belong to no CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SamplerReport {
    /// The logical CPU whose registers it drained.
    pub cpu: u32,
    /// It ran on that CPU.
    pub same_cpu: bool,
    /// It had SCHED_FIFO there.
    pub first: bool,
    /// Drains.
    pub drains: u64,
    /// Register accesses of all drains.
    pub accesses: u64,
    /// Register accesses of the most expensive drain.
    pub most_accesses: u32,
    /// Drains before which the target lost its CPU, other than to the sampler.
    pub switched: u64,
    /// Drains before which the sampler lost the CPU it shares with the target,
    /// other than to its own sleep: the target may have run unrecorded.
    pub not_held: u64,
    /// Stacks dropped because the queue was full.
    pub dropped: u64,
    /// Drains that began and ended on one CPU, and the TSC cycles they took
    /// together; `None` where the CPU has no RDTSCP or none did.
    pub timed: Option<(u64, u64)>,
    /// The control or filter register had changed at the end.
    pub taken_over: bool,
    /// Where the kernel drains, what it told.
    pub kernel: Option<KernelReport>,
}

/// Why a sampler ended early.
#[derive(Debug)]
pub enum SamplerError {
    /// The ring cannot be drained.
    Begin(DrainError),
    /// A drain failed.
    Drain(MsrError),
    /// The sampler could not be put where it has to run.
    Place(SourceError),
}

/// The work of a sampler thread: drains until the recording [is
/// over](Outlet::is_over), and once more.
pub type Sampler<'a> = Box<dyn FnOnce(&mut Outlet) -> Result<(), SamplerError> + Send + 'a>;

/// One sampler's way to the decoder.
#[derive(Debug)]
pub struct Outlet {
    pub(crate) shared: Arc<Shared>,
    queue: Producer<RawStack>,
    when_full: WhenFull,
    /// No stack that is still to come is older: CLOCK_MONOTONIC, nanoseconds.
    reached: Arc<AtomicU64>,
    ready: mpsc::Sender<()>,
    /// What is to be told of this sampler; drains and drops are counted here.
    pub report: SamplerReport,
    /// Dropped since the decoder was last told: whose, on which CPU, how many.
    untold: Option<(ThreadId, u32, u64)>,
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
        Outlet { shared, queue, when_full, reached, ready, report, untold: None }
    }

    /// The life of a sampler thread.
    pub(crate) fn run(mut self, sampler: Sampler<'_>) -> Result<SamplerReport, SamplerError> {
        self.shared.i_am_a_sampler();
        sampler(&mut self)?;
        Ok(self.end())
    }

    /// Nothing is drained any more.
    pub(crate) fn end(mut self) -> SamplerReport {
        self.tell_dropped();
        self.reach(u64::MAX);
        self.report
    }

    /// The rings are on: the target may run.
    pub fn ready(&self) {
        // Nobody listens any more where the recording has failed already.
        let _ = self.ready.send(());
    }

    /// Whether to drain for the last time.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.has_ended() || self.shared.has_failed()
    }

    /// Promises that no stack still to come is older (CLOCK_MONOTONIC,
    /// nanoseconds): those of other samplers wait for that.
    pub fn reach(&self, time: u64) {
        self.reached.store(time, Ordering::Release);
    }

    /// Hands a drained stack on. `false` where it was dropped, because the
    /// queue is full: the next one of that ring cannot join.
    #[must_use]
    pub fn push(&mut self, stack: &RawStack) -> bool {
        let cost = stack.accesses.total();
        self.report.drains += 1;
        self.report.accesses += u64::from(cost);
        self.report.most_accesses = self.report.most_accesses.max(cost);
        loop {
            if let Ok(room) = self.queue.write_chunk_uninit(1) {
                // Copied once, to where it stays.
                room.fill_from_iter(std::iter::once(stack).copied());
                self.tell_dropped();
                return true;
            }
            if let WhenFull::Drop = self.when_full {
                return self.drop_stack(stack);
            }
            // The decoder has died: what it left is reported by the recording.
            if self.shared.has_failed() || self.queue.is_abandoned() {
                return true;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn drop_stack(&mut self, stack: &RawStack) -> bool {
        if stack.entries().is_empty() && stack.integrity.label == Label::Stream {
            return true; // it says nothing that the next one does not
        }
        self.report.dropped += 1;
        match &mut self.untold {
            Some((thread, _, stacks)) if *thread == stack.thread => *stacks += 1,
            _ => {
                self.tell_dropped();
                self.untold = Some((stack.thread, stack.cpu, 1));
            }
        }
        false
    }

    /// Tells the recording what was dropped. Not through the full queue.
    fn tell_dropped(&mut self) {
        if let Some((thread, cpu, stacks)) = self.untold.take() {
            // Where nobody listens, the recording fails for that reason.
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
