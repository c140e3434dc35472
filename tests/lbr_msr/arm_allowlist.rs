//! The registers that may be written while the LBR is armed.

use lbr_msr::access::MsrError;
use lbr_msr::address::Msr;
use lbr_msr::arm::{Allowlisted, ArmOptions, ArmPlan, Restored};
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{self as by_hand, DEBUGCTL};

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
    use lbr_msr::access::Op;
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
