use super::{Packed, TransitionKey, Transitions};
use crate::read::stack::EntryFlags;
use lbr_msr::record::BranchType;

/// Sums are the same with and without overflow, and for any weight.
#[test]
fn sums_have_no_end() {
    let mut transitions = Transitions::without_cycles();
    let number = transitions.number(TransitionKey::code((1, 2, 3), false)).expect("there is room");
    let typed = EntryFlags(EntryFlags::MISPREDICTED).with_type(Some(BranchType::COND));
    let weights = [1, Packed::MOST - 1, 1, 1, u64::from(u32::MAX), 7];
    for weight in weights {
        transitions.run(number, (typed, 0), weight);
        transitions.run(number, (EntryFlags(EntryFlags::PREDICTED), 0), weight);
        transitions.run(number, (EntryFlags(0), 0), weight);
    }
    let slot = transitions.list.get(number).expect("it was put there");
    let sums = transitions.many.sums(number, slot);
    let all: u64 = weights.iter().sum();
    assert_eq!((sums.count, sums.known, sums.missed), (3 * all, 2 * all, all));
    assert_eq!(slot.branch_type(), Some(BranchType::COND));
    transitions.run(number, (typed, 0), u64::MAX);
    let slot = transitions.list.get(number).expect("it was put there");
    assert_eq!(transitions.many.sums(number, slot).count, u64::MAX);
    assert_eq!(slot.branch_type(), Some(BranchType::COND));
}
