//! Filling and wrapping each kind of LBR: TOS, order, depth, counting.

use lbr_msr::address::Msr;
use lbr_msr::caps::LbrCaps;
use lbr_msr::explain;
use lbr_msr::filter::BranchFilter;
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
use lbr_msr::{MsrRead, MsrWrite};

use crate::caps_by_hand::{self as by_hand, DBG_EXTN_CFG, DEBUGCTL, LBR_CTL, LBR_DEPTH, TOS};

/// Branch `n`, from 1000H + n to 2000H + n.
fn jump(n: u64) -> Retired {
    Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelJmp)
}

fn on(caps: &LbrCaps) -> SoftLbr {
    let mut soft = SoftLbr::new(caps, caps.format.map(|f| f.0.into())).on_cpu(3);
    let control = caps.registers.control;
    let before = soft.read(control).unwrap();
    let filter = if control == LBR_CTL { 0x7F_0006 } else { 0 };
    soft.write(control, before | caps.registers.enable | filter).unwrap();
    soft
}

fn get(soft: &mut SoftLbr, msr: u32) -> u64 {
    soft.read(Msr(msr)).unwrap()
}

#[test]
fn nothing_is_recorded_while_recording_is_off() {
    for (name, caps, perf) in by_hand::every() {
        let mut soft = SoftLbr::new(&caps, perf);
        assert!(!soft.retire(&jump(1)), "{name}");
        assert_eq!(soft.read(caps.registers.from), Ok(0), "{name}");
        assert_eq!(soft.recorded(), 0, "{name}");
        let mut soft = on(&caps);
        assert!(soft.retire(&jump(1)), "{name}");
        assert_eq!(soft.recorded(), 1, "{name}");
        assert_eq!(soft.cpu(), 3);
    }
}

/// Every generation and BRBE, and a filter that passes user branches there.
fn every() -> Vec<(String, LbrCaps, Option<u64>, BranchFilter)> {
    let all = BranchFilter::ANY;
    let x86 =
        by_hand::every().into_iter().map(|(name, caps, perf)| (name.to_owned(), caps, perf, all));
    // BRBE always filters by exception level.
    let brbe = SoftCpu::all_brbe().map(|cpu| (cpu.key, cpu.caps, None, all | BranchFilter::USER));
    x86.chain(brbe).collect()
}

#[test]
fn armed_it_records_and_disarmed_it_keeps_its_records() {
    for (name, caps, perf, filter) in every() {
        let mut soft = SoftLbr::new(&caps, perf);
        soft.arm(filter).unwrap();
        assert!(soft.retire(&jump(1)), "{name}");
        let records = seen(&mut soft, &caps);
        soft.disarm();
        assert!(!soft.retire(&jump(2)), "{name}");
        // BRS counts its records in the register that disables it.
        assert_eq!(seen(&mut soft, &caps), records, "{name}");
    }
}

/// Whatever was recorded and written before.
#[test]
fn a_reset_cpu_reads_as_a_new_one() {
    for (name, caps, perf, filter) in every() {
        let mut new = SoftLbr::new(&caps, perf);
        let mut used = new.clone();
        let addresses: Vec<Msr> = explain::all().map(|register| register.address()).collect();
        for bits in [0x15, 0x7F_0007, 1 << 58, 8, 0x1000] {
            for msr in &addresses {
                // Some CPUs lack some registers and bits.
                let _ = used.write(*msr, bits);
            }
            used.arm(filter).unwrap();
            used.retire(&jump(bits));
            used.exception();
        }
        used.reset();
        assert!(!used.retire(&jump(9)), "{name}");
        for msr in addresses {
            assert_eq!(used.read(msr), new.read(msr), "{name} {msr:?}");
        }
        for soft in [&mut used, &mut new] {
            soft.arm(filter).unwrap();
            soft.retire(&Retired { cycles: Some(10), ..jump(1) });
        }
        let records = |soft: &mut SoftLbr| {
            let mut seen = seen(soft, &caps);
            // Without the number of records since the CPU was made.
            seen.pop();
            seen
        };
        assert_eq!(records(&mut used), records(&mut new), "{name}");
    }
}

