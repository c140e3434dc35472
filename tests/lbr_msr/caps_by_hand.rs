//! Capabilities of one CPU of each generation, written by hand from the manuals' tables, so that
//! tests do not depend on probing or the CPU table.

use lbr_msr::LbrFormat;
use lbr_msr::address::Msr;
use lbr_msr::caps::{
    CpuIdentity, Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap, Vendor,
};

pub(crate) const DEBUGCTL: Msr = Msr(0x1D9);
pub(crate) const SELECT: Msr = Msr(0x1C8);
pub(crate) const TOS: Msr = Msr(0x1C9);
pub(crate) const LBR_CTL: Msr = Msr(0x14CE);
pub(crate) const LBR_DEPTH: Msr = Msr(0x14CF);
pub(crate) const DBG_EXTN_CFG: Msr = Msr(0xC000_010F);
pub(crate) const AMD_SELECT: Msr = Msr(0xC000_010E);
pub(crate) const STATUS: Msr = Msr(0x38E);
pub(crate) const STATUS_RESET: Msr = Msr(0x390);

fn cpu(vendor: Vendor, family: u32, model: u32) -> CpuIdentity {
    CpuIdentity { vendor, family, model, stepping: 10, uarch: None, hypervisor: None }
}

/// A legacy LBR at `from` and `to` without SELECT.
fn ring(model: u32, depth: u32, from: u32, to: u32, format: u8, perfmon: u8) -> LbrCaps {
    LbrCaps {
        cpu: cpu(Vendor::Intel, 6, model),
        facility: Facility::IntelLegacy,
        depth,
        depth_mask: 0,
        format: Some(LbrFormat(format)),
        layout: Layout::Legacy { format: LbrFormat(format), tsx: false },
        registers: RegisterMap {
            from: Msr(from),
            to: Some(Msr(to)),
            info: None,
            stride: 1,
            tos: Some(TOS),
            select: None,
            control: DEBUGCTL,
            enable: 1,
            depth: None,
        },
        order: Order::Tos,
        filter: FilterRegister::None,
        quirks: Quirks::empty(),
        perfmon_version: perfmon,
        assumed: false,
    }
}

fn select(mut caps: LbrCaps, jumps_swallow_calls: bool, call_stack: bool) -> LbrCaps {
    caps.registers.select = Some(SELECT);
    caps.filter = FilterRegister::LbrSelect { jumps_swallow_calls, call_stack };
    caps
}

pub(crate) fn core2() -> LbrCaps {
    let mut caps = ring(0x17, 4, 0x40, 0x60, 2, 2);
    caps.quirks = Quirks::TR_CONFLICTS;
    caps
}

pub(crate) fn bonnell() -> LbrCaps {
    ring(0x1C, 8, 0x40, 0x60, 1, 3)
}

pub(crate) fn silvermont() -> LbrCaps {
    select(ring(0x37, 8, 0x40, 0x60, 1, 3), true, false)
}

pub(crate) fn nehalem() -> LbrCaps {
    select(ring(0x1A, 16, 0x680, 0x6C0, 3, 3), true, false)
}

pub(crate) fn sandy_bridge() -> LbrCaps {
    select(ring(0x2A, 16, 0x680, 0x6C0, 3, 3), false, false)
}

pub(crate) fn knights_landing() -> LbrCaps {
    let mut caps = select(ring(0x57, 8, 0x680, 0x6C0, 3, 3), false, false);
    caps.format = Some(LbrFormat(1));
    caps.quirks = Quirks::REPORTS_LIP_HAS_MISPRED;
    caps
}

pub(crate) fn haswell(tsx: bool) -> LbrCaps {
    let mut caps = select(ring(0x3C, 16, 0x680, 0x6C0, 4, 3), false, true);
    caps.layout = Layout::Legacy { format: LbrFormat(4), tsx };
    if !tsx {
        caps.quirks = Quirks::TSX_LESS_FORMAT_4;
    }
    caps
}

pub(crate) fn broadwell() -> LbrCaps {
    let mut caps = haswell(true);
    caps.cpu.model = 0x3D;
    caps.quirks = Quirks::PT_DISABLES;
    caps
}

pub(crate) fn skylake() -> LbrCaps {
    let mut caps = select(ring(0x5E, 32, 0x680, 0x6C0, 5, 4), false, true);
    caps.layout = Layout::Legacy { format: LbrFormat(5), tsx: true };
    caps.registers.info = Some(Msr(0xDC0));
    caps.quirks = Quirks::DEEP_C_STATE_WIPES | Quirks::STREAMLINED_FREEZE | Quirks::PT_DISABLES;
    caps
}

pub(crate) fn goldmont() -> LbrCaps {
    let mut caps = select(ring(0x5C, 32, 0x680, 0x6C0, 6, 4), false, true);
    caps.quirks = Quirks::DEEP_C_STATE_WIPES | Quirks::STREAMLINED_FREEZE;
    caps
}

pub(crate) fn goldmont_plus() -> LbrCaps {
    let mut caps = goldmont();
    caps.cpu.model = 0x7A;
    caps.format = Some(LbrFormat(7));
    caps.layout = Layout::Legacy { format: LbrFormat(7), tsx: false };
    caps.registers.info = Some(Msr(0xDC0));
    caps
}

pub(crate) fn pentium_m() -> LbrCaps {
    let mut caps = ring(0x0D, 8, 0x40, 0x60, 0, 0);
    caps.format = None;
    caps.layout = Layout::Packed32;
    caps.registers.to = None;
    caps.quirks = Quirks::TR_CONFLICTS;
    caps
}

