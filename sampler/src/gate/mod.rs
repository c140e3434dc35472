//! The interface between sources and the recorder: a source hands over branches and waits while its
//! stacks are drained.
//!
//! Each thread of the target has its own registers behind a lock that is held during a drain. The
//! source waits meanwhile, so nothing can be missing between freeze and thaw. With a period, the
//! source's thread drains when the period is full, before it continues with its run of branches;
//! with a rate, a clock thread drains.

mod registers;
mod rings;
mod shared;

use std::fmt;
use std::sync::Arc;

use lbr_msr::record::{Event, MoveKind};
use lbr_msr::soft::{Retired, SoftLbr};

use crate::sync::atomic::Ordering;
use crate::target::{SignalStop, ThreadId};
pub use registers::{BranchRegisters, Closed, OpenError, OpenRegisters};
use rings::Cell;
pub(crate) use rings::Rings;
pub(crate) use shared::{Message, Shared, lock};

/// The destination of a source's branches: the engine's [`Gate`], or another recorder.
pub trait Recorder {
    /// One thread's LBR.
    type Ring: Retire;

    /// Registers a new thread, and arms its LBR.
    ///
    /// # Errors
    /// [`Closed`].
    fn start(&self, thread: ThreadId) -> Result<Self::Ring, Closed>;

    /// Emits an event other than branches (mappings, names, tasks).
    ///
    /// # Errors
    /// [`Closed`].
    fn emit(&self, event: Event) -> Result<(), Closed>;

    /// Whether the source should stop.
    fn is_closed(&self) -> bool;

    /// Registers the process to record: signals that would end the recorder are passed on to it.
    fn started(&self, _pid: u32) {}

    /// Whether [`Retire::signalled`] and [`Retire::died`] are to be called.
    fn wants_signals(&self) -> bool {
        false
    }

    /// The initial registers of each thread if they are a plain software LBR. A source can use them
    /// to omit branches that no later drain would see.
    fn model(&self) -> Option<SoftLbr> {
        None
    }

    /// Number of LBR changes after which it is drained; `None` if a clock decides.
    fn period(&self) -> Option<u64> {
        None
    }
}

/// Receives the branches of one thread.
pub trait Retire {
    /// Retires one taken branch.
    ///
    /// # Errors
    /// [`Closed`].
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed>;

    /// Retires taken branches, oldest first.
    ///
    /// # Errors
    /// [`Closed`].
    fn retire_run(&mut self, run: &[Retired]) -> Result<(), Closed> {
        run.iter().try_for_each(|branch| self.retire(branch))
    }

    /// Retires the branch that enters a function, with the argument registers; then drains, so that
    /// it is the newest entry.
    ///
    /// # Errors
    /// [`Closed`].
    fn retire_entry(&mut self, branch: &Retired, _arguments: [u64; 6]) -> Result<(), Closed> {
        self.retire(branch)
    }

    /// The kernel moves the thread: `from` is the first instruction that has not executed, `to` the
    /// next one that executes. Recorded only together with every branch.
    ///
    /// # Errors
    /// [`Closed`].
    fn moved(&mut self, _kind: MoveKind, _from: u64, _to: u64) -> Result<(), Closed> {
        Ok(())
    }

    /// Retires the newest branches of a run whose first `left_out` branches were omitted: they
    /// passed the filter, but the run overwrites their records. Called if the recorder has a
    /// [model](Recorder::model), and followed by a flush if it has no [period](Recorder::period).
    ///
    /// # Errors
    /// [`Closed`].
    fn retire_newest(&mut self, _left_out: u64, run: &[Retired]) -> Result<(), Closed> {
        self.retire_run(run)
    }

    /// Whether the clock requests a drain. A source that buffers branches must then retire them and
    /// call [`flush`](Self::flush).
    fn is_due(&self) -> bool {
        false
    }

    /// Drains now, and returns when done. For events such as exec, after which the same addresses
    /// hold other code.
    ///
    /// # Errors
    /// [`Closed`].
    fn flush(&mut self) -> Result<(), Closed> {
        Ok(())
    }

