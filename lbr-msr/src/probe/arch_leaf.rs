//! CPUID leaf 1CH, which describes Architectural LBR.

use raw_cpuid::CpuIdResult;

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
        let mask = self.depth_mask();
        (0..8u32).filter(move |n| mask >> n & 1 != 0).map(|n| 8 * (n + 1))
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

    /// ECX\[0\]: INFO\[63\] is valid.
    pub const fn mispredict(self) -> bool {
        self.ecx & 1 != 0
    }

    /// ECX\[1\]: INFO\[15:0\] and INFO\[60\] are valid.
    pub const fn timed(self) -> bool {
        self.ecx >> 1 & 1 != 0
    }

    /// ECX\[2\]: INFO\[59:56\] is valid.
    pub const fn branch_types(self) -> bool {
        self.ecx >> 2 & 1 != 0
    }

    /// ECX\[19:16\]: bitmap of the counters logged in INFO\[39:32\].
    pub const fn counters(self) -> u8 {
        (self.ecx >> 16 & 0xF) as u8
    }
}
