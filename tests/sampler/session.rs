//! Whole sessions with scripted branches: source, sampler thread, decoder, sink.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lbr_msr::record::{
    BranchEntry, BranchType, Comm, Event, Head, HwBranchType, Label, MoveKind, SourceKnowledge,
    Task,
};
use lbr_msr::soft::Retired;
use sampler::config::{Queue, WhenFull};
use sampler::drain::DrainError;
use sampler::gate::{OpenError, Recorder, Retire};
use sampler::source::{Exit, SourceError, SourceNotes};
use sampler::target::ThreadId;
use sampler::{RecordError, Sampling, Summary};

use crate::model::{Model, SHAPES, Shape};
use crate::scripted::*;

/// FROM of every branch, thread by thread, in the order of the samples.
fn by_thread(events: &[Event]) -> BTreeMap<u32, Vec<u64>> {
    let mut threads: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for sample in samples(events) {
        let froms = threads.entry(sample.tid).or_default();
        froms.extend(sample.stack.oldest_first().map(|entry| entry.from));
    }
    threads
}

fn expected(tid: u32, branches: u64) -> Vec<u64> {
    (0..branches).map(|n| branch(tid, n).from).collect()
}

fn record(
    source: &mut Scripted,
    config: sampler::RecordConfig,
    shape: Shape,
) -> (Summary, Vec<Event>) {
    let depth = config.caps.depth;
    let open = models(shape, depth, config.call_stack);
    let mut events = Vec::new();
    let summary = record_on(source, config, open, &mut events).unwrap();
    (summary, events)
}

#[test]
fn a_complete_recording_holds_every_branch_once_and_in_order() {
    for shape in SHAPES {
        if shape == Shape::Packed {
            continue; // 32-bit addresses: the script's do not fit
        }
        for depth in [8, 16, 32] {
            let branches = 1000 + u64::from(depth);
            let mut source = Scripted::straight(2, branches);
            let (summary, events) = record(&mut source, config(shape, depth), shape);
            assert!(summary.complete, "{shape:?} {depth}: {summary:?}");
            assert_eq!(summary.retired, Some(2 * branches));
            assert_eq!(summary.branches, 2 * branches);
            assert_eq!((summary.source, summary.exit), ("script", Exit::Code(3)));
            assert_eq!(summary.seed, None);
            let threads = by_thread(&events);
            assert_eq!(threads.len(), 2);
            for (tid, froms) in threads {
                assert_eq!(froms, expected(tid, branches), "{shape:?} {depth}");
            }
            assert!(samples(&events).all(|sample| sample.stack.integrity.is_exact()));
            assert!(samples(&events).all(|sample| sample.pid == 100 && sample.cpu == 3));
        }
    }
}

#[test]
fn the_sampler_uses_only_register_addresses_and_keeps_its_budget() {
    let log: Log = Arc::default();
    let open = {
        let log = Arc::clone(&log);
        Box::new(move |_| {
            let model = Model::armed(Shape::Info, 16);
            Ok(Box::new(Logged { model, log: Arc::clone(&log), frozen: false })
                as Box<dyn sampler::gate::BranchRegisters>)
        })
    };
    let mut events = Vec::new();
    let mut source = Scripted::straight(1, 100);
    let config = config(Shape::Info, 16);
    let summary = record_on(&mut source, config, open, &mut events).unwrap();
    assert!(summary.complete);
    // The accesses of `begin` and of the final check are not drains.
    let drains: Vec<usize> =
        log.lock().unwrap().iter().map(Vec::len).filter(|length| *length > 3).collect();
    // 100 branches: 6 drains of 15 and the last of 10.
    assert_eq!(summary.drains, 7);
    assert_eq!(drains, [53, 53, 53, 53, 53, 53, 38]);
    assert_eq!((summary.accesses, summary.most_accesses), (6 * 53 + 38, 53));
}

