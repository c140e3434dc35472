//! Probing: recorded machines, each quirk, LBRs hidden by hypervisors, and the text formats of
//! three recorders.

use std::collections::HashMap;

use lbr_msr::access::{Access, FakeMsrs, MsrError, MsrRead};
use lbr_msr::caps::{Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, Vendor};
use lbr_msr::format::LbrFormat;
use lbr_msr::probe::cores::{self, CoreType};
use lbr_msr::probe::recorded::{RecordingError, parse};
use lbr_msr::probe::{
    Assumption, RecordedCpuid, Unsupported, Why, given_perf_capabilities, identify, probe,
    probe_assuming,
};
use lbr_msr::{Msr, address};

use crate::support::corpus::corpus;

const PDCM: u32 = 1 << 15;
const HYPERVISOR: u32 = 1 << 31;
const RTM: u32 = 1 << 11;
const HLE: u32 = 1 << 4;

/// An Intel CPU with only the relevant leaves set.
#[derive(Clone, Copy, Default)]
struct Intel {
    /// CPUID.01H:EAX.
    signature: u32,
    ecx: u32,
    leaf_7_ebx: u32,
    leaf_7_edx: u32,
    perfmon: u32,
    /// Leaf 1CH: EAX, EBX, ECX.
    leaf_1c: [u32; 3],
}

impl Intel {
    fn cpuid(self) -> RecordedCpuid {
        let mut cpuid = RecordedCpuid::new();
        cpuid.insert(0, 0, 0x20, 0x756E_6547, 0x6C65_746E, 0x4965_6E69);
        cpuid.insert(1, 0, self.signature, 0, self.ecx, 0);
        cpuid.insert(7, 0, 0, self.leaf_7_ebx, 0, self.leaf_7_edx);
        cpuid.insert(0xA, 0, self.perfmon, 0, 0, 0);
        let [eax, ebx, ecx] = self.leaf_1c;
        cpuid.insert(0x1A, 0, 0, 0, 0, 0);
        cpuid.insert(0x1C, 0, eax, ebx, ecx, 0);
        cpuid
    }

    fn probe(self, perf_capabilities: u64) -> Result<LbrCaps, Unsupported> {
        probe(&self.cpuid(), Some(&mut given_perf_capabilities(perf_capabilities)))
    }

    fn quirks(self, perf_capabilities: u64) -> Quirks {
        self.probe(perf_capabilities).unwrap().quirks
    }
}

fn amd(signature: u32, ebx_80000008: u32, debug: Option<(u32, u32)>) -> RecordedCpuid {
    let mut cpuid = RecordedCpuid::new();
    cpuid.insert(0, 0, 0x10, 0x6874_7541, 0x444D_4163, 0x6974_6E65);
    cpuid.insert(1, 0, signature, 0, 0, 0);
    let highest = if debug.is_some() { 0x8000_0022 } else { 0x8000_0008 };
    cpuid.insert(0x8000_0000, 0, highest, 0, 0, 0);
    cpuid.insert(0x8000_0008, 0, 0x3934, ebx_80000008, 0, 0);
    if let Some((eax, ebx)) = debug {
        cpuid.insert(0x8000_0022, 0, eax, ebx, 0, 0);
    }
    cpuid
}

const SKYLAKE: Intel = Intel {
    signature: 0x506E3,
    ecx: PDCM,
    leaf_7_ebx: RTM | HLE,
    leaf_7_edx: 0,
    perfmon: 0x0730_0404,
    leaf_1c: [0; 3],
};

#[test]
fn skylake() {
    let caps = SKYLAKE.probe(0x33C5).unwrap();
    assert_eq!(caps.cpu.key(), "06_5E");
    assert_eq!(caps.cpu.uarch.as_deref(), Some("Skylake"));
    assert_eq!((caps.cpu.stepping, &caps.cpu.vendor), (3, &Vendor::Intel));
    assert_eq!((caps.facility, caps.depth, caps.order), (Facility::IntelLegacy, 32, Order::Tos));
    assert_eq!(caps.format, Some(LbrFormat(5)));
    assert_eq!(caps.layout, Layout::Legacy { format: LbrFormat(5), tsx: true });
    assert_eq!(caps.registers.from_at(31), Msr(0x69F));
    assert_eq!(caps.registers.to_at(31), Some(Msr(0x6DF)));
    assert_eq!(caps.registers.info_at(31), Some(Msr(0xDDF)));
    assert_eq!(caps.registers.tos, Some(Msr(0x1C9)));
    assert_eq!((caps.registers.control, caps.registers.enable), (Msr(0x1D9), 1));
    assert!(caps.mispredict() && caps.tsx() && caps.cycles() && caps.call_stack());
    assert!(!caps.types() && !caps.assumed);
    let freeze = Quirks::STREAMLINED_FREEZE | Quirks::DEEP_C_STATE_WIPES | Quirks::PT_DISABLES;
    assert_eq!(caps.quirks, freeze);

    // Without 345H the format is unknown, and the layout is the expected one.
    let unread = probe(&SKYLAKE.cpuid(), None).unwrap();
    assert_eq!((unread.format, unread.layout), (None, caps.layout));
    let no_tsx = Intel { leaf_7_ebx: 0, ..SKYLAKE }.probe(0x33C5).unwrap();
    assert!(!no_tsx.tsx());
}

/// The family 6 models with a model-specific LBR that have a quirk, in ascending order.
fn pt_models(quirk: Quirks, quirks_of: impl Fn(u32) -> Quirks) -> Vec<u32> {
    let mut models: Vec<u32> = lbr_msr::table::MODELS
        .iter()
        .filter(|row| row.family == 6 && row.generation.kind == lbr_msr::table::RecordKind::Legacy)
        .map(|row| u32::from(row.model))
        .filter(|model| quirks_of((model >> 4) << 16 | 0x600 | (model & 0xF) << 4).contains(quirk))
        .collect();
    models.sort_unstable();
    models
}

