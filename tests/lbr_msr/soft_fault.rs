//! Injected faults by name, and the register effects of some, computed by hand.

use lbr_msr::record::HwBranchType::{Cond, RelJmp};
use lbr_msr::soft::{Fault, Faults, Retired, SoftCpu, SoftLbr};
use lbr_msr::{Msr, MsrRead, MsrWrite};

use crate::support::faults;

const DEBUGCTL: Msr = Msr(0x1D9);
const TOS: Msr = Msr(0x1C9);
const SELECT: Msr = Msr(0x1C8);

fn soft(key: &str, faults: impl Into<Faults>) -> SoftLbr {
    let cpu = SoftCpu::preset(key).unwrap();
    SoftLbr::new(&cpu.caps, cpu.perf_capabilities).with(faults)
}

fn jump(n: u64) -> Retired {
    Retired { cycles: Some(10), ..Retired::user(0x1000 + n, 0x2000 + n, RelJmp) }
}

#[test]
fn names_are_read_as_they_are_written() {
    let mut names = Vec::new();
    for fault in Fault::all() {
        assert_eq!(fault.name().parse(), Ok(fault));
        assert_eq!(Faults::from(fault).iter().collect::<Vec<_>>(), [fault]);
        names.push(fault.name());
    }
    assert_eq!(names.len(), 38);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 38);
    let two: Faults = "tos-off-by-one, no-info".parse().unwrap();
    assert!(two.has(Fault::TosOffByOne) && two.has(Fault::NoInfo) && !two.has(Fault::HalfDepth));
    assert_eq!("".parse(), Ok(Faults::NONE));
    assert_eq!("tos".parse::<Faults>().unwrap_err().to_string(), "unknown fault `tos`");
}

#[test]
fn every_fault_applies_to_some_cpu() {
    let cpus: Vec<SoftCpu> = SoftCpu::all().collect();
    for fault in Fault::all() {
        let applies =
            |cpu: &SoftCpu| faults::applies(fault, &cpu.caps, cpu.perf_capabilities.is_some());
        assert!(cpus.iter().any(applies), "{fault}");
    }
}

#[test]
fn a_fault_changes_only_its_registers() {
    // 5 (INFO) becomes 3, the bits above are unchanged: 33C5H was read on a 06_5E.
    assert_eq!(soft("06_5E", Fault::FormatCode).read(Msr(0x345)), Ok(0x33C3));
    assert!(soft("06_5E", Fault::NoInfo).read(Msr(0xDC0)).is_err());

    let mut lbr = soft("06_5E", Fault::TosOffByOne);
    lbr.write(DEBUGCTL, 1).unwrap();
    lbr.retire(&jump(1));
    // The first branch goes to slot 1; TOS reads 2.
    assert_eq!((lbr.read(Msr(0x681)), lbr.read(TOS)), (Ok(0x1001), Ok(2)));
    for value in [0, 5, 31] {
        lbr.write(TOS, value).unwrap();
        assert_eq!(lbr.read(TOS), Ok(value), "the written value is read");
    }

    let mut lbr = soft("06_5E", Fault::MispredictInverted);
    lbr.write(DEBUGCTL, 1).unwrap();
    for (n, missed) in [(1, false), (2, true)] {
        lbr.retire(&Retired { mispredicted: Some(missed), ..jump(n) });
    }
    assert_eq!([0xDC1, 0xDC2].map(|info| lbr.read(Msr(info)).unwrap() >> 63), [1, 0]);

    // IN_TSX is bit 62 of a record, TSX_ABORT bit 61 (SDM 17.4.8.1).
    let mut lbr = soft("06_3C", Fault::TsxNever);
    lbr.write(DEBUGCTL, 1).unwrap();
    lbr.retire(&Retired { abort: true, in_tx: true, ..jump(1) });
    assert_eq!(lbr.read(Msr(0x681)).unwrap() >> 61 & 0b11, 0);

    let mut lbr = soft("06_5E", Fault::HalfDepth);
    lbr.write(DEBUGCTL, 1).unwrap();
    for n in 0..32 {
        lbr.retire(&jump(n));
    }
    assert_eq!((lbr.read(Msr(0x68F)), lbr.read(Msr(0x690))), (Ok(0x1000 + 30), Ok(0)));

    let mut lbr = soft("06_5E", Fault::IgnoresCond);
    lbr.write(SELECT, 1 << 2 | 1 << 7).unwrap();
    lbr.write(DEBUGCTL, 1).unwrap();
    assert!(!lbr.retire(&jump(1)), "relative jumps are still suppressed");
    assert!(lbr.retire(&Retired::user(1, 2, Cond)));
    assert_eq!(lbr.read(SELECT), Ok(1 << 2 | 1 << 7), "the written value is read");

    let mut lbr = soft("06_5E", Fault::DuplicateNewest);
    lbr.write(DEBUGCTL, 1).unwrap();
    lbr.retire(&jump(1));
    assert_eq!(lbr.read(TOS), Ok(1));
    lbr.write(DEBUGCTL, 0).unwrap();
    assert_eq!((lbr.read(TOS), lbr.read(Msr(0x682))), (Ok(2), Ok(0x1001)));
}

#[test]
fn injecting_a_fault_resets() {
    let mut lbr = soft("06_5E", Faults::NONE);
    lbr.write(DEBUGCTL, 1).unwrap();
    lbr.retire(&jump(1));
    let mut lbr = lbr.with(Fault::CyclesConstant);
    assert_eq!((lbr.read(DEBUGCTL), lbr.read(TOS), lbr.read(Msr(0x681))), (Ok(0), Ok(0), Ok(0)));
}

#[test]
fn the_second_record_of_an_abort_is_newer_and_has_no_flag() {
    // Linux lbr.c walks from the newest record and drops the one that it read before the flagged
    // one.
    let mut lbr = soft("06_3C", Fault::DoubleAbort);
    lbr.write(DEBUGCTL, 1).unwrap();
    lbr.retire(&Retired { abort: true, in_tx: true, ..jump(0) });
    assert_eq!(lbr.read(TOS), Ok(2));
    assert_eq!(lbr.read(Msr(0x681)).unwrap() >> 61, 0b011, "IN_TSX and TSX_ABORT");
    assert_eq!(lbr.read(Msr(0x682)).unwrap() >> 61 & 1, 0);
}
