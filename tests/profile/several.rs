//! Several recordings counted together, and several threads in one.

use std::io::Cursor;

use lbr_msr::record::{BranchType, Comm, Event, Lost, MoveKind, Task as Fork, ThreadMove};
use profile::flow::FlowCounter;
use profile::lint::{DEFAULT_STRIDE, Lint};
use profile::overview::{Overview, OverviewCounter, Task};
use profile::symbols::Sources;
use profile::{Counter, Recording, View};

use crate::recorded::{entry, exact, here, map, meta, sample, stream};
use crate::views::{AT, CODE, elf, ran};

fn open(bytes: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

/// A loop of four rounds, in a file mapped at `base`.
fn program(base: u64) -> Vec<u8> {
    let branch = |from: u64, to: u64| lbr_msr::record::BranchEntry {
        branch_type: Some(BranchType::COND),
        ..entry(base + from, base + to)
    };
    let mut entries = vec![branch(0x30, 0x100)];
    entries.extend([branch(0x20, 0x10); 4]);
    entries.push(branch(0x0, 0x8));
    stream(meta(), &[map("/nowhere/prog", base, 0x2000, 0), sample(2000, entries, exact())])
}

fn all<V: View>(mut counter: Counter<V>, recordings: &[Vec<u8>]) -> V::Table {
    for bytes in recordings {
        counter.recording(&mut open(bytes), |_, _| {}).unwrap();
    }
    counter.finish()
}

/// The same program twice, loaded at another address by a process with the same number.
#[test]
fn the_same_code_of_two_recordings_is_one() {
    let both = [program(0x5555_0000_0000), program(0x6666_0000_0000)];
    let loops = all(profile::loops::counter(), &both).unwrap();
    // The three branches of `program`, wherever they were loaded.
    assert_eq!((loops.taken, loops.distinct), (12, 3));
    let [one] = &loops.loops[..] else { panic!("{:?}", loops.loops) };
    assert_eq!(one.rounds, 8);
    assert_eq!(one.back_edges.iter().map(|back| back.count).collect::<Vec<_>>(), [8]);
    let page = page(&both);
    assert_eq!((page.flow.taken, page.flow.distinct, page.branches.len()), (12, 3, 3));
    let paths = all(profile::paths::counter(), &both).unwrap();
    assert_eq!((paths.taken, paths.distinct), (12, 3));
    assert_eq!(paths.quality.samples, 2);
    let graph = all(profile::callgraph::counter(false), &both);
    assert_eq!((graph.entries, graph.distinct, graph.quality.samples), (12, 3, 2));
}

/// The data of a page about recordings.
fn page(recordings: &[Vec<u8>]) -> Overview {
    let mut counter = OverviewCounter::new(recordings.len() > 1);
    for bytes in recordings {
        counter.recording(&mut open(bytes), |_, _| {}).unwrap();
    }
    counter.finish()
}

/// Whether each recording of a page has a finding.
fn judged(page: &Overview, id: &str) -> Vec<bool> {
    let has = |one: &profile::overview::Judged| one.findings.iter().any(|found| found.id == id);
    page.judged.iter().map(has).collect()
}

/// A page adds up what several recordings have and lack, and judges each alone.
#[test]
fn a_page_has_the_data_of_all_recordings() {
    // Newest first: from 0x40 back to 0x10.
    let stack = |time| sample(time, vec![entry(0x10, 0x20), entry(0x30, 0x40)], exact());
    let lost = Lost { time: 3, pid: 100, tid: 101, cpu: 1, stacks: 5, label: None };
    let first = stream(meta(), &[stack(1), stack(2), Event::Lost(lost)]);
    let mut second = stream(meta(), &[stack(1), stack(2)]);
    second.pop();
    let both = page(&[first.clone(), second.clone()]);
    let quality = &both.flow.quality;
    assert_eq!((quality.samples, quality.entries, quality.lost_total()), (3, 6, 5));
    assert_eq!(both.flow.block_quality.backwards, 3);
    assert_eq!(judged(&both, "lost"), [true, false]);
    assert_eq!(judged(&both, "cut_off"), [false, true]);
    assert_eq!(judged(&page(&[first]), "lost"), [true]);
    assert_eq!(judged(&page(&[second]), "cut_off"), [true]);
}

/// A branch that is newest in every stack, and rare otherwise, is a bias of each recording.
#[test]
fn a_page_finds_the_bias_of_each_recording() {
    let biased = " 0x90/0x10 0x20/0x10 0x20/0x10 0x20/0x10\n".repeat(100).into_bytes();
    let even = " 0x20/0x10 0x20/0x10\n".repeat(100).into_bytes();
    assert_eq!(judged(&page(&[biased.clone(), even]), "top_of_stack_bias"), [true, false]);
    assert_eq!(judged(&page(&[biased]), "top_of_stack_bias"), [true]);
}

/// Two processes, of which one is a child of the other in the first recording.
#[test]
fn a_page_finds_several_runs_in_one_recording() {
    let of = |pid| {
        let mut event = sample(2000, vec![entry(0x20, 0x10)], exact());
        let Event::Sample(sample) = &mut event else { unreachable!() };
        sample.pid = pid;
        event
    };
    let fork = Event::Fork(Fork { time: 1, pid: 20, tid: 20, ppid: 10, ptid: 10 });
    let two = [of(10), of(20)];
    let recordings = [stream(meta(), &[&[fork][..], &two].concat()), stream(meta(), &two)];
    assert_eq!(judged(&page(&recordings), "several_runs"), [false, true]);
}

/// A thread ends after the two bytes at 2: the branch at 0 was passed once more than the one at 4.
#[test]
fn code_that_no_branch_ends_is_in_every_verdict() {
    let (_dir, path) = elf(CODE);
    let mut event = ran(1, &[(8, 0)]);
    let Event::Sample(sample) = &mut event else { unreachable!() };
    let moved = |newer, kind, from| ThreadMove { newer, kind, from, to: AT };
    sample.stack.moves = vec![moved(1, MoveKind::Start, 0), moved(0, MoveKind::End, AT + 4)];
    let bytes = stream(here(), &[map(&path, AT, 0x1000, 0x1000), event]);
    let lint = Lint::check(&mut open(&bytes), DEFAULT_STRIDE, Sources::default(), |_, _| {});
    for flow in [lint.unwrap().flow, page(&[bytes]).flow] {
        let mut passed: Vec<_> =
            flow.sites.iter().map(|site| (site.from - AT, site.not_taken)).collect();
        passed.sort_unstable();
        assert_eq!(passed, [(0, Some(2)), (4, Some(1)), (8, Some(0))]);
    }
}

/// The threads with most samples first; equal ones by their numbers.
#[test]
fn the_threads_of_a_page() {
    let of = |pid, tid| {
        let mut event = sample(2000, vec![entry(0x20, 0x10)], exact());
        let Event::Sample(sample) = &mut event else { unreachable!() };
        (sample.pid, sample.tid) = (pid, tid);
        event
    };
    let name = |tid, comm: &str| {
        let comm = comm.to_owned();
        Event::Comm(Comm { time: 1, pid: tid, tid, comm, exec: false })
    };
    let mut events = vec![name(30, "early"), name(30, "late"), of(40, 41), of(40, 41)];
    events.extend([30, 10, 50, 20].into_iter().flat_map(|pid| [of(pid, pid + 1), of(pid, pid)]));
    let tasks = page(&[stream(meta(), &events)]).tasks;
    let task = |pid, tid, samples| {
        let name = (tid == 30).then(|| "late".to_owned());
        Task { pid: Some(pid), tid: Some(tid), name, samples }
    };
    let mut expected = vec![task(40, 41, 2)];
    expected.extend(
        [10, 20, 30, 50].iter().flat_map(|&pid| [pid, pid + 1].map(|tid| task(pid, tid, 1))),
    );
    assert_eq!(tasks, expected);
}

/// Stacks of a thread join to its own, whatever stacks are between them in the file.
#[test]
fn contiguity_is_independent_of_file_order() {
    let of = |tid: u32, part: u64| {
        let at = 0x1000 * part;
        let entries =
            vec![entry(0x5000 + at + 0x900, 0x6000 + at), entry(0x5000 + at, 0x5000 + at)];
        let mut event = sample(2000, entries, exact());
        if let Event::Sample(sample) = &mut event {
            sample.tid = tid;
        }
        event
    };
    let mut known = None;
    // Which thread comes next.
    for order in [[1, 1, 1, 2, 2, 2], [1, 2, 1, 2, 1, 2], [2, 1, 1, 2, 2, 1], [2, 2, 2, 1, 1, 1]] {
        let mut parts = [0, 0];
        let mut events = Vec::new();
        for tid in order {
            events.push(of(tid, parts[tid as usize - 1]));
            parts[tid as usize - 1] += 1;
        }
        let mut counter = FlowCounter::default();
        counter.recording(&mut open(&stream(meta(), &events)), |_, _| {}).unwrap();
        let flow = counter.finish();
        let blocks: Vec<(u64, u64, u64)> =
            flow.blocks.iter().map(|block| (block.entry, block.exit, block.count)).collect();
        // Three stacks with a block inside, and two joins of length zero between them; in two
        // threads.
        assert_eq!(flow.block_quality.blocks, 10, "{order:?}");
        assert!(blocks.contains(&(0x6000, 0x6000, 2)) && blocks.contains(&(0x7000, 0x7000, 2)));
        assert_eq!(known.get_or_insert(blocks.clone()), &blocks, "{order:?}");
    }
}

/// Text without processes: equal addresses are the same branch, in one file or in two. With
/// processes they are not.
#[test]
fn texts_without_processes_are_merged() {
    let rows = |texts: [&str; 2]| {
        let mut counter = profile::hot::Counter::default();
        let mut flow = FlowCounter::default();
        for text in texts {
            counter.recording(&mut open(text.as_bytes()), |_, _| {}).unwrap();
            flow.recording(&mut open(text.as_bytes()), |_, _| {}).unwrap();
        }
        let hot = counter.finish().branches.iter().map(|row| row.count).collect::<Vec<_>>();
        let sites = flow.finish().sites.iter().map(|site| site.taken).collect::<Vec<_>>();
        (hot, sites)
    };
    let text = " 0x10/0x20/P/-/-/0 \n";
    assert_eq!(rows([text, text]), (vec![2], vec![2]));
    let of_process = " 77/77          a0  0x10/0x20/P/-/-/0 \n";
    assert_eq!(rows([of_process, of_process]), (vec![1, 1], vec![1, 1]));
}

/// Mappings in one text do not apply to the addresses of another.
#[test]
fn texts_without_processes_have_separate_mappings() {
    let mapped = "\
PERF_RECORD_MMAP2 7/7: [0x400000(0x1000) @ 0 08:01 5 0]: r-xp /nowhere/prog
 0x400100/0x400200/P/-/-/0
";
    let mut counter = profile::hot::Counter::default();
    for text in [mapped, " 0x400100/0x400200/P/-/-/0 \n"] {
        counter.recording(&mut open(text.as_bytes()), |_, _| {}).unwrap();
    }
    let table = counter.finish();
    let in_file = |row: &&profile::hot::HotBranch| {
        matches!(row.from_location, profile::maps::Location::File { .. })
    };
    assert_eq!((table.branches.len(), table.branches.iter().filter(in_file).count()), (2, 1));
}

/// Stopped midway and read again to the same position: the same stacks.
#[test]
fn a_stopped_recording_is_read_again_to_the_same_place() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let text = " 0x10/0x20/P/-/-/0  0x30/0x40/P/-/-/0 \n".repeat(50_000);
    let data = stream(
        meta(),
        &(0..20_000).map(|at| sample(at, vec![entry(at, 8)], exact())).collect::<Vec<_>>(),
    );
    let packed = zstd::encode_all(&data[..], 1).unwrap();
    for bytes in [text.as_bytes(), &data, &packed] {
        let read = |recording: &mut Recording, stop: &mut dyn FnMut(u64)| {
            let mut stacks = Vec::new();
            while let Some(item) = recording.next_item().unwrap() {
                let profile::Item::Stack(stack) = item else { continue };
                stacks.push(stack.entries.get(0).unwrap().from);
                stop(stacks.len() as u64);
            }
            assert!(recording.notes().stopped);
            stacks
        };
        let flag = Arc::new(AtomicBool::new(false));
        let mut first = open(bytes);
        first.stop_when(Arc::clone(&flag));
        let before = read(&mut first, &mut |n| flag.store(n >= 3000, Ordering::Relaxed));
        assert!(before.len() >= 3000 && before.len() < 20_000, "{}", before.len());
        let mut again = open(bytes);
        again.stop_at(first.position());
        assert_eq!(read(&mut again, &mut |_| {}), before);
    }
}