    /// A signal is about to be delivered. All earlier branches were retired.
    fn signalled(&mut self, _stop: &SignalStop) {}

    /// A signal has ended the thread's process, and was delivered to this thread.
    fn died(&mut self, _stop: SignalStop) {}

    /// The thread has ended.
    ///
    /// # Errors
    /// [`Closed`].
    fn finish(self) -> Result<(), Closed>;
}

/// A source's handle to the recorder. Clones refer to the same recorder.
#[derive(Clone)]
pub struct Gate(pub(crate) Arc<Rings>);

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Gate {
    /// The target has ended, or is held at its end until its branches are recorded. Ends the
    /// sampling, and returns when every stack has been decoded. No branch can be retired
    /// afterwards; events still can be emitted.
    pub fn end(&self) {
        self.0.close();
        self.0.shared.end();
    }
}

impl Recorder for Gate {
    type Ring = Ring;

    fn start(&self, thread: ThreadId) -> Result<Ring, Closed> {
        self.0.shared.still_open()?;
        let cell = self.0.open(thread).ok_or(Closed)?;
        Ok(Ring { rings: Arc::clone(&self.0), cell, retired: 0 })
    }

    fn emit(&self, event: Event) -> Result<(), Closed> {
        if self.0.shared.has_failed() {
            return Err(Closed);
        }
        self.0.shared.send(event)
    }

    fn is_closed(&self) -> bool {
        self.0.shared.is_closed()
    }

    fn started(&self, pid: u32) {
        // A source starts one process.
        let _ = self.0.shared.program.set(pid.cast_signed());
    }

    fn model(&self) -> Option<SoftLbr> {
        let nobody = ThreadId { pid: 0, tid: 0 };
        self.0.registers(nobody).ok()?.soft().cloned()
    }

    fn period(&self) -> Option<u64> {
        self.0.period
    }
}

/// The software LBR of one thread of the target. Dropping it has the effect of
/// [`finish`](Retire::finish).
pub struct Ring {
    rings: Arc<Rings>,
    cell: Arc<Cell>,
    /// Total number of LBR changes.
    retired: u64,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("thread", &self.cell.thread).finish_non_exhaustive()
    }
}

impl Retire for Ring {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        self.retire_run(std::slice::from_ref(branch))
    }

    /// Drains whenever the period is full.
    fn retire_run(&mut self, run: &[Retired]) -> Result<(), Closed> {
        self.retire_newest(0, run)
    }

    fn retire_newest(&mut self, left_out: u64, run: &[Retired]) -> Result<(), Closed> {
        self.rings.shared.still_open()?;
        self.retired += self.rings.feed(&self.cell, left_out, run);
        Ok(())
    }

    fn retire_entry(&mut self, branch: &Retired, arguments: [u64; 6]) -> Result<(), Closed> {
        self.rings.shared.still_open()?;
        self.retired += self.rings.feed_entry(&self.cell, branch, arguments);
        Ok(())
    }

    fn moved(&mut self, kind: MoveKind, from: u64, to: u64) -> Result<(), Closed> {
        self.rings.moved(&self.cell, kind, from, to);
        if self.rings.shared.has_failed() { Err(Closed) } else { Ok(()) }
    }

    fn is_due(&self) -> bool {
        self.cell.due.load(Ordering::Relaxed)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        self.rings.drain(&self.cell);
        if self.rings.shared.has_failed() { Err(Closed) } else { Ok(()) }
    }

    /// [`Closed`] if nothing can be recorded any more. After Ctrl-C the remaining records are still
    /// drained.
    fn finish(self) -> Result<(), Closed> {
        let shared = Arc::clone(&self.rings.shared);
        drop(self);
        if shared.has_failed() { Err(Closed) } else { Ok(()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The caller is gone; the session reports why it failed.
        self.rings.finish(&self.cell, self.retired);
    }
}
