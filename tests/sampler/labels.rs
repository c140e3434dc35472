//! Labels of a drain when something interferes.

use lbr_msr::caps::Quirks;
use lbr_msr::record::{Head, HwBranchType, Label};
use lbr_msr::soft::Retired;
use proptest::prelude::*;
use sampler::gate::BranchRegisters;

use crate::drain::{begin, drain, oldest_first};
use crate::model::{Model, SHAPES, Shape, THREAD};

/// Every shape, register by register and in one call (not packed records, which have no mark
/// there).
fn all() -> impl Iterator<Item = (Shape, bool)> {
    SHAPES
        .into_iter()
        .flat_map(|shape| [(shape, false), (shape, true)])
        .filter(|what| *what != (Shape::Packed, true))
}

fn running(shape: Shape) -> (Model, sampler::drain::Drain) {
    running_by(shape, false)
}

/// An LBR after two drains, the last of 2 branches.
fn running_by(shape: Shape, one_call: bool) -> (Model, sampler::drain::Drain) {
    let mut model = Model { one_call, ..Model::armed(shape, 16) };
    if shape == Shape::Info || shape == Shape::Arch {
        model.caps.quirks |= Quirks::STREAMLINED_FREEZE;
        model.status = Some(0);
    }
    let mut state = begin(&mut model);
    for n in 0..5 {
        model.branch(0x100 + n, 0x200 + n);
    }
    assert!(drain(&mut state, &mut model).integrity.is_exact());
    model.branch(0x300, 0x400);
    model.branch(0x301, 0x401);
    assert!(drain(&mut state, &mut model).integrity.is_exact());
    (model, state)
}

#[test]
fn a_wipe_is_detected_whatever_was_recorded_after_it() {
    for (shape, one_call) in all() {
        for after in 0..16 {
            let (mut model, mut state) = running_by(shape, one_call);
            model.branch(0x500, 0x600);
            model.wipe();
            for n in 0..after {
                model.branch(0x700 + n, 0x800 + n);
            }
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.integrity.label, Label::Wiped, "{shape:?} {after}");
            assert_ne!(stack.integrity.head, Head::Joined);
            assert_eq!(stack.entries().len() as u64, after);
            // The next stack is not joined to the excluded one.
            model.branch(0x900, 0xA00);
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.integrity.label, Label::Stream, "{shape:?} {after}");
            assert_ne!(stack.integrity.head, Head::Joined, "{shape:?} {after}");
            assert_eq!(stack.entries().len(), 1);
            model.branch(0x900, 0xA00);
            assert!(drain(&mut state, &mut model).integrity.is_exact(), "{shape:?} {after}");
        }
    }
}

/// Nothing was marked yet: only TOS shows that the records are not those of before.
#[test]
fn a_wipe_before_the_first_drain_is_detected_by_tos() {
    for shape in [Shape::Flags, Shape::Info, Shape::Packed] {
        let mut model = Model::armed(shape, 16);
        model.tos = 5;
        let mut state = begin(&mut model);
        model.branch(0x500, 0x600);
        model.wipe();
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Wiped, "{shape:?}");
        assert_eq!(stack.entries().len(), 1);
    }
}

/// An empty LBR in which somebody wrote TO, or the half of a packed record that is TO.
#[test]
fn an_empty_record_that_is_not_blank_is_foreign() {
    for (shape, record) in [
        (Shape::Flags, (0, 0x5000, 0)),
        (Shape::Info, (0, 0x5000, 0)),
        (Shape::Packed, (0x5000 << 32, 0, 0)),
    ] {
        let mut model = Model::armed(shape, 16);
        let mut state = begin(&mut model);
        model.slots[0] = record;
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
        assert!(stack.entries().is_empty());
        // What they wrote ends the next stack.
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Unknown));
        assert_eq!(oldest_first(&model, &stack), [model.encode(0x700, 0x800)], "{shape:?}");
    }
}

