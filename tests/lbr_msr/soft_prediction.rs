//! The model of predictions and cycles, by its own rules, counted by hand.

use lbr_msr::record::HwBranchType;
use lbr_msr::soft::{Model, Modelled, PENALTY, Predictor};

const COND: HwBranchType = HwBranchType::Cond;

#[test]
fn a_loop_is_mispredicted_at_its_first_round_and_at_its_end() {
    let mut predictor = Predictor::default();
    let mut run = |taken| predictor.executed(0x1000, 0x1002, COND, 0x1000, taken);
    assert_eq!([true, true, true, false].map(&mut run), [true, false, false, true]);
    // The counter is still on the side of taken.
    assert_eq!([true, true, true, false].map(&mut run), [false, false, false, true]);
}

#[test]
fn an_alternating_branch_is_always_mispredicted() {
    let mut predictor = Predictor::default();
    let mut run = |taken| predictor.executed(0x1000, 0x1002, COND, 0x1000, taken);
    assert_eq!([true, false, true, false].map(&mut run), [true; 4]);
}

#[test]
fn indirect_branches_go_where_they_went_last() {
    let mut predictor = Predictor::default();
    let mut run = |to| predictor.executed(0x1000, 0x1002, HwBranchType::IndJmp, to, true);
    assert_eq!([1, 1, 2, 2, 1].map(&mut run), [true, false, true, false, true]);
}

#[test]
fn returns_go_to_their_calls() {
    let mut predictor = Predictor::default();
    let mut run = |from, to, class| predictor.executed(from, from + 5, class, to, true);
    let (call, ret) = (HwBranchType::RelCall, HwBranchType::Ret);
    assert!(!run(0x1000, 0x1105, call));
    assert!(!run(0x2000, 0x2105, call));
    assert!(!run(0x2105, 0x210a, call), "a call of the next instruction");
    assert!(!run(0x3000, 0x2005, ret), "which nothing returns from");
    assert!(run(0x3000, 0x9000, ret), "not to its call");
    assert!(!run(0x3000, 0x9000, ret), "no call was seen");
    assert!(!run(0x4000, 0x4000, HwBranchType::RelJmp));
    predictor.executed(0x1000, 0x1005, call, 0x2000, true);
    predictor.forget_calls();
    assert!(!predictor.executed(0x3000, 0x3001, ret, 0x9000, true), "its call is forgotten");
}

#[test]
fn the_return_stack_has_sixteen_entries() {
    let mut predictor = Predictor::default();
    for depth in 0..20 {
        predictor.executed(0x1000 * depth, 0x1000 * depth + 5, HwBranchType::RelCall, 0x50, true);
    }
    let mut back = |to: u64| predictor.executed(0x60, 0x61, HwBranchType::Ret, to, true);
    assert!((4..20).rev().all(|depth| !back(0x1000 * depth + 5)));
    assert!((0..4).all(|_| !back(0x9000)), "unknown, and so predicted");
}

/// Three instructions and a branch, taken three times, then not, then another branch.
#[test]
fn a_misprediction_costs_in_the_next_record() {
    let mut model = Model::default();
    let mut cycles = Vec::new();
    for _ in 0..3 {
        model.tick(4);
        cycles.push(model.taken(0x1000, 0x1002, COND, 0xff0));
    }
    let of = |mispredicted, cycles| Modelled { mispredicted, cycles };
    assert_eq!(cycles, [of(true, 4), of(false, 4 + PENALTY), of(false, 4)]);
    model.tick(4);
    assert!(model.not_taken(0x1000, 0x1002), "which has no record");
    model.tick(2);
    let jump = model.taken(0x1010, 0x1012, HwBranchType::RelJmp, 0x2000);
    assert_eq!(jump, of(false, 4 + PENALTY + 2));
}
