//! The documents that citations in brackets refer to.

/// The first word of a citation, and the document.
pub const SOURCES: &[(&str, &str)] = &[
    (
        "SDM",
        "Intel 64 and IA-32 Architectures Software Developer's Manual, Volume 3; sections and \
         tables as the edition of late 2016 numbers them",
    ),
    ("SDM24", "the same, edition of October 2024"),
    (
        "APM",
        "AMD64 Architecture Programmer's Manual, Volume 2: System Programming, on debug and \
         performance resources",
    ),
    (
        "Linux",
        "Linux, the file named: intel/lbr.c, amd/lbr.c and amd/brs.c in arch/x86/events, \
         msr-index.h and perf_event.h in arch/x86/include/asm",
    ),
    (
        "EDK2",
        "TianoCore EDK2, MdePkg/Include/Register/Intel, which is made of the tables of model-specific \
         registers in the SDM",
    ),
    ("BRBE", "Arm's Branch Record Buffer Extension, as Linux's arch/arm64/tools/sysreg has it"),
];