/// TOS is incremented before the write, so the first record goes to index 1 and record number
/// `depth` to index 0 (SDM 17.4.8).
#[test]
fn stacks_with_tos_fill_and_wrap() {
    let rings = [
        (by_hand::core2(), 4, 0x40, 0x60),
        (by_hand::bonnell(), 8, 0x40, 0x60),
        (by_hand::silvermont(), 8, 0x40, 0x60),
        (by_hand::knights_landing(), 8, 0x680, 0x6C0),
        (by_hand::nehalem(), 16, 0x680, 0x6C0),
        (by_hand::haswell(true), 16, 0x680, 0x6C0),
        (by_hand::skylake(), 32, 0x680, 0x6C0),
        (by_hand::goldmont_plus(), 32, 0x680, 0x6C0),
    ];
    for (caps, depth, from, to) in rings {
        let mut soft = on(&caps);
        for n in 1..=depth {
            assert!(soft.retire(&jump(n)));
            assert_eq!(soft.read(TOS), Ok(n % depth), "after {n} of {depth}");
            assert_eq!(get(&mut soft, from + (n % depth) as u32), 0x1000 + n);
            assert_eq!(get(&mut soft, to + (n % depth) as u32), 0x2000 + n);
        }
        // Three more overwrite the oldest three.
        for n in depth + 1..=depth + 3 {
            soft.retire(&jump(n));
        }
        assert_eq!(soft.read(TOS), Ok(3));
        assert_eq!(get(&mut soft, from + 3), 0x1000 + depth + 3);
        assert_eq!(get(&mut soft, from + 1), 0x1000 + depth + 1);
        assert_eq!(get(&mut soft, from), 0x1000 + depth);
        if depth > 4 {
            assert_eq!(get(&mut soft, from + 4), 0x1004, "the oldest");
        }
        assert_eq!(soft.recorded(), depth + 3);
    }
}

#[test]
fn pentium_m_packs_both_ends_into_one_register() {
    let mut soft = on(&by_hand::pentium_m());
    soft.retire(&Retired::user(0x0804_8123, 0x0804_9456, HwBranchType::Cond));
    assert_eq!(soft.read(TOS), Ok(1));
    assert_eq!(get(&mut soft, 0x41), 0x0804_9456_0804_8123);
    assert!(soft.read(Msr(0x61)).is_err(), "no TO registers");
    // The upper halves of 64-bit addresses are not stored.
    soft.retire(&Retired::user(0x5555_0000_1111, 0x7FFF_0000_2222, HwBranchType::Cond));
    assert_eq!(get(&mut soft, 0x42), 0x0000_2222_0000_1111);
}

#[test]
fn netburst_has_its_own_tos_and_read_only_records() {
    let mut soft = on(&by_hand::willamette());
    for n in 1..=5 {
        soft.retire(&jump(n));
    }
    assert_eq!(get(&mut soft, 0x1DA), 1);
    assert_eq!(get(&mut soft, 0x1DC), 0x0000_2005_0000_1005);
    assert_eq!(get(&mut soft, 0x1DB), 0x0000_2004_0000_1004);
    assert!(soft.read(TOS).is_err());

    let mut soft = on(&by_hand::prescott());
    for n in 1..=17 {
        soft.retire(&jump(n));
    }
    assert_eq!(get(&mut soft, 0x1DA), 1);
    assert_eq!((get(&mut soft, 0x681), get(&mut soft, 0x6C1)), (0x1011, 0x2011));
    for msr in [0x681, 0x6C1, 0x1DA, 0x1D7, 0x1D8] {
        assert!(soft.write(Msr(msr), 0).is_err(), "{msr:#x} is read-only");
    }
}

#[test]
fn single_pairs_hold_the_last_branch() {
    for caps in [by_hand::p6(), by_hand::zen2()] {
        let mut soft = on(&caps);
        for n in 1..=3 {
            soft.retire(&jump(n));
        }
        assert_eq!((get(&mut soft, 0x1DB), get(&mut soft, 0x1DC)), (0x1003, 0x2003));
        assert_eq!(soft.recorded(), 3);
    }
}

