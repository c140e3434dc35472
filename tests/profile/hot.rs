//! Counting.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};

use lbr_msr::record::{BranchEntry, BranchType, Event, Label, Lost, Task};
use profile::hot::{HotBranch, Order};
use profile::maps::Location;
use profile::{HotTable, Recording};
use proptest::prelude::*;

use crate::recorded::{BASE, entry, exact, map, meta, sample, stream};

fn count(events: &[Event]) -> HotTable {
    let bytes = stream(meta(), events);
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes))).unwrap();
    HotTable::count(&mut recording, |_, _| {}).unwrap()
}

fn text(text: &str) -> HotTable {
    let stream = Box::new(Cursor::new(text.as_bytes().to_vec()));
    let mut recording = Recording::from_stream(stream).unwrap();
    HotTable::count(&mut recording, |_, _| {}).unwrap()
}

#[test]
fn progress_grows_to_the_size_of_the_file() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let events: Vec<Event> =
        (1..20_000).map(|n| sample(n, vec![entry(0x10, 0x20)], exact())).collect();
    file.write_all(&stream(meta(), &events)).unwrap();
    let size = file.as_file().metadata().unwrap().len();
    let mut recording = Recording::open(file.path()).unwrap();
    let mut positions = Vec::new();
    HotTable::count(&mut recording, |position, of| {
        assert_eq!(of, Some(size));
        positions.push(position);
    })
    .unwrap();
    assert!(positions.len() >= 4 && positions.is_sorted(), "{positions:?}");
    assert!(positions.iter().all(|position| (1..=size).contains(position)), "{positions:?}");
}

#[test]
fn absent_is_not_zero() {
    let bare = entry(0x10, 0x20);
    let timed = BranchEntry { cycles: Some(4), ..entry(0x30, 0x40) };
    let missed = BranchEntry { mispredicted: Some(true), ..entry(0x30, 0x40) };
    let hit = BranchEntry { mispredicted: Some(false), cycles: Some(8), ..entry(0x30, 0x40) };
    let table = count(&[sample(1, vec![bare, timed, missed, hit], exact())]);
    let [hot, cold] = &*table.branches else { panic!() };
    assert_eq!((hot.from, hot.count, hot.known, hot.mispredicted), (0x30, 3, 2, Some(1)));
    assert_eq!((hot.cycles, hot.mispredict_rate()), (Some(6.0), Some(0.5)));
    assert_eq!((cold.from, cold.count, cold.known, cold.mispredicted), (0x10, 1, 0, None));
    assert_eq!((cold.cycles, cold.mispredict_rate()), (None, None));
    assert_eq!((table.total, table.known, table.mispredicted), (4, 2, Some(1)));
    assert_eq!(table.share(hot), 0.75);
    let one = count(&[sample(1, vec![entry(0x10, 0x20)], exact())]);
    assert_eq!(one.share(&one.branches[0]), 1.0);
}

#[test]
fn quality_counts_what_is_missing() {
    let mut gap = exact();
    gap.label = Label::Gap;
    let lost = |stacks, label| Event::Lost(Lost { time: 9, pid: 1, tid: 1, cpu: 0, stacks, label });
    let table = count(&[
        sample(1, vec![entry(1, 2)], exact()),
        sample(2, vec![entry(1, 2)], gap),
        sample(3, vec![], exact()),
        lost(5, Some(Label::Torn)),
        lost(6, Some(Label::Torn)),
        lost(1, None),
    ]);
    let quality = &table.quality;
    assert_eq!((quality.samples, quality.empty_stacks, quality.entries), (3, 1, 2));
    assert_eq!((quality.exact, quality.software), (2, 3));
    assert_eq!(quality.labels.get(&Label::Gap), Some(&1));
    assert_eq!(quality.lost.get(&Some(Label::Torn)), Some(&11));
    assert_eq!((quality.lost.get(&None), quality.lost_total()), (Some(&1), 12));
    // Without a sample, nothing is missing, but nothing is known either.
    assert!(!count(&[]).quality.is_complete());
}

