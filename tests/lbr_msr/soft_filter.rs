//! Each filter bit of each generation with every class of branch in both rings.

use lbr_msr::caps::{FilterRegister, LbrCaps};
use lbr_msr::record::HwBranchType::{self, Cond, IndCall, IndJmp, Other, RelCall, RelJmp, Ret};
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{self as by_hand, AMD_SELECT, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, SELECT};

const CLASSES: [HwBranchType; 7] = [Cond, IndJmp, RelJmp, IndCall, RelCall, Ret, Other];

fn landing(class: HwBranchType, cpl_after: u8) -> Retired {
    Retired { cpl_after, cpl_before: cpl_after, ..Retired::user(0x10, 0x20, class) }
}

/// The classes that `value` records, for branches that land in ring 0 and ring 3.
fn passes(caps: &LbrCaps, value: u64) -> [Vec<HwBranchType>; 2] {
    [0, 3].map(|ring| {
        CLASSES
            .into_iter()
            .filter(|class| {
                let mut soft = SoftLbr::new(caps, None);
                match caps.filter {
                    FilterRegister::LbrCtl { .. } => soft.write(LBR_CTL, value | 1).unwrap(),
                    FilterRegister::AmdSelect => {
                        soft.write(AMD_SELECT, value).unwrap();
                        soft.write(DBG_EXTN_CFG, 1 << 6).unwrap();
                    }
                    _ => {
                        soft.write(SELECT, value).unwrap();
                        soft.write(DEBUGCTL, 1).unwrap();
                    }
                }
                soft.retire(&landing(*class, ring))
            })
            .collect()
    })
}

fn without(gone: &[HwBranchType]) -> Vec<HwBranchType> {
    CLASSES.into_iter().filter(|class| !gone.contains(class)).collect()
}

#[test]
fn each_suppress_bit_since_sandy_bridge_and_of_amd_suppresses_its_class() {
    let bits: [(u64, &[HwBranchType]); 7] = [
        (0x004, &[Cond]),
        (0x008, &[RelCall]),
        (0x010, &[IndCall]),
        (0x020, &[Ret]),
        (0x040, &[IndJmp]),
        (0x080, &[RelJmp]),
        (0x100, &[Other]),
    ];
    let generations = [
        by_hand::sandy_bridge(),
        by_hand::knights_landing(),
        by_hand::haswell(true),
        by_hand::skylake(),
        by_hand::goldmont(),
        by_hand::goldmont_plus(),
        by_hand::zen4(),
    ];
    for caps in generations {
        for (bit, gone) in bits {
            assert_eq!(passes(&caps, bit), [without(gone), without(gone)], "{bit:#x}");
        }
        assert_eq!(passes(&caps, 0), [without(&[]), without(&[])]);
        assert_eq!(passes(&caps, 0x001), [vec![], without(&[])]);
        assert_eq!(passes(&caps, 0x002), [without(&[]), vec![]]);
        assert_eq!(passes(&caps, 0x101), [vec![], without(&[Other])]);
        // Worked values from the facts.
        assert_eq!(passes(&caps, 0x1F9), [vec![], vec![Cond]]);
        assert_eq!(passes(&caps, 0x0E5), [vec![], vec![IndCall, RelCall, Other]]);
        assert_eq!(passes(&caps, 0x0DD), [vec![], vec![Ret, Other]]);
    }
}

#[test]
fn nehalem_and_silvermont_jump_bits_suppress_calls_and_returns() {
    for caps in [by_hand::nehalem(), by_hand::silvermont()] {
        assert_eq!(passes(&caps, 0x040)[1], without(&[IndJmp, IndCall, Ret]));
        assert_eq!(passes(&caps, 0x080)[1], without(&[RelJmp, RelCall]));
        // Sandy Bridge's value for calls records only far branches here.
        assert_eq!(passes(&caps, 0x0E5), [vec![], vec![Other]]);
        // With both jump classes unsuppressed, calls are recorded.
        assert_eq!(passes(&caps, 0x025)[1], without(&[Cond, Ret]));
        assert_eq!(passes(&caps, 0x008)[1], without(&[RelCall]));
        assert_eq!(passes(&caps, 0x004)[1], without(&[Cond]));
    }
}

#[test]
fn without_a_filter_register_everything_is_recorded() {
    for caps in [by_hand::core2(), by_hand::bonnell(), by_hand::pentium_m(), by_hand::prescott()] {
        let mut soft = SoftLbr::new(&caps, None);
        soft.write(DEBUGCTL, 1).unwrap();
        for class in CLASSES {
            assert!(soft.retire(&landing(class, 0)) && soft.retire(&landing(class, 3)));
        }
        assert!(soft.read(SELECT).is_err());
    }
}

