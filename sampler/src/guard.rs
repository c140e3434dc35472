//! A guard that keeps an LBR armed while it lives.
//!
//! ```text
//! Ready::new (reads) -> keeper::watch -> Ready::arm (writes) -> Armed -> restore, or drop
//! ```
//!
//! [`Armed`] restores the registers when it is dropped, whether after an error, a panic or a
//! signal. If SIGKILL prevents that, the [watchdog process](crate::keeper) restores them.

use lbr_msr::arm::{self, Allowlisted, ArmError, ArmPlan, Frozen, Restored, Saved};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use crate::keeper::{KeeperError, Restorable, Ticket};

/// Why an LBR is not armed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// It cannot be armed, or a register could not be read.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// Someone else is using it.
    #[error(
        "CPU {cpu} is already recording branches ({control} is {value:#x}) for perf, another lbr or a KVM guest; wait until that ends, or disable recording with: lbr disarm -C {cpu}"
    )]
    InUse {
        /// Logical CPU.
        cpu: u32,
        /// The control register.
        control: Msr,
        /// Its value.
        value: u64,
    },
    /// The watchdog process is gone; nothing was written.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// Arming failed halfway, and the registers were restored.
    #[error("the branch records could not be armed: {0}")]
    Failed(MsrError),
    /// Arming failed halfway, and so did restoring the registers.
    #[error(
        "the branch records could not be armed: {error}; restoring the registers failed too: {restore}; run: lbr disarm"
    )]
    LeftOver {
        /// The error of arming.
        error: MsrError,
        /// The error of restoring.
        restore: MsrError,
    },
}

/// Registers whose state was read and not changed yet.
#[derive(Debug)]
pub struct Ready<M: MsrWrite> {
    owed: Owed<M>,
    report: Option<Report>,
}

/// Called with the CPU and the result after the [watchdog](crate::keeper) restored its registers.
type Report = fn(u32, Result<Restored, MsrError>);

impl<M: MsrWrite> Ready<M> {
    /// Reads the values to restore later. Writes nothing.
    ///
    /// # Errors
    /// [`GuardError::InUse`] if recording is already on: arming would spoil the other user's
    /// records, and restoring would leave recording on. [`GuardError::Arm`] for a conflict with
    /// Intel PT or branch trace messages, and for an unreadable register.
    pub fn new(registers: M, plan: ArmPlan) -> Result<Ready<M>, GuardError> {
        let mut registers = Allowlisted::new(registers, &plan);
        let saved = plan.save(&mut registers)?;
        let (control, enable) = plan.control();
        if saved.control & enable != 0 {
            return Err(GuardError::InUse { cpu: registers.cpu(), control, value: saved.control });
        }
        let owed = Owed { registers, plan, saved, ticket: None, settled: true };
        Ok(Ready { owed, report: None })
    }

    /// As the function above, but the watchdog calls `report` after restoring the registers.
    #[must_use]
    pub fn with_report(self, report: Report) -> Ready<M> {
        Ready { report: Some(report), ..self }
    }

    /// The register values. Recording is off; a filter or FREEZE_LBRS_ON_PMI that is [still
    /// set](Saved::in_use) shows that someone has recorded here and may do so again.
    pub const fn saved(&self) -> &Saved {
        &self.owed.saved
    }

    /// The logical CPU.
    pub fn cpu(&self) -> u32 {
        self.owed.registers.cpu()
    }

    /// Enables recording. The first write taints the kernel if the backend is the `msr` driver.
    ///
    /// # Errors
    /// [`GuardError::Failed`], [`GuardError::LeftOver`], [`GuardError::Keeper`].
    pub fn arm(self) -> Result<Armed<M>, GuardError> {
        let mut owed = self.owed;
        if let Some(ticket) = &owed.ticket {
            ticket.arming()?;
        }
        // Before the first write, so that a panic also restores.
        owed.settled = false;
        match owed.plan.arm(&mut owed.registers, &owed.saved) {
            Ok(left) => Ok(Armed { owed, left }),
            // The kernel refuses every write, so nothing has changed.
            Err(error @ MsrError::WriteFiltered { .. }) if owed.is_as_before() => {
                owed.settle();
                Err(GuardError::Failed(error))
            }
            Err(error) => Err(match owed.put_back() {
                Ok(_) => GuardError::Failed(error),
                Err(restore) => GuardError::LeftOver { error, restore },
            }),
        }
    }
}

