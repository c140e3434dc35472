//! Drains compared with scripted branches: they return each branch once and in order, within the
//! promised number of accesses.

use std::collections::VecDeque;

use lbr_msr::record::{Head, Label};
use proptest::prelude::*;
use sampler::drain::{Drain, DrainError, Mode, Placement, RawStack};

use crate::model::{Model, Record, SHAPES, Shape, THREAD, caps};

pub(crate) fn begin(model: &mut Model) -> Drain {
    let caps = model.caps.clone();
    let mode = if model.call_stack { Mode::CallStack } else { Mode::Stream };
    let drain = Drain::begin(&caps, mode, Placement::SourceWaits, model).unwrap();
    model.log.clear();
    drain
}

/// Drains, and checks the number of accesses against the register log.
pub(crate) fn drain(drain: &mut Drain, model: &mut Model) -> RawStack {
    model.log.clear();
    let stack = drain.drain(model, THREAD).unwrap();
    assert_eq!(stack.accesses as usize, model.log.len(), "counted as logged");
    if !model.one_call {
        let bound = 3 * stack.new_slots as usize + 8;
        assert!(model.log.len() <= bound, "{} accesses for {stack:?}", model.log.len());
    }
    assert!(model.is_on(), "recording continues");
    stack
}

pub(crate) fn oldest_first(model: &Model, stack: &RawStack) -> Vec<Record> {
    let has_info = model.caps.registers.info.is_some();
    stack
        .entries()
        .iter()
        .rev()
        .map(|entry| {
            assert_eq!(entry.info.is_some(), has_info);
            (entry.from, entry.to, entry.info.unwrap_or(0))
        })
        .collect()
}

/// The retired branches that no drain has returned, and the checks of a drain's result.
struct Truth {
    pending: VecDeque<Record>,
}

impl Truth {
    fn check(&mut self, model: &Model, stack: &RawStack) {
        let depth = model.depth();
        let new = self.pending.len();
        let integrity = stack.integrity;
        if new < depth {
            assert_eq!((integrity.head, integrity.label), (Head::Joined, Label::Stream), "{new}");
            assert!(integrity.is_exact());
        } else {
            assert_eq!((integrity.head, integrity.label), (Head::Lost, Label::Gap), "{new}");
        }
        assert_eq!(stack.new_slots as usize, new.min(depth));
        assert_eq!(stack.starts_after_thaw, new < depth);
        let expected: Vec<Record> =
            self.pending.iter().skip(new.saturating_sub(depth)).copied().collect();
        assert_eq!(oldest_first(model, stack), expected);
        self.pending.clear();
    }
}

/// Retires bursts with a drain after each.
fn check_bursts(mut model: Model, bursts: &[usize], mut ends: impl FnMut(u64) -> (u64, u64)) {
    let mut drain_state = begin(&mut model);
    let mut truth = Truth { pending: VecDeque::new() };
    let mut count = 0;
    for &burst in bursts {
        for _ in 0..burst {
            let (from, to) = ends(count);
            count += 1;
            assert!(model.branch(from, to));
            truth.pending.push_back(model.encode(from, to));
        }
        let stack = drain(&mut drain_state, &mut model);
        truth.check(&model, &stack);
    }
}

/// Each branch is different.
fn distinct(n: u64) -> (u64, u64) {
    (0x40_1000 + 16 * n, 0x41_0000 + 16 * n)
}

/// A tight loop: only the mark distinguishes its branches.
fn alike(_: u64) -> (u64, u64) {
    (0x40_1000, 0x40_0FF0)
}

fn depths(shape: Shape) -> &'static [u32] {
    match shape {
        Shape::Arch => &[8, 16, 24, 32, 64],
        Shape::Amd => &[16],
        _ => &[4, 8, 16, 32],
    }
}

