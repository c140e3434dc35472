//! State shared by source, samplers and decoder.

use std::sync::{Arc, OnceLock};

use lbr_msr::record::{Event, ThreadMove};

use super::registers::Closed;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use crate::target::ThreadId;

/// A message to the decoder, next to the queues of stacks.
#[derive(Debug)]
pub(crate) enum Message {
    Event(Event),
    /// The moves of a thread's stack drained at this time. Sent before the stack is queued.
    Moves(ThreadId, u64, Vec<ThreadMove>),
}

/// State shared by source, samplers and decoder.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The target has ended: the samplers drain the remaining records and end.
    ended: AtomicBool,
    /// The user wants to end the recording and the program. Recorded data is kept.
    pub(crate) stop: Arc<AtomicBool>,
    /// The process that was started for recording: signals are passed on to it.
    pub(crate) program: OnceLock<i32>,
    /// The recording has failed.
    failed: AtomicBool,
    samplers: Mutex<Vec<Thread>>,
    messages: mpsc::Sender<Message>,
    /// Closes when the decoder has processed every stack.
    decoded: Mutex<mpsc::Receiver<()>>,
}

/// Ignores poisoning: the panic is reported elsewhere, and other threads must still be able to end.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        stop: Arc<AtomicBool>,
        messages: mpsc::Sender<Message>,
        decoded: mpsc::Receiver<()>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            ended: AtomicBool::new(false),
            stop,
            program: OnceLock::new(),
            failed: AtomicBool::new(false),
            samplers: Mutex::default(),
            messages,
            decoded: Mutex::new(decoded),
        })
    }

    /// Fails if the source should stop.
    pub(super) fn still_open(&self) -> Result<(), Closed> {
        if self.is_closed() { Err(Closed) } else { Ok(()) }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.has_failed()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Stops all threads: the recording has failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.wake_samplers();
    }

    fn wake_samplers(&self) {
        lock(&self.samplers).iter().for_each(Thread::unpark);
    }

    /// Registers the calling thread to be woken when the recording ends.
    pub(crate) fn i_am_a_sampler(&self) {
        lock(&self.samplers).push(thread::current());
    }

    /// The target has ended, or is held at its end. Returns when all samplers have drained the
    /// remaining records and the decoder has processed them.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake_samplers();
        // A failed decoder drops its end.
        let _ = lock(&self.decoded).recv();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn send(&self, event: Event) -> Result<(), Closed> {
        self.messages.send(Message::Event(event)).map_err(|_| Closed)
    }

    pub(super) fn send_moves(&self, thread: ThreadId, time: u64, moves: Vec<ThreadMove>) {
        // If the decoder has ended, the recording fails for that reason.
        let _ = self.messages.send(Message::Moves(thread, time, moves));
    }
}
