//! Putting everything back.

use alloc::vec::Vec;

use crate::access::{MsrError, MsrWrite};
use crate::address::{IA32_DEBUGCTL, Msr};
use crate::caps::RegisterMap;

use super::{ArmPlan, ArmStep, FREEZE_LBRS_ON_PMI, LBR_FRZ, Restored, Saved};

/// The first of several accesses that failed.
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
    /// Puts back what was saved: recording off; filter and depth as they were,
    /// if they are still ours; an empty ring; then our bits of the control
    /// registers as they were, by a fresh read-modify-write. May be called
    /// after any failure of [`arm`](Self::arm), and more than once.
    ///
    /// # Errors
    /// The first access that failed; all steps that could be done are done
    /// nevertheless.
    pub fn restore<M: MsrWrite>(
        &self,
        registers: &mut M,
        saved: &Saved,
    ) -> Result<Restored, MsrError> {
        let mut restored = Restored::default();
        let mut failures = Failures::default();
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

    /// Switches recording off, the filter to 0 and empties the ring, whoever
    /// set them: for a CPU that something left armed.
    ///
    /// # Errors
    /// The first access that failed; all steps that could be done are done
    /// nevertheless.
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

    /// Facilities whose control register is shared with the kernel: one bit of
    /// it is ours, and the filter register as a whole.
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
        let freeze = if control == IA32_DEBUGCTL { self.changed_freeze(saved.control) } else { 0 };
        failures.note(put_bits(registers, control, enable | freeze, saved.control));
    }

    /// Architectural LBR: IA32_LBR_CTL and IA32_LBR_DEPTH are ours as a whole.
    fn restore_whole<M: MsrWrite>(
        &self,
        registers: &mut M,
        saved: &Saved,
        restored: &mut Restored,
        failures: &mut Failures,
    ) {
        let RegisterMap { control, enable, .. } = self.map;
        let Some(now) = failures.note(registers.read(control)) else { return };
        if now & !enable != self.value && now != saved.control {
            restored.foreign = true;
            return;
        }
        failures.note(registers.write(control, now & !enable));
        if let (Some(msr), Some(before)) = (self.map.depth, saved.depth) {
            match failures.note(registers.read(msr)) {
                Some(depth) if depth == u64::from(self.depth) || depth == before => {
                    // Any write empties the ring.
                    failures.note(registers.write(msr, before));
                }
                Some(_) => restored.foreign = true,
                None => {}
            }
        }
        failures.note(registers.write(control, saved.control));
    }

    /// A PMI that came while FREEZE_LBRS_ON_PMI was set by us left LBR_FRZ
    /// behind, which would keep the next user's ring frozen.
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

    /// FREEZE_LBRS_ON_PMI, if arming changed it from what `before` says.
    const fn changed_freeze(&self, before: u64) -> u64 {
        let was_set = before & FREEZE_LBRS_ON_PMI != 0;
        if (self.freeze_on_pmi && !was_set) || (self.call_stack && was_set) {
            FREEZE_LBRS_ON_PMI
        } else {
            0
        }
    }
}

/// Writes `before` where the register holds `ours`. Whether it held that, or
/// `before` already.
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

/// Gives `bits` the values that `source` has; the other bits stay.
fn put_bits<M: MsrWrite>(
    registers: &mut M,
    msr: Msr,
    bits: u64,
    source: u64,
) -> Result<(), MsrError> {
    let now = registers.read(msr)?;
    registers.write(msr, now & !bits | source & bits)
}
