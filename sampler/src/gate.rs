//! The recorder as a source sees it: where it hands its branches over, and
//! waits while a sampler thread drains.
//!
//! Each thread of the target has registers of its own behind a lock. The
//! sampler thread holds the lock for a whole drain, so that the source waits
//! and nothing can be missing between freeze and thaw. With a period the
//! source asks for the drain and waits for its end; with a rate the sampler's
//! clock decides.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::Thread;
use std::time::Duration;

use lbr_msr::arm::{Allowlisted, ArmError};
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::Event;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrError, MsrWrite};

use crate::config::RecordConfig;
use crate::drain::{Drain, DrainError, Mode, Placement, RawStack};
use crate::target::ThreadId;

/// The recorder has stopped (Ctrl-C, a failed sink): the source should end its
/// run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recorder has stopped")]
pub struct Closed;

/// The registers of one thread of the target: a software LBR, or one in a
/// wrapper that watches or disturbs it.
pub trait BranchRegisters: MsrWrite + Send {
    /// Retires one taken branch. Whether the ring changed: a branch that the
    /// filter leaves out changes nothing.
    fn retire(&mut self, branch: &Retired) -> bool;
}

impl BranchRegisters for SoftLbr {
    fn retire(&mut self, branch: &Retired) -> bool {
        SoftLbr::retire(self, branch)
    }
}

impl BranchRegisters for Allowlisted<SoftLbr> {
    fn retire(&mut self, branch: &Retired) -> bool {
        self.inner_mut().retire(branch)
    }
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

impl From<MsrError> for OpenError {
    fn from(error: MsrError) -> OpenError {
        OpenError::Arm(error.into())
    }
}

/// Makes the registers of a thread of the target: cleared, the filter and the
/// depth set, recording on.
pub type OpenRegisters =
    Box<dyn Fn(ThreadId) -> Result<Box<dyn BranchRegisters>, OpenError> + Send + Sync>;

/// How often the requester and the sampler look before they sleep: about the
/// length of a drain, since sleeping costs several.
pub(crate) const SPINS: u32 = 200;

/// How long a sleeper may miss that its counterpart has died.
const PATIENCE: Duration = Duration::from_millis(10);

/// What the sampler thread is asked to do.
pub(crate) enum Work {
    /// A thread started.
    Start(Arc<Cell>),
    /// Its period is full, or it wants its branches taken now.
    Drain(Arc<Cell>),
    /// It ended: drain, and forget it.
    Finish(Arc<Cell>),
}

const IDLE: u8 = 0;
const REQUESTED: u8 = 1;
const PARKED: u8 = 2;

/// The registers of one thread and the handshake around their drain.
pub(crate) struct Cell {
    pub(crate) thread: ThreadId,
    state: Mutex<State>,
    handshake: AtomicU8,
    waiter: Mutex<Option<Thread>>,
    /// Something was retired since the last drain (kept for the sampler's clock).
    fresh: AtomicBool,
}

struct State {
    registers: Box<dyn BranchRegisters>,
    drain: Drain,
}

/// A poisoned lock is taken all the same: the thread that panicked is reported
/// as such, and the others must still be able to end.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cell {
    /// Drains, with the source locked out from before the freeze until after
    /// the thaw.
    pub(crate) fn drain(&self) -> Result<RawStack, MsrError> {
        self.fresh.store(false, Ordering::Relaxed);
        let state = &mut *lock(&self.state);
        state.drain.drain(&mut *state.registers, self.thread)
    }

    /// The stack drained last was thrown away.
    pub(crate) fn stack_dropped(&self) {
        lock(&self.state).drain.stack_dropped();
    }

    /// Whether the control and filter registers still are as armed.
    pub(crate) fn is_still_ours(&self) -> Result<bool, MsrError> {
        let state = &mut *lock(&self.state);
        state.drain.is_still_ours(&mut *state.registers)
    }

    /// Whether anything was retired since the last drain.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh.load(Ordering::Relaxed)
    }

    /// Lets the source go on.
    pub(crate) fn release(&self) {
        if self.handshake.swap(IDLE, Ordering::AcqRel) == PARKED
            && let Some(waiter) = lock(&self.waiter).as_ref()
        {
            waiter.unpark();
        }
    }
}

