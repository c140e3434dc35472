//! Restoring the previous state, also after failures.

use lbr_msr::access::{Access, MsrError};
use lbr_msr::address::Msr;
use lbr_msr::arm::{ArmOptions, ArmPlan, ChangedControl, Restored};
use lbr_msr::caps::{LbrCaps, Quirks};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};
use proptest::prelude::*;

use crate::caps_by_hand::{
    self as by_hand, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, LBR_DEPTH, SELECT, STATUS, STATUS_RESET,
};
use crate::faulty::Faulty;

const STATUS_SET: Msr = Msr(0x391);

fn plan(caps: &LbrCaps, value: u64) -> ArmPlan {
    ArmPlan::new(caps, value, ArmOptions::default()).unwrap()
}

fn jump(n: u64) -> Retired {
    Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelJmp)
}

#[test]
fn another_programs_filter_is_left_alone() {
    let caps = by_hand::skylake();
    let plan = plan(&caps, 0x101);
    let mut soft = SoftLbr::new(&caps, Some(5));
    let saved = plan.save(&mut soft).unwrap();
    plan.arm(&mut soft, &saved).unwrap();
    soft.write(SELECT, 0x1F9).unwrap();
    soft.retire(&Retired { class: HwBranchType::Cond, ..jump(1) });
    assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored { foreign: true, control: None }));
    assert_eq!(soft.read(Msr(0x681)), Ok(0x1001), "and so are the records");
    assert_eq!((soft.read(SELECT), soft.read(DEBUGCTL)), (Ok(0x1F9), Ok(0)));

    let caps = by_hand::golden_cove();
    let plan = self::plan(&caps, 0x3F_0005);
    let mut soft = SoftLbr::new(&caps, Some(0x3F));
    let saved = plan.save(&mut soft).unwrap();
    plan.arm(&mut soft, &saved).unwrap();
    soft.write(LBR_CTL, 0x7F_0007).unwrap();
    assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored { foreign: true, control: None }));
    assert_eq!(soft.read(LBR_CTL), Ok(0x7F_0007));
}

/// A depth is somebody else's if it is neither ours nor that of before.
#[test]
fn another_programs_depth_is_left_alone() {
    let caps = by_hand::golden_cove();
    let options = ArmOptions { freeze_on_pmi: false, depth: Some(16) };
    let plan = ArmPlan::new(&caps, 0x3F_0005, options).unwrap();
    for (set, foreign, left) in [(None, false, 32), (Some(32), false, 32), (Some(8), true, 8)] {
        let mut soft = SoftLbr::new(&caps, Some(0x3F));
        assert_eq!(soft.read(LBR_DEPTH), Ok(32));
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(LBR_DEPTH), Ok(16));
        if let Some(depth) = set {
            soft.write(LBR_DEPTH, depth).unwrap();
        }
        assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored { foreign, control: None }));
        assert_eq!((soft.read(LBR_DEPTH), soft.read(LBR_CTL)), (Ok(left), Ok(0)));
    }
}

/// Code of other people may set any bit. None of them stays set.
#[test]
fn an_exclusive_plan_restores_the_whole_control_register() {
    for (caps, value, perf, control, before, found) in [
        (by_hand::skylake(), 0x101, Some(5), DEBUGCTL, 2, 0x8C3),
        (by_hand::golden_cove(), 0x3F_0005, Some(0x3F), LBR_CTL, 0, 0x7F_0007),
        (by_hand::zen4(), 0x101, None, DBG_EXTN_CFG, 0, 0x52),
    ] {
        let plan = plan(&caps, value).exclusive();
        let mut soft = SoftLbr::new(&caps, perf);
        soft.write(control, before).unwrap();
        let before = soft.read(control).unwrap();
        let saved = plan.save(&mut soft).unwrap();
        let armed = plan.arm(&mut soft, &saved).unwrap();
        assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored::default()), "{control}");
        plan.arm(&mut soft, &saved).unwrap();
        soft.write(control, found).unwrap();
        let found = soft.read(control).unwrap();
        assert_ne!((found, found), (before, armed.control), "{control}");
        let changed = ChangedControl { msr: control, found, before };
        let restored = plan.restore(&mut soft, &saved);
        assert_eq!(restored, Ok(Restored { foreign: false, control: Some(changed) }));
        assert_eq!(soft.read(control), Ok(before));
    }
}

/// FREEZE_LBRS_ON_PMI in the control register is then its own change.
#[test]
fn an_exclusive_plan_that_freezes_on_pmi_finds_no_change_of_its_own() {
    let options = ArmOptions { freeze_on_pmi: true, depth: None };
    for (caps, value, perf) in
        [(by_hand::skylake(), 0x101, 5), (by_hand::golden_cove(), 0x7F_0005, 0x3F)]
    {
        let plan = ArmPlan::new(&caps, value, options).unwrap().exclusive();
        let mut soft = SoftLbr::new(&caps, Some(perf));
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(DEBUGCTL).unwrap() >> 11, 1);
        assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored::default()));
        assert_eq!(soft.read(DEBUGCTL), Ok(0));
    }
}