#[test]
fn bursts_around_every_edge_are_drained_once_and_in_order() {
    for shape in SHAPES {
        for &depth in depths(shape) {
            let d = depth as usize;
            let edges = [0, 1, 2, d - 2, d - 1, d, d + 1, 2 * d - 1, 2 * d, 2 * d + 1];
            // Every pair of burst sizes occurs in sequence.
            let bursts: Vec<usize> =
                edges.iter().flat_map(|&a| edges.iter().flat_map(move |&b| [a, b])).collect();
            for one_call in [false, true] {
                // Packed records have no mark in a batch: see below.
                if shape == Shape::Packed && one_call {
                    continue;
                }
                let model = Model { one_call, ..Model::armed(shape, depth) };
                check_bursts(model.clone(), &bursts, distinct);
                check_bursts(model, &bursts, alike);
            }
        }
    }
}

#[test]
fn the_first_drain_is_contiguous_with_arming() {
    for shape in SHAPES {
        let depth = depths(shape)[0];
        for first in 0..depth as usize {
            check_bursts(Model::armed(shape, depth), &[first, 1], distinct);
        }
        // An LBR that was cleared without resetting TOS.
        let mut model = Model::armed(shape, depth);
        model.tos = 3;
        check_bursts(model, &[2, 0, 0, 3], alike);
    }
}

/// IA32_LBR_DEPTH may be set to less than the CPU's greatest depth.
#[test]
fn an_lbr_is_as_deep_as_its_depth_register_says() {
    for one_call in [false, true] {
        let mut model = Model { one_call, ..Model::armed(Shape::Arch, 8) };
        model.caps.depth = 32;
        let mut state = begin(&mut model);
        for n in 0..10 {
            model.branch(0x4000 + n, 0x5000);
        }
        let stack = drain(&mut state, &mut model);
        assert_eq!((stack.integrity.label, stack.new_slots), (Label::Gap, 8));
        assert_eq!(stack.entries().len(), 8);
    }
}

#[test]
fn a_drain_of_nothing_writes_no_mark() {
    for shape in SHAPES {
        let mut model = Model::armed(shape, 16);
        let mut state = begin(&mut model);
        let (before, writes) = (model.slots.clone(), model.writes);
        drain(&mut state, &mut model);
        assert_eq!(model.writes - writes, 2, "freeze and thaw");
        assert_eq!(model.slots, before, "{shape:?}: an empty slot is never marked");
        model.branch(0x10, 0x20);
        drain(&mut state, &mut model);
        let marked = model.slots.clone();
        let stack = drain(&mut state, &mut model);
        assert!(stack.integrity.is_exact() && stack.entries().is_empty());
        assert_eq!(model.slots, marked);
    }
}

#[test]
fn the_mark_is_written_to_the_right_register() {
    for (shape, expected) in [
        (Shape::Flags, (0, 0x5000, 0)),
        (Shape::Info, (0, 0x5000, 0)),
        (Shape::Packed, (0x5000 << 32, 0, 0)),
        (Shape::Arch, (0, 0x5000, 0)),
        (Shape::Amd, (0x4000, 0, 0)),
    ] {
        let mut model = Model::armed(shape, 16);
        let mut state = begin(&mut model);
        model.branch(0x4000, 0x5000);
        drain(&mut state, &mut model);
        let newest = if model.caps.registers.tos.is_some() { 1 } else { 0 };
        assert_eq!(model.slots[newest], expected, "{shape:?}");
    }
}

#[test]
fn a_branch_to_address_zero_breaks_contiguity_but_repeats_nothing() {
    for shape in [Shape::Flags, Shape::Info, Shape::Arch] {
        let mut model = Model::armed(shape, 8);
        let mut state = begin(&mut model);
        model.branch(0x4000, 0x5000);
        model.branch(0x5000, 0);
        let stack = drain(&mut state, &mut model);
        assert!(stack.integrity.is_exact());
        model.branch(0x6000, 0x7000);
        let stack = drain(&mut state, &mut model);
        assert_eq!(oldest_first(&model, &stack), [(0x6000, 0x7000, 0)]);
        assert_eq!((stack.integrity.head, stack.integrity.label), (Head::Unknown, Label::Stream));
        model.branch(0x8000, 0x9000);
        let stack = drain(&mut state, &mut model);
        assert!(stack.integrity.is_exact());
    }
}

