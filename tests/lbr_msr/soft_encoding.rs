//! The bits of a record in every layout, computed by hand from the manuals' tables.

use lbr_msr::address::Msr;
use lbr_msr::caps::{Layout, LbrCaps};
use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{LbrFormat, MsrRead, MsrWrite};

use crate::caps_by_hand as by_hand;

const USER: u64 = 0x5555_5555_4444;
const KERNEL: u64 = 0xFFFF_FFFF_8100_0123;

/// FROM, TO and INFO of the newest record after `branches`.
fn last(caps: &LbrCaps, branches: &[Retired]) -> (u64, u64, Option<u64>) {
    let mut soft = SoftLbr::new(caps, caps.format.map(|f| f.0.into()));
    let map = caps.registers;
    let before = soft.read(map.control).unwrap();
    let everything = if map.control == by_hand::LBR_CTL { 0x7F_0006 } else { 0 };
    soft.write(map.control, before | map.enable | everything).unwrap();
    for branch in branches {
        soft.retire(branch);
    }
    let i = map.tos.map_or(0, |tos| soft.read(tos).unwrap() as u32);
    let to = map.to_at(i).map_or(0, |to| soft.read(to).unwrap());
    let from = soft.read(map.from_at(i)).unwrap();
    (from, to, map.info_at(i).map(|info| soft.read(info).unwrap()))
}

fn branch(from: u64, to: u64) -> Retired {
    Retired::user(from, to, HwBranchType::Cond)
}

fn mispredicted(from: u64, to: u64) -> Retired {
    Retired { mispredicted: Some(true), ..branch(from, to) }
}

fn after(cycles: u32, branch: Retired) -> Retired {
    Retired { cycles: Some(cycles), ..branch }
}

/// Uses two records, because the first after a reset has no cycle count.
fn second(caps: &LbrCaps, branch: Retired) -> (u64, u64, Option<u64>) {
    last(caps, &[after(77, self::branch(1, 2)), branch])
}

#[test]
fn formats_1_and_2_hold_only_addresses() {
    for caps in [by_hand::bonnell(), by_hand::core2(), by_hand::silvermont()] {
        assert_eq!(last(&caps, &[mispredicted(KERNEL, USER)]), (KERNEL, USER, None));
        assert_eq!(last(&caps, &[mispredicted(USER, KERNEL)]), (USER, KERNEL, None));
    }
}

#[test]
fn format_3_has_mispred_in_from() {
    for caps in [by_hand::nehalem(), by_hand::sandy_bridge(), by_hand::knights_landing()] {
        assert_eq!(
            last(&caps, &[mispredicted(USER, KERNEL)]),
            (0x8000_5555_5555_4444, KERNEL, None)
        );
        assert_eq!(last(&caps, &[branch(USER, KERNEL)]).0, USER);
        assert_eq!(last(&caps, &[mispredicted(KERNEL, USER)]).0, KERNEL);
        assert_eq!(last(&caps, &[branch(KERNEL, USER)]).0, 0x7FFF_FFFF_8100_0123);
    }
}

/// The facts' worked values, encoded.
#[test]
fn format_4_has_three_flags_in_from() {
    let caps = by_hand::haswell(true);
    assert_eq!(last(&caps, &[mispredicted(KERNEL, USER)]).0, 0x9FFF_FFFF_8100_0123);
    assert_eq!(last(&caps, &[branch(KERNEL, USER)]).0, 0x1FFF_FFFF_8100_0123);
    let in_tx = Retired { in_tx: true, ..mispredicted(USER, KERNEL) };
    assert_eq!(last(&caps, &[in_tx]), (0xC000_5555_5555_4444, KERNEL, None));
    let abort = Retired { abort: true, in_tx: true, ..branch(USER, USER) };
    assert_eq!(last(&caps, &[abort]).0, 0x6000_5555_5555_4444);
}

#[test]
fn format_4_without_tsx_records_bits_62_and_61_as_0() {
    let caps = by_hand::haswell(false);
    let flagged = Retired { in_tx: true, abort: true, ..mispredicted(USER, USER) };
    assert_eq!(last(&caps, &[flagged]).0, 0x8000_5555_5555_4444);
    assert_eq!(last(&caps, &[branch(KERNEL, USER)]).0, 0x1FFF_FFFF_8100_0123);
}

#[test]
fn format_5_has_flags_and_cycles_in_info() {
    let caps = by_hand::skylake();
    assert_eq!(second(&caps, after(25, branch(KERNEL, USER))), (KERNEL, USER, Some(25)));
    assert_eq!(
        second(&caps, after(25, mispredicted(USER, KERNEL))),
        (USER, KERNEL, Some(0x8000_0000_0000_0019))
    );
    let abort = Retired { in_tx: true, abort: true, ..after(1, branch(USER, USER)) };
    assert_eq!(second(&caps, abort).2, Some(0x6000_0000_0000_0001));
}

#[test]
fn format_6_has_cycles_above_to() {
    let caps = by_hand::goldmont();
    assert_eq!(second(&caps, after(25, branch(USER, KERNEL))), (USER, 0x0019_FFFF_8100_0123, None));
    assert_eq!(
        second(&caps, after(0xFFFF, mispredicted(KERNEL, USER))),
        (KERNEL, 0xFFFF_5555_5555_4444, None)
    );
    assert_eq!(second(&caps, branch(KERNEL, USER)).0, 0x7FFF_FFFF_8100_0123);
}

