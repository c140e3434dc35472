//! A ring that is armed as long as a value lives.
//!
//! ```text
//! Ready::new (reads) -> keeper::watch -> Ready::arm (writes) -> Armed -> restore, or drop
//! ```
//!
//! [`Armed`] puts the registers back when it is dropped, be it by an error, by
//! a panic or because a signal ended a loop. What no destructor survives
//! (SIGKILL) the [keeper](crate::keeper) does.

use lbr_msr::arm::{self, Allowlisted, ArmError, ArmPlan, Frozen, Restored, Saved};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use crate::keeper::{KeeperError, Restorable, Ticket};

/// Why a ring is not armed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// It cannot be armed, or a register could not be read.
    #[error(transparent)]
    Arm(#[from] ArmError),
    /// Somebody else records with it.
    #[error(
        "CPU {cpu} records branches already ({control} is {value:#x}): perf, another lbr or a guest of KVM uses them; wait until it has ended, or switch recording off with lbr disarm -C {cpu}"
    )]
    InUse {
        /// Logical CPU.
        cpu: u32,
        /// The control register.
        control: Msr,
        /// What it holds.
        value: u64,
    },
    /// The keeper has gone; nothing was written.
    #[error(transparent)]
    Keeper(#[from] KeeperError),
    /// Arming failed on the way, and the registers are as they were before.
    #[error("the branch records could not be armed: {0}")]
    Failed(MsrError),
    /// Arming failed on the way, and so did putting the registers back.
    #[error(
        "the branch records could not be armed: {error}; putting the registers back failed as well: {restore}; try lbr disarm"
    )]
    LeftOver {
        /// What arming failed with.
        error: MsrError,
        /// What restoring failed with.
        restore: MsrError,
    },
}

/// Registers whose state is known and not changed yet.
#[derive(Debug)]
pub struct Ready<M> {
    registers: Allowlisted<M>,
    plan: ArmPlan,
    saved: Saved,
    ticket: Option<Ticket>,
}

impl<M: MsrWrite> Ready<M> {
    /// Reads what will be put back. Writes nothing.
    ///
    /// # Errors
    /// [`GuardError::InUse`] where recording is on already: arming would spoil
    /// somebody else's records, and the restore would leave it on. A conflict
    /// with Intel PT or branch trace messages, and a register that cannot be
    /// read, is [`GuardError::Arm`].
    pub fn new(registers: M, plan: ArmPlan) -> Result<Ready<M>, GuardError> {
        let mut registers = Allowlisted::new(registers, &plan);
        let saved = plan.save(&mut registers)?;
        let (control, enable) = plan.control();
        if saved.control & enable != 0 {
            return Err(GuardError::InUse { cpu: registers.cpu(), control, value: saved.control });
        }
        Ok(Ready { registers, plan, saved, ticket: None })
    }

    /// What the registers hold. Recording is off; a filter or
    /// FREEZE_LBRS_ON_PMI that is [set nevertheless](Saved::in_use) says that
    /// something recorded here before and may do so again.
    #[must_use]
    pub const fn saved(&self) -> &Saved {
        &self.saved
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &ArmPlan {
        &self.plan
    }

    /// The logical CPU.
    #[must_use]
    pub fn cpu(&self) -> u32 {
        self.registers.cpu()
    }

    /// Switches recording on. The first write taints the kernel where the
    /// backend is the `msr` driver.
    ///
    /// # Errors
    /// [`GuardError::Failed`], [`GuardError::LeftOver`], [`GuardError::Keeper`].
    pub fn arm(self) -> Result<Armed<M>, GuardError> {
        let Ready { registers, plan, saved, ticket } = self;
        if let Some(ticket) = &ticket {
            ticket.arming()?;
        }
        // Exists before the first write, so that a panic restores as well.
        let mut owed = Owed { registers, plan, saved, ticket, settled: false };
        match owed.plan.arm(&mut owed.registers, &saved) {
            Ok(left) => Ok(Armed { owed, left }),
            // The kernel refuses every write, and there was none.
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
        self.ticket = Some(ticket);
    }

    /// Puts back what [`new`](Self::new) read: the keeper's ring never was armed.
    fn put_back(&mut self) -> bool {
        self.plan.restore(&mut self.registers, &self.saved).is_ok()
    }
}

/// Registers that were written and have to be put back.
#[derive(Debug)]
struct Owed<M: MsrWrite> {
    registers: Allowlisted<M>,
    plan: ArmPlan,
    saved: Saved,
    ticket: Option<Ticket>,
    settled: bool,
}

impl<M: MsrWrite> Owed<M> {
    fn put_back(&mut self) -> Result<Restored, MsrError> {
        // Once: what failed here is left to the keeper, which tries again.
        self.settled = true;
        let restored = self.plan.restore(&mut self.registers, &self.saved)?;
        self.settle();
        Ok(restored)
    }

    /// Whether the registers hold what they held before.
    fn is_as_before(&mut self) -> bool {
        self.plan.save(&mut self.registers).is_ok_and(|now| now == self.saved)
    }

    /// Nothing is owed any more.
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
            // Nobody is left to be told, but the keeper, which is not told that
            // all is well.
            let _ = self.put_back();
        }
    }
}

/// An armed ring. Dropping it puts the registers back.
#[derive(Debug)]
pub struct Armed<M: MsrWrite> {
    owed: Owed<M>,
    left: arm::Armed,
}

impl<M: MsrWrite> Armed<M> {
    /// The registers; what the plan does not name cannot be written.
    pub fn registers(&mut self) -> &mut Allowlisted<M> {
        &mut self.owed.registers
    }

    /// The plan.
    #[must_use]
    pub const fn plan(&self) -> &ArmPlan {
        &self.owed.plan
    }

    /// What the registers held before.
    #[must_use]
    pub const fn saved(&self) -> &Saved {
        &self.owed.saved
    }

    /// The control register as it was left by arming or by the last
    /// [`thaw`](Self::thaw).
    #[must_use]
    pub const fn left(&self) -> &arm::Armed {
        &self.left
    }

    /// What a child that writes the registers is to keep open, so that the
    /// keeper waits for its end too.
    #[must_use]
    pub fn lifeline(&self) -> Option<std::os::fd::RawFd> {
        self.owed.ticket.as_ref().and_then(Ticket::lifeline)
    }

    /// Stops recording, as [`ArmPlan::freeze`].
    ///
    /// # Errors
    /// The access that failed.
    pub fn freeze(&mut self) -> Result<Frozen, MsrError> {
        self.owed.plan.freeze(&mut self.owed.registers, &self.left)
    }

    /// Starts recording again, as [`ArmPlan::thaw`].
    ///
    /// # Errors
    /// The access that failed.
    pub fn thaw(&mut self, frozen: &Frozen) -> Result<(), MsrError> {
        self.left = self.owed.plan.thaw(&mut self.owed.registers, frozen)?;
        Ok(())
    }

    /// Puts the registers back, and tells what it found.
    ///
    /// # Errors
    /// The first access that failed; what could be put back has been. A keeper
    /// tries again when this process ends.
    pub fn restore(mut self) -> Result<Restored, MsrError> {
        self.owed.put_back()
    }
}
