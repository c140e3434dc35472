//! PMI, debug exceptions, C-states, resets, Intel PT.

use lbr_msr::address::Msr;
use lbr_msr::caps::Quirks;
use lbr_msr::record::HwBranchType::RelJmp;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{
    self as by_hand, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, LBR_DEPTH, SELECT, STATUS, STATUS_RESET, TOS,
};

const FREEZE: u64 = 1 << 11;
const FREEZE_PERFMON: u64 = 1 << 12;
const LBR_FRZ: u64 = 1 << 58;

fn jump(n: u64) -> Retired {
    Retired { cycles: Some(10), ..Retired::user(0x1000 + n, 0x2000 + n, RelJmp) }
}

#[test]
fn before_perfmon_4_a_pmi_clears_the_enable_bit() {
    for caps in [by_hand::core2(), by_hand::nehalem(), by_hand::haswell(true)] {
        let mut soft = SoftLbr::new(&caps, Some(0));
        soft.write(DEBUGCTL, FREEZE | FREEZE_PERFMON | 1).unwrap();
        assert!(soft.retire(&jump(1)));
        soft.pmi();
        assert_eq!(soft.read(DEBUGCTL), Ok(FREEZE | FREEZE_PERFMON));
        assert_eq!(soft.read(STATUS), Ok(0));
        assert!(!soft.retire(&jump(2)));
        soft.write(DEBUGCTL, FREEZE | 1).unwrap();
        assert!(soft.retire(&jump(3)));
    }
}

#[test]
fn from_perfmon_4_on_a_pmi_sets_lbr_frz() {
    let mut soft = SoftLbr::new(&by_hand::skylake(), Some(5));
    soft.write(DEBUGCTL, FREEZE | 1).unwrap();
    soft.pmi();
    assert_eq!(soft.read(DEBUGCTL), Ok(FREEZE | 1), "the enable bit stays");
    assert_eq!(soft.read(STATUS), Ok(LBR_FRZ));
    assert!(!soft.retire(&jump(1)));
    soft.write(DEBUGCTL, FREEZE | 1).unwrap();
    assert!(!soft.retire(&jump(1)), "enabling again does not help");
    soft.write(STATUS_RESET, LBR_FRZ).unwrap();
    assert_eq!(soft.read(STATUS), Ok(0));
    assert!(soft.retire(&jump(1)));

    let mut soft = SoftLbr::new(&by_hand::golden_cove(), Some(0x3F));
    soft.write(LBR_CTL, 0x7F_0005).unwrap();
    soft.write(DEBUGCTL, FREEZE | 1 << 12).unwrap();
    soft.pmi();
    assert_eq!(soft.read(LBR_CTL), Ok(0x7F_0005));
    assert_eq!(soft.read(STATUS), Ok(LBR_FRZ | 1 << 59));
    assert!(!soft.retire(&jump(1)));
    soft.write(STATUS_RESET, 1 << 58).unwrap();
    assert!(soft.retire(&jump(1)));
    assert_eq!(soft.read(STATUS), Ok(1 << 59));
}

#[test]
fn from_perfmon_4_on_recording_can_be_frozen_by_a_write() {
    const STATUS_SET: Msr = Msr(0x391);
    let mut soft = SoftLbr::new(&by_hand::skylake(), Some(5));
    soft.write(DEBUGCTL, 1).unwrap();
    // A counter's bit belongs to the performance monitor.
    soft.write(STATUS_SET, LBR_FRZ | 1).unwrap();
    assert_eq!((soft.read(STATUS_SET), soft.read(STATUS)), (Ok(0), Ok(LBR_FRZ)));
    assert!(!soft.retire(&jump(1)));
    soft.write(STATUS_RESET, LBR_FRZ).unwrap();
    assert!(soft.retire(&jump(1)));
    let mut soft = SoftLbr::new(&by_hand::haswell(true), Some(4));
    assert!(soft.read(STATUS_SET).is_err() && soft.write(STATUS_SET, 0).is_err());
}

#[test]
fn a_pmi_without_the_freeze_bit_stops_nothing() {
    for caps in [by_hand::nehalem(), by_hand::skylake()] {
        let mut soft = SoftLbr::new(&caps, Some(0));
        soft.write(DEBUGCTL, 1).unwrap();
        soft.pmi();
        assert_eq!(soft.read(DEBUGCTL), Ok(1));
        assert!(soft.retire(&jump(1)));
    }
    let mut early = by_hand::bonnell();
    early.quirks = Quirks::NO_FREEZE_ON_PMI;
    let mut soft = SoftLbr::new(&early, Some(0xC1));
    soft.write(DEBUGCTL, FREEZE | 1).unwrap();
    soft.pmi();
    assert!(soft.retire(&jump(1)), "the erratum of early Bonnell");
}