/// The recorder dies before its first write: the watchdog restores
/// unchanged registers.
#[test]
fn an_exclusive_plan_that_was_never_armed_reports_no_change() {
    let caps = by_hand::golden_cove();
    let plan = plan(&caps, 0x3F_0005).exclusive();
    let mut soft = SoftLbr::new(&caps, Some(0x3F));
    soft.write(LBR_CTL, 0x7F_0006).unwrap();
    let saved = plan.save(&mut soft).unwrap();
    assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored::default()));
    assert_eq!(soft.read(LBR_CTL), Ok(0x7F_0006));
}

/// An LBR_FRZ that our freeze bit caused is cleared.
#[test]
fn a_freeze_by_pmi_is_released() {
    let mut zen4 = by_hand::zen4();
    zen4.quirks |= Quirks::STREAMLINED_FREEZE;
    let rows = [
        (by_hand::skylake(), 0x101, Some(5), STATUS),
        (by_hand::golden_cove(), 0x7F_0005, Some(0x3F), STATUS),
        (zen4, 0x101, None, Msr(0xC000_0300)),
    ];
    for (caps, value, perf, status) in rows {
        let options = ArmOptions { freeze_on_pmi: true, depth: None };
        let plan = ArmPlan::new(&caps, value, options).unwrap();
        let mut soft = SoftLbr::new(&caps, perf);
        let saved = plan.save(&mut soft).unwrap();
        let armed = plan.arm(&mut soft, &saved).unwrap();
        soft.pmi();
        let frozen = plan.freeze(&mut soft, &armed).unwrap();
        assert!(frozen.frozen_by_pmi());
        plan.thaw(&mut soft, &frozen).unwrap();
        assert!(soft.retire(&jump(1)));
        soft.pmi();
        assert_eq!(soft.read(status), Ok(1 << 58));
        plan.restore(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(status), Ok(0));
        assert_eq!(soft.read(DEBUGCTL), Ok(0));
    }
}

/// An LBR_FRZ that was set before is somebody else's freeze.
#[test]
fn a_freeze_from_before_stays() {
    let rows = [(by_hand::skylake(), 0x101, 5), (by_hand::golden_cove(), 0x7F_0005, 0x3F)];
    for (caps, value, perf) in rows {
        let options = ArmOptions { freeze_on_pmi: true, depth: None };
        let plan = ArmPlan::new(&caps, value, options).unwrap();
        let mut soft = SoftLbr::new(&caps, Some(perf));
        soft.write(STATUS_SET, 1 << 58).unwrap();
        let saved = plan.save(&mut soft).unwrap();
        // Arming releases it; its owner freezes again.
        plan.arm(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(STATUS), Ok(0));
        soft.write(STATUS_SET, 1 << 58).unwrap();
        plan.restore(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(STATUS), Ok(1 << 58));
    }
}

/// Without FREEZE_LBRS_ON_PMI of ours, an LBR_FRZ is somebody else's freeze.
#[test]
fn a_freeze_that_others_caused_stays() {
    let rows = [(by_hand::skylake(), 0x101, 5), (by_hand::golden_cove(), 0x7F_0005, 0x3F)];
    for (caps, value, perf) in rows {
        let plan = plan(&caps, value);
        let mut soft = SoftLbr::new(&caps, Some(perf));
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        soft.write(STATUS_SET, 1 << 58).unwrap();
        plan.restore(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(STATUS), Ok(1 << 58));
    }
}

/// Recording stays off until the filter and the records are restored. The freeze is released after
/// FREEZE_LBRS_ON_PMI is cleared, or the next PMI would freeze again.
#[test]
fn a_restore_has_its_order() {
    let options = ArmOptions { freeze_on_pmi: true, depth: None };
    let records: Vec<Msr> =
        (0..32).flat_map(|i| [0x680, 0x6C0, 0xDC0].map(|first| Msr(first + i))).collect();
    let skylake = [&[DEBUGCTL, SELECT], &records[..], &[DEBUGCTL, STATUS_RESET]].concat();
    let golden_cove = vec![LBR_CTL, LBR_DEPTH, LBR_CTL, DEBUGCTL, STATUS_RESET];
    for (caps, value, perf, expected) in [
        (by_hand::skylake(), 0x101, 5, skylake),
        (by_hand::golden_cove(), 0x7F_0005, 0x3F, golden_cove),
    ] {
        let plan = ArmPlan::new(&caps, value, options).unwrap();
        let mut log = Faulty::new(SoftLbr::new(&caps, Some(perf)), 0..0);
        let saved = plan.save(&mut log).unwrap();
        plan.arm(&mut log, &saved).unwrap();
        log.soft.pmi();
        log.log.clear();
        plan.restore(&mut log, &saved).unwrap();
        let written = log.log.iter().filter(|(access, _)| *access == Access::Write);
        assert_eq!(written.map(|(_, msr)| *msr).collect::<Vec<_>>(), expected);
    }
}

