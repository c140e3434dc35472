use super::*;

/// The signature of a hypervisor, in EBX, ECX and EDX of CPUID.40000000H.
#[test]
fn an_emulated_cpu_has_no_dependable_breakpoints() {
    let on = |signature: &[u8; 12]| {
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| signature[at + i]));
        let mut cpuid = RecordedCpuid::new();
        cpuid.insert(0, 0, 7, 0x756E_6547, 0x6C65_746E, 0x4965_6E69);
        cpuid.insert(1, 0, 0x806C1, 0, 1 << 31, 0);
        cpuid.insert(0x4000_0000, 0, 0x4000_0001, word(0), word(4), word(8));
        Breakpoints::on(&identify(&cpuid))
    };
    assert_eq!(on(b"TCGTCGTCGTCG"), Breakpoints::Missing);
    assert_eq!(on(b"KVMKVMKVM\0\0\0"), Breakpoints::Unknown);
}
