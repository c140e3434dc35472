//! Recording from the registers of hardware: a sampler thread for each CPU,
//! the target beside them, one decoder.
//!
//! # Placements
//!
//! - **On the CPU of the target**, with SCHED_FIFO over it: the target cannot
//!   run while its ring is read, so nothing is missing between two drains, and
//!   [the way from thaw to freeze](same_cpu) takes no branch. Where the
//!   sampler itself had to wait in that time, or was kept from its CPU, the
//!   next stack claims no join. Without SCHED_FIFO the target may run between
//!   freeze and thaw, and every stack is cut.
//! - **Beside it**, from another CPU: every register access interrupts the CPU
//!   of the target, which runs on between them. Every stack is contiguous
//!   inside and cut. Where registers are reached in one call (msr-safe) one
//!   interrupt does it all, and nothing is cut.
//!
//! # Whose branches
//!
//! Records carry no process. Of a [`Target`] with code of its
//! own, a stack with a user-mode branch from or to anywhere else is `mixed`.
//! One across which the target (if it has one thread) lost its CPU
//! involuntarily, other than to our sampler, claims no join: most often a
//! kernel thread ran, but what runs at the same addresses, such as a forked
//! child on that CPU or another program that is not position-independent,
//! cannot be told apart.
//! Mappings are looked at where the target starts and ends and whenever a
//! branch lies outside of those known: one that comes and goes without a
//! recorded branch is missed.

mod code;
mod cycles;
mod first;
mod held;
mod merge;
pub mod same_cpu;
pub mod target;
mod thread;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::scope;
use std::time::Duration;

use lbr_msr::caps::{Facility, FilterRegister, LbrCaps};
use lbr_msr::record::{Sink, SourceKnowledge};
use lbr_msr::{MsrError, MsrWrite};
use rtrb::RingBuffer;

use crate::clock::monotonic_ns;
use crate::decoder::{Decoder, Keep, Owns};
use crate::drain::Mode;
use crate::pace::Pace;
use crate::session::{OpenError, RecordError, Summary, join, spawn};
use crate::source::{Exit, SourceNotes};
use crate::target::Affinity;
use crate::thread::Queue;
pub use code::{Code, Switches};
pub use first::{Awake, may_go_first};
use merge::decode_all;
use same_cpu::Control;
use target::Target;
use thread::{CpuSampler, Failed, Progress};

/// The sentence for a CPU whose ring has no filter (Core 2, Bonnell): `None`
/// where it has one.
#[must_use]
pub fn unrecordable(caps: &LbrCaps) -> Option<&'static str> {
    let is_ring = caps.facility == Facility::IntelLegacy;
    (is_ring && caps.filter == FilterRegister::None).then_some(
        "its ring has no filter, and between any two register accesses the kernel's own branches \
         overwrite every slot: user code cannot be recorded through the msr driver",
    )
}

/// Waits on the target's CPU with recording on.
pub trait RecordUntil {
    /// Writes `thawed` to the control register, sleeps until `deadline` of
    /// CLOCK_MONOTONIC, switches recording off; returns what the control
    /// register held before that.
    ///
    /// # Errors
    /// The access that failed.
    fn record_until(&mut self, thawed: u64, deadline: Duration) -> Result<u64, MsrError>;
}

impl RecordUntil for Control<'_> {
    fn record_until(&mut self, thawed: u64, deadline: Duration) -> Result<u64, MsrError> {
        Control::record_until(self, thawed, deadline)
    }
}

/// The armed registers of one CPU.
pub struct CpuRing<'a> {
    /// The registers; recording is on.
    pub registers: &'a mut (dyn MsrWrite + Send),
    /// To drain from the CPU itself; `None` drains from beside it.
    pub same_cpu: Option<Box<dyn RecordUntil + Send + 'a>>,
}

impl std::fmt::Debug for CpuRing<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuRing")
            .field("cpu", &self.registers.cpu())
            .field("same_cpu", &self.same_cpu.is_some())
            .finish_non_exhaustive()
    }
}

