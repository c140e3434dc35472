//! A recording session on software branch records: a source, the sampler
//! thread, the decoder, a sink.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::arm::{Allowlisted, ArmError, ArmOptions, ArmPlan};
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{Label, Sink};
use lbr_msr::soft::SoftLbr;
use rtrb::{Consumer, RingBuffer};

use crate::clock::monotonic_ns;
use crate::decoder::{Classify, Decoded, Decoder, Keep, Tally};
use crate::drain::{Drain, DrainError, Mode, Placement, RawStack};
use crate::gate::{BranchRegisters, Gate, Open, Shared, ThreadId};
use crate::pace::Pace;
use crate::pin::{PinError, pin_current_thread};
use crate::source::{BranchSource, Exit, SourceError, SourceNotes};
use crate::thread::{Counts, Queue, Sampler};

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

/// What to record and how.
pub struct RecordConfig {
    /// The CPU whose branch records are modelled.
    pub caps: LbrCaps,
    /// IA32_PERF_CAPABILITIES of that CPU, where it has one.
    pub perf_capabilities: Option<u64>,
    /// Value of the filter register: MSR_LBR_SELECT, AMD's LBR_SELECT, or
    /// IA32_LBR_CTL without its enable bit. 0 where there is none.
    pub select: u64,
    /// When to drain.
    pub sampling: Sampling,
    /// Whether [`select`](Self::select) asks for call-stack mode: drains are
    /// snapshots then. [`record`] finds it out by itself.
    pub call_stack: bool,
    /// CPU to pin the sampler thread to; `None` leaves it to the scheduler.
    pub sampler_cpu: Option<u32>,
    /// The queue between sampler thread and decoder.
    pub queue: Queue,
    /// Names the type of a branch from the code, by process and FROM. Called
    /// for every branch.
    pub classify: Option<Classify>,
    /// The part of the filter that the ring cannot express.
    pub keep: Option<Keep>,
    /// Set from outside (Ctrl-C) to end the recording; what is recorded is
    /// kept.
    pub stop: Arc<AtomicBool>,
}

impl RecordConfig {
    /// A complete recording on a CPU: a period of depth - 1, everything else
    /// at its default, the filter register 0.
    #[must_use]
    pub fn new(caps: LbrCaps) -> RecordConfig {
        let period = u64::from(caps.depth.saturating_sub(1).max(1));
        RecordConfig {
            caps,
            perf_capabilities: None,
            select: 0,
            sampling: Sampling::Period(period),
            call_stack: false,
            sampler_cpu: None,
            queue: Queue::default(),
            classify: None,
            keep: None,
            stop: Arc::default(),
        }
    }
}

impl std::fmt::Debug for RecordConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecordConfig")
            .field("cpu", &self.caps.cpu.key())
            .field("select", &self.select)
            .field("sampling", &self.sampling)
            .field("call_stack", &self.call_stack)
            .field("sampler_cpu", &self.sampler_cpu)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// What a recording came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Name of the source.
    pub source: &'static str,
    /// How the target ended.
    pub exit: Exit,
    /// What the source could not turn into branches.
    pub notes: SourceNotes,
    /// Stacks and branches of each label, as drained.
    pub labels: BTreeMap<Label, Tally>,
    /// Samples that went to the sink.
    pub samples: u64,
    /// Branches in them.
    pub branches: u64,
    /// Branches that the software filter left out.
    pub filtered: u64,
    /// Records that hold no branch although the ring said so.
    pub unreadable: u64,
    /// Stacks with branches that do not join to the one before (snapshots,
    /// which never do, are not counted).
    pub not_joined: u64,
    /// Stacks dropped because the queue was full.
    pub dropped: u64,
    /// Stacks that are missing from the recording and announced as lost there:
    /// the dropped ones, and those whose label excludes them.
    pub lost: u64,
    /// Drains.
    pub drains: u64,
    /// Register accesses of all drains.
    pub accesses: u64,
    /// Register accesses of the most expensive drain.
    pub most_accesses: u32,
    /// Records that the filter let into the rings; `None` for hardware, which
    /// does not say.
    pub retired: Option<u64>,
    /// Wall-clock time from before the target's start until the last drain.
    pub time: Duration,
    /// Seed of the jitter; `None` with a period.
    pub seed: Option<u64>,
    /// Every taken branch that the filter asks for is in the recording once
    /// and in order, thread by thread, from the start (to a stop, if the
    /// recording was stopped). Checked against [`retired`](Self::retired).
    pub complete: bool,
}

