//! Arming, freezing and restoring, and the registers written in between.

use lbr_msr::access::{Access, MsrError};
use lbr_msr::address::Msr;
use lbr_msr::arm::{ArmError, ArmOptions, ArmPlan, ArmStep};
use lbr_msr::caps::{FilterRegister, LbrCaps, Quirks};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{
    self as by_hand, AMD_SELECT, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, LBR_DEPTH, SELECT, STATUS,
    STATUS_RESET,
};
use crate::faulty::Faulty;

const FREEZE: u64 = 1 << 11;
const FREEZING: ArmOptions = ArmOptions { freeze_on_pmi: true, depth: None };

fn plan(caps: &LbrCaps, value: u64) -> ArmPlan {
    ArmPlan::new(caps, value, ArmOptions::default()).unwrap()
}

fn refused(caps: &LbrCaps, value: u64, options: ArmOptions) -> ArmError {
    ArmPlan::new(caps, value, options).unwrap_err()
}

fn jump(n: u64) -> Retired {
    Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelJmp)
}

#[test]
fn the_filter_comes_before_enabling_and_the_ring_is_emptied_between() {
    let steps = plan(&by_hand::nehalem(), 0x101).arm_steps();
    assert_eq!(steps[0], ArmStep::Clear { msr: DEBUGCTL, bits: 1 });
    assert_eq!(steps[1], ArmStep::Write { msr: SELECT, value: 0x101 });
    assert_eq!(steps[2], ArmStep::Write { msr: Msr(0x680), value: 0 });
    assert_eq!(steps[3], ArmStep::Write { msr: Msr(0x6C0), value: 0 });
    assert_eq!(steps[33], ArmStep::Write { msr: Msr(0x6CF), value: 0 });
    assert_eq!(steps[34..], [ArmStep::Set { msr: DEBUGCTL, bits: 1 }]);

    let steps = plan(&by_hand::golden_cove(), 0x3F_0005).arm_steps();
    assert_eq!(
        steps,
        [
            ArmStep::Write { msr: LBR_CTL, value: 0x3F_0004 },
            ArmStep::Write { msr: LBR_DEPTH, value: 32 },
            ArmStep::Write { msr: LBR_CTL, value: 0x3F_0005 },
        ]
    );
    let frozen = ArmPlan::new(&by_hand::skylake(), 0x101, FREEZING).unwrap().arm_steps();
    assert_eq!(frozen.last(), Some(&ArmStep::Set { msr: DEBUGCTL, bits: 0x801 }));

    let steps = plan(&by_hand::zen4(), 0x101).arm_steps();
    assert_eq!(steps[0], ArmStep::Clear { msr: DBG_EXTN_CFG, bits: 0x40 });
    assert_eq!(steps[1], ArmStep::Write { msr: AMD_SELECT, value: 0x101 });
    assert_eq!(steps[2], ArmStep::Write { msr: Msr(0xC001_0300), value: 0 });
    assert_eq!(steps[33], ArmStep::Write { msr: Msr(0xC001_031F), value: 0 });
    assert_eq!(steps[34..], [ArmStep::Set { msr: DBG_EXTN_CFG, bits: 0x40 }]);
}

#[test]
fn facilities_with_read_only_records_are_refused_by_name() {
    let rows = [
        (by_hand::p6(), "p6"),
        (by_hand::prescott(), "netburst"),
        (by_hand::willamette(), "netburst"),
        (by_hand::zen3(), "amd_brs"),
        (by_hand::zen2(), "amd_single"),
    ];
    for (caps, name) in rows {
        let error = refused(&caps, 0, ArmOptions::default());
        assert!(matches!(error, ArmError::NoRing { .. }), "{error}");
        assert!(error.to_string().starts_with(name), "{error}");
    }
}

