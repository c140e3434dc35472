//! What source, samplers and decoder share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::Thread;

use lbr_msr::record::Event;

use super::registers::Closed;

/// What source, samplers and decoder share.
pub(crate) struct Shared {
    /// The target has ended: the samplers drain what is left and end.
    ended: AtomicBool,
    /// The user wants an end. What is recorded is kept.
    stop: Arc<AtomicBool>,
    /// The process that signals are passed on to; 0 for none.
    program: AtomicI32,
    /// Nothing more can be recorded.
    failed: AtomicBool,
    samplers: Mutex<Vec<Thread>>,
    events: mpsc::Sender<Event>,
    /// Ends when the decoder has taken every stack.
    decoded: Mutex<mpsc::Receiver<()>>,
}

/// A poisoned lock is taken all the same: the thread that panicked is reported
/// as such, and the others must still be able to end.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        events: mpsc::Sender<Event>,
        decoded: mpsc::Receiver<()>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            ended: AtomicBool::new(false),
            stop,
            program: AtomicI32::new(0),
            failed: AtomicBool::new(false),
            samplers: Mutex::default(),
            events,
            decoded: Mutex::new(decoded),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.has_failed()
    }

    /// Ends the recording, and the program.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The process that was started to be recorded.
    pub(crate) fn program(&self) -> Option<i32> {
        Some(self.program.load(Ordering::Acquire)).filter(|pid| *pid != 0)
    }

    pub(super) fn started(&self, pid: u32) {
        self.program.store(pid.cast_signed(), Ordering::Release);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Stops everybody: nothing more can be recorded.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.wake_samplers();
    }

    fn wake_samplers(&self) {
        lock(&self.samplers).iter().for_each(Thread::unpark);
    }

    /// Has the calling thread woken when the recording ends.
    pub(crate) fn i_am_a_sampler(&self) {
        lock(&self.samplers).push(std::thread::current());
    }

    /// The target has ended, or is held at its end. Returns when all samplers
    /// have drained what it left, and the decoder has taken that.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake_samplers();
        // A decoder that fails drops its end.
        let _ = lock(&self.decoded).recv();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn send(&self, event: Event) -> Result<(), Closed> {
        self.events.send(event).map_err(|_| Closed)
    }
}
