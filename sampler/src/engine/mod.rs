//! The recording engine. Drained stacks, from sampler threads or from rings that the source feeds,
//! go through bounded queues to one decoder, which turns them into samples and sends them to the
//! sink in time order.
//!
//! ```text
//! source ─┬─ sampler ── queue ─┬─ decoder ── sink
//!         ├─ rings ──── queue ─┤
//!         └─ events ───────────┘
//! ```

mod decoder;
mod merge;
mod summary;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::record::Sink;

use crate::clock::monotonic_ns;
use crate::config::{RecordConfig, Sampling};
use crate::gate::{Gate, OpenError, Rings, Shared};
use crate::interrupt::Passing;
use crate::outlet::{Outlet, SamplerError};
use crate::source::Source;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mpsc;
use crate::sync::queue::RingBuffer;
use crate::sync::thread::{Builder, Scope, ScopedJoinHandle, scope};
use crate::target::SourceError;
use decoder::Decoder;

pub use decoder::Tally;
pub use summary::Summary;

/// Why a recording failed. The sink keeps what it received before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError<E> {
    /// The period is 0.
    #[error("the period must be at least 1 branch")]
    PeriodZero,
    /// The source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The sink failed.
    #[error("the recording could not be written: {0}")]
    Sink(E),
    /// An LBR could not be armed, or cannot be drained.
    #[error("the branch records could not be armed: {0}")]
    Arm(OpenError),
    /// A drain failed.
    #[error("the branch records could not be drained: {0}")]
    Drain(MsrError),
    /// A thread could not be started.
    #[error("the {name} thread could not be started: {cause}")]
    Spawn {
        /// The thread's name.
        name: &'static str,
        /// The system's error message.
        cause: std::io::Error,
    },
    /// A thread panicked: a bug in this program.
    #[error("the {name} thread panicked; this is a bug; please report it with the message above")]
    Panicked {
        /// The thread's name.
        name: &'static str,
    },
}

impl<E> From<SamplerError> for RecordError<E> {
    fn from(error: SamplerError) -> RecordError<E> {
        match error {
            SamplerError::Open(error) => RecordError::Arm(error),
            SamplerError::Drain(error) => RecordError::Drain(error),
            SamplerError::Place(error) => RecordError::Source(error),
        }
    }
}