#[test]
fn a_rate_drains_by_the_clock_and_contiguous_stacks_are_in_order() {
    let script: Script = Box::new(|gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        for n in 0..3000 {
            ring.retire(&branch(thread.tid, n)).unwrap();
            if n % 100 == 0 {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        ring.finish().unwrap();
    });
    let mut source = Scripted::new(vec![script]);
    let mut config = config(Shape::Arch, 32);
    config.sampling = Sampling::Rate { hz: 997, seed: 42 };
    let (summary, events) = record(&mut source, config, Shape::Arch);
    assert_eq!(summary.seed, Some(42));
    assert!(!summary.complete, "a rate promises no completeness");
    assert!(summary.drains > 5, "{summary:?}");
    // 100 branches between two pauses overflow the LBR of 32.
    assert!(summary.labels[&Label::Gap].stacks > 0, "{summary:?}");
    let mut last = None;
    for sample in samples(&events) {
        let froms: Vec<u64> = sample.stack.oldest_first().map(|entry| entry.from).collect();
        assert!(froms.windows(2).all(|pair| pair[1] == pair[0] + 4), "contiguous inside");
        match (sample.stack.integrity.head, last) {
            (Head::Joined, Some(last)) => assert_eq!(froms[0], last + 4),
            (Head::Joined, None) => assert_eq!(froms[0], branch(1, 0).from),
            (_, last) => assert!(last.is_none_or(|last| froms[0] > last)),
        }
        last = froms.last().copied();
    }
    assert_eq!(last, Some(branch(1, 2999).from), "the end is drained too");
}

#[test]
fn fields_unknown_to_the_source_are_absent() {
    let (_, events) = record(&mut Scripted::straight(1, 40), config(Shape::Info, 16), Shape::Info);
    let entries: Vec<BranchEntry> =
        samples(&events).flat_map(|sample| sample.stack.entries.clone()).collect();
    assert_eq!(entries.len(), 40);
    assert!(entries.iter().all(|e| e.mispredicted.is_none() && e.cycles.is_none()));

    let mut source = Scripted::straight(1, 40);
    source.knowledge = SourceKnowledge::HARDWARE;
    let (_, events) = record(&mut source, config(Shape::Info, 16), Shape::Info);
    for sample in samples(&events) {
        let entries: Vec<&BranchEntry> = sample.stack.oldest_first().collect();
        // The first count after a thaw includes the pause.
        assert_eq!((entries[0].cycles, entries[0].cycles_saturated), (None, None));
        assert!(entries[1..].iter().all(|entry| entry.cycles == Some(0)));
        assert!(entries[1..].iter().all(|entry| entry.cycles_saturated == Some(false)));
        assert!(entries.iter().all(|entry| entry.mispredicted == Some(false)));
    }
}

#[test]
fn types_come_from_the_code_and_other_filters_from_the_closure() {
    let mut config = config(Shape::Flags, 16);
    let mut source = Scripted::straight(1, 100);
    source.decoding.classify = Some(Box::new(|pid, from| {
        assert_eq!(pid, 100);
        (from % 8 == 0).then_some(BranchType::COND)
    }));
    config.keep = Some(Box::new(|entry| entry.branch_type == Some(BranchType::COND)));
    let (summary, events) = record(&mut source, config, Shape::Flags);
    assert_eq!((summary.branches, summary.filtered), (50, 50));
    assert!(summary.complete, "every branch that was asked for is there");
    let froms = &by_thread(&events)[&1];
    assert!(froms.iter().all(|from| from % 8 == 0));
}

/// A script of these branches on one thread.
fn branches(all: &'static [(u64, u64)]) -> Scripted {
    Scripted::new(vec![Box::new(move |gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        for (from, to) in all {
            ring.retire(&Retired::user(*from, *to, HwBranchType::IndJmp)).unwrap();
        }
        ring.finish().unwrap();
    })])
}

/// The oldest record's cycles include the pause of the drain, but not if that record is omitted.
#[test]
fn returns_from_the_kernel_to_the_sampler_are_not_recorded() {
    const KERNEL: u64 = 0xffff_ffff_8100_0000;
    let mut source = branches(&[
        (KERNEL, 0x7000),
        (KERNEL, 0x6fff),
        (0x40_0000, 0x7010),
        (KERNEL, 0x7fff),
        (KERNEL, 0x8000),
        (0x40_0010, KERNEL),
    ]);
    source.decoding.ours = Some(0x7000..0x8000);
    source.knowledge = SourceKnowledge::HARDWARE;
    let (summary, events) = record(&mut source, config(Shape::Info, 16), Shape::Info);
    let found = samples(&events).flat_map(|sample| sample.stack.oldest_first());
    let found: Vec<_> = found.map(|entry| (entry.from, entry.to, entry.cycles)).collect();
    let recorded = [(KERNEL, 0x6fff), (0x40_0000, 0x7010), (KERNEL, 0x8000), (0x40_0010, KERNEL)];
    assert_eq!(found, recorded.map(|(from, to)| (from, to, Some(0))));
    assert_eq!((summary.branches, summary.unreadable), (4, 0));
}

