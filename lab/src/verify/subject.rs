//! A CPU to be verified.

use lbr_msr::probe::RecordedCpuid;
use lbr_msr::{Msr, MsrError, MsrWrite};

use super::{Kernel, Ran};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubjectKind {
    /// A software LBR, fed by hand.
    Software,
    /// A virtual machine whose LBR is a software LBR: real code, and every
    /// register can be probed without harm.
    Emulated,
    /// A CPU.
    Hardware,
}

/// What is known of its branches beside where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Knows {
    /// Whether a branch was mispredicted.
    pub mispredict: bool,
    /// How many cycles passed.
    pub cycles: bool,
}

/// How recording is switched on and off: two writes of one register. Where
/// nothing runs in between, switching off may as well be clearing the bits that
/// `on` has and `off` has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Register.
    pub msr: Msr,
    /// What switches on.
    pub on: u64,
    /// What switches off.
    pub off: u64,
}

/// Why a kernel did not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It cannot be run here; a reason as a part of a sentence.
    #[error("{0}")]
    Unavailable(String),
    /// A register could not be written.
    #[error(transparent)]
    Register(#[from] MsrError),
    /// It was started and did not end well.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    /// It cannot be run here.
    pub fn unavailable(why: impl Into<String>) -> RunError {
        RunError::Unavailable(why.into())
    }
}

/// One logical CPU that is asked what it does.
///
/// Registers are reached through [`MsrRead`](lbr_msr::MsrRead) and
/// [`MsrWrite`]. Whoever asks writes nothing but what it restores.
pub trait Subject: MsrWrite {
    /// What is asked.
    fn kind(&self) -> SubjectKind;

    /// What is known of its branches.
    fn knows(&self) -> Knows;

    /// Its CPUID.
    fn cpuid(&self) -> &RecordedCpuid;

    /// How often a kernel is to be run before a result that is not the
    /// documented one counts: where interrupts come between, more than once.
    fn attempts(&self) -> u32 {
        1
    }

    /// Writes `switch.on`, runs the kernel, writes `switch.off`.
    ///
    /// # Errors
    /// [`RunError`]. Recording may be left on after a failure.
    fn execute(&mut self, kernel: Kernel, switch: Switch) -> Result<Ran, RunError>;

    /// Lets the core rest in a C-state deeper than C1, recording being off.
    ///
    /// # Errors
    /// [`RunError::Unavailable`] where that cannot be had.
    fn deep_c_state(&mut self) -> Result<(), RunError> {
        Err(RunError::unavailable("a deep C-state cannot be asked for"))
    }

    /// Reads a register of another hyperthread of the same core.
    ///
    /// # Errors
    /// [`RunError::Unavailable`] where there is none.
    fn read_sibling(&mut self, msr: Msr) -> Result<u64, RunError> {
        let _ = msr;
        Err(RunError::unavailable("no other hyperthread of this core can be read"))
    }
}