#[test]
fn unsupported_filters_are_refused() {
    let none = ArmOptions::default();
    assert!(matches!(refused(&by_hand::core2(), 0x101, none), ArmError::NoFilter { .. }));
    assert!(ArmPlan::new(&by_hand::core2(), 0, none).is_ok());
    let error = refused(&by_hand::sandy_bridge(), 0x3C5, none);
    assert!(matches!(error, ArmError::FilterBits { msr: SELECT, valid: 0x1FF, .. }));
    assert!(matches!(refused(&by_hand::zen4(), 0x200, none), ArmError::FilterBits { .. }));
    assert!(matches!(refused(&by_hand::skylake(), 0x400, none), ArmError::FilterBits { .. }));
    assert!(matches!(refused(&by_hand::golden_cove(), 0x10, none), ArmError::FilterBits { .. }));
    let mut bare = by_hand::golden_cove();
    bare.filter = FilterRegister::LbrCtl { cpl: true, branch: false, call_stack: false };
    assert!(matches!(refused(&bare, 0x7F_0005, none), ArmError::FilterBits { valid: 7, .. }));
    for bad in [0x200, 0x2C5, 0x3C7] {
        assert!(matches!(
            refused(&by_hand::skylake(), bad, none),
            ArmError::UndefinedCallStack { .. }
        ));
    }
    assert!(matches!(
        refused(&by_hand::golden_cove(), 0x7F_000D, none),
        ArmError::UndefinedCallStack { .. }
    ));
}

#[test]
fn freezing_on_pmi_has_its_conditions() {
    for (caps, value) in [(by_hand::skylake(), 0x3C5), (by_hand::golden_cove(), 0x38_000D)] {
        assert!(plan(&caps, value).call_stack());
        assert_eq!(refused(&caps, value, FREEZING), ArmError::CallStackWithFreeze);
    }
    let mut early = by_hand::bonnell();
    early.quirks = Quirks::NO_FREEZE_ON_PMI;
    let mut no_perfmon = by_hand::nehalem();
    no_perfmon.perfmon_version = 1;
    let mut no_capabilities = by_hand::nehalem();
    no_capabilities.format = None;
    for caps in [early, no_perfmon, no_capabilities, by_hand::pentium_m(), by_hand::zen4()] {
        assert!(matches!(refused(&caps, 0, FREEZING), ArmError::NoFreeze { .. }));
    }
    assert!(ArmPlan::new(&by_hand::bonnell(), 0, FREEZING).is_ok());
}

#[test]
fn depth_is_one_of_those_offered() {
    let with = |depth| ArmOptions { freeze_on_pmi: false, depth: Some(depth) };
    for depth in [8, 16, 32] {
        let plan = ArmPlan::new(&by_hand::golden_cove(), 0x7F_0005, with(depth)).unwrap();
        assert_eq!(plan.depth(), depth);
    }
    for depth in [0, 1, 12, 24, 40, 64, u32::MAX] {
        let error = refused(&by_hand::golden_cove(), 0x7F_0005, with(depth));
        assert!(error.to_string().ends_with("it can keep 8, 16, 32"), "{error}");
    }
    assert!(ArmPlan::new(&by_hand::skylake(), 0, with(32)).is_ok());
    let error = refused(&by_hand::skylake(), 0, with(16));
    assert!(error.to_string().ends_with("it can keep 32"), "{error}");
    // A mask that lists more than the CPU has.
    let mut shallow = by_hand::golden_cove();
    shallow.depth = 16;
    assert!(ArmPlan::new(&shallow, 0x7F_0005, with(8)).is_ok());
    assert!(matches!(refused(&shallow, 0x7F_0005, with(32)), ArmError::Depth { depth: 16, .. }));
}

#[test]
fn intel_pt_and_branch_traces_are_conflicts() {
    let plan = plan(&by_hand::broadwell(), 0x101);
    let mut soft = SoftLbr::new(&by_hand::broadwell(), Some(4)).on_cpu(7);
    assert!(plan.save(&mut soft).is_ok());
    soft.write(Msr(0x570), 0x2000).unwrap();
    assert!(plan.save(&mut soft).is_ok(), "TraceEn is 0");
    soft.write(Msr(0x570), 1).unwrap();
    assert_eq!(plan.save(&mut soft), Err(ArmError::IntelPt { cpu: 7 }));
    // If Linux excludes the two, arming is refused too. The LBR's behaviour under TraceEn is
    // undocumented there, so the software LBR keeps recording.
    let mut coffee_lake = by_hand::skylake();
    coffee_lake.cpu.model = 0x9E;
    coffee_lake.quirks.remove(Quirks::PT_DISABLES);
    coffee_lake.quirks.insert(Quirks::PT_EXCLUDES);
    let excluded = ArmPlan::new(&coffee_lake, 0x101, ArmOptions::default()).unwrap();
    let mut registers = SoftLbr::new(&coffee_lake, Some(5));
    registers.write(Msr(0x1C8), 0x101).unwrap();
    assert!(excluded.save(&mut registers).is_ok());
    registers.write(Msr(0x570), 1).unwrap();
    assert_eq!(excluded.save(&mut registers), Err(ArmError::IntelPt { cpu: 0 }));
    assert_eq!(registers.read(Msr(0x1C8)), Ok(0x101));
    // A hypervisor that hides Intel PT: RTIT_CTL faults.
    let mut hidden = SoftLbr::new(&by_hand::haswell(true), Some(4));
    assert!(plan.save(&mut hidden).is_ok());

    let plan = ArmPlan::new(&by_hand::core2(), 0, ArmOptions::default()).unwrap();
    let mut soft = SoftLbr::new(&by_hand::core2(), Some(0x10C2)).on_cpu(2);
    soft.write(DEBUGCTL, 0x40).unwrap();
    assert_eq!(plan.save(&mut soft), Err(ArmError::BranchTrace { cpu: 2 }));
}

