//! The chosen CPU, prepared for the plugin.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use lbr_msr::caps::Vendor;
use lbr_msr::register::PerfCapabilities;
use lbr_msr::soft::{Faults, SoftCpu, SoftLbr};

use super::cpuid::Patch;
use super::pmu::{Leaf, Pmu};

/// CPUID.(07H,0):EBX\[11\], RTM.
const RTM: u32 = 1 << 11;

/// A CPU for the guest.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) cpu: SoftCpu,
    pub(super) patch: Patch,
    /// Whether it has transactions.
    pub(super) tsx: bool,
    /// Its performance monitor in reset state, if the guest has one.
    pub(super) pmu: Option<Pmu>,
    faults: Mutex<Faults>,
    /// Number of changes of `faults`.
    version: AtomicU32,
}

impl Model {
    /// The CPU with this name, such as `06_5E`, with or without its performance monitor.
    pub(super) fn new(name: &str, with_pmu: bool) -> Result<Model, String> {
        let cpu = SoftCpu::preset(name).map_err(|unknown| unknown.to_string())?;
        let leaf = |leaf, sub_leaf| {
            let answer = cpu.cpuid.get(leaf, sub_leaf);
            answer.map_or(Leaf::default(), |answer| Leaf {
                eax: answer.eax,
                ebx: answer.ebx,
                ecx: answer.ecx,
                edx: answer.edx,
            })
        };
        let capabilities = cpu.perf_capabilities.map(PerfCapabilities::from_bits_retain);
        let full_width = capabilities.is_some_and(|c| c.contains(PerfCapabilities::FW_WRITE));
        let tsx = leaf(7, 0).ebx & RTM != 0;
        let pmu = match cpu.caps.cpu.vendor {
            _ if !with_pmu => None,
            Vendor::Amd => Some(Pmu::amd(leaf(0x8000_0022, 0))),
            Vendor::Intel | Vendor::Other(_) => Pmu::intel(leaf(0xA, 0), full_width, tsx),
        };
        Ok(Model {
            patch: Patch::new(leaf, capabilities.is_some(), pmu.as_ref()),
            pmu,
            tsx,
            cpu,
            faults: Mutex::default(),
            version: AtomicU32::new(0),
        })
    }

    /// Sets the injected faults of all registers.
    pub(super) fn set_faults(&self, faults: Faults) {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Number of changes of the faults.
    pub(super) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// The registers of virtual CPU `index`, in reset state.
    pub(super) fn soft(&self, index: u32) -> SoftLbr {
        let faults = *self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        SoftLbr::new(&self.cpu.caps, self.cpu.perf_capabilities).on_cpu(index).with(faults)
    }
}