/// How to record.
pub struct HardwareConfig {
    /// What the rings are. All CPUs are alike.
    pub caps: LbrCaps,
    /// Whether they are armed for call-stack mode.
    pub call_stack: bool,
    /// The CPUs that this process may run on, as they were before it
    /// [left](Elsewhere) the recorded ones.
    pub allowed: Affinity,
    /// Drains per second and CPU, jittered by ±25 %.
    pub hz: u32,
    /// Seed of the jitter.
    pub seed: u64,
    /// Stacks that the queue of each CPU holds. It never blocks: what does not
    /// fit is dropped and counted, whatever [`Queue::when_full`] says.
    pub queue: Queue,
    /// The part of the filter that the ring cannot express.
    pub keep: Option<Keep>,
    /// Set from outside (Ctrl-C) to end the recording; what is recorded is
    /// kept.
    pub stop: Arc<AtomicBool>,
}

impl std::fmt::Debug for HardwareConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HardwareConfig")
            .field("cpu", &self.caps.cpu.key())
            .field("call_stack", &self.call_stack)
            .field("hz", &self.hz)
            .field("seed", &self.seed)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// What the sampler of one CPU did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuReport {
    /// The logical CPU.
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
}

/// What a recording from hardware came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareSummary {
    /// What it shares with recordings on software. `exit` is code 0 for a
    /// target that goes on without us.
    pub summary: Summary,
    /// CPU by CPU.
    pub cpus: Vec<CpuReport>,
}

