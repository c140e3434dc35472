//! A small register file that behaves as the manuals describe an LBR, written only for these tests,
//! with an access log and injected faults.

use lbr_msr::access::Op;
use lbr_msr::caps::{
    CpuIdentity, Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap, Vendor,
};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::Retired;
use lbr_msr::{LbrFormat, Msr, MsrError, MsrRead, MsrWrite};
use sampler::gate::BranchRegisters;
use sampler::target::ThreadId;

pub(crate) const THREAD: ThreadId = ThreadId { pid: 7, tid: 8 };

const TOS: Msr = Msr(0x1C9);
const SELECT: Msr = Msr(0x1C8);
const DEBUGCTL: Msr = Msr(0x1D9);
const STATUS: Msr = Msr(0x38E);
const STATUS_RESET: Msr = Msr(0x390);

/// The kind of LBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// TOS, FROM and TO with flags (LBR_FMT 3).
    Flags,
    /// TOS, FROM, TO and INFO (LBR_FMT 5).
    Info,
    /// TOS, one register for both addresses (LBR_FMT 0).
    Packed,
    /// Architectural LBR.
    Arch,
    /// AMD LbrExtV2.
    Amd,
}

pub(crate) const SHAPES: [Shape; 5] =
    [Shape::Flags, Shape::Info, Shape::Packed, Shape::Arch, Shape::Amd];

pub(crate) fn caps(shape: Shape, depth: u32) -> LbrCaps {
    let legacy = |from: u32, to: Option<u32>, info: Option<u32>| RegisterMap {
        from: Msr(from),
        to: to.map(Msr),
        info: info.map(Msr),
        stride: 1,
        tos: Some(TOS),
        select: Some(SELECT),
        control: DEBUGCTL,
        enable: 1,
        depth: None,
    };
    let format = |code| Layout::Legacy { format: LbrFormat(code), tsx: false };
    let suppress = FilterRegister::LbrSelect { jumps_swallow_calls: false, call_stack: true };
    let (facility, layout, registers, order, filter) = match shape {
        Shape::Flags => (
            Facility::IntelLegacy,
            format(3),
            legacy(0x680, Some(0x6C0), None),
            Order::Tos,
            suppress,
        ),
        Shape::Info => (
            Facility::IntelLegacy,
            format(5),
            legacy(0x680, Some(0x6C0), Some(0xDC0)),
            Order::Tos,
            suppress,
        ),
        Shape::Packed => (
            Facility::IntelLegacy,
            Layout::Packed32,
            RegisterMap { select: None, ..legacy(0x40, None, None) },
            Order::Tos,
            FilterRegister::None,
        ),
        Shape::Arch => (
            Facility::IntelArch,
            Layout::Arch { mispredict: true, timed: true, types: true, counters: 0, tsx: false },
            RegisterMap {
                from: Msr(0x1500),
                to: Some(Msr(0x1600)),
                info: Some(Msr(0x1200)),
                stride: 1,
                tos: None,
                select: Some(Msr(0x14CE)),
                control: Msr(0x14CE),
                enable: 1,
                depth: Some(Msr(0x14CF)),
            },
            Order::NewestFirst,
            FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: true },
        ),
        Shape::Amd => (
            Facility::AmdLbrV2,
            Layout::AmdV2 { virt_bits: 48 },
            RegisterMap {
                from: Msr(0xC001_0300),
                to: Some(Msr(0xC001_0301)),
                info: None,
                stride: 2,
                tos: None,
                select: Some(Msr(0xC000_010E)),
                control: Msr(0xC000_010F),
                enable: 1 << 6,
                depth: None,
            },
            Order::NewestFirst,
            FilterRegister::AmdSelect,
        ),
    };
    LbrCaps {
        cpu: CpuIdentity {
            vendor: if shape == Shape::Amd { Vendor::Amd } else { Vendor::Intel },
            family: 6,
            model: 0,
            stepping: 0,
            uarch: None,
            hypervisor: None,
        },
        facility,
        depth,
        depth_mask: 0,
        format: None,
        layout,
        registers,
        order,
        filter,
        quirks: Quirks::empty(),
        perfmon_version: 0,
        assumed: false,
    }
}

