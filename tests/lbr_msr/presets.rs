//! Presets of the software LBR.

use lbr_msr::MsrRead;
use lbr_msr::caps::{Facility, FilterRegister, Layout, Quirks};
use lbr_msr::format::LbrFormat;
use lbr_msr::probe::{given_perf_capabilities, probe};
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
        let mut given = soft.perf_capabilities.map(given_perf_capabilities);
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
    // Linux's arch/x86/include/asm/intel-family.h.
    for (name, model) in [
        ("pentium-pro", "01"),
        ("core2", "0F"),
        ("penryn", "17"),
        ("saltwell", "36"),
        ("nehalem", "1A"),
        ("haswell", "3C"),
        ("cascade-lake", "55"),
        ("coffee-lake", "9E"),
        ("sapphire-rapids", "8F"),
        ("golden-cove", "8F"),
        ("pentium-m", "0D"),
        ("yonah", "0E"),
        ("bonnell", "1C"),
        ("westmere", "2C"),
        ("ivy-bridge", "3A"),
        ("broadwell", "3D"),
        ("skylake-server", "55"),
        ("kaby-lake", "9E"),
        ("comet-lake", "A5"),
        ("cannon-lake", "66"),
        ("ice-lake", "7E"),
        ("ice-lake-server", "6A"),
        ("tiger-lake", "8C"),
        ("rocket-lake", "A7"),
        ("knights-landing", "57"),
        ("silvermont", "37"),
        ("airmont", "4C"),
        ("goldmont", "5C"),
        ("goldmont-plus", "7A"),
        ("tremont", "96"),
        ("emerald-rapids", "CF"),
        ("granite-rapids", "AD"),
        ("sierra-forest", "AF"),
        ("alder-lake", "97"),
        ("raptor-lake", "B7"),
        ("meteor-lake", "AA"),
        ("arrow-lake", "C6"),
        ("lunar-lake", "BD"),
        ("gracemont", "BE"),
    ] {
        assert_eq!(SoftCpu::preset(name).unwrap().key, format!("06_{model}"), "{name}");
    }
    // Pentium 4; Vermeer, Raphael, Granite Ridge, and the first of Linux's models of Zen 6.
    for (name, key) in [
        ("willamette", "0F_01"),
        ("prescott", "0F_03"),
        ("zen3", "19_21"),
        ("zen4", "19_61"),
        ("zen5", "1A_44"),
        ("zen6", "1A_50"),
    ] {
        assert_eq!(SoftCpu::preset(name).unwrap().key, key, "{name}");
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

/// CPUID.01H:EAX, 8000_0000H:EAX, 8000_0008H:EBX\[31\] and 8000_0022H:EAX and EBX of the recorded
/// CPUs: Milan, Vermeer, Genoa, Raphael, Turin, Strix Point, Granite Ridge.
#[test]
fn amd_presets_have_the_leaves_of_recorded_cpus() {
    let brs = (0x8000_0023, true, 0, 0);
    let v2 = (0x8000_0028, false, 7, 0x0008_4106);
    for (key, signature, extended) in [
        ("19_01", 0x00A0_0F11, brs),
        ("19_21", 0x00A2_0F12, brs),
        ("19_11", 0x00A1_0F11, v2),
        ("19_61", 0x00A6_0F12, v2),
        ("1A_02", 0x00B0_0F21, v2),
        ("1A_24", 0x00B2_0F40, (0x8000_0028, false, 7, 0x0010_2106)),
        ("1A_44", 0x00B4_0F40, v2),
        // Zen 6: not recorded, assumed to be like Zen 5.
        ("1A_50", 0x00B5_0F00, v2),
    ] {
        let cpuid = SoftCpu::preset(key).unwrap().cpuid;
        let leaf = |leaf| cpuid.get(leaf, 0).unwrap();
        assert_eq!(leaf(1).eax, signature, "{key}");
        let debug = leaf(0x8000_0022);
        let announces_brs = leaf(0x8000_0008).ebx >> 31 != 0;
        assert_eq!((leaf(0x8000_0000).eax, announces_brs, debug.eax, debug.ebx), extended, "{key}");
    }
}

/// CPUID.0AH as recorded on a CPU of each kind: version, number and width of the counters, absent
/// events, fixed counters.
#[test]
fn intel_presets_have_the_counters_of_recorded_cpus() {
    for (keys, leaf) in [
        (&["06_0E"][..], [0x0728_0201, 0, 0, 0]),
        (&["06_0F", "06_17"], [0x0728_0202, 0, 0, 0x503]),
        (&["06_1C", "06_37", "06_57"], [0x0728_0203, 0, 0, 0x503]),
        (&["06_1A"], [0x0730_0403, 4, 0, 0x603]),
        (&["06_2A", "06_3C"], [0x0730_0403, 0, 0, 0x603]),
        (&["06_5C", "06_5E"], [0x0730_0404, 0, 0, 0x603]),
        (&["06_7A"], [0x0730_0404, 0, 0, 0x8603]),
        (&["06_86"], [0x0730_0405, 0, 7, 0x8603]),
        (&["06_7E", "06_8C", "06_A7", "06_8A", "06_8F"], [0x0830_0805, 0, 0xF, 0x8604]),
        (&["06_BD", "06_C6"], [0x0D30_0806, 0x280, 7, 0x8603]),
        (&["06_BE", "06_AF"], [0x0730_0605, 0, 7, 0x8603]),
    ] {
        for key in keys {
            let found = SoftCpu::preset(key).unwrap().cpuid.get(0xA, 0).unwrap();
            assert_eq!([found.eax, found.ebx, found.ecx, found.edx], leaf, "{key}");
        }
    }
}

/// RTM is CPUID.07H:EBX\[11\], HLE \[4\] (SDM Vol. 2A). Servers from Golden Cove on announce them.
#[test]
fn presets_announce_tsx() {
    for (key, ebx) in [("06_3C", 0x810), ("06_5E", 0x810), ("06_8F", 0x810), ("06_97", 0)] {
        assert_eq!(SoftCpu::preset(key).unwrap().cpuid.get(7, 0).unwrap().ebx, ebx, "{key}");
    }
}

/// CPUID.01H:EAX of CPUs without and with an extended family and model (SDM Vol. 2A, Figure 3-6),
/// and IA32_PERF_CAPABILITIES where it was read on such a CPU.
#[test]
fn intel_presets_have_the_signatures_and_capabilities_of_recorded_cpus() {
    for (key, signature, capabilities) in [
        ("06_0F", 0x0000_06F0, Some(0x82)),
        ("06_17", 0x0001_0670, Some(0x10C2)),
        ("06_1C", 0x0001_06CA, Some(0xC1)),
        ("06_37", 0x0003_0670, Some(0x32C1)),
        ("06_3A", 0x0003_06A0, Some(0x31C3)),
        ("06_5E", 0x0005_06E0, Some(0x33C5)),
        ("0F_03", 0x0000_0F30, None),
    ] {
        let preset = SoftCpu::preset(key).unwrap();
        assert_eq!(preset.cpuid.get(1, 0).unwrap().eax, signature, "{key}");
        assert_eq!(preset.perf_capabilities, capabilities, "{key}");
    }
}

/// CPUID.07H:EBX, 1AH:EAX, and 1CH:EAX and ECX: as recorded, or for 06_AF and later as Linux tells
/// of their branch counters.
#[test]
fn arch_presets_have_the_leaves_of_their_cores() {
    let core = (0x4000_0001, 0x4000_000B);
    let atom = (0x2000_0001, 0xC000_000B);
    for (key, tsx, (kind, lbr), counters) in [
        ("06_8F", 0x810, core, 7),
        ("06_CF", 0x810, core, 7),
        ("06_AD", 0x810, core, 7),
        ("06_AE", 0x810, core, 7),
        ("06_97", 0, core, 7),
        ("06_BD", 0, core, 0xF_0007),
        ("06_C6", 0, core, 0xF_0007),
        ("06_BE", 0, atom, 7),
        ("06_AF", 0, atom, 0xF_0007),
        ("06_B6", 0, atom, 0xF_0007),
        ("06_DD", 0, atom, 0xF_0007),
    ] {
        let cpuid = SoftCpu::preset(key).unwrap().cpuid;
        let leaf = |leaf| cpuid.get(leaf, 0).unwrap();
        let arch = leaf(0x1C);
        assert_eq!((leaf(7).ebx, leaf(0x1A).eax, arch.eax), (tsx, kind, lbr), "{key}");
        assert_eq!((arch.ebx, arch.ecx), (7, counters), "{key}");
    }
}
