//! Arming the LBR and restoring every register, with a plan that is plain data.
//!
//! An [`ArmPlan`] is computed once from the capabilities and a filter value. It names every
//! register that will be read or written, so it can be printed, checked, and sent to another
//! process that restores the registers if this one dies. [`Allowlisted`] refuses every write that
//! the plan does not name, on any backend.
//!
//! ```text
//! save -> arm -> ( freeze -> read the ring -> thaw )* -> freeze -> restore
//! ```
//!
//! The kernel uses the control registers too. Single bits are changed by a fresh read-modify-write
//! each time. A register that this crate owns whole (the filter, IA32_LBR_CTL, IA32_LBR_DEPTH) is
//! restored only if it still holds the value written here.

mod allowlist;
mod check;
mod error;
mod needs;
mod restore;
mod state;

pub use allowlist::Allowlisted;
pub use error::ArmError;
pub use needs::Need;
pub use state::{ArmStep, Armed, ChangedControl, Frozen, Restored, Saved};

use alloc::vec::Vec;

use crate::access::{MsrError, MsrRead, MsrResult, MsrWrite};
use crate::address::{IA32_DEBUGCTL, IA32_RTIT_CTL, Msr};
use crate::caps::{LbrCaps, Quirks, RegisterMap};
use crate::register::{DebugCtl, PerfGlobalStatus, RtitCtl};

const FREEZE_LBRS_ON_PMI: u64 = DebugCtl::FREEZE_LBRS_ON_PMI.bits();
const TR: u64 = DebugCtl::TR.bits();
const TRACE_EN: u64 = RtitCtl::TRACE_EN.bits();
/// AMD's PerfCntrGlobalStatus has the same bit 58.
const LBR_FRZ: u64 = PerfGlobalStatus::LBR_FRZ.bits();

/// Options besides the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArmOptions {
    /// Sets DEBUGCTL.FREEZE_LBRS_ON_PMI, so that a performance-monitoring interrupt stops
    /// recording. SDM 17.4.7.
    pub freeze_on_pmi: bool,
    /// Architectural LBR: number of records to keep; `None` for the maximum. Other facilities
    /// accept only `None` or their own depth.
    pub depth: Option<u32>,
}

/// How to arm, freeze, thaw and restore one CPU's LBR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArmPlan {
    map: RegisterMap,
    /// The filter register's value, without the enable bit.
    value: u64,
    depth: u32,
    call_stack: bool,
    freeze_on_pmi: bool,
    /// The filter is the control register: Architectural LBR.
    whole_control: bool,
    /// Whether `restore` also puts back the bits of the control register that this plan does not
    /// use.
    exclusive: bool,
    /// The registers that report and clear LBR_FRZ.
    status: Option<(Msr, Msr)>,
    pt_disables: bool,
    tr_conflicts: bool,
    allowed: Vec<Msr>,
}

impl ArmPlan {
    /// Plans to record with filter value `value`: MSR_LBR_SELECT, IA32_LBR_CTL (LBREn may be set or
    /// not) or AMD's LBR_SELECT; 0 without a filter register.
    ///
    /// # Errors
    /// [`ArmError`] if this facility cannot do it. No register is touched.
    pub fn new(caps: &LbrCaps, value: u64, options: ArmOptions) -> Result<ArmPlan, ArmError> {
        let facility = caps.facility;
        check::ring(caps)?;
        let (value, call_stack) = check::filter(caps, value)?;
        if options.freeze_on_pmi {
            if call_stack {
                return Err(ArmError::CallStackWithFreeze);
            }
            check::freeze(caps)?;
        }
        let depth = options.depth.unwrap_or(caps.depth);
        let offered = depth == caps.depth
            || depth < caps.depth && caps.depths().any(|offered| offered == depth);
        if !offered || depth == 0 {
            return Err(ArmError::Depth {
                facility,
                asked: depth,
                depth: caps.depth,
                mask: caps.depth_mask,
            });
        }
        let mut plan = ArmPlan {
            map: caps.registers,
            value,
            depth,
            call_stack,
            freeze_on_pmi: options.freeze_on_pmi,
            whole_control: caps.registers.select == Some(caps.registers.control),
            exclusive: false,
            status: caps.freeze_status(),
            pt_disables: caps.quirks.intersects(Quirks::PT_DISABLES | Quirks::PT_EXCLUDES),
            tr_conflicts: caps.quirks.contains(Quirks::TR_CONFLICTS),
            allowed: Vec::new(),
        };
        plan.allowed = plan.registers_written();
        Ok(plan)
    }

