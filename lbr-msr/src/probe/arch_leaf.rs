//! CPUID leaf 1CH, which describes Architectural LBR.

use raw_cpuid::CpuIdResult;

use crate::caps::{Layout, depths_in};

/// CPUID leaf 1CH, sub-leaf 0. Linux asm/perf_event.h (`cpuid28_*`).
///
/// raw-cpuid 11.6 has no getter for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArchLbrLeaf {
    eax: u32,
    ebx: u32,
    ecx: u32,
}

impl From<CpuIdResult> for ArchLbrLeaf {
    fn from(leaf: CpuIdResult) -> ArchLbrLeaf {
        ArchLbrLeaf { eax: leaf.eax, ebx: leaf.ebx, ecx: leaf.ecx }
    }
}

impl ArchLbrLeaf {
    /// EAX\[7:0\]: bit n set means depth 8 × (n + 1) is supported.
    pub const fn depth_mask(self) -> u8 {
        (self.eax & 0xFF) as u8
    }

    /// The largest supported depth; 0 if the mask is empty.
    pub const fn max_depth(self) -> u32 {
        (u8::BITS - self.depth_mask().leading_zeros()) * 8
    }

    /// The supported depths, smallest first.
    pub fn depths(self) -> impl Iterator<Item = u32> {
        depths_in(self.depth_mask())
    }

    /// EAX\[30\]: MWAIT deeper than C1 may clear the records.
    pub const fn deep_c_state_reset(self) -> bool {
        self.eax >> 30 & 1 != 0
    }
    /// EBX\[0\]: IA32_LBR_CTL\[2:1\] may be set.
    pub const fn cpl_filter(self) -> bool {
        self.ebx & 1 != 0
    }

    /// EBX\[1\]: IA32_LBR_CTL\[22:16\] may be set.
    pub const fn branch_filter(self) -> bool {
        self.ebx >> 1 & 1 != 0
    }

    /// EBX\[2\]: IA32_LBR_CTL\[3\] may be set.
    pub const fn call_stack(self) -> bool {
        self.ebx >> 2 & 1 != 0
    }

    /// The layout of records, from ECX; `tsx` is whether CPUID announces HLE or RTM.
    pub const fn layout(self, tsx: bool) -> Layout {
        Layout::of_leaf_1c(self.ecx, tsx)
    }
}
