//! The drain: freeze the ring, read what is new, leave a mark, thaw.
//!
//! After reading, a drain zeroes one register of the newest record: FROM on
//! Intel, TO on AMD. That record is recorded already, so nothing is lost by
//! it, and the next drain reads from the newest record down to the mark: the
//! slots before it are exactly the new ones. Reading costs `k + 1` slots
//! instead of the ring, nothing is recorded twice, and a tight loop whose
//! records are all alike cannot be mistaken. The mark is recognised by the pair
//! left behind alone: on Intel FROM = 0 beside the TO (or INFO) as read, and
//! on a ring with TOS at the very slot marked, so that
//! `k = (TOS - TOS_prev) mod depth` agrees; on AMD TO = 0 beside the FROM as
//! read. A slot that is all zero is no mark: something wiped the ring.
//!
//! Where the registers are reached in [one call](lbr_msr::MsrRead::one_call)
//! the whole ring is read and every FROM (AMD: TO) zeroed in one batch; the
//! marked slot is then recognised by the same pair.
//!
//! # Cost
//!
//! At most `3k + 8` register accesses, for k new slots: the control register
//! read and written to freeze, TOS, three registers for each new slot, two for
//! the slot that ends them, one or two to see that nothing moved meanwhile,
//! the mark, the thaw. The filter register, and on perfmon 4 and later
//! IA32_PERF_GLOBAL_STATUS, are looked at in each drain whose budget leaves
//! room: always where nothing or the whole ring is new, and always where
//! records have no INFO. A freeze on PMI (LBR_FRZ) therefore shows at the
//! latest in the next drain, which finds nothing new, and which releases it.
//!
//! # What registers cannot tell
//!
//! - Exactly `depth` new branches look like more of them: both are a gap.
//! - A branch at address 0 looks like a foreign mark.
//! - In call-stack mode a full ring may hold exactly `depth` frames or more:
//!   it is called truncated. Returns that outran the recorded calls move TOS
//!   below where it stood at arming, modulo the depth, which is how
//!   `underflow` is seen; Architectural LBR has no TOS, so there it is never
//!   reported, nor where the ring is full or TOS has come round.

mod batch;
mod freeze;
mod label;
mod ring;
mod slots;
mod stack;
mod walk;

use lbr_msr::caps::{Facility, LbrCaps};
use lbr_msr::record::Head;
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use crate::clock::monotonic_ns;
use crate::target::ThreadId;
use freeze::Frozen;
use ring::{Edge, RingPlan, Slot};
use slots::{CountedRegisters, Live, read_if_present};
pub use stack::{Accesses, MAX_DEPTH, RawStack};
use walk::{End, Walk, frames, walk};

/// What the ring records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A stream of branches, drained from mark to mark.
    Stream,
    /// Call-stack mode: each drain is a snapshot of the frames.
    CallStack,
}

/// Where the drain runs in relation to the branches it drains: what decides
/// whether branches can be missing between freeze and thaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The source of the branches waits, or the target is stopped.
    SourceWaits,
    /// On the CPU of the target, with SCHED_FIFO over it.
    SameCpuFirst,
    /// From another CPU, or without precedence: user code may run between
    /// freeze and thaw.
    Beside,
}

/// Why a ring cannot be drained.
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
    /// The ring has a depth that cannot be.
    #[error(
        "a ring of {depth} records cannot be drained: 1 to 64 are possible, with a top-of-stack register powers of two only"
    )]
    Depth {
        /// As the capabilities or IA32_LBR_DEPTH say.
        depth: u32,
    },
    /// Recording is not switched on.
    #[error("the ring is not armed: {control} reads {value:#x}, without the enable bit")]
    NotArmed {
        /// The control register.
        control: lbr_msr::Msr,
        /// What it held.
        value: u64,
    },
    /// A register access failed.
    #[error(transparent)]
    Access(#[from] MsrError),
}

/// Drains one ring, again and again.
#[derive(Clone, Debug)]
pub struct Drain {
    ring: RingPlan,
    mode: Mode,
    placement: Placement,
    /// The control register as armed.
    control: u64,
    /// The filter register as armed.
    select: Option<u64>,
    /// TOS as armed.
    base: u32,
    edge: Edge,
    /// What the next stack with entries must say of its head, whatever it
    /// finds: branches before it are in no stack that was handed on.
    owed: Option<Head>,
}

