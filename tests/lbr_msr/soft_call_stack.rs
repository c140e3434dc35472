//! Call-stack mode: known sequences of calls and returns.

use lbr_msr::address::Msr;
use lbr_msr::caps::FilterRegister;
use lbr_msr::record::HwBranchType::{self, Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{self as by_hand, DEBUGCTL, LBR_CTL, SELECT, TOS};

fn branch(from: u64, to: u64, class: HwBranchType) -> Retired {
    Retired::user(from, to, class)
}

fn haswell() -> SoftLbr {
    let mut soft = SoftLbr::new(&by_hand::haswell(true), Some(4));
    soft.write(SELECT, 0x3C5).unwrap();
    soft.write(DEBUGCTL, 1).unwrap();
    soft
}

fn arch() -> SoftLbr {
    let mut soft = SoftLbr::new(&by_hand::golden_cove(), Some(0x3F));
    soft.write(LBR_CTL, 0x38_000D).unwrap();
    soft
}

fn froms(soft: &mut SoftLbr, first: u32, n: u32) -> Vec<u64> {
    (0..n).map(|i| soft.read(Msr(first + i)).unwrap()).collect()
}

#[test]
fn calls_push_and_returns_pop() {
    let mut soft = haswell();
    assert!(soft.retire(&branch(0x100, 0x1000, RelCall)));
    assert!(soft.retire(&branch(0x1010, 0x2000, IndCall)));
    assert_eq!(soft.read(TOS), Ok(2));
    assert_eq!(froms(&mut soft, 0x680, 4), [0, 0x100, 0x1010, 0]);
    assert!(soft.retire(&branch(0x2020, 0x1012, Ret)));
    assert_eq!(soft.read(TOS), Ok(1));
    assert_eq!(froms(&mut soft, 0x680, 4), [0, 0x100, 0, 0]);
    assert_eq!(froms(&mut soft, 0x6C0, 4), [0, 0x1000, 0, 0]);
    assert!(soft.retire(&branch(0x1018, 0x3000, RelCall)));
    assert_eq!(froms(&mut soft, 0x680, 4), [0, 0x100, 0x1018, 0]);
    assert_eq!(soft.recorded(), 4, "pushes and pops");
}

#[test]
fn other_branches_and_zero_length_calls_leave_the_stack_alone() {
    for mut soft in [haswell(), arch()] {
        soft.retire(&branch(0x100, 0x1000, RelCall));
        for class in [Cond, IndJmp, RelJmp, Other] {
            assert!(!soft.retire(&branch(0x1000, 0x1100, class)), "{class:?}");
        }
        let to_next = Retired { zero_length_call: true, ..branch(0x1100, 0x1105, RelCall) };
        assert!(!soft.retire(&to_next));
        let kernel = Retired { cpl_after: 0, cpl_before: 0, ..branch(0x1, 0x2, RelCall) };
        assert!(!soft.retire(&kernel), "user frames only");
        assert_eq!(soft.recorded(), 1);
    }
}

#[test]
fn more_calls_than_records_lose_the_outermost() {
    let mut soft = haswell();
    for n in 1..=18 {
        soft.retire(&branch(0x100 * n, 0x100 * n + 0x10, RelCall));
    }
    assert_eq!(soft.read(TOS), Ok(2));
    // 17 and 18 overwrite the slots of 1 and 2.
    assert_eq!(froms(&mut soft, 0x680, 4), [0x1000, 0x1100, 0x1200, 0x300]);
    for _ in 0..16 {
        soft.retire(&branch(0x5000, 0x6000, Ret));
    }
    assert_eq!(froms(&mut soft, 0x680, 16), [0; 16]);
    assert_eq!(soft.read(TOS), Ok(2));
    // Two returns more than records: TOS keeps falling.
    assert!(soft.retire(&branch(0x5000, 0x6000, Ret)));
    assert_eq!(soft.read(TOS), Ok(1));
    soft.retire(&branch(0x77, 0x88, RelCall));
    assert_eq!(soft.read(TOS), Ok(2));
    assert_eq!(soft.read(Msr(0x682)), Ok(0x77));
}

#[test]
fn arch_shifts_down_on_calls_and_up_on_returns() {
    let mut soft = arch();
    for n in 1..=34 {
        soft.retire(&branch(0x100 * n, 0x10, IndCall));
    }
    assert_eq!(froms(&mut soft, 0x1500, 2), [0x2200, 0x2100]);
    assert_eq!(soft.read(Msr(0x151F)), Ok(0x300));
    soft.retire(&branch(0x9, 0x8, Ret));
    assert_eq!(froms(&mut soft, 0x1500, 2), [0x2100, 0x2000]);
    assert_eq!(froms(&mut soft, 0x151E, 2), [0x300, 0], "nothing comes back at the far end");
    assert_eq!(soft.read(Msr(0x161F)), Ok(0));
    assert_eq!(soft.read(Msr(0x121F)), Ok(0));
}

/// SDM 17.9: with any other combination the contents are undefined.
#[test]
fn undefined_combinations_record_nothing() {
    for value in [0x200, 0x2C5, 0x2C6, 0x3C7, 0x3CD, 0x3D5, 0x3E5, 0x3C1, 0x385, 0x345] {
        let mut soft = haswell();
        soft.write(SELECT, value).unwrap();
        for class in [Cond, IndJmp, RelJmp, IndCall, RelCall, Ret, Other] {
            assert!(!soft.retire(&branch(1, 2, class)), "{value:#x} {class:?}");
        }
        assert_eq!(froms(&mut soft, 0x680, 16), [0; 16]);
    }
    for value in [0x3C4, 0x3C5, 0x3C6] {
        let mut soft = haswell();
        soft.write(SELECT, value).unwrap();
        let kernel = Retired { cpl_after: 0, ..branch(1, 2, RelCall) };
        let kept = [soft.retire(&branch(1, 2, RelCall)), soft.retire(&kernel)];
        assert!(kept.contains(&true), "{value:#x}");
    }
    for value in [0x7F_000D, 0x00_000D, 0x18_000D, 0x39_000D] {
        let mut soft = arch();
        soft.write(LBR_CTL, value).unwrap();
        assert!(!soft.retire(&branch(1, 2, RelCall)));
    }
}

#[test]
fn both_rings_have_frames_if_neither_is_suppressed() {
    let mut soft = haswell();
    soft.write(SELECT, 0x3C4).unwrap();
    let kernel = Retired { cpl_after: 0, cpl_before: 0, ..branch(0x10, 0x20, RelCall) };
    assert!(soft.retire(&kernel));
    soft.write(SELECT, 0x3C6).unwrap();
    assert!(soft.retire(&kernel));
    assert!(!soft.retire(&branch(0x10, 0x20, RelCall)));
}

#[test]
fn sandy_bridge_has_no_bit_9() {
    let mut soft = SoftLbr::new(&by_hand::sandy_bridge(), None);
    assert!(soft.write(SELECT, 0x3C5).is_err());
    let mut caps = by_hand::golden_cove();
    caps.filter = FilterRegister::LbrCtl { cpl: true, branch: true, call_stack: false };
    assert!(SoftLbr::new(&caps, None).write(LBR_CTL, 0x38_000D).is_err());
}