#[test]
fn an_unreadable_record_is_counted_and_missing() {
    let mut source = branches(&[(0x10, 0x20), (0x30, 0x40), (0x50, 0x60)]);
    source.decoding.decode = Some(Box::new(|raw| {
        (raw.from != 0x30).then(|| BranchEntry {
            from: raw.from,
            to: raw.to,
            ..BranchEntry::default()
        })
    }));
    let (summary, events) = record(&mut source, config(Shape::Arch, 16), Shape::Arch);
    assert_eq!(by_thread(&events)[&1], [0x10, 0x50]);
    assert_eq!((summary.branches, summary.unreadable, summary.complete), (2, 1, false));
}

#[test]
fn only_periods_below_the_depth_promise_completeness() {
    let sampled = [
        (Sampling::Period(7), true),
        (Sampling::Period(8), false),
        (Sampling::Rate { hz: 1, seed: 1 }, false),
    ];
    for (sampling, complete) in sampled {
        let mut config = config(Shape::Arch, 8);
        config.sampling = sampling;
        let (summary, _) = record(&mut Scripted::straight(1, 5), config, Shape::Arch);
        assert_eq!((summary.branches, summary.complete), (5, complete), "{sampling:?}");
    }
}

/// The filter omits the whole first stack, which lacks branches: the next one follows a loss.
#[test]
fn a_stack_after_a_filtered_loss_is_not_joined() {
    let mut source = Scripted::new(vec![Box::new(|gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        for n in 0..30 {
            ring.retire(&branch(1, n)).unwrap();
            if [20, 23, 26].contains(&n) {
                ring.flush().unwrap();
            }
        }
        ring.finish().unwrap();
    })]);
    let mut config = config(Shape::Arch, 8);
    config.sampling = Sampling::Period(1000);
    config.keep = Some(Box::new(|entry| {
        let dropped = (0..21).chain([24]);
        !dropped.map(|n| branch(1, n).from).any(|from| from == entry.from)
    }));
    let (summary, events) = record(&mut source, config, Shape::Arch);
    let heads: Vec<_> = samples(&events)
        .map(|sample| (sample.stack.integrity.head, sample.stack.entries.len(), sample.period))
        .collect();
    // The period of a stack that follows another counts the branches between them.
    assert_eq!(heads[1..], [(Head::Joined, 2, 3), (Head::Joined, 3, 3)]);
    assert_eq!((heads[0].0, heads[0].1), (Head::Lost, 3));
    assert_eq!((summary.not_joined, summary.filtered), (1, 9));
}

#[test]
fn branches_of_others_are_excluded() {
    let mut source = Scripted::straight(1, 14);
    source.decoding.owns =
        Some(Box::new(|_, entries, _| entries.iter().all(|entry| entry.from != branch(1, 0).from)));
    let (summary, events) = record(&mut source, config(Shape::Arch, 8), Shape::Arch);
    let heads: Vec<_> = samples(&events)
        .map(|sample| (sample.stack.integrity.head, sample.stack.entries.len()))
        .collect();
    assert_eq!(heads, [(Head::Lost, 7)]);
    assert_eq!((summary.labels[&Label::Mixed].branches, summary.lost), (7, 1));
}

