//! Accesses that raise #GP: absent registers, reserved bits, non-canonical addresses.

use lbr_msr::access::{Access, MsrError};
use lbr_msr::address::Msr;
use lbr_msr::caps::{FilterRegister, Layout, Quirks};
use lbr_msr::soft::SoftLbr;
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{
    self as by_hand, AMD_SELECT, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, LBR_DEPTH, SELECT, STATUS,
    STATUS_RESET, TOS,
};

const PERF_CAPABILITIES: Msr = Msr(0x345);
const RTIT_CTL: Msr = Msr(0x570);
const CANONICAL_KERNEL: u64 = 0xFFFF_8000_0000_0000;

fn exists(soft: &mut SoftLbr, msr: u32) -> bool {
    soft.read(Msr(msr)).is_ok()
}

#[test]
fn a_fault_names_cpu_register_and_access() {
    let mut soft = SoftLbr::new(&by_hand::core2(), None).on_cpu(5);
    let fault = |access| Err(MsrError::Fault { cpu: 5, msr: SELECT, access });
    assert_eq!(soft.read(SELECT), fault(Access::Read));
    assert_eq!(soft.write(SELECT, 0).map(|()| 0), fault(Access::Write));
}

/// For each kind: registers that exist and, next to them, ones that do not.
#[test]
fn each_cpu_has_its_own_registers_and_no_others() {
    let rows: [(lbr_msr::LbrCaps, &[u32], &[u32]); 13] = [
        (by_hand::p6(), &[0x1D9, 0x1DB, 0x1DC, 0x1DD, 0x1DE], &[0x40, 0x1C9, 0x1DA, 0x345, 0x38E]),
        (by_hand::pentium_m(), &[0x40, 0x47, 0x1C9, 0x1D9], &[0x48, 0x60, 0x1C8, 0x1DD, 0x1DE]),
        (by_hand::willamette(), &[0x1DB, 0x1DE, 0x1DA, 0x1D7, 0x1D8], &[0x1DF, 0x1C9, 0x680]),
        (by_hand::prescott(), &[0x680, 0x68F, 0x6C0, 0x6CF, 0x1DA, 0x1D7], &[0x690, 0x1DD, 0x1DE]),
        (by_hand::core2(), &[0x40, 0x43, 0x60, 0x63, 0x1C9, 0x1DD, 0x38E], &[0x44, 0x64, 0x1C8]),
        (by_hand::bonnell(), &[0x47, 0x67, 0x1C9], &[0x48, 0x68, 0x1C8]),
        (by_hand::silvermont(), &[0x47, 0x67, 0x1C8], &[0x48, 0x680]),
        (by_hand::nehalem(), &[0x680, 0x68F, 0x6CF, 0x1C8, 0x1C9], &[0x690, 0x6D0, 0xDC0, 0x1DA]),
        (by_hand::skylake(), &[0x69F, 0x6DF, 0xDC0, 0xDDF, 0x38E, 0x390, 0x570], &[0x6A0, 0xDE0]),
        (by_hand::goldmont(), &[0x69F, 0x6DF], &[0xDC0, 0x570]),
        (
            by_hand::golden_cove(),
            &[0x14CE, 0x14CF, 0x1200, 0x121F, 0x151F, 0x161F, 0x1D9, 0x1DD, 0x1E0],
            &[0x1C8, 0x1C9, 0x680, 0x1220, 0x1520, 0x1620],
        ),
        (
            by_hand::zen4(),
            &[0xC000_010E, 0xC000_010F, 0xC001_031F, 0x1D9, 0x1DB, 0x1DE],
            &[0xC001_0320, 0x1C8, 0x345, 0x38E, 0xC000_0300],
        ),
        (by_hand::zen2(), &[0x1D9, 0x1DB, 0x1DC, 0x1DD], &[0xC000_010F, 0xC001_0300]),
    ];
    for (caps, present, absent) in rows {
        let mut soft = SoftLbr::new(&caps, None);
        for msr in present {
            assert!(exists(&mut soft, *msr), "{} {msr:#x}", caps.cpu.key());
        }
        for msr in absent {
            assert!(!exists(&mut soft, *msr), "{} {msr:#x}", caps.cpu.key());
            assert!(soft.write(Msr(*msr), 0).is_err());
        }
        for msr in [0, 0x10, 0x1A0, u32::MAX] {
            assert!(!exists(&mut soft, msr));
        }
    }
}

