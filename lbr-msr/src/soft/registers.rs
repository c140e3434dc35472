//! The registers by address: which exist, which bits they accept, and the side effects of writes.

use crate::access::{Access, MsrError, MsrRead, MsrWrite};
use crate::address::{
    AMD_DBG_EXTN_CFG, AMD_PERF_CNTR_GLOBAL_STATUS, AMD_PERF_CNTR_GLOBAL_STATUS_CLR, IA32_DEBUGCTL,
    IA32_LER_INFO, IA32_PERF_CAPABILITIES, IA32_PERF_GLOBAL_STATUS, IA32_PERF_GLOBAL_STATUS_RESET,
    IA32_PERF_GLOBAL_STATUS_SET, IA32_RTIT_CTL, MSR_LASTBRANCHFROMIP, MSR_LASTBRANCHTOIP,
    MSR_LER_FROM_LIP, MSR_LER_FROM_LIP_NETBURST, MSR_LER_TO_LIP, MSR_LER_TO_LIP_NETBURST, Msr,
    brbe,
};
use crate::caps::{Facility, FilterRegister, Layout, Order, Quirks};
use crate::register::{
    DbgExtnCfg, DebugCtl, DebugCtlA, LbrCtl, PerfCapabilities, PerfGlobalStatus, RtitCtl,
};

use super::Fault;
use super::encode::{Bank, Encoding, Slot};
use super::ring::{Control, SoftLbr};

/// A register of the software LBR.
#[derive(Clone, Copy)]
enum SoftRegister {
    Record(Bank, usize),
    Tos,
    Select,
    LbrCtl,
    Depth,
    DebugCtl,
    DbgExtnCfg,
    LastException(Bank),
    /// AMD's one-entry pair, besides a stack; or the record that BRBE injects.
    Pair(Bank),
    PerfCapabilities,
    Status,
    StatusReset,
    StatusSet,
    RtitCtl,
    /// BRB IALL and BRB INJ.
    Invalidate,
    Inject,
    Brbcr,
    Brbfcr,
    Brbidr0,
    Brbts,
}

impl SoftLbr {
    #[inline]
    fn register(&self, msr: Msr) -> Option<SoftRegister> {
        if self.control == Control::Brbcr {
            return self.brbe_register(msr);
        }
        let map = &self.caps.registers;
        let index = |base: Option<Msr>| {
            let distance = msr.0.wrapping_sub(base?.0);
            let shift = self.stride_shift;
            let index = (distance >> shift) as usize;
            (index < self.depth && (index << shift) as u32 == distance).then_some(index)
        };
        if let Some(i) = index(Some(map.from)) {
            return Some(SoftRegister::Record(Bank::From, i));
        }
        let to = if self.encoding == Encoding::Packed { None } else { map.to };
        if let Some(i) = index(to) {
            return Some(SoftRegister::Record(Bank::To, i));
        }
        let info = if self.faults.has(Fault::NoInfo) { None } else { map.info };
        if let Some(i) = index(info) {
            return Some(SoftRegister::Record(Bank::Info, i));
        }
        self.control_register(msr)
    }

    /// BRBE's registers. Those of records are in the bank that BRBFCR selects, or that the address
    /// names.
    fn brbe_register(&self, msr: Msr) -> Option<SoftRegister> {
        Some(match msr {
            brbe::BRBCR => SoftRegister::Brbcr,
            brbe::BRBFCR => SoftRegister::Brbfcr,
            brbe::BRBTS => SoftRegister::Brbts,
            brbe::BRBIDR0 => SoftRegister::Brbidr0,
            brbe::BRBINFINJ => SoftRegister::Pair(Bank::Info),
            brbe::BRBSRCINJ => SoftRegister::Pair(Bank::From),
            brbe::BRBTGTINJ => SoftRegister::Pair(Bank::To),
            brbe::BRB_IALL => SoftRegister::Invalidate,
            brbe::BRB_INJ => SoftRegister::Inject,
            _ => {
                let within = (msr.0 % brbe::BANK).checked_sub(brbe::BRBINF0.0)?;
                let bank = match within {
                    ..0x80 => [Bank::Info, Bank::From, Bank::To].get(within as usize & 3)?,
                    _ => return None,
                };
                let selected = (self.select >> 28 & 3) as u32 | (msr.0 / brbe::BANK);
                let index = within >> 3 | (within >> 2 & 1) << 4 | selected << 5;
                // Records that do not exist are RES0.
                SoftRegister::Record(*bank, index as usize)
            }
        })
    }

