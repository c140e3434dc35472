use lbr_msr::record::{Comm, Lost, Task};

use super::*;

/// A thread ran for 1 s on one CPU and for 3 s on another, where others had the counter for 1 s.
#[test]
fn events_of_a_thread_are_enabled_on_all_cpus_at_once() {
    let seconds = |(on, ran)| (Duration::from_secs(on), Duration::from_secs(ran));
    let share = |times: &[(u64, u64)], cpus| scheduled(times.iter().copied().map(seconds), cpus);
    assert_eq!(share(&[(4, 1), (4, 2)], Some(2)), Some(seconds((4, 3))));
    // Two threads, each on one of the CPUs all the time.
    assert_eq!(share(&[(4, 4), (4, 0), (4, 0), (4, 4)], Some(2)), Some(seconds((8, 8))));
    // Whole CPUs.
    assert_eq!(share(&[(4, 4), (4, 2)], None), Some(seconds((8, 6))));
    assert_eq!(share(&[], Some(2)), None);
}

fn emptying(alone: Option<u32>) -> Emptying {
    Emptying {
        events: Events { rings: Vec::new(), others: Vec::new() },
        depth: 32,
        call_stack: false,
        is_by_thread: true,
        there: None,
        alone,
        children_left: Arc::default(),
        report: KernelReport::default(),
    }
}

fn task((pid, tid): (u32, u32), (ppid, ptid): (u32, u32)) -> Task {
    Task { time: 1, pid, tid, ppid, ptid }
}

/// Process 7 is recorded. Its children are counted, but neither its threads nor the children
/// of its children.
#[test]
fn children_that_are_not_recorded_are_counted() {
    let alone = emptying(Some(7));
    for (forked, is_told, children) in [
        (task((7, 9), (7, 7)), true, 0),
        (task((8, 8), (7, 9)), false, 1),
        (task((8, 10), (8, 8)), false, 1),
        (task((11, 11), (8, 8)), false, 1),
        (task((12, 12), (7, 7)), false, 2),
    ] {
        assert_eq!(alone.is_told(&Event::Fork(forked)), is_told, "{forked:?}");
        assert_eq!(alone.children_left.load(Ordering::Relaxed), children, "{forked:?}");
    }
    let all = emptying(None);
    assert!(all.is_told(&Event::Fork(task((8, 8), (7, 7)))));
    assert_eq!(all.children_left.load(Ordering::Relaxed), 0);
}

#[test]
fn only_events_of_the_recorded_process_are_told() {
    let alone = emptying(Some(7));
    for pid in [7, 8] {
        let comm = Comm { time: 1, pid, tid: pid, comm: "a".to_owned(), exec: false };
        assert_eq!(alone.is_told(&Event::Comm(comm)), pid == 7);
        // The child of a recorded process ends.
        assert_eq!(alone.is_told(&Event::Exit(task((pid, pid), (7, 7)))), pid == 7);
        let lost = Lost { time: 1, pid, tid: pid, cpu: 0, stacks: 3, label: None };
        assert!(alone.is_told(&Event::Lost(lost)), "it may have been of process 7");
    }
    assert_eq!(alone.children_left.load(Ordering::Relaxed), 0);
}

#[test]
fn a_process_has_threads_or_does_not_exist() {
    let ours = std::process::id();
    assert!(threads_of(ours).is_ok_and(|threads| threads.contains(&ours.cast_signed())));
    assert!(matches!(threads_of(u32::MAX), Err(Refused::NoProcess { pid: u32::MAX })));
}
