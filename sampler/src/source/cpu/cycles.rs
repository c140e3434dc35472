//! The time-stamp counter: the cost of a drain, and the CPU it ran on.
#![allow(unsafe_code, reason = "RDTSCP, which the x86 crate offers as unsafe")]

use x86::cpuid::CpuId;

/// Reads the time-stamp counter, on CPUs that have RDTSCP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(());

/// A point in time on one CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    cycles: u64,
    cpu: u32,
}

impl Clock {
    /// `None` if the CPU lacks RDTSCP.
    pub(super) fn find() -> Option<Clock> {
        let features = CpuId::new().get_extended_processor_and_feature_identifiers()?;
        features.has_rdtscp().then_some(Clock(()))
    }

    pub(super) fn now(self) -> Moment {
        // SAFETY: a `Clock` exists only if CPUID announces RDTSCP. Linux leaves CR4.TSD clear
        // unless a program sets it by prctl, which this one does not.
        let (cycles, aux) = unsafe { x86::time::rdtscp() };
        // Linux puts the CPU number into the low 12 bits, the node above them.
        Moment { cycles, cpu: aux & 0xFFF }
    }
}

impl Moment {
    /// TSC cycles since `before`; `None` if the thread changed CPUs.
    pub(super) fn since(self, before: Moment) -> Option<u64> {
        (self.cpu == before.cpu).then(|| self.cycles.wrapping_sub(before.cycles))
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu/cycles.rs"]
mod tests;
