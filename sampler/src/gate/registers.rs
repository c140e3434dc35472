//! The registers that a source feeds, and why there are none.

use lbr_msr::arm::{Allowlisted, ArmError};
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrError, MsrWrite};

use crate::drain::{Drain, DrainError, RawStack};
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

    /// Retires branches, the oldest first, until the ring has changed `most`
    /// times. How many of them that were, and how often the ring changed.
    fn retire_run(&mut self, run: &[Retired], most: u64) -> (usize, u64) {
        let (mut taken, mut changes) = (0, 0);
        for branch in run {
            if changes >= most {
                break;
            }
            taken += 1;
            changes += u64::from(self.retire(branch));
        }
        (taken, changes)
    }

    /// Drains them: what [`Drain::drain_into`] does, which here knows whose
    /// registers it reads and need not ask for each.
    ///
    /// # Errors
    /// A failed access.
    fn drained(&mut self, drain: &mut Drain, out: &mut RawStack) -> Result<(), MsrError> {
        drain.drain_into(self, out)
    }

    /// The software LBR, where it is that and nothing else.
    fn soft(&mut self) -> Option<&mut SoftLbr> {
        None
    }
}

impl BranchRegisters for SoftLbr {
    fn retire(&mut self, branch: &Retired) -> bool {
        SoftLbr::retire(self, branch)
    }

    fn retire_run(&mut self, run: &[Retired], most: u64) -> (usize, u64) {
        SoftLbr::retire_run(self, run, most)
    }

    fn soft(&mut self) -> Option<&mut SoftLbr> {
        Some(self)
    }
}

impl BranchRegisters for Allowlisted<SoftLbr> {
    fn retire(&mut self, branch: &Retired) -> bool {
        self.inner_mut().retire(branch)
    }

    fn retire_run(&mut self, run: &[Retired], most: u64) -> (usize, u64) {
        self.inner_mut().retire_run(run, most)
    }

    fn soft(&mut self) -> Option<&mut SoftLbr> {
        Some(self.inner_mut())
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