/// A hash map of the standard library counts the same.
#[test]
fn agrees_with_a_plain_map() {
    let mut expected = std::collections::HashMap::new();
    let mut state = 1u64;
    let mut lines = String::new();
    for _ in 0..3000 {
        for _ in 0..32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Linux maps no program lower.
            let (from, to) = (0x40_0000 + (state >> 49 | 1), 0x40_0000 + (state >> 33 & 1));
            *expected.entry((from, to)).or_insert(0) += 1;
            lines += &format!(" {from:#x}/{to:#x}/P/-/-/0 ");
        }
        lines.push('\n');
    }
    // More than the table begins with.
    assert!(expected.len() > 20_000);
    let table = text(&lines);
    let found: std::collections::HashMap<_, _> =
        table.branches.iter().map(|b| ((b.from, b.to), b.count)).collect();
    assert_eq!(found, expected);
    assert!(table.branches.is_sorted_by(|a, b| a.count >= b.count));
}

#[test]
fn aggregated_text_is_weighted() {
    let table =
        text("3\n 0x10/0x20/P/-/-/0 0x0/0x0/P/-/-/0\n0\n 0x30/0x40\n0x10/0x20 0x5/0x6/PN/-/-/1\n");
    let [hot] = &*table.branches else { panic!("{:?}", table.branches) };
    assert_eq!((hot.from, hot.count, hot.known), (0x10, 4, 3));
    assert_eq!((table.quality.samples, table.quality.zero_entries), (4, 3));
    assert_eq!(table.quality.not_taken, 1);
}

/// Reference counts of a branch, computed slowly: entries, predictions
/// known and missed, cycles and how many had them, the first type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Plain {
    count: u64,
    known: u64,
    missed: u64,
    cycles: u64,
    timed: u64,
    lowest_type: Option<BranchType>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// Few branches many times, as the small sums in the table must pass them
    /// on to large ones; stacks that stand for one and for several; entries
    /// that say nothing.
    #[test]
    fn sums_equal_those_of_a_plain_map(
        lines in proptest::collection::vec(
            (
                prop_oneof![3 => Just(1u64), 1 => 2u64..100_000],
                1usize..400,
                proptest::collection::vec(
                    (0u64..5, "[MP-]", prop_oneof![Just(0u32), 1u32..50, Just(65_535)], "(COND|RET|)"),
                    1..4,
                ),
            ),
            1..8,
        ),
    ) {
        let mut expected: BTreeMap<u64, Plain> = BTreeMap::new();
        let (mut written, mut empty) = (String::new(), 0);
        for (weight, times, entries) in lines {
            if weight > 1 {
                written += &format!("{weight}\n");
            }
            for _ in 0..times {
                for (branch, prediction, cycles, name) in &entries {
                    // Short ways back: twice the same is a loop, no duplicate.
                    let (from, to) = (branch * 16, branch * 8);
                    written += &format!(" {from:#x}/{to:#x}/{prediction}/-/-/{cycles}/{name}/- ");
                    if *branch == 0 {
                        empty += weight;
                        continue;
                    }
                    let plain = expected.entry(from).or_default();
                    plain.count += weight;
                    plain.known += if prediction == "-" { 0 } else { weight };
                    plain.missed += if prediction == "M" { weight } else { 0 };
                    plain.cycles += u64::from(*cycles) * weight;
                    plain.timed += if *cycles > 0 { weight } else { 0 };
                    let entry = format!("0x1/0x2/P/-/-/0/{name}/-");
                    let entry = profile::brstack::parse_entry(entry.as_bytes());
                    let named = entry.expect("an entry").0.flags.branch_type();
                    // Whatever order threads come in: the lowest of several.
                    let types = plain.lowest_type.into_iter().chain(named);
                    plain.lowest_type = types.min_by_key(|branch_type| branch_type.0);
                }
            }
            written.push('\n');
        }
        let table = text(&written);
        prop_assert_eq!(table.quality.zero_entries, empty);
        prop_assert_eq!(table.branches.len(), expected.len());
        prop_assert_eq!(table.total, expected.values().map(|plain| plain.count).sum::<u64>());
        let key = |b: &HotBranch| (std::cmp::Reverse(b.count), b.from, b.to);
        prop_assert!(table.branches.is_sorted_by_key(key));
        for branch in &table.branches {
            let plain = expected[&branch.from];
            prop_assert_eq!((branch.to, branch.count), (branch.from / 2, plain.count));
            prop_assert_eq!(branch.known, plain.known);
            prop_assert_eq!(branch.mispredicted, (plain.known > 0).then_some(plain.missed));
            let mean = (plain.timed > 0).then(|| plain.cycles as f64 / plain.timed as f64);
            prop_assert_eq!(branch.cycles, mean);
            prop_assert_eq!(branch.branch_type, plain.lowest_type);
        }
    }
}