    /// The same plan, but it restores the whole control register, including the bits that it does
    /// not use. For a ring that records while code of other people runs.
    #[must_use]
    pub fn exclusive(self) -> ArmPlan {
        ArmPlan { exclusive: true, ..self }
    }

    /// Number of records to keep.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Whether this is call-stack mode (calls push, returns pop).
    pub const fn call_stack(&self) -> bool {
        self.call_stack
    }

    /// The filter register's value while armed; for IA32_LBR_CTL with LBREn.
    pub const fn filter_value(&self) -> u64 {
        if self.whole_control { self.value | self.map.enable } else { self.value }
    }

    /// Every register that this plan may write, in ascending order.
    pub fn allowed(&self) -> &[Msr] {
        &self.allowed
    }

    /// The register and bit that enable recording.
    pub const fn control(&self) -> (Msr, u64) {
        (self.map.control, self.map.enable)
    }

    /// The registers that [`save`](Self::save) reads, in that order.
    pub fn saved_registers(&self) -> Vec<Msr> {
        let mut registers = Vec::new();
        if self.pt_disables {
            registers.push(IA32_RTIT_CTL);
        }
        registers.push(self.map.control);
        registers.extend(self.debugctl());
        registers.extend(self.select());
        registers.extend(self.map.depth);
        registers.extend(self.status.map(|(status, _)| status));
        registers
    }

    /// The writes that arm, in order: disable recording, set the filter, clear the records, enable
    /// recording.
    pub fn arm_steps(&self) -> Vec<ArmStep> {
        let RegisterMap { control, enable, .. } = self.map;
        let mut clear = if self.call_stack { FREEZE_LBRS_ON_PMI } else { 0 };
        let mut set = if self.freeze_on_pmi { FREEZE_LBRS_ON_PMI } else { 0 };
        let (mut off, mut on) = (enable, enable);
        // One write changes both bits of DEBUGCTL.
        if control == IA32_DEBUGCTL {
            off |= core::mem::take(&mut clear);
            on |= core::mem::take(&mut set);
        }
        let mut steps = Vec::new();
        steps.push(if self.whole_control {
            ArmStep::Write { msr: control, value: self.value }
        } else {
            ArmStep::Clear { msr: control, bits: off }
        });
        if clear != 0 {
            steps.push(ArmStep::Clear { msr: IA32_DEBUGCTL, bits: clear });
        }
        if let Some(select) = self.select() {
            steps.push(ArmStep::Write { msr: select, value: self.value });
        }
        steps.extend(self.clear_steps(u64::from(self.depth)));
        if set != 0 {
            steps.push(ArmStep::Set { msr: IA32_DEBUGCTL, bits: set });
        }
        steps.push(if self.whole_control {
            ArmStep::Write { msr: control, value: self.value | enable }
        } else {
            ArmStep::Set { msr: control, bits: on }
        });
        steps
    }

    /// The writes that clear the records: one write of `depth` to IA32_LBR_DEPTH if it exists, else
    /// 0 to every register of every record.
    pub fn clear_steps(&self, depth: u64) -> Vec<ArmStep> {
        if let Some(msr) = self.map.depth {
            return alloc::vec![ArmStep::Write { msr, value: depth }];
        }
        self.records().map(|msr| ArmStep::Write { msr, value: 0 }).collect()
    }

