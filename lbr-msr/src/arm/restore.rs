//! Restoring the saved registers.

use alloc::vec::Vec;

use crate::access::{MsrError, MsrRead, MsrWrite};
use crate::address::{IA32_DEBUGCTL, Msr};
use crate::caps::RegisterMap;

use super::{ArmPlan, ArmStep, ChangedControl, FREEZE_LBRS_ON_PMI, LBR_FRZ, Restored, Saved};

/// The first failure of several accesses.
#[derive(Default)]
struct Failures(Option<MsrError>);

impl Failures {
    fn note<T>(&mut self, result: Result<T, MsrError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.0.get_or_insert(error);
                None
            }
        }
    }

    fn into_result(self) -> Result<(), MsrError> {
        self.0.map_or(Ok(()), Err)
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
    pub fn restore<M: MsrWrite>(
        &self,
        registers: &mut M,
        saved: &Saved,
    ) -> Result<Restored, MsrError> {
        let mut restored = Restored::default();
        let mut failures = Failures::default();
        if self.exclusive {
            restored.control = failures.note(self.changed_control(registers, saved)).flatten();
        }
        if self.whole_control {
            self.restore_whole(registers, saved, &mut restored, &mut failures);
        } else {
            self.restore_bits(registers, saved, &mut restored, &mut failures);
        }
        if let Some(before) = saved.debugctl {
            let ours = self.changed_freeze(before);
            if ours != 0 {
                failures.note(put_bits(registers, IA32_DEBUGCTL, ours, before));
            }
        }
        failures.note(self.release_freeze(registers, saved));
        failures.into_result().map(|()| restored)
    }

    /// Disables recording, sets the filter to 0 and clears the records, even if others set them: for
    /// a CPU that was left armed.
    ///
    /// # Errors
    /// The first failed access; the remaining steps still run.
    pub fn disarm<M: MsrWrite>(&self, registers: &mut M) -> Result<(), MsrError> {
        let RegisterMap { control, enable, .. } = self.map;
        let mut steps = Vec::new();
        if self.whole_control {
            steps.push(ArmStep::Write { msr: control, value: 0 });
        } else {
            steps.push(ArmStep::Clear { msr: control, bits: enable });
        }
        steps.extend(self.select().map(|msr| ArmStep::Write { msr, value: 0 }));
        steps.extend(self.clear_steps(u64::from(self.depth)));
        let mut failures = Failures::default();
        for step in steps {
            failures.note(step.run(registers));
        }
        failures.into_result()
    }

    /// For facilities that share their control register with the kernel: restores one bit of it,
    /// and the whole filter register.
    fn restore_bits<M: MsrWrite>(
        &self,
        registers: &mut M,
        saved: &Saved,
        restored: &mut Restored,
        failures: &mut Failures,
    ) {
        let RegisterMap { control, enable, .. } = self.map;
        failures.note(ArmStep::Clear { msr: control, bits: enable }.run(registers));
        if let (Some(msr), Some(before)) = (self.select(), saved.select) {
            let ours = failures.note(give_back(registers, msr, self.value, before));
            restored.foreign |= ours == Some(false);
        }
        if !restored.foreign {
            for step in self.clear_steps(0) {
                failures.note(step.run(registers));
            }
        }
        let ours = if restored.control.is_some() { u64::MAX } else { self.control_bits(saved) };
        failures.note(put_bits(registers, control, ours, saved.control));
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
    ) -> Result<Option<ChangedControl>, MsrError> {
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
    fn restore_whole<M: MsrWrite>(
        &self,
        registers: &mut M,
        saved: &Saved,
        restored: &mut Restored,
        failures: &mut Failures,
    ) {
        let RegisterMap { control, enable, .. } = self.map;
        let Some(now) = failures.note(registers.read(control)) else { return };
        if now & !enable != self.value && now != saved.control && restored.control.is_none() {
            restored.foreign = true;
            return;
        }
        failures.note(registers.write(control, now & !enable));
        if let (Some(msr), Some(before)) = (self.map.depth, saved.depth) {
            match failures.note(registers.read(msr)) {
                Some(depth) if depth == u64::from(self.depth) || depth == before => {
                    // Any write clears the records.
                    failures.note(registers.write(msr, before));
                }
                Some(_) => restored.foreign = true,
                None => {}
            }
        }
        failures.note(registers.write(control, saved.control));
    }

    /// Clears LBR_FRZ if a PMI set it while this plan had FREEZE_LBRS_ON_PMI on; otherwise the next
    /// user's LBR would stay frozen.
    fn release_freeze<M: MsrWrite>(
        &self,
        registers: &mut M,
        saved: &Saved,
    ) -> Result<(), MsrError> {
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
fn give_back<M: MsrWrite>(
    registers: &mut M,
    msr: Msr,
    ours: u64,
    before: u64,
) -> Result<bool, MsrError> {
    let now = registers.read(msr)?;
    if now == ours && now != before {
        registers.write(msr, before)?;
    }
    Ok(now == ours || now == before)
}

/// Copies the bits in the mask `bits` from `source`; keeps the others.
fn put_bits<M: MsrWrite>(
    registers: &mut M,
    msr: Msr,
    bits: u64,
    source: u64,
) -> Result<(), MsrError> {
    let now = registers.read(msr)?;
    registers.write(msr, now & !bits | source & bits)
}
