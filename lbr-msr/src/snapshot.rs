//! One reading of the LBR stack, without writing anything.

use alloc::vec::Vec;

use crate::{
    access::{MsrRead, MsrResult},
    address::Msr,
    caps::{LbrCaps, Order},
    decode::ring_order,
    record::RawEntry,
    register::{PerfGlobalStatus, amd::MSROFF},
};

const LBR_FRZ: u64 = PerfGlobalStatus::LBR_FRZ.bits();

/// The registers of an LBR, read one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The register that enables recording.
    pub control: u64,
    /// The filter register, if separate from `control`.
    pub select: Option<u64>,
    /// The position of the newest record: TOS, or BRS's MSROFF.
    pub position: Option<u64>,
    /// Number of records; for Architectural LBR as set in IA32_LBR_DEPTH.
    pub depth: u32,
    /// Each record with its index, newest first, including empty ones.
    pub records: Vec<(u32, RawEntry)>,
    /// Whether recording was on during the read.
    pub recording: bool,
    /// Whether TOS or the newest record changed during the read.
    pub moved: bool,
}

impl Snapshot {
    /// Reads one CPU's LBR.
    ///
    /// # Errors
    /// The first register that could not be read.
    pub fn read<M: MsrRead + ?Sized>(msr: &mut M, caps: &LbrCaps) -> MsrResult<Snapshot> {
        let registers = &caps.registers;
        let control = msr.read(registers.control)?;
        let select = registers.select.filter(|select| *select != registers.control);
        let select = select.map(|select| msr.read(select)).transpose()?;
        let depth = match registers.depth {
            Some(register) => {
                // Depth 0 was never observed, and more than the maximum is impossible.
                let asked = u32::try_from(msr.read(register)?).unwrap_or(u32::MAX);
                if (1..=caps.depth).contains(&asked) { asked } else { caps.depth }
            }
            None => caps.depth,
        };
        let position = read_position(msr, caps)?;
        let mut records = Vec::new();
        for index in ring_order(caps.order, depth, position.unwrap_or(0)) {
            records.push((index, read_record(msr, caps, index)?));
        }
        let after = read_position(msr, caps)?;
        let newest = match records.first() {
            Some((index, record)) => read_record(msr, caps, *index)? != *record,
            None => false,
        };
        // AMD's status has the bit at the same position. An unreadable register does not rule out
        // recording.
        let frozen = caps
            .freeze_status()
            .is_some_and(|(status, _)| msr.read(status).is_ok_and(|v| v & LBR_FRZ != 0));
        Ok(Snapshot {
            control,
            select,
            position,
            depth,
            records,
            recording: control & registers.enable != 0 && !frozen,
            moved: position != after || newest,
        })
    }

    /// Whether the records may be inconsistent, because recording continued during the read.
    pub const fn torn(&self) -> bool {
        self.recording || self.moved
    }
}

/// Reads the position of the newest record, as [`ring_order`] takes it: TOS, or MSROFF of AMD BRS.
///
/// # Errors
/// The access that failed.
pub fn read_position<M: MsrRead + ?Sized>(msr: &mut M, caps: &LbrCaps) -> MsrResult<Option<u64>> {
    match (caps.order, caps.registers.tos) {
        (_, Some(tos)) => msr.read(tos).map(Some),
        (Order::Saturating, None) => {
            let control = msr.read(caps.registers.control)?;
            Ok(Some(MSROFF.of(control)))
        }
        (Order::Tos | Order::NewestFirst | Order::Single, None) => Ok(None),
    }
}

fn read_record<M: MsrRead + ?Sized>(
    msr: &mut M,
    caps: &LbrCaps,
    index: u32,
) -> MsrResult<RawEntry> {
    let registers = &caps.registers;
    let mut read = |register: Option<Msr>| register.map(|register| msr.read(register)).transpose();
    Ok(RawEntry {
        from: read(Some(registers.from_at(index)))?.unwrap_or(0),
        to: read(registers.to_at(index))?.unwrap_or(0),
        info: read(registers.info_at(index))?,
    })
}
