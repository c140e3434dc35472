//! Comparison of two builds: it finds the planted changes and no others.

use std::io::Cursor;
use std::path::Path;

use lbr_msr::record::{BranchEntry, BranchType, Event, Head, Integrity, Lost};
use profile::compare::{self, By, Comparison, Measure, NotComparable, Row, Total, Unit};
use profile::note::Source;
use profile::perf_data::Meta;
use profile::symbols::Sources;
use profile::{Counter, Recording, View, loops};

use crate::recorded::{BASE, entry, exact, map, meta, sample, stream};
use crate::support::random::Random;

const FUNCTIONS: usize = 1000;
/// The function that changes.
const PLANTED: usize = 20;
const STACKS: u64 = 3000;
const DEPTH: usize = 32;

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Planted {
    Nothing,
    Share,
    Mispredict,
    Cycles,
}

/// A build: its functions are separated by this many bytes.
struct Build {
    stride: u64,
    names: tempfile::TempDir,
}

impl Build {
    fn new(stride: u64) -> Build {
        let names = tempfile::tempdir().unwrap();
        let line =
            |at: usize| format!("{:x} {stride:x} function_{at}\n", BASE + at as u64 * stride);
        let list: String = (0..FUNCTIONS).map(line).collect();
        std::fs::write(names.path().join("perf-100.map"), list).unwrap();
        Build { stride, names }
    }

    /// A sample of a run. Branches of a function come several at a time, and are mispredicted in
    /// some stacks more than in others.
    fn run(&self, seed: u64, planted: Planted) -> Vec<u8> {
        let mut random = Random(seed);
        let is = |what, at| planted == what && at == PLANTED;
        let weights: Vec<f64> = (0..FUNCTIONS)
            .scan(0.0, |sum, at| {
                *sum += if is(Planted::Share, at) { 4.0 } else { 1.0 } / (at + 10) as f64;
                Some(*sum)
            })
            .collect();
        let draw = |random: &mut Random| {
            let drawn = random.share() * weights[FUNCTIONS - 1];
            weights.partition_point(|sum| *sum <= drawn)
        };
        let start = |at: usize| BASE + at as u64 * self.stride;
        let mut events = vec![map("//anon", BASE, FUNCTIONS as u64 * self.stride, 0)];
        for number in 0..STACKS {
            let stormy = random.share() < 0.5;
            let mut at = draw(&mut random);
            let mut entries: Vec<BranchEntry> = Vec::new();
            while entries.len() < DEPTH {
                let stays = random.share() < 0.6;
                let next = if stays { at } else { draw(&mut random) };
                let usual = 0.005 + (at % 17) as f64 * 0.004;
                let rate = if is(Planted::Mispredict, at) { 0.3 } else { usual };
                let missed = random.share() < rate * if stormy { 1.8 } else { 0.2 };
                let slow = if is(Planted::Cycles, at) { 12 } else { 0 };
                let cycles = 4 + (at % 40) as u32 + random.below(9) as u32 + slow;
                entries.push(BranchEntry {
                    mispredicted: Some(missed),
                    cycles: Some(cycles),
                    branch_type: Some(BranchType::COND),
                    ..entry(start(at) + 0x20 + random.below(3) as u64 * 0x10, start(next) + 0x10)
                });
                at = next;
            }
            entries.reverse();
            let integrity = Integrity { head: Head::Lost, cut: true, ..exact() };
            events.push(sample(2000 + number, entries, integrity));
        }
        let meta = Meta { source: Source::Hardware, event: "cycles:u".to_owned(), ..meta() };
        stream(meta, &events)
    }

    fn sources(&self) -> Sources {
        Sources { jit: self.names.path().to_owned(), ..Sources::default() }
    }
}

fn count<V: View>(mut counter: Counter<V>, sources: &Sources, bytes: &[u8]) -> V::Table {
    counter.maps().set_sources(sources.clone());
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    counter.count(&mut Recording::from_stream(stream).unwrap(), |_, _| ()).unwrap()
}

