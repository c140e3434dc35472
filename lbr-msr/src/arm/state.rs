//! The steps of a plan, and what registers held before and between them.

use super::LBR_FRZ;
use crate::access::{MsrError, MsrWrite};
use crate::address::Msr;

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArmStep {
    /// Read, set these bits, write.
    Set {
        /// Register.
        msr: Msr,
        /// Bits of ours.
        bits: u64,
    },
    /// Read, clear these bits, write.
    Clear {
        /// Register.
        msr: Msr,
        /// Bits of ours.
        bits: u64,
    },
    /// Write the whole register.
    Write {
        /// Register.
        msr: Msr,
        /// The value.
        value: u64,
    },
}

impl ArmStep {
    /// The register it writes.
    #[must_use]
    pub const fn msr(self) -> Msr {
        match self {
            ArmStep::Set { msr, .. } | ArmStep::Clear { msr, .. } | ArmStep::Write { msr, .. } => {
                msr
            }
        }
    }

    /// Does it; returns what the register holds afterwards.
    pub(super) fn run<M: MsrWrite>(self, registers: &mut M) -> Result<u64, MsrError> {
        let value = match self {
            ArmStep::Set { msr, bits } => registers.read(msr)? | bits,
            ArmStep::Clear { msr, bits } => registers.read(msr)? & !bits,
            ArmStep::Write { value, .. } => value,
        };
        registers.write(self.msr(), value)?;
        Ok(value)
    }
}

/// What the registers held before anything was written. Plain data: a process
/// that has it and the [`ArmPlan`](super::ArmPlan) can restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    /// The control register.
    pub control: u64,
    /// DEBUGCTL, where it is not the control register and the plan touches it.
    pub debugctl: Option<u64>,
    /// The filter register, where it is not the control register.
    pub select: Option<u64>,
    /// IA32_LBR_DEPTH.
    pub depth: Option<u64>,
    /// The status register with LBR_FRZ, where it exists and can be read.
    pub status: Option<u64>,
    pub(super) in_use: bool,
}

impl Saved {
    /// Signs that somebody else uses the LBR of this CPU: it was enabled, or a
    /// filter or FREEZE_LBRS_ON_PMI was set. perf sets all three while one of
    /// its LBR events runs on the CPU, and nothing else tells.
    #[must_use]
    pub const fn in_use(&self) -> bool {
        self.in_use
    }
}

/// The control register as it was left with recording on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Armed {
    /// Its value, the enable bit included.
    pub control: u64,
    /// The status register can be read.
    pub(super) status: bool,
}

/// What a freeze found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    /// The control register as it was read, before the enable bit was cleared.
    pub control: u64,
    /// The status register, where it was read.
    pub status: Option<u64>,
    /// Recording was already off: the enable bit was clear (a debug exception,
    /// a PMI before perfmon version 4), or a PMI had set LBR_FRZ.
    pub stopped: bool,
    /// Other bits of the control register changed since it was left: somebody
    /// else writes it.
    pub foreign: bool,
    pub(super) status_readable: bool,
}

impl Frozen {
    /// A PMI had frozen the ring by GLOBAL_STATUS.LBR_FRZ. SDM 17.4.7.
    #[must_use]
    pub const fn frozen_by_pmi(&self) -> bool {
        matches!(self.status, Some(status) if status & LBR_FRZ != 0)
    }
}

/// What restoring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Restored {
    /// The filter register, IA32_LBR_CTL or IA32_LBR_DEPTH held neither what
    /// was written here nor what was saved: somebody else had taken it, and it
    /// was left alone, and so were the records.
    pub foreign: bool,
}
