//! Linker options for test programs that imitate others.

/// Like a kernel: in the upper two gigabytes, with a build ID, entered at `main`.
pub(crate) const AS_KERNEL: [&str; 12] = [
    "-O2",
    "-g",
    "-no-pie",
    "-fno-pie",
    "-static",
    "-nostdlib",
    "-mcmodel=kernel",
    "-fno-asynchronous-unwind-tables",
    "-fcf-protection=none",
    "-Wl,-e,main",
    "-Wl,--build-id=sha1",
    "-Wl,-Ttext-segment=0xffffffff81000000",
];