#[test]
fn lbr_ctl_captures_what_it_names() {
    let caps = by_hand::golden_cove();
    let bits = [
        (16, Cond),
        (17, RelJmp),
        (18, IndJmp),
        (19, RelCall),
        (20, IndCall),
        (21, Ret),
        (22, Other),
    ];
    for (bit, class) in bits {
        assert_eq!(passes(&caps, 1 << bit | 0b110), [vec![class], vec![class]], "bit {bit}");
    }
    assert_eq!(passes(&caps, 0x7F_0004), [vec![], without(&[])]);
    assert_eq!(passes(&caps, 0x7F_0002), [without(&[]), vec![]]);
    assert_eq!(passes(&caps, 0x3F_0004), [vec![], without(&[Other])]);
    assert_eq!(passes(&caps, 0x000_0006), [vec![], vec![]], "no branch bits");
    assert_eq!(passes(&caps, 0x7F_0000), [vec![], vec![]], "no ring");
}

#[test]
fn lbr_ctl_without_a_filter_records_everything() {
    let mut caps = by_hand::golden_cove();
    caps.filter = FilterRegister::LbrCtl { cpl: true, branch: false, call_stack: false };
    assert_eq!(passes(&caps, 0b100), [vec![], without(&[])]);
    caps.filter = FilterRegister::LbrCtl { cpl: false, branch: true, call_stack: false };
    assert_eq!(passes(&caps, 1 << 16), [vec![Cond], vec![Cond]]);
    caps.filter = FilterRegister::LbrCtl { cpl: false, branch: false, call_stack: false };
    assert_eq!(passes(&caps, 0), [without(&[]), without(&[])]);
    // Call-stack mode needs no bits that do not exist.
    caps.filter = FilterRegister::LbrCtl { cpl: false, branch: false, call_stack: true };
    let calls = vec![IndCall, RelCall, Ret];
    assert_eq!(passes(&caps, 1 << 3), [calls.clone(), calls]);
}

/// SYSCALL lands in ring 0, SYSRET in ring 3.
#[test]
fn the_filter_tests_the_ring_of_the_target() {
    let syscall = Retired { cpl_after: 0, ..Retired::user(0x40_1000, !0xFFF, Other) };
    let sysret = Retired { cpl_before: 0, ..Retired::user(!0xFFF + 8, 0x40_1002, Other) };
    let mut soft = SoftLbr::new(&by_hand::skylake(), None);
    soft.write(SELECT, 0x001).unwrap();
    soft.write(DEBUGCTL, 1).unwrap();
    assert!(!soft.retire(&syscall));
    assert!(soft.retire(&sysret));
    assert_eq!(soft.read(lbr_msr::Msr(0x681)), Ok(!0xFFF + 8), "the kernel address shows");

    let mut soft = SoftLbr::new(&by_hand::golden_cove(), None);
    soft.write(LBR_CTL, 0x7F_0005).unwrap();
    assert!(!soft.retire(&syscall));
    assert!(soft.retire(&sysret));
    assert_eq!(soft.read(lbr_msr::Msr(0x1500)), Ok(!0), "hidden");
    assert_eq!(soft.read(lbr_msr::Msr(0x1600)), Ok(0x40_1002));
    // Both rings recorded: no FROM is hidden.
    soft.write(LBR_CTL, 0x7F_0007).unwrap();
    soft.retire(&sysret);
    assert_eq!(soft.read(lbr_msr::Msr(0x1500)), Ok(!0xFFF + 8));
    // Kernel only: SYSCALL's FROM is hidden.
    soft.write(LBR_CTL, 0x7F_0003).unwrap();
    assert!(soft.retire(&syscall));
    assert_eq!(soft.read(lbr_msr::Msr(0x1500)), Ok(!0));
}

#[test]
fn zero_length_calls_are_calls_except_in_architectural_lbr() {
    let pic = Retired { zero_length_call: true, ..Retired::user(0x10, 0x15, RelCall) };
    let mut soft = SoftLbr::new(&by_hand::skylake(), None);
    soft.write(DEBUGCTL, 1).unwrap();
    assert!(soft.retire(&pic));
    let mut soft = SoftLbr::new(&by_hand::golden_cove(), None);
    soft.write(LBR_CTL, 0x7F_0005).unwrap();
    assert!(!soft.retire(&pic));
}

/// DEBUGCTL.LBR of AMD records every branch in a separate pair, whatever the stack's filter.
#[test]
fn the_pair_of_amd_has_no_filter() {
    const LASTBRANCHFROMIP: lbr_msr::Msr = lbr_msr::Msr(0x1DB);
    let mut soft = SoftLbr::new(&by_hand::zen4(), None);
    // No conditional branches.
    soft.write(AMD_SELECT, 1 << 2).unwrap();
    soft.write(DBG_EXTN_CFG, 1 << 6).unwrap();
    soft.write(DEBUGCTL, 1).unwrap();
    for (from, class, recorded) in [(0x1000, Cond, false), (0x2000, RelJmp, true)] {
        assert_eq!(soft.retire(&Retired::user(from, 0x20, class)), recorded, "{class:?}");
        assert_eq!(soft.read(LASTBRANCHFROMIP), Ok(from));
    }
}
