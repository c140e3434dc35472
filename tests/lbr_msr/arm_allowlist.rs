//! The registers that may be written while the LBR is armed.

use std::collections::BTreeSet;

use lbr_msr::access::{MsrError, Op};
use lbr_msr::address::Msr;
use lbr_msr::arm::{Allowlisted, ArmError, ArmOptions, ArmPlan, Restored};
use lbr_msr::caps::{Facility, LbrCaps, RegisterMap};
use lbr_msr::probe::{Assumption, RecordedCpuid, probe_assuming};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::table::{unlisted, unlisted_tos};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{self as by_hand, DEBUGCTL, TOS};

fn plan(caps: &LbrCaps, value: u64) -> ArmPlan {
    ArmPlan::new(caps, value, ArmOptions::default()).unwrap()
}

fn jump(n: u64) -> Retired {
    Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelJmp)
}

/// Every register, and whether it can be written.
#[test]
fn the_allowlist_is_exact() {
    let caps = by_hand::nehalem();
    let mut guarded = Allowlisted::new(SoftLbr::new(&caps, Some(3)), &plan(&caps, 0x101));
    let allowed: Vec<u32> = (0..0x2000_u32)
        .chain(0xC000_0000..0xC001_1000)
        .filter(|msr| !matches!(guarded.write(Msr(*msr), 0), Err(MsrError::NotAllowed { .. })))
        .collect();
    let expected: Vec<u32> =
        [0x1C8, 0x1D9].into_iter().chain(0x680..0x690).chain(0x6C0..0x6D0).collect();
    assert_eq!(allowed, expected);
    assert_eq!(guarded.read(Msr(0x345)), Ok(3), "reads are not limited");

    let listed = |caps: &LbrCaps, value, options| {
        let plan = ArmPlan::new(caps, value, options).unwrap();
        plan.allowed().iter().map(|msr| msr.0).collect::<Vec<u32>>()
    };
    let none = ArmOptions::default();
    let eight = ArmOptions { depth: Some(8), freeze_on_pmi: true };
    assert_eq!(
        listed(&by_hand::golden_cove(), 0x7F_0005, eight),
        [0x1D9, 0x390]
            .into_iter()
            .chain(0x1200..0x1208)
            .chain([0x14CE, 0x14CF])
            .chain(0x1500..0x1508)
            .chain(0x1600..0x1608)
            .collect::<Vec<u32>>()
    );
    assert_eq!(
        listed(&by_hand::zen4(), 0x101, none),
        [0xC000_010E, 0xC000_010F]
            .into_iter()
            .chain(0xC001_0300..0xC001_0320)
            .collect::<Vec<u32>>()
    );
    assert_eq!(
        listed(&by_hand::core2(), 0, none),
        [0x40, 0x41, 0x42, 0x43, 0x60, 0x61, 0x62, 0x63, 0x1D9]
    );
}

#[test]
fn a_batch_with_one_forbidden_write_does_not_run() {
    let caps = by_hand::nehalem();
    let mut guarded = Allowlisted::new(SoftLbr::new(&caps, Some(3)), &plan(&caps, 0));
    let mut batch =
        [Op::Write { msr: DEBUGCTL, value: 1 }, Op::Write { msr: Msr(0x1C9), value: 0 }];
    assert_eq!(guarded.run(&mut batch), Err(MsrError::NotAllowed { msr: Msr(0x1C9) }));
    assert_eq!(guarded.read(DEBUGCTL), Ok(0));
    assert_eq!(guarded.run(&mut batch[..1]), Ok(()));
    assert_eq!(guarded.read(DEBUGCTL), Ok(1));
}

#[test]
fn a_plans_accesses_pass_its_own_allowlist() {
    let rows = [
        (by_hand::core2(), 0, Some(0x10C2), true),
        (by_hand::nehalem(), 0x101, Some(3), true),
        (by_hand::haswell(false), 0x3C5, Some(4), false),
        (by_hand::skylake(), 0x101, Some(5), true),
        (by_hand::golden_cove(), 0x3F_0005, Some(0x3F), true),
        (by_hand::golden_cove(), 0x38_000D, Some(0x3F), false),
        (by_hand::zen4(), 0x101, None, false),
        (by_hand::pentium_m(), 0, None, false),
    ];
    for (caps, value, perf, freeze_on_pmi) in rows {
        let options = ArmOptions { freeze_on_pmi, depth: None };
        let plan = ArmPlan::new(&caps, value, options).unwrap();
        let mut guarded = Allowlisted::new(SoftLbr::new(&caps, perf), &plan);
        let saved = plan.save(&mut guarded).unwrap();
        let mut armed = plan.arm(&mut guarded, &saved).unwrap();
        for n in 0..3 {
            let branch = Retired { class: HwBranchType::IndCall, ..jump(n) };
            assert!(guarded.inner_mut().retire(&branch), "{}", caps.cpu.key());
            guarded.inner_mut().pmi();
            let frozen = plan.freeze(&mut guarded, &armed).unwrap();
            armed = plan.thaw(&mut guarded, &frozen).unwrap();
        }
        assert_eq!(plan.restore(&mut guarded, &saved), Ok(Restored::default()));
        plan.disarm(&mut guarded).unwrap();
    }
}