/// What source, samplers and decoder share.
pub(crate) struct Shared {
    caps: LbrCaps,
    mode: Mode,
    /// Ring changes after which a source asks for a drain; `None`: never.
    period: Option<u64>,
    /// Whether the source sees the kernel. One that does not cannot say where
    /// a branch into the kernel lands, and such a branch enters no ring.
    sees_kernel: bool,
    open: Option<OpenRegisters>,
    work: Mutex<VecDeque<Work>>,
    samplers: Mutex<Vec<Thread>>,
    sampler_sleeps: AtomicBool,
    /// The target has ended: the samplers drain what is left and end.
    ended: AtomicBool,
    /// The user wants an end. What is recorded is kept.
    stop: Arc<AtomicBool>,
    /// The process that signals are passed on to; 0 for none.
    program: AtomicI32,
    /// Nothing more can be recorded.
    failed: AtomicBool,
    open_failure: Mutex<Option<OpenError>>,
    events: mpsc::Sender<Event>,
    /// Ends when the decoder has taken every stack.
    decoded: Mutex<mpsc::Receiver<()>>,
    retired: AtomicU64,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        config: &mut RecordConfig,
        period: Option<u64>,
        sees_kernel: bool,
        events: mpsc::Sender<Event>,
        decoded: mpsc::Receiver<()>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            caps: config.caps.clone(),
            mode: config.mode(),
            period,
            sees_kernel,
            open: config.open.take(),
            work: Mutex::new(VecDeque::new()),
            samplers: Mutex::default(),
            sampler_sleeps: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            stop: Arc::clone(&config.stop),
            program: AtomicI32::new(0),
            failed: AtomicBool::new(false),
            open_failure: Mutex::new(None),
            events,
            decoded: Mutex::new(decoded),
            retired: AtomicU64::new(0),
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

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Stops everybody: nothing more can be recorded.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Release);
        self.wake_samplers();
    }

    pub(crate) fn take_open_failure(&self) -> Option<OpenError> {
        lock(&self.open_failure).take()
    }

    /// Ring changes over all threads: the truth that a complete recording
    /// must reach.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
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

    fn ask(&self, work: Work) {
        lock(&self.work).push_back(work);
        // Pairs with the sampler's order: flag first, then a last look.
        if self.sampler_sleeps.load(Ordering::SeqCst) {
            self.wake_samplers();
        }
    }

    fn wake_samplers(&self) {
        lock(&self.samplers).iter().for_each(Thread::unpark);
    }

    /// Has the calling thread woken when there is something to do.
    pub(crate) fn i_am_a_sampler(&self) {
        lock(&self.samplers).push(std::thread::current());
    }

    /// Opens and arms the registers of a new thread.
    fn open(&self, thread: ThreadId) -> Result<State, OpenError> {
        let Some(open) = &self.open else {
            let why = "nothing makes registers for a thread of the target";
            let facility = self.caps.facility;
            return Err(DrainError::Unsupported { facility, why }.into());
        };
        let mut registers = open(thread)?;
        let drain = Drain::begin(&self.caps, self.mode, Placement::SourceWaits, &mut *registers)?;
        Ok(State { registers, drain })
    }

    /// The next thing to do; `None` after `limit` or when woken for nothing.
    pub(crate) fn next_work(&self, limit: Duration) -> Option<Work> {
        for _ in 0..SPINS {
            if let Some(work) = lock(&self.work).pop_front() {
                return Some(work);
            }
            if limit.is_zero() || self.has_ended() || self.has_failed() {
                return None;
            }
            std::hint::spin_loop();
        }
        self.sampler_sleeps.store(true, Ordering::SeqCst);
        let late = lock(&self.work).pop_front();
        if late.is_none() && !self.has_ended() && !self.has_failed() {
            std::thread::park_timeout(limit);
        }
        self.sampler_sleeps.store(false, Ordering::SeqCst);
        late.or_else(|| lock(&self.work).pop_front())
    }
}