    fn control_register(&self, msr: Msr) -> Option<SoftRegister> {
        let map = &self.caps.registers;
        let intel_status = self.is_intel() && self.caps.perfmon_version >= 2;
        let amd_status = !self.is_intel() && self.caps.quirks.contains(Quirks::STREAMLINED_FREEZE);
        let netburst = self.caps.facility == Facility::NetBurst;
        Some(match msr {
            IA32_DEBUGCTL => SoftRegister::DebugCtl,
            _ if Some(msr) == map.tos => SoftRegister::Tos,
            _ if self.control == Control::LbrCtl && msr == map.control => SoftRegister::LbrCtl,
            _ if Some(msr) == map.select => SoftRegister::Select,
            _ if Some(msr) == map.depth => SoftRegister::Depth,
            AMD_DBG_EXTN_CFG if self.control == Control::DbgExtnCfg => SoftRegister::DbgExtnCfg,
            IA32_PERF_CAPABILITIES if self.perf_capabilities.is_some() => {
                SoftRegister::PerfCapabilities
            }
            IA32_PERF_GLOBAL_STATUS if intel_status => SoftRegister::Status,
            IA32_PERF_GLOBAL_STATUS_RESET if intel_status => SoftRegister::StatusReset,
            IA32_PERF_GLOBAL_STATUS_SET if intel_status && self.caps.perfmon_version >= 4 => {
                SoftRegister::StatusSet
            }
            AMD_PERF_CNTR_GLOBAL_STATUS if amd_status => SoftRegister::Status,
            AMD_PERF_CNTR_GLOBAL_STATUS_CLR if amd_status => SoftRegister::StatusReset,
            IA32_RTIT_CTL
                if self.caps.quirks.intersects(Quirks::PT_DISABLES | Quirks::PT_EXCLUDES) =>
            {
                SoftRegister::RtitCtl
            }
            MSR_LER_FROM_LIP_NETBURST if netburst => SoftRegister::LastException(Bank::From),
            MSR_LER_TO_LIP_NETBURST if netburst => SoftRegister::LastException(Bank::To),
            MSR_LER_FROM_LIP if self.has_last_exception() => {
                SoftRegister::LastException(Bank::From)
            }
            MSR_LER_TO_LIP if self.has_last_exception() => SoftRegister::LastException(Bank::To),
            IA32_LER_INFO if self.control == Control::LbrCtl => {
                SoftRegister::LastException(Bank::Info)
            }
            MSR_LASTBRANCHFROMIP if self.has_pair() => SoftRegister::Pair(Bank::From),
            MSR_LASTBRANCHTOIP if self.has_pair() => SoftRegister::Pair(Bank::To),
            _ => return None,
        })
    }

    #[inline]
    fn get(&self, msr: Msr) -> Option<u64> {
        let register = self.register(msr)?;
        if self.trace_hides_lbr() && hidden_by_trace(register) {
            return Some(0);
        }
        Some(match register {
            // BRBE has fewer records.
            SoftRegister::Record(_, i) if i >= self.depth => 0,
            SoftRegister::Record(bank, i) => self.slot(i).get(bank),
            SoftRegister::Tos => self.tos() as u64,
            SoftRegister::Select | SoftRegister::Brbfcr => self.select,
            SoftRegister::LbrCtl | SoftRegister::Brbcr => self.lbr_ctl,
            SoftRegister::Depth | SoftRegister::Invalidate => self.depth as u64,
            SoftRegister::DebugCtl => self.debugctl,
            SoftRegister::DbgExtnCfg => self.dbg_extn_cfg,
            SoftRegister::LastException(Bank::To)
                if self.faults.has(Fault::LerToUnsigned) && self.encoding.is_format_4() =>
            {
                // The three bits above the address are never its sign.
                self.ler.to ^ 7 << 61
            }
            SoftRegister::LastException(bank) => self.ler.get(bank),
            SoftRegister::Pair(bank) => self.pair.get(bank),
            SoftRegister::PerfCapabilities if self.faults.has(Fault::FormatCode) => {
                other_format(self.perf_capabilities?)
            }
            SoftRegister::PerfCapabilities => self.perf_capabilities?,
            SoftRegister::Status => self.status,
            SoftRegister::StatusReset | SoftRegister::StatusSet => 0,
            SoftRegister::RtitCtl => self.rtit_ctl,
            SoftRegister::Inject => return None,
            SoftRegister::Brbidr0 => self.depth as u64 | BRBIDR0_CC,
            SoftRegister::Brbts => self.timestamp,
        })
    }

