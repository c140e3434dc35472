//! The steps of a plan, and register values before and between them.

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
        /// Bits to set.
        bits: u64,
    },
    /// Read, clear these bits, write.
    Clear {
        /// Register.
        msr: Msr,
        /// Bits to clear.
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

    /// Runs the step; returns the register's new value.
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

/// Register values before anything was written. Plain data: any process that has it and the
/// [`ArmPlan`](super::ArmPlan) can restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Saved {
    /// The control register.
    pub control: u64,
    /// DEBUGCTL, if the plan uses it and it is not the control register.
    pub debugctl: Option<u64>,
    /// The filter register, unless it is the control register.
    pub select: Option<u64>,
    /// IA32_LBR_DEPTH.
    pub depth: Option<u64>,
    /// The status register with LBR_FRZ, if it exists and is readable.
    pub status: Option<u64>,
    /// Signs that someone else uses this CPU's LBR: it was enabled, or a filter or
    /// FREEZE_LBRS_ON_PMI was set. perf sets all three while one of its LBR events runs on the CPU;
    /// there is no other sign.
    pub in_use: bool,
}

/// The control register's value with recording enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Armed {
    /// The value, including the enable bit.
    pub control: u64,
    /// Whether the status register is readable.
    pub(super) status: bool,
}

/// The state that a freeze found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frozen {
    /// The control register, read before its enable bit was cleared.
    pub control: u64,
    /// The status register, if it was read.
    pub status: Option<u64>,
    /// Recording was already off: the enable bit was clear (a debug exception,
    /// a PMI before perfmon version 4), or a PMI had set LBR_FRZ.
    pub stopped: bool,
    /// Other bits of the control register have changed since it was written: someone else writes
    /// it.
    pub foreign: bool,
    pub(super) status_readable: bool,
}

impl Frozen {
    /// Whether a PMI had frozen recording through GLOBAL_STATUS.LBR_FRZ. SDM 17.4.7.
    pub const fn frozen_by_pmi(&self) -> bool {
        matches!(self.status, Some(status) if status & LBR_FRZ != 0)
    }
}

/// The state that restoring found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Restored {
    /// The filter register, IA32_LBR_CTL or IA32_LBR_DEPTH held neither the value written here nor
    /// the saved one. Someone else uses it, so the register and the records were not touched.
    pub foreign: bool,
    /// Set for an [exclusive](super::ArmPlan::exclusive) plan if bits of the control register that
    /// the plan does not write had changed. The register was restored.
    pub control: Option<ChangedControl>,
}

/// A control register that other code or another program changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChangedControl {
    /// The register.
    pub msr: Msr,
    /// Its value when it was restored.
    pub found: u64,
    /// Its value before it was armed, which was restored.
    pub before: u64,
}