#[test]
fn perf_capabilities_exists_where_given_and_is_read_only() {
    let mut soft = SoftLbr::new(&by_hand::skylake(), Some(0x33C5));
    assert_eq!(soft.read(PERF_CAPABILITIES), Ok(0x33C5));
    assert!(soft.write(PERF_CAPABILITIES, 0x33C5).is_err());
    assert!(SoftLbr::new(&by_hand::skylake(), None).read(PERF_CAPABILITIES).is_err());
}

#[test]
fn lbr_select_accepts_nine_or_ten_bits() {
    for bit in 0..64 {
        let writes = |caps| SoftLbr::new(&caps, None).write(SELECT, 1 << bit).is_ok();
        assert_eq!(writes(by_hand::nehalem()), bit < 9, "bit {bit}");
        assert_eq!(writes(by_hand::silvermont()), bit < 9, "bit {bit}");
        assert_eq!(writes(by_hand::knights_landing()), bit < 9, "bit {bit}");
        assert_eq!(writes(by_hand::haswell(true)), bit < 10, "bit {bit}");
        assert_eq!(writes(by_hand::goldmont()), bit < 10, "bit {bit}");
        let amd = SoftLbr::new(&by_hand::zen4(), None).write(AMD_SELECT, 1 << bit).is_ok();
        assert_eq!(amd, bit < 9, "bit {bit}");
    }
}

#[test]
fn lbr_ctl_accepts_what_leaf_1ch_offers() {
    let offers = [
        ((true, true, true), 0x7F_000F_u64),
        ((true, false, false), 0x00_0007),
        ((false, true, false), 0x7F_0001),
        ((false, false, true), 0x00_0009),
        ((false, false, false), 0x00_0001),
    ];
    for ((cpl, branch, call_stack), valid) in offers {
        let mut caps = by_hand::golden_cove();
        caps.filter = FilterRegister::LbrCtl { cpl, branch, call_stack };
        for bit in 0..64 {
            let mut soft = SoftLbr::new(&caps, None);
            assert_eq!(soft.write(LBR_CTL, 1 << bit).is_ok(), valid >> bit & 1 != 0, "bit {bit}");
        }
        let mut soft = SoftLbr::new(&caps, None);
        soft.write(LBR_CTL, valid).unwrap();
        assert_eq!(soft.read(LBR_CTL), Ok(valid));
    }
}

#[test]
fn debugctl_accepts_the_bits_of_its_generation() {
    let tsx = 1 << 15;
    // Modern: 0, 1, 6 to 10; 11 and 12 with PDCM and perfmon 2; 13 from Nehalem on; 14 with
    // IA32_PERF_CAPABILITIES[12]; 15 with TSX.
    let rows = [
        (by_hand::p6(), None, 0x7F_u64),
        (by_hand::pentium_m(), None, 0x1FF),
        (by_hand::willamette(), None, 0x7F),
        (by_hand::core2(), Some(0x10C2), 0x5FC3),
        (by_hand::core2(), Some(0x82), 0x1FC3),
        (by_hand::core2(), None, 0x07C3),
        (by_hand::nehalem(), Some(3), 0x3FC3),
        (by_hand::haswell(true), Some(0x33C4), 0x7FC3 | tsx),
        (by_hand::haswell(false), Some(0x33C4), 0x7FC3),
        (by_hand::golden_cove(), Some(0x3F), 0x3FC7),
        (by_hand::zen4(), None, 0x3F),
        (by_hand::zen2(), None, 0x3F),
    ];
    for (caps, perf, valid) in rows {
        for bit in 0..64 {
            let mut soft = SoftLbr::new(&caps, perf);
            let taken = soft.write(DEBUGCTL, 1 << bit).is_ok();
            assert_eq!(taken, valid >> bit & 1 != 0, "{} bit {bit}", caps.cpu.key());
        }
    }
    let mut zen4 = by_hand::zen4();
    zen4.quirks |= Quirks::STREAMLINED_FREEZE;
    assert!(SoftLbr::new(&zen4, None).write(DEBUGCTL, 1 << 11).is_ok());
}