#[test]
fn each_quirk() {
    let legacy = |signature| Intel { signature, ecx: PDCM, ..Intel::default() };
    // Haswell and Broadwell without TSX; Haswell alone logs an abort twice.
    let haswell = legacy(0x306C3);
    assert!(haswell.quirks(0x32C4).contains(Quirks::TSX_LESS_FORMAT_4 | Quirks::DOUBLE_ABORT));
    for tsx in [RTM, HLE] {
        let with_tsx = Intel { leaf_7_ebx: tsx, ..haswell };
        assert_eq!(with_tsx.quirks(0x32C4), Quirks::DOUBLE_ABORT);
    }
    let broadwell = legacy(0x306D4);
    assert_eq!(broadwell.quirks(0x32C4), Quirks::TSX_LESS_FORMAT_4 | Quirks::PT_DISABLES);
    // FROM's bits 62:61 are copies of the sign only in format 4.
    let other = haswell.probe(0x32C3).unwrap();
    assert_eq!(
        (other.layout, other.quirks),
        (Layout::Legacy { format: LbrFormat(3), tsx: false }, Quirks::DOUBLE_ABORT)
    );
    // Knights Landing reports 1 and means 3.
    let knl = legacy(0x50671).probe(0x32C1).unwrap();
    assert_eq!(knl.format, Some(LbrFormat(1)));
    assert_eq!(knl.layout, Layout::Legacy { format: LbrFormat(3), tsx: false });
    assert_eq!(knl.quirks, Quirks::REPORTS_LIP_HAS_MISPRED);
    assert!(knl.mispredict() && !knl.call_stack());
    // Nehalem: filters, and their sharing.
    let nehalem = legacy(0x106A5).probe(0x11C3).unwrap();
    let shared = Quirks::CALL_FILTERS_NEED_JUMPS | Quirks::SELECT_SHARED_BY_CORE;
    assert_eq!(nehalem.quirks, shared);
    let swallow = FilterRegister::LbrSelect { jumps_swallow_calls: true, call_stack: false };
    assert_eq!(nehalem.filter, swallow);
    let silvermont = legacy(0x30678).probe(0x32C1).unwrap();
    assert_eq!(silvermont.quirks, Quirks::CALL_FILTERS_NEED_JUMPS);
    assert_eq!(silvermont.filter, swallow);
    assert!(!silvermont.mispredict());
    // Sandy Bridge has none, and no call-stack mode.
    let sandy = legacy(0x206A7).probe(0x31C3).unwrap();
    assert_eq!((sandy.quirks, sandy.call_stack()), (Quirks::empty(), false));
    // Bonnell before and from stepping 10 on.
    assert_eq!(legacy(0x106C9).quirks(0xC1), Quirks::NO_FREEZE_ON_PMI);
    assert_eq!(legacy(0x106CA).quirks(0xC1), Quirks::empty());
    // Core 2, Pentium M, Yonah, P6: TR.
    let core2 = legacy(0x6F6).probe(0x82).unwrap();
    assert_eq!((core2.quirks, core2.filter), (Quirks::TR_CONFLICTS, FilterRegister::None));
    assert_eq!(core2.layout, Layout::Legacy { format: LbrFormat(2), tsx: false });
    for (signature, facility, layout) in [
        (0x6D8, Facility::IntelLegacy, Layout::Packed32),
        (0x6E8, Facility::IntelLegacy, Layout::Packed32),
        (0x673, Facility::P6, Layout::Plain),
    ] {
        let old = probe(&Intel { signature, ..Intel::default() }.cpuid(), None).unwrap();
        assert_eq!((old.facility, old.layout), (facility, layout), "{signature:#x}");
        assert_eq!((old.quirks, old.format), (Quirks::TR_CONFLICTS, None));
    }
    // NetBurst.
    for (signature, depth, layout, to) in
        [(0xF12, 4, Layout::Packed32, None), (0xF41, 16, Layout::Plain, Some(Msr(0x6C0)))]
    {
        let netburst = probe(&Intel { signature, ..Intel::default() }.cpuid(), None).unwrap();
        assert_eq!((netburst.facility, netburst.depth), (Facility::NetBurst, depth));
        assert_eq!((netburst.layout, netburst.registers.to), (layout, to));
        assert_eq!(netburst.registers.tos, Some(Msr(0x1DA)));
        assert_eq!(netburst.quirks, Quirks::READ_ONLY_RECORDS);
    }
    // The last of them have IA32_PERF_CAPABILITIES (recorded: ECX 0000E43DH).
    let cedar_mill = legacy(0xF62).probe(0).unwrap();
    assert_eq!((cedar_mill.layout, cedar_mill.format), (Layout::Plain, Some(LbrFormat(0))));
    assert_eq!(cedar_mill.registers.to, Some(Msr(0x6C0)));
    // Intel PT: six models according to the SDM. Linux excludes five more with PT, and does not
    // list Cannon Lake.
    let with = |quirk: Quirks| -> Vec<u32> {
        pt_models(quirk, |signature| probe(&legacy(signature).cpuid(), None).unwrap().quirks)
    };
    assert_eq!(with(Quirks::PT_DISABLES), [0x3D, 0x47, 0x4E, 0x4F, 0x56, 0x5E]);
    assert_eq!(with(Quirks::PT_EXCLUDES), [0x55, 0x66, 0x8E, 0x9E, 0xA5, 0xA6]);
    // Linux's core.c sets lbr_double_abort for these four.
    assert_eq!(with(Quirks::DOUBLE_ABORT), [0x3C, 0x3F, 0x45, 0x46]);
    // SDM 17.10.3: Skylake to Rocket Lake and Lakefield, Goldmont, Goldmont Plus, Tremont.
    assert_eq!(
        with(Quirks::DEEP_C_STATE_WIPES),
        [
            0x4E, 0x55, 0x5C, 0x5E, 0x5F, 0x66, 0x6A, 0x6C, 0x7A, 0x7D, 0x7E, 0x86, 0x8A, 0x8C,
            0x8D, 0x8E, 0x96, 0x9C, 0x9D, 0x9E, 0xA5, 0xA6, 0xA7
        ]
    );
    // Streamlined freeze starts with perfmon version 4.
    for (version, streamlined) in [(3, false), (4, true), (5, true)] {
        let quirks = Intel { perfmon: version, ..SKYLAKE }.quirks(0x33C5);
        assert_eq!(quirks.contains(Quirks::STREAMLINED_FREEZE), streamlined);
    }
    // Goldmont keeps cycles in TO and has no INFO registers.
    let goldmont = legacy(0x506C9).probe(0x33C6).unwrap();
    assert_eq!((goldmont.registers.info, goldmont.cycles()), (None, true));
    assert_eq!(goldmont.quirks, Quirks::DEEP_C_STATE_WIPES);
}

