//! Events other than branches and accesses that change the registers.

use crate::caps::{Facility, Quirks};
use crate::register::{DebugCtl, LbrCtl, PerfGlobalStatus};

use super::Fault;
use super::encode::{Encoding, Slot, low32};
use super::ring::{Control, SoftLbr};

impl SoftLbr {
    /// Raises a performance-monitoring interrupt. With DEBUGCTL.FREEZE_LBRS_ON_PMI recording stops:
    /// before perfmon version 4 the CPU clears DEBUGCTL.LBR; from version 4 on it sets
    /// GLOBAL_STATUS.LBR_FRZ. SDM 17.4.7.
    pub fn pmi(&mut self) {
        let freezes = self.debugctl & DebugCtl::FREEZE_LBRS_ON_PMI.bits() != 0
            && !self.caps.quirks.contains(Quirks::NO_FREEZE_ON_PMI)
            && !self.faults.has(Fault::NoFreezeOnPmi);
        if freezes && self.faults.has(Fault::FreezeEarly) {
            self.take_back();
        }
        let streamlined = self.caps.quirks.contains(Quirks::STREAMLINED_FREEZE);
        if freezes && streamlined {
            self.status |= PerfGlobalStatus::LBR_FRZ.bits();
        } else if freezes {
            self.disable();
        }
        if streamlined && self.debugctl & DebugCtl::FREEZE_PERFMON_ON_PMI.bits() != 0 {
            self.status |= PerfGlobalStatus::CTR_FRZ.bits();
        }
        self.refresh();
    }

    /// Raises a debug exception: it clears the enable bit and DEBUGCTL.BTF and keeps the records.
    /// The exception itself is not recorded. SDM 17.4.2, 17.4.3. AMD does not document that its
    /// stacks stop; its one-entry pair does.
    pub fn debug_exception(&mut self) {
        self.debugctl &= !(DebugCtl::LBR.bits() | DebugCtl::BTF.bits());
        if self.control == Control::LbrCtl {
            self.lbr_ctl &= !LbrCtl::LBR_EN.bits();
        }
        self.refresh();
    }

    /// Delivers an exception or interrupt: if recording is on, the last-exception registers take
    /// the last branch before it. The transfer to the handler is a separate branch: pass it to
    /// [`retire`](Self::retire) afterwards.
    pub fn exception(&mut self) {
        let on = match self.control {
            Control::LbrCtl => self.lbr_ctl & LbrCtl::LBR_EN.bits() != 0,
            Control::DebugCtl | Control::DbgExtnCfg => self.debugctl & DebugCtl::LBR.bits() != 0,
            Control::Brbcr => return,
        };
        if !on || self.status & PerfGlobalStatus::LBR_FRZ.bits() != 0 {
            return;
        }
        self.ler = if self.has_pair() { self.pair } else { self.last_exception() };
    }

    /// The newest record in the layout of the last-exception registers.
    pub(super) fn last_exception(&self) -> Slot {
        let newest = self.newest();
        match self.encoding {
            Encoding::Packed => Slot { from: low32(newest.from), to: newest.from >> 32, info: 0 },
            _ => newest,
        }
    }

    /// A system-management interrupt and its RSM: recording is off in between, and leaves no trace
    /// (DEBUGCTL.FREEZE_WHILE_SMM, SDM 17.4.1; Architectural LBR always).
    pub fn smi(&mut self) {
        if self.faults.has(Fault::SmmCorrupts) && self.records_on() {
            self.spoil_newest();
        }
    }

    /// The core was in a C-state deeper than C1. If the CPU loses its records there, every record,
    /// the last-exception registers and TOS are 0 afterwards; controls are kept, and the next
    /// record has cycle count 0. SDM 17.10.3. Does nothing on other CPUs.
    pub fn deep_c_state(&mut self) {
        if self.caps.quirks.contains(Quirks::DEEP_C_STATE_WIPES)
            || self.faults.has(Fault::CStateWipe)
        {
            self.clear_records();
            self.ler = Slot::default();
        }
    }

    /// Whether the last-exception registers exist at 1DDH and 1DEH.
    pub(super) fn has_last_exception(&self) -> bool {
        match self.caps.facility {
            Facility::IntelLegacy => self.encoding != Encoding::Packed,
            facility => !matches!(facility, Facility::NetBurst | Facility::Brbe),
        }
    }
}