/// Recording was switched off after the mark was overwritten: branches may be missing at both ends.
#[test]
fn a_full_stack_that_was_stopped_does_not_join_the_next() {
    for (shape, one_call) in all() {
        let (mut model, mut state) = running_by(shape, one_call);
        for n in 0..20 {
            model.branch(0x500 + n, 0x600);
        }
        model.control &= !model.caps.registers.enable;
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stopped, Head::Lost));
        assert_eq!(stack.entries().len(), 16);
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
    }
}

/// Branches before and after the failed drain must not share a stack.
#[test]
fn a_failed_drain_leaves_recording_off_that_it_found_off() {
    for one_call in [false, true] {
        let (mut model, mut state) = running_by(Shape::Info, one_call);
        model.branch(0x500, 0x600);
        model.control &= !model.caps.registers.enable;
        // TO of the newest record, at TOS 8.
        model.fault = model.caps.registers.to_at(8);
        state.drain(&mut model, THREAD).unwrap_err();
        assert!(!model.is_on(), "one call: {one_call}");
    }
}

/// Records that someone else's filter let in are excluded once, also if they change meanwhile.
#[test]
fn a_foreign_stack_that_changes_while_it_is_read_is_not_read_again() {
    for shape in [Shape::Flags, Shape::Info, Shape::Packed, Shape::Arch] {
        let (mut model, mut state) = running(shape);
        model.branch(0x500, 0x600);
        model.control ^= 1 << 11;
        model.intruder = Some((4, model.encode(0x777, 0x888)));
        assert_eq!(drain(&mut state, &mut model).integrity.label, Label::Foreign, "{shape:?}");
        model.control ^= 1 << 11;
        model.branch(0x900, 0xA00);
        let stack = drain(&mut state, &mut model);
        let raw = oldest_first(&model, &stack);
        assert_eq!(raw.last(), Some(&model.encode(0x900, 0xA00)), "{shape:?}");
        assert!(!raw.contains(&model.encode(0x500, 0x600)), "{shape:?}: {raw:x?}");
    }
}

#[test]
fn repeated_wipes_of_an_idle_ring_never_look_exact() {
    for (shape, one_call) in all() {
        let (mut model, mut state) = running_by(shape, one_call);
        model.wipe();
        assert_eq!(drain(&mut state, &mut model).integrity.label, Label::Wiped);
        model.branch(0x500, 0x600);
        model.wipe();
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.entries().len(), 1);
        assert!(!stack.integrity.is_exact(), "a second wipe looks like none");
    }
}

#[test]
fn recording_found_off_is_stopped_and_switched_on_again() {
    for (shape, one_call) in all() {
        let (mut model, mut state) = running_by(shape, one_call);
        model.branch(0x500, 0x600);
        model.control &= !model.caps.registers.enable;
        assert!(!model.branch(0x700, 0x800), "missed");
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Stopped, "{shape:?}");
        assert_eq!(stack.entries().len(), 1);
        assert!(!stack.integrity.is_exact());
        // Nothing new: the gap is still remembered.
        assert!(!drain(&mut state, &mut model).integrity.is_exact());
        model.branch(0x900, 0xA00);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
        model.branch(0x900, 0xA00);
        assert!(drain(&mut state, &mut model).integrity.is_exact());
    }
}

#[test]
fn a_freeze_on_pmi_is_stopped_although_the_enable_bit_is_set() {
    for (shape, one_call) in all().filter(|(shape, _)| matches!(shape, Shape::Info | Shape::Arch)) {
        let (mut model, mut state) = running_by(shape, one_call);
        // Another bit of the register belongs to someone else.
        model.status = Some((1 << 58) | (1 << 59));
        assert!(!model.branch(0x500, 0x600), "missed");
        // `drain` checks that recording continues.
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Stopped, "{shape:?}");
        assert_eq!(model.status, Some(1 << 59));
        model.branch(0x900, 0xA00);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
    }
}

#[test]
fn other_control_bits_are_foreign_and_stay_as_they_are() {
    for (shape, one_call) in all() {
        let (mut model, mut state) = running_by(shape, one_call);
        model.branch(0x500, 0x600);
        // FREEZE_LBRS_ON_PMI, as perf sets it; for others some other bit.
        model.control ^= 1 << 11;
        let theirs = model.control;
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
        assert_eq!(model.control, theirs);
        model.control ^= 1 << 11;
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
        assert_eq!(stack.entries().len(), 1);
    }
}