#[test]
fn amd_slots_without_a_record_are_skipped_and_counted() {
    let mut model = Model::armed(Shape::Amd, 16);
    let mut state = begin(&mut model);
    model.branch(0x4000, 0x5000);
    drain(&mut state, &mut model);
    model.branch(0x6000, 0x7000);
    // valid = spec = 0, with and without an address in TO.
    model.force((0x1234, 0x5678, 0));
    model.force((0x1234, 0, 0));
    // spec alone: a branch on a wrong path is a record.
    model.force((0x8000, 0x9000 | 1 << 62, 0));
    let stack = drain(&mut state, &mut model);
    assert!(stack.integrity.is_exact());
    assert_eq!(stack.new_slots, 4);
    let raw = oldest_first(&model, &stack);
    assert_eq!(raw, [(0x6000, 0x7000 | 1 << 63, 0), (0x8000, 0x9000 | 1 << 62, 0)]);
    // The newest slot has no record, but is still marked.
    model.force((0x1111, 0x2222, 0));
    assert_eq!(drain(&mut state, &mut model).new_slots, 1);
    model.branch(0xA000, 0xB000);
    let stack = drain(&mut state, &mut model);
    assert!(stack.integrity.is_exact());
    assert_eq!(stack.new_slots, 1);
}

/// The first records since arming, of which the newest is none.
#[test]
fn an_amd_slot_without_a_record_does_not_end_the_first_drain() {
    let mut model = Model::armed(Shape::Amd, 16);
    let mut state = begin(&mut model);
    model.branch(0x4000, 0x5000);
    model.force((0x1234, 0, 0));
    let stack = drain(&mut state, &mut model);
    assert!(stack.integrity.is_exact());
    assert_eq!(stack.new_slots, 2);
    assert_eq!(oldest_first(&model, &stack), [(0x4000, 0x5000 | 1 << 63, 0)]);
}

/// Freezing and thawing the LBR are accesses, too.
#[test]
fn a_drain_of_a_frozen_stack_counts_freeze_and_thaw() {
    for shape in SHAPES {
        let mut model = Model::armed(shape, 16);
        let mut state = begin(&mut model);
        model.branch(0x4000, 0x5000);
        let on = model.control;
        model.control &= !model.caps.registers.enable;
        model.log.clear();
        let writes = model.writes;
        let (stack, control) = state.drain_frozen(&mut model, THREAD, Some(on)).unwrap();
        assert_eq!(control, on);
        assert_eq!(stack.entries().len(), 1);
        assert_eq!(stack.accesses as usize, model.log.len() + 3, "{shape:?}");
        assert_eq!(model.writes - writes, 1, "{shape:?}: the mark");
    }
}

/// A call of a null pointer: TO of the mark is 0, as in an empty record, so INFO is compared.
#[test]
fn a_branch_to_address_0_is_recognised_by_info() {
    for (shape, one_call) in
        [(Shape::Info, false), (Shape::Info, true), (Shape::Arch, false), (Shape::Arch, true)]
    {
        for (info, label) in [(7, Label::Stream), (8, Label::Foreign)] {
            let mut model = Model { one_call, ..Model::armed(shape, 16) };
            let mut state = begin(&mut model);
            model.force((0x5000, 0, 7));
            let stack = drain(&mut state, &mut model);
            assert_eq!(oldest_first(&model, &stack), [(0x5000, 0, 7)]);
            let marked = model.slots.iter_mut().find(|slot| slot.2 == 7).unwrap();
            assert_eq!(marked.0, 0);
            marked.2 = info;
            model.branch(0x4000, 0x5000);
            let stack = drain(&mut state, &mut model);
            assert_eq!(stack.integrity.label, label, "{shape:?} {one_call}");
            assert_eq!(stack.integrity.is_exact(), label == Label::Stream);
            assert_eq!(oldest_first(&model, &stack), [model.encode(0x4000, 0x5000)]);
        }
    }
}