    /// Reads the values to restore later. Writes nothing.
    ///
    /// # Errors
    /// [`ArmError::IntelPt`] and [`ArmError::BranchTrace`] if the LBR would not work now; an
    /// unreadable register.
    pub fn save<M: MsrRead>(&self, registers: &mut M) -> Result<Saved, ArmError> {
        if self.pt_disables {
            match registers.read(IA32_RTIT_CTL) {
                Ok(rtit) if rtit & TRACE_EN != 0 => {
                    return Err(ArmError::IntelPt { cpu: registers.cpu() });
                }
                // A hypervisor may offer LBR without Intel PT.
                Ok(_) | Err(MsrError::Fault { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let control = registers.read(self.map.control)?;
        if self.tr_conflicts && self.map.control == IA32_DEBUGCTL && control & TR != 0 {
            return Err(ArmError::BranchTrace { cpu: registers.cpu() });
        }
        let debugctl = self.debugctl().map(|msr| registers.read(msr)).transpose()?;
        let select = self.select().map(|select| registers.read(select)).transpose()?;
        let depth = self.map.depth.map(|depth| registers.read(depth)).transpose()?;
        let status = match self.status.map(|(status, _)| registers.read(status)) {
            Some(Ok(status)) => Some(status),
            // Hidden by a hypervisor: freezes are not visible.
            None | Some(Err(MsrError::Fault { .. })) => None,
            Some(Err(error)) => return Err(error.into()),
        };
        let freeze = match debugctl {
            Some(debugctl) => debugctl & FREEZE_LBRS_ON_PMI != 0,
            None => self.map.control == IA32_DEBUGCTL && control & FREEZE_LBRS_ON_PMI != 0,
        };
        let in_use = control & self.map.enable != 0 || matches!(select, Some(1..)) || freeze;
        Ok(Saved { control, debugctl, select, depth, status, in_use })
    }

    /// Runs [`arm_steps`](Self::arm_steps), after releasing an earlier freeze by a PMI.
    ///
    /// # Errors
    /// The first failed access. Earlier writes are not undone: call [`restore`](Self::restore) with
    /// the same `saved`.
    pub fn arm<M: MsrWrite>(&self, registers: &mut M, saved: &Saved) -> MsrResult<Armed> {
        if let (Some((_, reset)), Some(status)) = (self.status, saved.status)
            && status & LBR_FRZ != 0
        {
            registers.write(reset, LBR_FRZ)?;
        }
        let mut control = saved.control;
        for step in self.arm_steps() {
            let left = step.run(registers)?;
            if step.msr() == self.map.control {
                control = left;
            }
        }
        Ok(Armed { control, status: saved.status.is_some() })
    }

    /// Stops recording: clears the enable bit by read-modify-write. Two accesses, and a third if
    /// LBR_FRZ may be set.
    ///
    /// # Errors
    /// The failed access.
    pub fn freeze(&self, registers: &mut impl MsrWrite, armed: &Armed) -> MsrResult<Frozen> {
        let enable = self.map.enable;
        let control = registers.read(self.map.control)?;
        if control & enable != 0 {
            registers.write(self.map.control, control & !enable)?;
        }
        // LBR_FRZ is only set while FREEZE_LBRS_ON_PMI is set. If the value just read shows that
        // bit clear, the status register need not be read.
        let may_be_frozen = self.map.control != IA32_DEBUGCTL || control & FREEZE_LBRS_ON_PMI != 0;
        let status = match self.status {
            Some((status, _)) if armed.status && may_be_frozen => Some(registers.read(status)?),
            _ => None,
        };
        let mut frozen = Frozen {
            control,
            status,
            stopped: control & enable == 0,
            foreign: (control ^ armed.control) & !enable != 0,
            status_readable: armed.status,
        };
        frozen.stopped |= frozen.frozen_by_pmi();
        Ok(frozen)
    }

    /// Resumes recording with one write: the value that the freeze read, with the enable bit (two
    /// writes if LBR_FRZ must be cleared). Changes that others made to the control register since
    /// the freeze are lost.
    ///
    /// # Errors
    /// The failed access.
    pub fn thaw<M: MsrWrite>(&self, registers: &mut M, frozen: &Frozen) -> MsrResult<Armed> {
        if let (Some((_, reset)), true) = (self.status, frozen.frozen_by_pmi()) {
            registers.write(reset, LBR_FRZ)?;
        }
        let control = frozen.control | self.map.enable;
        registers.write(self.map.control, control)?;
        Ok(Armed { control, status: frozen.status_readable })
    }

    /// DEBUGCTL, if the plan uses it in addition to the control register.
    fn debugctl(&self) -> Option<Msr> {
        let used = self.freeze_on_pmi || self.call_stack;
        (used && self.map.control != IA32_DEBUGCTL).then_some(IA32_DEBUGCTL)
    }

    /// The filter register, unless it is the control register.
    fn select(&self) -> Option<Msr> {
        self.map.select.filter(|_| !self.whole_control)
    }

    /// The registers of the records in use.
    fn records(&self) -> impl Iterator<Item = Msr> + '_ {
        (0..self.depth).flat_map(|i| self.map.record(i))
    }

    fn registers_written(&self) -> Vec<Msr> {
        let mut registers: Vec<Msr> = self.records().collect();
        registers.push(self.map.control);
        registers.extend(self.debugctl());
        registers.extend(self.select());
        registers.extend(self.map.depth);
        registers.extend(self.status.map(|(_, reset)| reset));
        registers.sort_unstable();
        registers.dedup();
        registers
    }
}