#[test]
fn a_control_register_taken_over_and_off_is_not_switched_on() {
    for one_call in [false, true] {
        let (mut model, mut state) = running_by(Shape::Arch, one_call);
        model.control = 0;
        let stack = state.drain(&mut model, THREAD).unwrap();
        assert_eq!((stack.integrity.label, model.control), (Label::Foreign, 0));
        // Nor does a caller switch it on that thaws.
        let (stack, thawed) = state.drain_frozen(&mut model, THREAD, Some(0)).unwrap();
        assert_eq!((stack.integrity.label, thawed), (Label::Foreign, 0));
    }
}

#[test]
fn branches_before_an_undelivered_stack_are_lost() {
    for shape in SHAPES {
        let (mut model, mut state) = running(shape);
        let mut next = |state: &mut sampler::drain::Drain| {
            model.branch(0x500, 0x600);
            drain(state, &mut model).integrity.head
        };
        state.may_have_missed();
        assert_eq!(next(&mut state), Head::Unknown);
        state.stack_dropped();
        state.may_have_missed();
        assert_eq!(next(&mut state), Head::Lost);
        state.may_have_missed();
        state.stack_dropped();
        assert_eq!(next(&mut state), Head::Lost);
        assert_eq!(next(&mut state), Head::Joined);
    }
}

/// A torn stack is read again, but those before it are not.
#[test]
fn a_loss_before_a_torn_stack_is_not_forgotten() {
    for shape in SHAPES {
        let (mut model, mut state) = running(shape);
        model.branch(0x500, 0x600);
        state.stack_dropped();
        model.intruder = Some((4, model.encode(0x777, 0x888)));
        assert_eq!(drain(&mut state, &mut model).integrity.label, Label::Torn, "{shape:?}");
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
        assert_eq!(stack.entries().len(), 2);
    }
}

/// No branch is lost with it, as far as one can see.
#[test]
fn after_an_empty_foreign_stack_the_continuity_is_unknown() {
    for shape in SHAPES {
        let (mut model, mut state) = running(shape);
        model.control ^= 1 << 11;
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.entries().len()), (Label::Foreign, 0));
        model.control ^= 1 << 11;
        model.branch(0x700, 0x800);
        assert_eq!(drain(&mut state, &mut model).integrity.head, Head::Unknown, "{shape:?}");
    }
}

/// A hypervisor may hide IA32_PERF_GLOBAL_STATUS of a CPU that has it.
#[test]
fn a_hidden_status_register_is_not_read() {
    for (shape, one_call) in all().filter(|(shape, _)| matches!(shape, Shape::Info | Shape::Arch)) {
        let mut model = Model { one_call, ..Model::armed(shape, 16) };
        model.caps.quirks |= Quirks::STREAMLINED_FREEZE;
        assert_eq!(model.status, None);
        let mut state = begin(&mut model);
        for n in 0..2 {
            model.branch(0x500 + n, 0x600);
            assert!(drain(&mut state, &mut model).integrity.is_exact(), "{shape:?}");
        }
    }
}

/// Another user changed the control register: LBR_FRZ is theirs.
#[test]
fn a_freeze_by_others_is_not_released() {
    for (shape, one_call) in all().filter(|(shape, _)| matches!(shape, Shape::Info | Shape::Arch)) {
        let (mut model, mut state) = running_by(shape, one_call);
        model.control ^= 1 << 11;
        model.status = Some(1 << 58);
        let stack = state.drain(&mut model, THREAD).unwrap();
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
        assert_eq!(model.status, Some(1 << 58), "{shape:?}");
    }
}

