//! The slots of an LBR during a drain: read one by one while frozen, or taken from the image that
//! one batch returned.

use lbr_msr::access::{MsrResult, Op};
use lbr_msr::record::RawEntry;
use lbr_msr::{Msr, MsrRead, MsrWrite};

use super::ring::RingPlan;

/// Registers of one CPU, with an access counter.
pub(super) struct CountedRegisters<'a, R: ?Sized> {
    registers: &'a mut R,
    /// Number of reads and writes.
    pub(super) accesses: u32,
}

impl<'a, R: MsrWrite + ?Sized> CountedRegisters<'a, R> {
    pub(super) fn new(registers: &'a mut R) -> CountedRegisters<'a, R> {
        CountedRegisters { registers, accesses: 0 }
    }
}

impl<R: MsrWrite + ?Sized> MsrRead for CountedRegisters<'_, R> {
    fn cpu(&self) -> u32 {
        self.registers.cpu()
    }

    fn read(&mut self, msr: Msr) -> MsrResult<u64> {
        self.accesses += 1;
        self.registers.read(msr)
    }
}

impl<R: MsrWrite + ?Sized> MsrWrite for CountedRegisters<'_, R> {
    fn write(&mut self, msr: Msr, value: u64) -> MsrResult {
        self.accesses += 1;
        self.registers.write(msr, value)
    }

    fn run(&mut self, batch: &mut [Op]) -> MsrResult {
        self.accesses += batch.len() as u32;
        self.registers.run(batch)
    }
}

/// Where a walk reads a slot's registers.
pub(super) trait Slots {
    fn from(&mut self, index: u32) -> MsrResult<u64>;
    /// 0 for packed records, which have no such register.
    fn to(&mut self, index: u32) -> MsrResult<u64>;
    fn info(&mut self, index: u32) -> MsrResult<Option<u64>>;
}

/// Reads each register on request.
pub(super) struct Live<'a, 'b, R: ?Sized> {
    pub(super) ring: &'a RingPlan,
    pub(super) registers: &'a mut CountedRegisters<'b, R>,
}

impl<R: MsrWrite + ?Sized> Slots for Live<'_, '_, R> {
    #[inline]
    fn from(&mut self, index: u32) -> MsrResult<u64> {
        self.registers.read(self.ring.map.from_at(index))
    }

    #[inline]
    fn to(&mut self, index: u32) -> MsrResult<u64> {
        self.ring.map.to_at(index).map_or(Ok(0), |msr| self.registers.read(msr))
    }

    #[inline]
    fn info(&mut self, index: u32) -> MsrResult<Option<u64>> {
        self.ring.map.info_at(index).map(|msr| self.registers.read(msr)).transpose()
    }
}

/// All slots as read by one batch, in index order.
impl Slots for Vec<RawEntry> {
    fn from(&mut self, index: u32) -> MsrResult<u64> {
        Ok(self[index as usize].from)
    }

    fn to(&mut self, index: u32) -> MsrResult<u64> {
        Ok(self[index as usize].to)
    }

    fn info(&mut self, index: u32) -> MsrResult<Option<u64>> {
        Ok(self[index as usize].info)
    }
}
