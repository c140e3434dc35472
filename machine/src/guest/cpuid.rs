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
mod tests {
    use super::*;

    /// Every bit set, unlike any CPU, to show which bits are taken.
    fn all_ones(_leaf: u32, _sub_leaf: u32) -> Leaf {
        Leaf { eax: !0, ebx: !0, ecx: !0, edx: !0 }
    }

    #[test]
    fn exactly_the_documented_bits_are_patched() {
        let zero = Leaf::default();
        let patch = Patch::new(all_ones, true, None);
        assert_eq!(patch.apply(1, 0, zero), Leaf { eax: !0, ecx: 0x8000, ..zero });
        assert_eq!(patch.apply(7, 0, zero), Leaf { ebx: 0x810, edx: 0x8_0000, ..zero });
        assert_eq!(patch.apply(7, 1, zero), zero);
        assert_eq!(patch.apply(0xA, 0, zero), zero);
        assert_eq!(patch.apply(0x1C, 0, zero), all_ones(0x1C, 0));
        assert_eq!(patch.apply(0x8000_0022, 0, zero), Leaf { eax: 2, ebx: 0x3F0, ..zero });
        assert_eq!(patch.apply(0x8000_0001, 0, zero), zero);
    }

    #[test]
    fn bits_that_the_chosen_cpu_lacks_are_cleared() {
        let patch = Patch::new(|_, _| Leaf::default(), false, None);
        let ones = all_ones(0, 0);
        assert_eq!(patch.apply(1, 0, ones), Leaf { eax: 0, ecx: !0x8000, ..ones });
        assert_eq!(patch.apply(7, 0, ones), Leaf { ebx: !0x810, edx: !0x8_0000, ..ones });
        assert_eq!(patch.apply(0x8000_0022, 0, ones), Leaf { eax: !2, ebx: !0x3F0, ..ones });
    }

    #[test]
    fn a_performance_monitor_is_announced() {
        let (zero, ones) = (Leaf::default(), all_ones(0, 0));
        // Skylake: version 4, four counters of 48 bits; no cache events.
        let skylake = Leaf { eax: 0x0730_0404, edx: 0x603, ..zero };
        let pmu = Pmu::intel(skylake, true).expect("Skylake has counters");
        let patch = Patch::new(|_, _| skylake, true, Some(&pmu));
        assert_eq!(patch.apply(0xA, 0, ones), Leaf { ebx: 0x1C, ..skylake });
        assert_eq!(patch.apply(0x8000_0001, 0, zero), zero);

        // Zen 4, as recorded.
        let zen4 = Leaf { eax: 7, ebx: 0x0008_4106, ..zero };
        let patch = Patch::new(|_, _| zen4, false, Some(&Pmu::amd(zen4)));
        assert_eq!(patch.apply(0xA, 0, zero), zero);
        assert_eq!(patch.apply(0x8000_0001, 0, zero), Leaf { ecx: 1 << 23, ..zero });
        assert_eq!(patch.apply(0x8000_0022, 0, zero), Leaf { eax: 7, ebx: 0x106, ..zero });
    }
}