/// The software BRBE: VALID 0 ends the records, and each drain invalidates them.
#[test]
fn brbe_records_are_drained_once() {
    use lbr_msr::record::HwBranchType;
    use lbr_msr::soft::{Retired, SoftCpu, SoftLbr};
    use lbr_msr::{BranchFilter, MsrRead as _, MsrWrite as _};
    for cpu in SoftCpu::all_brbe() {
        let depth = cpu.caps.depth as u64;
        let mut soft = SoftLbr::new(&cpu.caps, None);
        soft.arm("any,u".parse::<BranchFilter>().unwrap()).unwrap();
        let mode = Mode::Stream;
        let mut state = Drain::begin(&cpu.caps, mode, Placement::SourceWaits, &mut soft).unwrap();
        let mut next = 0;
        for burst in [0, 1, depth - 1, depth, 2] {
            for n in next..next + burst {
                soft.retire(&Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelJmp));
            }
            next += burst;
            let stack = state.drain(&mut soft, THREAD).unwrap();
            let froms = stack.entries().iter().rev().map(|entry| entry.from);
            assert_eq!(
                froms.collect::<Vec<u64>>(),
                (0x1000 + next - burst..0x1000 + next).collect::<Vec<u64>>()
            );
            assert_eq!(stack.integrity.head == Head::Joined, burst < depth, "{burst}");
        }
        // An invalidation by others is a loss that BRBE cannot show; switched off, it does.
        let control = soft.read(cpu.caps.registers.control).unwrap();
        soft.write(cpu.caps.registers.control, control & !1).unwrap();
        assert_ne!(state.drain(&mut soft, THREAD).unwrap().integrity.label, Label::Stream);
    }
}

#[test]
fn packed_records_in_a_batch_never_claim_unproven_contiguity() {
    let mut model = Model { one_call: true, ..Model::armed(Shape::Packed, 8) };
    let mut state = begin(&mut model);
    for burst in [2, 3] {
        for n in 0..burst {
            model.branch(0x4000 + n, 0x5000);
        }
        let stack = drain(&mut state, &mut model);
        assert_eq!(stack.entries().len(), burst as usize);
        let joined = stack.integrity.head == Head::Joined;
        assert_eq!(joined, burst == 2, "only the first joins, to the arm");
    }
}

#[test]
fn registers_that_a_format_does_not_have_are_not_read() {
    use lbr_msr::caps::Layout;
    use lbr_msr::{LbrFormat, Msr};
    for (shape, format) in [(Shape::Packed, 0), (Shape::Flags, 3)] {
        let mut model = Model::armed(shape, 8);
        let mut caps = model.caps.clone();
        // The CPU table has their addresses.
        caps.registers.to = caps.registers.to.or(Some(Msr(0x60)));
        caps.registers.info = Some(Msr(0xDC0));
        caps.layout = Layout::Legacy { format: LbrFormat(format), tsx: false };
        let mut state =
            Drain::begin(&caps, Mode::Stream, Placement::SourceWaits, &mut model).unwrap();
        for n in 0..3 {
            model.branch(0x100 + n, 0x200 + n);
            assert!(drain(&mut state, &mut model).integrity.is_exact());
        }
    }
}

#[test]
fn remote_drains_are_truncated_unless_made_in_one_call() {
    for (one_call, placement, cut) in [
        (false, Placement::Beside, true),
        (true, Placement::Beside, false),
        (false, Placement::SameCpuFirst, false),
        (false, Placement::SourceWaits, false),
    ] {
        let mut model = Model { one_call, ..Model::armed(Shape::Info, 16) };
        let caps = model.caps.clone();
        let mut state = Drain::begin(&caps, Mode::Stream, placement, &mut model).unwrap();
        model.branch(1, 2);
        let stack = state.drain(&mut model, THREAD).unwrap();
        assert_eq!(stack.integrity.cut, cut);
        assert_eq!(stack.integrity.is_exact(), !cut);
        assert_eq!((stack.thread, stack.cpu), (THREAD, 3));
        assert!(stack.time > 0);
        // The caller freezes and thaws in separate calls.
        let (stack, _) = state.drain_frozen(&mut model, THREAD, None).unwrap();
        assert_eq!(stack.integrity.cut, placement == Placement::Beside);
    }
}

