//! The guest's CPUID: the emulator's answer, patched in the fields that an LBR driver reads.
//!
//! Only patched: if the guest saw all features of the chosen CPU (say, AVX-512), it would execute
//! instructions that the emulator lacks.

use super::pmu::{Leaf, Pmu};

/// CPUID.01H:ECX\[15\], PDCM: IA32_PERF_CAPABILITIES exists.
const PDCM: u32 = 1 << 15;
/// CPUID.(07H,0):EBX\[4\] and \[11\], HLE and RTM.
const TSX: u32 = 1 << 4 | 1 << 11;
/// CPUID.(07H,0):EDX\[19\], Architectural LBR.
const ARCH_LBR: u32 = 1 << 19;
/// CPUID.80000001H:ECX\[23\], PerfCtrExtCore: six core counters.
const PERF_CTR_EXT_CORE: u32 = 1 << 23;
/// CPUID.80000022H:EAX\[1\], LbrExtV2.
const LBR_EXT_V2: u32 = 1 << 1;
/// CPUID.80000022H:EAX\[0\] and \[2\], PerfMonV2 and its freezing with the LBR.
const PERF_MON_V2: u32 = 1 << 0 | 1 << 2;
/// CPUID.80000022H:EBX\[9:4\], records of LbrExtV2.
const LBR_STACK_SIZE: u32 = 0x3F << 4;
/// CPUID.80000022H:EBX\[3:0\], core counters of PerfMonV2.
const CORE_COUNTERS: u32 = 0xF;

/// The chosen CPU's values in the patched leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Patch {
    leaf_1: Leaf,
    leaf_7: Leaf,
    leaf_1c: Leaf,
    /// Set if the guest has Intel's performance monitor.
    leaf_a: Option<Leaf>,
    leaf_8000_0022: Leaf,
    /// Whether the guest has AMD's performance monitor.
    amd_pmu: bool,
}

impl Patch {
    /// Takes the relevant leaves from the chosen CPU's CPUID. IA32_PERF_CAPABILITIES is announced
    /// exactly if the software LBR has it.
    pub(super) fn new(
        cpuid: impl Fn(u32, u32) -> Leaf,
        perf_capabilities: bool,
        pmu: Option<&Pmu>,
    ) -> Patch {
        let mut leaf_1 = cpuid(1, 0);
        leaf_1.ecx = if perf_capabilities { PDCM } else { 0 };
        Patch {
            leaf_1,
            leaf_7: cpuid(7, 0),
            leaf_1c: cpuid(0x1C, 0),
            leaf_a: pmu.filter(|pmu| !pmu.is_amd()).map(|pmu| pmu.leaf_a(cpuid(0xA, 0))),
            amd_pmu: pmu.is_some_and(Pmu::is_amd),
            leaf_8000_0022: cpuid(0x8000_0022, 0),
        }
    }

    /// `answer` is the emulator's result for a leaf and sub-leaf.
    pub(super) fn apply(&self, leaf: u32, sub_leaf: u32, answer: Leaf) -> Leaf {
        match (leaf, sub_leaf) {
            // Without sub-leaves: ECX is ignored.
            (1, _) => Leaf {
                eax: self.leaf_1.eax,
                ecx: bits(answer.ecx, self.leaf_1.ecx, PDCM),
                ..answer
            },
            (7, 0) => Leaf {
                ebx: bits(answer.ebx, self.leaf_7.ebx, TSX),
                edx: bits(answer.edx, self.leaf_7.edx, ARCH_LBR),
                ..answer
            },
            (0xA, _) => self.leaf_a.unwrap_or(answer),
            (0x1C, 0) => self.leaf_1c,
            (0x8000_0001, _) if self.amd_pmu => {
                Leaf { ecx: answer.ecx | PERF_CTR_EXT_CORE, ..answer }
            }
            (0x8000_0022, _) => {
                let (eax, ebx) = match self.amd_pmu {
                    true => (LBR_EXT_V2 | PERF_MON_V2, LBR_STACK_SIZE | CORE_COUNTERS),
                    false => (LBR_EXT_V2, LBR_STACK_SIZE),
                };
                Leaf {
                    eax: bits(answer.eax, self.leaf_8000_0022.eax, eax),
                    ebx: bits(answer.ebx, self.leaf_8000_0022.ebx, ebx),
                    ..answer
                }
            }
            _ => answer,
        }
    }
}

/// `into` with the bits of `mask` taken from `from`.
const fn bits(into: u32, from: u32, mask: u32) -> u32 {
    into & !mask | from & mask
}

#[cfg(test)]
#[path = "../../../tests/machine/unit/guest/cpuid.rs"]
mod tests;
