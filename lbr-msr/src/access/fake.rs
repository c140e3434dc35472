//! A register file that refuses every register that was not set up.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{Access, MsrError, MsrRead, MsrWrite};
use crate::address::Msr;

/// Registers that are set up one by one. Any other is refused with [`MsrError::Unpopulated`], so
/// that a test notices every unexpected access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeMsrs {
    cpu: u32,
    registers: BTreeMap<Msr, u64>,
    written: Vec<(Msr, u64)>,
}

impl FakeMsrs {
    /// An empty register file of a logical CPU.
    pub fn new(cpu: u32) -> FakeMsrs {
        FakeMsrs { cpu, ..FakeMsrs::default() }
    }

    /// Adds a register.
    #[must_use]
    pub fn with(mut self, msr: Msr, value: u64) -> FakeMsrs {
        self.registers.insert(msr, value);
        self
    }

    /// Every write that succeeded, in order.
    pub fn written(&self) -> &[(Msr, u64)] {
        &self.written
    }

    fn value(&mut self, msr: Msr, access: Access) -> Result<&mut u64, MsrError> {
        self.registers.get_mut(&msr).ok_or(MsrError::Unpopulated { msr, access })
    }
}

impl MsrRead for FakeMsrs {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.value(msr, Access::Read).copied()
    }
}

impl MsrWrite for FakeMsrs {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        *self.value(msr, Access::Write)? = value;
        self.written.push((msr, value));
        Ok(())
    }
}
