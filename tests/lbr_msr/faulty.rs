//! A software LBR that logs accesses and can be told to fail writes.

use lbr_msr::access::{Access, MsrError};
use lbr_msr::address::Msr;
use lbr_msr::soft::SoftLbr;
use lbr_msr::{MsrRead, MsrWrite};

/// Writes with numbers in `fails` fail; every access is logged.
pub(crate) struct Faulty {
    pub(crate) soft: SoftLbr,
    pub(crate) log: Vec<(Access, Msr)>,
    pub(crate) writes: usize,
    pub(crate) fails: core::ops::Range<usize>,
}

impl Faulty {
    pub(crate) fn new(soft: SoftLbr, fails: core::ops::Range<usize>) -> Faulty {
        Faulty { soft, log: Vec::new(), writes: 0, fails }
    }
}

impl MsrRead for Faulty {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.log.push((Access::Read, msr));
        self.soft.read(msr)
    }
}

impl MsrWrite for Faulty {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.log.push((Access::Write, msr));
        self.writes += 1;
        if self.fails.contains(&(self.writes - 1)) {
            return Err(MsrError::WriteFiltered { msr, why: "off".into() });
        }
        self.soft.write(msr, value)
    }
}