#[test]
fn format_7_is_format_5_without_tsx() {
    let caps = by_hand::goldmont_plus();
    let flagged = Retired { in_tx: true, abort: true, ..after(3, mispredicted(USER, USER)) };
    assert_eq!(second(&caps, flagged), (USER, USER, Some(0x8000_0000_0000_0003)));
    let mut with_tsx = caps;
    with_tsx.layout = Layout::Legacy { format: LbrFormat::INFO2, tsx: true };
    assert_eq!(second(&with_tsx, flagged).2, Some(0xE000_0000_0000_0003));
}

#[test]
fn cycles_count_from_record_to_record_and_saturate() {
    let caps = by_hand::skylake();
    let mut soft = SoftLbr::new(&caps, Some(5));
    soft.write(by_hand::SELECT, 0x004).unwrap(); // no conditional branches
    soft.write(by_hand::DEBUGCTL, 1).unwrap();
    let jump = Retired { class: HwBranchType::RelJmp, ..branch(USER, USER) };
    soft.retire(&after(9, jump));
    assert_eq!(soft.read(Msr(0xDC1)), Ok(0), "the first since the reset");
    soft.retire(&after(100, branch(1, 2)));
    soft.retire(&after(20, branch(1, 2)));
    soft.retire(&after(3, jump));
    assert_eq!(soft.read(Msr(0xDC2)), Ok(123), "through filtered branches");
    soft.retire(&after(0xFFFE, jump));
    assert_eq!(soft.read(Msr(0xDC3)), Ok(0xFFFE));
    soft.retire(&after(0x1_0000, jump));
    assert_eq!(soft.read(Msr(0xDC4)), Ok(0xFFFF));
    soft.retire(&after(u32::MAX, branch(1, 2)));
    soft.retire(&after(u32::MAX, jump));
    assert_eq!(soft.read(Msr(0xDC5)), Ok(0xFFFF));
    soft.retire(&branch(1, 2)); // its cycle count is unknown
    soft.retire(&after(7, jump));
    assert_eq!(soft.read(Msr(0xDC6)), Ok(0));
}

#[test]
fn arch_info_has_what_leaf_1ch_announces() {
    let caps = by_hand::golden_cove();
    let types = [
        (HwBranchType::Cond, 0),
        (HwBranchType::IndJmp, 1),
        (HwBranchType::RelJmp, 2),
        (HwBranchType::IndCall, 3),
        (HwBranchType::RelCall, 4),
        (HwBranchType::Ret, 5),
        (HwBranchType::Other, 8),
    ];
    for (class, code) in types {
        let retired = Retired { class, ..after(25, branch(USER, KERNEL)) };
        let info = code << 56 | 1 << 60 | 25;
        assert_eq!(second(&caps, retired), (USER, KERNEL, Some(info)), "{class:?}");
    }
    let mispredicted = after(0x12345, mispredicted(KERNEL, USER));
    assert_eq!(second(&caps, mispredicted), (KERNEL, USER, Some(0x9000_0000_0000_FFFF)));
    assert_eq!(second(&caps, branch(1, 2)).2, Some(0), "without a count it is not valid");
    assert_eq!(last(&caps, &[after(25, branch(1, 2))]).2, Some(0), "the first after a reset");
    let in_tx = Retired { in_tx: true, abort: true, ..after(1, branch(1, 2)) };
    assert_eq!(second(&caps, in_tx).2, Some(1 << 60 | 1), "no TSX");

    let mut bare = by_hand::golden_cove();
    bare.layout =
        Layout::Arch { mispredict: false, timed: false, types: false, counters: 0, tsx: true };
    let all = Retired { in_tx: true, class: HwBranchType::Other, ..mispredicted };
    assert_eq!(second(&bare, all).2, Some(1 << 62));
}

#[test]
fn amd_v2_marks_records_valid_and_extends_from_58_bits() {
    let caps = by_hand::zen4();
    assert_eq!(last(&caps, &[branch(USER, USER + 1)]), (USER, 0x8000_5555_5555_4445, None));
    assert_eq!(
        last(&caps, &[mispredicted(USER, KERNEL)]),
        (0x8000_5555_5555_4444, 0x9FFF_FFFF_8100_0123, None)
    );
    assert_eq!(last(&caps, &[branch(KERNEL, USER)]).0, 0x7FFF_FFFF_8100_0123);
    assert_eq!(last(&caps, &[mispredicted(KERNEL, USER)]).0, KERNEL);
}

#[test]
fn brs_has_no_flags_and_three_reserved_bits_in_to() {
    let (from, to, info) = last(&by_hand::zen3(), &[mispredicted(KERNEL, KERNEL)]);
    assert_eq!((from, to, info), (KERNEL, 0x1FFF_FFFF_8100_0123, None));
}

#[test]
fn p6_stores_32_bits() {
    let (from, to, _) = last(&by_hand::p6(), &[branch(0x1_C000_1234, 0x1_0000_0010)]);
    assert_eq!((from, to), (0xC000_1234, 0x10));
}

#[test]
fn addresses_are_extended_from_bit_47() {
    // A faulting IP may be non-canonical.
    let (from, to, _) =
        last(&by_hand::skylake(), &[branch(0x1234_8000_0000_0001, 0xFFFF_0000_0000_0001)]);
    assert_eq!((from, to), (0xFFFF_8000_0000_0001, 1));
}
