//! The CPUs that the software LBR can emulate, as named by `--soft-cpu`.
//!
//! A preset is a CPUID, a value of IA32_PERF_CAPABILITIES, and the [`LbrCaps`] that probing these
//! yields, so that a software CPU takes the same path as a real one. The leaves that decide about
//! branch records come from recordings of real machines where available; all others are 0.

use alloc::string::String;

use crate::{
    access::MsrRead,
    address::brbe,
    caps::{
        CpuIdentity, Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap, Vendor,
    },
    format::LbrFormat,
    probe::{LEAF_7_EDX_ARCH_LBR, RecordedCpuid, given_perf_capabilities, probe},
    register::PerfCapabilities,
    table::{self, Carries, Model, RecordKind},
};

/// CPUID.01H:ECX\[15\].
const PDCM: u32 = 1 << 15;
/// CPUID.07H:EBX, HLE and RTM.
const HLE_RTM: u32 = 1 << 4 | 1 << 11;

/// A CPU that the software LBR can emulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftCpu {
    /// `FF_MM`.
    pub key: String,
    /// The capabilities of its branch records.
    pub caps: LbrCaps,
    /// Its CPUID: the leaves that probing reads.
    pub cpuid: RecordedCpuid,
    /// IA32_PERF_CAPABILITIES; `None` if the CPU lacks the register.
    pub perf_capabilities: Option<u64>,
}

/// An unknown CPU name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown CPU `{name}`: neither a known model, such as 06_5E, nor a name, such as skylake")]
pub struct UnknownCpu {
    /// As typed.
    pub name: String,
}

/// AMD's models.
const AMD: [&str; 7] = ["19_01", "19_21", "19_11", "19_61", "1A_02", "1A_24", "1A_44"];

/// The CPUs with BRBE, and their numbers of records. The number of Neoverse V2 is in no source that
/// was read here: 32 is one of the four that the architecture allows.
const BRBE: [(&str, u32); 5] =
    [("neoverse-v2", 32), ("brbe-8", 8), ("brbe-16", 16), ("brbe-32", 32), ("brbe-64", 64)];

impl SoftCpu {
    /// The preset for a model (`06_5E`, `6_5e`, `06_5EH`) or a name such as `skylake`,
    /// `sandy-bridge` (or `sandybridge`) or `zen4`.
    ///
    /// # Errors
    /// [`UnknownCpu`].
    pub fn preset(name: &str) -> Result<SoftCpu, UnknownCpu> {
        if let Some((key, records)) =
            BRBE.iter().find(|(known, _)| name.eq_ignore_ascii_case(known))
        {
            return Ok(SoftCpu::brbe(key, *records));
        }
        let unknown = || UnknownCpu { name: name.into() };
        let (family, model) = table::parse_cpu(name).ok_or_else(unknown)?;
        let (cpuid, perf_capabilities) = match table::lookup(family, model) {
            Some(row) => (intel(row), perf_capabilities(row)),
            None => (amd(family, model).ok_or_else(unknown)?, None),
        };
        SoftCpu::probed(cpuid, perf_capabilities).ok_or_else(unknown)
    }

    /// Every preset: the rows of the CPU table, then AMD's.
    pub fn all() -> impl Iterator<Item = SoftCpu> {
        let intel = table::MODELS.iter().map(Model::key);
        let amd = AMD.into_iter().map(String::from);
        intel.chain(amd).filter_map(|key| SoftCpu::preset(&key).ok())
    }

    /// The CPUs with Arm's BRBE, which [`all`](Self::all) does not contain: they have other
    /// registers than the CPUs of the CPU table.
    pub fn all_brbe() -> impl Iterator<Item = SoftCpu> {
        BRBE.iter().map(|(key, records)| SoftCpu::brbe(key, *records))
    }

    fn brbe(key: &'static str, records: u32) -> SoftCpu {
        let registers = RegisterMap {
            from: brbe::BRBSRC0,
            to: Some(brbe::BRBTGT0),
            info: Some(brbe::BRBINF0),
            stride: 8,
            tos: None,
            select: Some(brbe::BRBFCR),
            control: brbe::BRBCR,
            // E0BRE, CC and MPRED, as Linux sets them together.
            enable: 1 | 1 << 3 | 1 << 4,
            depth: Some(brbe::BRB_IALL),
        };
        let cpu = CpuIdentity {
            vendor: Vendor::Other("Arm".into()),
            family: 0,
            model: 0,
            stepping: 0,
            uarch: Some(key.into()),
            hypervisor: None,
        };
        let caps = LbrCaps {
            cpu,
            facility: Facility::Brbe,
            depth: records,
            depth_mask: 0,
            format: None,
            layout: Layout::Brbe,
            registers,
            order: Order::NewestFirst,
            filter: FilterRegister::Brbfcr,
            quirks: Quirks::empty(),
            perfmon_version: 0,
            assumed: false,
        };
        let cpuid = RecordedCpuid::new();
        SoftCpu { key: key.into(), caps, cpuid, perf_capabilities: None }
    }

