//! Draining: freeze the LBR, read the new records, mark the newest, thaw.
//!
//! After reading, a drain zeroes one register of the newest record as a mark: FROM on Intel, TO on
//! AMD. That record is already saved, so nothing is lost. The next drain reads from the newest
//! record down to the mark: exactly the new ones. It reads `k + 1` slots instead of all, records
//! nothing twice, and handles tight loops whose records are all identical. On Intel, a mark has
//! FROM = 0 and the TO (or INFO) that was read; with TOS it must also be at the marked slot, so
//! that `k = (TOS - TOS_prev) mod depth` agrees. On AMD, it has TO = 0 and the FROM that was read.
//! An all-zero slot is not a mark: something cleared the records.
//!
//! If the registers are reached in [one call](lbr_msr::MsrRead::one_call), one batch reads all
//! records and zeroes every FROM (AMD: TO); the marked slot is recognised in the same way.
//!
//! # Cost
//!
//! At most `3k + 8` register accesses for k new slots: reading and writing the control register to
//! freeze, TOS, three registers per new slot, two for the slot after them, one or two to check that
//! nothing moved, the mark, and the thaw. The filter register, and from perfmon 4 on
//! IA32_PERF_GLOBAL_STATUS, are checked if the budget allows: always if no slot or every slot is
//! new, and always if records have no INFO. A freeze on PMI (LBR_FRZ) is therefore noticed and
//! released by the next drain without new records at the latest.
//!
//! # Limits
//!
//! - Exactly `depth` new branches look like more: both are labelled a gap.
//! - A branch at address 0 looks like someone else's mark.
//! - In call-stack mode, a full LBR may hold exactly `depth` frames or more: it is labelled
//!   truncated. More returns than recorded calls move TOS below its value at arming, modulo the
//!   depth, which sets `underflow`. Architectural LBR has no TOS, so it never reports underflow;
//!   neither does a full LBR, or one whose TOS has wrapped around.

mod batch;
mod freeze;
mod label;
mod ring;
mod slots;
mod stack;
mod walk;

use lbr_msr::access::MsrResult;
use lbr_msr::caps::{Facility, LbrCaps};
use lbr_msr::record::{Head, RawEntry};
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use crate::clock::monotonic_ns;
use crate::target::ThreadId;
use freeze::Frozen;
use ring::{Edge, MarkKind, RingPlan, is_blank};
use slots::{CountedRegisters, Live, Slots};
pub use stack::{MAX_DEPTH, RawStack};
use walk::{End, Walk, frames, walk};

/// The LBR's recording mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A stream of branches, drained from mark to mark.
    Stream,
    /// Call-stack mode: each drain is a snapshot of the frames.
    CallStack,
}

/// Where the drain runs relative to the branches. This decides whether branches can be missing
/// between freeze and thaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The source of the branches waits, or the target is stopped.
    SourceWaits,
    /// On the target's CPU, with SCHED_FIFO priority over it.
    SameCpuFirst,
    /// From another CPU, or without priority: user code may run between freeze and thaw.
    Beside,
}

/// Why an LBR cannot be drained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    /// The facility cannot be recorded from.
    #[error("{} cannot be recorded from: {why}", facility.name())]
    Unsupported {
        /// The mechanism.
        facility: Facility,
        /// The reason.
        why: &'static str,
    },
    /// An unsupported depth.
    #[error(
        "an LBR with {depth} records cannot be drained: 1 to 64 are supported, and only powers of two with a top-of-stack register"
    )]
    Depth {
        /// The depth from the capabilities or IA32_LBR_DEPTH.
        depth: u32,
    },
    /// Recording is off.
    #[error("the LBR is not armed: {control} reads {value:#x}, without the enable bit")]
    NotArmed {
        /// The control register.
        control: lbr_msr::Msr,
        /// Its value.
        value: u64,
    },
    /// A register access failed.
    #[error(transparent)]
    Access(#[from] MsrError),
}

/// Repeatedly drains one LBR.
#[derive(Clone, Debug)]
pub struct Drain {
    ring: RingPlan,
    mode: Mode,
    placement: Placement,
    /// The control register's value when armed.
    control: u64,
    /// The filter register's value when armed.
    select: Option<u64>,
    /// TOS when armed.
    base: u32,
    edge: Edge,
    /// The head of the next non-empty stack, whatever its records show: earlier branches are in no
    /// delivered stack.
    owed: Option<Head>,
    /// A batch failed, which may have zeroed some of the records.
    damaged: bool,
}

