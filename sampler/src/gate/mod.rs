//! The recorder as a source sees it: where it hands its branches over, and
//! waits while a sampler thread drains.
//!
//! Each thread of the target has registers of its own behind a lock. The
//! sampler thread holds the lock for a whole drain, so that the source waits
//! and nothing can be missing between freeze and thaw. With a period the
//! source asks for the drain and waits for its end; with a rate the sampler's
//! clock decides.

mod registers;
mod shared;

use std::fmt;
use std::sync::Arc;

use lbr_msr::record::Event;
use lbr_msr::soft::Retired;

use crate::target::ThreadId;
pub use registers::{BranchRegisters, Closed, OpenError, OpenRegisters};
pub(crate) use shared::{Cell, Shared, Work};

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
        let cell = self.shared.open(thread).ok_or(Closed)?;
        self.shared.ask(Work::Start(Arc::clone(&cell)));
        Ok(Ring { shared: Arc::clone(&self.shared), cell, since_drain: 0, retired: 0 })
    }

    /// A process was started to be recorded: signals that would end the
    /// recorder are passed on to it.
    pub fn started(&self, pid: u32) {
        self.shared.started(pid);
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
        if lands_unseen || !self.cell.retire(branch) {
            return Ok(());
        }
        self.retired += 1;
        self.since_drain += 1;
        match self.shared.period {
            Some(period) if self.since_drain >= period => self.flush(),
            Some(_) => Ok(()),
            None => {
                self.cell.refresh();
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
        self.shared.hand_over(&self.cell, Work::Drain(Arc::clone(&self.cell)))
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
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.add_retired(self.retired);
        // There is nobody left to tell; the session reports why it failed.
        let _ = self.shared.hand_over(&self.cell, Work::Finish(Arc::clone(&self.cell)));
    }
}