/// Why a recording failed. What the sink took until then is kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError<E> {
    /// A period that cannot be.
    #[error("a period of 0 branches is no period; use 1 or more")]
    PeriodZero,
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The sink failed.
    #[error("the recording could not be written: {0}")]
    Sink(E),
    /// A ring could not be armed or drained at all.
    #[error("the branch records could not be armed: {0}")]
    Arm(OpenError),
    /// A drain failed.
    #[error("the branch records could not be drained: {0}")]
    Drain(MsrError),
    /// The sampler thread could not be pinned.
    #[error("the sampler: {0}")]
    Pin(#[from] PinError),
    /// A thread could not be started.
    #[error("the {name} thread could not be started: {cause}")]
    Spawn {
        /// Which.
        name: &'static str,
        /// The system's words.
        cause: std::io::Error,
    },
    /// A thread panicked: a defect of this program.
    #[error(
        "the {name} thread panicked; this is a defect, please report it with the message above"
    )]
    Panicked {
        /// Which.
        name: &'static str,
    },
}

/// Records on the software LBR of [`RecordConfig::caps`], one for each thread
/// of the target.
///
/// The source runs on the calling thread; the sampler and the decoder (which
/// calls the sink) on two others. Returns when all three have ended.
///
/// # Errors
/// [`RecordError`].
pub fn record<S>(
    source: &mut dyn BranchSource,
    config: RecordConfig,
    sink: &mut S,
) -> Result<Summary, RecordError<S::Error>>
where
    S: Sink + Send,
    S::Error: Send,
{
    let plan = ArmPlan::new(&config.caps, config.select, ArmOptions::default())
        .map_err(|error| RecordError::Arm(OpenError::Arm(error)))?;
    let plan = Arc::new(plan);
    let (caps, perf_capabilities) = (config.caps.clone(), config.perf_capabilities);
    let open: OpenRegisters = {
        let plan = Arc::clone(&plan);
        Box::new(move |_| {
            let soft = SoftLbr::new(&caps, perf_capabilities);
            Ok(Box::new(Allowlisted::new(soft, &plan)))
        })
    };
    let config = RecordConfig { call_stack: plan.call_stack(), ..config };
    let arm: Arm = Box::new(move |mut registers| {
        let saved = plan.save(&mut registers)?;
        plan.arm(&mut registers, &saved).map_err(ArmError::from)?;
        Ok(())
    });
    record_on(source, config, open, arm, sink)
}

/// Why the registers of a thread could not be made ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// They cannot be armed.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// They cannot be drained.
    #[error(transparent)]
    Drain(#[from] DrainError),
}

/// Opens the registers of a thread of the target, not armed yet.
pub type OpenRegisters =
    Box<dyn Fn(ThreadId) -> Result<Box<dyn BranchRegisters>, OpenError> + Send + Sync>;

/// Arms what [`OpenRegisters`] opened: clears the ring, sets filter and depth,
/// switches recording on.
pub type Arm = Box<dyn Fn(&mut dyn BranchRegisters) -> Result<(), OpenError> + Send + Sync>;