#[test]
fn another_filter_is_foreign() {
    for (shape, one_call) in [
        (Shape::Flags, false),
        (Shape::Flags, true),
        (Shape::Info, true),
        (Shape::Amd, false),
        (Shape::Amd, true),
    ] {
        let (mut model, mut state) = running_by(shape, one_call);
        model.branch(0x500, 0x600);
        model.select = 0;
        assert_eq!(drain(&mut state, &mut model).integrity.label, Label::Foreign, "{shape:?}");
    }
    // With INFO, the budget covers the filter only if no slot or every slot is new; the end of the
    // recording always checks it.
    let (mut model, mut state) = running(Shape::Info);
    model.select = 0;
    for n in 0..16 {
        model.branch(0x500 + n, 0x600);
    }
    assert_eq!(drain(&mut state, &mut model).integrity.label, Label::Foreign);
    model.branch(0x500, 0x600);
    drain(&mut state, &mut model);
    assert!(!state.is_still_ours(&mut model).unwrap());
    model.select = 0x101;
    assert!(state.is_still_ours(&mut model).unwrap());
}

#[test]
fn a_decreased_top_of_stack_is_foreign() {
    for shape in [Shape::Flags, Shape::Info, Shape::Packed] {
        let (mut model, mut state) = running(shape);
        // TOS is 7 with a mark there and an older one at 5.
        model.tos = 6;
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
        assert_ne!(stack.integrity.head, Head::Joined);
    }
}

#[test]
fn an_older_mark_of_the_same_loop_is_recognised_by_its_index() {
    for shape in [Shape::Flags, Shape::Info, Shape::Packed] {
        let mut model = Model::armed(shape, 16);
        let mut state = begin(&mut model);
        for burst in [5, 2] {
            for _ in 0..burst {
                model.branch(0x100, 0x200);
            }
            assert!(drain(&mut state, &mut model).integrity.is_exact());
        }
        // Marks at 5 and 7, identical in every register.
        model.tos = 6;
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
    }
}

#[test]
fn a_changed_mark_is_foreign() {
    for shape in [Shape::Flags, Shape::Info, Shape::Packed, Shape::Arch] {
        let (mut model, mut state) = running(shape);
        for n in 0..3 {
            model.branch(0x500 + n, 0x600 + n);
        }
        let mark = if model.caps.registers.tos.is_some() { 7 } else { 3 };
        let other = if shape == Shape::Packed { (0x999 << 32, 0, 0) } else { (0, 0x999, 0) };
        assert_ne!(std::mem::replace(&mut model.slots[mark], other), other);
        let stack = drain(&mut state, &mut model);
        let found = (stack.integrity.label, stack.entries().len());
        assert_eq!(found, (Label::Foreign, 3), "{shape:?}");
    }
}

#[test]
fn a_zeroed_record_that_is_not_the_mark_is_foreign() {
    for shape in [Shape::Flags, Shape::Info, Shape::Packed, Shape::Arch] {
        let (mut model, mut state) = running(shape);
        for n in 0..3 {
            model.branch(0x500 + n, 0x600 + n);
        }
        let at = if model.caps.registers.tos.is_some() { 9 } else { 1 };
        let (from, to, info) = model.slots[at];
        model.slots[at] =
            if shape == Shape::Packed { (from & !0xFFFF_FFFF, to, info) } else { (0, to, info) };
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
        assert_eq!(stack.entries().len(), 1);
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
    }
}

#[test]
fn a_stack_that_changes_while_it_is_read_is_torn_and_loses_nothing() {
    for shape in SHAPES {
        // After the freeze and TOS, until the registers are read again.
        let (probe, mut state) = running(shape);
        let mut quiet = probe.clone();
        for n in 0..3 {
            quiet.branch(0x500 + n, 0x600 + n);
        }
        let reads = drain(&mut state, &mut quiet).accesses as usize;
        for at in 3..reads - 4 {
            let (mut model, mut state) = running(shape);
            for n in 0..3 {
                model.branch(0x500 + n, 0x600 + n);
            }
            let intruder = model.encode(0x777, 0x888);
            model.intruder = Some((at, intruder));
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.integrity.label, Label::Torn, "{shape:?} {at}");
            model.branch(0x900, 0xA00);
            let stack = drain(&mut state, &mut model);
            assert!(stack.integrity.is_exact(), "{shape:?} {at}: read from the old mark again");
            let raw = oldest_first(&model, &stack);
            assert_eq!(raw.len(), 5, "{shape:?} {at}");
            assert_eq!(raw[3], intruder);
        }
    }
}