/// A CPU on which all registers exist and read 0, with a log of writes.
#[derive(Default)]
struct Everywhere(BTreeSet<u32>);

impl MsrRead for Everywhere {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, _: Msr) -> Result<u64, MsrError> {
        Ok(0)
    }
}

impl MsrWrite for Everywhere {
    fn write(&mut self, msr: Msr, _: u64) -> Result<(), MsrError> {
        self.0.insert(msr.0);
        Ok(())
    }
}

/// A CPU that the table does not know, as the user describes it.
fn described(text: &str) -> LbrCaps {
    let mut cpuid = RecordedCpuid::new();
    cpuid.insert(0, 0, 6, 0x756E_6547, 0x6C65_746E, 0x4965_6E69);
    cpuid.insert(1, 0, 0xA_06F3, 0, 0x8000, 0);
    let assumption: Assumption = text.parse().unwrap();
    probe_assuming(&cpuid, None, Some(&assumption)).unwrap()
}

/// The plan for such an LBR; `None` if it is refused.
fn planned(caps: &LbrCaps) -> Option<ArmPlan> {
    match ArmPlan::new(caps, 0, ArmOptions::default()) {
        Ok(plan) => Some(plan),
        Err(ArmError::Unlisted { .. } | ArmError::NoRing { .. }) => None,
        Err(other) => panic!("{:?}: {other}", caps.registers),
    }
}

/// The registers written by arming, freezing, thawing, restoring and disarming.
fn written(plan: &ArmPlan) -> BTreeSet<u32> {
    let mut registers = Allowlisted::new(Everywhere::default(), plan);
    let saved = plan.save(&mut registers).unwrap();
    let armed = plan.arm(&mut registers, &saved).unwrap();
    let frozen = plan.freeze(&mut registers, &armed).unwrap();
    plan.thaw(&mut registers, &frozen).unwrap();
    plan.restore(&mut registers, &saved).unwrap();
    plan.disarm(&mut registers).unwrap();
    std::mem::take(&mut registers.inner_mut().0)
}