#[test]
fn architectural_lbr() {
    let golden_cove = Intel {
        signature: 0x806F8,
        ecx: PDCM,
        leaf_7_edx: 1 << 19,
        perfmon: 5,
        leaf_1c: [0x4000_000B, 7, 7],
        ..Intel::default()
    };
    let caps = golden_cove.probe(0x74FF).unwrap();
    assert_eq!((caps.facility, caps.depth, caps.depth_mask), (Facility::IntelArch, 32, 0x0B));
    assert_eq!(caps.format, Some(LbrFormat::NONE));
    assert_eq!(caps.registers.from_at(31), Msr(0x151F));
    assert_eq!(caps.registers.control, Msr(0x14CE));
    assert_eq!(
        (caps.registers.select, caps.registers.depth),
        (Some(Msr(0x14CE)), Some(Msr(0x14CF)))
    );
    assert_eq!(caps.order, Order::NewestFirst);
    assert!(caps.mispredict() && caps.cycles() && caps.types() && caps.call_stack());
    assert!(!caps.tsx());
    assert_eq!(caps.quirks, Quirks::DEEP_C_STATE_WIPES | Quirks::STREAMLINED_FREEZE);
    // An unknown model needs no row.
    let unknown = Intel { signature: 0xF06F0, ..golden_cove }.probe(0x3F).unwrap();
    assert_eq!((unknown.depth, unknown.cpu.uarch), (32, None));
    // Each bit of the leaf separately.
    let odd = Intel { leaf_1c: [0x8000_0001, 5, 0x000A_0002], ..golden_cove }.probe(0x3F).unwrap();
    assert_eq!(odd.depth, 8);
    assert_eq!(odd.filter, FilterRegister::LbrCtl { cpl: true, branch: false, call_stack: true });
    assert_eq!(
        odd.layout,
        Layout::Arch { mispredict: false, timed: true, types: false, counters: 0xA, tsx: false }
    );
    // EAX[7]: 64 records; EBX[2] alone announces call stacks.
    let deep = Intel { leaf_1c: [0x0000_0088, 3, 0], ..golden_cove }.probe(0x3F).unwrap();
    assert_eq!((deep.depth, deep.depth_mask), (64, 0x88));
    assert_eq!(deep.filter, FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: false });
    assert!(!odd.call_stack() && !odd.quirks.contains(Quirks::DEEP_C_STATE_WIPES));
    let empty = Intel { leaf_1c: [0x4000_0000, 7, 7], ..golden_cove }.probe(0x3F).unwrap_err();
    assert_eq!(empty.why, Why::ArchWithoutDepth);
    let off = Intel { leaf_7_edx: 0, ..golden_cove }.probe(0x3F).unwrap_err();
    assert!(matches!(off.why, Why::ArchNotAnnounced { .. }));
}

#[test]
fn amd_facilities() {
    let zen4 = probe(&amd(0x00A6_0F12, 0, Some((3, 0x84106))), None).unwrap();
    assert_eq!((zen4.facility, zen4.depth), (Facility::AmdLbrV2, 16));
    assert_eq!(zen4.layout, Layout::AmdV2 { virt_bits: 57 });
    assert_eq!(zen4.registers.from_at(15), Msr(0xC001_031E));
    assert_eq!(zen4.registers.to_at(15), Some(Msr(0xC001_031F)));
    assert_eq!((zen4.registers.control, zen4.registers.enable), (Msr(0xC000_010F), 1 << 6));
    assert_eq!((zen4.filter, zen4.quirks), (FilterRegister::AmdSelect, Quirks::FUSED_FROM));
    assert_eq!(zen4.registers.select, Some(address::AMD_LBR_SELECT));
    assert_eq!(zen4.freeze_status(), None);
    // EAX[2]: LBR and counters freeze, reported in PerfCntrGlobalStatus[58].
    let freezing = probe(&amd(0x00A6_0F12, 0, Some((7, 0x84106))), None).unwrap();
    assert_eq!(freezing.quirks, Quirks::FUSED_FROM | Quirks::STREAMLINED_FREEZE);
    assert_eq!(freezing.freeze_status(), Some((Msr(0xC000_0300), Msr(0xC000_0302))));
    assert_eq!(SKYLAKE.probe(0x33C5).unwrap().freeze_status(), Some((Msr(0x38E), Msr(0x390))));
    // Without the stack there is nothing to freeze.
    let none = probe(&amd(0x00A2_0F12, 0, Some((4, 0))), None).unwrap();
    assert_eq!((none.facility, none.quirks), (Facility::AmdSingle, Quirks::empty()));
    // EAX[1] announces it: a size alone does not.
    let unannounced = probe(&amd(0x00A6_0F12, 0, Some((5, 0x84106))), None).unwrap();
    assert_eq!((unannounced.facility, unannounced.depth), (Facility::AmdSingle, 1));
    // A stack without records is none.
    let none = probe(&amd(0x00A6_0F12, 0, Some((7, 0x6))), None).unwrap();
    assert_eq!((none.facility, none.depth), (Facility::AmdSingle, 1));
    // EAX[15:8] of 80000008H is the width of addresses. No CPU has 16 or 65 bits.
    for (bits, width) in [(0x10, 48), (0x30, 48), (0x39, 57), (0x41, 48)] {
        let mut cpuid = amd(0x00A6_0F12, 0, Some((7, 0x84106)));
        cpuid.insert(0x8000_0008, 0, bits << 8 | 0x34, 0, 0, 0);
        let layout = probe(&cpuid, None).unwrap().layout;
        assert_eq!(layout, Layout::AmdV2 { virt_bits: width }, "{bits:#x}");
    }
    // The depth is read, not assumed: EBX[9:4] = 32.
    assert_eq!(probe(&amd(0x00B4_0F40, 0, Some((7, 0x206))), None).unwrap().depth, 32);

    let zen3 = probe(&amd(0x00A2_0F12, 1 << 31, Some((0, 0))), None).unwrap();
    assert_eq!((zen3.facility, zen3.depth, zen3.order), (Facility::AmdBrs, 16, Order::Saturating));
    assert_eq!((zen3.registers.enable, zen3.filter), (1 << 2, FilterRegister::None));
    // The bit means BRS in family 19H only.
    let zen2 = probe(&amd(0x0087_0F10, 1 << 31, None), None).unwrap();
    assert_eq!((zen2.facility, zen2.depth), (Facility::AmdSingle, 1));
    assert_eq!((zen2.registers.from, zen2.registers.to), (Msr(0x1DB), Some(Msr(0x1DC))));
    let k8 = probe(&amd(0xF51, 0, None), None).unwrap();
    assert_eq!((k8.facility, k8.cpu.family), (Facility::AmdSingle, 0xF));
    let k7 = probe(&amd(0x6A0, 0, None), None).unwrap_err();
    assert_eq!((k7.why, k7.cpu.family), (Why::AmdBefore64Bit, 6));
}

/// A register file whose registers all raise #GP.
struct Hidden;

impl MsrRead for Hidden {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
        Err(MsrError::Fault { cpu: 0, msr, access: Access::Read })
    }
}