fn compared(sides: [(&Sources, &[u8]); 2], by: Option<By>) -> Comparison {
    let [mut before, mut after] =
        sides.map(|(sources, bytes)| count(compare::looker(), sources, bytes));
    let rows = compare::rows(&mut before, &mut after, by);
    let (a, _) = count(compare::counter(&mut before, &rows, 0), sides[0].0, sides[0].1);
    let (b, _) = count(compare::counter(&mut after, &rows, 1), sides[1].0, sides[1].1);
    let mut comparison = Comparison::of(rows, &a, &b);
    let [mut a, mut b] =
        sides.map(|(sources, bytes)| count(loops::counter(), sources, bytes).unwrap());
    comparison.add_loops(&mut a, &mut b, by);
    comparison.test(0.01);
    comparison
}

/// The significant results: function and measure.
fn found(comparison: &Comparison) -> Vec<(String, Measure)> {
    let of = |row: &Row| {
        let function = row.side().and_then(|side| side.function.clone()).unwrap_or_default();
        let significant = row.changes.iter().filter(|change| change.significant);
        significant.map(|change| (function.clone(), change.measure)).collect::<Vec<_>>()
    };
    comparison.rows.iter().flat_map(of).collect()
}

/// In how many samples a planted change is found, and in how many anything else is.
fn try_samples(planted: Planted, seeds: std::ops::Range<u64>) -> (usize, usize) {
    let (old, new) = (Build::new(0x100), Build::new(0x140));
    let measure = match planted {
        Planted::Nothing | Planted::Share => Measure::Share,
        Planted::Mispredict => Measure::Mispredict,
        Planted::Cycles => Measure::Cycles,
    };
    let wanted = (format!("function_{PLANTED}"), measure);
    let (mut right, mut wrong) = (0, 0);
    for seed in seeds {
        let (a, b) = (old.run(seed * 2, Planted::Nothing), new.run(seed * 2 + 1, planted));
        let found = found(&compared([(&old.sources(), &a), (&new.sources(), &b)], None));
        right += usize::from(found.contains(&wanted));
        let others: Vec<_> = found.iter().filter(|(of, _)| *of != wanted.0).collect();
        wrong += usize::from(!others.is_empty());
        if !others.is_empty() {
            println!("{planted:?}, seed {seed}: {others:?}");
        }
    }
    (right, wrong)
}

#[test]
fn one_change_among_a_thousand_functions_is_found_and_nothing_else() {
    assert_eq!(try_samples(Planted::Mispredict, 0..1), (1, 0));
}

/// All tests together are wrong in at most 1 % of the samples: more than 6 of 200 has a probability
/// below 0.5 %.
#[test]
#[ignore = "takes minutes"]
fn two_hundred_samples() {
    for planted in [Planted::Mispredict, Planted::Cycles, Planted::Share, Planted::Nothing] {
        let (mut right, mut wrong) = (0, 0);
        for seed in 0..200 {
            let (found, others) = try_samples(planted, seed..seed + 1);
            (right, wrong) = (right + found, wrong + others);
            println!("{planted:?}: found in {right} of {}, anything else in {wrong}", seed + 1);
        }
        assert_eq!(right, if planted == Planted::Nothing { 0 } else { 200 });
        assert!(wrong <= 6, "{planted:?}: {wrong}");
    }
}

/// Functions match although all addresses moved; a recording has no difference from itself.
#[test]
fn a_recording_does_not_differ_from_itself() {
    let old = Build::new(0x100);
    let bytes = old.run(7, Planted::Nothing);
    let sources = old.sources();
    for by in [None, Some(By::Offset)] {
        let comparison = compared([(&sources, &bytes), (&sources, &bytes)], by);
        assert!(comparison.tests > 500);
        assert!(comparison.rows.iter().all(Row::is_matched));
        for change in comparison.rows.iter().flat_map(|row| &row.changes) {
            assert_eq!(change.before, change.after);
            assert!(change.p.is_none_or(|p| p > 0.99), "{change:?}");
        }
    }
}

/// Of each row, in order: the function, its share on each side, and whether the change was tested.
fn shares(comparison: &Comparison) -> Vec<(String, Option<f64>, Option<f64>, bool)> {
    let share = |row: &Row| {
        let share = row.change(Measure::Share)?;
        Some((row.side()?.function.clone()?, share.before, share.after, share.p.is_some()))
    };
    let mut shares: Vec<_> = comparison.rows.iter().filter_map(share).collect();
    shares.sort_by(|a, b| a.partial_cmp(b).unwrap());
    shares
}