pub(crate) fn in_process(mut event: Event, pid: u32) -> Event {
    match &mut event {
        Event::Sample(sample) => sample.pid = pid,
        Event::Mmap(map) => map.pid = pid,
        _ => {}
    }
    event
}

/// One program at two places is one branch; two programs at one place are two.
#[test]
fn processes_are_distinguished_by_file() {
    let a = |pid, base| in_process(map("/bin/a", base, 0x1000, 0), pid);
    let run = |pid, from| in_process(sample(1, vec![entry(from, from + 8)], exact()), pid);
    let table = count(&[a(1, 0x10000), a(2, 0x50000), run(1, 0x10010), run(2, 0x50010)]);
    assert_eq!(table.branches.len(), 1);
    assert_eq!(table.branches[0].count, 2);
    assert_eq!(table.branches[0].from_location, Location::File { file: 0, offset: 0x10 });

    let b = in_process(map("/bin/b", 0x10000, 0x1000, 0), 2);
    let table = count(&[a(1, 0x10000), b, run(1, 0x10010), run(2, 0x10010)]);
    assert_eq!(table.branches.len(), 2);

    // No mapping: whether it is the same is unknown.
    let table = count(&[run(1, 0x10010), run(2, 0x10010)]);
    assert_eq!(table.branches.len(), 2);
}

/// Code that ran before a file was replaced keeps its file, also in a child.
#[test]
fn replaced_mappings_keep_their_past() {
    let run_at = |pid, from| in_process(sample(1, vec![entry(from, 0x10020)], exact()), pid);
    let run = |pid| run_at(pid, 0x10010);
    let fork = Event::Fork(Task { time: 1, pid: 200, tid: 200, ppid: 100, ptid: 100 });
    let table = count(&[
        map("/bin/a", 0x10000, 0x1000, 0),
        run(100),
        fork,
        run(200),
        map("/bin/b", 0x10000, 0x800, 0x3000),
        run(100),
        run(200),
        // After the new mapping.
        run_at(100, 0x10900),
    ]);
    let mut found: Vec<_> = table
        .branches
        .iter()
        .map(|b| {
            let Location::File { file, offset } = b.from_location else { panic!() };
            (table.maps.path(file).unwrap(), offset, b.count)
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [("/bin/a", 0x10, 3), ("/bin/a", 0x900, 1), ("/bin/b", 0x3010, 1)]);
}

#[test]
fn orders() {
    let branch = |from, missed: bool, cycles| BranchEntry {
        mispredicted: Some(missed),
        cycles: Some(cycles),
        ..entry(from, 0x1)
    };
    let mut table = count(&[sample(
        1,
        vec![
            branch(0x30, false, 1),
            branch(0x30, false, 1),
            branch(0x30, true, 1),
            branch(0x20, true, 5),
            branch(0x10, false, 9),
            // Unknown comes after zero.
            entry(0x8, 0x1),
        ],
        exact(),
    )]);
    let mut sorted = |order| {
        table.sort(order);
        table.branches.iter().map(|b| b.from).collect::<Vec<_>>()
    };
    assert_eq!(sorted(Order::Count), [0x30, 0x8, 0x10, 0x20]);
    assert_eq!(sorted(Order::Mispredicts), [0x20, 0x30, 0x10, 0x8]);
    assert_eq!(sorted(Order::Rate), [0x20, 0x30, 0x10, 0x8]);
    assert_eq!(sorted(Order::Cycles), [0x10, 0x20, 0x30, 0x8]);
    assert_eq!(sorted(Order::Address), [0x8, 0x10, 0x20, 0x30]);
}

/// Branches from one address are in the order of their targets, whichever ran first.
#[test]
fn the_order_of_targets() {
    for stack in [" 0x10/0x30 0x10/0x20 0x10/0x28\n", " 0x10/0x20 0x10/0x28 0x10/0x30\n"] {
        let mut table = text(stack);
        let ranked: Vec<u64> = table.branches.iter().map(|branch| branch.to).collect();
        table.branches.reverse();
        table.sort(Order::Count);
        let sorted: Vec<u64> = table.branches.iter().map(|branch| branch.to).collect();
        assert_eq!((ranked, sorted), (vec![0x20, 0x28, 0x30], vec![0x20, 0x28, 0x30]));
    }
}

/// A recording without types gets them from the code of the file: a `ret`
/// somewhere in this very program.
#[test]
fn types_come_from_the_code() {
    use object::{Object, ObjectSection};
    let exe = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&exe).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let text = elf.section_by_name(".text").unwrap();
    let at = text.data().unwrap().iter().position(|&b| b == 0xC3).unwrap();
    let (start, _) = text.file_range().unwrap();
    let base = 0x7000_0000_0000;
    let ret = base + start + at as u64;
    let mut table = count(&[
        map(exe.to_str().unwrap(), base, bytes.len() as u64, 0),
        sample(1, vec![entry(ret, 0x10)], exact()),
    ]);
    let branch = table.branches[0].clone();
    assert_eq!(branch.branch_type, None);
    assert_eq!(branch.type_in(&mut table.maps), Some(BranchType::RET));
}