#[test]
fn hypervisors() {
    // Firecracker on Emerald Rapids: RTM and HLE set, leaf 0AH and 1CH zero.
    let mut firecracker =
        Intel { signature: 0xC06F2, ecx: HYPERVISOR, leaf_7_ebx: RTM | HLE, ..Intel::default() }
            .cpuid();
    firecracker.insert(0x4000_0000, 0, 0x4000_0001, 0x4B4D_564B, 0x564B_4D56, 0x4D);
    let hidden = probe(&firecracker, Some(&mut Hidden)).unwrap_err();
    assert_eq!(
        hidden.why,
        Why::HiddenArch {
            uarch: "Raptor Cove".into(),
            hypervisor: "KVM".into(),
            pdcm: false,
            leaf_present: true
        }
    );
    assert_eq!(hidden.cpu.hypervisor.as_deref(), Some("KVM"));
    let sentence = hidden.to_string();
    for word in ["Raptor Cove", "KVM", "CPUID.07H:EDX[19] = 0", "PDCM) = 0"] {
        assert!(sentence.contains(word), "{sentence}");
    }

    // The highest leaf decides whether leaf 1CH is there.
    for (highest, present) in [(0x1B, false), (0x1C, true)] {
        let mut guest = firecracker.clone();
        guest.insert(0, 0, highest, 0x756E_6547, 0x6C65_746E, 0x4965_6E69);
        let why = probe(&guest, Some(&mut Hidden)).unwrap_err().why;
        let found = matches!(why, Why::HiddenArch { leaf_present: true, .. });
        assert_eq!(found, present, "{why:?}");
        let words = if present { "1CH is present but" } else { "1CH is absent" };
        assert!(why.to_string().contains(words), "{why}");
    }

    // Old KVM reports no highest leaf.
    firecracker.insert(0x4000_0000, 0, 0, 0x4B4D_564B, 0x564B_4D56, 0x4D);
    assert_eq!(identify(&firecracker).hypervisor.as_deref(), Some("KVMKVMKVM"));

    let guest = Intel { ecx: HYPERVISOR, ..SKYLAKE };
    let why = guest.probe(0x33C5).unwrap_err().why;
    assert_eq!(why, Why::HiddenLegacy { hypervisor: "unknown".into(), uarch: "Skylake" });
    let why = Intel { ecx: 0, ..SKYLAKE }.probe(0x33C5).unwrap_err().why;
    assert_eq!(why, Why::NoPdcm { uarch: "Skylake" });
    let guest = Intel { ecx: HYPERVISOR | PDCM, ..SKYLAKE };
    assert!(matches!(guest.probe(0x2000).unwrap_err().why, Why::HiddenFormatZero { .. }));
    assert_eq!(guest.probe(0x33C5).unwrap().depth, 32);
    assert_eq!(probe(&guest.cpuid(), Some(&mut Hidden)).unwrap_err().why, Why::CapabilitiesFault);
    // Only a guest's fault is the hypervisor's doing.
    let mut unreadable = FakeMsrs::new(0);
    for (cpu, msr) in
        [(SKYLAKE, &mut Hidden as &mut dyn MsrRead), (guest, &mut unreadable as &mut dyn MsrRead)]
    {
        let caps = probe(&cpu.cpuid(), Some(msr)).unwrap();
        assert_eq!((caps.format, caps.depth), (None, 32));
    }
    // CPUID 40000000H: EBX, ECX, EDX.
    for (name, vendor) in [
        ("VMware", b"VMwareVMware"),
        ("Xen", b"XenVMMXenVMM"),
        ("Hyper-V", b"Microsoft Hv"),
        ("bhyve", b"bhyve bhyve "),
        ("QEMU", b"TCGTCGTCGTCG"),
        ("QNX", b"QNXQVMBSQG\0\0"),
        ("ACRN", b"ACRNACRNACRN"),
    ] {
        let word = |at: usize| u32::from_le_bytes(*vendor[at..].first_chunk().unwrap());
        firecracker.insert(0x4000_0000, 0, 0x4000_0001, word(0), word(4), word(8));
        assert_eq!(identify(&firecracker).hypervisor.as_deref(), Some(name));
    }
    // A vendor without a name.
    let mut strange = RecordedCpuid::new();
    strange.insert(0, 0, 1, 0, 0, 0);
    assert_eq!(probe(&strange, None).unwrap_err().why, Why::Vendor);
}

#[test]
fn unknown_formats() {
    let format = LbrFormat(0x2A);
    assert_eq!(SKYLAKE.probe(0x2A).unwrap_err().why, Why::UnknownFormat { format });
    assert_eq!(SKYLAKE.probe(0x3F).unwrap_err().why, Why::NoModelSpecificLbr);
    // A documented format is trusted over the table.
    let said = SKYLAKE.probe(4).unwrap();
    assert_eq!(said.layout, Layout::Legacy { format: LbrFormat(4), tsx: true });
    assert_eq!(said.registers.info, None);
    // Format 0 has both addresses in FROM, as Linux's lbr.c reads it.
    let packed = SKYLAKE.probe(0).unwrap();
    assert_eq!((packed.layout, packed.registers.to), (Layout::Packed32, None));
}

/// IA32_PERF_CAPABILITIES exists only with PDCM: SDM 17.4.8.1.
#[test]
fn without_pdcm_the_capabilities_are_not_read() {
    for signature in [0x673, 0x6E8] {
        let old = Intel { signature, ..Intel::default() }.probe(5).unwrap();
        assert_eq!(old.format, None, "{signature:#x}");
    }
}

