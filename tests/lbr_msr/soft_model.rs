//! Random scripts compared with a simple model: a list of the branches that pass, whose last ones
//! the LBR holds.

use lbr_msr::address::Msr;
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::HwBranchType::{self, Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};
use proptest::prelude::*;

use crate::caps_by_hand::{self as by_hand, AMD_SELECT, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, SELECT};

/// The bit of LBR_SELECT and of IA32_LBR_CTL for a class.
fn bits(class: HwBranchType) -> (u64, u64) {
    match class {
        Cond => (0x004, 1 << 16),
        RelCall => (0x008, 1 << 19),
        IndCall => (0x010, 1 << 20),
        Ret => (0x020, 1 << 21),
        IndJmp => (0x040, 1 << 18),
        RelJmp => (0x080, 1 << 17),
        Other => (0x100, 1 << 22),
    }
}

fn suppressed(value: u64, branch: &Retired) -> bool {
    let ring = if branch.cpl_after == 0 { 1 } else { 2 };
    value & (ring | bits(branch.class).0) != 0
}

fn captured(value: u64, branch: &Retired) -> bool {
    let ring = if branch.cpl_after == 0 { 2 } else { 4 };
    value & ring != 0 && value & bits(branch.class).1 != 0
}

fn any_branch() -> impl Strategy<Value = Retired> {
    let class = prop::sample::select(vec![Cond, IndJmp, RelJmp, IndCall, RelCall, Ret, Other]);
    let ring = || prop::sample::select(vec![0_u8, 3]);
    let address = || (0_u64..1 << 47, any::<bool>()).prop_map(|(a, k)| if k { !a } else { a });
    (address(), address(), class, ring(), ring(), any::<bool>(), 0_u32..70_000).prop_map(
        |(from, to, class, cpl_before, cpl_after, mispredicted, cycles)| Retired {
            from,
            to,
            class,
            zero_length_call: false,
            cpl_before,
            cpl_after,
            mispredicted: Some(mispredicted),
            cycles: Some(cycles),
            in_tx: false,
            abort: false,
        },
    )
}