#[test]
fn arch_keeps_the_newest_at_index_0_and_obeys_depth() {
    let mut soft = on(&by_hand::golden_cove());
    assert_eq!(soft.read(LBR_DEPTH), Ok(32), "the default is the most");
    for n in 1..=40 {
        soft.retire(&jump(n));
    }
    assert_eq!((get(&mut soft, 0x1500), get(&mut soft, 0x1600)), (0x1028, 0x2028));
    assert_eq!(get(&mut soft, 0x151F), 0x1009, "the oldest of 32");

    // Any write of DEPTH clears the records, even of the same value.
    soft.write(LBR_DEPTH, 32).unwrap();
    for i in 0..32 {
        for bank in [0x1500, 0x1600, 0x1200] {
            assert_eq!(get(&mut soft, bank + i), 0);
        }
    }
    soft.write(LBR_DEPTH, 8).unwrap();
    for n in 1..=9 {
        soft.retire(&jump(n));
    }
    assert_eq!((get(&mut soft, 0x1500), get(&mut soft, 0x1507)), (0x1009, 0x1002));
    assert!(soft.read(Msr(0x1508)).is_err());
    assert!(soft.write(Msr(0x1208), 0).is_err());
    for unsupported in [0, 1, 7, 24, 40, 64, 1 << 32] {
        assert!(soft.write(LBR_DEPTH, unsupported).is_err(), "{unsupported}");
    }
    assert_eq!(get(&mut soft, 0x1500), 0x1009, "a fault clears nothing");
}

#[test]
fn arch_shifts_through_a_partly_filled_ring() {
    let mut soft = on(&by_hand::golden_cove());
    for n in 1..=3 {
        soft.retire(&jump(n));
    }
    let newest_first: Vec<u64> = (0..5).map(|i| get(&mut soft, 0x1500 + i)).collect();
    assert_eq!(newest_first, [0x1003, 0x1002, 0x1001, 0, 0]);
    // A write goes to the record that has the index at that moment.
    soft.write(Msr(0x1500), 0).unwrap();
    soft.retire(&jump(4));
    let newest_first: Vec<u64> = (0..5).map(|i| get(&mut soft, 0x1500 + i)).collect();
    assert_eq!(newest_first, [0x1004, 0, 0x1002, 0x1001, 0]);
    assert_eq!(get(&mut soft, 0x1601), 0x2003);
}

#[test]
fn amd_v2_keeps_the_newest_at_index_0_with_from_and_to_alternating() {
    let mut soft = on(&by_hand::zen4());
    for n in 1..=18 {
        soft.retire(&jump(n));
    }
    assert_eq!(get(&mut soft, 0xC001_0300), 0x1012);
    assert_eq!(get(&mut soft, 0xC001_0301), 0x2012 | 1 << 63);
    assert_eq!(get(&mut soft, 0xC001_031E), 0x1003);
    assert_eq!(get(&mut soft, 0xC001_031F), 0x2003 | 1 << 63);
    assert!(soft.read(Msr(0xC001_0320)).is_err());
}

#[test]
fn brs_fills_once_and_stops() {
    let mut soft = SoftLbr::new(&by_hand::zen3(), None);
    assert_eq!(soft.read(DBG_EXTN_CFG), Ok(0x18));
    soft.write(DBG_EXTN_CFG, 0x1C).unwrap();
    soft.retire(&jump(0));
    // VB, and MSROFF = 1.
    assert_eq!(soft.read(DBG_EXTN_CFG), Ok(0x1_003C));
    assert_eq!((get(&mut soft, 0xC001_0300), get(&mut soft, 0xC001_0301)), (0x1000, 0x2000));
    for n in 1..15 {
        assert!(soft.retire(&jump(n)));
    }
    assert_eq!(soft.read(DBG_EXTN_CFG), Ok(0xF_003C));
    assert!(soft.retire(&jump(15)));
    assert_eq!(soft.read(DBG_EXTN_CFG), Ok(0x3C), "MSROFF wraps to 0 when full");
    assert!(!soft.retire(&jump(16)), "full");
    assert_eq!(soft.recorded(), 16);
    assert_eq!(get(&mut soft, 0xC001_031E), 0x100F);
    assert_eq!(get(&mut soft, 0xC001_0300), 0x1000, "nothing was overwritten");
    // Writing it again restarts recording.
    soft.write(DBG_EXTN_CFG, 0x1C).unwrap();
    assert!(soft.retire(&jump(17)));
    assert_eq!(get(&mut soft, 0xC001_0300), 0x1011);
}