#[test]
fn debugctl_lbr_has_no_effect_with_architectural_lbr() {
    let mut soft = SoftLbr::new(&by_hand::golden_cove(), Some(0x3F));
    soft.write(DEBUGCTL, 0x803).unwrap();
    assert_eq!(soft.read(DEBUGCTL), Ok(0x802));
}

#[test]
fn brs_configuration_requires_bits_4_and_3_and_no_reserved_ones() {
    let mut soft = SoftLbr::new(&by_hand::zen3(), None);
    for bad in [0x04, 0x0C, 0x14, 0x1D, 0x1E, 0x5C, 0x801C, 0x10_001C, 0x800_001C, 1 << 63 | 0x1C] {
        assert!(soft.write(DBG_EXTN_CFG, bad).is_err(), "{bad:#x}");
    }
    for good in [0x18, 0x1C, 0x700_001C, 0xF_003C] {
        soft.write(DBG_EXTN_CFG, good).unwrap();
        assert_eq!(soft.read(DBG_EXTN_CFG), Ok(good));
    }
    // LbrExtV2 shares the register, whose other bits belong to others.
    let mut soft = SoftLbr::new(&by_hand::zen4(), None);
    soft.write(DBG_EXTN_CFG, 0x1234_5678).unwrap();
    assert_eq!(soft.read(DBG_EXTN_CFG), Ok(0x1234_5678));
}

#[test]
fn depth_accepts_the_depths_in_the_mask() {
    let mut caps = by_hand::golden_cove();
    caps.depth = 64;
    caps.depth_mask = 0b1000_1010;
    let mut soft = SoftLbr::new(&caps, None);
    for depth in 0..=130 {
        assert_eq!(soft.write(LBR_DEPTH, depth).is_ok(), [16, 32, 64].contains(&depth), "{depth}");
    }
}

/// If the mask exceeds the capabilities' depth, the depth decides.
#[test]
fn depth_never_exceeds_the_deepest() {
    let mut caps = by_hand::golden_cove();
    caps.depth = 16;
    let mut soft = SoftLbr::new(&caps, None);
    assert!(soft.write(LBR_DEPTH, 32).is_err());
    assert!(soft.write(LBR_DEPTH, 8).is_ok());
}

/// Addresses in FROM and TO must be canonical below the flags.
#[test]
fn from_and_to_are_checked_as_the_format_lays_them_out() {
    let noncanonical = 0x0000_8000_0000_0000;
    let plain =
        [by_hand::core2(), by_hand::bonnell(), by_hand::skylake(), by_hand::goldmont_plus()];
    for caps in plain {
        let mut soft = SoftLbr::new(&caps, None);
        for msr in [caps.registers.from, caps.registers.to.unwrap()] {
            soft.write(msr, CANONICAL_KERNEL).unwrap();
            soft.write(msr, 0x7FFF_FFFF_FFFF).unwrap();
            for bad in [noncanonical, 1 << 63, 1 << 48, 0x7FFF_8000_0000_0000] {
                assert!(soft.write(msr, bad).is_err(), "{bad:#x}");
                assert_eq!(soft.read(msr), Ok(0x7FFF_FFFF_FFFF), "a fault stores nothing");
            }
        }
    }
    // Formats 3 and 6: bit 63 of FROM is free.
    for caps in [by_hand::nehalem(), by_hand::goldmont()] {
        let mut soft = SoftLbr::new(&caps, None);
        for good in [1 << 63, CANONICAL_KERNEL, 0x7FFF_8000_0000_0000] {
            soft.write(Msr(0x680), good).unwrap();
            assert_eq!(soft.read(Msr(0x680)), Ok(good));
        }
        for bad in [1 << 62, noncanonical, 0x3FFF_8000_0000_0000] {
            assert!(soft.write(Msr(0x680), bad).is_err(), "{bad:#x}");
        }
    }
    // Architectural LBR came with five-level paging: 57 bits.
    let mut soft = SoftLbr::new(&by_hand::golden_cove(), None);
    for msr in [Msr(0x1500), Msr(0x1600)] {
        for good in [0x00FF_8000_0000_0000, 0xFF00_0000_0000_0000, CANONICAL_KERNEL] {
            soft.write(msr, good).unwrap();
        }
        for bad in [0x0100_0000_0000_0000, 0xFE00_0000_0000_0000] {
            assert!(soft.write(msr, bad).is_err(), "{bad:#x}");
        }
    }
    // Format 6: the cycle count replaces TO's sign bits.
    let mut soft = SoftLbr::new(&by_hand::goldmont(), None);
    soft.write(Msr(0x6C0), 0x0019_8000_0000_0000).unwrap();
    assert_eq!(soft.read(Msr(0x6C0)), Ok(0x0019_8000_0000_0000));
    assert!(SoftLbr::new(&by_hand::nehalem(), None).write(Msr(0x6C0), 1 << 63).is_err());
}

