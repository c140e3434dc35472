//! Presets of the software LBR.

use lbr_msr::MsrRead;
use lbr_msr::caps::{Facility, FilterRegister, Layout, Quirks};
use lbr_msr::format::LbrFormat;
use lbr_msr::probe::{GivenPerfCapabilities, probe};
use lbr_msr::soft::SoftCpu;
use lbr_msr::table::{MODELS, RecordKind};

#[test]
fn every_table_row_has_a_preset() {
    for row in &MODELS {
        let soft = SoftCpu::preset(&row.key()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(soft.key, row.key());
        let g = row.generation;
        let facility = match (g.kind, g.group) {
            (RecordKind::Arch, _) => Facility::IntelArch,
            (RecordKind::P6Single, _) => Facility::P6,
            (_, "NB0" | "NB3") => Facility::NetBurst,
            _ => Facility::IntelLegacy,
        };
        assert_eq!(soft.caps.facility, facility, "{}", soft.key);
        assert_eq!(soft.caps.depth, g.depth.unwrap_or(32), "{}", soft.key);
        assert_eq!(soft.caps.registers.from, g.from, "{}", soft.key);
        assert_eq!(soft.caps.registers.info, g.info, "{}", soft.key);
        assert_eq!(soft.cpuid.missing(), None, "{}", soft.key);
        assert!(!soft.caps.assumed && soft.caps.cpu.hypervisor.is_none());
        assert_eq!(soft.caps.cpu.uarch.as_deref(), Some(row.uarch));
        if let Some(value) = soft.perf_capabilities {
            assert_eq!(Some(LbrFormat((value & 0x3F) as u8)), g.format.reported(), "{}", soft.key);
        }
    }
    assert_eq!(SoftCpu::all().count(), 103 + 7);
}

#[test]
fn probing_a_preset_yields_the_preset() {
    for soft in SoftCpu::all() {
        let mut given = soft.perf_capabilities.map(GivenPerfCapabilities);
        let msr = given.as_mut().map(|given| given as &mut dyn MsrRead);
        assert_eq!(probe(&soft.cpuid, msr).as_ref(), Ok(&soft.caps), "{}", soft.key);
    }
}

#[test]
fn spellings() {
    for name in ["06_5E", "6_5e", "06_5EH", "skylake", "Skylake", "SKYLAKE"] {
        assert_eq!(SoftCpu::preset(name).unwrap().key, "06_5E", "{name}");
    }
    for name in ["sandy-bridge", "sandybridge", "Sandy Bridge", "sandy_bridge"] {
        assert_eq!(SoftCpu::preset(name).unwrap().key, "06_2A", "{name}");
    }
    for (name, key) in lbr_msr::table::NAMES {
        assert_eq!(SoftCpu::preset(name).unwrap().key, key);
    }
    for wrong in ["", "zen9", "06_FF", "19_00", "lake"] {
        let error = SoftCpu::preset(wrong).unwrap_err().to_string();
        assert!(error.contains("06_5E") && error.contains("skylake"));
    }
}

#[test]
fn well_known_presets() {
    let skylake = SoftCpu::preset("06_5E").unwrap();
    assert_eq!(skylake.perf_capabilities, Some(0x33C5));
    assert!(skylake.caps.tsx() && skylake.caps.cycles());
    assert!(skylake.caps.quirks.contains(Quirks::STREAMLINED_FREEZE));

    let knl = SoftCpu::preset("06_57").unwrap();
    assert_eq!(knl.caps.format, Some(LbrFormat(1)));
    assert_eq!(knl.caps.layout, Layout::Legacy { format: LbrFormat(3), tsx: false });

    let spr = SoftCpu::preset("06_8F").unwrap();
    assert_eq!((spr.caps.depth, spr.caps.depth_mask), (32, 0x0B));
    assert_eq!(
        spr.caps.filter,
        FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: true }
    );
    let arrow = SoftCpu::preset("06_C6").unwrap();
    assert!(matches!(arrow.caps.layout, Layout::Arch { counters: 0xF, .. }));
    assert!(matches!(
        SoftCpu::preset("06_97").unwrap().caps.layout,
        Layout::Arch { counters: 0, .. }
    ));

    for (key, facility) in [
        ("19_01", Facility::AmdBrs),
        ("19_21", Facility::AmdBrs),
        ("19_11", Facility::AmdLbrV2),
        ("19_61", Facility::AmdLbrV2),
        ("1A_02", Facility::AmdLbrV2),
        ("1A_44", Facility::AmdLbrV2),
    ] {
        let soft = SoftCpu::preset(key).unwrap();
        assert_eq!((soft.caps.facility, soft.caps.depth), (facility, 16), "{key}");
        assert_eq!(soft.perf_capabilities, None);
    }
    // Not read on a real CPU: the format, FREEZE_WHILE_SMM since Nehalem, full-width writes since
    // Sandy Bridge.
    for (key, value) in [
        ("06_1D", 0x2),
        ("06_36", 0x1),
        ("06_1A", 0x1003),
        ("06_2A", 0x3003),
        ("06_3C", 0x3004),
        ("06_5C", 0x3006),
        ("06_7A", 0x3007),
        ("06_57", 0x3001),
        ("06_8F", 0x303F),
    ] {
        assert_eq!(SoftCpu::preset(key).unwrap().perf_capabilities, Some(value), "{key}");
    }
    // Pentium 4 has no IA32_PERF_CAPABILITIES, Bonnell's stepping can freeze.
    assert_eq!(SoftCpu::preset("0F_03").unwrap().perf_capabilities, None);
    assert!(!SoftCpu::preset("06_1C").unwrap().caps.quirks.contains(Quirks::NO_FREEZE_ON_PMI));
}
