//! Probing: computes a CPU's branch-record capabilities from CPUID and IA32_PERF_CAPABILITIES.
//!
//! This is the only place that looks at model numbers. All other code uses the resulting
//! [`LbrCaps`].

mod amd;
pub mod assume;
pub mod cores;
mod intel;
pub mod recorded;
pub mod unsupported;

pub use assume::{Assumption, Geometry};
pub(crate) use intel::LEAF_7_EDX_ARCH_LBR;
pub use recorded::RecordedCpuid;
pub use unsupported::{Unsupported, Why};

use alloc::{borrow::Cow, string::String};
use raw_cpuid::{CpuId, CpuIdReader, Hypervisor};

use crate::{
    access::{FakeMsrs, MsrRead},
    address::{IA32_DEBUGCTL, IA32_PERF_CAPABILITIES, MSR_LASTBRANCHFROMIP, MSR_LASTBRANCHTOIP},
    caps::{
        CpuIdentity, Facility, FilterRegister, Layout, LbrCaps, Order, Quirks, RegisterMap, Vendor,
    },
    register::DebugCtl,
    table,
};

/// A register file with only IA32_PERF_CAPABILITIES, for [`probe`].
#[must_use]
pub fn given_perf_capabilities(value: u64) -> FakeMsrs {
    FakeMsrs::new(0).with(IA32_PERF_CAPABILITIES, value)
}

/// Probes the branch-record capabilities of a CPU.
///
/// `msr` is read for IA32_PERF_CAPABILITIES only, and only if CPUID announces that register.
/// Without `msr`, or if the read fails, [`LbrCaps::format`] is `None` and the layout is the table's
/// for the model.
///
/// # Errors
/// [`Unsupported`]: why there are no usable branch records.
pub fn probe<R: CpuIdReader>(
    cpuid: &R,
    msr: Option<&mut dyn MsrRead>,
) -> Result<LbrCaps, Unsupported> {
    probe_assuming(cpuid, msr, None)
}

/// As [`probe`], with the user's assumption in place of the table for an Intel model (`--assume`).
///
/// # Errors
/// As [`probe`]; [`Why::CannotAssume`] if CPUID itself describes the facility.
pub fn probe_assuming<R: CpuIdReader>(
    cpuid: &R,
    msr: Option<&mut dyn MsrRead>,
    assumption: Option<&Assumption>,
) -> Result<LbrCaps, Unsupported> {
    let probed = Probed::new(cpuid);
    let cpu = probed.identity.clone();
    match probed.identity.vendor {
        Vendor::Intel => probed.intel(cpuid, msr, assumption),
        Vendor::Amd if assumption.is_some() => {
            Err(Why::CannotAssume("AMD's facilities announce themselves in CPUID"))
        }
        Vendor::Amd => probed.amd(cpuid),
        Vendor::Other(_) => Err(Why::Vendor),
    }
    .map_err(|why| Unsupported { cpu: cpu.into(), why })
}

/// Identifies the CPU, with or without branch records.
pub fn identify<R: CpuIdReader>(cpuid: &R) -> CpuIdentity {
    Probed::new(cpuid).identity
}

/// The CPUID data that every vendor's probing needs.
struct Probed {
    identity: CpuIdentity,
    pdcm: bool,
    tsx: bool,
    perfmon_version: u8,
    virt_bits: u8,
    max_leaf: u32,
}

