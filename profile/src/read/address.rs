//! What an address of a recording says by itself.

/// Addresses from here up belong to the kernel, whoever runs.
pub(crate) const KERNEL: u64 = 1 << 63;

/// Longest straight code that is believed, bytes; as AutoFDO.
pub(crate) const LONGEST_BLOCK: u64 = 1 << 20;

/// Whether one address is the kernel's and the other is not.
pub(crate) const fn crosses(a: u64, b: u64) -> bool {
    (a >= KERNEL) != (b >= KERNEL)
}

/// What perf calls the kernel; the name of a symbol may follow.
pub(crate) const KERNEL_NAME: &str = "[kernel.kallsyms]";
