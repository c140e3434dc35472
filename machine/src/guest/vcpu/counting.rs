//! The counters of a virtual CPU, updated from generated code, and the effect of an overflow on the
//! branch records.

use lbr_msr::address::{
    AMD_PERF_CNTR_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS_CLR, IA32_DEBUGCTL,
    IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_RESET, IA32_PERF_GLOBAL_STATUS_SET,
};
use lbr_msr::register::{DebugCtl, PerfGlobalStatus};
use lbr_msr::{Msr, MsrRead, MsrWrite};

use super::super::machine::BlockPart;
use super::super::pmu::Happened;
use super::super::registers::Answer;
use super::Vcpu;

impl Vcpu {
    /// Whether RDMSR of this register reads a counter.
    pub(in crate::guest) fn is_of_monitor(&self, msr: Msr) -> bool {
        self.pmu.as_ref().is_some_and(|pmu| pmu.read(msr) != Answer::NotOurs)
    }

    /// RDMSR of a performance-monitor register; `None` for others.
    pub(super) fn read_counter(&mut self, msr: Msr) -> Option<Answer<u64>> {
        match self.pmu.as_ref()?.read(msr) {
            Answer::NotOurs => None,
            Answer::Done(value) => {
                self.counts.reads += 1;
                // The software LBR knows the freeze bits.
                let status = [IA32_PERF_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS];
                let frozen = match status.contains(&msr) {
                    true => self.lbr.read(msr).unwrap_or(0),
                    false => 0,
                };
                Some(Answer::Done(value | frozen))
            }
            Answer::Fault => Some(self.fault()),
        }
    }

    /// WRMSR of a performance-monitor register; `None` for others.
    pub(super) fn write_counter(&mut self, msr: Msr, value: u64) -> Option<Answer<()>> {
        match self.pmu.as_mut()?.write(msr, value) {
            Answer::NotOurs => None,
            Answer::Done(()) => {
                self.counts.writes += 1;
                if let IA32_PERF_GLOBAL_STATUS_RESET
                | IA32_PERF_GLOBAL_STATUS_SET
                | AMD_PERF_CNTR_GLOBAL_STATUS_CLR = msr
                {
                    // An early version freezes without these registers.
                    let _ = self.lbr.write(msr, value);
                }
                self.look_at_control();
                Some(Answer::Done(()))
            }
            Answer::Fault => Some(self.fault()),
        }
    }

    pub(super) fn fault<T>(&mut self) -> Answer<T> {
        self.counts.faults += 1;
        Answer::Fault
    }

    /// Checks for enabled counters. Returns whether one of them needs branches to be followed.
    pub(super) fn look_at_counters(&mut self) -> bool {
        let bit = PerfGlobalStatus::CTR_FRZ.bits();
        let frozen = self.is_set(IA32_PERF_GLOBAL_STATUS, bit)
            || self.is_set(AMD_PERF_CNTR_GLOBAL_STATUS, bit);
        let Some(pmu) = &mut self.pmu else { return false };
        pmu.frozen = frozen;
        self.counting = pmu.is_on();
        self.counting && pmu.needs_branches()
    }

    /// Adds the counts of generated code; `rest` is the part of the present block that will not
    /// execute.
    pub(in crate::guest) fn executed(&mut self, so_far: Happened, rest: BlockPart) {
        let since =
            |now: u64, before: u64, rest: u32| now.wrapping_sub(before).saturating_sub(rest.into());
        let before = std::mem::replace(&mut self.counted, so_far);
        self.count(&Happened {
            instructions: since(so_far.instructions, before.instructions, rest.instructions),
            cycles: since(so_far.cycles, before.cycles, rest.cycles),
            branches: since(so_far.branches, before.branches, rest.branches),
            ..Happened::default()
        });
    }

    pub(super) fn count(&mut self, happened: &Happened) {
        if self.counting
            && let Some(pmu) = &mut self.pmu
        {
            self.overflow |= pmu.count(happened, self.cpl, self.transaction.is_some());
        }
    }

    /// The number of cycles for which no block needs to be reported.
    pub(in crate::guest) fn cycles_to_wait(&self) -> u64 {
        let now = self.recording
            || self.asked.is_some()
            || self.overflow
            || self.pmi
            || self.leaves_level;
        match &self.pmu {
            _ if now => 0,
            Some(pmu) if self.counting => pmu.cycles_to_interrupt(self.cpl).unwrap_or(u64::MAX),
            _ => u64::MAX,
        }
    }

    /// A block starts at the privilege level `cpl`. Returns whether the performance monitor's
    /// interrupt is due before it executes.
    pub(in crate::guest) fn is_interrupted(&mut self, cpl: impl FnOnce() -> u8) -> bool {
        if std::mem::take(&mut self.leaves_level) && !self.recording {
            self.cpl = cpl();
        }
        self.freeze_on_overflow();
        let pmi = std::mem::take(&mut self.pmi);
        self.counts.pmis += u64::from(pmi);
        pmi
    }

    /// The reported block does not execute now.
    pub(in crate::guest) fn left(&mut self, cycles: u32) {
        self.cycles = self.cycles.map(|before| before.saturating_sub(cycles));
    }

    /// Freezes after the last retired branch, as configured.
    pub(super) fn freeze_on_overflow(&mut self) {
        if !std::mem::take(&mut self.overflow) {
            return;
        }
        self.pmi = true;
        self.lbr.pmi();
        if self.is_set(IA32_DEBUGCTL, DebugCtl::FREEZE_PERFMON_ON_PMI.bits())
            && let Some(pmu) = &mut self.pmu
        {
            pmu.freeze();
        }
        self.look_at_control();
    }

    /// Delivering the interrupt sets the mask of LVTPC. SDM 11.5.1; AMD's local APIC does not.
    pub(in crate::guest) fn delivery_masks(&self) -> bool {
        self.pmu.as_ref().is_some_and(|pmu| !pmu.is_amd())
    }
}