#[test]
fn amd_freezes_if_cpuid_announces_it() {
    let mut caps = by_hand::zen4();
    caps.quirks |= Quirks::STREAMLINED_FREEZE;
    let mut soft = SoftLbr::new(&caps, None);
    soft.write(DBG_EXTN_CFG, 0x58).unwrap();
    soft.write(DEBUGCTL, FREEZE).unwrap();
    soft.pmi();
    assert_eq!(soft.read(Msr(0xC000_0300)), Ok(LBR_FRZ));
    assert!(!soft.retire(&jump(1)));
    soft.write(Msr(0xC000_0302), LBR_FRZ).unwrap();
    assert!(soft.retire(&jump(1)));
}

#[test]
fn a_debug_exception_switches_recording_and_btf_off() {
    let mut soft = SoftLbr::new(&by_hand::skylake(), Some(5));
    soft.write(DEBUGCTL, FREEZE | 3).unwrap();
    soft.retire(&jump(1));
    soft.debug_exception();
    assert_eq!(soft.read(DEBUGCTL), Ok(FREEZE));
    assert!(!soft.retire(&jump(2)));
    assert_eq!(soft.read(Msr(0x681)), Ok(0x1001), "records stay");

    let mut soft = SoftLbr::new(&by_hand::golden_cove(), Some(0x3F));
    soft.write(LBR_CTL, 0x7F_0005).unwrap();
    soft.debug_exception();
    assert_eq!(soft.read(LBR_CTL), Ok(0x7F_0004));
    assert!(!soft.retire(&jump(2)));

    // AMD documents that for the pair only, not for its stack.
    let mut soft = SoftLbr::new(&by_hand::zen4(), None);
    soft.write(DBG_EXTN_CFG, 0x58).unwrap();
    soft.write(DEBUGCTL, 3).unwrap();
    soft.debug_exception();
    assert_eq!((soft.read(DEBUGCTL), soft.read(DBG_EXTN_CFG)), (Ok(0), Ok(0x58)));
    assert!(soft.retire(&jump(3)));
    assert_eq!((soft.read(Msr(0x1DB)), soft.read(Msr(0xC001_0300))), (Ok(0), Ok(0x1003)));
}

#[test]
fn a_deep_c_state_wipes_records_and_tos_and_keeps_controls() {
    let mut soft = SoftLbr::new(&by_hand::skylake(), Some(5));
    soft.write(SELECT, 0x101).unwrap();
    soft.write(DEBUGCTL, 1).unwrap();
    for n in 1..=5 {
        soft.retire(&jump(n));
    }
    soft.exception();
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0x1005));
    soft.deep_c_state();
    for i in 0..32 {
        for bank in [0x680, 0x6C0, 0xDC0] {
            assert_eq!(soft.read(Msr(bank + i)), Ok(0));
        }
    }
    assert_eq!((soft.read(Msr(0x1DD)), soft.read(Msr(0x1DE))), (Ok(0), Ok(0)));
    assert_eq!(soft.read(TOS), Ok(0));
    assert_eq!((soft.read(SELECT), soft.read(DEBUGCTL)), (Ok(0x101), Ok(1)));
    soft.retire(&jump(6));
    soft.retire(&jump(7));
    assert_eq!(soft.read(Msr(0xDC1)), Ok(0), "cycles of the first record afterwards");
    assert_eq!(soft.read(Msr(0xDC2)), Ok(10));

    let mut soft = SoftLbr::new(&by_hand::golden_cove(), None);
    soft.write(LBR_CTL, 0x7F_0005).unwrap();
    soft.write(LBR_DEPTH, 16).unwrap();
    soft.retire(&jump(1));
    soft.deep_c_state();
    assert_eq!(soft.read(Msr(0x1500)), Ok(0));
    assert_eq!((soft.read(LBR_CTL), soft.read(LBR_DEPTH)), (Ok(0x7F_0005), Ok(16)));

    let mut soft = SoftLbr::new(&by_hand::haswell(true), None);
    soft.write(DEBUGCTL, 1).unwrap();
    soft.retire(&jump(1));
    soft.deep_c_state();
    assert_eq!(soft.read(Msr(0x681)), Ok(0x1001), "Haswell keeps its records");
}

#[test]
fn a_reset_clears_everything() {
    for (name, caps, perf) in by_hand::every() {
        let fresh = SoftLbr::new(&caps, perf);
        let mut soft = SoftLbr::new(&caps, perf);
        let map = caps.registers;
        let before = soft.read(map.control).unwrap();
        let filter = if map.control == LBR_CTL { 0x7F_0006 } else { 0 };
        soft.write(map.control, before | map.enable | filter).unwrap();
        soft.retire(&jump(1));
        soft.exception();
        soft.reset();
        assert_eq!(soft.recorded(), 1, "{name}");
        let read = |mut soft: SoftLbr| {
            let mut values =
                vec![soft.read(map.control), soft.read(map.from), soft.read(Msr(0x1DD))];
            values.extend(map.tos.map(|tos| soft.read(tos)));
            values.extend(map.to.map(|to| soft.read(to)));
            values.extend(map.depth.map(|depth| soft.read(depth)));
            values
        };
        assert_eq!(read(soft), read(fresh), "{name}");
    }
}