impl Drain {
    /// Starts with an LBR that has just been armed: cleared, enabled, not yet drained. Reads the
    /// control, filter, depth and top-of-stack registers for later comparison.
    ///
    /// # Errors
    /// [`DrainError`]: an unsupported facility or depth, a disabled LBR, or a failed access.
    pub fn begin<R: MsrWrite + ?Sized>(
        caps: &LbrCaps,
        mode: Mode,
        placement: Placement,
        registers: &mut R,
    ) -> Result<Drain, DrainError> {
        let depth = match caps.registers.depth {
            Some(msr) => u32::try_from(registers.read(msr)?).unwrap_or(u32::MAX),
            None => caps.depth,
        };
        let mut ring = RingPlan::new(caps, depth)?;
        if mode == Mode::CallStack && !caps.call_stack() {
            let why = "it has no call-stack mode";
            return Err(DrainError::Unsupported { facility: caps.facility, why });
        }
        let control = registers.read(ring.map.control)?;
        if control & ring.map.enable == 0 {
            return Err(DrainError::NotArmed { control: ring.map.control, value: control });
        }
        let select = ring.select.map(|msr| registers.read(msr)).transpose()?;
        // This CPU may lack the register.
        ring.status = ring.status.filter(|(msr, _)| registers.read(*msr).is_ok());
        let base = match ring.map.tos {
            Some(msr) => ring.top(registers.read(msr)?),
            None => 0,
        };
        let edge = Edge::Blank { index: ring.map.tos.map(|_| base), head: Head::Joined };
        Ok(Drain { ring, mode, placement, control, select, base, edge, owed: None, damaged: false })
    }

    /// The last stack was not delivered, so the next one does not continue it.
    pub fn stack_dropped(&mut self) {
        self.owed = Some(Head::Lost);
    }

    /// Branches may have retired while recording was off, so the next non-empty stack has unknown
    /// continuity.
    pub fn may_have_missed(&mut self) {
        self.owed = self.owed.or(Some(Head::Unknown));
    }

    /// Whether the control and filter registers still have their armed values; for the end of a
    /// recording.
    ///
    /// # Errors
    /// A failed access.
    pub fn is_still_ours<R: MsrRead + ?Sized>(&self, registers: &mut R) -> MsrResult<bool> {
        if registers.read(self.ring.map.control)? != self.control {
            return Ok(false);
        }
        match (self.ring.select, self.select) {
            (Some(msr), Some(armed)) => Ok(registers.read(msr)? == armed),
            _ => Ok(true),
        }
    }