impl<M: MsrWrite> Restorable for Ready<M> {
    fn give(&mut self, ticket: Ticket) {
        self.owed.ticket = Some(ticket);
    }

    /// Restores the values that [`new`](Self::new) read. Runs in the watchdog process, whose copy
    /// was never armed.
    fn put_back(&mut self) -> bool {
        let restored = self.owed.put_back();
        let is_done = restored.is_ok();
        if let Some(report) = self.report {
            report(self.cpu(), restored);
        }
        is_done
    }
}

/// Registers, and the values to restore if they were written.
#[derive(Debug)]
struct Owed<M: MsrWrite> {
    registers: Allowlisted<M>,
    plan: ArmPlan,
    saved: Saved,
    ticket: Option<Ticket>,
    /// They have these values, or were restored.
    settled: bool,
}

impl<M: MsrWrite> Owed<M> {
    fn put_back(&mut self) -> Result<Restored, MsrError> {
        // Only once: the watchdog process retries after a failure.
        self.settled = true;
        let restored = self.plan.restore(&mut self.registers, &self.saved)?;
        self.settle();
        Ok(restored)
    }

    /// Whether the registers have their previous values.
    fn is_as_before(&mut self) -> bool {
        self.plan.save(&mut self.registers).is_ok_and(|now| now == self.saved)
    }

    /// Marks the registers as restored.
    fn settle(&mut self) {
        self.settled = true;
        if let Some(ticket) = self.ticket.take() {
            ticket.settle();
        }
    }
}

impl<M: MsrWrite> Drop for Owed<M> {
    fn drop(&mut self) {
        if !self.settled {
            // A failure cannot be reported here, but the watchdog process will retry because it is
            // not told of success.
            let _ = self.put_back();
        }
    }
}

/// An armed LBR. Dropping it restores the registers.
#[derive(Debug)]
pub struct Armed<M: MsrWrite> {
    owed: Owed<M>,
    left: arm::Armed,
}

impl<M: MsrWrite> Armed<M> {
    /// The registers; only those in the plan can be written.
    pub fn registers(&mut self) -> &mut Allowlisted<M> {
        &mut self.owed.registers
    }

    /// The plan.
    pub const fn plan(&self) -> &ArmPlan {
        &self.owed.plan
    }

    /// The descriptor that a child process which writes the registers must keep open, so that the
    /// watchdog process waits for it too.
    pub fn lifeline(&self) -> Option<std::os::fd::RawFd> {
        self.owed.ticket.as_ref().map(Ticket::lifeline)
    }

    /// Stops recording, as [`ArmPlan::freeze`].
    ///
    /// # Errors
    /// The failed access.
    pub fn freeze(&mut self) -> Result<Frozen, MsrError> {
        self.owed.plan.freeze(&mut self.owed.registers, &self.left)
    }

    /// Resumes recording, as [`ArmPlan::thaw`].
    ///
    /// # Errors
    /// The failed access.
    pub fn thaw(&mut self, frozen: &Frozen) -> Result<(), MsrError> {
        self.left = self.owed.plan.thaw(&mut self.owed.registers, frozen)?;
        Ok(())
    }

    /// Restores the registers, and returns what it found.
    ///
    /// # Errors
    /// The first failed access; the rest was restored. The watchdog process retries when this
    /// process ends.
    pub fn restore(mut self) -> Result<Restored, MsrError> {
        self.owed.put_back()
    }
}