    fn probed(cpuid: RecordedCpuid, perf_capabilities: Option<u64>) -> Option<SoftCpu> {
        let mut given = perf_capabilities.map(given_perf_capabilities);
        let msr = given.as_mut().map(|given| given as &mut dyn MsrRead);
        let caps = probe(&cpuid, msr).ok()?;
        Some(SoftCpu { key: caps.cpu.key(), caps, cpuid, perf_capabilities })
    }
}

/// CPUID.01H:EAX of a family, model and stepping. SDM Vol. 2A.
fn signature(family: u32, model: u32, stepping: u32) -> u32 {
    let (base, extended) = if family >= 0xF { (0xF, family - 0xF) } else { (family, 0) };
    extended << 20 | (model >> 4) << 16 | base << 8 | (model & 0xF) << 4 | stepping
}

fn set_vendor(cpuid: &mut RecordedCpuid, vendor: &Vendor, max_leaf: u32) {
    let (ebx, edx, ecx) = match vendor {
        Vendor::Amd => (0x6874_7541, 0x6974_6E65, 0x444D_4163),
        Vendor::Intel | Vendor::Other(_) => (0x756E_6547, 0x4965_6E69, 0x6C65_746E),
    };
    cpuid.insert(0, 0, max_leaf, ebx, ecx, edx);
}

fn intel(row: &Model) -> RecordedCpuid {
    let generation = row.generation;
    let arch = generation.kind == RecordKind::Arch;
    let (family, model) = (u32::from(row.family), u32::from(row.model));
    // Bonnell before stepping 10 cannot freeze its LBR.
    let stepping = match generation.group {
        "BNL" if model == 0x1C => 10,
        _ => 0,
    };
    let pdcm = if perf_capabilities(row).is_some() { PDCM } else { 0 };
    let perfmon @ [perfmon_eax, ..] = perfmon_leaf(row);
    let max_leaf = match generation.kind {
        RecordKind::P6Single => 2,
        RecordKind::Arch => 0x20,
        RecordKind::Packed32 | RecordKind::Legacy => match perfmon_eax & 0xFF {
            0 => 2,
            1..=3 => 0xD,
            _ => 0x16,
        },
    };
    let mut cpuid = RecordedCpuid::new();
    set_vendor(&mut cpuid, &Vendor::Intel, max_leaf);
    cpuid.insert(1, 0, signature(family, model, stepping), 0, pdcm, 0);
    if max_leaf >= 7 {
        // Recorded clients from Golden Cove on do not announce TSX; servers do.
        let tsx = match generation.tsx {
            Carries::Yes => true,
            Carries::ByCpuid => matches!(model, 0x8F | 0xCF | 0xAD | 0xAE),
            Carries::No => false,
        };
        let ebx = if tsx { HLE_RTM } else { 0 };
        cpuid.insert(7, 0, 0, ebx, 0, if arch { LEAF_7_EDX_ARCH_LBR } else { 0 });
    }
    if max_leaf >= 0xA {
        let [eax, ebx, ecx, edx] = perfmon;
        cpuid.insert(0xA, 0, eax, ebx, ecx, edx);
    }
    if arch {
        let atom = is_atom(row);
        cpuid.insert(0x1A, 0, if atom { 0x2000_0001 } else { 0x4000_0001 }, 0, 0, 0);
        // Recorded for 06_97 to 06_C6: 4000000BH on Core, C000000BH (linear addresses) on Atom, EBX
        // 7, ECX 7. Branch counters are logged on 06_BD and 06_C6 (recorded: ECX F0007H) and,
        // according to Linux, on Crestmont servers, Clearwater Forest and later.
        let counters = matches!(model, 0xBD | 0xC6 | 0xAF | 0xB6 | 0xDD);
        let eax = if atom { 0xC000_000B } else { 0x4000_000B };
        cpuid.insert(0x1C, 0, eax, 7, if counters { 0xF_0007 } else { 7 }, 0);
    }
    cpuid
}