/// Nothing is new, and a record appears between the read of the newest one and the thaw.
#[test]
fn a_record_that_appears_in_an_empty_drain_is_torn_and_not_lost() {
    for shape in SHAPES {
        let (mut quiet, mut state) = running(shape);
        let accesses = drain(&mut state, &mut quiet).accesses as usize;
        // It may have one of the newest record's addresses.
        for (from, to) in [(0x777, 0x888), (0x301, 0x888), (0x777, 0x401), (0x301, 0x401)] {
            // The last accesses are the check for movement and the thaw.
            let (mut model, mut state) = running(shape);
            let intruder = model.encode(from, to);
            model.intruder = Some((accesses - 2, intruder));
            let stack = drain(&mut state, &mut model);
            let found = (stack.integrity.label, stack.entries().len());
            assert_eq!(found, (Label::Torn, 0), "{shape:?} {from:#x}");
            model.branch(0x900, 0xA00);
            let stack = drain(&mut state, &mut model);
            assert!(stack.integrity.is_exact(), "{shape:?}");
            assert_eq!(oldest_first(&model, &stack), [intruder, model.encode(0x900, 0xA00)]);
        }
    }
}

/// A batch that fails between its writes has zeroed some of the records, so that branches are
/// missing within the next stack.
#[test]
fn a_stack_after_a_batch_that_failed_is_excluded() {
    for (shape, _) in all().filter(|(_, one_call)| *one_call) {
        let (mut model, mut state) = running_by(shape, true);
        model.branch(0x500, 0x600);
        model.branch(0x501, 0x601);
        // The batch zeroes the newest record, or the one before.
        let [first, second] = if model.caps.registers.tos.is_some() { [8, 9] } else { [0, 1] };
        let map = model.caps.registers;
        let zeroed =
            if shape == Shape::Amd { map.to_at(second) } else { Some(map.from_at(second)) };
        model.read_only = zeroed;
        state.drain(&mut model, THREAD).unwrap_err();
        model.read_only = None;
        assert!(model.is_on());
        let slot = model.slots[first as usize];
        assert_eq!(if shape == Shape::Amd { slot.1 } else { slot.0 }, 0, "{shape:?}");
        model.branch(0x700, 0x800);
        let stack = drain(&mut state, &mut model);
        assert!(stack.integrity.label.is_excluded(), "{shape:?}: {:?}", stack.integrity);
        model.branch(0x900, 0xA00);
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
    }
}

/// The batch overwrites the control register with the bits that were read before it.
#[test]
fn a_control_register_that_changes_before_a_batch_is_foreign() {
    for (shape, _) in all().filter(|(_, one_call)| *one_call) {
        let (mut model, mut state) = running_by(shape, true);
        model.branch(0x500, 0x600);
        model.rewritten = Some((1, model.control & !model.caps.registers.enable));
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.integrity.label, Label::Foreign, "{shape:?}");
    }
}

/// A single record is new, and before the thaw a branch with the same source or target retires.
#[test]
fn a_record_with_an_address_of_the_newest_is_recorded_or_torn() {
    for shape in SHAPES {
        let (mut quiet, mut state) = running(shape);
        quiet.branch(0x500, 0x600);
        let accesses = drain(&mut state, &mut quiet).accesses as usize;
        let of_source = (3..accesses - 2).map(|at| (at, 0x500, 0x888));
        // The check for movement reads TO last.
        let of_target = (3..accesses - 3).map(|at| (at, 0x777, 0x600));
        for (at, from, to) in of_source.chain(of_target) {
            let (mut model, mut state) = running(shape);
            model.branch(0x500, 0x600);
            let intruder = model.encode(from, to);
            model.intruder = Some((at, intruder));
            let stack = drain(&mut state, &mut model);
            let is_recorded = oldest_first(&model, &stack).contains(&intruder);
            assert!(is_recorded || stack.integrity.label == Label::Torn, "{shape:?} {at}");
        }
    }
}

