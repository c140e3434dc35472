use super::Owner;
use lbr_msr::Msr;

#[test]
fn kernel_registers_stay_qemus() {
    // IA32_SPEC_CTRL and IA32_PRED_CMD directly follow Silvermont's records, IA32_TSC_DEADLINE
    // Nehalem's; EFER, APIC base.
    for msr in [0x10, 0x1B, 0x48, 0x49, 0x1D8 - 2, 0x6E0, 0x800, 0x8FF, 0xC000_0080] {
        assert_eq!(Owner::of(Msr(msr)), Owner::Emulator, "{msr:#x}");
    }
}

#[test]
fn both_ends_of_every_family_are_the_lbrs() {
    for msr in [
        0x40,
        0x47,
        0x60,
        0x67,
        0x1C8,
        0x1C9,
        0x1D7,
        0x1D8,
        0x1D9,
        0x1DA,
        0x1DB,
        0x1DC,
        0x1E0,
        0x345,
        0x680,
        0x69F,
        0x6C0,
        0x6DF,
        0xDC0,
        0xDDF,
        0x1200,
        0x121F,
        0x14CE,
        0x14CF,
        0x1500,
        0x151F,
        0x1600,
        0x161F,
        0xC000_010E,
        0xC000_010F,
        0xC001_0300,
        0xC001_031F,
    ] {
        assert_eq!(Owner::of(Msr(msr)), Owner::Lbr, "{msr:#x}");
    }
}