#[test]
fn other_events_keep_their_place_in_time() {
    let comm = |tid: u32, time: u64, name: &str| {
        Event::Comm(Comm { time, pid: 100, tid, comm: name.to_owned(), exec: false })
    };
    let script: Script = Box::new(move |gate, thread| {
        gate.emit(comm(thread.tid, 0, "before")).unwrap();
        let mut ring = gate.start(thread).unwrap();
        for n in 0..20 {
            ring.retire(&branch(thread.tid, n)).unwrap();
        }
        ring.flush().unwrap();
        gate.emit(comm(thread.tid, u64::MAX, "last")).unwrap();
        gate.emit(comm(thread.tid, u64::MAX, "after the last")).unwrap();
        gate.emit(comm(thread.tid, u64::MAX - 1, "last but one")).unwrap();
        for n in 20..30 {
            ring.retire(&branch(thread.tid, n)).unwrap();
        }
        ring.finish().unwrap();
    });
    let (summary, events) =
        record(&mut Scripted::new(vec![script]), config(Shape::Arch, 16), Shape::Arch);
    assert!(summary.complete);
    let names: Vec<String> = events
        .iter()
        .map(|event| match event {
            Event::Comm(comm) => comm.comm.clone(),
            Event::Sample(sample) => sample.stack.entries.len().to_string(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(names, ["before", "15", "5", "10", "last but one", "last", "after the last"]);
}

#[test]
fn call_stacks_are_snapshots() {
    let script: Script = Box::new(|gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        let call = |n: u64| Retired::user(0x1000 + n, 0x2000 + n, HwBranchType::RelCall);
        for n in 0..3 {
            ring.retire(&call(n)).unwrap();
        }
        ring.flush().unwrap();
        ring.retire(&Retired::user(0x3000, 0x4000, HwBranchType::Ret)).unwrap();
        ring.flush().unwrap();
        ring.retire(&Retired::user(0x5000, 0x6000, HwBranchType::Cond)).unwrap();
        ring.finish().unwrap();
    });
    let mut config = config(Shape::Info, 16);
    config.call_stack = true;
    let (summary, events) = record(&mut Scripted::new(vec![script]), config, Shape::Info);
    let depths: Vec<usize> = samples(&events).map(|s| s.stack.entries.len()).collect();
    // The end takes no further snapshot: the branch did not change the call stack.
    assert_eq!(depths, [3, 2]);
    assert_eq!(summary.labels[&Label::Snapshot].stacks, 2);
    assert!(!summary.complete);
    assert_eq!(summary.not_joined, 0);
}

/// Registers that something else changes before their 20th branch.
struct Changed(Model, u64, fn(&mut Model));

impl lbr_msr::MsrRead for Changed {
    fn cpu(&self) -> u32 {
        0
    }
    fn read(&mut self, msr: lbr_msr::Msr) -> Result<u64, lbr_msr::MsrError> {
        self.0.read(msr)
    }
}

impl lbr_msr::MsrWrite for Changed {
    fn write(&mut self, msr: lbr_msr::Msr, value: u64) -> Result<(), lbr_msr::MsrError> {
        self.0.write(msr, value)
    }
}

impl sampler::gate::BranchRegisters for Changed {
    fn retire(&mut self, branch: &Retired) -> bool {
        self.1 += 1;
        if self.1 == 20 {
            (self.2)(&mut self.0);
        }
        self.0.retire(branch)
    }
}

#[test]
fn a_wipe_is_announced_and_breaks_completeness() {
    let open: sampler::gate::OpenRegisters =
        Box::new(|_| Ok(Box::new(Changed(Model::armed(Shape::Arch, 16), 0, Model::wipe))));
    let mut events = Vec::new();
    let mut source = Scripted::straight(1, 60);
    let config = config(Shape::Arch, 16);
    let summary = record_on(&mut source, config, open, &mut events).unwrap();
    assert!(!summary.complete);
    assert_eq!(summary.lost, 1);
    // 15 drained, 4 wiped, 11 in the stack that was excluded, 30 after.
    assert_eq!(summary.labels[&Label::Wiped].branches, 11);
    let lost: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Lost(lost) => Some((lost.stacks, lost.label, lost.tid)),
            _ => None,
        })
        .collect();
    assert_eq!(lost, [(1, Some(Label::Wiped), 1)]);
    let heads: Vec<Head> = samples(&events).map(|s| s.stack.integrity.head).collect();
    assert_eq!(heads, [Head::Joined, Head::Lost, Head::Joined]);
    assert_eq!((summary.branches, summary.not_joined), (45, 1));
}

#[test]
fn a_recording_lacks_what_its_source_could_not_see() {
    let none = SourceNotes::default();
    for (notes, complete) in [
        (SourceNotes { kernel_returns_omitted: 1, instructions: 9, ..none }, true),
        (SourceNotes { children_left: 1, replaced: true, ..none }, true),
        (SourceNotes { undecoded: 1, ..none }, false),
        (SourceNotes { invisible: 1, ..none }, false),
        (SourceNotes { unresolved: 1, ..none }, false),
        (SourceNotes { threads_left: 1, ..none }, false),
    ] {
        let mut source = Scripted { notes, ..Scripted::straight(1, 20) };
        let (summary, _) = record(&mut source, config(Shape::Arch, 16), Shape::Arch);
        assert_eq!(summary.complete, complete, "{notes:?}");
    }
}