#[test]
fn saving_reports_other_users_and_writes_nothing() {
    let plan = plan(&by_hand::skylake(), 0x101);
    for (debugctl, select, in_use) in
        [(0, 0, false), (0x2, 0, false), (1, 0, true), (FREEZE, 0, true), (0, 1, true)]
    {
        let mut soft = SoftLbr::new(&by_hand::skylake(), Some(5));
        soft.write(SELECT, select).unwrap();
        soft.write(DEBUGCTL, debugctl).unwrap();
        let mut log = Faulty::new(soft, 0..usize::MAX);
        assert_eq!(plan.save(&mut log).unwrap().in_use, in_use);
        let read: Vec<Msr> = log.log.iter().map(|(_, msr)| *msr).collect();
        assert_eq!(read, plan.saved_registers());
        assert_eq!(log.writes, 0);
    }
}

/// Where LBR_CTL controls recording, DEBUGCTL is checked, too.
#[test]
fn a_freeze_on_pmi_of_others_is_a_use_of_the_lbr() {
    let plan = ArmPlan::new(&by_hand::golden_cove(), 0x7F_0005, FREEZING).unwrap();
    for (debugctl, in_use) in [(0, false), (2, false), (FREEZE, true)] {
        let mut soft = SoftLbr::new(&by_hand::golden_cove(), Some(0x3F));
        soft.write(DEBUGCTL, debugctl).unwrap();
        assert_eq!(plan.save(&mut soft).unwrap().in_use, in_use, "{debugctl:#x}");
    }
}

/// Only a fault shows that a hypervisor hides a register.
#[test]
fn a_register_that_cannot_be_read_now_is_not_hidden() {
    struct Unreadable(SoftLbr, Msr, MsrError);
    impl MsrRead for Unreadable {
        fn cpu(&self) -> u32 {
            0
        }
        fn read(&mut self, msr: Msr) -> Result<u64, MsrError> {
            if msr == self.1 { Err(self.2.clone()) } else { self.0.read(msr) }
        }
    }
    for (caps, msr) in [(by_hand::broadwell(), Msr(0x570)), (by_hand::skylake(), STATUS)] {
        let plan = ArmPlan::new(&caps, 0x101, FREEZING).unwrap();
        for (error, is_hidden) in [
            (MsrError::Fault { cpu: 0, msr, access: Access::Read }, true),
            (MsrError::Offline { cpu: 0 }, false),
        ] {
            let soft = SoftLbr::new(&caps, None);
            let saved = plan.save(&mut Unreadable(soft, msr, error.clone()));
            assert_eq!(saved.is_ok(), is_hidden, "{msr} {error}: {saved:?}");
        }
    }
}