/// By hand: two stacks of a build whose function `gone` became `new`; the third function moved but
/// is the same. Functions on only one side are tested, and have no value on the other. Fewer than
/// ten stacks of a side are not tested.
#[test]
fn what_one_side_lacks_is_listed() {
    let build = |names: &str, at: u64, stacks: u64| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("perf-100.map"), names).unwrap();
        let branch = |from, to| BranchEntry { mispredicted: Some(true), ..entry(from, to) };
        let entries = vec![branch(BASE + at, BASE + 0x10), branch(BASE + 0x10, BASE + at)];
        let events: Vec<Event> = [map("//anon", BASE, 0x1000, 0)]
            .into_iter()
            .chain((0..stacks).map(|n| sample(2000 + n, entries.clone(), exact())))
            .collect();
        (dir, stream(meta(), &events))
    };
    let line = |at: u64, name: &str| format!("{:x} 20 {name}\n", BASE + at);
    let sources = |dir: &Path| Sources { jit: dir.to_owned(), ..Sources::default() };
    for (stacks, tested) in [([12, 12], true), ([12, 10], true), ([12, 9], false)] {
        let (a, before) = build(&(line(0, "stays") + &line(0x40, "goes")), 0x48, stacks[0]);
        let (b, after) = build(&(line(0, "stays") + &line(0x80, "comes")), 0x90, stacks[1]);
        let (a, b) = (sources(a.path()), sources(b.path()));
        let comparison = compared([(&a, &before), (&b, &after)], None);
        assert_eq!(
            shares(&comparison),
            [
                ("comes".to_owned(), None, Some(0.5), tested),
                ("goes".to_owned(), Some(0.5), None, tested),
                ("stays".to_owned(), Some(0.5), Some(0.5), tested),
            ]
        );
        let stays = comparison.rows.iter().find(|row| row.is_matched() && row.changes.len() == 3);
        let missed = stays.and_then(|row| row.change(Measure::Mispredict)).unwrap();
        assert_eq!((missed.before, missed.after), (Some(1.0), Some(1.0)));
        assert_eq!(missed.p.is_some(), tested);
        let cycles = stays.and_then(|row| row.change(Measure::Cycles)).unwrap();
        assert_eq!((cycles.before, cycles.after, cycles.p), (None, None, None));
    }
}

/// Files of one side match none of the other, even where functions have the same name.
#[test]
fn files_of_one_side_match_nothing() {
    let text = |places: [(&str, &str); 2]| {
        let entry =
            |(function, file)| format!("{function}+0x8({file})/{function}+0x0({file})/P/-/-/0");
        format!("{}\n", places.map(entry).join(" ")).repeat(12)
    };
    let before = text([("main", "/bin/a"), ("main", "/lib/y")]);
    let after = text([("main", "/bin/a"), ("other", "/bin/a")]);
    let sources = Sources::default();
    let sides = [(&sources, before.as_bytes()), (&sources, after.as_bytes())];
    let row = |name: &str, before, after| (name.to_owned(), before, after, true);
    let wanted = [
        row("main", Some(0.5), None),
        row("main", Some(0.5), Some(0.5)),
        row("other", None, Some(0.5)),
    ];
    assert_eq!(shares(&compared(sides, None)), wanted);
}

/// A row is tested if at least ten stacks of both sides together have it.
#[test]
fn rare_rows_are_not_tested() {
    let text = |rare: usize| {
        let branch = |function| format!(" {function}+0x8(/bin/a)/{function}+0x0(/bin/a)/P/-/-/0");
        let (usual, both) = (branch("main"), branch("main") + &branch("rare"));
        format!("{both}\n").repeat(rare) + &format!("{usual}\n").repeat(12 - rare)
    };
    let sources = Sources::default();
    for (rare, tested) in [(4, false), (5, true)] {
        let (before, after) = (text(5), text(rare));
        let sides = [(&sources, before.as_bytes()), (&sources, after.as_bytes())];
        let found = shares(&compared(sides, None));
        let found: Vec<_> = found.iter().map(|(name, .., tested)| (&**name, *tested)).collect();
        assert_eq!(found, [("main", true), ("rare", tested)]);
    }
}

