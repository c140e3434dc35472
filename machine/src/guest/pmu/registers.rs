//! The performance monitor's registers by address: which exist, and which bits they accept.

use lbr_msr::Msr;
use lbr_msr::address::{
    AMD_PERF_CNTR_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS_CLR, IA32_FIXED_CTR_CTRL,
    IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_RESET,
    IA32_PERF_GLOBAL_STATUS_SET, IA32_PERFEVTSEL0,
};

use super::super::registers::Answer;
use super::{IN_TX, IN_TXCP, INT, Pmu, UNDOES};

// SDM Vol. 4, Table 2-2.
const IA32_PMC0: u32 = 0xC1;
const IA32_FIXED_CTR0: u32 = 0x309;
const IA32_PERF_GLOBAL_INUSE: Msr = Msr(0x392);
const IA32_A_PMC0: u32 = 0x4C1;
/// Maximum number of registers per family.
const MOST: u32 = 8;

// AMD APM Vol. 2, 13.2; Linux msr-index.h.
const AMD_LEGACY_CTL0: u32 = 0xC001_0000;
const AMD_LEGACY_CTR0: u32 = 0xC001_0004;
const AMD_LEGACY: u32 = 4;
const AMD_CTL0: u32 = 0xC001_0200;
const AMD_GLOBAL_CTL: Msr = Msr(0xC000_0301);

/// PERFEVTSELx: AnyThread.
const ANY: u64 = 1 << 21;
/// PERF_CTLx of AMD: events have 12 bits, plus the host-only and guest-only bits.
const AMD_CTL_BITS: u64 = 0x30F_FFFF_FFFF;
/// GLOBAL_STATUS bits of other facilities: uncore, DS buffer, condition changed.
const OTHERS: u64 = 0b111 << 61;
/// From version 4 on: Processor Trace, LBR_FRZ, CTR_FRZ, ASCI.
const SINCE_4: u64 = 1 << 55 | 0b111 << 58;

/// A register of the monitor.
enum Register {
    Select(usize),
    Count(usize),
    FullWidth(usize),
    Fixed(usize),
    FixedCtrl,
    GlobalCtrl,
    Status,
    StatusReset,
    StatusSet,
    InUse,
    /// Exists only on other CPUs.
    Absent,
}

/// The offset from the first register of a family.
fn index(msr: Msr, first: u32, count: u32) -> Option<usize> {
    let index = msr.0.wrapping_sub(first);
    (index < count).then_some(index as usize)
}

impl Pmu {
    fn register(&self, msr: Msr) -> Option<Register> {
        let register = if self.amd { self.amd_register(msr) } else { self.intel_register(msr) }?;
        let exists = match register {
            Register::Select(i) | Register::Count(i) => i < self.general.len(),
            Register::FullWidth(i) => self.full_width && i < self.general.len(),
            Register::Fixed(i) => i < self.fixed.len(),
            Register::StatusSet | Register::InUse => self.version >= 4,
            _ => self.version >= 2,
        };
        Some(if exists { register } else { Register::Absent })
    }

    fn intel_register(&self, msr: Msr) -> Option<Register> {
        let general =
            |first, register: fn(usize) -> Register| index(msr, first, MOST).map(register);
        general(IA32_PMC0, Register::Count)
            .or_else(|| general(IA32_PERFEVTSEL0.0, Register::Select))
            .or_else(|| general(IA32_A_PMC0, Register::FullWidth))
            .or_else(|| index(msr, IA32_FIXED_CTR0, 4).map(Register::Fixed))
            .or(match msr {
                IA32_FIXED_CTR_CTRL => Some(Register::FixedCtrl),
                IA32_PERF_GLOBAL_CTRL => Some(Register::GlobalCtrl),
                IA32_PERF_GLOBAL_STATUS => Some(Register::Status),
                IA32_PERF_GLOBAL_STATUS_RESET => Some(Register::StatusReset),
                IA32_PERF_GLOBAL_STATUS_SET => Some(Register::StatusSet),
                IA32_PERF_GLOBAL_INUSE => Some(Register::InUse),
                _ => None,
            })
    }

    fn amd_register(&self, msr: Msr) -> Option<Register> {
        let pairs = 2 * self.general.len() as u32;
        index(msr, AMD_CTL0, pairs)
            .map(|i| if i % 2 == 0 { Register::Select(i / 2) } else { Register::Count(i / 2) })
            .or_else(|| index(msr, AMD_LEGACY_CTL0, AMD_LEGACY).map(Register::Select))
            .or_else(|| index(msr, AMD_LEGACY_CTR0, AMD_LEGACY).map(Register::Count))
            .or(match msr {
                AMD_GLOBAL_CTL => Some(Register::GlobalCtrl),
                AMD_PERF_CNTR_GLOBAL_STATUS => Some(Register::Status),
                AMD_PERF_CNTR_GLOBAL_STATUS_CLR => Some(Register::StatusReset),
                _ => None,
            })
    }

