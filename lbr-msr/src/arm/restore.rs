//! Restoring the saved registers.

use alloc::vec::Vec;

use crate::access::{MsrError, MsrRead, MsrResult, MsrWrite};
use crate::address::{IA32_DEBUGCTL, Msr};
use crate::caps::RegisterMap;

use super::{ArmPlan, ArmStep, ChangedControl, FREEZE_LBRS_ON_PMI, LBR_FRZ, Restored, Saved};

/// The state found by several accesses, and the first failure.
#[derive(Default)]
struct Outcome {
    restored: Restored,
    failure: Option<MsrError>,
}

impl Outcome {
    fn note<T>(&mut self, result: MsrResult<T>) -> Option<T> {
        result.map_err(|error| _ = self.failure.get_or_insert(error)).ok()
    }

    fn into_result(self) -> MsrResult<Restored> {
        self.failure.map_or(Ok(self.restored), Err)
    }
}

impl ArmPlan {
    /// Restores the saved state: disables recording; restores filter and depth unless someone else
    /// changed them; clears the records; then restores this plan's bits of the control registers by
    /// a fresh read-modify-write. May be called after any failure of [`arm`](Self::arm), and
    /// repeatedly.
    ///
    /// # Errors
    /// The first failed access; the remaining steps still run.
    pub fn restore<M: MsrWrite>(&self, registers: &mut M, saved: &Saved) -> MsrResult<Restored> {
        let mut outcome = Outcome::default();
        if self.exclusive {
            let changed = self.changed_control(registers, saved);
            outcome.restored.control = outcome.note(changed).flatten();
        }
        if self.whole_control {
            self.restore_whole(registers, saved, &mut outcome);
        } else {
            self.restore_bits(registers, saved, &mut outcome);
        }
        if let Some(before) = saved.debugctl {
            let ours = self.changed_freeze(before);
            if ours != 0 {
                outcome.note(put_bits(registers, IA32_DEBUGCTL, ours, before));
            }
        }
        outcome.note(self.release_freeze(registers, saved));
        outcome.into_result()
    }

    /// Disables recording, sets the filter to 0 and clears the records, even if others set them: for
    /// a CPU that was left armed.
    ///
    /// # Errors
    /// The first failed access; the remaining steps still run.
    pub fn disarm<M: MsrWrite>(&self, registers: &mut M) -> MsrResult {
        let RegisterMap { control, enable, .. } = self.map;
        let mut steps = Vec::new();
        if self.whole_control {
            steps.push(ArmStep::Write { msr: control, value: 0 });
        } else {
            steps.push(ArmStep::Clear { msr: control, bits: enable });
        }
        steps.extend(self.select().map(|msr| ArmStep::Write { msr, value: 0 }));
        steps.extend(self.clear_steps(u64::from(self.depth)));
        let mut outcome = Outcome::default();
        for step in steps {
            outcome.note(step.run(registers));
        }
        outcome.into_result().map(drop)
    }

    /// For facilities that share their control register with the kernel: restores one bit of it,
    /// and the whole filter register.
    fn restore_bits(&self, registers: &mut impl MsrWrite, saved: &Saved, outcome: &mut Outcome) {
        let RegisterMap { control, enable, .. } = self.map;
        outcome.note(ArmStep::Clear { msr: control, bits: enable }.run(registers));
        if let (Some(msr), Some(before)) = (self.select(), saved.select) {
            let ours = outcome.note(give_back(registers, msr, self.value, before));
            outcome.restored.foreign |= ours == Some(false);
        }
        if !outcome.restored.foreign {
            for step in self.clear_steps(0) {
                outcome.note(step.run(registers));
            }
        }
        let ours =
            if outcome.restored.control.is_some() { u64::MAX } else { self.control_bits(saved) };
        outcome.note(put_bits(registers, control, ours, saved.control));
    }

    /// The bits of the control register that the plan writes.
    fn control_bits(&self, saved: &Saved) -> u64 {
        let RegisterMap { control, enable, .. } = self.map;
        let freeze = if control == IA32_DEBUGCTL { self.changed_freeze(saved.control) } else { 0 };
        enable | freeze
    }

    /// The control register, if bits that the plan does not write have changed.
    fn changed_control<M: MsrRead>(
        &self,
        registers: &mut M,
        saved: &Saved,
    ) -> MsrResult<Option<ChangedControl>> {
        let RegisterMap { control, enable, .. } = self.map;
        let (found, before) = (registers.read(control)?, saved.control);
        let is_ours = if self.whole_control {
            found & !enable == self.value || found == before
        } else {
            (found ^ before) & !self.control_bits(saved) == 0
        };
        Ok((!is_ours).then_some(ChangedControl { msr: control, found, before }))
    }

    /// For Architectural LBR: restores the whole of IA32_LBR_CTL and IA32_LBR_DEPTH.
    fn restore_whole(&self, registers: &mut impl MsrWrite, saved: &Saved, outcome: &mut Outcome) {
        let RegisterMap { control, enable, .. } = self.map;
        let Some(now) = outcome.note(registers.read(control)) else { return };
        if now & !enable != self.value && now != saved.control && outcome.restored.control.is_none()
        {
            outcome.restored.foreign = true;
            return;
        }
        outcome.note(registers.write(control, now & !enable));
        if let (Some(msr), Some(before)) = (self.map.depth, saved.depth) {
            match outcome.note(registers.read(msr)) {
                Some(depth) if depth == u64::from(self.depth) || depth == before => {
                    // Any write clears the records.
                    outcome.note(registers.write(msr, before));
                }
                Some(_) => outcome.restored.foreign = true,
                None => {}
            }
        }
        outcome.note(registers.write(control, saved.control));
    }

    /// Clears LBR_FRZ if a PMI set it while this plan had FREEZE_LBRS_ON_PMI on; otherwise the next
    /// user's LBR would stay frozen.
    fn release_freeze(&self, registers: &mut impl MsrWrite, saved: &Saved) -> MsrResult {
        if let (true, Some((status, reset)), Some(before)) =
            (self.freeze_on_pmi, self.status, saved.status)
            && before & LBR_FRZ == 0
            && registers.read(status)? & LBR_FRZ != 0
        {
            registers.write(reset, LBR_FRZ)?;
        }
        Ok(())
    }

    /// FREEZE_LBRS_ON_PMI if arming changed it from its value in `before`, else 0.
    const fn changed_freeze(&self, before: u64) -> u64 {
        let was_set = before & FREEZE_LBRS_ON_PMI != 0;
        if (self.freeze_on_pmi && !was_set) || (self.call_stack && was_set) {
            FREEZE_LBRS_ON_PMI
        } else {
            0
        }
    }
}

/// Writes `before` if the register holds `ours`. Returns whether it held `ours` or `before`.
fn give_back<M: MsrWrite>(registers: &mut M, msr: Msr, ours: u64, before: u64) -> MsrResult<bool> {
    let now = registers.read(msr)?;
    if now == ours && now != before {
        registers.write(msr, before)?;
    }
    Ok(now == ours || now == before)
}

/// Copies the bits in the mask `bits` from `source`; keeps the others.
fn put_bits<M: MsrWrite>(registers: &mut M, msr: Msr, bits: u64, source: u64) -> MsrResult {
    let now = registers.read(msr)?;
    registers.write(msr, now & !bits | source & bits)
}