#[test]
fn a_stack_that_changes_within_a_batch_is_torn_and_breaks_contiguity() {
    for (shape, _) in all().filter(|(_, one_call)| *one_call) {
        // From within the records to the second read of TOS or entry 0.
        for at in 8..30 {
            let (mut model, mut state) = running_by(shape, true);
            model.branch(0x500, 0x600);
            model.intruder = Some((at, model.encode(0x777, 0x888)));
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.integrity.label, Label::Torn, "{shape:?} {at}");
            model.branch(0x900, 0xA00);
            let stack = drain(&mut state, &mut model);
            assert!(!stack.integrity.is_exact(), "{shape:?} {at}");
            let raw = oldest_first(&model, &stack);
            assert_eq!(raw.last(), Some(&model.encode(0x900, 0xA00)));
            // The zeroed intruder may have looked foreign; then the next stack is not joined.
            model.branch(0x900, 0xA00);
            drain(&mut state, &mut model);
            model.branch(0x900, 0xA00);
            assert!(drain(&mut state, &mut model).integrity.is_exact(), "{shape:?} {at}");
        }
    }
}

#[test]
fn a_dropped_stack_breaks_contiguity() {
    let (mut model, mut state) = running(Shape::Arch);
    model.branch(1, 2);
    drain(&mut state, &mut model);
    state.stack_dropped();
    drain(&mut state, &mut model);
    model.branch(1, 2);
    assert_eq!(drain(&mut state, &mut model).integrity.head, Head::Lost);
    model.branch(1, 2);
    assert_eq!(drain(&mut state, &mut model).integrity.head, Head::Joined);
}

fn call(n: u64) -> Retired {
    Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelCall)
}

fn ret(n: u64) -> Retired {
    Retired::user(0x3000 + n, 0x4000 + n, HwBranchType::Ret)
}

fn call_stack(shape: Shape, depth: u32, one_call: bool) -> Model {
    Model { call_stack: true, one_call, ..Model::armed(shape, depth) }
}

/// Shapes with call-stack mode, register by register and in one call.
fn call_stacks() -> impl Iterator<Item = (Shape, bool)> {
    all().filter(|(shape, _)| !matches!(shape, Shape::Packed | Shape::Amd))
}

#[test]
fn a_snapshot_of_a_stopped_or_foreign_lbr_has_that_label() {
    for (shape, one_call) in call_stacks() {
        let mut model = call_stack(shape, 8, one_call);
        let has_status = shape != Shape::Flags;
        if has_status {
            model.caps.quirks |= Quirks::STREAMLINED_FREEZE;
            model.status = Some(0);
        }
        let mut state = begin(&mut model);
        model.retire(&call(0));
        let mut label = |change: fn(&mut Model)| {
            change(&mut model);
            // `drain` checks that recording continues.
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.entries().len(), 1, "{shape:?} {one_call}");
            stack.integrity.label
        };
        assert_eq!(label(|model| model.control &= !model.caps.registers.enable), Label::Stopped);
        assert_eq!(label(|_| {}), Label::Snapshot);
        if has_status {
            assert_eq!(label(|model| model.status = Some(1 << 58)), Label::Stopped, "{shape:?}");
            assert_eq!(label(|_| {}), Label::Snapshot);
        }
        let theirs = |model: &mut Model| model.control ^= 1 << 11;
        assert_eq!(label(theirs), Label::Foreign);
        assert_eq!(label(theirs), Label::Snapshot);
        // With one frame, freeze to thaw leave accesses for the filter, which Architectural LBR has in
        // the control register.
        if shape != Shape::Arch {
            assert_eq!(label(|model| model.select = 0), Label::Foreign, "{shape:?} {one_call}");
            assert_eq!(label(|model| model.select = 0x101), Label::Snapshot);
        }
    }
}

#[test]
fn snapshots_are_the_frames_of_the_moment() {
    for shape in [Shape::Flags, Shape::Info, Shape::Arch] {
        for one_call in [false, true] {
            let mut model = call_stack(shape, 8, one_call);
            let mut state = begin(&mut model);
            for n in 0..3 {
                model.retire(&call(n));
            }
            for _ in 0..2 {
                let before = model.slots.clone();
                let stack = drain(&mut state, &mut model);
                assert_eq!(model.slots, before, "a snapshot leaves no mark");
                let integrity = stack.integrity;
                assert_eq!((integrity.label, integrity.head), (Label::Snapshot, Head::Unknown));
                assert!(!integrity.truncated && !integrity.underflow);
                let raw = oldest_first(&model, &stack);
                assert_eq!(raw, [0, 1, 2].map(|n| (0x1000 + n, 0x2000 + n, 0)));
            }
            model.retire(&ret(0));
            assert_eq!(drain(&mut state, &mut model).entries().len(), 2);
            for n in 0..8 {
                model.retire(&call(n));
            }
            let stack = drain(&mut state, &mut model);
            assert!(stack.integrity.truncated);
            assert_eq!(stack.entries().len(), 8);
        }
    }
}