    /// RDMSR. The LBR handles the bits of GLOBAL_STATUS that freezing sets.
    pub(in crate::guest) fn read(&self, msr: Msr) -> Answer<u64> {
        let Some(register) = self.register(msr) else { return Answer::NotOurs };
        let value = match register {
            Register::Select(i) => self.general.get(i).map(|counter| counter.select),
            Register::Count(i) | Register::FullWidth(i) => {
                self.general.get(i).map(|counter| counter.count)
            }
            Register::Fixed(i) => self.fixed.get(i).copied(),
            Register::FixedCtrl => Some(self.fixed_ctrl),
            Register::GlobalCtrl => Some(self.global_ctrl),
            Register::Status => Some(self.status),
            Register::StatusReset | Register::StatusSet => Some(0),
            Register::InUse => Some(self.in_use()),
            Register::Absent => None,
        };
        value.map_or(Answer::Fault, Answer::Done)
    }

    /// WRMSR.
    pub(in crate::guest) fn write(&mut self, msr: Msr, value: u64) -> Answer<()> {
        let Some(register) = self.register(msr) else { return Answer::NotOurs };
        self.set(register, value).map_or(Answer::Fault, Answer::Done)
    }

    /// `None`: #GP.
    fn set(&mut self, register: Register, value: u64) -> Option<()> {
        let (mask, counters) = (self.mask(), self.counters());
        let taken = match register {
            Register::Select(i) => self.select_bits(i),
            Register::FullWidth(_) | Register::Fixed(_) => mask,
            Register::FixedCtrl => self.fixed_ctrl_bits(),
            Register::GlobalCtrl => counters | self.metrics(),
            Register::StatusReset | Register::StatusSet => self.status_bits(),
            Register::Count(_) => u64::MAX,
            Register::Status | Register::InUse | Register::Absent => return None,
        };
        if value & !taken != 0 {
            return None;
        }
        match register {
            Register::Select(i) => self.general.get_mut(i)?.select = value,
            Register::Count(i) if self.amd => self.general.get_mut(i)?.count = value & mask,
            // Bits 31:0 are written and sign-extended. SDM 18.2.6.
            Register::Count(i) => {
                let extended = i64::from(value as u32 as i32) as u64;
                self.general.get_mut(i)?.count = extended & mask;
            }
            Register::FullWidth(i) => self.general.get_mut(i)?.count = value,
            Register::Fixed(i) => *self.fixed.get_mut(i)? = value,
            Register::FixedCtrl => self.fixed_ctrl = value,
            Register::GlobalCtrl => self.global_ctrl = value,
            Register::StatusReset => self.status &= !value,
            Register::StatusSet => self.status |= value & counters,
            Register::Status | Register::InUse | Register::Absent => {}
        }
        Some(())
    }

    /// EN_PERF_METRICS, introduced with the slots counter. SDM 18.3.9.3.
    fn metrics(&self) -> u64 {
        u64::from(self.fixed.len() > 3) << 48
    }

    fn select_bits(&self, index: usize) -> u64 {
        let transactions = match (self.tsx, index) {
            (true, UNDOES) => IN_TX | IN_TXCP,
            (true, _) => IN_TX,
            (false, _) => 0,
        };
        match (self.amd, self.no_any_thread) {
            (true, _) => AMD_CTL_BITS,
            (false, true) => 0xFFFF_FFFF & !ANY | transactions,
            (false, false) => 0xFFFF_FFFF | transactions,
        }
    }

    /// Per counter: both rings, AnyThread and the interrupt.
    fn fixed_ctrl_bits(&self) -> u64 {
        let each = if self.no_any_thread { 0b1011 } else { 0b1111 };
        (0..self.fixed.len()).fold(0, |bits, i| bits | each << (4 * i))
    }

    fn status_bits(&self) -> u64 {
        match (self.amd, self.version >= 4) {
            // Linux writes ones to all bits except those it did not handle.
            (true, _) => u64::MAX,
            (false, false) => self.counters() | OTHERS,
            (false, true) => self.counters() | OTHERS | SINCE_4,
        }
    }

    /// IA32_PERF_GLOBAL_INUSE. SDM 18.2.4.3.
    fn in_use(&self) -> u64 {
        let general = self.general.iter().enumerate();
        let selected = general.fold(0, |bits, (i, counter)| {
            bits | u64::from(counter.select & 0xFF != 0) << i
                | u64::from(counter.select & INT != 0) << 63
        });
        (0..self.fixed.len()).fold(selected, |bits, i| {
            let control = self.fixed_ctrl >> (4 * i);
            bits | u64::from(control & 3 != 0) << (32 + i) | u64::from(control & 8 != 0) << 63
        })
    }
}