#[test]
fn freeze_and_thaw_cost_three_accesses_and_report_interference() {
    let plan = plan(&by_hand::skylake(), 0x001);
    let mut log = Faulty::new(SoftLbr::new(&by_hand::skylake(), Some(5)), 0..0);
    let saved = plan.save(&mut log).unwrap();
    let armed = plan.arm(&mut log, &saved).unwrap();
    assert!(log.soft.retire(&jump(1)));
    log.log.clear();
    let frozen = plan.freeze(&mut log, &armed).unwrap();
    assert!(!frozen.stopped && !frozen.foreign);
    assert!(!log.soft.retire(&jump(2)));
    let armed = plan.thaw(&mut log, &frozen).unwrap();
    assert!(log.soft.retire(&jump(3)));
    use Access::{Read, Write};
    assert_eq!(log.log, [(Read, DEBUGCTL), (Write, DEBUGCTL), (Write, DEBUGCTL)]);

    // #DB has cleared the bit already.
    log.soft.debug_exception();
    log.log.clear();
    let frozen = plan.freeze(&mut log, &armed).unwrap();
    assert!(frozen.stopped && !frozen.foreign);
    assert_eq!(log.log, [(Read, DEBUGCTL)]);
    let armed = plan.thaw(&mut log, &frozen).unwrap();
    assert!(log.soft.retire(&jump(4)), "a thaw enables recording again");

    // perf comes, sets its freeze bit, and a PMI hits.
    log.soft.write(DEBUGCTL, FREEZE | 1).unwrap();
    log.soft.pmi();
    let frozen = plan.freeze(&mut log, &armed).unwrap();
    assert!(frozen.foreign && frozen.stopped && frozen.frozen_by_pmi());
    assert_eq!(frozen.status, Some(1 << 58));
    plan.thaw(&mut log, &frozen).unwrap();
    assert_eq!(log.soft.read(STATUS), Ok(0));
    assert!(log.soft.retire(&jump(5)));
}

#[test]
fn arch_freeze_sees_lbr_frz_and_a_foreign_filter() {
    let caps = by_hand::golden_cove();
    let plan = ArmPlan::new(&caps, 0x3F_0005, FREEZING).unwrap();
    let mut soft = SoftLbr::new(&caps, Some(0x3F));
    let saved = plan.save(&mut soft).unwrap();
    let armed = plan.arm(&mut soft, &saved).unwrap();
    assert_eq!((soft.read(DEBUGCTL), soft.read(LBR_CTL)), (Ok(FREEZE), Ok(0x3F_0005)));
    soft.pmi();
    let frozen = plan.freeze(&mut soft, &armed).unwrap();
    assert!(frozen.stopped && frozen.frozen_by_pmi() && !frozen.foreign);
    let armed = plan.thaw(&mut soft, &frozen).unwrap();
    assert!(soft.retire(&jump(1)));
    soft.write(LBR_CTL, 0x7F_0007).unwrap();
    assert!(plan.freeze(&mut soft, &armed).unwrap().foreign);
}

/// A bit that others clear is as foreign as one that they set.
#[test]
fn a_control_bit_that_others_cleared_is_foreign() {
    let caps = by_hand::skylake();
    let plan = plan(&caps, 0x101);
    let mut soft = SoftLbr::new(&caps, Some(5));
    soft.write(DEBUGCTL, 2).unwrap();
    let saved = plan.save(&mut soft).unwrap();
    let armed = plan.arm(&mut soft, &saved).unwrap();
    assert!(!plan.freeze(&mut soft, &armed).unwrap().foreign);
    soft.write(DEBUGCTL, 1).unwrap();
    assert!(plan.freeze(&mut soft, &armed).unwrap().foreign);
}

/// Writing 1 to a bit of IA32_PERF_GLOBAL_STATUS_RESET clears that bit: the counters' overflows
/// are not ours.
#[test]
fn a_thaw_clears_no_other_status_bit() {
    const STATUS_SET: Msr = Msr(0x391);
    let caps = by_hand::skylake();
    let plan = ArmPlan::new(&caps, 0, FREEZING).unwrap();
    let mut soft = SoftLbr::new(&caps, Some(5));
    let saved = plan.save(&mut soft).unwrap();
    let armed = plan.arm(&mut soft, &saved).unwrap();
    soft.pmi();
    // CTR_FRZ.
    soft.write(STATUS_SET, 1 << 59).unwrap();
    let frozen = plan.freeze(&mut soft, &armed).unwrap();
    plan.thaw(&mut soft, &frozen).unwrap();
    assert_eq!(soft.read(STATUS), Ok(1 << 59));
}

#[test]
fn arming_releases_a_freeze_by_a_pmi() {
    let caps = by_hand::skylake();
    let plan = ArmPlan::new(&caps, 0, FREEZING).unwrap();
    let mut soft = SoftLbr::new(&caps, Some(5));
    soft.write(DEBUGCTL, FREEZE | 1).unwrap();
    soft.pmi();
    let saved = plan.save(&mut soft).unwrap();
    plan.arm(&mut soft, &saved).unwrap();
    assert!(soft.retire(&jump(1)));
}