/// The addresses, in every part of the geometry that the command line accepts. SDM Table 17-4 for
/// records at 40H and 60H, 17.7 and 17.10 for those at 680H, 6C0H and DC0H.
#[test]
fn assumed_registers_are_written_only_if_they_are_branch_records() {
    let may: BTreeSet<u32> = (0x40..0x48)
        .chain(0x60..0x68)
        .chain(0x680..0x6A0)
        .chain(0x6C0..0x6E0)
        .chain(0xDC0..0xDE0)
        .chain([0x1C8, 0x1D9])
        .collect();
    // All of the ranges that MSR bitmaps cover (SDM 24.6.9, APM 15.11), and some of the others.
    let everywhere = || {
        let all = (0..=0xFFFF_u32).chain(0xC000_0000..=0xC001_FFFF);
        all.filter(|msr| msr & 0xFFFF < 0x2000 || msr % 251 == 0)
    };
    type Part = (&'static str, fn(&mut LbrCaps, Msr));
    let parts: [Part; 5] = [
        ("from", |caps, msr| caps.registers.from = msr),
        ("to", |caps, msr| caps.registers.to = Some(msr)),
        ("info", |caps, msr| caps.registers.info = Some(msr)),
        ("tos", |caps, msr| caps.registers.tos = Some(msr)),
        ("select", |caps, msr| caps.registers.select = Some(msr)),
    ];
    for (key, set) in parts {
        let text = |key: &str, msr: u32| {
            let usual = "depth=4,from=680,to=6c0,info=dc0,tos=1c9,select=1c8,format=5";
            format!("{usual},{key}={msr:x}")
        };
        let (mut armed, mut caps) = (0, described(&text("tos", 0x1C9)));
        for msr in everywhere() {
            set(&mut caps, Msr(msr));
            if msr % 251 == 0 {
                assert_eq!(caps, described(&text(key, msr)), "{key} {msr:x}");
            }
            let Some(plan) = planned(&caps) else { continue };
            let allowed = plan.allowed();
            assert!(allowed.iter().all(|msr| may.contains(&msr.0)), "{key} {msr:x}: {allowed:?}");
            // Reading any register as the top of stack is allowed.
            if key != "tos" || msr % 251 == 0 {
                let written = written(&plan);
                assert!(written.is_subset(&may), "{key} {msr:x}: {written:x?}");
            }
            armed += 1;
        }
        // An LBR of four fits at 8 - 3 addresses in two blocks, and at 32 - 3 in three.
        let expected = match key {
            "tos" => everywhere().count(),
            "select" => 1,
            _ => 2 * 5 + 3 * 29,
        };
        assert_eq!(armed, expected, "{key}");
    }
}

#[test]
fn an_assumed_depth_is_limited_by_the_record_registers() {
    let arms = |depth: u32, from: &str| {
        let text = format!("depth={depth},from={from},to=6c0,tos=1c9,format=3");
        planned(&described(&text)).is_some()
    };
    assert!(arms(32, "680") && !arms(64, "680"));
    assert!(arms(8, "40") && !arms(16, "40"));
    assert!(!arms(1, "ffffffb0") && !arms(64, "ffffffb0"));
    // A read-only record block is not accepted as a writable one.
    assert!(!arms(4, "1db"));
}

/// Linux's msr-index.h: sixteen pairs of FROM and TO from C001_0300H on. CPUID.1CH:EAX\[7:0\] lists
/// depths up to 64.
#[test]
fn a_stack_of_more_records_than_registers_is_not_armed() {
    for (mut caps, facility, most, msr) in [
        (by_hand::zen4(), Facility::AmdLbrV2, 16, Msr(0xC001_0320)),
        (by_hand::golden_cove(), Facility::IntelArch, 64, Msr(0x1540)),
    ] {
        caps.depth = most;
        assert!(planned(&caps).is_some(), "{facility:?}");
        caps.depth = most + 1;
        let refused = ArmPlan::new(&caps, 0, ArmOptions::default());
        assert_eq!(refused, Err(ArmError::Unlisted { facility, msr }));
    }
}

/// Without a top of stack, only one record is read.
#[test]
fn an_assumed_single_record_is_not_armed() {
    let plan = |depth: u32| {
        let caps = described(&format!("depth={depth},from=680,to=6c0,format=3"));
        ArmPlan::new(&caps, 0, ArmOptions::default())
    };
    assert!(matches!(plan(1), Err(ArmError::NoRing { .. })));
    assert!(plan(2).is_ok());
}

/// 174H is IA32_SYSENTER_CS. A top of stack belongs to its facility: 1DAH to NetBurst, 1C9H to the
/// others (SDM 17.4.8, 17.11.2).
#[test]
fn a_register_that_no_cpu_has_there_is_named() {
    const OTHER: Msr = Msr(0x174);
    let parts: [fn(&mut RegisterMap); 5] = [
        |map| map.from = OTHER,
        |map| map.to = Some(OTHER),
        |map| map.select = Some(OTHER),
        |map| map.control = OTHER,
        |map| map.depth = Some(OTHER),
    ];
    for (name, caps, _) in by_hand::every() {
        assert_eq!((unlisted(&caps), unlisted_tos(&caps)), (None, None), "{name}");
        for part in parts {
            let mut other = caps.clone();
            part(&mut other.registers);
            assert_eq!(unlisted(&other), Some(OTHER), "{name}: {:?}", other.registers);
        }
    }
    for (mut caps, tos) in [(by_hand::skylake(), Msr(0x1DA)), (by_hand::prescott(), TOS)] {
        caps.registers.tos = Some(tos);
        assert_eq!(unlisted_tos(&caps), Some(tos));
    }
}

/// A backend that reaches its CPU in one call, and counts the calls.
#[derive(Default)]
struct OneCall(u32);

impl MsrRead for OneCall {
    fn cpu(&self) -> u32 {
        5
    }
    fn read(&mut self, _: Msr) -> Result<u64, MsrError> {
        panic!("a batch was taken apart");
    }
    fn one_call(&self) -> bool {
        true
    }
}

impl MsrWrite for OneCall {
    fn write(&mut self, _: Msr, _: u64) -> Result<(), MsrError> {
        panic!("a batch was taken apart");
    }
    fn run(&mut self, _: &mut [Op]) -> Result<(), MsrError> {
        self.0 += 1;
        Ok(())
    }
}

#[test]
fn a_batch_stays_one_call_behind_an_allowlist_and_pointers() {
    fn use_batches(mut registers: impl MsrWrite) {
        assert!(registers.one_call());
        assert_eq!(registers.cpu(), 5);
        registers.run(&mut [Op::Write { msr: DEBUGCTL, value: 0 }]).unwrap();
    }
    let plan = plan(&by_hand::nehalem(), 0);
    let mut backend = OneCall::default();
    use_batches(Allowlisted::new(&mut backend, &plan));
    use_batches(Box::new(&mut backend));
    assert_eq!(backend.0, 2);
}
