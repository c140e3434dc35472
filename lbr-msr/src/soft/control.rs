//! Whether and how branches are recorded, recomputed whenever a control register changes.

use crate::caps::{Facility, Order, Quirks};
use crate::register::{
    DbgExtnCfg, DebugCtl, LbrCtl, PerfGlobalStatus, RtitCtl, amd::MSROFF, brbe::BrbFcr,
};

use crate::filter::{BranchFilter, FilterError, to_register_disarmed};

use super::Fault;
use super::encode::Encoding;
use super::filter::Filter;
use super::ring::{Control, Mode, SoftLbr};

/// BRBCR_EL1.E0BRE: branches at EL0 are recorded.
const BRBCR_E0BRE: u64 = 1 << 0;

impl SoftLbr {
    /// Whether Intel PT is tracing on a CPU where tracing disables the LBR.
    #[inline]
    pub(super) const fn trace_hides_lbr(&self) -> bool {
        self.rtit_ctl & RtitCtl::TRACE_EN.bits() != 0
            && self.caps.quirks.contains(Quirks::PT_DISABLES)
    }

    /// The register with the enable bit.
    fn enabling(&mut self) -> &mut u64 {
        match self.control {
            Control::DebugCtl => &mut self.debugctl,
            Control::LbrCtl | Control::Brbcr => &mut self.lbr_ctl,
            Control::DbgExtnCfg => &mut self.dbg_extn_cfg,
        }
    }

    /// Whether recording is enabled and not frozen.
    pub(super) fn records_on(&mut self) -> bool {
        let (enable, paused) = match self.control {
            Control::Brbcr => (BRBCR_E0BRE, self.select & BrbFcr::PAUSED.bits() != 0),
            _ => (self.caps.registers.enable, false),
        };
        *self.enabling() & enable != 0
            && !paused
            && self.status & PerfGlobalStatus::LBR_FRZ.bits() == 0
    }

    pub(super) fn disable(&mut self) {
        let enable = self.caps.registers.enable;
        *self.enabling() &= !enable;
    }

    /// Recomputes the state that [`retire`](Self::retire) tests. Called after every change of a
    /// control register.
    pub(super) fn refresh(&mut self) {
        let value = match self.control {
            Control::LbrCtl => self.lbr_ctl & !LbrCtl::LBR_EN.bits(),
            Control::DebugCtl | Control::DbgExtnCfg => self.select,
            Control::Brbcr => {
                let [predictions, cycles] = [4, 3].map(|bit| self.lbr_ctl >> bit & 1 != 0);
                self.encoding = Encoding::Brbe { predictions, cycles };
                self.select
            }
        };
        // Freezing and thawing do not change the filter.
        if value != self.filter_value {
            self.filter = Filter::of(self.caps.filter, value, self.faults);
            self.filter_value = value;
        }
        let filter = self.filter;
        let branch_trace = self.caps.quirks.contains(Quirks::TR_CONFLICTS)
            && self.debugctl & DebugCtl::TR.bits() != 0;
        let full = self.caps.order == Order::Saturating
            && self.dbg_extn_cfg & (DbgExtnCfg::VB.bits() | MSROFF.mask()) == DbgExtnCfg::VB.bits();
        let enabled = self.records_on() && !self.trace_hides_lbr();

        if self.was_on && !enabled && self.faults.has(Fault::DuplicateNewest) {
            self.repeat_newest();
        }
        self.was_on = enabled;
        self.pass = if enabled && !branch_trace && !full { filter.pass } else { 0 };
        self.mode = match self.caps.order {
            Order::Saturating => Mode::Saturating,
            _ if filter.call_stack => Mode::CallStack,
            _ => Mode::Ring,
        };
        self.pair_on = self.has_pair() && self.debugctl & DebugCtl::LBR.bits() != 0;
        self.watch = if self.pair_on { !0 } else { self.pass };
    }

    /// Whether the CPU has the one-entry pair besides its stack (AMD).
    pub(super) const fn has_pair(&self) -> bool {
        matches!(self.caps.facility, Facility::AmdLbrV2 | Facility::AmdBrs)
    }

    /// Sets the filter and enables recording; changes nothing else.
    ///
    /// # Errors
    /// [`FilterError`] if the CPU cannot filter like this.
    pub fn arm(&mut self, filter: BranchFilter) -> Result<(), FilterError> {
        let filter = to_register_disarmed(filter, self.caps.filter)?;
        match self.control {
            Control::LbrCtl => self.lbr_ctl = filter,
            Control::DebugCtl | Control::DbgExtnCfg | Control::Brbcr => self.select = filter,
        }
        let enable = self.caps.registers.enable;
        *self.enabling() |= enable;
        self.refresh();
        Ok(())
    }

    /// Disables recording; keeps the records.
    pub fn disarm(&mut self) {
        self.disable();
        self.refresh();
    }

    /// Resets to power-on state: controls and records 0, IA32_LBR_DEPTH at its maximum. Does not
    /// reset [`recorded`](Self::recorded).
    pub fn reset(&mut self) {
        *self = self.clone().with(self.faults);
    }
}