#[test]
fn without_a_freeze_nothing_is_released() {
    for (caps, value, perf) in
        [(by_hand::skylake(), 0, 5), (by_hand::golden_cove(), 0x7F_0005, 0x3F)]
    {
        let plan = ArmPlan::new(&caps, value, FREEZING).unwrap();
        let mut log = Faulty::new(SoftLbr::new(&caps, Some(perf)), 0..0);
        let saved = plan.save(&mut log).unwrap();
        plan.arm(&mut log, &saved).unwrap();
        plan.restore(&mut log, &saved).unwrap();
        assert!(log.log.contains(&(Access::Read, STATUS)));
        assert!(!log.log.contains(&(Access::Write, STATUS_RESET)));
    }
}

/// Intel PT disables the LBR of some CPUs; from perfmon version 4 on, a PMI freezes by the status.
#[test]
fn all_registers_that_recording_depends_on_are_saved() {
    let saved = |caps: &LbrCaps, value| plan(caps, value).saved_registers();
    assert_eq!(saved(&by_hand::nehalem(), 0), [DEBUGCTL, SELECT]);
    assert_eq!(saved(&by_hand::core2(), 0), [DEBUGCTL]);
    assert_eq!(saved(&by_hand::broadwell(), 0), [Msr(0x570), DEBUGCTL, SELECT]);
    assert_eq!(saved(&by_hand::golden_cove(), 0x7F_0005), [LBR_CTL, LBR_DEPTH, STATUS]);
    assert_eq!(saved(&by_hand::zen4(), 0), [DBG_EXTN_CFG, AMD_SELECT]);
    let frozen =
        |caps: &LbrCaps, value| ArmPlan::new(caps, value, FREEZING).unwrap().saved_registers();
    assert_eq!(frozen(&by_hand::goldmont(), 0), [DEBUGCTL, SELECT, STATUS]);
    let arch = [LBR_CTL, DEBUGCTL, LBR_DEPTH, STATUS];
    assert_eq!(frozen(&by_hand::golden_cove(), 0x7F_0005), arch);
}

#[test]
fn call_stack_mode_clears_the_freeze_bit_and_restores_it() {
    let rows =
        [(by_hand::skylake(), 0x3C5, Some(5)), (by_hand::golden_cove(), 0x38_000D, Some(0x3F))];
    for (caps, value, perf) in rows {
        let plan = plan(&caps, value);
        let mut soft = SoftLbr::new(&caps, perf);
        soft.write(DEBUGCTL, FREEZE | 2).unwrap();
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(DEBUGCTL).unwrap() & FREEZE, 0);
        soft.write(DEBUGCTL, soft.clone().read(DEBUGCTL).unwrap() & !2).unwrap();
        plan.restore(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(DEBUGCTL), Ok(FREEZE), "and leaves BTF, which changed since");

        // A freeze bit that others set meanwhile is theirs.
        let mut soft = SoftLbr::new(&caps, perf);
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        let now = soft.read(DEBUGCTL).unwrap();
        soft.write(DEBUGCTL, now | FREEZE).unwrap();
        plan.restore(&mut soft, &saved).unwrap();
        assert_eq!(soft.read(DEBUGCTL), Ok(FREEZE));
    }
}

#[test]
fn a_status_register_that_is_hidden_is_not_read_again() {
    let mut caps = by_hand::golden_cove();
    let plan = ArmPlan::new(&caps, 0x3F_0005, ArmOptions::default()).unwrap();
    caps.perfmon_version = 0;
    let mut log = Faulty::new(SoftLbr::new(&caps, None), 0..0);
    let saved = plan.save(&mut log).unwrap();
    let armed = plan.arm(&mut log, &saved).unwrap();
    log.log.clear();
    let frozen = plan.freeze(&mut log, &armed).unwrap();
    let armed = plan.thaw(&mut log, &frozen).unwrap();
    plan.freeze(&mut log, &armed).unwrap();
    assert!(log.log.iter().all(|(_, msr)| *msr == LBR_CTL), "{:?}", log.log);
    assert!(!log.log.contains(&(Access::Write, STATUS_RESET)));
}

#[test]
fn registers_beyond_the_highest_address_are_refused() {
    let mut caps = by_hand::skylake();
    caps.registers.to = Some(Msr(u32::MAX - 31));
    let error = refused(&caps, 0, ArmOptions::default());
    assert!(matches!(error, ArmError::Unlisted { .. }), "{error}");
    let mut caps = by_hand::skylake();
    caps.depth = u32::MAX;
    assert!(matches!(refused(&caps, 0, ArmOptions::default()), ArmError::Unlisted { .. }));
}