/// Records with registers of the caller's choice: a software LBR in a wrapper
/// that logs, counts or disturbs accesses.
///
/// The source runs on the calling thread; the sampler and the decoder (which
/// calls the sink) on two others. Returns when all three have ended.
///
/// # Errors
/// [`RecordError`].
pub fn record_on<S>(
    source: &mut dyn BranchSource,
    config: RecordConfig,
    open: OpenRegisters,
    arm: Arm,
    sink: &mut S,
) -> Result<Summary, RecordError<S::Error>>
where
    S: Sink + Send,
    S::Error: Send,
{
    let (period, pace, seed) = match config.sampling {
        Sampling::Period(0) => return Err(RecordError::PeriodZero),
        Sampling::Period(period) => (Some(period), None, None),
        Sampling::Rate { hz, seed } => (None, Some(Pace::new(hz, seed)), Some(seed)),
    };
    let started = monotonic_ns();
    let (events, received) = mpsc::channel();
    let (producer, consumer) = RingBuffer::new(config.queue.stacks.max(1));
    let opened = open_and_arm(config.caps.clone(), config.call_stack, open, arm);
    let shared =
        Shared::new(period, source.knowledge().kernel, opened, Arc::clone(&config.stop), events);
    let mut decoder = Decoder::new(config.caps.layout, source.knowledge(), sink, received);
    decoder.classify = config.classify;
    decoder.keep = config.keep;

    let ended = scope(|threads| {
        // Whatever goes wrong from here on, nobody waits for the dead.
        let guard = FailOnDrop(&shared);
        let (ready, is_ready) = mpsc::channel();
        let sampler = {
            let shared = &*shared;
            let (cpu, when_full) = (config.sampler_cpu, config.queue.when_full);
            spawn(threads, "sampler", move || {
                let guard = FailOnDrop(shared);
                let pinned = cpu.map_or(Ok(()), pin_current_thread);
                // The session waits for this before it starts the source.
                let _ = ready.send(pinned.is_ok());
                pinned.map_err(SamplerError::Pin)?;
                let counts = Sampler::new(shared, producer, when_full, pace)
                    .run()
                    .map_err(SamplerError::Drain)?;
                guard.keep_going();
                Ok(counts)
            })?
        };
        let decoder = {
            let shared = &*shared;
            spawn(threads, "decoder", move || {
                let guard = FailOnDrop(shared);
                let decoded = decode_all(decoder, consumer)?;
                guard.keep_going();
                Ok(decoded)
            })?
        };
        let ran = match is_ready.recv() {
            Ok(true) => {
                let gate = Gate::new(Arc::clone(&shared));
                Some(catch_unwind(AssertUnwindSafe(|| source.run(&gate))))
            }
            Ok(false) | Err(_) => None,
        };
        shared.end();
        let sampled = join::<_, S::Error>("sampler", sampler);
        let decoded = join::<_, S::Error>("decoder", decoder);
        // Rings that outlive their source must not wait for a sampler.
        drop(guard);

        if let Some(error) = shared.take_open_failure() {
            return Err(RecordError::Arm(error));
        }
        let counts = sampled?.map_err(|error| match error {
            SamplerError::Pin(error) => RecordError::Pin(error),
            SamplerError::Drain(error) => RecordError::Drain(error),
        })?;
        let decoded = decoded?.map_err(RecordError::Sink)?;
        let (exit, notes) = match ran {
            Some(Ok(ran)) => ran?,
            Some(Err(_)) | None => return Err(RecordError::Panicked { name: "source" }),
        };
        Ok((exit, notes, counts, decoded))
    });
    let (exit, notes, counts, decoded) = ended?;
    let retired = shared.retired();
    let depth = u64::from(config.caps.depth);
    let complete = !config.call_stack
        && period.is_some_and(|period| period < depth)
        && is_complete(&notes, &counts, &decoded, retired);
    Ok(Summary {
        source: source.name(),
        exit,
        notes,
        labels: decoded.labels,
        samples: decoded.samples,
        branches: decoded.branches,
        filtered: decoded.filtered,
        unreadable: decoded.unreadable,
        not_joined: decoded.not_joined,
        dropped: counts.dropped,
        lost: decoded.lost,
        drains: counts.drains,
        accesses: counts.accesses,
        most_accesses: counts.most_accesses,
        retired: Some(retired),
        time: Duration::from_nanos(monotonic_ns().saturating_sub(started)),
        seed,
        complete,
    })
}

fn open_and_arm(caps: LbrCaps, call_stack: bool, open: OpenRegisters, arm: Arm) -> Open {
    let mode = if call_stack { Mode::CallStack } else { Mode::Stream };
    Box::new(move |thread| {
        let mut registers = open(thread)?;
        arm(&mut *registers)?;
        let drain = Drain::begin(&caps, mode, Placement::SourceWaits, &mut *registers)?;
        Ok((registers, drain))
    })
}

fn is_complete(notes: &SourceNotes, counts: &Counts, decoded: &Decoded, retired: u64) -> bool {
    let all_stream = decoded.labels.keys().all(|label| *label == Label::Stream);
    let drained: u64 = decoded.labels.values().map(|tally| tally.branches).sum();
    all_stream
        && drained == retired
        && decoded.not_joined == 0
        && decoded.cut == 0
        && decoded.unreadable == 0
        && counts.dropped == 0
        && counts.taken_over == 0
        && notes.undecoded == 0
        && notes.invisible == 0
        && notes.unresolved == 0
        && notes.threads_left == 0
}

enum SamplerError {
    Pin(PinError),
    Drain(MsrError),
}

/// Takes stacks until the sampler has gone and the queue is empty.
fn decode_all<S: Sink>(
    mut decoder: Decoder<'_, S>,
    mut queue: Consumer<RawStack>,
) -> Result<Decoded, S::Error> {
    loop {
        // Asked before looking: what was pushed before leaving is seen.
        let is_last_look = queue.is_abandoned();
        match queue.pop() {
            Ok(stack) => decoder.stack(&stack)?,
            Err(_) if is_last_look => return decoder.finish(),
            Err(_) => {
                decoder.collect();
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    }
}

/// Stops everybody when it is dropped, be it by an error or a panic.
struct FailOnDrop<'a>(&'a Shared);

impl FailOnDrop<'_> {
    fn keep_going(self) {
        std::mem::forget(self);
    }
}

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fail();
    }
}

pub(crate) fn spawn<'scope, 'env, T, E, F>(
    threads: &'scope std::thread::Scope<'scope, 'env>,
    name: &'static str,
    run: F,
) -> Result<ScopedJoinHandle<'scope, T>, RecordError<E>>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    Builder::new()
        .name(format!("lbr-{name}"))
        .spawn_scoped(threads, run)
        .map_err(|cause| RecordError::Spawn { name, cause })
}

pub(crate) fn join<T, E>(
    name: &'static str,
    thread: ScopedJoinHandle<'_, T>,
) -> Result<T, RecordError<E>> {
    thread.join().map_err(|_| RecordError::Panicked { name })
}