/// Haswell and Broadwell: with TSX, bits 63:61 of FROM are flags; without, 62:61 are checked as
/// part of the sign although they were recorded as 0.
#[test]
fn haswell_without_tsx_refuses_what_it_recorded_itself() {
    let recorded_kernel = 0x9FFF_FFFF_8100_0123;
    let sign_restored = 0xFFFF_FFFF_8100_0123;
    let mut with = SoftLbr::new(&by_hand::haswell(true), Some(4));
    let mut without = SoftLbr::new(&by_hand::haswell(false), Some(4));
    for value in [recorded_kernel, sign_restored, 0xC000_5555_5555_4444, 0] {
        with.write(Msr(0x680), value).unwrap();
    }
    // The same for the last-exception FROM.
    for msr in [0x680, 0x1DD] {
        assert!(without.write(Msr(msr), recorded_kernel).is_err());
        assert!(without.write(Msr(msr), 0xC000_5555_5555_4444).is_err());
        without.write(Msr(msr), sign_restored).unwrap();
        without.write(Msr(msr), 0x8000_5555_5555_4444).unwrap();
        without.write(Msr(msr), 0).unwrap();
    }
}

#[test]
fn arch_addresses_have_57_bits_and_info_its_fields() {
    let mut soft = SoftLbr::new(&by_hand::golden_cove(), None);
    soft.write(Msr(0x1500), 0xFF00_0000_0000_0000).unwrap();
    soft.write(Msr(0x1500), !0).unwrap();
    assert!(soft.write(Msr(0x1500), 0x0100_0000_0000_0000).is_err());
    assert!(soft.write(Msr(0x1600), 0x0100_0000_0000_0000).is_err());
    soft.write(Msr(0x1200), !0).unwrap();
    assert_eq!(soft.read(Msr(0x1200)), Ok(0x9F00_0000_0000_FFFF));
    let mut caps = by_hand::golden_cove();
    caps.layout =
        Layout::Arch { mispredict: true, timed: true, types: true, counters: 0b0101, tsx: true };
    let mut soft = SoftLbr::new(&caps, None);
    soft.write(Msr(0x1200), !0).unwrap();
    assert_eq!(soft.read(Msr(0x1200)), Ok(0xFF00_0033_0000_FFFF));
    let mut soft = SoftLbr::new(&by_hand::skylake(), None);
    soft.write(Msr(0xDC0), !0).unwrap();
    assert_eq!(soft.read(Msr(0xDC0)), Ok(0xE000_0000_0000_FFFF));
}

#[test]
fn status_registers_follow_the_perfmon_version() {
    let mut soft = SoftLbr::new(&by_hand::pentium_m(), None);
    assert!(soft.read(STATUS).is_err() && soft.read(STATUS_RESET).is_err());
    let mut soft = SoftLbr::new(&by_hand::skylake(), None);
    assert_eq!((soft.read(STATUS), soft.read(STATUS_RESET)), (Ok(0), Ok(0)));
    assert!(soft.write(STATUS, 0).is_err());
    assert!(SoftLbr::new(&by_hand::haswell(true), None).read(RTIT_CTL).is_err());
    assert!(SoftLbr::new(&by_hand::core2(), None).read(TOS).is_ok());
}