/// Two recordings: processes of the same number are not the same process,
/// files of the same path are the same file unless their build ids differ.
#[test]
fn recordings_are_counted_together_and_kept_apart() {
    let file = |build_id: &[u8]| -> Vec<Event> {
        let mut map = map("/nonexistent/prog", BASE, 0x1000, 0);
        if let Event::Mmap(map) = &mut map {
            map.build_id = Some(build_id.to_vec());
        }
        let private = vec![entry(0x10, 0x20)];
        let known = vec![entry(BASE + 0x10, BASE + 0x20)];
        vec![map, sample(10, private, exact()), sample(11, known, exact())]
    };
    let count = |recordings: [&[u8]; 2]| {
        let mut counter = profile::hot::Counter::default();
        for id in recordings {
            let bytes = stream(meta(), &file(id));
            let stream = Box::new(std::io::Cursor::new(bytes));
            let mut recording = profile::Recording::from_stream(stream).unwrap();
            counter.recording(&mut recording, |_, _| {}).unwrap();
        }
        let mut counts: Vec<(u64, u64)> =
            counter.finish().branches.iter().map(|b| (b.from, b.count)).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(count([&[1; 20], &[1; 20]]), [(0x10, 1), (0x10, 1), (BASE + 0x10, 2)]);
    let apart = [(0x10, 1), (0x10, 1), (BASE + 0x10, 1), (BASE + 0x10, 1)];
    assert_eq!(count([&[1; 20], &[2; 20]]), apart);
}

/// Two conditional branches, one of them mispredicted once in three times; a call
/// with an unknown prediction; and one without a type.
#[test]
fn branches_by_type() {
    let line = "0x30/0x40/P/-/-/0/COND 0x10/0x20/M/-/-/0/COND 0x10/0x20/P/-/-/0/COND \
                0x50/0x60/-/-/-/0/CALL 0x70/0x80/P/-/-/0/-";
    let mut table = text(&format!("{line}\n"));
    let types = profile::types::by_type(&table.branches, &mut table.maps);
    let rows: Vec<_> = types
        .iter()
        .map(|of| (of.branch_type, of.distinct, of.count, of.known, of.mispredicted))
        .collect();
    assert_eq!(
        rows,
        [
            (Some(BranchType::COND), 2, 3, 3, Some(1)),
            (None, 1, 1, 1, Some(0)),
            (Some(BranchType::CALL), 1, 1, 0, None),
        ]
    );
}