pub(crate) fn p6() -> LbrCaps {
    let mut caps = ring(0x08, 1, 0x1DB, 0x1DC, 0, 0);
    caps.facility = Facility::P6;
    caps.format = None;
    caps.layout = Layout::Plain;
    caps.registers.tos = None;
    caps.order = Order::Single;
    caps.quirks = Quirks::TR_CONFLICTS;
    caps
}

/// Pentium 4 with four packed records.
pub(crate) fn willamette() -> LbrCaps {
    let mut caps = ring(0, 4, 0x1DB, 0x1DB, 0, 0);
    caps.cpu.family = 0xF;
    caps.facility = Facility::NetBurst;
    caps.format = None;
    caps.layout = Layout::Packed32;
    caps.registers.to = None;
    caps.registers.tos = Some(Msr(0x1DA));
    caps.quirks = Quirks::READ_ONLY_RECORDS;
    caps
}

/// Pentium 4 with sixteen records.
pub(crate) fn prescott() -> LbrCaps {
    let mut caps = willamette();
    caps.cpu.model = 3;
    caps.depth = 16;
    caps.layout = Layout::Plain;
    caps.registers.from = Msr(0x680);
    caps.registers.to = Some(Msr(0x6C0));
    caps
}

/// Golden Cove: leaf 1CH is 4000000BH, 7, 7.
pub(crate) fn golden_cove() -> LbrCaps {
    LbrCaps {
        cpu: cpu(Vendor::Intel, 6, 0x97),
        facility: Facility::IntelArch,
        depth: 32,
        depth_mask: 0b1011,
        format: Some(LbrFormat(0x3F)),
        layout: Layout::Arch {
            mispredict: true,
            timed: true,
            types: true,
            counters: 0,
            tsx: false,
        },
        registers: RegisterMap {
            from: Msr(0x1500),
            to: Some(Msr(0x1600)),
            info: Some(Msr(0x1200)),
            stride: 1,
            tos: None,
            select: Some(LBR_CTL),
            control: LBR_CTL,
            enable: 1,
            depth: Some(LBR_DEPTH),
        },
        order: Order::NewestFirst,
        filter: FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: true },
        quirks: Quirks::DEEP_C_STATE_WIPES | Quirks::STREAMLINED_FREEZE,
        perfmon_version: 5,
        assumed: false,
    }
}

fn amd(family: u32, facility: Facility) -> LbrCaps {
    LbrCaps {
        cpu: cpu(Vendor::Amd, family, 0x61),
        facility,
        depth: 16,
        depth_mask: 0,
        format: None,
        layout: Layout::AmdV2 { virt_bits: 48 },
        registers: RegisterMap {
            from: Msr(0xC001_0300),
            to: Some(Msr(0xC001_0301)),
            info: None,
            stride: 2,
            tos: None,
            select: Some(AMD_SELECT),
            control: DBG_EXTN_CFG,
            enable: 1 << 6,
            depth: None,
        },
        order: Order::NewestFirst,
        filter: FilterRegister::AmdSelect,
        quirks: Quirks::FUSED_FROM,
        perfmon_version: 0,
        assumed: false,
    }
}

pub(crate) fn zen4() -> LbrCaps {
    amd(0x19, Facility::AmdLbrV2)
}

pub(crate) fn zen3() -> LbrCaps {
    let mut caps = amd(0x19, Facility::AmdBrs);
    caps.layout = Layout::AmdBrs { virt_bits: 48 };
    caps.registers.select = None;
    caps.registers.enable = 1 << 2;
    caps.order = Order::Saturating;
    caps.filter = FilterRegister::None;
    caps.quirks = Quirks::empty();
    caps
}

pub(crate) fn zen2() -> LbrCaps {
    let mut caps = amd(0x17, Facility::AmdSingle);
    caps.depth = 1;
    caps.layout = Layout::AmdSingle;
    caps.registers = p6().registers;
    caps.order = Order::Single;
    caps.filter = FilterRegister::None;
    caps.quirks = Quirks::empty();
    caps
}

/// Every generation, with its value of IA32_PERF_CAPABILITIES.
pub(crate) fn every() -> Vec<(&'static str, LbrCaps, Option<u64>)> {
    vec![
        ("p6", p6(), None),
        ("pentium m", pentium_m(), None),
        ("willamette", willamette(), None),
        ("prescott", prescott(), None),
        ("core 2", core2(), Some(0x10C2)),
        ("bonnell", bonnell(), Some(0xC1)),
        ("silvermont", silvermont(), Some(0x32C1)),
        ("nehalem", nehalem(), Some(3)),
        ("sandy bridge", sandy_bridge(), Some(0x31C3)),
        ("knights landing", knights_landing(), Some(1)),
        ("haswell", haswell(true), Some(0x33C4)),
        ("haswell without tsx", haswell(false), Some(0x33C4)),
        ("broadwell", broadwell(), Some(0x33C4)),
        ("skylake", skylake(), Some(0x33C5)),
        ("goldmont", goldmont(), Some(6)),
        ("goldmont plus", goldmont_plus(), Some(7)),
        ("golden cove", golden_cove(), Some(0x3F)),
        ("zen 4", zen4(), None),
        ("zen 3", zen3(), None),
        ("zen 2", zen2(), None),
    ]
}