/// CPUID leaf 0AH, EAX to EDX, as recorded for the generation: version, counters and their width.
fn perfmon_leaf(row: &Model) -> [u32; 4] {
    const ICE_LAKE: [u32; 4] = [0x0830_0805, 0, 0xF, 0x8604];
    match row.generation.group {
        "YNH" => [0x0728_0201, 0, 0, 0],
        "C2" => [0x0728_0202, 0, 0, 0x503],
        "BNL" | "SLM" | "KNL" => [0x0728_0203, 0, 0, 0x503],
        "NHM" => [0x0730_0403, 4, 0, 0x603],
        "SNB" | "HSW" => [0x0730_0403, 0, 0, 0x603],
        "GLM" => [0x0730_0404, 0, 0, 0x603],
        "GLP" => [0x0730_0404, 0, 0, 0x8603],
        "TNT" => [0x0730_0405, 0, 7, 0x8603],
        "SKL" => match row.uarch {
            "Sunny Cove" | "Willow Cove" | "Cypress Cove" | "Sunny Cove + Tremont" => ICE_LAKE,
            _ => [0x0730_0404, 0, 0, 0x603],
        },
        "ARCH" => match row.model {
            0xBD | 0xC6 => [0x0D30_0806, 0x280, 7, 0x8603],
            _ if is_atom(row) => [0x0730_0605, 0, 7, 0x8603],
            _ => ICE_LAKE,
        },
        _ => [0; 4],
    }
}

/// Whether an Architectural LBR model has only Atom cores.
fn is_atom(row: &Model) -> bool {
    matches!(row.uarch, "Gracemont" | "Crestmont" | "Darkmont")
}

/// IA32_PERF_CAPABILITIES: as read on a real CPU if available, else LBR_FMT and the generation's
/// documented bits.
fn perf_capabilities(row: &Model) -> Option<u64> {
    let recorded = match (row.family, row.model) {
        (6, 0x0F) => Some(0x82),
        (6, 0x17) => Some(0x10C2),
        (6, 0x1C) => Some(0xC1),
        (6, 0x37) => Some(0x32C1),
        (6, 0x3A) => Some(0x31C3),
        (6, 0x5E) => Some(0x33C5),
        _ => None,
    };
    recorded.or_else(|| {
        let LbrFormat(code) = row.generation.format.reported()?;
        Some(u64::from(code) | documented_capabilities(row).bits())
    })
}

/// SMM_FREEZE since Nehalem, FW_WRITE since Sandy Bridge and Silvermont. SDM Vol. 4, 345H and 4C1H
/// (IA32_A_PMC0).
fn documented_capabilities(row: &Model) -> PerfCapabilities {
    match row.generation.group {
        "P6" | "PM" | "YNH" | "C2" | "BNL" | "NB0" | "NB3" => PerfCapabilities::empty(),
        "NHM" => PerfCapabilities::SMM_FREEZE,
        _ => PerfCapabilities::SMM_FREEZE | PerfCapabilities::FW_WRITE,
    }
}

/// AMD's presets: CPUID as recorded for Vermeer (19_21), Raphael (19_61) and Granite Ridge (1A_44)
/// and their siblings.
fn amd(family: u32, model: u32) -> Option<RecordedCpuid> {
    // 80000022H EAX and EBX, and whether 80000008H:EBX[31] announces BRS.
    let (stepping, debug, brs) = match (family, model) {
        (0x19, 0x01) => (1, (0, 0), true),
        (0x19, 0x21) => (2, (0, 0), true),
        (0x19, 0x11) => (1, (7, 0x0008_4106), false),
        (0x19, 0x61) => (2, (7, 0x0008_4106), false),
        (0x1A, 0x02) => (1, (7, 0x0008_4106), false),
        (0x1A, 0x24) => (0, (7, 0x0010_2106), false),
        (0x1A, 0x44) => (0, (7, 0x0008_4106), false),
        // Zen 6 is Linux's name of these models (perf's mapfile); no recording exists: as Zen 5.
        (0x1A, 0x50..=0x57) => (0, (7, 0x0008_4106), false),
        _ => return None,
    };
    let mut cpuid = RecordedCpuid::new();
    set_vendor(&mut cpuid, &Vendor::Amd, 0x10);
    cpuid.insert(1, 0, signature(family, model, stepping), 0, 0x7ED8_320B, 0x178B_FBFF);
    cpuid.insert(7, 0, 0, 0, 0, if debug.0 == 0 { 0x10 } else { 0x1000_0010 });
    let max_extended = if debug.0 == 0 { 0x8000_0023 } else { 0x8000_0028 };
    cpuid.insert(0x8000_0000, 0, max_extended, 0x6874_7541, 0x444D_4163, 0x6974_6E65);
    // 48-bit addresses. BRS appears in no recording; Linux tests EBX[31].
    cpuid.insert(0x8000_0008, 0, 0x3030, if brs { 1 << 31 } else { 0 }, 0, 0);
    cpuid.insert(0x8000_0022, 0, debug.0, debug.1, 0, 0);
    Some(cpuid)
}
