//! The sampler thread: pinning, the clock, many LBRs at once.

use lbr_msr::record::Event;
use sampler::Pace;
use sampler::config::{Queue, WhenFull};
use sampler::target::{Affinity, Moved, SourceError};

use crate::model::Shape;
use crate::scripted::*;

#[test]
fn a_cpu_out_of_range_is_refused_with_the_list() {
    let allowed = Affinity::current().unwrap();
    // 5000 is beyond the kernel's set.
    for cpu in [5000, u32::MAX, 1023] {
        match allowed.pin_this_thread(cpu) {
            Err(SourceError::NoSuchCpu { cpu: asked, allowed: list }) => {
                assert_eq!((asked, list), (cpu, allowed.list()));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_pinned_thread_runs_there_and_is_unpinned() {
    let allowed = Affinity::current().unwrap();
    assert!(allowed.cpus().next().is_some());
    for cpu in allowed.cpus() {
        std::thread::spawn(move || {
            let moved = Moved::to(&allowed).unwrap();
            allowed.pin_this_thread(cpu).unwrap();
            assert_eq!(nix::sched::sched_getcpu().unwrap(), cpu as usize);
            // Afterwards the affinity has only that CPU.
            assert_eq!(Affinity::current().unwrap().cpus().collect::<Vec<_>>(), [cpu]);
            drop(moved);
            assert_eq!(Affinity::current().unwrap().list(), allowed.list());
        })
        .join()
        .unwrap();
    }
}

#[test]
fn the_recorder_leaves_the_recorded_cpus_if_there_are_others() {
    let allowed = Affinity::current().unwrap();
    let cpus: Vec<u32> = allowed.cpus().collect();
    // 5000 is beyond the kernel's set.
    assert_eq!(allowed.without(&[5000]).unwrap().list(), allowed.list());
    assert!(allowed.without(&cpus).is_none());
    let (first, others) = cpus.split_first().unwrap();
    let found = allowed.without(&[*first]).map(|left| left.cpus().collect::<Vec<_>>());
    assert_eq!(found.unwrap_or_default(), others);
    assert_eq!(allowed.only_these(others).unwrap().cpus().collect::<Vec<_>>(), others);
    std::thread::spawn(move || {
        let now = || Affinity::current().unwrap().cpus().collect::<Vec<_>>();
        assert!(Moved::off(&cpus, &allowed).is_none());
        assert_eq!(now(), cpus, "there are no others");
        let moved = Moved::off(&cpus[..1], &allowed);
        assert_eq!(now(), if cpus.len() > 1 { &cpus[1..] } else { &cpus[..] });
        drop(moved);
        assert_eq!(now(), cpus);
    })
    .join()
    .unwrap();
}

#[test]
fn intervals_spread_over_a_quarter_and_the_seed_repeats_them() {
    for hz in [1, 997, 100_000] {
        let mean = 1e9 / f64::from(hz);
        let mut pace = Pace::new(hz, 7);
        let intervals: Vec<u64> = (0..2000).map(|_| pace.next_interval()).collect();
        let nanoseconds: Vec<f64> = intervals.iter().map(|i| *i as f64).collect();
        let (low, high) = (0.75 * mean - 2.0, 1.25 * mean + 2.0);
        assert!(nanoseconds.iter().all(|n| (low..=high).contains(n)), "{hz}");
        assert!(nanoseconds.iter().any(|n| *n < 0.78 * mean), "{hz}: reaches down");
        assert!(nanoseconds.iter().any(|n| *n > 1.22 * mean), "{hz}: reaches up");
        let average = nanoseconds.iter().sum::<f64>() / 2000.0;
        assert!((average / mean - 1.0).abs() < 0.02, "{hz}: {average}");

        let mut again = Pace::new(hz, 7);
        assert!(intervals.iter().all(|interval| *interval == again.next_interval()));
        let mut other = Pace::new(hz, 8);
        assert!(intervals.iter().any(|interval| *interval != other.next_interval()));
    }
    assert!(Pace::new(0, 0).next_interval() <= 1_250_000_000);
    assert!(Pace::new(u32::MAX, 0).next_interval() < 2);
}

#[test]
fn eight_threads_share_one_sampler() {
    let mut config = config(Shape::Info, 32);
    config.queue = Queue { stacks: 4, when_full: WhenFull::Wait };
    let mut events: Vec<Event> = Vec::new();
    let open = models(Shape::Info, 32, false);
    let mut source = Scripted::straight(8, 5_000);
    let summary = record_on(&mut source, config, open, &mut events).unwrap();
    assert!(summary.complete, "{summary:?}");
    let mut last = std::collections::BTreeMap::new();
    let mut time = 0;
    for event in &events {
        let Event::Sample(sample) = event else { panic!("{event:?}") };
        assert!(sample.time >= time, "in time order");
        time = sample.time;
        for entry in sample.stack.oldest_first() {
            let next = last.entry(sample.tid).or_insert(0);
            assert_eq!(entry.from, branch(sample.tid, *next).from);
            *next += 1;
        }
    }
    assert!(last.values().all(|count| *count == 5_000) && last.len() == 8);
}