#[test]
fn the_last_exception_pair_takes_the_newest_record() {
    let mut soft = SoftLbr::new(&by_hand::golden_cove(), None);
    soft.exception();
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0));
    soft.write(LBR_CTL, 0x7F_0005).unwrap();
    soft.retire(&jump(1));
    soft.retire(&jump(2));
    soft.exception();
    soft.retire(&jump(3));
    let ler = [0x1DD, 0x1DE, 0x1E0].map(|msr| soft.read(Msr(msr)).unwrap());
    assert_eq!(ler, [0x1002, 0x2002, 2 << 56 | 1 << 60 | 10]);
    soft.write(LBR_CTL, 0x7F_0004).unwrap();
    soft.exception();
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0x1002), "LER needs LBREn");

    // A freeze at a PMI stops it too.
    let mut soft = SoftLbr::new(&by_hand::skylake(), Some(5));
    soft.write(DEBUGCTL, FREEZE | 1).unwrap();
    soft.retire(&jump(1));
    soft.pmi();
    soft.exception();
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0));
    soft.write(STATUS_RESET, LBR_FRZ).unwrap();
    soft.exception();
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0x1001));

    // With an AMD stack, it belongs to the one-entry pair.
    let mut soft = SoftLbr::new(&by_hand::zen4(), None);
    soft.write(DBG_EXTN_CFG, 0x58).unwrap();
    soft.retire(&jump(1));
    soft.exception();
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0));
    soft.write(DEBUGCTL, 1).unwrap();
    soft.retire(&jump(2));
    soft.exception();
    assert_eq!((soft.read(Msr(0x1DD)), soft.read(Msr(0x1DE))), (Ok(0x1002), Ok(0x2002)));

    let mut soft = SoftLbr::new(&by_hand::willamette(), None);
    soft.write(DEBUGCTL, 1).unwrap();
    soft.retire(&jump(4));
    soft.exception();
    assert_eq!((soft.read(Msr(0x1D7)), soft.read(Msr(0x1D8))), (Ok(0x1004), Ok(0x2004)));
}

/// SDM 36.3.1.2.
#[test]
fn intel_pt_disables_the_lbr_on_documented_models() {
    let mut soft = SoftLbr::new(&by_hand::broadwell(), Some(0x33C4));
    soft.write(SELECT, 0x101).unwrap();
    soft.write(DEBUGCTL, 1).unwrap();
    soft.retire(&jump(1));
    soft.exception();
    soft.write(Msr(0x570), 0x2009).unwrap();
    assert!(!soft.retire(&jump(2)));
    for msr in [0x680, 0x681, 0x6C1, 0x1C9, 0x1C8, 0x1DD] {
        assert_eq!(soft.read(Msr(msr)), Ok(0), "{msr:#x}");
        soft.write(Msr(msr), !0).unwrap();
    }
    assert_eq!(soft.read(DEBUGCTL), Ok(1), "DEBUGCTL still shows it on");
    soft.write(Msr(0x570), 0x2008).unwrap();
    assert_eq!(soft.read(Msr(0x681)), Ok(0), "the array is reset");
    assert_eq!(soft.read(Msr(0x1DD)), Ok(0));
    assert_eq!(soft.read(SELECT), Ok(0x101), "writes were dropped");
    assert!(soft.retire(&jump(3)));
}

#[test]
fn branch_trace_messages_leave_the_records_undefined_on_core_2() {
    let mut soft = SoftLbr::new(&by_hand::core2(), None);
    soft.write(DEBUGCTL, 1 | 1 << 6).unwrap();
    assert!(!soft.retire(&jump(1)));
    soft.write(DEBUGCTL, 1).unwrap();
    assert!(soft.retire(&jump(1)));
    let mut soft = SoftLbr::new(&by_hand::skylake(), None);
    soft.write(DEBUGCTL, 1 | 1 << 6).unwrap();
    assert!(soft.retire(&jump(1)));
}

/// Intel's status came with perfmon version 2; AMD's exists only if CPUID 8000_0022H EAX\[2\] says
/// that a PMI freezes the LBR. The pair at 1DBH is P6's and AMD's.
#[test]
fn registers_of_other_cpus_fault() {
    let rows: [(_, _, &[u32]); 5] = [
        (by_hand::pentium_m(), None, &[0x1C8, 0x345, 0x38E, 0x570, 0x14CE]),
        (by_hand::nehalem(), Some(0), &[0x1DB, 0x1E0, 0x391, 0x570, 0x14CE, 0xC000_010F]),
        (by_hand::goldmont(), Some(6), &[0x1DB, 0x1E0, 0x14CF, 0xC000_0300]),
        (by_hand::golden_cove(), Some(0x3F), &[0x1C8, 0x1C9, 0x1DB, 0x680, 0xC000_0300]),
        (by_hand::zen4(), None, &[0x345, 0x38E, 0x1E0, 0x570, 0x680, 0xC000_0300]),
    ];
    for (caps, perf, absent) in rows {
        let mut soft = SoftLbr::new(&caps, perf);
        for msr in absent {
            assert!(soft.read(Msr(*msr)).is_err(), "{} {msr:#x}", caps.cpu.key());
        }
    }
}
