//! The chosen CPU, in the form the plugin needs.

use lbr_msr::LbrCaps;
use lbr_msr::soft::SoftCpu;

use super::cpuid::{Leaf, Patch};

/// A CPU that the guest can have.
#[derive(Debug)]
pub(super) struct Preset {
    pub(super) caps: LbrCaps,
    pub(super) perf_capabilities: Option<u64>,
    pub(super) patch: Patch,
}

/// The preset of this name, such as `06_5E`.
pub(super) fn named(name: &str) -> Result<Preset, String> {
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
    Ok(Preset {
        patch: Patch::new(leaf, cpu.perf_capabilities.is_some()),
        perf_capabilities: cpu.perf_capabilities,
        caps: cpu.caps,
    })
}