/// The drains have no access left to read it.
#[test]
fn a_filter_changed_after_the_last_drain_breaks_completeness() {
    for (branches, complete) in [(19, true), (20, false)] {
        let open: sampler::gate::OpenRegisters = Box::new(|_| {
            Ok(Box::new(Changed(Model::armed(Shape::Info, 16), 0, |model| model.select = 0)))
        });
        let mut source = Scripted::straight(1, branches);
        let config = config(Shape::Info, 16);
        let summary = record_on(&mut source, config, open, &mut Vec::new()).unwrap();
        assert_eq!((summary.branches, summary.complete), (branches, complete));
        assert_eq!(summary.labels[&Label::Stream].branches, branches);
    }
}

#[test]
fn a_full_queue_makes_a_waiting_session_wait() {
    let mut config = config(Shape::Arch, 8);
    config.queue = Queue { stacks: 1, when_full: WhenFull::Wait };
    let mut sink = Slow::default();
    let open = models(Shape::Arch, 8, false);
    let mut source = Scripted::straight(3, 100);
    let summary = record_on(&mut source, config, open, &mut sink).unwrap();
    assert!(summary.complete, "{summary:?}");
    for (tid, froms) in by_thread(&sink.events) {
        assert_eq!(froms, expected(tid, 100));
    }
}

#[test]
fn a_full_queue_drops_and_counts_if_waiting_is_impossible() {
    let mut config = config(Shape::Arch, 8);
    config.queue = Queue { stacks: 1, when_full: WhenFull::Drop };
    let mut sink = Slow::default();
    let open = models(Shape::Arch, 8, false);
    let mut source = Scripted::straight(1, 700);
    let summary = record_on(&mut source, config, open, &mut sink).unwrap();
    assert!(summary.dropped > 0 && !summary.complete, "{summary:?}");
    assert_eq!(summary.samples + summary.dropped, 100);
    assert_eq!(
        summary.drains, 100,
        "a full period is drained before the next branch, or at the end"
    );
    assert_eq!(summary.lost, summary.dropped);
    let announced: u64 = sink
        .events
        .iter()
        .map(|event| match event {
            Event::Lost(lost) => {
                assert_eq!(lost.label, None);
                lost.stacks
            }
            _ => 0,
        })
        .sum();
    assert_eq!(announced, summary.dropped);
    // A stack is joined exactly if its predecessor was recorded.
    let mut last: Option<u64> = None;
    for sample in samples(&sink.events) {
        let froms: Vec<u64> = sample.stack.oldest_first().map(|entry| entry.from).collect();
        let follows = froms[0] == last.map_or(branch(1, 0).from, |last| last + 4);
        assert_eq!(sample.stack.integrity.head == Head::Joined, follows);
        last = froms.last().copied();
    }
}

#[test]
fn a_stop_ends_the_run_and_keeps_its_records() {
    let config = config(Shape::Flags, 16);
    let stop = Arc::clone(&config.stop);
    let retired = Arc::new(AtomicU64::new(0));
    let script: Script = {
        let retired = Arc::clone(&retired);
        Box::new(move |gate, thread| {
            let mut ring = gate.start(thread).unwrap();
            for n in 0.. {
                if n == 1234 {
                    stop.store(true, Ordering::Relaxed);
                    assert!(gate.is_closed());
                }
                if ring.retire(&branch(thread.tid, n)).is_err() {
                    break;
                }
                retired.fetch_add(1, Ordering::Relaxed);
            }
            assert!(gate.start(thread).is_err());
            assert!(ring.retire_entry(&branch(thread.tid, 1234), [0; 6]).is_err());
            // What belongs to the branches so far is still recorded.
            ring.moved(MoveKind::End, 0x50, 0).unwrap();
            ring.flush().unwrap();
            let task = Task { time: 1, pid: 100, tid: 1, ppid: 100, ptid: 1 };
            gate.emit(Event::Exit(task)).unwrap();
            ring.finish().unwrap();
        })
    };
    let (summary, events) = record(&mut Scripted::new(vec![script]), config, Shape::Flags);
    assert_eq!(retired.load(Ordering::Relaxed), 1234);
    assert_eq!(by_thread(&events)[&1], expected(1, 1234));
    assert!(summary.complete, "to the stop");
    let moves = samples(&events).flat_map(|sample| &sample.stack.moves);
    assert_eq!(moves.map(|moved| moved.kind).collect::<Vec<_>>(), [MoveKind::End]);
    assert!(events.iter().any(|event| matches!(event, Event::Exit(_))));
}