/// Totals are means over a side's recordings.
#[test]
fn totals_of_several_recordings() {
    let of = |stacks: u64| {
        let stack = |n| sample(2000 + n, vec![entry(BASE, BASE + 0x10); 4], exact());
        let bytes = stream(meta(), &(0..stacks).map(stack).collect::<Vec<_>>());
        count(compare::looker(), &Sources::default(), &bytes)
    };
    let (before, after) = (of(6), of(5));
    for (recordings, means) in
        [([1, 1], (24.0, 20.0)), ([2, 1], (12.0, 20.0)), ([3, 5], (8.0, 4.0))]
    {
        let total = Total::of([&before, &after], recordings, true).unwrap();
        assert_eq!(
            (total.before, total.after, total.interval, total.p),
            (means.0, means.1, None, 0.0)
        );
    }
}

/// A complete side has no error: by hand, 25 equal periods have a relative error of 1/5, so the
/// ends are 100 / 24 · exp(±1.95996 / 5).
#[test]
fn only_sampled_totals_widen_the_interval() {
    let of = |stacks: u64, integrity: Integrity| {
        let stack = |n| sample(2000 + n, vec![entry(BASE, BASE + 0x10); 4], integrity);
        let bytes = stream(meta(), &(0..stacks).map(stack).collect::<Vec<_>>());
        count(compare::looker(), &Sources::default(), &bytes)
    };
    let (before, after) = (of(6, exact()), of(25, Integrity::UNKNOWN));
    let total = Total::of([&before, &after], [1, 1], true).unwrap();
    assert_eq!((total.before, total.after), (24.0, 100.0));
    let [low, high] = total.interval.unwrap();
    assert!((low - 2.8155).abs() < 1e-4 && (high - 6.1664).abs() < 1e-4, "{low} {high}");
}

/// What a recording of every call has: each is counted, so that the total has no error.
#[test]
fn totals_of_filtered_recordings() {
    let of = |stacks: u64| {
        let stack = |n| sample(2000 + n, vec![entry(BASE, BASE + 0x10); 4], exact());
        let meta = Meta { filter: "any_call,u".parse().unwrap(), ..meta() };
        let bytes = stream(meta, &(0..stacks).map(stack).collect::<Vec<_>>());
        count(compare::looker(), &Sources::default(), &bytes)
    };
    let (before, after) = (of(6), of(5));
    for (sides, totals, p) in
        [([&before, &after], (24.0, 20.0), 0.0), ([&before, &before], (24.0, 24.0), 1.0)]
    {
        let total = Total::of(sides, [1, 1], true).unwrap();
        assert_eq!((total.unit, total.before, total.after), (Unit::Events, totals.0, totals.1));
        assert_eq!((total.interval, total.p), (None, p));
    }
}

/// The first side's losses or lack of periods come first, several events last.
#[test]
fn totals_that_cannot_be_compared() {
    let looked = |bytes: &[u8]| count(compare::looker(), &Sources::default(), bytes);
    let line = |period: &str| {
        format!("prog 100 1.000000: {period} cycles: 401000 0x401000/0x401010/P/-/-/1 \n")
    };
    let stack = sample(2000, vec![entry(BASE, BASE + 0x10)], Integrity::UNKNOWN);
    let lost = Lost { time: 2001, pid: 100, tid: 101, cpu: 1, stacks: 1, label: None };
    let lossy = looked(&stream(meta(), &[stack, Event::Lost(lost)]));
    let (timed, plain) = (looked(line("7").as_bytes()), looked(line("").as_bytes()));
    for (sides, one_event, reason) in [
        ([&timed, &lossy], false, Some(NotComparable::Lost)),
        ([&lossy, &plain], true, Some(NotComparable::Lost)),
        ([&plain, &timed], false, Some(NotComparable::NoPeriod)),
        ([&timed, &plain], true, Some(NotComparable::NoPeriod)),
        ([&timed, &timed], false, Some(NotComparable::Events)),
        ([&timed, &timed], true, None),
    ] {
        assert_eq!(Total::of(sides, [1, 1], one_event).err(), reason);
    }
}
