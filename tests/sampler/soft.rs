//! The whole path with the software LBR: retired branches, registers by address, drains, decoding,
//! samples.

use lbr_msr::caps::{Layout, LbrCaps, Quirks};
use lbr_msr::record::{BranchEntry, Event, Head, HwBranchType, Label, SourceKnowledge};
use lbr_msr::soft::{Retired, SoftLbr};
use lbr_msr::{LbrFormat, MsrWrite};
use proptest::prelude::*;
use sampler::drain::{Drain, Mode, Placement, RawStack};
use sampler::gate::{Recorder, Retire};
use sampler::{RecordConfig, Summary};

use crate::model::{Shape, THREAD, caps as model_caps};
use crate::scripted::{Script, Scripted, samples};

/// Every kind of LBR: legacy formats, Architectural LBR, AMD.
fn rings() -> Vec<LbrCaps> {
    let mut rings = Vec::new();
    for format in 0..=7 {
        for depth in [4, 8, 16, 32] {
            let shape = match format {
                0 => Shape::Packed,
                5 | 7 => Shape::Info,
                _ => Shape::Flags,
            };
            let mut caps = model_caps(shape, depth);
            caps.layout = Layout::Legacy { format: LbrFormat(format), tsx: false };
            rings.push(caps);
        }
    }
    for depth in [8, 16, 32, 64] {
        rings.push(LbrCaps { depth_mask: 0b1000_1011, ..model_caps(Shape::Arch, depth) });
    }
    rings.push(model_caps(Shape::Amd, 16));
    rings
}

/// Clears the records, sets the filter and enables recording.
fn arm(caps: &LbrCaps, select: u64, registers: &mut (impl MsrWrite + ?Sized)) {
    let map = &caps.registers;
    if let Some(depth) = map.depth {
        registers.write(depth, u64::from(caps.depth)).unwrap();
    }
    if let Some(msr) = map.select.filter(|msr| *msr != map.control) {
        registers.write(msr, select).unwrap();
    }
    let control = registers.read(map.control).unwrap();
    let ours = if map.select == Some(map.control) { select } else { 0 };
    registers.write(map.control, control | ours | map.enable).unwrap();
}

/// The filter for all branches that land in user mode.
fn any_user(caps: &LbrCaps) -> u64 {
    match caps.registers.select {
        None => 0,
        Some(_) if caps.registers.depth.is_some() => 0x7F_0005,
        Some(_) => 0x001,
    }
}

fn armed(caps: &LbrCaps) -> (SoftLbr, Drain) {
    let mut soft = SoftLbr::new(caps, None);
    arm(caps, any_user(caps), &mut soft);
    let drain = Drain::begin(caps, Mode::Stream, Placement::SourceWaits, &mut soft).unwrap();
    (soft, drain)
}

/// Addresses that every format can hold.
fn distinct(n: u64) -> (u64, u64) {
    (0x40_1000 + 16 * n, 0x41_0000 + 16 * n)
}

fn branch((from, to): (u64, u64)) -> Retired {
    Retired::user(from, to, HwBranchType::Cond)
}

fn ends_oldest_first(caps: &LbrCaps, stack: &RawStack) -> Vec<(u64, u64)> {
    let decode = |raw| lbr_msr::decode::decode(caps.layout, raw).expect("a record");
    stack.entries().iter().rev().map(decode).map(|entry| (entry.from, entry.to)).collect()
}

fn check(caps: &LbrCaps, bursts: &[usize], ends: impl Fn(u64) -> (u64, u64)) {
    let (mut soft, mut drain) = armed(caps);
    let depth = caps.depth as usize;
    let mut count = 0;
    for &burst in bursts {
        let truth: Vec<(u64, u64)> = (count..count + burst as u64).map(&ends).collect();
        count += burst as u64;
        assert!(truth.iter().all(|ends| soft.retire(&branch(*ends))));
        let stack = drain.drain(&mut soft, THREAD).unwrap();
        let joined = burst < depth;
        let label = if joined { Label::Stream } else { Label::Gap };
        let head = if joined { Head::Joined } else { Head::Lost };
        assert_eq!((stack.integrity.label, stack.integrity.head), (label, head), "{caps:?}");
        assert_eq!(ends_oldest_first(caps, &stack), truth[burst.saturating_sub(depth)..]);
        assert!(stack.accesses as usize <= 3 * burst.min(depth) + 8);
    }
    assert_eq!(soft.recorded(), count);
}