#[test]
fn amd_stacks_also_have_the_one_entry_pair() {
    let mut soft = on(&by_hand::zen4());
    soft.retire(&jump(1));
    assert_eq!(get(&mut soft, 0x1DB), 0, "DEBUGCTL.LBR is off");
    assert_eq!(soft.newest_alone(), Some(16));
    soft.write(DEBUGCTL, 1).unwrap();
    assert_eq!(soft.newest_alone(), None, "of a branch that the filter drops, the pair");
    // LBR_SELECT filters the stack only.
    soft.write(Msr(0xC000_010E), 0x80).unwrap();
    assert!(!soft.retire(&jump(2)));
    assert_eq!((get(&mut soft, 0x1DB), get(&mut soft, 0x1DC)), (0x1002, 0x2002));
    assert_eq!(get(&mut soft, 0xC001_0300), 0x1001);
    assert_eq!(soft.recorded(), 1);
    // The pair also works without the stack.
    soft.write(DBG_EXTN_CFG, 0x18).unwrap();
    assert!(!soft.retire(&jump(3)));
    assert_eq!(get(&mut soft, 0x1DB), 0x1003);
}

#[test]
fn records_and_tos_can_be_written_where_they_are_read_write() {
    let mut soft = on(&by_hand::skylake());
    soft.retire(&jump(1));
    soft.write(Msr(0x681), 0).unwrap();
    assert_eq!((get(&mut soft, 0x681), get(&mut soft, 0x6C1)), (0, 0x2001));
    // Only five bits of TOS are used with 32 records.
    soft.write(TOS, 0x1234_567E).unwrap();
    assert_eq!(soft.read(TOS), Ok(0x1E));
    soft.retire(&jump(2));
    assert_eq!(soft.read(TOS), Ok(0x1F));
    assert_eq!(get(&mut soft, 0x69F), 0x1002);
    soft.retire(&jump(3));
    assert_eq!(soft.read(TOS), Ok(0));
    assert_eq!(get(&mut soft, 0x680), 0x1003);
}

/// All record state that software can read.
fn seen(soft: &mut SoftLbr, caps: &LbrCaps) -> Vec<Option<u64>> {
    let map = &caps.registers;
    let records =
        (0..caps.depth).flat_map(|i| [Some(map.from_at(i)), map.to_at(i), map.info_at(i), map.tos]);
    let mut seen: Vec<_> = records.map(|msr| soft.read(msr?).ok()).collect();
    seen.push(Some(soft.recorded()));
    seen
}

/// As if they had been recorded: TOS and the count at once, the records when newer branches have
/// overwritten them.
#[test]
fn skipped_branches_count_and_move_tos() {
    for (name, caps, _) in by_hand::every() {
        let mut all = on(&caps);
        let Some(depth) = all.newest_alone() else { continue };
        let mut few = all.clone();
        let depth = depth as u64;
        for skipped in [1, depth - 1, depth, depth + 3, 5 * depth + 1] {
            (0..skipped).for_each(|n| assert!(all.retire(&jump(n))));
            few.skip(skipped);
            assert_eq!(few.recorded(), all.recorded(), "{name} {skipped}");
            if let Some(tos) = caps.registers.tos {
                assert_eq!(few.read(tos), all.read(tos), "{name} {skipped}");
            }
            for n in 0..depth {
                assert!(all.retire(&jump(n)) && few.retire(&jump(n)));
            }
            assert_eq!(seen(&mut few, &caps), seen(&mut all, &caps), "{name} {skipped}");
        }
    }
}

#[test]
fn the_cycles_after_skipped_branches_are_unknown() {
    let mut soft = on(&by_hand::skylake());
    let timed = Retired { cycles: Some(10), ..jump(1) };
    soft.retire(&timed);
    soft.skip(1);
    soft.retire(&timed);
    soft.retire(&timed);
    assert_eq!((get(&mut soft, 0xDC3) & 0xFFFF, get(&mut soft, 0xDC4) & 0xFFFF), (0, 10));
}