impl Probed {
    fn new<R: CpuIdReader>(cpuid: &R) -> Probed {
        let typed = CpuId::with_cpuid_reader(cpuid.clone());
        let vendor = typed.get_vendor_info();
        let vendor = match vendor.as_ref().map(|v| v.as_str()) {
            Some("GenuineIntel") => Vendor::Intel,
            Some("AuthenticAMD" | "HygonGenuine") => Vendor::Amd,
            other => Vendor::Other(other.unwrap_or_default().into()),
        };
        let max_leaf = cpuid.cpuid1(0).eax;
        let features = typed.get_feature_info();
        let guest = features.as_ref().is_some_and(|f| f.has_hypervisor());
        let hypervisor = guest.then(|| {
            let identified = typed.get_hypervisor_info().map(|info| info.identify());
            hypervisor_name(identified.unwrap_or_else(|| {
                // Old KVM leaves EAX 0, so raw-cpuid reports no hypervisor.
                let leaf = cpuid.cpuid1(0x4000_0000);
                Hypervisor::Unknown(leaf.ebx, leaf.ecx, leaf.edx)
            }))
        });
        let (family, model, stepping) = signature(cpuid.cpuid1(1).eax);
        let row = (vendor == Vendor::Intel).then(|| table::lookup(family, model)).flatten();
        Probed {
            tsx: typed.get_extended_feature_info().is_some_and(|f| f.has_rtm() || f.has_hle()),
            pdcm: features.is_some_and(|f| f.has_pdcm()),
            perfmon_version: typed.get_performance_monitoring_info().map_or(0, |p| p.version_id()),
            virt_bits: typed
                .get_processor_capacity_feature_info()
                .map(|c| c.linear_address_bits())
                .filter(|bits| (32..=64).contains(bits))
                .unwrap_or(48),
            max_leaf,
            identity: CpuIdentity {
                uarch: row.map(|row| Cow::Borrowed(row.uarch)),
                vendor,
                family,
                model,
                stepping,
                hypervisor,
            },
        }
    }

    /// One record, enabled in DEBUGCTL, without a filter: other facilities are described by how they
    /// differ.
    fn single(self) -> LbrCaps {
        LbrCaps {
            facility: Facility::AmdSingle,
            depth: 1,
            depth_mask: 0,
            format: None,
            layout: Layout::AmdSingle,
            registers: RegisterMap {
                from: MSR_LASTBRANCHFROMIP,
                to: Some(MSR_LASTBRANCHTOIP),
                info: None,
                stride: 1,
                tos: None,
                select: None,
                control: IA32_DEBUGCTL,
                enable: DebugCtl::LBR.bits(),
                depth: None,
            },
            order: Order::Single,
            filter: FilterRegister::None,
            quirks: Quirks::empty(),
            perfmon_version: self.perfmon_version,
            assumed: false,
            cpu: self.identity,
        }
    }

    fn leaf<R: CpuIdReader>(&self, cpuid: &R, leaf: u32) -> raw_cpuid::CpuIdResult {
        // Above its highest leaf, Intel returns the highest leaf's values.
        if leaf <= self.max_leaf {
            cpuid.cpuid2(leaf, 0)
        } else {
            raw_cpuid::CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 }
        }
    }
}

/// Display family, display model and stepping of CPUID.01H:EAX. SDM Vol. 2A.
///
/// raw-cpuid adds base and extended family in 8 bits, which overflows for values that a dump may
/// hold.
fn signature(eax: u32) -> (u32, u32, u32) {
    let base_family = eax >> 8 & 0xF;
    let base_model = eax >> 4 & 0xF;
    let family = if base_family == 0xF { base_family + (eax >> 20 & 0xFF) } else { base_family };
    let model = if matches!(base_family, 0x6 | 0xF) {
        (eax >> 16 & 0xF) << 4 | base_model
    } else {
        base_model
    };
    (family, model, eax & 0xF)
}

fn hypervisor_name(hypervisor: Hypervisor) -> String {
    match hypervisor {
        Hypervisor::HyperV => "Hyper-V".into(),
        Hypervisor::Bhyve => "bhyve".into(),
        Hypervisor::Unknown(ebx, ecx, edx) => {
            let bytes: alloc::vec::Vec<u8> =
                [ebx, ecx, edx].iter().flat_map(|word| word.to_le_bytes()).collect();
            let name: String =
                bytes.iter().filter(|b| b.is_ascii_graphic()).map(|b| char::from(*b)).collect();
            if name.is_empty() { "unknown".into() } else { name }
        }
        named => alloc::format!("{named:?}"),
    }
}