#[test]
fn every_model_returns_every_burst() {
    for caps in rings() {
        let d = caps.depth as usize;
        let edges = [0, 1, 2, d - 1, d, d + 1, 2 * d];
        let bursts: Vec<usize> =
            edges.iter().flat_map(|&a| edges.iter().flat_map(move |&b| [a, b])).collect();
        check(&caps, &bursts, distinct);
        check(&caps, &bursts, |_| (0x40_1000, 0x40_0FF0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_bursts_match_the_truth(
        ring in 0_usize..37,
        bursts in prop::collection::vec(0_usize..80, 1..20),
        kinds in 1_u64..9,
    ) {
        let rings = rings();
        prop_assert_eq!(rings.len(), 37);
        check(&rings[ring], &bursts, |n| distinct(n * n % kinds));
    }
}

#[test]
fn events_of_the_cpu_are_labelled() {
    use lbr_msr::caps::Quirks;
    for caps in rings().into_iter().filter(|caps| caps.depth == 16) {
        let caps = LbrCaps { quirks: Quirks::DEEP_C_STATE_WIPES, ..caps };
        let (mut soft, mut drain) = armed(&caps);
        soft.retire(&branch(distinct(1)));
        assert!(drain.drain(&mut soft, THREAD).unwrap().integrity.is_exact());
        soft.retire(&branch(distinct(2)));
        soft.deep_c_state();
        soft.retire(&branch(distinct(3)));
        let stack = drain.drain(&mut soft, THREAD).unwrap();
        assert_eq!(stack.integrity.label, Label::Wiped, "{caps:?}");

        soft.retire(&branch(distinct(4)));
        soft.debug_exception();
        let stack = drain.drain(&mut soft, THREAD).unwrap();
        // #DB does not stop AMD's stack.
        let is_amd = matches!(caps.layout, Layout::AmdV2 { .. });
        let label = if is_amd { Label::Stream } else { Label::Stopped };
        assert_eq!(stack.integrity.label, label, "{caps:?}");
        assert!(soft.retire(&branch(distinct(5))), "switched on again");
    }
}

#[test]
fn a_freeze_on_pmi_is_stopped_and_released() {
    use lbr_msr::arm::{ArmOptions, ArmPlan};
    for (perfmon_version, depth) in [(2, 16), (4, 16), (4, 32)] {
        let mut caps = model_caps(Shape::Info, depth);
        caps.perfmon_version = perfmon_version;
        caps.quirks.set(Quirks::STREAMLINED_FREEZE, perfmon_version >= 4);
        caps.format = Some(LbrFormat::INFO);
        let mut soft = SoftLbr::new(&caps, Some(0x33C5));
        let options = ArmOptions { freeze_on_pmi: true, ..ArmOptions::default() };
        let plan = ArmPlan::new(&caps, 0x001, options).unwrap();
        let saved = plan.save(&mut soft).unwrap();
        plan.arm(&mut soft, &saved).unwrap();
        let mut drain =
            Drain::begin(&caps, Mode::Stream, Placement::SourceWaits, &mut soft).unwrap();
        soft.retire(&branch(distinct(1)));
        soft.pmi();
        assert!(!soft.retire(&branch(distinct(2))), "missed");
        // The first drain may lack the budget to notice; no later stack is joined.
        let first = drain.drain(&mut soft, THREAD).unwrap();
        assert_eq!(ends_oldest_first(&caps, &first), [distinct(1)]);
        if first.integrity.label != Label::Stopped {
            let second = drain.drain(&mut soft, THREAD).unwrap();
            assert_eq!(second.integrity.label, Label::Stopped);
            assert!(second.accesses <= 8);
        }
        assert!(soft.retire(&branch(distinct(3))), "released");
        let stack = drain.drain(&mut soft, THREAD).unwrap();
        assert_eq!((stack.integrity.label, stack.integrity.head), (Label::Stream, Head::Lost));
        assert_eq!(ends_oldest_first(&caps, &stack), [distinct(3)]);
    }
}

fn record(
    caps: &LbrCaps,
    select: u64,
    change: impl FnOnce(&mut RecordConfig),
    source: &mut Scripted,
) -> (Summary, Vec<BranchEntry>) {
    let mut config = RecordConfig::modelled(caps.clone(), None, select).unwrap();
    change(&mut config);
    let mut events: Vec<Event> = Vec::new();
    let summary = sampler::record(source, config, &mut events).unwrap();
    let entries = samples(&events)
        .flat_map(|sample| sample.stack.oldest_first().copied().collect::<Vec<_>>())
        .collect();
    (summary, entries)
}

fn one_thread(branches: Vec<Retired>) -> Scripted {
    let script: Script = Box::new(move |gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        for branch in &branches {
            ring.retire(branch).unwrap();
        }
        ring.finish().unwrap();
    });
    Scripted::new(vec![script])
}

#[test]
fn a_session_on_every_model_is_complete_or_reports_that_it_is_not() {
    // No CPU has more than 8 packed records, and lbr writes no more than that.
    let written = |caps: &LbrCaps| caps.registers.to.is_some() || caps.depth <= 8;
    for caps in rings().into_iter().filter(written) {
        let depth = u64::from(caps.depth);
        for (period, complete) in [(1, true), (depth - 1, true), (depth, false)] {
            let script: Vec<Retired> = (0..10 * depth + 1).map(|n| branch(distinct(n))).collect();
            let (summary, entries) = record(
                &caps,
                any_user(&caps),
                |config| config.sampling = sampler::Sampling::Period(period),
                &mut one_thread(script.clone()),
            );
            assert_eq!(summary.complete, complete, "{period} of {depth}: {summary:?}");
            assert_eq!(summary.retired, Some(10 * depth + 1));
            // A period equal to the depth loses nothing either, but this cannot be known.
            let ends: Vec<(u64, u64)> = entries.iter().map(|e| (e.from, e.to)).collect();
            let truth: Vec<(u64, u64)> = script.iter().map(|b| (b.from, b.to)).collect();
            assert_eq!(ends, truth);
        }
    }
}

#[test]
fn overwritten_branches_need_not_be_passed_on() {
    let listed = |caps: &LbrCaps| caps.registers.to.is_some() || caps.depth <= 8;
    for caps in rings().into_iter().filter(listed) {
        let depth = u64::from(caps.depth);
        let period = 3 * depth + 5;
        let script: Vec<Retired> = (0..4 * period + 7).map(|n| branch(distinct(n))).collect();
        let all = script.clone();
        let few: Script = Box::new(move |gate, thread| {
            let newest = gate.model().and_then(|model| model.newest_alone());
            assert_eq!(newest, Some(depth as usize), "{:?}", gate.period());
            let mut ring = gate.start(thread).unwrap();
            for run in script.chunks(period as usize) {
                let left_out = run.len().saturating_sub(depth as usize);
                ring.retire_newest(left_out as u64, &run[left_out..]).unwrap();
            }
            ring.finish().unwrap();
        });
        let sample = |mut source: Scripted| {
            let by = |config: &mut RecordConfig| {
                config.sampling = sampler::Sampling::Period(period);
            };
            let (summary, entries) = record(&caps, any_user(&caps), by, &mut source);
            let cost = (summary.drains, summary.accesses, summary.retired);
            (entries, summary.labels, summary.not_joined, cost)
        };
        let sampled = sample(Scripted::new(vec![few]));
        assert_eq!(sampled, sample(one_thread(all)), "{caps:?}");
        assert_eq!(sampled.3.2, Some(4 * period + 7));
    }
}

#[test]
fn suppressed_branches_do_not_count_for_the_period() {
    let caps = model_caps(Shape::Flags, 16);
    let far = Retired { cpl_after: 0, ..Retired::user(0x100, 0, HwBranchType::Other) };
    let script = (0..200).map(|n| if n % 2 == 0 { far } else { branch(distinct(n)) }).collect();
    let (summary, entries) = record(&caps, 0x101, |_| {}, &mut one_thread(script));
    assert!(summary.complete, "{summary:?}");
    // 100 branches, 15 per drain, and the rest.
    assert_eq!((summary.retired, summary.samples, entries.len()), (Some(100), 7, 100));
}

#[test]
fn cycles_are_those_between_branches_and_absent_after_a_thaw() {
    for caps in
        [model_caps(Shape::Info, 8), LbrCaps { depth_mask: 1, ..model_caps(Shape::Arch, 8) }]
    {
        let script: Vec<Retired> = (0..21)
            .map(|n| Retired {
                cycles: Some(100 + n as u32),
                mispredicted: Some(n % 3 == 0),
                ..branch(distinct(n))
            })
            .collect();
        let mut source = one_thread(script);
        source.knowledge = SourceKnowledge::HARDWARE;
        let (summary, entries) = record(&caps, any_user(&caps), |_| {}, &mut source);
        assert!(summary.complete);
        for (n, entry) in entries.iter().enumerate() {
            let expected = (n % 7 != 0).then_some(100 + n as u32);
            assert_eq!(entry.cycles, expected, "{n}");
            assert_eq!(entry.mispredicted, Some(n % 3 == 0), "{n}");
        }
    }
}

#[test]
fn call_stack_snapshots_are_the_frames_entered_since_arming() {
    let arch = LbrCaps { depth_mask: 1, ..model_caps(Shape::Arch, 8) };
    for (caps, select) in [(model_caps(Shape::Info, 8), 0x3C5), (arch, 0x38_000D)] {
        let mut soft = SoftLbr::new(&caps, None);
        arm(&caps, select, &mut soft);
        let mut drain =
            Drain::begin(&caps, Mode::CallStack, Placement::SourceWaits, &mut soft).unwrap();
        let mut frames: Vec<(u64, u64)> = Vec::new();
        // Calls minus returns: TOS, modulo the depth.
        let mut net = 0_i64;
        // Calls and returns, deeper than the LBR and below the start.
        let steps = "((((()))((((((((((())))))))))))))))))(()(";
        for (n, step) in (1..).zip(steps.chars()) {
            if step == '(' {
                let call = Retired::user(0x1000 * n, 0x1000 * n + 8, HwBranchType::RelCall);
                soft.retire(&call);
                frames.push((call.from, call.to));
                net += 1;
                if frames.len() > 8 {
                    frames.remove(0);
                }
            } else {
                soft.retire(&Retired::user(0x1000 * n, 0x10, HwBranchType::Ret));
                frames.pop();
                net -= 1;
            }
            soft.retire(&branch(distinct(n)));
            let stack = drain.drain(&mut soft, THREAD).unwrap();
            assert_eq!(stack.integrity.label, Label::Snapshot);
            assert_eq!(ends_oldest_first(&caps, &stack), frames, "{n}");
            assert_eq!(stack.integrity.truncated, frames.len() == 8, "{n}");
            let missing = net - frames.len() as i64;
            let seen = caps.registers.tos.is_some() && frames.len() < 8 && missing % 8 != 0;
            assert_eq!(stack.integrity.underflow, seen, "{n}");
            assert!(stack.accesses as usize <= 3 * frames.len() + 8);
        }
        assert!(net < 0, "the walk ends below where it began");
    }
}

#[test]
fn a_filter_of_call_stack_mode_records_snapshots() {
    let call = |n: u64| Retired::user(0x1000 * n, 0x1000 * n + 8, HwBranchType::RelCall);
    // EN_CALLSTACK, without calls of the kernel and jumps: SDM 18.11.
    let (summary, entries) =
        record(&model_caps(Shape::Info, 8), 0x3C5, |_| {}, &mut one_thread(vec![call(1), call(2)]));
    assert_eq!(summary.labels.keys().collect::<Vec<_>>(), [&Label::Snapshot]);
    let ends: Vec<_> = entries.iter().map(|entry| (entry.from, entry.to)).collect();
    assert_eq!(ends, [(0x1000, 0x1008), (0x2000, 0x2008)]);
    assert!(!summary.complete);
}

/// A function may be entered by a branch that the filter suppresses.
#[test]
fn a_suppressed_entry_of_a_function_has_no_sample_and_its_arguments_no_other() {
    let script: Script = Box::new(|gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        let entry = |class| Retired { class, ..branch(distinct(1)) };
        ring.retire_entry(&entry(HwBranchType::RelCall), [1; 6]).unwrap();
        ring.retire(&branch(distinct(2))).unwrap();
        ring.flush().unwrap();
        ring.retire_entry(&entry(HwBranchType::RelJmp), [2; 6]).unwrap();
        ring.finish().unwrap();
    });
    // CPL_EQ_0 and NEAR_REL_CALL of MSR_LBR_SELECT suppress: SDM 18.9.
    let config = RecordConfig::modelled(model_caps(Shape::Info, 16), None, 0x9).unwrap();
    let mut events: Vec<Event> = Vec::new();
    let summary = sampler::record(&mut Scripted::new(vec![script]), config, &mut events).unwrap();
    let found: Vec<_> = samples(&events).map(|s| (s.arguments, s.stack.entries.len())).collect();
    assert_eq!(found, [(None, 1), (Some([2; 6]), 1)]);
    assert_eq!((summary.drains, summary.retired), (2, Some(2)));
}
