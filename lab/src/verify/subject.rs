//! The interface to a CPU under test.

use lbr_msr::probe::RecordedCpuid;
use lbr_msr::{Msr, MsrError, MsrWrite};

use super::{Kernel, Ran};

/// The kind of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// A software LBR.
    Software,
    /// A virtual machine whose LBR is a software LBR: runs real code, and every register can be
    /// probed safely.
    Emulated,
    /// A real CPU.
    Hardware,
}

/// How to switch recording on and off: two writes of one register. If nothing runs in between,
/// clearing the bits that are in `on` but not in `off` is enough to switch off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Register.
    pub msr: Msr,
    /// The value that switches on.
    pub on: u64,
    /// The value that switches off.
    pub off: u64,
}

/// Why a kernel did not run, or a check was abandoned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// It cannot be run here, or was started and failed; the reason, as a clause.
    #[error("{0}")]
    Unavailable(String),
    /// A register access failed.
    #[error(transparent)]
    Register(#[from] MsrError),
}

impl RunError {
    /// It cannot be run here, for this reason.
    pub fn unavailable(why: impl Into<String>) -> RunError {
        RunError::Unavailable(why.into())
    }
}

/// A logical CPU under test.
///
/// Its registers are accessed through [`MsrRead`](lbr_msr::MsrRead) and [`MsrWrite`]. Callers write
/// only registers that they restore.
pub trait Subject: MsrWrite {
    /// The kind of subject.
    fn kind(&self) -> SubjectKind;

    /// Its CPUID.
    fn cpuid(&self) -> &RecordedCpuid;

    /// How often to run a kernel before accepting a result that differs from the documented one;
    /// more than once if interrupts may disturb it.
    fn attempts(&self) -> u32 {
        1
    }

    /// Writes `switch.on`, runs the kernel, writes `switch.off`.
    ///
    /// # Errors
    /// [`RunError`]. Recording may be left on after a failure.
    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError>;

    /// Lets the core rest in a C-state deeper than C1, with recording off.
    ///
    /// # Errors
    /// [`RunError::Unavailable`] if that is impossible.
    fn deep_c_state(&mut self) -> Result<(), RunError>;

    /// Reads a register of another hyperthread of the same core.
    ///
    /// # Errors
    /// [`RunError::Unavailable`] without such a hyperthread.
    fn read_sibling(&mut self, msr: Msr) -> Result<u64, RunError>;
}