    /// `None` if WRMSR raises #GP.
    fn set(&mut self, msr: Msr, value: u64) -> Option<()> {
        let register = self.register(msr)?;
        if self.trace_hides_lbr() && hidden_by_trace(register) {
            return Some(());
        }
        let encoding = self.encoding;
        match register {
            // Read-only. SDM 17.11.2.
            SoftRegister::Record(..) | SoftRegister::Tos | SoftRegister::LastException(_)
                if self.caps.facility == Facility::NetBurst =>
            {
                return None;
            }
            SoftRegister::Record(..) if self.control == Control::Brbcr => return None,
            SoftRegister::Invalidate => self.clear_records(),
            SoftRegister::Inject => {
                self.advance();
                let record = self.pair;
                *self.slot_mut(0)? = record;
            }
            SoftRegister::Brbcr => self.lbr_ctl = value & BRBCR,
            SoftRegister::Brbfcr => self.select = value & BRBFCR,
            SoftRegister::Brbts => self.timestamp = value,
            SoftRegister::Record(bank, i) => {
                if matches!(bank, Bank::From)
                    && self.faults.has(Fault::FromWriteChecksFlags)
                    && encoding.is_format_4()
                    && !encoding.flags_extend_sign(value)
                {
                    return None;
                }
                *self.slot_mut(i)?.get_mut(bank) = encoding.write(bank, value)?;
                return Some(());
            }
            SoftRegister::Tos => self.set_tos(value),
            SoftRegister::Select => self.select = only(value, self.caps.filter.writable())?,
            SoftRegister::LbrCtl => self.lbr_ctl = only(value, self.lbr_ctl_bits())?,
            SoftRegister::Depth => {
                self.depth = self.supported_depth(value)?;
                if !self.faults.has(Fault::DepthKeepsRecords) {
                    self.clear_records();
                }
            }
            SoftRegister::DebugCtl => {
                let mut value = only(value, self.debugctl_bits())?;
                if self.control == Control::LbrCtl {
                    // No effect with Architectural LBR: ignored, reads 0.
                    value &= !DebugCtl::LBR.bits();
                }
                self.debugctl = value;
            }
            SoftRegister::DbgExtnCfg => self.dbg_extn_cfg = self.extension_config(value)?,
            SoftRegister::LastException(bank) => {
                *self.ler.get_mut(bank) = encoding.write(bank, value)?;
            }
            SoftRegister::Pair(Bank::Info) => self.pair.info = value & BRBINF,
            SoftRegister::Pair(bank) => *self.pair.get_mut(bank) = value,
            SoftRegister::PerfCapabilities | SoftRegister::Status | SoftRegister::Brbidr0 => {
                return None;
            }
            SoftRegister::StatusReset => self.status &= !value,
            SoftRegister::StatusSet => {
                let kept = PerfGlobalStatus::LBR_FRZ | PerfGlobalStatus::CTR_FRZ;
                self.status |= value & kept.bits();
            }
            SoftRegister::RtitCtl => {
                let stops = self.trace_hides_lbr() && value & RtitCtl::TRACE_EN.bits() == 0;
                self.rtit_ctl = value;
                if stops {
                    self.clear_records();
                    self.ler = Slot::default();
                }
            }
        }
        self.refresh();
        Some(())
    }

    /// The bits of IA32_LBR_CTL that CPUID leaf 1CH offers.
    fn lbr_ctl_bits(&self) -> u64 {
        match self.caps.filter {
            FilterRegister::LbrCtl { .. } => self.caps.filter.writable(),
            _ => LbrCtl::LBR_EN.bits(),
        }
    }

    /// The depths in the mask that IA32_LBR_DEPTH accepts. CPUID leaf 1CH EAX\[7:0\].
    fn supported_depth(&self, value: u64) -> Option<usize> {
        let depth = usize::try_from(value).ok()?;
        let listed = self.caps.depths().any(|listed| u64::from(listed) == value);
        (depth <= self.max_depth() && listed || depth == self.max_depth()).then_some(depth)
    }

