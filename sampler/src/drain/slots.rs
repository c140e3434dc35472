//! The slots of an LBR during a drain: read one by one while frozen, or taken from the image that
//! one batch returned.

use lbr_msr::access::{Op, RecordRegisters};
use lbr_msr::record::RawEntry;
use lbr_msr::{Msr, MsrError, MsrRead, MsrWrite};

use super::ring::RingPlan;
use super::stack::{Accesses, RawStack};

/// Registers of one CPU, with an access counter.
pub(super) struct CountedRegisters<'a, R: ?Sized> {
    registers: &'a mut R,
    accesses: Accesses,
}

impl<'a, R: MsrWrite + ?Sized> CountedRegisters<'a, R> {
    pub(super) fn new(registers: &'a mut R) -> CountedRegisters<'a, R> {
        CountedRegisters { registers, accesses: Accesses::default() }
    }

    /// Adds accesses that were made elsewhere.
    pub(super) fn made_before(&mut self, accesses: Accesses) {
        self.accesses.reads += accesses.reads;
        self.accesses.writes += accesses.writes;
    }

    pub(super) fn accesses(&self) -> Accesses {
        self.accesses
    }

    pub(super) fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.accesses.reads += 1;
        self.registers.read(msr)
    }

    pub(super) fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.accesses.writes += 1;
        self.registers.write(msr, value)
    }

    pub(super) fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        for op in &*batch {
            match op {
                Op::Read { .. } => self.accesses.reads += 1,
                Op::Write { .. } => self.accesses.writes += 1,
            }
        }
        self.registers.run(batch)
    }
}

/// Where a walk reads a slot's registers.
pub(super) trait Slots {
    fn from(&mut self, index: u32) -> Result<u64, MsrError>;
    /// 0 for packed records, which have no such register.
    fn to(&mut self, index: u32) -> Result<u64, MsrError>;
    fn info(&mut self, index: u32) -> Result<Option<u64>, MsrError>;
    /// Copies the newest records, from `top` down to the first with FROM = 0, if they lie in
    /// memory. Returns how many; the rest must be read one by one.
    fn at_once(&mut self, top: u32, out: &mut RawStack) -> u32 {
        let _ = (top, out);
        0
    }
}

/// Reads each register on request.
pub(super) struct Live<'a, 'b, R: ?Sized> {
    ring: &'a RingPlan,
    registers: &'a mut CountedRegisters<'b, R>,
    /// The record whose FROM was read last, if all of it is known.
    record: Option<(u32, RecordRegisters)>,
}

impl<'a, 'b, R: ?Sized> Live<'a, 'b, R> {
    pub(super) fn new(
        ring: &'a RingPlan,
        registers: &'a mut CountedRegisters<'b, R>,
    ) -> Live<'a, 'b, R> {
        Live { ring, registers, record: None }
    }

    #[inline]
    fn known(&self, index: u32) -> Option<RecordRegisters> {
        self.record.filter(|(of, _)| *of == index).map(|(_, record)| record)
    }
}

impl<R: MsrWrite + ?Sized> Slots for Live<'_, '_, R> {
    #[inline]
    fn from(&mut self, index: u32) -> Result<u64, MsrError> {
        let msr = self.ring.map.from_at(index);
        let records = self.registers.registers.records(self.ring.map.from);
        let record = records.and_then(|records| records.get(index as usize));
        self.record = record.map(|record| (index, record));
        match self.record {
            Some((_, record)) => Ok(record.from),
            None => self.registers.read(msr),
        }
    }

    #[inline]
    fn to(&mut self, index: u32) -> Result<u64, MsrError> {
        match (self.ring.map.to_at(index), self.known(index)) {
            (None, _) => Ok(0),
            (Some(_), Some(record)) => Ok(record.to),
            (Some(msr), None) => self.registers.read(msr),
        }
    }

    #[inline]
    fn info(&mut self, index: u32) -> Result<Option<u64>, MsrError> {
        match (self.ring.map.info_at(index), self.known(index)) {
            (None, _) => Ok(None),
            (Some(_), Some(record)) => Ok(Some(record.info)),
            (Some(msr), None) => self.registers.read(msr).map(Some),
        }
    }

    fn at_once(&mut self, top: u32, out: &mut RawStack) -> u32 {
        let RingPlan { map, depth, .. } = self.ring;
        let Some(records) = self.registers.registers.records(map.from) else { return 0 };
        let has_info = map.info.is_some();
        let newer = (0..*depth).map_while(|age| {
            let record = records.get(self.ring.index(top, age) as usize)?;
            let info = has_info.then_some(record.info);
            (record.from != 0).then_some(RawEntry { from: record.from, to: record.to, info })
        });
        out.extend(newer)
    }
}

/// All slots as read by one batch, in index order.
#[derive(Default)]
pub(super) struct RingImage {
    pub(super) slots: Vec<(u64, u64, Option<u64>)>,
}

impl RingImage {
    fn slot(&self, index: u32) -> (u64, u64, Option<u64>) {
        self.slots.get(index as usize).copied().unwrap_or_default()
    }
}

impl Slots for RingImage {
    fn from(&mut self, index: u32) -> Result<u64, MsrError> {
        Ok(self.slot(index).0)
    }

    fn to(&mut self, index: u32) -> Result<u64, MsrError> {
        Ok(self.slot(index).1)
    }

    fn info(&mut self, index: u32) -> Result<Option<u64>, MsrError> {
        Ok(self.slot(index).2)
    }
}

/// Reads a register that may be absent on this CPU.
pub(super) fn read_if_present<R: MsrRead + ?Sized>(registers: &mut R, msr: Msr) -> Option<u64> {
    registers.read(msr).ok()
}