#[test]
fn a_snapshot_that_changes_while_it_is_read_is_torn() {
    for (shape, one_call) in call_stacks() {
        for late in [false, true] {
            let mut model = call_stack(shape, 8, one_call);
            let mut state = begin(&mut model);
            for n in 0..3 {
                model.retire(&call(n));
            }
            let reads = drain(&mut state, &mut model).accesses as usize;
            // At the newest record, or at the last check before the thaw.
            let at = match (late, one_call) {
                (true, _) => reads - 3,
                (false, true) => 8,
                (false, false) => 4,
            };
            let frame = model.encode(0x777, 0x888);
            model.intruder = Some((at, frame));
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.integrity.label, Label::Torn, "{shape:?} {at}");
            assert_eq!(drain(&mut state, &mut model).integrity.label, Label::Snapshot);
        }
    }
}

#[test]
fn returns_beyond_the_calls_are_underflow_if_tos_shows_them() {
    for ((shape, one_call), tos) in call_stacks().flat_map(|what| [(what, 0), (what, 5)]) {
        let mut model = call_stack(shape, 8, one_call);
        // Arming clears the records, but not TOS.
        model.tos = tos;
        let mut state = begin(&mut model);
        model.retire(&call(0));
        model.retire(&ret(0));
        assert!(!drain(&mut state, &mut model).integrity.underflow);
        model.retire(&ret(1));
        model.retire(&call(2));
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.entries().len(), 1);
        // Architectural LBR has no TOS, so underflow is unknown.
        assert_eq!(stack.integrity.underflow, shape != Shape::Arch, "{shape:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    /// With any interference, an exact stack that is joined to another holds exactly the branches
    /// in between.
    #[test]
    fn no_interference_makes_a_false_exact_stack(
        shape in 0_usize..5,
        one_call in any::<bool>(),
        steps in prop::collection::vec((0_u8..8, 0_u64..20), 1..60),
    ) {
        let shape = SHAPES[shape];
        let one_call = one_call && shape != Shape::Packed;
        let mut model = Model { one_call, ..Model::armed(shape, 8) };
        let mut state = begin(&mut model);
        // All branches so far, and the end of the last delivered stack.
        let mut truth: Vec<(u64, u64)> = Vec::new();
        let mut end = Some(1);
        // A wipe before the first mark is invisible if TOS started at 0.
        truth.push((1, 2));
        model.branch(1, 2);
        prop_assert!(drain(&mut state, &mut model).integrity.is_exact());
        for (what, n) in steps {
            match what {
                0..=2 => for _ in 0..n {
                    let at = 0x1000 + truth.len() as u64;
                    truth.push((at, 0x9_0000 + at));
                    model.branch(at, 0x9_0000 + at);
                },
                3..=5 => {
                    let stack = drain(&mut state, &mut model);
                    let integrity = stack.integrity;
                    if integrity.label.is_excluded() || stack.entries().is_empty() {
                        continue;
                    }
                    let got = oldest_first(&model, &stack);
                    if integrity.is_exact() {
                        let from = end.expect("a join needs a stack before");
                        let expected: Vec<_> = truth[from..]
                            .iter().map(|&(from, to)| model.encode(from, to)).collect();
                        prop_assert_eq!(&got, &expected);
                    }
                    let newest = got.last().copied();
                    end = truth.iter()
                        .rposition(|&(from, to)| Some(model.encode(from, to)) == newest)
                        .map(|at| at + 1);
                },
                6 => model.wipe(),
                _ => model.control &= !model.caps.registers.enable,
            }
        }
    }
}