/// Records a source until its target ends or [`RecordConfig::stop`] is set.
///
/// The source runs on the calling thread, the samplers and the decoder (which calls the sink) on
/// others. Returns when all have ended.
///
/// # Errors
/// [`RecordError`].
pub fn record<'a, S>(
    source: &mut (dyn Source<'a> + '_),
    mut config: RecordConfig,
    sink: &mut S,
) -> Result<Summary, RecordError<S::Error>>
where
    S: Sink + Send,
    S::Error: Send,
{
    let (period, seed) = match config.sampling {
        Sampling::Period(0) => return Err(RecordError::PeriodZero),
        Sampling::Period(period) => (Some(period), None),
        Sampling::Rate { seed, .. } => (None, Some(seed)),
    };
    let started = monotonic_ns();
    let (knowledge, layout) = (source.knowledge(), config.caps.layout);
    let models = config.open.is_some();
    let samplers = source.samplers(&config);
    let count = samplers.len();
    let pace = config.sampling.pace(0).filter(|_| count == 0);
    let (messages, received) = mpsc::channel();
    let (caught_up, is_caught_up) = mpsc::channel();
    let decoder =
        Decoder::new(layout, knowledge, source.decoding(), config.keep.take(), sink, received);
    let shared = Shared::new(Arc::clone(&config.stop), messages, is_caught_up);
    // One for each sampler, or one for all rings.
    let reached: Vec<Arc<AtomicU64>> = (0..count.max(1)).map(|_| Arc::default()).collect();
    let (ready, is_ready) = mpsc::channel();
    let (mut queues, mut outlets) = (Vec::new(), Vec::new());
    for reached in &reached {
        let (producer, consumer) = RingBuffer::new(config.queue.stacks.max(1));
        queues.push(consumer);
        let (shared, reached) = (Arc::clone(&shared), Arc::clone(reached));
        let when_full = config.queue.when_full;
        outlets.push(Outlet::new(shared, producer, when_full, reached, ready.clone()));
    }
    drop(ready);
    let of_rings = if count == 0 { outlets.pop() } else { None };
    let sees_kernel = knowledge.kernel;
    let rings = Rings::new(&mut config, period, sees_kernel, Arc::clone(&shared), of_rings);

    let (shared, reached) = (&*shared, &*reached);
    let ended = scope(|threads| {
        // On any failure below, these guards release the waiting threads.
        let guard = OnDrop(|| shared.fail());
        let _close = OnDrop(|| rings.close());
        let mut running = Vec::new();
        for (sampler, outlet) in samplers.into_iter().zip(outlets) {
            running.push(spawn(threads, "sampler", shared, move || {
                outlet.run(sampler).inspect_err(|_| shared.fail())
            })?);
        }
        if let Some(pace) = pace {
            let rings = &*rings;
            spawn(threads, "clock", shared, move || rings.tick(pace))?;
        }
        let (going, is_over) = mpsc::channel();
        let decoder = spawn(threads, "decoder", shared, move || {
            merge::decode_all(decoder, queues, reached, caught_up, &is_over)
                .inspect_err(|_| shared.fail())
        })?;
        let (running_on, is_at_end) = mpsc::channel::<()>();
        if let Some(interrupts) = config.interrupts {
            spawn(threads, "signals", shared, move || {
                pass_signals(shared, Passing::new(interrupts), &is_at_end);
            })?;
        }
        // A failed sampler drops its end.
        let is_ready = is_ready.iter().take(count).count() == count;
        let gate = Gate(Arc::clone(&rings));
        let ran = is_ready.then(|| catch_unwind(AssertUnwindSafe(|| source.run(&gate))));
        drop(running_on);
        gate.end();
        let mut sampled: Vec<_> = running.into_iter().map(|each| join("sampler", each)).collect();
        if count == 0 {
            sampled.push(Ok(rings.report()));
        }
        drop(going);
        let decoded = join("decoder", decoder);
        // Rings that outlive their source must not wait for a sampler.
        drop(guard);

        let reports = sampled
            .into_iter()
            .map(|sampled| Ok(sampled??))
            .collect::<Result<Vec<_>, RecordError<S::Error>>>()?;
        let decoded = decoded?.map_err(RecordError::Sink)?;
        match ran {
            Some(Ok(ran)) => Ok((ran?, reports, decoded)),
            Some(Err(_)) | None => Err(RecordError::Panicked { name: "source" }),
        }
    });
    let ((exit, notes), reports, decoded) = ended?;
    let summary = Summary {
        source: source.name(),
        exit,
        notes,
        retired: models.then(|| rings.retired.load(Ordering::Acquire)),
        time: Duration::from_nanos(monotonic_ns().saturating_sub(started)),
        seed,
        ..decoded
    };
    let summary = summary.with_samplers(reports);
    Ok(Summary { complete: rings.takes_all && summary.is_one_stream(), ..summary })
}

/// Passes signals on to the program until the source has ended or must end.
fn pass_signals(shared: &Shared, mut passing: Passing, is_at_end: &mpsc::Receiver<()>) {
    const LOOK: Duration = Duration::from_millis(10);
    while is_at_end.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
        if passing.is_time_to_end(shared.program.get().copied()) {
            shared.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Calls a function when dropped, also after an error or a panic.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Starts a thread; if it panics, the recording fails.
fn spawn<'scope, T: Send + 'scope, E>(
    threads: &'scope Scope<'scope, '_>,
    name: &'static str,
    shared: &'scope Shared,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, RecordError<E>> {
    let run = move || {
        let guard = OnDrop(|| shared.fail());
        let done = run();
        std::mem::forget(guard);
        done
    };
    let spawned = Builder::new().name(format!("lbr-{name}")).spawn_scoped(threads, run);
    spawned.map_err(|cause| RecordError::Spawn { name, cause })
}

fn join<T, E>(name: &'static str, thread: ScopedJoinHandle<'_, T>) -> Result<T, RecordError<E>> {
    thread.join().map_err(|_| RecordError::Panicked { name })
}