    /// Drains once.
    ///
    /// # Errors
    /// A failed access. Recording is as the drain found it, if possible, and the next stack is not
    /// joined.
    pub fn drain<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut R,
        thread: ThreadId,
    ) -> MsrResult<RawStack> {
        let mut out = RawStack::empty(thread, registers.cpu());
        self.drain_into(registers, &mut out)?;
        Ok(out)
    }

    /// [Drains](Self::drain) once, reusing a stack of the same thread.
    ///
    /// # Errors
    /// As for [`drain`](Self::drain); the stack is then unspecified.
    pub fn drain_into<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut R,
        out: &mut RawStack,
    ) -> MsrResult {
        out.restart(registers.cpu());
        let in_one_call = registers.one_call();
        out.integrity.cut = self.placement == Placement::Beside && !in_one_call;
        let mut registers = CountedRegisters::new(registers);
        let drained = if in_one_call {
            self.drain_in_one_call(&mut registers, out)
        } else {
            self.freeze(&mut registers).and_then(|found| {
                let drained = self
                    .read_frozen(&mut registers, found, out)
                    .and_then(|frozen| self.thaw(&mut registers, frozen));
                drained.inspect_err(|_| self.leave_as_found(&mut registers, found.control))
            })
        };
        out.accesses = registers.accesses;
        if drained.is_err() {
            self.owed = Some(Head::Unknown);
            self.damaged |= in_one_call;
        }
        drained
    }

    /// The control register, and its enable bits.
    #[must_use]
    pub fn control(&self) -> (Msr, u64) {
        (self.ring.map.control, self.ring.map.enable)
    }

    /// Drains once, for a caller that thaws. Leaves recording off; write the returned value to the
    /// [control register](Self::control) to thaw.
    ///
    /// `seen` is the control register's value before the caller froze it; the caller's read and
    /// write, and the write that thaws, count among the stack's accesses. With `None` this function
    /// freezes.
    ///
    /// # Errors
    /// A failed access. Recording is then off.
    pub fn drain_frozen<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut R,
        thread: ThreadId,
        seen: Option<u64>,
    ) -> MsrResult<(RawStack, u64)> {
        let mut out = RawStack::empty(thread, registers.cpu());
        out.integrity.cut = self.placement == Placement::Beside;
        let mut registers = CountedRegisters::new(registers);
        let frozen = match seen {
            Some(control) => {
                registers.accesses += 2;
                Ok(self.judge(control))
            }
            None => self.freeze(&mut registers),
        };
        let drained = frozen.and_then(|frozen| self.read_frozen(&mut registers, frozen, &mut out));
        out.accesses = registers.accesses + 1;
        let frozen = drained.inspect_err(|_| self.owed = Some(Head::Unknown))?;
        Ok((out, self.thawed(frozen)))
    }

    /// The part of a drain between freeze and thaw.
    fn read_frozen<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut CountedRegisters<'_, R>,
        mut frozen: Frozen,
        out: &mut RawStack,
    ) -> MsrResult<Frozen> {
        out.time = monotonic_ns();
        let top = self.top(registers)?;
        let found = self.walk(top, &mut Live { ring: &self.ring, registers }, out)?;
        let blank = self.blank_head();
        // Remaining accesses: the check for movement, the mark, the thaw.
        let is_marked = self.mode == Mode::Stream && found.new > 0;
        let rest = self.cost_of_moved() + if is_marked { 2 } else { 1 };
        self.look_around(registers, &mut frozen, found.new, rest)?;
        // An LBR frozen by LBR_FRZ cannot move, and its release costs the same.
        let torn = !frozen.by_status && self.moved(registers, top, found.newest, found.new)?;
        match self.mode {
            Mode::Stream => {
                // After a torn read the old mark stays, so that the next drain reads everything
                // again. Records made under someone else's filter must not be read again.
                if !torn || frozen.foreign {
                    self.leave_mark(registers, top, &found)?;
                }
                self.label(out, frozen, found.end, torn, blank);
            }
            Mode::CallStack => self.label_snapshot(out, frozen, found.end, top, torn),
        }
        self.release(registers, frozen)?;
        Ok(frozen)
    }

    /// Reads the new records, or all frames in call-stack mode.
    fn walk(&self, top: u32, slots: &mut impl Slots, out: &mut RawStack) -> MsrResult<Walk> {
        let found = match self.mode {
            Mode::Stream => walk(&self.ring, &self.edge, top, slots, out),
            Mode::CallStack => frames(&self.ring, top, slots, out),
        }?;
        out.new_slots = found.new;
        Ok(found)
    }

    fn leave_mark(&mut self, registers: &mut impl MsrWrite, top: u32, found: &Walk) -> MsrResult {
        let index = self.ring.map.tos.map(|_| top);
        if found.new == 0 {
            self.nothing_new(found, index);
            return Ok(());
        }
        let (msr, value) = self.ring.mark(top, &found.newest);
        registers.write(msr, value)?;
        self.edge = match self.ring.kind {
            MarkKind::Brbe => Edge::Blank { index, head: Head::Joined },
            _ => edge_at(self.ring.left_behind(&found.newest), index),
        };
        Ok(())
    }

    /// The newest slot is not a new record: it is the old mark, an empty slot, or someone else's
    /// mark, which works as well.
    fn nothing_new(&mut self, found: &Walk, index: Option<u32>) {
        match found.end {
            End::Wiped => self.edge = Edge::Blank { index, head: Head::Unknown },
            End::Foreign => self.edge = edge_at(found.newest, index),
            _ => {}
        }
    }
}

/// The edge at a marked slot, or at one that is empty after marking.
fn edge_at(left: RawEntry, index: Option<u32>) -> Edge {
    if is_blank(&left) {
        Edge::Blank { index, head: Head::Unknown }
    } else {
        Edge::Mark { index, left }
    }
}
