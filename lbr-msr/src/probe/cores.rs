//! Core types: hybrid CPUs are probed per logical CPU, and equal ones grouped.

use alloc::{string::String, vec, vec::Vec};
use core::fmt::Write as _;
use raw_cpuid::CpuIdReader;

use super::Unsupported;
use crate::caps::LbrCaps;

/// CPUID leaf 1AH: the core type of a logical CPU in a hybrid. Unknown types are possible; EAX is
/// kept whole, since two kinds of Atom differ in its low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CoreType(pub u32);

impl CoreType {
    /// The core type of this CPU; `None` if CPUID does not report it.
    pub fn of<R: CpuIdReader>(cpuid: &R) -> Option<CoreType> {
        let has_leaf = cpuid.cpuid1(0).eax >= 0x1A;
        Some(CoreType(if has_leaf { cpuid.cpuid2(0x1A, 0).eax } else { 0 })).filter(|t| t.0 != 0)
    }

    /// `Core` (performance), `Atom` (efficiency), `None` for anything else.
    pub const fn name(self) -> Option<&'static str> {
        match self.0 >> 24 {
            0x40 => Some("Core"),
            0x20 => Some("Atom"),
            _ => None,
        }
    }
}

/// Logical CPUs with the same core type and capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreGroup {
    /// The logical CPUs, ascending.
    pub cpus: Vec<u32>,
    /// Their core type.
    pub core_type: Option<CoreType>,
    /// The probe result of each of them.
    pub probed: Result<LbrCaps, Unsupported>,
}

/// Groups CPUs with the same core type and probe result, in order of first appearance.
pub fn group(
    probed: impl IntoIterator<Item = (u32, Option<CoreType>, Result<LbrCaps, Unsupported>)>,
) -> Vec<CoreGroup> {
    let mut groups: Vec<CoreGroup> = Vec::new();
    for (cpu, core_type, probed) in probed {
        match groups.iter_mut().find(|g| g.core_type == core_type && g.probed == probed) {
            Some(group) => group.cpus.push(cpu),
            None => groups.push(CoreGroup { cpus: vec![cpu], core_type, probed }),
        }
    }
    for group in &mut groups {
        group.cpus.sort_unstable();
        group.cpus.dedup();
    }
    groups
}

/// Formats logical CPUs as Linux does: `0-7,16`.
pub fn cpu_list(cpus: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some((first, _)) = rest.split_first() {
        let run = rest
            .iter()
            .zip(u64::from(*first)..)
            .take_while(|(cpu, expected)| u64::from(**cpu) == *expected)
            .count();
        let (this, after) = rest.split_at(run);
        rest = after;
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match this.last() {
            Some(last) if last != first => write!(text, "{comma}{first}-{last}"),
            _ => write!(text, "{comma}{first}"),
        };
    }
    text
}