/// The recorder as a branch source sees it. Clones name the same recorder.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Gate {
    pub(crate) fn new(shared: Arc<Shared>) -> Gate {
        Gate { shared }
    }

    /// A thread starts: gives it a ring of its own, armed.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn start(&self, thread: ThreadId) -> Result<Ring, Closed> {
        if self.is_closed() {
            return Err(Closed);
        }
        let state = self.shared.open(thread).map_err(|error| {
            lock(&self.shared.open_failure).get_or_insert(error);
            self.shared.fail();
            Closed
        })?;
        let cell = Arc::new(Cell {
            thread,
            state: Mutex::new(state),
            handshake: AtomicU8::new(IDLE),
            waiter: Mutex::new(None),
            fresh: AtomicBool::new(false),
        });
        self.shared.ask(Work::Start(Arc::clone(&cell)));
        Ok(Ring { shared: Arc::clone(&self.shared), cell, since_drain: 0, retired: 0 })
    }

    /// A process was started to be recorded: signals that would end the
    /// recorder are passed on to it.
    pub fn started(&self, pid: u32) {
        self.shared.program.store(pid.cast_signed(), Ordering::Release);
    }

    /// Passes on what happened beside the branches (mappings, names, tasks).
    ///
    /// # Errors
    /// [`Closed`].
    pub fn emit(&self, event: Event) -> Result<(), Closed> {
        if self.shared.has_failed() {
            return Err(Closed);
        }
        self.shared.send(event)
    }

    /// The target has ended, or is held at its end until its branches are
    /// recorded: ends the sampling, and returns when every stack has been
    /// decoded. Nothing can be retired any more; events can still be emitted.
    pub fn end(&self) {
        self.shared.end();
    }

    /// Whether the recorder wants the source to stop.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }
}

/// The software LBR of one thread of the target. Dropping it does what
/// [`finish`](Self::finish) does.
pub struct Ring {
    shared: Arc<Shared>,
    cell: Arc<Cell>,
    /// Ring changes since the last drain that was asked for.
    since_drain: u64,
    /// Ring changes in all.
    retired: u64,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("thread", &self.cell.thread)
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Retires one taken branch. Returns after the sampler thread has drained,
    /// where the period is full: the source waits.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        if self.shared.is_closed() {
            return Err(Closed);
        }
        let lands_unseen = branch.cpl_after == 0 && !self.shared.sees_kernel;
        if lands_unseen || !lock(&self.cell.state).registers.retire(branch) {
            return Ok(());
        }
        self.retired += 1;
        self.since_drain += 1;
        match self.shared.period {
            Some(period) if self.since_drain >= period => self.flush(),
            Some(_) => Ok(()),
            None => {
                self.cell.fresh.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Drains the ring now, and returns when that is done. For moments such as
    /// an exec: from there on the same addresses are other code.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn flush(&mut self) -> Result<(), Closed> {
        self.since_drain = 0;
        self.hand_over(Work::Drain(Arc::clone(&self.cell)))
    }

    /// The thread has ended: what is left in the ring is drained.
    ///
    /// # Errors
    /// [`Closed`], where nothing can be recorded any more. After a Ctrl-C the
    /// rest is still drained.
    pub fn finish(self) -> Result<(), Closed> {
        let shared = Arc::clone(&self.shared);
        drop(self);
        if shared.has_failed() { Err(Closed) } else { Ok(()) }
    }

    /// Asks the sampler, and waits until it is done.
    fn hand_over(&self, work: Work) -> Result<(), Closed> {
        let cell = &self.cell;
        cell.handshake.store(REQUESTED, Ordering::Release);
        self.shared.ask(work);
        for _ in 0..SPINS {
            if cell.handshake.load(Ordering::Acquire) == IDLE {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        *lock(&cell.waiter) = Some(std::thread::current());
        let _ =
            cell.handshake.compare_exchange(REQUESTED, PARKED, Ordering::AcqRel, Ordering::Acquire);
        while cell.handshake.load(Ordering::Acquire) != IDLE {
            if self.shared.has_failed() {
                return Err(Closed);
            }
            std::thread::park_timeout(PATIENCE);
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.retired.fetch_add(self.retired, Ordering::AcqRel);
        // There is nobody left to tell; the session reports why it failed.
        let _ = self.hand_over(Work::Finish(Arc::clone(&self.cell)));
    }
}
