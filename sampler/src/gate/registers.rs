//! The registers that a source writes branches to, and why they may be unavailable.

use lbr_msr::arm::{Allowlisted, ArmError};
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrError, MsrWrite};

use crate::drain::{Drain, DrainError, RawStack};
use crate::target::ThreadId;

/// The recorder has stopped (Ctrl-C, a failed sink): the source should stop too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recorder has stopped")]
pub struct Closed;

/// The registers of one thread of the target: a software LBR, or a wrapper that observes or
/// disturbs one.
pub trait BranchRegisters: MsrWrite + Send {
    /// Retires one taken branch. Returns whether the LBR changed: a filtered branch changes
    /// nothing.
    fn retire(&mut self, branch: &Retired) -> bool;

    /// Retires branches, oldest first, until the LBR has changed `most` times. Returns how many
    /// branches it retired and how often the LBR changed.
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

    /// Drains the registers, as [`Drain::drain_into`] does, but statically dispatched.
    ///
    /// # Errors
    /// A failed access.
    fn drained(&mut self, drain: &mut Drain, out: &mut RawStack) -> Result<(), MsrError> {
        drain.drain_into(self, out)
    }

    /// The software LBR, if it is a plain one.
    fn soft(&mut self) -> Option<&mut SoftLbr> {
        None
    }
}

impl BranchRegisters for Allowlisted<SoftLbr> {
    fn retire(&mut self, branch: &Retired) -> bool {
        self.inner_mut().retire(branch)
    }

    fn soft(&mut self) -> Option<&mut SoftLbr> {
        Some(self.inner_mut())
    }
}

/// Why a thread's registers could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Arming failed.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// Draining is impossible.
    #[error(transparent)]
    Drain(#[from] DrainError),
}

impl From<MsrError> for OpenError {
    fn from(error: MsrError) -> OpenError {
        OpenError::Arm(error.into())
    }
}

/// Creates the registers of a thread of the target: cleared, with filter and depth set, recording
/// enabled.
pub type OpenRegisters =
    Box<dyn Fn(ThreadId) -> Result<Box<dyn BranchRegisters>, OpenError> + Send + Sync>;