#[test]
fn assumptions() {
    // 06_EE is not a known model.
    let new = Intel { signature: 0xE06E0, ..SKYLAKE };
    let why = new.probe(0x33C5).unwrap_err();
    let Why::UnknownModel { key, format, .. } = &why.why else { panic!("{why:?}") };
    assert_eq!((key.as_str(), *format), ("06_EE", Some(LbrFormat(5))));
    assert!(why.to_string().contains("0x5 INFO") && why.to_string().contains("--assume"));

    let assume = |text: &str, cpu: Intel, value: Option<u64>| {
        let assumption: Assumption = text.parse().unwrap();
        let mut given = value.map(given_perf_capabilities);
        let msr = given.as_mut().map(|msr| msr as &mut dyn MsrRead);
        probe_assuming(&cpu.cpuid(), msr, Some(&assumption))
    };
    let like_skylake = assume("06_5E", new, Some(0x33C5)).unwrap();
    assert!(like_skylake.assumed);
    assert_eq!(like_skylake.cpu.key(), "06_EE");
    assert_eq!(like_skylake.registers, SKYLAKE.probe(0x33C5).unwrap().registers);

    let by_hand =
        assume("depth=8,from=0x680,to=6C0,info=DC0,tos=1C9,select=1C8", new, Some(0x33C5)).unwrap();
    assert_eq!((by_hand.depth, by_hand.assumed), (8, true));
    assert_eq!(by_hand.registers.info, Some(Msr(0xDC0)));
    let plain = FilterRegister::LbrSelect { jumps_swallow_calls: false, call_stack: false };
    assert_eq!(by_hand.filter, plain);
    assert_eq!(by_hand.format, Some(LbrFormat(5)));
    assert_eq!(by_hand.quirks, Quirks::STREAMLINED_FREEZE);
    let told = assume("depth=16,from=680,to=6C0,tos=1C9,format=3", new, None).unwrap();
    assert_eq!(told.layout, Layout::Legacy { format: LbrFormat(3), tsx: true });
    assert_eq!((told.filter, told.order), (FilterRegister::None, Order::Tos));
    let packed = assume("depth=8,from=40,to=60,tos=1C9,format=0", new, None).unwrap();
    assert_eq!((packed.layout, packed.registers.to), (Layout::Packed32, None), "TO is in FROM");
    let orders = ["depth=1,from=1DB,to=1DC,format=2", "depth=2,from=1DB,to=1DD,format=2"]
        .map(|text| assume(text, new, None).unwrap().order);
    assert_eq!(orders, [Order::Single, Order::NewestFirst]);
    // A readable format is trusted over the given one, and decides about INFO.
    let all = "depth=32,from=680,to=6C0,info=DC0,tos=1C9,format=3";
    let read = assume(all, new, Some(0x33C5)).unwrap();
    assert_eq!((read.format, read.registers.info), (Some(LbrFormat(5)), Some(Msr(0xDC0))));
    let given = assume(all, new, None).unwrap();
    assert_eq!((given.format, given.registers.info), (Some(LbrFormat(3)), None));
    let without_to = assume("depth=8,from=40,tos=1C9,format=1", new, None).unwrap();
    assert_eq!(without_to.layout, Layout::Packed32);

    let why = |result: Result<LbrCaps, Unsupported>| result.unwrap_err().why;
    assert_eq!(why(assume("depth=16,from=680,to=6C0", new, None)), Why::AssumedFormatMissing);
    assert!(matches!(
        why(assume("depth=16,from=680,to=6C0", new, Some(5))),
        Why::AssumedInfoMissing { .. }
    ));
    for value in [0x2A, 0x3F] {
        let format = LbrFormat(value as u8);
        let unknown = why(assume("depth=16,from=680,to=6C0", new, Some(value)));
        assert_eq!(unknown, Why::UnknownFormat { format });
    }
    assert!(matches!(why(assume("06_EE", new, None)), Why::AssumedModelUnknown { .. }));
    assert!(matches!(why(assume("06_CF", new, None)), Why::CannotAssume(_)));
    // It replaces what the CPU does not announce, not what it does.
    let without_pdcm = assume("06_5E", Intel { ecx: 0, ..new }, None).unwrap();
    assert_eq!((without_pdcm.format, without_pdcm.depth), (None, 32));
    let arch = Intel {
        signature: 0x806F8,
        leaf_7_edx: 1 << 19,
        perfmon: 5,
        leaf_1c: [0x4000_000B, 7, 7],
        ..SKYLAKE
    };
    for text in ["06_5E", "depth=32,from=680,to=6C0,format=3"] {
        assert!(matches!(why(assume(text, arch, Some(0x3F))), Why::CannotAssume(_)), "{text}");
    }
    let zen4 = amd(0x00A6_0F12, 0, Some((3, 0x84106)));
    let assumption = "06_5E".parse().unwrap();
    assert!(matches!(
        probe_assuming(&zen4, None, Some(&assumption)).unwrap_err().why,
        Why::CannotAssume(_)
    ));

    for wrong in [
        "",
        "depth=32",
        "from=680",
        "depth=12,from=680",
        "depth=0,from=680",
        "depth=32,from=68G",
        "depth=32,from=680,what=1",
        "depth=32,from=FFFFFFFF",
        "depth=32,from=680,format=8",
        "depth=32,from=680,format=63",
        "depth=128,from=680",
        "depth=32,from=+680",
    ] {
        assert!(wrong.parse::<Assumption>().is_err(), "{wrong}");
    }
    // As in the table, `-` is no register.
    let few: Assumption = "depth=8,from=40,to=60,info=-,select=,tos=1C9,".parse().unwrap();
    assert_eq!(few.to_string(), "depth=8,from=40,to=60,tos=1C9");
    let text = "depth=32,from=680,to=6C0,info=DC0,tos=1C9,select=1C8,format=5";
    assert_eq!(text.parse::<Assumption>().unwrap().to_string(), text);
}

const TWO_CPUS: &str = "\
CPU 0:
   0x00000000 0x00: eax=0x00000020 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x00090672 ebx=0x00800800 ecx=0x7ffafbff edx=0xbfebfbff
   0x00000007 0x00: eax=0x00000002 ebx=0x239c27eb ecx=0x98c027bc edx=0xfc1cc410
   0x00000007 0x01: eax=0x00400810 ebx=0x00000000 ecx=0x00000000 edx=0x00000000
   0x0000000a 0x00: eax=0x07300605 ebx=0x00000000 ecx=0x00000007 edx=0x00008603
   0x0000001a 0x00: eax=0x40000001 ebx=0x00000000 ecx=0x00000000 edx=0x00000000
   0x0000001c 0x00: eax=0x4000000b ebx=0x00000007 ecx=0x00000007 edx=0x00000000
CPU 1:
   0x00000000 0x00: eax=0x00000020 ebx=0x756e6547 ecx=0x6c65746e edx=0x49656e69
   0x00000001 0x00: eax=0x00090672 ebx=0x20800800 ecx=0x7ffafbff edx=0xbfebfbff
   0x00000007 0x00: eax=0x00000002 ebx=0x239c27eb ecx=0x98c027bc edx=0xfc1cc410
   0x0000000a 0x00: eax=0x07300605 ebx=0x00000000 ecx=0x00000007 edx=0x00008603
   0x0000001a 0x00: eax=0x20000001 ebx=0x00000000 ecx=0x00000000 edx=0x00000000
   0x0000001c 0x00: eax=0xc000000b ebx=0x00000007 ecx=0x00000007 edx=0x00000000
";