/// FREEZE_LBRS_ON_PMI is ours only if arming changed it.
#[test]
fn a_freeze_bit_that_was_set_before_is_not_set_again() {
    let caps = by_hand::nehalem();
    let options = ArmOptions { freeze_on_pmi: true, depth: None };
    let plan = ArmPlan::new(&caps, 0x101, options).unwrap();
    let mut soft = SoftLbr::new(&caps, Some(3));
    soft.write(DEBUGCTL, 0x800).unwrap();
    let saved = plan.save(&mut soft).unwrap();
    plan.arm(&mut soft, &saved).unwrap();
    soft.write(DEBUGCTL, 0x001).unwrap(); // its owner clears it
    plan.restore(&mut soft, &saved).unwrap();
    assert_eq!(soft.read(DEBUGCTL), Ok(0));
}

#[test]
fn disarming_disables_recording_whoever_enabled_it() {
    let rows = [
        (by_hand::skylake(), 0x101_u64),
        (by_hand::zen4(), 0x101),
        (by_hand::golden_cove(), 0x7F_0007),
    ];
    for (caps, value) in rows {
        let mut soft = SoftLbr::new(&caps, Some(5));
        let saved = plan(&caps, value).save(&mut soft).unwrap();
        plan(&caps, value).arm(&mut soft, &saved).unwrap();
        soft.retire(&jump(1));
        let any = if caps.registers.control == LBR_CTL { 0x7F_0005 } else { 0 };
        plan(&caps, any).disarm(&mut soft).unwrap();
        assert!(!soft.retire(&jump(2)));
        assert_eq!(soft.read(caps.registers.select.unwrap()), Ok(0));
        for i in 0..caps.depth {
            assert_eq!(soft.read(caps.registers.from_at(i)), Ok(0));
        }
    }
}

#[test]
fn disarming_continues_after_failures_and_reports_the_first() {
    let caps = by_hand::nehalem();
    let plan = plan(&caps, 0x101);
    let mut soft = SoftLbr::new(&caps, Some(3));
    let saved = plan.save(&mut soft).unwrap();
    plan.arm(&mut soft, &saved).unwrap();
    soft.retire(&jump(1));
    // Of DEBUGCTL and LBR_SELECT.
    let mut faulty = Faulty::new(soft, 0..2);
    let error = MsrError::WriteFiltered { msr: DEBUGCTL, why: "off".into() };
    assert_eq!(plan.disarm(&mut faulty), Err(error));
    assert!(no_records(&mut faulty.soft, &caps));
}

/// Registers that must be restored, and the values of those that must not.
fn ours(soft: &mut SoftLbr, caps: &LbrCaps) -> Vec<u64> {
    let mut registers = vec![caps.registers.control, DEBUGCTL];
    registers.extend(caps.registers.select);
    registers.extend(caps.registers.depth);
    registers.into_iter().map(|msr| soft.read(msr).unwrap()).collect()
}

fn no_records(soft: &mut SoftLbr, caps: &LbrCaps) -> bool {
    (0..caps.depth).all(|i| {
        let map = caps.registers;
        [Some(map.from_at(i)), map.to_at(i), map.info_at(i)]
            .into_iter()
            .flatten()
            .all(|msr| matches!(soft.read(msr), Ok(0) | Err(_)))
    })
}