impl Drain {
    /// Gets to know a ring that has just been armed: cleared and switched on,
    /// nothing drained yet. Reads the control, filter, depth and top-of-stack
    /// registers to know what they must look like later.
    ///
    /// # Errors
    /// [`DrainError`]: a facility or depth that cannot be drained, a ring that
    /// is not switched on, or a failed access.
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
        ring.status = ring.status.filter(|msr| read_if_present(registers, *msr).is_some());
        let base = match ring.map.tos {
            Some(msr) => ring.top(registers.read(msr)?),
            None => 0,
        };
        let edge = Edge::Blank { index: ring.map.tos.map(|_| base), head: Head::Joined };
        Ok(Drain { ring, mode, placement, control, select, base, edge, owed: None })
    }

    /// Records the ring holds, as armed.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.ring.depth
    }

    /// The stack drained last was not handed on: the next one cannot join.
    pub fn stack_dropped(&mut self) {
        self.owed = Some(Head::Lost);
    }

    /// Branches may have been retired since the last drain while recording was
    /// off: the next stack with entries cannot be said to join.
    pub fn may_have_missed(&mut self) {
        self.owed = self.owed.or(Some(Head::Unknown));
    }

    /// Looks once whether the control and filter registers still are as
    /// armed; meant for the end of a recording.
    ///
    /// # Errors
    /// A failed access.
    pub fn is_still_ours<R: MsrRead + ?Sized>(&self, registers: &mut R) -> Result<bool, MsrError> {
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
    /// A failed access. Recording was switched on again where that was still
    /// possible, and the next stack's head is not joined.
    pub fn drain<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut R,
        thread: ThreadId,
    ) -> Result<RawStack, MsrError> {
        let mut out = RawStack::empty(thread, registers.cpu());
        self.drain_into(registers, &mut out)?;
        Ok(out)
    }

    /// [Drains](Self::drain) once, into a stack of that thread which is needed no
    /// more.
    ///
    /// # Errors
    /// As of [`drain`](Self::drain); the stack then holds nothing of use.
    pub fn drain_into<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut R,
        out: &mut RawStack,
    ) -> Result<(), MsrError> {
        out.restart(registers.cpu());
        let in_one_call = registers.one_call();
        out.integrity.cut = self.placement == Placement::Beside && !in_one_call;
        let mut registers = CountedRegisters::new(registers);
        let drained = match self.mode {
            Mode::Stream if in_one_call => self.stream_in_one_call(&mut registers, out),
            Mode::CallStack if in_one_call => self.frames_in_one_call(&mut registers, out),
            Mode::Stream | Mode::CallStack => self.freeze(&mut registers).and_then(|frozen| {
                let frozen = self.read_frozen(&mut registers, frozen, out)?;
                self.thaw(&mut registers, frozen)
            }),
        };
        out.accesses = registers.accesses();
        match drained {
            Ok(()) => Ok(()),
            Err(error) => {
                self.owed = Some(Head::Unknown);
                // The first error is the one to report.
                let _ = registers.write(self.ring.map.control, self.control);
                Err(error)
            }
        }
    }

    /// The control register, and its bits that switch recording on.
    #[must_use]
    pub fn control(&self) -> (Msr, u64) {
        (self.ring.map.control, self.ring.map.enable)
    }

    /// Drains once, for a caller that freezes and thaws by itself. Recording is
    /// off afterwards; the value returned with the stack, written to the
    /// [control register](Self::control), thaws.
    ///
    /// `seen` is what the control register held before the caller froze (one
    /// read and one write, which count among the stack's accesses, as the
    /// write that thaws does); `None` freezes here.
    ///
    /// # Errors
    /// A failed access. Recording is left off then.
    pub fn drain_frozen<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut R,
        thread: ThreadId,
        seen: Option<u64>,
    ) -> Result<(RawStack, u64), MsrError> {
        let mut out = RawStack::empty(thread, registers.cpu());
        out.integrity.cut = self.placement == Placement::Beside;
        let mut registers = CountedRegisters::new(registers);
        let frozen = match seen {
            Some(control) => {
                registers.made_before(Accesses { reads: 1, writes: 1 });
                Ok(self.judge(control))
            }
            None => self.freeze(&mut registers),
        };
        let drained = frozen.and_then(|frozen| self.read_frozen(&mut registers, frozen, &mut out));
        registers.made_before(Accesses { reads: 0, writes: 1 });
        out.accesses = registers.accesses();
        match drained {
            Ok(frozen) => {
                let enable = if frozen.foreign { 0 } else { self.ring.map.enable };
                Ok((out, frozen.control | enable))
            }
            Err(error) => {
                self.owed = Some(Head::Unknown);
                Err(error)
            }
        }
    }

    /// All of a drain between freeze and thaw.
    fn read_frozen<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut CountedRegisters<'_, R>,
        frozen: Frozen,
        out: &mut RawStack,
    ) -> Result<Frozen, MsrError> {
        out.time = monotonic_ns();
        let frozen = match self.mode {
            Mode::Stream => self.stream(registers, frozen, out),
            Mode::CallStack => self.frames(registers, frozen, out),
        }?;
        self.release(registers, frozen)?;
        Ok(frozen)
    }

    fn stream<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut CountedRegisters<'_, R>,
        mut frozen: Frozen,
        out: &mut RawStack,
    ) -> Result<Frozen, MsrError> {
        let top = self.top(registers)?;
        let found = walk(&self.ring, &self.edge, top, &mut Live::new(&self.ring, registers), out)?;
        out.new_slots = found.new;
        let blank = self.blank_head();
        // What is still to come: a look whether the ring moved, the mark, the thaw.
        let rest = self.cost_of_moved(found.new) + if found.new > 0 { 2 } else { 1 };
        self.look_around(registers, &mut frozen, found.new, rest)?;
        // What LBR_FRZ holds still cannot move, and its release costs the same.
        let torn = !frozen.by_status && self.moved(registers, top, found.newest, found.new)?;
        // Torn, the old mark stays: the next drain reads all of this again. What
        // was recorded by other rules must not come back that way.
        if !torn || frozen.foreign {
            self.leave_mark(registers, top, &found)?;
        }
        self.label(out, frozen, found.end, torn, blank);
        Ok(frozen)
    }

    fn frames<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut CountedRegisters<'_, R>,
        mut frozen: Frozen,
        out: &mut RawStack,
    ) -> Result<Frozen, MsrError> {
        let top = self.top(registers)?;
        let ended = frames(&self.ring, top, &mut Live::new(&self.ring, registers), out)?;
        let count = out.entries().len() as u32;
        out.new_slots = count;
        let newest = out.entries().first().map_or(Slot::default(), |e| Slot {
            from: e.from,
            to: e.to,
            info: e.info,
        });
        let rest = self.cost_of_moved(count) + 1;
        self.look_around(registers, &mut frozen, count, rest)?;
        let torn = !frozen.by_status && self.moved(registers, top, Some(newest), count)?;
        self.label_snapshot(out, frozen, ended, top, torn);
        Ok(frozen)
    }

    fn leave_mark<R: MsrWrite + ?Sized>(
        &mut self,
        registers: &mut CountedRegisters<'_, R>,
        top: u32,
        found: &Walk,
    ) -> Result<(), MsrError> {
        let index = self.ring.map.tos.map(|_| top);
        match found.newest {
            Some(newest) if found.new > 0 => {
                let (msr, value) = self.ring.mark(top, &newest);
                registers.write(msr, value)?;
                self.edge = edge_at(self.ring.left_behind(&newest), index);
            }
            _ => self.nothing_new(found, index),
        }
        Ok(())
    }

    /// The newest slot holds no new record: it is the mark still, or blank and
    /// never to be marked, or a mark that is not ours and serves as well.
    fn nothing_new(&mut self, found: &Walk, index: Option<u32>) {
        match (found.end, found.newest) {
            (End::Wiped, _) => self.edge = Edge::Blank { index, head: Head::Unknown },
            (End::Foreign, Some(slot)) => self.edge = edge_at(slot, index),
            _ => {}
        }
    }
}

/// A marked slot, or a blank one where marking left nothing to recognise it by.
fn edge_at(left: Slot, index: Option<u32>) -> Edge {
    if left.is_blank() {
        Edge::Blank { index, head: Head::Unknown }
    } else {
        Edge::Mark { index, left }
    }
}