#[test]
fn cpuid_r_text() {
    let cpus = parse(TWO_CPUS).unwrap();
    assert_eq!(cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(cpus[0].cpuid.get(7, 1).unwrap().eax, 0x0040_0810);
    let core_types: Vec<_> =
        cpus.iter().map(|cpu| CoreType::of(&cpu.cpuid).and_then(CoreType::name)).collect();
    assert_eq!(core_types, [Some("Core"), Some("Atom")]);
    assert_eq!(CoreType::of(&SKYLAKE.cpuid()), None, "without leaf 1AH");
    for cpu in &cpus {
        let caps = probe(&cpu.cpuid, None).unwrap();
        assert_eq!((caps.facility, caps.depth), (Facility::IntelArch, 32));
        assert_eq!(caps.cpu.key(), "06_97");
    }
    // With -1 the header has no number.
    let one = TWO_CPUS.split("CPU 1:").next().unwrap().replace("CPU 0:", "CPU:");
    assert_eq!(parse(&one).unwrap().len(), 1);
}

#[test]
fn instlatx64_text() {
    let text = "\
------[ Versions ]------
Program Version : AIDA64

------[ Logical CPU #0 ]------
CPUID 00000000: 00000016-756E6547-6C65746E-49656E69 [GenuineIntel]
CPUID 00000001: 000506E3-00100800-7FFAFBBF-BFEBFBFF
CPUID 00000004: 1C004121-01C0003F-0000003F-00000000 [SL 00]
CPUID 00000004: 1C004122-01C0003F-0000003F-00000000 [SL 01]
CPUID 00000007: 00000000-029C6FBB-00000000-00000000 [SL 00]
CPUID 0000000A: 07300404-00000000-00000000-00000603
CPUID 0000000B: 00000001-00000002-00000100-00000000
CPUID 0000000B: 00000004-00000008-00000201-00000000
CPUID 80000000: 80000008-00000000-00000000-00000000

------[ Logical CPU #3 ]------
CPUID 00000000: 00000016-756E6547-6C65746E-49656E69 [GenuineIntel]
CPUID 00000001: 000506E3-03100800-7FFAFBBF-BFEBFBFF
CPUID 00000007: 00000000-029C6FBB-00000000-00000000
CPUID 0000000A: 07300404-00000000-00000000-00000603
------[ MSR Registers ]------
MSR 00000010: 0000-0000-0000-0000
";
    let cpus = parse(text).unwrap();
    assert_eq!(cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(cpus[0].cpuid.get(4, 1).unwrap().eax, 0x1C00_4122);
    // Sub-leaves without a number are counted up.
    assert_eq!(cpus[0].cpuid.get(0xB, 1).unwrap().ebx, 8);
    let caps = probe(&cpus[0].cpuid, Some(&mut given_perf_capabilities(0x33C5))).unwrap();
    assert_eq!((caps.cpu.key().as_str(), caps.depth, caps.tsx()), ("06_5E", 32, true));
}

#[test]
fn libcpuid_text() {
    let text = "\
version=0.6.4
_________________ Logical CPU #0 _________________
basic_cpuid[0]=0000000b 756e6547 6c65746e 49656e69
basic_cpuid[1]=000106a5 00100800 009ce3bd bfebfbff
basic_cpuid[7]=00000000 00000000 00000000 00000000
basic_cpuid[10]=07300403 00000044 00000000 00000603
ext_cpuid[0]=80000008 00000000 00000000 00000000
ext_cpuid[8]=00003024 00000000 00000000 00000000
intel_fn4[1]=1c004122 00c0003f 0000007f 00000000
";
    let cpus = parse(text).unwrap();
    assert_eq!(cpus[0].cpuid.get(4, 1).unwrap().ecx, 0x7F);
    // Arrays of one leaf hold its sub-leaves.
    for (name, leaf) in [
        ("intel_fn4", 4),
        ("intel_fn11", 0xB),
        ("intel_fn12h", 0x12),
        ("intel_fn14h", 0x14),
        ("amd_fn8000001dh", 0x8000_001D),
        ("amd_fn80000026h", 0x8000_0026),
    ] {
        let cpus = parse(&format!("{text}{name}[3]=1 2 3 4\n")).unwrap();
        assert_eq!(cpus[0].cpuid.get(leaf, 3).map(|found| found.edx), Some(4), "{name}");
    }
    assert_eq!(cpus[0].cpuid.get(0x8000_0008, 0).unwrap().eax, 0x3024);
    let caps = probe(&cpus[0].cpuid, None).unwrap();
    assert_eq!((caps.cpu.uarch.as_deref(), caps.depth), (Some("Nehalem"), 16));
}

#[test]
fn recordings_that_cannot_be_used() {
    assert_eq!(parse(""), Err(RecordingError::Empty));
    assert_eq!(parse("nothing\nhere [ at all ]=\n"), Err(RecordingError::Empty));
    let error = |text: &str| parse(text).unwrap_err();
    // The output of `cpuid` without -r: decoded, except for leaves that it does not know.
    let decoded = "CPU 3:\n   vendor_id = \"GenuineIntel\"\n   \
                   0x00000020 0x00: eax=0x0 ebx=0x1 ecx=0x0 edx=0x0\n";
    assert_eq!(error(decoded), RecordingError::NoLeafZero { cpu: 3 });
    // A leaf below the highest, needed by probing, is absent.
    let without = TWO_CPUS.replace("0x0000001c", "0x0000001d");
    assert_eq!(error(&without), RecordingError::Missing { cpu: 0, leaf: 0x1C, highest: 0x20 });
    let zen = "CPUID 00000000: 00000001-68747541-444D4163-69746E65\n\
               CPUID 00000001: 00A60F12-00000000-00000000-00000000\n\
               CPUID 80000000: 80000028-00000000-00000000-00000000\n\
               CPUID 80000008: 00003030-00000000-00000000-00000000\n";
    let missing = RecordingError::Missing { cpu: 0, leaf: 0x8000_0022, highest: 0x8000_0028 };
    assert_eq!(error(zen), missing);
    assert!(missing.to_string().contains("0x80000022"));
    for broken in [
        "0x00000000 0x00: eax=0x1 ebx=0x2 ecx=0x3",
        "0x00000000 0x00: eax=0x1 ebx=0x2 ecx=0x3 edx=0x100000000",
        "0x00000000 zz: eax=0x1 ebx=0x2 ecx=0x3 edx=0x4",
        "CPUID 00000000: 00000016-756E6547-6C65746E",
        "CPUID 00000000: 00000016-756E6547-6C65746E-49656E69-1",
        "basic_cpuid[x]=1 2 3 4",
        "ext_cpuid[4294967295]=1 2 3 4",
        "basic_cpuid[0]=1 2 3",
    ] {
        assert!(matches!(error(broken), RecordingError::Line { line: 1, .. }), "{broken}");
    }
}

/// A family that overflows eight bits, and other values that no CPU has.
#[test]
fn any_signature_is_handled() {
    for signature in [0, u32::MAX, 0x0FF0_0F00, 0x0FFF_FFFF] {
        let cpuid = Intel { signature, ecx: u32::MAX, ..SKYLAKE }.cpuid();
        let _ = probe(&cpuid, Some(&mut given_perf_capabilities(u64::MAX)));
        let _ = probe(&amd(signature, u32::MAX, Some((u32::MAX, u32::MAX))), None);
        assert!(identify(&cpuid).family <= 0xF + 0xFF);
    }
}

proptest::proptest! {
    /// Registers that no CPU has must not cause a panic.
    #[test]
    fn any_cpuid_is_handled(seed: u64, intel: bool, perf_capabilities: u64) {
        let reader = move |leaf: u32, subleaf: u32| {
            let word = |n: u64| {
                let mixed = (seed ^ u64::from(leaf) << 32 ^ u64::from(subleaf) << 3 ^ n)
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15);
                (mixed ^ mixed >> 29) as u32
            };
            let [eax, ebx, ecx, edx] = match (leaf, intel) {
                (0, true) => [word(0), 0x756E_6547, 0x6C65_746E, 0x4965_6E69],
                (0, false) => [word(0), 0x6874_7541, 0x444D_4163, 0x6974_6E65],
                _ => [word(0), word(1), word(2), word(3)],
            };
            raw_cpuid::CpuIdResult { eax, ebx, ecx, edx }
        };
        let probed = probe(&reader, Some(&mut given_perf_capabilities(perf_capabilities)));
        let recorded = RecordedCpuid::record(&reader);
        let again = probe(&recorded, Some(&mut given_perf_capabilities(perf_capabilities)));
        proptest::prop_assert_eq!(&probed, &again);
        if let Ok(caps) = probed {
            proptest::prop_assert!(caps.depth >= 1 && caps.depth <= 64);
        }
    }

    #[test]
    fn any_text_is_handled(text in "(CPU [0-9]:|CPUID 0000000[0-9]: [0-9A-F-]{0,40}|basic_cpuid\\[[0-9]{1,12}\\]=[0-9a-f ]{0,40}|\\PC{0,20}|\n){0,12}") {
        if let Ok(cpus) = parse(&text) {
            for cpu in cpus {
                let _ = probe(&cpu.cpuid, Some(&mut given_perf_capabilities(5)));
            }
        }
    }
}

#[test]
fn cpu_lists() {
    assert_eq!(cores::cpu_list(&[]), "");
    assert_eq!(cores::cpu_list(&[0]), "0");
    assert_eq!(cores::cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    assert_eq!(cores::cpu_list(&[u32::MAX - 1, u32::MAX]), "4294967294-4294967295");
}

/// The rows of `cpuid/libcpuid.csv`, by column name.
fn machines() -> Option<Vec<HashMap<String, String>>> {
    Some(rows(&std::fs::read_to_string(corpus()?.join("cpuid/libcpuid.csv")).unwrap()))
}

/// A CSV whose quoted cells hold no quotes.
fn rows(text: &str) -> Vec<HashMap<String, String>> {
    let cells = |line: &str| {
        let mut cells = vec![String::new()];
        let mut quoted = false;
        for c in line.chars() {
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    };
    let mut lines = text.lines();
    let header = cells(lines.next().unwrap());
    lines.map(|line| header.iter().cloned().zip(cells(line)).collect()).collect()
}

/// The leaves that a row preserves.
fn reconstruct(row: &HashMap<String, String>) -> RecordedCpuid {
    let hex = |column: &str| u32::from_str_radix(&row[column], 16).unwrap_or(0);
    let mut cpuid = RecordedCpuid::new();
    let mut vendor = [0u8; 12];
    for (to, from) in vendor.iter_mut().zip(row["vendor"].bytes()) {
        *to = from;
    }
    let word = |i: usize| u32::from_le_bytes(vendor[i..i + 4].try_into().unwrap());
    cpuid.insert(0, 0, hex("max_basic"), word(0), word(8), word(4));
    let (eax, ebx) = (hex("l01_eax"), hex("l01_ebx_masked"));
    cpuid.insert(1, 0, eax, ebx, hex("l01_ecx"), hex("l01_edx"));
    cpuid.insert(7, 0, 0, 0, 0, hex("l07_0_edx"));
    let (eax, ebx) = (hex("l0A_eax"), hex("l0A_ebx"));
    cpuid.insert(0xA, 0, eax, ebx, hex("l0A_ecx"), hex("l0A_edx"));
    cpuid.insert(0x1A, 0, hex("l1A_eax"), 0, 0, 0);
    let (eax, ebx) = (hex("l1C_eax"), hex("l1C_ebx"));
    cpuid.insert(0x1C, 0, eax, ebx, hex("l1C_ecx"), hex("l1C_edx"));
    cpuid.insert(0x8000_0000, 0, hex("max_ext"), 0, 0, 0);
    // Not preserved: 48-bit addresses, no BRS.
    cpuid.insert(0x8000_0008, 0, 0x3030, 0, 0, 0);
    cpuid.insert(0x8000_0022, 0, hex("l80000022_eax"), hex("l80000022_ebx"), 0, 0);
    cpuid
}

#[test]
fn every_recorded_machine() {
    let Some(machines) = machines() else { return };
    let (mut arch, mut amd_v2, mut amd_single) = (0, 0, 0);
    for row in &machines {
        let what = &row["file"];
        let cpuid = reconstruct(row);
        let cpu = identify(&cpuid);
        let number = |column: &str| row[column].parse::<u32>().unwrap();
        // Other vendors do not define extended fields; their columns hold base values.
        if matches!(row["vendor"].as_str(), "GenuineIntel" | "AuthenticAMD" | "HygonGenuine") {
            assert_eq!(
                (cpu.family, cpu.model, cpu.stepping),
                (number("family"), number("model"), number("stepping")),
                "{what}"
            );
        }
        let probed = probe(&cpuid, None);
        if row["dump_has_1C"] == "1" {
            if row["arch_lbr_bit19"] == "1" {
                arch += 1;
                let caps = probed.unwrap();
                assert_eq!(caps.facility, Facility::IntelArch, "{what}");
                assert_eq!(caps.depth, number("l1C_max_depth"), "{what}");
                let depths: Vec<u32> =
                    (0..8).filter(|n| caps.depth_mask >> n & 1 != 0).map(|n| 8 * (n + 1)).collect();
                let depths: Vec<String> = depths.iter().map(u32::to_string).collect();
                assert_eq!(depths.join(" "), row["l1C_depths"], "{what}");
                let wipes = caps.quirks.contains(Quirks::DEEP_C_STATE_WIPES);
                assert_eq!(wipes, row["l1C_deep_c_reset"] == "1", "{what}");
                assert_eq!(u32::from(caps.perfmon_version), number("perfmon_version"), "{what}");
                let core = CoreType::of(&cpuid).and_then(CoreType::name);
                assert_eq!(core.unwrap_or(""), row["core_type"], "{what}");
                assert!(caps.mispredict() && caps.cycles() && caps.types() && caps.call_stack());
            } else {
                assert_eq!(probed.unwrap_err().why, Why::Vendor, "{what}");
            }
        } else if row["dump_has_80000022"] == "1" {
            let caps = probed.unwrap();
            if row["amd_lbr_v2"] == "1" {
                amd_v2 += 1;
                assert_eq!(caps.facility, Facility::AmdLbrV2, "{what}");
                assert_eq!(caps.depth, number("amd_lbr_stack_size"), "{what}");
            } else {
                amd_single += 1;
                assert_eq!((caps.facility, caps.depth), (Facility::AmdSingle, 1), "{what}");
            }
        }
    }
    assert_eq!((arch, amd_v2, amd_single), (56, 14, 12));
}

/// CPUID.1AH:EAX\[31:24\]: 40H is Core, 20H is Atom (SDM Vol. 2A).
#[test]
fn core_types_have_names() {
    let names = [0x4000_0001, 0x2000_0002, 0x1000_0001].map(|eax| CoreType(eax).name());
    assert_eq!(names, [Some("Core"), Some("Atom"), None]);
}

#[test]
fn equal_cpus_are_grouped_and_listed_once() {
    let (core, atom) = (Some(CoreType(0x4000_0001)), Some(CoreType(0x2000_0001)));
    let (skylake, none) = (SKYLAKE.probe(0x33C5), SKYLAKE.probe(0x2A));
    let groups = cores::group([
        (3, core, skylake.clone()),
        (2, atom, skylake.clone()),
        (1, core, skylake.clone()),
        (3, core, skylake.clone()),
        (0, core, none.clone()),
    ]);
    let lists = groups.iter().map(|group| (group.cpus.clone(), group.core_type, &group.probed));
    let expected =
        [(vec![1, 3], core, &skylake), (vec![2], atom, &skylake), (vec![0], core, &none)];
    assert_eq!(lists.collect::<Vec<_>>(), expected);
}

/// What is known of an Intel CPU that the table does not list.
#[test]
fn an_unknown_model_is_described() {
    let new = Intel { signature: 0xE06E0, ..SKYLAKE };
    let guest = Intel { ecx: HYPERVISOR, ..new };
    for (cpu, words) in [
        (new, &["06_EE is not in", "IA32_PERF_CAPABILITIES was not read"][..]),
        (Intel { ecx: 0, ..new }, &["(PDCM) = 0, so no LBR is announced"]),
        (guest, &["(under the hypervisor unknown)", "(PDCM) = 0"]),
    ] {
        let text = probe(&cpu.cpuid(), None).unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(text.contains("hypervisor"), cpu.ecx == HYPERVISOR, "{text}");
    }
}

/// A hybrid's CPUs are grouped into its core types.
#[test]
fn hybrids_are_grouped_by_core_type() {
    let Some(machines) = machines() else { return };
    for (file, expected) in [
        ("12th-gen-intel-core-i9-12900k.txt", &["0-15", "16-23"][..]),
        ("intel-core-ultra-9-285h.txt", &["0-5", "6-13", "14-15"]),
        ("12th-gen-intel-core-i5-12400.txt", &["0-11"]),
    ] {
        let mut cpus = Vec::new();
        for row in machines.iter().filter(|row| row["file"].ends_with(&format!("/{file}"))) {
            let cpuid = reconstruct(row);
            for _ in 0..row["n_cpus"].parse::<u32>().unwrap() {
                let cpu = u32::try_from(cpus.len()).unwrap();
                cpus.push((cpu, CoreType::of(&cpuid), probe(&cpuid, None)));
            }
        }
        let groups = cores::group(cpus);
        let lists: Vec<String> = groups.iter().map(|group| cores::cpu_list(&group.cpus)).collect();
        assert_eq!(lists, expected, "{file}");
    }
}

/// "N-deep LBR" as printed by real kernels.
#[test]
fn every_depth_that_a_kernel_printed() {
    let Some(dir) = corpus() else { return };
    let machines = machines().unwrap();
    let printed = rows(&std::fs::read_to_string(dir.join("dmesg/lbr_depth.csv")).unwrap());
    let mut compared = 0;
    for row in &printed {
        let number = |column: &str| {
            let text = &row[column];
            text.strip_prefix("0x").map_or_else(
                || text.parse::<u32>().unwrap(),
                |digits| u32::from_str_radix(digits, 16).unwrap(),
            )
        };
        let (family, model) = (number("family"), number("model"));
        let machine = machines
            .iter()
            .find(|machine| {
                matches!(machine["vendor"].as_str(), "GenuineIntel" | "AuthenticAMD")
                    && machine["family"] == family.to_string()
                    && machine["model"] == model.to_string()
            })
            .unwrap_or_else(|| panic!("no recorded CPUID of {family:x}_{model:x}"));
        let caps = probe(&reconstruct(machine), None).unwrap();
        // 0: the kernel found no LBR stack (AMD's register pair does not count).
        let expected = match number("lbr_depth_printed") {
            0 => 1,
            depth => depth,
        };
        assert_eq!(caps.depth, expected, "{}", row["cpu"]);
        compared += 1;
    }
    assert_eq!(compared, 102);
}

/// IA32_PERF_CAPABILITIES of real CPUs.
#[test]
fn every_recorded_perf_capabilities() {
    let Some(dir) = corpus() else { return };
    for row in rows(&std::fs::read_to_string(dir.join("msr/perf_capabilities.csv")).unwrap()) {
        let number = |column: &str| row[column].parse::<u32>().unwrap();
        let model = number("model");
        let signature = (model >> 4) << 16 | 0x600 | (model & 0xF) << 4 | number("stepping");
        let digits = row["IA32_PERF_CAPABILITIES"].trim_start_matches("0x");
        let value = u64::from_str_radix(digits, 16).unwrap();
        let caps = Intel { signature, ecx: PDCM, ..Intel::default() }.probe(value).unwrap();
        assert_eq!(caps.format.unwrap().0.to_string(), row["lbr_fmt"], "{}", row["cpu"]);
        let expected = lbr_msr::table::lookup(6, model).unwrap().generation.format;
        assert_eq!(expected.reported(), caps.format, "{}", row["cpu"]);
    }
}

/// Leaf 80000008H announces Branch Sampling, which only Zen 3 has.
#[test]
fn without_leaf_80000008_only_branch_sampling_is_unknown() {
    let dump = |signature: &str, debug: &str| {
        format!(
            "CPUID 00000000: 00000010-68747541-444D4163-69746E65\n\
             CPUID 00000001: {signature}-00000000-00000000-00000000\n\
             CPUID 80000000: 80000028-68747541-444D4163-69746E65\n\
             CPUID 80000022: {debug}\n"
        )
    };
    let probed = |text: &str| probe(&parse(text).unwrap()[0].cpuid, None);
    // Zen 4 (19_61), Zen 5 (1A_44) and Zen 6 (1A_50): EAX[1], and 16 records in EBX[9:4].
    for signature in ["00A60F12", "00B40F40", "00B50F00"] {
        let caps = probed(&dump(signature, "00000007-00000106-00000000-00000000")).unwrap();
        assert_eq!((caps.facility, caps.depth), (Facility::AmdLbrV2, 16), "{signature}");
        assert_eq!(caps.layout, Layout::AmdV2 { virt_bits: 48 }, "{signature}");
    }
    let zen_3 = dump("00A20F10", "00000000-00000000-00000000-00000000");
    assert_eq!(probed(&zen_3).unwrap_err().why, Why::BrsUnknown);
    let with = |ebx: &str| format!("{zen_3}CPUID 80000008: 00003030-{ebx}-00000000-00000000\n");
    assert_eq!(probed(&with("80000000")).unwrap().facility, Facility::AmdBrs);
    assert_eq!(probed(&with("00000000")).unwrap().facility, Facility::AmdSingle);
}

/// Above the highest leaf, Intel's CPUID answers with the data of the highest: SDM Vol. 2A.
#[test]
fn leaves_above_the_highest_are_not_asked() {
    let pentium_4 = |leaf: u32, _: u32| {
        let [eax, ebx, ecx, edx] = match leaf {
            0 => [5, 0x756E_6547, 0x6C65_746E, 0x4965_6E69],
            1 => [0xF34, 0, 0, 0],
            0x8000_0000.. => [0; 4],
            _ => [0x4000_000B, 7, 7, 1 << 19],
        };
        raw_cpuid::CpuIdResult { eax, ebx, ecx, edx }
    };
    let caps = probe(&pentium_4, None).unwrap();
    assert_eq!((caps.facility, caps.depth), (Facility::NetBurst, 16));
    assert_eq!(CoreType::of(&pentium_4), None);
}

/// Linux's cpu/hygon.c: a Zen of family 18H.
#[test]
fn a_hygon_is_like_an_amd() {
    let mut dhyana = amd(0x0090_0F02, 0, None);
    dhyana.insert(0, 0, 0xD, 0x6F67_7948, 0x656E_6975, 0x6E65_476E);
    let caps = probe(&dhyana, None).unwrap();
    assert_eq!((caps.facility, caps.depth, caps.cpu.family), (Facility::AmdSingle, 1, 0x18));
}