/// A failed recording, unlike one that was stopped, takes nothing any more.
#[test]
fn a_failed_recording_is_closed_to_all_calls() {
    let fault = Some(lbr_msr::Msr(0x1602));
    for (fault, room) in [(None, 5), (fault, 1000)] {
        // The error of the recording hides a panic of its source.
        let refused = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&refused);
        let script: Script = Box::new(move |gate, thread| {
            let mut ring = gate.start(thread).unwrap();
            while ring.retire(&branch(1, 1)).is_ok() {}
            let task = Task { time: 1, pid: 100, tid: 1, ppid: 100, ptid: 1 };
            let refused = [
                gate.start(thread).is_err(),
                ring.retire_run(&[]).is_err(),
                ring.retire_entry(&branch(1, 1), [0; 6]).is_err(),
                ring.moved(MoveKind::End, 0x50, 0).is_err(),
                ring.flush().is_err(),
                gate.emit(Event::Exit(task)).is_err(),
                ring.finish().is_err(),
            ];
            said.lock().unwrap().extend(refused);
        });
        let open: sampler::gate::OpenRegisters =
            Box::new(move |_| Ok(Box::new(Model { fault, ..Model::armed(Shape::Arch, 8) })));
        let mut source = Scripted::new(vec![script]);
        let config = config(Shape::Arch, 8);
        let error = record_on(&mut source, config, open, &mut FullDisk { room }).unwrap_err();
        match fault {
            None => assert!(matches!(error, RecordError::Sink(_)), "{error}"),
            Some(_) => assert!(matches!(error, RecordError::Drain(_)), "{error}"),
        }
        assert_eq!(*refused.lock().unwrap(), [true; 7], "{error}");
    }
}

#[test]
fn a_queue_holds_at_least_one_stack() {
    let mut config = config(Shape::Arch, 8);
    config.queue = Queue { stacks: 0, when_full: WhenFull::Drop };
    let before = std::time::Instant::now();
    let (summary, _) = record(&mut Scripted::straight(1, 5), config, Shape::Arch);
    assert!(summary.complete, "{summary:?}");
    assert!(summary.time > Duration::ZERO && summary.time <= before.elapsed());
}

/// A wipe before the first mark looks as after arming; the branches before it are missing.
#[test]
fn moves_of_a_stack_that_lacks_branches_are_of_unknown_kind() {
    for (branches, kinds) in
        [(19, vec![MoveKind::Start, MoveKind::End]), (20, vec![MoveKind::Unknown; 2])]
    {
        let open: sampler::gate::OpenRegisters =
            Box::new(|_| Ok(Box::new(Changed(Model::armed(Shape::Arch, 32), 0, Model::wipe))));
        let script: Script = Box::new(move |gate, thread| {
            let mut ring = gate.start(thread).unwrap();
            ring.moved(MoveKind::Start, 0, 0x10).unwrap();
            for n in 0..branches {
                ring.retire(&branch(1, n)).unwrap();
            }
            ring.moved(MoveKind::End, 0x50, 0).unwrap();
            ring.finish().unwrap();
        });
        let mut events: Vec<Event> = Vec::new();
        let mut source = Scripted::new(vec![script]);
        let summary = record_on(&mut source, config(Shape::Arch, 32), open, &mut events).unwrap();
        assert_eq!((summary.complete, summary.samples), (branches == 19, 1));
        let moves = samples(&events).flat_map(|sample| &sample.stack.moves);
        assert_eq!(moves.map(|moved| moved.kind).collect::<Vec<_>>(), kinds);
    }
}

#[test]
fn a_source_that_fails_is_the_error_and_its_branches_are_kept() {
    let mut source = Scripted::straight(1, 100);
    source.result = Some(SourceError::NotFound { program: "nope".to_owned() });
    let mut events = Vec::new();
    let error =
        record_on(&mut source, config(Shape::Arch, 8), models(Shape::Arch, 8, false), &mut events)
            .unwrap_err();
    assert!(matches!(error, RecordError::Source(SourceError::NotFound { .. })), "{error}");
    assert_eq!(by_thread(&events)[&1], expected(1, 100));
}

