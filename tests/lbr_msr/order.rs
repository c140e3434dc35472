//! Time order, tested with LBR stacks that were filled by hand.

use lbr_msr::{caps::Order, decode::ring_order};

/// An LBR that fills like hardware: TOS advances, then the record is written.
struct Ring {
    depth: u32,
    tos: u32,
    records: Vec<u64>,
}

impl Ring {
    /// An LBR that recorded the branches 1, 2, ... `branches`.
    fn filled(depth: u32, branches: u64) -> Ring {
        let mut ring = Ring { depth, tos: 0, records: vec![0; depth as usize] };
        for branch in 1..=branches {
            ring.tos = if ring.tos + 1 == depth { 0 } else { ring.tos + 1 };
            ring.records[ring.tos as usize] = branch;
        }
        ring
    }
    fn newest_first(&self, junk: u64) -> Vec<u64> {
        ring_order(Order::Tos, self.depth, u64::from(self.tos) | junk)
            .map(|i| self.records[i as usize])
            .collect()
    }
}

#[test]
fn a_stack_with_tos_is_read_newest_first() {
    for depth in [4, 8, 16, 32] {
        for branches in u64::from(depth)..u64::from(3 * depth) {
            let ring = Ring::filled(depth, branches);
            let expected: Vec<u64> = (0..u64::from(depth)).map(|age| branches - age).collect();
            assert_eq!(ring.newest_first(0), expected, "depth {depth}, {branches} branches");
        }
    }
}

#[test]
fn reversed_it_is_the_order_of_execution() {
    let ring = Ring::filled(8, 13);
    let oldest_first: Vec<u64> = ring_order(Order::Tos, 8, u64::from(ring.tos))
        .rev()
        .map(|i| ring.records[i as usize])
        .collect();
    assert_eq!(oldest_first, [6, 7, 8, 9, 10, 11, 12, 13]);
}

#[test]
fn empty_records_come_last() {
    let ring = Ring::filled(8, 3);
    assert_eq!(ring.newest_first(0), [3, 2, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn bits_of_tos_above_the_index_are_ignored() {
    for (depth, junk) in [(4, !3), (8, !7), (16, !0xF), (32, !0x1F), (4, 1 << 63), (32, 0x20)] {
        let ring = Ring::filled(depth, 41);
        assert_eq!(ring.newest_first(junk), ring.newest_first(0), "depth {depth}, {junk:#x}");
    }
}

#[test]
fn shifting_records_are_read_upward() {
    let order = ring_order(Order::NewestFirst, 4, 99);
    assert_eq!(order.collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(ring_order(Order::NewestFirst, 4, 0).rev().collect::<Vec<_>>(), [3, 2, 1, 0]);
}

#[test]
fn brs_is_read_downward_from_below_msroff() {
    let order = |msroff| ring_order(Order::Saturating, 16, msroff).collect::<Vec<_>>();
    assert_eq!(order(1), [0]);
    assert_eq!(order(5), [4, 3, 2, 1, 0]);
    // 0 again when all 16 are written.
    assert_eq!(order(0), (0..16).rev().collect::<Vec<_>>());
}

#[test]
fn a_pair_is_one_record_and_depth_0_is_none() {
    assert_eq!(ring_order(Order::Single, 1, 7).collect::<Vec<_>>(), [0]);
    for order in [Order::Tos, Order::NewestFirst, Order::Saturating, Order::Single] {
        assert_eq!(ring_order(order, 0, 5).len(), 0, "{order:?}");
    }
}
