//! The wrapper that every register write goes through.

use alloc::vec::Vec;

use crate::access::{MsrError, MsrRead, MsrWrite, Op};
use crate::address::Msr;

use super::ArmPlan;

/// Limits writes to listed registers. Reads are not limited.
#[derive(Clone, Debug)]
pub struct Allowlisted<M> {
    inner: M,
    allowed: Vec<Msr>,
}

impl<M> Allowlisted<M> {
    /// Limits `inner` to the registers that `plan` writes.
    pub fn new(inner: M, plan: &ArmPlan) -> Allowlisted<M> {
        Allowlisted { inner, allowed: plan.allowed.clone() }
    }

    /// The wrapped backend, not limited: for its other functions, such as recording branches in the
    /// software LBR.
    pub fn inner_mut(&mut self) -> &mut M {
        &mut self.inner
    }

    fn check(&self, msr: Msr) -> Result<(), MsrError> {
        self.allowed.binary_search(&msr).map(drop).map_err(|_| MsrError::NotAllowed { msr })
    }
}

impl<M: MsrRead> MsrRead for Allowlisted<M> {
    fn cpu(&self) -> u32 {
        self.inner.cpu()
    }
    #[inline]
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.inner.read(msr)
    }
    fn one_call(&self) -> bool {
        self.inner.one_call()
    }
}

impl<M: MsrWrite> MsrWrite for Allowlisted<M> {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.check(msr)?;
        self.inner.write(msr, value)
    }

    /// Runs nothing unless every write of the batch is allowed.
    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        for op in &*batch {
            if let Op::Write { msr, .. } = op {
                self.check(*msr)?;
            }
        }
        self.inner.run(batch)
    }
}