#[test]
fn undrainable_stacks_are_refused_with_the_reason() {
    use lbr_msr::caps::{Facility, Order, Quirks};
    let begin = |caps: &lbr_msr::LbrCaps, mut model: Model| {
        Drain::begin(caps, Mode::Stream, Placement::SourceWaits, &mut model).unwrap_err()
    };
    let model = Model::armed(Shape::Flags, 16);
    for (change, word) in [
        ((|c| c.order = Order::Single) as fn(&mut lbr_msr::LbrCaps), "one record"),
        (|c| c.order = Order::Saturating, "full"),
        (|c| c.quirks = Quirks::READ_ONLY_RECORDS, "written"),
        (|c| c.facility = Facility::NetBurst, "written"),
        (|c| c.registers.tos = None, "top-of-stack"),
    ] {
        let mut caps = caps(Shape::Flags, 16);
        change(&mut caps);
        let error = begin(&caps, model.clone());
        assert!(matches!(error, DrainError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let mut amd = Model::armed(Shape::Amd, 16);
    let caps_of = amd.caps.clone();
    let error = Drain::begin(&caps_of, Mode::CallStack, Placement::SourceWaits, &mut amd);
    assert_eq!(
        error.unwrap_err().to_string(),
        "amd_lbr_v2 cannot be recorded from: it has no call-stack mode"
    );
    for depth in [0, 12, 65, 128] {
        let error = begin(&caps(Shape::Flags, depth), model.clone());
        assert_eq!(error, DrainError::Depth { depth });
    }
    let off = Model { control: 0x4002, ..model.clone() };
    let error = begin(&model.caps, off);
    assert!(matches!(error, DrainError::NotArmed { value: 0x4002, .. }), "{error}");
}

#[test]
fn a_failed_access_leaves_recording_on_and_claims_no_contiguity() {
    let mut model = Model::armed(Shape::Info, 8);
    let mut state = begin(&mut model);
    model.branch(1, 2);
    drain(&mut state, &mut model);
    model.branch(3, 4);
    model.fault = Some(lbr_msr::Msr(0xDC2));
    let error = state.drain(&mut model, THREAD).unwrap_err();
    assert!(error.to_string().contains("0xdc2"), "{error}");
    assert!(model.is_on());
    model.fault = None;
    model.branch(5, 6);
    let stack = drain(&mut state, &mut model);
    assert_eq!(stack.integrity.head, Head::Unknown);
    // For a caller that thaws, recording stays off.
    model.branch(7, 8);
    model.fault = Some(lbr_msr::Msr(0xDC4));
    state.drain_frozen(&mut model, THREAD, None).unwrap_err();
    assert!(!model.is_on());
    model.fault = None;
    model.control |= model.caps.registers.enable;
    model.branch(9, 10);
    let stack = drain(&mut state, &mut model);
    assert_eq!((stack.integrity.head, stack.entries().len()), (Head::Unknown, 2));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_bursts_match_the_truth(
        shape in 0_usize..5,
        depth in 0_usize..8,
        bursts in prop::collection::vec(0_usize..80, 1..30),
        loops in any::<bool>(),
        one_call in any::<bool>(),
    ) {
        let shape = SHAPES[shape];
        let depth = depths(shape)[depth % depths(shape).len()];
        let one_call = one_call && shape != Shape::Packed;
        let model = Model { one_call, ..Model::armed(shape, depth) };
        // Few distinct branches, so that repetitions are common.
        check_bursts(model, &bursts, |n| if loops { alike(n) } else { distinct(n * n % 7) });
    }
}