/// The registers of the record that is `age` older than the newest.
fn record(soft: &mut SoftLbr, caps: &LbrCaps, age: u32) -> (u64, u64, u64) {
    let map = caps.registers;
    let i = match map.tos {
        Some(tos) => (soft.read(tos).unwrap() as u32 + caps.depth - age) % caps.depth,
        None => age,
    };
    let info = map.info_at(i).map_or(0, |info| soft.read(info).unwrap());
    (soft.read(map.from_at(i)).unwrap(), soft.read(map.to_at(i).unwrap()).unwrap(), info)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn skylake_holds_the_last_32_that_pass(
        select in 0_u64..0x200,
        script in prop::collection::vec(any_branch(), 0..120),
    ) {
        let caps = by_hand::skylake();
        let mut soft = SoftLbr::new(&caps, Some(5));
        soft.write(SELECT, select).unwrap();
        soft.write(DEBUGCTL, 1).unwrap();
        let mut model = Vec::new();
        let mut since = None;
        for branch in &script {
            let passes = !suppressed(select, branch);
            prop_assert_eq!(soft.retire(branch), passes);
            let cycles = since.map(|c: u64| c + u64::from(branch.cycles.unwrap()));
            if passes {
                let mispredicted = u64::from(branch.mispredicted.unwrap()) << 63;
                model.push((branch.from, branch.to, mispredicted | cycles.unwrap_or(0).min(0xFFFF)));
                since = Some(0);
            } else {
                since = cycles;
            }
        }
        prop_assert_eq!(soft.recorded(), model.len() as u64);
        for age in 0..32 {
            let expected = model.iter().rev().nth(age as usize).copied().unwrap_or_default();
            prop_assert_eq!(record(&mut soft, &caps, age), expected, "age {}", age);
        }
    }

    #[test]
    fn golden_cove_holds_the_last_that_pass_whatever_the_depth(
        rings in 0_u64..4,
        branches in 0_u64..0x80,
        depth in prop::sample::select(vec![8_u64, 16, 32]),
        script in prop::collection::vec(any_branch(), 0..120),
    ) {
        let caps = by_hand::golden_cove();
        let ctl = branches << 16 | rings << 1;
        let mut soft = SoftLbr::new(&caps, Some(0x3F));
        soft.write(Msr(0x14CF), depth).unwrap();
        soft.write(LBR_CTL, ctl | 1).unwrap();
        let mut model = Vec::new();
        for branch in &script {
            let passes = captured(ctl, branch);
            prop_assert_eq!(soft.retire(branch), passes);
            if passes {
                let started = if branch.cpl_before == 0 { 2 } else { 4 };
                let from = if ctl & started != 0 { branch.from } else { !0 };
                model.push((from, branch.to));
            }
        }
        for age in 0..depth as u32 {
            let expected = model.iter().rev().nth(age as usize).copied().unwrap_or_default();
            let (from, to, info) = record(&mut soft, &caps, age);
            prop_assert_eq!((from, to), expected, "age {}", age);
            prop_assert!(age < model.len() as u32 || info == 0);
        }
    }

    #[test]
    fn zen_4_holds_the_last_16_that_pass(
        select in 0_u64..0x200,
        script in prop::collection::vec(any_branch(), 0..60),
    ) {
        let caps = by_hand::zen4();
        let mut soft = SoftLbr::new(&caps, None);
        soft.write(AMD_SELECT, select).unwrap();
        soft.write(DBG_EXTN_CFG, 0x58).unwrap();
        let mut model = Vec::new();
        for branch in &script {
            soft.retire(branch);
            if !suppressed(select, branch) {
                let from = branch.from & !(1 << 63) | u64::from(branch.mispredicted.unwrap()) << 63;
                let to = branch.to & 0x1FFF_FFFF_FFFF_FFFF | 1 << 63;
                model.push((from, to, 0));
            }
        }
        for age in 0..16 {
            let expected = model.iter().rev().nth(age as usize).copied().unwrap_or_default();
            prop_assert_eq!(record(&mut soft, &caps, age), expected, "age {}", age);
        }
    }

    /// A stack of calls, of which the LBR keeps the innermost.
    #[test]
    fn call_stack_mode_keeps_the_innermost_frames(
        arch in any::<bool>(),
        script in prop::collection::vec((any::<bool>(), 1_u64..1 << 40), 0..200),
    ) {
        let caps = if arch { by_hand::golden_cove() } else { by_hand::haswell(true) };
        let mut soft = SoftLbr::new(&caps, None);
        if arch {
            soft.write(LBR_CTL, 0x38_000D).unwrap();
        } else {
            soft.write(SELECT, 0x3C5).unwrap();
            soft.write(DEBUGCTL, 1).unwrap();
        }
        let mut model: Vec<u64> = Vec::new();
        for (call, from) in script {
            soft.retire(&Retired::user(from, 0x10, if call { IndCall } else { Ret }));
            if call {
                model.push(from);
                if model.len() > caps.depth as usize {
                    model.remove(0);
                }
            } else {
                model.pop();
            }
        }
        for age in 0..caps.depth {
            let expected = model.iter().rev().nth(age as usize).copied().unwrap_or(0);
            prop_assert_eq!(record(&mut soft, &caps, age).0, expected, "age {}", age);
        }
    }

    /// Every access returns a value or a fault, never panics.
    #[test]
    fn any_access_succeeds_or_faults(
        writes in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0_u32..64), 0..40),
        branches in prop::collection::vec(any_branch(), 1..20),
        depth in any::<u32>(),
    ) {
        const BASES: [u32; 14] = [
            0x40, 0x60, 0x1C8, 0x1D7, 0x1DB, 0x345, 0x38E, 0x570, 0x680, 0x6C0, 0xDC0, 0x14CE,
            0xC000_010E, 0xC001_0300,
        ];
        for (_, mut caps, perf) in by_hand::every() {
            if depth & 1 == 0 {
                caps.depth = depth;
            }
            let mut soft = SoftLbr::new(&caps, perf);
            for (base, value, offset) in &writes {
                let msr = Msr(base.get(&BASES).wrapping_add(*offset));
                let _ = soft.write(msr, value >> offset);
                let _ = soft.read(msr);
                for branch in &branches {
                    soft.retire(branch);
                }
                soft.pmi();
                soft.exception();
            }
        }
    }
}