/// FROM, TO and INFO of a record.
pub(crate) type Record = (u64, u64, u64);

/// The register file.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) shape: Shape,
    pub(crate) caps: LbrCaps,
    /// In index order: FROM, TO, INFO.
    pub(crate) slots: Vec<Record>,
    pub(crate) tos: u64,
    pub(crate) control: u64,
    pub(crate) select: u64,
    /// IA32_PERF_GLOBAL_STATUS, if it exists.
    pub(crate) status: Option<u64>,
    pub(crate) one_call: bool,
    /// Calls push and returns pop.
    pub(crate) call_stack: bool,
    /// Every access since the log was last cleared.
    pub(crate) log: Vec<Msr>,
    /// Number of writes so far.
    pub(crate) writes: usize,
    /// A record that appears after this number of accesses, even while frozen.
    pub(crate) intruder: Option<(usize, Record)>,
    /// A value that the control register gets after this number of accesses.
    pub(crate) rewritten: Option<(usize, u64)>,
    /// A register that faults.
    pub(crate) fault: Option<Msr>,
    /// A register that faults when it is written.
    pub(crate) read_only: Option<Msr>,
}

impl Model {
    /// Cleared and enabled.
    pub(crate) fn armed(shape: Shape, depth: u32) -> Model {
        let caps = caps(shape, depth);
        let control = match shape {
            Shape::Arch => 0x3F_0005,
            Shape::Amd => 0b101_1000,
            _ => 0b100_0000_0000_0011,
        };
        Model {
            shape,
            caps,
            slots: vec![(0, 0, 0); depth as usize],
            tos: 0,
            control,
            select: 0x101,
            status: None,
            one_call: false,
            call_stack: false,
            log: Vec::new(),
            writes: 0,
            intruder: None,
            rewritten: None,
            fault: None,
            read_only: None,
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.slots.len()
    }

    /// The raw record for a branch.
    pub(crate) fn encode(&self, from: u64, to: u64) -> Record {
        match self.shape {
            Shape::Flags => (from, to, 0),
            Shape::Info => (from, to, 0),
            Shape::Packed => ((from & 0xFFFF_FFFF) | to << 32, 0, 0),
            Shape::Arch => (from, to, 0),
            Shape::Amd => (from, to | 1 << 63, 0),
        }
    }

    /// Adds a record, even if recording is off.
    pub(crate) fn force(&mut self, record: Record) {
        if self.caps.registers.tos.is_some() {
            self.tos = (self.tos + 1) % self.depth() as u64;
            let top = self.tos as usize;
            self.slots[top] = record;
        } else {
            self.slots.pop();
            self.slots.insert(0, record);
        }
    }

    fn pop(&mut self) {
        if self.caps.registers.tos.is_some() {
            let depth = self.depth() as u64;
            self.slots[self.tos as usize] = (0, 0, 0);
            self.tos = (self.tos + depth - 1) % depth;
        } else {
            self.slots.remove(0);
            self.slots.push((0, 0, 0));
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.control & self.caps.registers.enable != 0 && self.status.unwrap_or(0) >> 58 & 1 == 0
    }

    /// Retires a branch. Returns whether the LBR changed.
    pub(crate) fn branch(&mut self, from: u64, to: u64) -> bool {
        let record = self.encode(from, to);
        if self.is_on() {
            self.force(record);
        }
        self.is_on()
    }

    /// A deep C-state: clears records and TOS, recording stays on.
    pub(crate) fn wipe(&mut self) {
        self.slots.fill((0, 0, 0));
        self.tos = 0;
    }

    fn access(&mut self, msr: Msr, write: bool) -> Result<Place, MsrError> {
        if let Some(record) = due(&mut self.intruder) {
            self.force(record);
        }
        if let Some(control) = due(&mut self.rewritten) {
            self.control = control;
        }
        self.log.push(msr);
        self.writes += usize::from(write);
        let access = match write {
            true => lbr_msr::access::Access::Write,
            false => lbr_msr::access::Access::Read,
        };
        let fault = Err(MsrError::Fault { cpu: 3, msr, access });
        if self.fault == Some(msr) || (write && self.read_only == Some(msr)) {
            return fault;
        }
        let map = self.caps.registers;
        if msr == map.control {
            return Ok(Place::Control);
        }
        if Some(msr) == map.tos {
            return Ok(Place::Tos);
        }
        if Some(msr) == map.select {
            return Ok(Place::Select);
        }
        if Some(msr) == map.depth {
            return Ok(Place::Depth);
        }
        if msr == STATUS && self.status.is_some() && !write {
            return Ok(Place::Status);
        }
        if msr == STATUS_RESET && self.status.is_some() && write {
            return Ok(Place::StatusReset);
        }
        for index in 0..self.depth() as u32 {
            if msr == map.from_at(index) {
                return Ok(Place::From(index as usize));
            }
            if Some(msr) == map.to_at(index) {
                return Ok(Place::To(index as usize));
            }
            if Some(msr) == map.info_at(index) {
                return Ok(Place::Info(index as usize));
            }
        }
        fault
    }
}

/// Counts one access down; returns the change once none is left.
fn due<T>(change: &mut Option<(usize, T)>) -> Option<T> {
    match change {
        Some((left, _)) if *left > 0 => {
            *left -= 1;
            None
        }
        _ => change.take().map(|(_, change)| change),
    }
}

enum Place {
    Control,
    Tos,
    Select,
    Depth,
    Status,
    StatusReset,
    From(usize),
    To(usize),
    Info(usize),
}

impl MsrRead for Model {
    fn cpu(&self) -> u32 {
        3
    }

    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        Ok(match self.access(msr, false)? {
            Place::Control => self.control,
            // The upper bits of TOS are unspecified.
            Place::Tos => self.tos | 0xABC0_0000,
            Place::Select => self.select,
            Place::Depth => self.depth() as u64,
            Place::Status => self.status.unwrap_or(0),
            Place::StatusReset => 0,
            Place::From(index) => self.slots[index].0,
            Place::To(index) => self.slots[index].1,
            Place::Info(index) => self.slots[index].2,
        })
    }

    fn one_call(&self) -> bool {
        self.one_call
    }
}

impl MsrWrite for Model {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        match self.access(msr, true)? {
            Place::Control => {
                let others = !self.caps.registers.enable;
                assert_eq!((self.control ^ value) & others, 0, "bits of others change");
                self.control = value;
            }
            Place::Tos => self.tos = value % self.depth() as u64,
            Place::Select => self.select = value,
            Place::Depth => self.slots.fill((0, 0, 0)),
            Place::Status => {}
            Place::StatusReset => self.status = self.status.map(|status| status & !value),
            Place::From(index) => self.slots[index].0 = value,
            Place::To(index) => self.slots[index].1 = value,
            Place::Info(index) => self.slots[index].2 = value,
        }
        Ok(())
    }

    fn run(&mut self, batch: &mut [Op]) -> Result<(), MsrError> {
        for op in batch {
            match op {
                Op::Read { msr, value } => *value = self.read(*msr)?,
                Op::Write { msr, value } => self.write(*msr, *value)?,
            }
        }
        Ok(())
    }
}

impl BranchRegisters for Model {
    fn retire(&mut self, branch: &Retired) -> bool {
        if !self.call_stack {
            return self.branch(branch.from, branch.to);
        }
        match branch.class {
            HwBranchType::RelCall | HwBranchType::IndCall if !branch.zero_length_call => {
                self.branch(branch.from, branch.to)
            }
            HwBranchType::Ret if self.is_on() => {
                self.pop();
                true
            }
            _ => false,
        }
    }
}
