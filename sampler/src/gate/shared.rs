//! What source, samplers and decoder share, and the handshake by which a source
//! waits for a drain.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::Thread;
use std::time::Duration;

use lbr_msr::MsrError;
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::Event;
use lbr_msr::soft::Retired;

use super::registers::{BranchRegisters, Closed, OpenError, OpenRegisters};
use crate::config::RecordConfig;
use crate::drain::{Drain, DrainError, Mode, Placement, RawStack};
use crate::target::ThreadId;

/// How often the requester and the sampler look before they sleep: about the
/// length of a drain, since sleeping costs several.
const SPINS: u32 = 200;

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

    /// Retires a branch. Whether the ring changed.
    pub(super) fn retire(&self, branch: &Retired) -> bool {
        lock(&self.state).registers.retire(branch)
    }

    /// Something is there for the sampler's clock to find.
    pub(super) fn refresh(&self) {
        self.fresh.store(true, Ordering::Relaxed);
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
    pub(super) period: Option<u64>,
    /// Whether the source sees the kernel. One that does not cannot say where
    /// a branch into the kernel lands, and such a branch enters no ring.
    pub(super) sees_kernel: bool,
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

    pub(crate) fn take_open_failure(&self) -> Option<OpenError> {
        lock(&self.open_failure).take()
    }

    /// Ring changes over all threads: the truth that a complete recording
    /// must reach.
    pub(crate) fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    /// A thread that has ended has changed its ring so often.
    pub(super) fn add_retired(&self, changes: u64) {
        self.retired.fetch_add(changes, Ordering::AcqRel);
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

    pub(super) fn ask(&self, work: Work) {
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

    /// Opens and arms the registers of a new thread; `None` fails everything.
    pub(super) fn open(&self, thread: ThreadId) -> Option<Arc<Cell>> {
        let state = self.armed(thread).map_err(|error| {
            lock(&self.open_failure).get_or_insert(error);
            self.fail();
        });
        Some(Arc::new(Cell {
            thread,
            state: Mutex::new(state.ok()?),
            handshake: AtomicU8::new(IDLE),
            waiter: Mutex::new(None),
            fresh: AtomicBool::new(false),
        }))
    }

    fn armed(&self, thread: ThreadId) -> Result<State, OpenError> {
        let Some(open) = &self.open else {
            let why = "nothing makes registers for a thread of the target";
            let facility = self.caps.facility;
            return Err(DrainError::Unsupported { facility, why }.into());
        };
        let mut registers = open(thread)?;
        let drain = Drain::begin(&self.caps, self.mode, Placement::SourceWaits, &mut *registers)?;
        Ok(State { registers, drain })
    }

    /// Asks the sampler, and waits until it is done.
    pub(super) fn hand_over(&self, cell: &Cell, work: Work) -> Result<(), Closed> {
        cell.handshake.store(REQUESTED, Ordering::Release);
        self.ask(work);
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
            if self.has_failed() {
                return Err(Closed);
            }
            std::thread::park_timeout(PATIENCE);
        }
        Ok(())
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