/// Records from armed registers until the target ends or `stop` is set.
///
/// The target is seen to on the calling thread. That thread and the decoder
/// (which calls the sink) are kept off the recorded CPUs, if there are others.
/// The caller has armed the rings and restores them afterwards.
///
/// # Errors
/// [`RecordError`].
pub fn record<S>(
    rings: Vec<CpuRing<'_>>,
    target: &mut dyn Target,
    config: HardwareConfig,
    sink: &mut S,
) -> Result<HardwareSummary, RecordError<S::Error>>
where
    S: Sink + Send,
    S::Error: Send,
{
    let started = monotonic_ns();
    let cpus: Vec<u32> = rings.iter().map(|ring| ring.registers.cpu()).collect();
    let _elsewhere = Elsewhere::go(config.allowed, &cpus);
    let finish = AtomicBool::new(false);
    let progress: Vec<Progress> = cpus.iter().map(|_| Progress::default()).collect();
    let (events, received) = mpsc::channel();
    let mut decoder = Decoder::new(config.caps.layout, SourceKnowledge::HARDWARE, sink, received);
    decoder.classify = target.classify();
    decoder.ours = Some(same_cpu::ours());
    decoder.keep = config.keep;
    decoder.owns = target.code().map(owns);
    let mode = if config.call_stack { Mode::CallStack } else { Mode::Stream };

    let (exit, reports, decoded) = scope(|threads| {
        let done = Finish(&finish);
        let (ready, is_ready) = mpsc::channel();
        let mut samplers = Vec::new();
        let mut queues = Vec::new();
        for (at, (ring, progress)) in rings.into_iter().zip(&progress).enumerate() {
            let (producer, consumer) = RingBuffer::new(config.queue.stacks.max(1));
            queues.push(consumer);
            let cpu = ring.registers.cpu();
            let sampler = CpuSampler {
                cpu,
                registers: ring.registers,
                same_cpu: ring.same_cpu,
                allowed: config.allowed,
                caps: &config.caps,
                mode,
                thread: target.id(),
                // CPUs must not drain in step with each other.
                pace: Pace::new(config.hz, config.seed.wrapping_add(at as u64)),
                queue: producer,
                events: events.clone(),
                switches: target.switches(),
                progress,
                finish: &finish,
            };
            let (ready, stop) = (ready.clone(), &*config.stop);
            samplers.push(spawn(threads, "sampler", move || {
                let guard = StopOnDrop(stop);
                let ran = sampler.run(&ready);
                progress.reached.store(u64::MAX, Ordering::Release);
                if ran.is_ok() {
                    guard.keep_going();
                }
                ran
            })?);
        }
        drop(ready);
        let (caught_up, is_caught_up) = mpsc::channel();
        let decoder = {
            let (stop, progress) = (&*config.stop, &*progress);
            spawn(threads, "decoder", move || {
                let guard = StopOnDrop(stop);
                let decoded = decode_all(decoder, queues, progress, caught_up)?;
                guard.keep_going();
                Ok(decoded)
            })?
        };
        let mut emit = |event| {
            // Where nobody listens, the decoder's failure is reported.
            let _ = events.send(event);
        };
        // A sampler that fails drops its end.
        let ran = if is_ready.iter().take(cpus.len()).count() == cpus.len() {
            target.start(&mut emit).and_then(|()| target.wait(&config.stop, &mut emit))
        } else {
            Ok(())
        };
        drop(done);
        for sampler in &samplers {
            sampler.thread().unpark();
        }
        let mut reports = Vec::new();
        let mut failed = None;
        for sampler in samplers {
            match join("sampler", sampler)? {
                Ok(report) => reports.push(report),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        // Types are read from the target's code, which is there until it ends. A
        // decoder that fails drops its end.
        let _ = is_caught_up.recv();
        // The target is let go whatever else went wrong.
        let exit = target.finish(&mut emit);
        drop(events);
        let decoded = join("decoder", decoder)?;
        if let Some(error) = failed {
            return Err(match error {
                Failed::Begin(error) => RecordError::Arm(OpenError::Drain(error)),
                Failed::Drain(error) => RecordError::Drain(error),
                Failed::Pin(error) => RecordError::Pin(error),
                Failed::Affinity(error) => RecordError::Source(error),
            });
        }
        ran?;
        Ok((exit?, reports, decoded.map_err(RecordError::Sink)?))
    })?;
    let sum = |of: fn(&CpuReport) -> u64| reports.iter().map(of).sum();
    Ok(HardwareSummary {
        summary: Summary {
            source: "hardware",
            exit: exit.unwrap_or(Exit::Code(0)),
            notes: SourceNotes::default(),
            labels: decoded.labels,
            samples: decoded.samples,
            branches: decoded.branches,
            filtered: decoded.filtered,
            unreadable: decoded.unreadable,
            not_joined: decoded.not_joined,
            dropped: sum(|cpu| cpu.dropped),
            lost: decoded.lost,
            drains: sum(|cpu| cpu.drains),
            accesses: sum(|cpu| cpu.accesses),
            most_accesses: reports.iter().map(|cpu| cpu.most_accesses).max().unwrap_or(0),
            retired: None,
            time: Duration::from_nanos(monotonic_ns().saturating_sub(started)),
            seed: Some(config.seed),
            complete: false,
        },
        cpus: reports,
    })
}

/// Asks a target's code about the branches of a stack.
fn owns(mut code: Box<dyn Code>) -> Owns {
    Box::new(move |time, entries, events| {
        let is_outside = |code: &dyn Code| {
            entries
                .iter()
                .flat_map(|entry| [entry.from, entry.to])
                // The kernel's half belongs to nobody: a return from it, a
                // start that the CPU hides.
                .any(|address| address >> 63 == 0 && !code.owns(address))
        };
        if !is_outside(&*code) {
            return true;
        }
        events.extend(code.look(time));
        !is_outside(&*code)
    })
}

/// Ends the samplers when it is dropped, be it by an error or a panic.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Ends the recording when a thread of it fails or panics: it is dropped then.
struct StopOnDrop<'a>(&'a AtomicBool);

impl StopOnDrop<'_> {
    fn keep_going(self) {
        std::mem::forget(self);
    }
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Keeps the calling thread, and the threads and processes it starts, off the
/// recorded CPUs until it is dropped: what they execute is not to be recorded.
#[derive(Debug)]
pub struct Elsewhere(Option<Affinity>);

impl Elsewhere {
    /// Leaves `cpus` for the others of `from`; stays where there are none.
    /// [`record`] does so by itself; a recorder does it before, with the keeper
    /// and the arming.
    #[must_use]
    pub fn go(from: Affinity, cpus: &[u32]) -> Elsewhere {
        let moved = from.without(cpus).is_some_and(|others| others.apply(0).is_ok());
        Elsewhere(moved.then_some(from))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // They were ours a moment ago.
            let _ = before.apply(0);
        }
    }
}
