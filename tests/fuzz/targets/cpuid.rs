//! Any text as a dump of CPUID; the parsed dump is probed.
#![no_main]

use lbr_msr::probe::identify;
use lbr_msr::probe::recorded::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(cpus) = parse(text) else { return };
    for cpu in cpus {
        let _ = identify(&cpu.cpuid);
    }
});