#[test]
fn a_sink_that_fails_stops_every_thread() {
    let mut source = Scripted::straight(4, 1_000_000);
    let error = record_on(
        &mut source,
        config(Shape::Arch, 8),
        models(Shape::Arch, 8, false),
        &mut FullDisk { room: 5 },
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "the recording could not be written: no space left on device");
}

#[test]
fn panicking_threads_are_reported_without_a_hang() {
    struct Panics;
    impl lbr_msr::record::Sink for Panics {
        type Error = &'static str;
        fn event(&mut self, _: &Event) -> Result<(), &'static str> {
            panic!("a sink of this test panics");
        }
    }
    let error = record_on(
        &mut Scripted::straight(2, 100_000),
        config(Shape::Arch, 8),
        models(Shape::Arch, 8, false),
        &mut Panics,
    )
    .unwrap_err();
    assert!(matches!(error, RecordError::Panicked { name: "decoder" }), "{error}");

    let script: Script = Box::new(|gate, thread| {
        let mut ring = gate.start(thread).unwrap();
        let _ = ring.retire(&branch(1, 1));
        panic!("a source of this test panics");
    });
    let mut events: Vec<Event> = Vec::new();
    let error = record_on(
        &mut Scripted::new(vec![script]),
        config(Shape::Arch, 8),
        models(Shape::Arch, 8, false),
        &mut events,
    )
    .unwrap_err();
    assert!(matches!(error, RecordError::Panicked { name: "source" }), "{error}");
    assert_eq!(samples(&events).count(), 1, "its ring was drained as it fell");
}

#[test]
fn failures_to_arm_or_drain_are_typed_errors() {
    let not_armed: sampler::gate::OpenRegisters =
        Box::new(|_| Ok(Box::new(Model { control: 0, ..Model::armed(Shape::Arch, 8) })));
    let tolerant = || -> Scripted {
        Scripted::new(vec![Box::new(|gate, thread| {
            if let Ok(mut ring) = gate.start(thread) {
                while ring.retire(&branch(1, 1)).is_ok() {}
            }
        })])
    };
    let mut events: Vec<Event> = Vec::new();
    let config8 = || config(Shape::Arch, 8);
    let error = record_on(&mut tolerant(), config8(), not_armed, &mut events).unwrap_err();
    assert!(
        matches!(error, RecordError::Arm(OpenError::Drain(DrainError::NotArmed { .. }))),
        "{error}"
    );

    let faults: sampler::gate::OpenRegisters = Box::new(|_| {
        Ok(Box::new(Model { fault: Some(lbr_msr::Msr(0x1602)), ..Model::armed(Shape::Arch, 8) }))
    });
    let error = record_on(&mut tolerant(), config8(), faults, &mut events).unwrap_err();
    assert!(matches!(error, RecordError::Drain(_)), "{error}");
    assert!(error.to_string().contains("0x1602"), "{error}");

    let mut none = config8();
    none.sampling = Sampling::Period(0);
    let open = models(Shape::Arch, 8, false);
    let error = record_on(&mut tolerant(), none, open, &mut events).unwrap_err();
    assert!(matches!(error, RecordError::PeriodZero), "{error}");
}

#[test]
fn an_lbr_abandoned_by_its_source_is_drained_and_does_not_hang() {
    let kept = Arc::new(Mutex::new(None));
    let script: Script = {
        let kept = Arc::clone(&kept);
        Box::new(move |gate, thread| {
            let mut ring = gate.start(thread).unwrap();
            for n in 0..5 {
                ring.retire(&branch(thread.tid, n)).unwrap();
            }
            // The end of another thread leaves this one's alone.
            gate.start(ThreadId { pid: 100, tid: 99 }).unwrap().finish().unwrap();
            *kept.lock().unwrap() = Some(ring);
        })
    };
    let (_, events) = record(&mut Scripted::new(vec![script]), config(Shape::Arch, 8), Shape::Arch);
    assert_eq!(by_thread(&events)[&1], expected(1, 5));
    // It outlives the session.
    let mut ring = kept.lock().unwrap().take().unwrap();
    assert!(ring.retire(&branch(1, 1)).is_err());
    drop(ring);
}
