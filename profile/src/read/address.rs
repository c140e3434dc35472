//! Properties of an address alone.

/// Addresses from here on belong to the kernel, in every process.
pub(crate) const KERNEL: u64 = 1 << 63;

/// Longest plausible fall-through range, bytes; as in AutoFDO.
pub(crate) const LONGEST_BLOCK: u64 = 1 << 20;

/// Whether exactly one of the addresses belongs to the kernel.
pub(crate) const fn crosses(a: u64, b: u64) -> bool {
    (a >= KERNEL) != (b >= KERNEL)
}

/// perf's name for the kernel; a symbol may follow.
pub(crate) const KERNEL_NAME: &str = "[kernel.kallsyms]";