/// A CPU with some initial state, the plan to arm it, and its capabilities.
fn scenario(which: usize, debugctl: u64, other: u64, freeze: bool) -> (SoftLbr, ArmPlan, LbrCaps) {
    let (caps, value, perf, before) = match which {
        0 => (by_hand::nehalem(), 0x101, Some(0x1003), other & 0x1FF),
        1 => (by_hand::skylake(), 0x001, Some(0x33C5), other & 0x1FF),
        2 => (by_hand::golden_cove(), 0x3F_0005, Some(0x103F), other & 0x7F_0007),
        _ => (by_hand::zen4(), 0x101, None, other & 0x1FF),
    };
    let freeze_on_pmi = freeze && which != 3;
    let options = ArmOptions { freeze_on_pmi, depth: (which == 2).then_some(16) };
    let plan = ArmPlan::new(&caps, value, options).unwrap();
    let mut soft = SoftLbr::new(&caps, perf);
    let valid = if which == 3 { 0x3F } else { 0x5FC3 };
    soft.write(DEBUGCTL, debugctl & valid).unwrap();
    soft.write(caps.registers.select.unwrap(), before).unwrap();
    if which == 3 {
        soft.write(DBG_EXTN_CFG, other).unwrap();
    }
    (soft, plan, caps)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// After arming, use and a restore while others change their bits, ours have their old values
    /// and theirs the new ones.
    #[test]
    fn restore_changes_only_our_bits(
        which in 0_usize..4,
        debugctl in any::<u64>(),
        theirs in any::<u64>(),
        other in any::<u64>(),
        freeze in any::<bool>(),
    ) {
        let (mut soft, plan, caps) = scenario(which, debugctl, other, freeze);
        let before = ours(&mut soft, &caps);
        let saved = plan.save(&mut soft).unwrap();
        let armed = plan.arm(&mut soft, &saved).unwrap();
        soft.retire(&jump(1));
        plan.freeze(&mut soft, &armed).unwrap();
        // BTF, BTS, BTINT etc. change while armed.
        let change = theirs & if which == 3 { 0x3E } else { 0x17C2 };
        let now = soft.read(DEBUGCTL).unwrap();
        soft.write(DEBUGCTL, now ^ change).unwrap();
        prop_assert_eq!(plan.restore(&mut soft, &saved), Ok(Restored::default()));
        let mut expected = before;
        if caps.registers.control == DEBUGCTL {
            expected[0] ^= change;
        }
        expected[1] ^= change;
        prop_assert_eq!(ours(&mut soft, &caps), expected);
        prop_assert!(no_records(&mut soft, &caps));
        // A second restore changes nothing.
        let after = ours(&mut soft, &caps);
        plan.restore(&mut soft, &saved).unwrap();
        prop_assert_eq!(ours(&mut soft, &caps), after);
    }

    /// Arming fails at each of its writes, and a restore follows.
    #[test]
    fn interrupted_arming_is_undone(
        which in 0_usize..4,
        debugctl in any::<u64>(),
        other in any::<u64>(),
        freeze in any::<bool>(),
    ) {
        let (_, plan, _) = scenario(which, debugctl, other, freeze);
        for step in 0..plan.arm_steps().len() {
            let (mut soft, plan, caps) = scenario(which, debugctl, other, freeze);
            let before = ours(&mut soft, &caps);
            let mut faulty = Faulty::new(soft, step..step + 1);
            let saved = plan.save(&mut faulty).unwrap();
            prop_assert!(plan.arm(&mut faulty, &saved).is_err());
            prop_assert_eq!(plan.restore(&mut faulty, &saved), Ok(Restored::default()));
            prop_assert_eq!(ours(&mut faulty.soft, &caps), before, "failed at {}", step);
        }
    }

    #[test]
    fn restoring_architectural_lbr_continues_after_a_failure(at in 0_usize..4) {
        let (mut soft, plan, caps) = scenario(2, 0, 0, true);
        let before = ours(&mut soft, &caps);
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        soft.retire(&jump(1));
        let mut faulty = Faulty::new(soft, at..at + 1);
        prop_assert!(plan.restore(&mut faulty, &saved).is_err());
        let left: Vec<bool> =
            ours(&mut faulty.soft, &caps).iter().zip(&before).map(|(a, b)| a != b).collect();
        // LBR_CTL off, DEPTH, LBR_CTL, DEBUGCTL: only the failed write is missing, and the third
        // makes up for the first.
        let expected = match at {
            1 => [false, false, false, true],
            2 => [true, false, true, false],
            3 => [false, true, false, false],
            _ => [false; 4],
        };
        prop_assert_eq!(left, expected);
        plan.restore(&mut faulty, &saved).unwrap();
        prop_assert_eq!(ours(&mut faulty.soft, &caps), before);
        prop_assert!(no_records(&mut faulty.soft, &caps));
    }

    /// A failed write does not stop the rest of a restore.
    #[test]
    fn restore_continues_after_a_failure(at in 0_usize..35) {
        let (mut soft, plan, caps) = scenario(0, 0, 0, true);
        let before = ours(&mut soft, &caps);
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        for n in 0..16 {
            soft.retire(&jump(n));
        }
        let mut faulty = Faulty::new(soft, at..at + 1);
        let result = plan.restore(&mut faulty, &saved);
        prop_assert!(result.is_err());
        if at < 34 {
            prop_assert_eq!(faulty.soft.read(DEBUGCTL), Ok(before[0]));
        }
        plan.restore(&mut faulty, &saved).unwrap();
        prop_assert_eq!(ours(&mut faulty.soft, &caps), before);
        prop_assert!(no_records(&mut faulty.soft, &caps));
    }
}
