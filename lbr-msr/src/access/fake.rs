//! A register file that refuses every register that was not set up.

use alloc::{collections::BTreeMap, vec::Vec};

use super::{Access, MsrError, MsrRead, MsrWrite};
use crate::address::Msr;

/// Registers that are set up one by one. Any other is refused with [`MsrError::Unpopulated`], so
/// that a test notices every unexpected access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeMsrs {
    cpu: u32,
    registers: BTreeMap<Msr, Slot>,
    written: Vec<(Msr, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Value(u64),
    ReadOnly(u64),
    Fault,
}

impl FakeMsrs {
    /// An empty register file of a logical CPU.
    pub fn new(cpu: u32) -> FakeMsrs {
        FakeMsrs { cpu, ..FakeMsrs::default() }
    }

    /// Adds a register that can be read and written.
    #[must_use]
    pub fn with(mut self, msr: Msr, value: u64) -> FakeMsrs {
        self.registers.insert(msr, Slot::Value(value));
        self
    }

    /// Adds a register that raises #GP when written.
    #[must_use]
    pub fn with_read_only(mut self, msr: Msr, value: u64) -> FakeMsrs {
        self.registers.insert(msr, Slot::ReadOnly(value));
        self
    }

    /// Adds a register that raises #GP on every access.
    #[must_use]
    pub fn with_fault(mut self, msr: Msr) -> FakeMsrs {
        self.registers.insert(msr, Slot::Fault);
        self
    }

    /// A register's value; `None` if it is not populated or faults.
    pub fn value(&self, msr: Msr) -> Option<u64> {
        match self.registers.get(&msr)? {
            Slot::Value(value) | Slot::ReadOnly(value) => Some(*value),
            Slot::Fault => None,
        }
    }

    /// Every write that succeeded, in order.
    pub fn written(&self) -> &[(Msr, u64)] {
        &self.written
    }

    fn slot(&mut self, msr: Msr, access: Access) -> Result<&mut Slot, MsrError> {
        let missing = MsrError::Unpopulated { msr, access };
        self.registers.get_mut(&msr).ok_or(missing)
    }
}

impl MsrRead for FakeMsrs {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        let cpu = self.cpu;
        match self.slot(msr, Access::Read)? {
            Slot::Value(value) | Slot::ReadOnly(value) => Ok(*value),
            Slot::Fault => Err(MsrError::Fault { cpu, msr, access: Access::Read }),
        }
    }
}

impl MsrWrite for FakeMsrs {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        let cpu = self.cpu;
        match self.slot(msr, Access::Write)? {
            Slot::Value(held) => *held = value,
            Slot::ReadOnly(_) | Slot::Fault => {
                return Err(MsrError::Fault { cpu, msr, access: Access::Write });
            }
        }
        self.written.push((msr, value));
        Ok(())
    }
}
