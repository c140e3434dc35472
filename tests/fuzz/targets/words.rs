//! Command-line arguments: locations, branch filters, CPUs, registers and their fields. A parsed
//! argument prints as text that parses to the same.
#![no_main]

use lbr_msr::BranchFilter;
use lbr_msr::explain::{CpuKey, find};
use libfuzzer_sys::fuzz_target;
use profile::place::LocationSpec;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(place) = text.parse::<LocationSpec>() {
        assert_eq!(place.to_string().parse(), Ok(place));
    }
    if let Ok(filter) = text.parse::<BranchFilter>() {
        assert_eq!(filter.to_string().parse::<BranchFilter>().ok(), Some(filter));
    }
    let mut lines = text.split('\n');
    let (name, cpu) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let cpu = cpu.parse::<CpuKey>().ok();
    if let Some(cpu) = cpu {
        assert_eq!(cpu.to_string().parse(), Ok(cpu));
    }
    let Ok(register) = find(name, cpu) else { return };
    let mut value = bytes.len() as u64;
    if let Ok(built) = register.build(lines.next().unwrap_or_default().split(',')) {
        value = built;
    }
    let sum = register.fields().iter().fold(0, |sum, field| {
        let _ = (field.meaning(value), field.about());
        sum | field.mask()
    });
    assert_eq!(sum, u64::MAX, "fields of {} leave bits out", register.name());
});
