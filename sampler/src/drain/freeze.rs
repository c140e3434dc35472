//! Freezing and thawing an LBR, and detecting whether others stopped, filtered or changed it.

use lbr_msr::access::MsrResult;
use lbr_msr::record::RawEntry;
use lbr_msr::register::PerfGlobalStatus;
use lbr_msr::{MsrRead, MsrWrite};

use super::Drain;
use super::ring::MarkKind;
use super::slots::CountedRegisters;

/// IA32_PERF_GLOBAL_STATUS\[58\], LBR_FRZ. SDM 18.2.4.1.
pub(super) const LBR_FRZ: u64 = PerfGlobalStatus::LBR_FRZ.bits();

/// The state that a freeze found.
#[derive(Clone, Copy)]
pub(super) struct Frozen {
    /// The control register before the freeze.
    pub(super) control: u64,
    pub(super) foreign: bool,
    pub(super) stopped: bool,
    /// LBR_FRZ stopped it: setting the enable bit alone does not resume.
    pub(super) by_status: bool,
}

impl Drain {
    /// Disables recording, and checks the control register's previous value.
    pub(super) fn freeze(&self, registers: &mut impl MsrWrite) -> MsrResult<Frozen> {
        let control = registers.read(self.ring.map.control)?;
        let frozen = self.judge(control);
        registers.write(self.ring.map.control, control & !self.ring.map.enable)?;
        Ok(frozen)
    }

    pub(super) fn judge(&self, control: u64) -> Frozen {
        let enable = self.ring.map.enable;
        Frozen {
            control,
            foreign: (control ^ self.control) & !enable != 0,
            // BRBE's are several bits, of which one alone stops recording.
            stopped: control & enable != enable,
            by_status: false,
        }
    }

    /// Enables recording again. If others have taken over the control register, restores the value
    /// found.
    pub(super) fn thaw(&self, registers: &mut impl MsrWrite, frozen: Frozen) -> MsrResult {
        registers.write(self.ring.map.control, self.thawed(frozen))
    }

    /// The control register's value after the thaw.
    pub(super) fn thawed(&self, frozen: Frozen) -> u64 {
        let enable = if frozen.foreign { 0 } else { self.ring.map.enable };
        frozen.control | enable
    }

    /// After a failed access. Recording that was found off stays off: the next drain labels it, and
    /// branches before and after must not share a stack.
    pub(super) fn leave_as_found(&self, registers: &mut impl MsrWrite, control: u64) {
        // The first error is the one to report.
        let _ = registers.write(self.ring.map.control, control);
    }

    pub(super) fn top(&self, registers: &mut impl MsrWrite) -> MsrResult<u32> {
        match self.ring.map.tos {
            Some(msr) => Ok(self.ring.top(registers.read(msr)?)),
            None => Ok(0),
        }
    }

    /// Releases a freeze by LBR_FRZ. SDM 18.2.4.2.
    pub(super) fn release(&self, registers: &mut impl MsrWrite, frozen: Frozen) -> MsrResult {
        if let Some((_, reset)) = self.ring.status
            && frozen.by_status
            && !frozen.foreign
        {
            registers.write(reset, LBR_FRZ)?;
        }
        Ok(())
    }

    /// Number of accesses of [`moved`](Self::moved).
    pub(super) fn cost_of_moved(&self) -> u32 {
        if self.ring.map.tos.is_none() && self.ring.map.to.is_some() { 2 } else { 1 }
    }

    /// Whether TOS or entry 0 changed since the walk read it.
    pub(super) fn moved(
        &self,
        registers: &mut impl MsrWrite,
        top: u32,
        newest: RawEntry,
        new: u32,
    ) -> MsrResult<bool> {
        if self.ring.map.tos.is_some() {
            return Ok(self.top(registers)? != top);
        }
        let from = self.ring.map.from_at(0);
        match (self.ring.kind, self.ring.map.to_at(0)) {
            // One register distinguishes a mark or an empty slot from a new record.
            (MarkKind::Amd, Some(to)) if new == 0 => Ok(registers.read(to)? != newest.to),
            (_, Some(to)) if new > 0 => {
                Ok(registers.read(from)? != newest.from || registers.read(to)? != newest.to)
            }
            _ => Ok(registers.read(from)? != newest.from),
        }
    }

    /// Uses the remaining budget to check whether others froze recording or changed the filter.
    pub(super) fn look_around<R: MsrWrite + ?Sized>(
        &self,
        registers: &mut CountedRegisters<'_, R>,
        frozen: &mut Frozen,
        new: u32,
        rest: u32,
    ) -> MsrResult {
        let budget = 3 * new + 8;
        let has_room = |used: u32| used + rest < budget;
        if let Some((status, _)) = self.ring.status
            && has_room(registers.accesses)
        {
            frozen.by_status = registers.read(status)? & LBR_FRZ != 0;
            frozen.stopped |= frozen.by_status;
        }
        if let (Some(select), Some(armed)) = (self.ring.select, self.select)
            && has_room(registers.accesses)
        {
            frozen.foreign |= registers.read(select)? != armed;
        }
        Ok(())
    }
}
