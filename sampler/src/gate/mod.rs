//! The recorder as a source sees it: where it hands its branches over, and
//! waits while a sampler thread drains.
//!
//! Each thread of the target has registers of its own behind a lock, which is
//! held for a whole drain, so that the source waits and nothing can be missing
//! between freeze and thaw. Where a period is full, the source's own thread
//! drains, before it goes on with the run of branches that it hands over; with
//! a rate a clock decides.

mod registers;
mod rings;
mod shared;

use std::fmt;
use std::sync::Arc;

use lbr_msr::record::Event;
use lbr_msr::soft::{Retired, SoftLbr};

use crate::target::ThreadId;
pub use registers::{BranchRegisters, Closed, OpenError, OpenRegisters};
use rings::Cell;
pub(crate) use rings::Rings;
pub(crate) use shared::Shared;

/// The recorder as a branch source sees it. Clones name the same recorder.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
    rings: Arc<Rings>,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

impl Gate {
    pub(crate) fn new(shared: Arc<Shared>, rings: Arc<Rings>) -> Gate {
        Gate { shared, rings }
    }

    /// A thread starts: gives it a ring of its own, armed.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn start(&self, thread: ThreadId) -> Result<Ring, Closed> {
        if self.is_closed() {
            return Err(Closed);
        }
        let cell = self.rings.open(thread).ok_or(Closed)?;
        Ok(Ring { gate: self.clone(), cell, retired: 0 })
    }

    /// The registers that each thread begins with, where they are a software
    /// LBR and nothing else: by them a source can tell which branches no ring
    /// would hold when it is looked at.
    #[must_use]
    pub fn model(&self) -> Option<SoftLbr> {
        self.rings.model()
    }

    /// Ring changes after which a ring is drained; `None` where a clock decides.
    #[must_use]
    pub fn period(&self) -> Option<u64> {
        self.rings.period
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
        self.rings.close();
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
    gate: Gate,
    cell: Arc<Cell>,
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
    /// Retires one taken branch; see [`retire_run`](Self::retire_run).
    ///
    /// # Errors
    /// [`Closed`].
    pub fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        self.retire_run(std::slice::from_ref(branch))
    }

    /// Retires taken branches, the oldest first. Drains wherever the period is
    /// full.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn retire_run(&mut self, run: &[Retired]) -> Result<(), Closed> {
        self.retire_newest(0, run)
    }

    /// Retires the newest branches of a run, in front of which so many were left
    /// out: branches that pass the filter, of which the ring holds none any more
    /// when these are in. Only for registers that [`Gate::model`] knows.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn retire_newest(&mut self, left_out: u64, run: &[Retired]) -> Result<(), Closed> {
        if self.gate.is_closed() {
            return Err(Closed);
        }
        self.retired += self.gate.rings.feed(&self.cell, left_out, run);
        Ok(())
    }

    /// Retires the branch that enters a function, with the registers in which its
    /// arguments are: the newest of the stack that is drained then.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn retire_entry(&mut self, branch: &Retired, arguments: [u64; 6]) -> Result<(), Closed> {
        if self.gate.is_closed() {
            return Err(Closed);
        }
        self.retired += self.gate.rings.feed_entry(&self.cell, branch, arguments);
        Ok(())
    }

    /// Whether the clock wants this ring drained. A source that keeps branches
    /// back has to hand them over now, and to [`flush`](Self::flush).
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.cell.is_due()
    }

    /// Drains the ring now, and returns when that is done. For moments such as
    /// an exec: from there on the same addresses are other code.
    ///
    /// # Errors
    /// [`Closed`].
    pub fn flush(&mut self) -> Result<(), Closed> {
        self.gate.rings.drain(&self.cell);
        if self.gate.shared.has_failed() { Err(Closed) } else { Ok(()) }
    }

    /// The thread has ended: what is left in the ring is drained.
    ///
    /// # Errors
    /// [`Closed`], where nothing can be recorded any more. After a Ctrl-C the
    /// rest is still drained.
    pub fn finish(self) -> Result<(), Closed> {
        let shared = Arc::clone(&self.gate.shared);
        drop(self);
        if shared.has_failed() { Err(Closed) } else { Ok(()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // There is nobody left to tell; the session reports why it failed.
        self.gate.rings.finish(&self.cell, self.retired);
    }
}