    /// The value that DBG_EXTN_CFG stores: with BRS its own fields with bits 4:3 set, with LbrExtV2
    /// any bits, since the register's other contents are unknown.
    fn extension_config(&self, value: u64) -> Option<u64> {
        if self.caps.order != Order::Saturating {
            return Some(value);
        }
        only(value, DbgExtnCfg::OF_BRS | DbgExtnCfg::MUST_BE_SET)
            .filter(|v| v & DbgExtnCfg::MUST_BE_SET == DbgExtnCfg::MUST_BE_SET)
    }

    /// The bits that DEBUGCTL accepts, as far as the capabilities tell. SDM 17.4.1, 17.11.1, 17.13,
    /// 17.14.
    fn debugctl_bits(&self) -> u64 {
        const STEP: DebugCtl = DebugCtl::LBR.union(DebugCtl::BTF);
        const PINS: DebugCtl = DebugCtl::from_bits_retain(DebugCtl::PINS);
        const BTS: DebugCtl = DebugCtl::BTS.union(DebugCtl::BTINT);
        let caps = &self.caps;
        let mut bits = STEP;
        match caps.facility {
            Facility::P6 => bits |= PINS | DebugCtl::TR,
            Facility::NetBurst => return DebugCtlA::DOCUMENTED,
            // It has no DEBUGCTL.
            Facility::Brbe => return 0,
            Facility::AmdLbrV2 | Facility::AmdBrs | Facility::AmdSingle => {
                bits |= PINS;
                bits.set(DebugCtl::FREEZES, caps.quirks.contains(Quirks::STREAMLINED_FREEZE));
            }
            Facility::IntelLegacy if self.encoding == Encoding::Packed => {
                bits |= PINS | DebugCtl::TR | BTS;
            }
            Facility::IntelLegacy | Facility::IntelArch => {
                bits |= DebugCtl::TR | BTS | DebugCtl::BTS_OFF;
                let tsx = matches!(
                    caps.layout,
                    Layout::Legacy { tsx: true, .. } | Layout::Arch { tsx: true, .. }
                );
                let perf = self.perf_capabilities.map(PerfCapabilities::from_bits_retain);
                let smm = perf.is_some_and(|perf| perf.contains(PerfCapabilities::SMM_FREEZE));
                bits.set(DebugCtl::BLD, self.control == Control::LbrCtl);
                bits.set(DebugCtl::FREEZES, perf.is_some() && caps.perfmon_version > 1);
                bits.set(DebugCtl::ENABLE_UNCORE_PMI, caps.filter != FilterRegister::None);
                bits.set(DebugCtl::FREEZE_WHILE_SMM, smm);
                bits.set(DebugCtl::RTM_DEBUG, tsx);
            }
        }
        bits.bits()
    }

    fn fault(&self, msr: Msr, access: Access) -> MsrError {
        MsrError::Fault { cpu: self.cpu, msr, access }
    }
}

/// BRBIDR0_EL1.CC: a cycle counter of 20 bits.
const BRBIDR0_CC: u64 = 5 << 12;
/// The fields of BRBCR_EL1, BRBFCR_EL1 and BRBINF; all other bits are RES0.
const BRBCR: u64 = 0xC0_037B;
const BRBFCR: u64 = 0x307F_00C0;
const BRBINF: u64 = 0x7FFF_0003_3FE3;

/// The registers that Intel PT hides: records, TOS, LBR_SELECT and the last-exception pair. SDM
/// 36.3.1.2.
fn hidden_by_trace(register: SoftRegister) -> bool {
    matches!(
        register,
        SoftRegister::Record(..)
            | SoftRegister::Tos
            | SoftRegister::Select
            | SoftRegister::LastException(_)
    )
}

/// A format code other than the one in bits 5:0 of `value`.
const fn other_format(value: u64) -> u64 {
    let other = match value & 0x3F {
        // Formats 5 and 7 must both differ: a Tremont may report either.
        5 | 7 => 3,
        3 => 4,
        _ => 5,
    };
    value & !0x3F | other
}

/// `value`, unless it has bits outside `allowed`.
fn only(value: u64, allowed: u64) -> Option<u64> {
    (value & !allowed == 0).then_some(value)
}

impl MsrRead for SoftLbr {
    fn cpu(&self) -> u32 {
        self.cpu
    }

    #[inline]
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        self.get(msr).ok_or_else(|| self.fault(msr, Access::Read))
    }
}

impl MsrWrite for SoftLbr {
    fn write(&mut self, msr: Msr, value: u64) -> Result<(), MsrError> {
        self.set(msr, value).ok_or_else(|| self.fault(msr, Access::Write))
    }
}
