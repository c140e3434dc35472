//! Comparison of two builds: it finds the planted changes and no others.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use lbr_msr::record::{BranchEntry, BranchType, Event, Head, Integrity, Lost};
use profile::compare::{self, By, Change, Comparison, Measure, NotComparable, Row, Total, Unit};
use profile::note::Source;
use profile::perf_data::Meta;
use profile::symbols::Sources;
use profile::{Counter, Recording, View, loops};

use crate::compiled;
use crate::recorded::{BASE, entry, exact, here, jit, map, meta, sample, stream};
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
    sources: Sources,
    _names: tempfile::TempDir,
}

impl Build {
    fn new(stride: u64) -> Build {
        let line =
            |at: usize| format!("{:x} {stride:x} function_{at}\n", BASE + at as u64 * stride);
        let list: String = (0..FUNCTIONS).map(line).collect();
        let (names, sources) = jit(&list);
        Build { stride, sources, _names: names }
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
        let found = found(&compared([(&old.sources, &a), (&new.sources, &b)], None));
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
    let sides = [(&old.sources, &*bytes); 2];
    for by in [None, Some(By::Offset)] {
        let comparison = compared(sides, by);
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
        let named = jit(names);
        let branch = |from, to| BranchEntry { mispredicted: Some(true), ..entry(from, to) };
        let entries = vec![branch(BASE + at, BASE + 0x10), branch(BASE + 0x10, BASE + at)];
        let events: Vec<Event> = [map("//anon", BASE, 0x1000, 0)]
            .into_iter()
            .chain((0..stacks).map(|n| sample(2000 + n, entries.clone(), exact())))
            .collect();
        (named, stream(meta(), &events))
    };
    let line = |at: u64, name: &str| format!("{:x} 20 {name}\n", BASE + at);
    for (stacks, tested) in [([12, 12], true), ([12, 10], true), ([12, 9], false)] {
        let ((_a, a), before) = build(&(line(0, "stays") + &line(0x40, "goes")), 0x48, stacks[0]);
        let ((_b, b), after) = build(&(line(0, "stays") + &line(0x80, "comes")), 0x90, stacks[1]);
        let comparison = compared([(&a, &before), (&b, &after)], None);
        assert_eq!(
            shares(&comparison),
            [
                ("comes".to_owned(), None, Some(0.5), tested),
                ("goes".to_owned(), Some(0.5), None, tested),
                ("stays".to_owned(), Some(0.5), Some(0.5), tested),
            ]
        );
        assert_eq!(branch_rows(&comparison).filter(|row| row.is_matched()).count(), 1);
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

/// Stacks of one line each, as `perf script` prints them: (function, offset, file) for the source
/// and the target of each branch, newest first.
type Named<'a> = (&'a str, u64, &'a str);
fn printed(stacks: &[Vec<[Named<'_>; 2]>]) -> String {
    let end = |(function, offset, file): Named<'_>| format!("{function}+{offset:#x}({file})");
    let entry = |[from, to]: &[Named<'_>; 2]| format!("{}/{}/P/-/-/0", end(*from), end(*to));
    let line = |stack: &Vec<_>| stack.iter().map(entry).collect::<Vec<_>>().join(" ") + "\n";
    stacks.iter().map(line).collect()
}

/// The rows other than loops.
fn branch_rows(comparison: &Comparison) -> impl Iterator<Item = &Row> {
    comparison.rows.iter().filter(|row| row.change(Measure::Trips).is_none())
}

/// By hand: without `gone`, which made half of all branches, the others' shares double. Those of
/// `less` and `four` grew less, but none but `gone` changed itself, whichever side is the baseline.
/// Most are in five stacks of a side, which is just enough to compare them with others.
#[test]
fn shares_that_grow_because_another_shrank_are_no_change() {
    let stacks = |gone: usize, four: usize, rest: [usize; 4]| {
        let of =
            |(function, times)| vec![[(function, 8, "/bin/a"), (function, 0, "/bin/a")]; times];
        let stack = |rest: &[(&'static str, usize)]| {
            [("gone", gone)].iter().chain(rest).copied().flat_map(of).collect::<Vec<_>>()
        };
        let rest: Vec<_> = ["one", "less", "two", "three"].into_iter().zip(rest).collect();
        printed(&[vec![stack(&rest); 5], vec![stack(&[("four", four)]); 7]].concat())
    };
    let (before, after) = (stacks(10, 10, [2, 4, 2, 2]), stacks(2, 18, [4, 6, 4, 4]));
    let sources = Sources::default();
    let mut sides = [(&sources, before.as_bytes()), (&sources, after.as_bytes())];
    let found = compared(sides, None);
    let rows: Vec<_> = branch_rows(&found)
        .map(|row| {
            let share = row.change(Measure::Share).unwrap();
            let function = row.side().unwrap().function.clone().unwrap();
            (function, share.relative().unwrap(), share.p == Some(1.0), share.significant)
        })
        .collect();
    let row = |function: &str, relative: f64, is_alike: bool| {
        (function.to_owned(), relative, is_alike, !is_alike)
    };
    // The significant one is first, then by share, then in the order of the recording.
    assert_eq!(rows[0], row("gone", 0.1 / 0.5 - 1.0, false));
    let (four, less) = (126.0 / 240.0 / (70.0 / 240.0) - 1.0, 30.0 / 240.0 / (20.0 / 240.0) - 1.0);
    assert_eq!(rows[1..3], [row("four", four, true), row("less", less, true)]);
    assert_eq!(rows[3..], ["three", "two", "one"].map(|name| row(name, 1.0, true)));
    assert_eq!(found.rows.iter().filter(|row| row.is_significant()).count(), 1);
    let worse = |found: &Comparison| {
        let worse = |row: &&Row| row.changes.iter().any(Change::is_worse);
        let rows = found.rows.iter().filter(worse);
        rows.filter_map(|row| row.side()?.function.clone()).collect::<Vec<_>>()
    };
    assert!(worse(&found).is_empty());
    sides.reverse();
    assert_eq!(worse(&compared(sides, None)), ["gone"]);
}

/// By hand: 12 stacks whose cycles are all at the split of 5 against 12 with all above it, each
/// stack worth one draw. With half a draw moved, twice the logarithm of the ratio is 24.957, and the
/// tail of Student's distribution with 22 degrees of freedom beyond its root 5.32e-5. A stack has
/// one block with cycles, or nine alike.
#[test]
fn slower_blocks_are_a_change_of_cycles() {
    let stacks = |cycles, branches| {
        let branch = format!(" main+0x8(/bin/a)/main+0x0(/bin/a)/P/-/-/{cycles}");
        format!("{}\n", branch.repeat(branches)).repeat(12)
    };
    let sources = Sources::default();
    for (before, after) in [((5, 10), (50, 10)), ((5, 2), (50, 2)), ((50, 10), (5, 10))] {
        let [before, after] = [before, after].map(|(cycles, branches)| stacks(cycles, branches));
        let sides = [(&sources, before.as_bytes()), (&sources, after.as_bytes())];
        let comparison = compared(sides, None);
        assert_eq!(found(&comparison), [("main".to_owned(), Measure::Cycles)]);
        let p = comparison.rows[0].change(Measure::Cycles).unwrap().p.unwrap();
        assert!((5.2e-5..5.5e-5).contains(&p), "{p}");
    }
}

/// A stack that counts twice; its oldest cycles, and the prediction of one branch, are unknown.
#[test]
fn a_side_counts_known_predictions_and_cycles() {
    let stack = b"2\n 0x30/0x10/M/-/-/5 0x30/0x10/P/-/-/7 0x30/0x10/-/-/-/9 0x30/0x10/P/-/-/0\n";
    let looked = count(compare::looker(), &Sources::default(), stack);
    assert_eq!((looked.taken, looked.known, looked.missed, looked.timed), (8, 6, 2, 6));
}

/// Of each loop, in order of its rounds: its function, and rounds and mean trips of each side.
type Trips = (String, Option<(u64, f64)>, Option<(u64, f64)>, Option<f64>);

/// By hand: each stack goes round one loop of a function and leaves it. Loops of a function match
/// in the order of their addresses, but only if both sides have the same number of them.
#[test]
fn loops_of_a_function_match_in_order() {
    let stacks = |shift: u64, loops: &[(&str, u64, usize)]| {
        let file = "/bin/a";
        let of = |(function, at, rounds): &(_, u64, usize)| {
            let back = [(*function, at + shift + 8, file), (*function, at + shift, file)];
            let leave = [(*function, at + shift + 12, file), ("main", 0, file)];
            let stack = [vec![leave], vec![back; *rounds]].concat();
            vec![stack; 12]
        };
        printed(&loops.iter().flat_map(of).collect::<Vec<_>>())
    };
    let before = stacks(0, &[("f", 0x50, 2), ("f", 0x10, 3), ("g", 0x10, 4), ("g", 0x50, 4)]);
    let after = stacks(4, &[("f", 0x10, 4), ("f", 0x50, 5), ("g", 0x10, 4)]);
    let sources = Sources::default();
    let found = compared([(&sources, before.as_bytes()), (&sources, after.as_bytes())], None);
    let loops = found.rows.iter().filter_map(|row| Some((row, row.change(Measure::Trips)?)));
    let mut loops: Vec<Trips> = loops
        .map(|(row, trips)| {
            let function = row.side().unwrap().function.clone().unwrap();
            let round = |trips: f64| (trips * 1e9).round() / 1e9;
            let before = row.before.as_ref().map(|of| (of.count, round(trips.before.unwrap())));
            let after = row.after.as_ref().map(|of| (of.count, round(trips.after.unwrap())));
            assert_eq!(row.by, By::Function);
            (function, before, after, trips.relative().map(round))
        })
        .collect();
    loops.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let row =
        |function: &str, before, after, relative| (function.to_owned(), before, after, relative);
    let wanted = [
        row("f", Some((24, 2.0)), Some((60, 5.0)), Some(1.5)),
        row("f", Some((36, 3.0)), Some((48, 4.0)), Some(0.333_333_333)),
        row("g", None, Some((48, 4.0)), None),
        row("g", Some((48, 4.0)), None, None),
        row("g", Some((48, 4.0)), None, None),
    ];
    assert_eq!(loops, wanted);
}

/// In each stack, a loop in `f`, one from `g` back into `f`, and one in code without a symbol. The
/// extent of the last two depends on the sample, so that their trips are not tested.
#[test]
fn trips_are_tested_within_one_function() {
    let (_names, sources) = jit(&format!("{BASE:x} 40 f\n{:x} 40 g\n", BASE + 0x40));
    let recorded = |rounds: usize| {
        let branch = |from, to| entry(BASE + from, BASE + to);
        let newest_first = [
            vec![branch(0x20C, 0x300)],
            vec![branch(0x208, 0x200); rounds],
            vec![branch(0x4C, 0x200)],
            vec![branch(0x48, 0x10); rounds],
            vec![branch(0xC, 0x10)],
            vec![branch(8, 0); rounds],
        ];
        let stack = |n: u64| sample(2000 + n, newest_first.concat(), Integrity::UNKNOWN);
        let events = [map("//anon", BASE, 0x1000, 0)].into_iter().chain((0..12).map(stack));
        stream(meta(), &events.collect::<Vec<_>>())
    };
    let (before, after) = (recorded(3), recorded(6));
    let found = compared([(&sources, &before), (&sources, &after)], Some(By::Offset));
    let trips = |row: &Row| {
        let trips = row.change(Measure::Trips)?;
        assert!(trips.before.is_some() && trips.after.is_some());
        Some((row.side()?.addr - BASE, trips.p.is_some()))
    };
    let mut tested: Vec<_> = found.rows.iter().filter_map(trips).collect();
    tested.sort_unstable();
    assert_eq!(tested, [(0, true), (0x10, false), (0x200, false)]);
}

/// Twelve stacks of these branches, in files that do not exist, mapped at these addresses.
fn mapped(files: &[(&str, u64)], branches: &[(u64, u64)]) -> Vec<u8> {
    let maps = files.iter().map(|(path, addr)| map(path, *addr, 0x1000, 0));
    let entries: Vec<_> = branches.iter().map(|(from, to)| entry(*from, *to)).collect();
    let stacks = (0..12).map(|n| sample(2000 + n, entries.clone(), exact()));
    stream(meta(), &maps.chain(stacks).collect::<Vec<_>>())
}

/// The file of a row on one side, and its count there.
type Counted = Option<(String, u64)>;

/// Of each branch row, in order: how it was matched, and its file and count on each side.
fn files(comparison: &Comparison) -> Vec<(By, [Counted; 2])> {
    let side = |side: &Option<compare::Side>| {
        side.as_ref().map(|of| (of.file.clone().unwrap_or_default(), of.count))
    };
    let rows = branch_rows(comparison).map(|row| (row.by, [side(&row.before), side(&row.after)]));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|a, b| a.1.cmp(&b.1));
    rows
}

/// Without symbols on one of the sides, a file is one row, as other builds have other offsets.
/// Of files with one name, those with most locations are a pair.
#[test]
fn files_without_symbols_match_as_a_whole() {
    let row = |before: Option<(&str, u64)>, after: Option<(&str, u64)>| {
        [before, after].map(|side| side.map(|(file, count)| (file.to_owned(), count)))
    };
    let compare = |before: &[u8], after: &[u8], by| {
        let sources = Sources::default();
        files(&compared([(&sources, before), (&sources, after)], by))
    };
    let at = BASE;
    let branches = [(at + 0x10, at + 0x20), (at + 0x28, at + 0x10)];
    let moved = [(at + 0x14, at + 0x20), (at + 0x2C, at + 0x10)];
    let one = mapped(&[("/nowhere/p-1.0", at)], &branches);
    let two = mapped(&[("/nowhere/p-1.1", at)], &moved);
    let whole = row(Some(("/nowhere/p-1.0", 24)), Some(("/nowhere/p-1.1", 24)));
    assert_eq!(compare(&one, &two, None), [(By::Function, whole)]);
    let [mut before, mut after] =
        [&one, &two].map(|bytes| count(compare::looker(), &Sources::default(), bytes));
    let paths = ["/nowhere/p-1.0", "/nowhere/p-1.1"].map(str::to_owned);
    assert_eq!(compare::rows(&mut before, &mut after, None).files, [paths]);
    // Files of the same name may be one build.
    let found = compare(&one, &mapped(&[("/elsewhere/p-1.0", at)], &moved), None);
    assert!(found.iter().all(|(by, _)| *by == By::Offset) && found.len() == 4, "{found:?}");

    let main = |offset, file| [("main", offset, file), ("main", 0, file)];
    let named = printed(&vec![vec![main(8, "/nowhere/p-1.0")]; 12]);
    let whole = row(Some(("/nowhere/p-1.0", 12)), Some(("/nowhere/p-1.1", 24)));
    assert_eq!(compare(named.as_bytes(), &two, None), [(By::Function, whole)]);

    let before = printed(&vec![vec![main(8, "/x/p"), main(8, "/y/p"), main(12, "/y/p")]; 12]);
    let after = printed(&vec![vec![main(8, "/z/p")]; 12]);
    let wanted = [row(Some(("/x/p", 12)), None), row(Some(("/y/p", 24)), Some(("/z/p", 12)))];
    let found = compare(before.as_bytes(), after.as_bytes(), Some(By::Function));
    assert_eq!(found, wanted.map(|row| (By::Function, row)));

    // Equal offsets of other files.
    let [low, high] = [at + 0x1000, at + 0x2000];
    let before = mapped(&[("/bin/a", at), ("/lib/x", low)], &[(at, low), (low + 8, at)]);
    let files = [("/bin/a", at), ("/lib/y", low), ("/lib/z", high)];
    let after = mapped(&files, &[(at, low), (low + 8, high), (high + 8, at)]);
    let wanted = [
        row(None, Some(("/lib/y", 12))),
        row(None, Some(("/lib/z", 12))),
        row(Some(("/bin/a", 12)), Some(("/bin/a", 12))),
        row(Some(("/lib/x", 12)), None),
    ];
    assert_eq!(compare(&before, &after, Some(By::Offset)), wanted.map(|row| (By::Offset, row)));
}

/// A build of `one.c` with static functions, one of which is in `two.c` too. Marks are the
/// branches of its recording.
fn build(dir: &Path, [one, two]: [&str; 2], small: &str, line: &str) -> Option<PathBuf> {
    let common = "#define APART __attribute__((noinline, noclone))\n\
                  #define MARK(name) __asm__ volatile(\".globl \" #name \"\\n\" #name \": nop\")\n\
                  void other(void);\n";
    let main = format!(
        "{common}{line}\
         APART void kept(void) {{\nMARK(kept_1);\nMARK(kept_2);\n}}\n\
         APART void edited(void) {{\nMARK(edited_1);\n{line}MARK(edited_2);\n}}\n\
         APART void parted(void) {{\nMARK(parted_1);\n}}\n\
         void parted_cold(void) __asm__(\"parted.cold\");\n\
         APART void parted_cold(void) {{\nMARK(parted_2);\n}}\n\
         static APART void same(void) {{\nMARK(same_1);\n}}\n\
         static {small} void small(void) {{\nMARK(small_1);\n}}\n\
         int main(void) {{\nkept(); edited(); parted(); parted_cold(); same(); small(); other();\n\
         return 0;\n}}\n"
    );
    let rest = format!(
        "{common}static APART void same(void) {{\nMARK(same_2);\n}}\n\
         void other(void) {{\nsame();\nMARK(other_1);\n}}\n"
    );
    let [one, two] = [(one, main), (two, rest)].map(|(name, code)| {
        let path = dir.join(name);
        std::fs::write(&path, code).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let program = dir.join("program");
    let flags = ["-g", "-O1", "-no-pie", "-Wl,--build-id=sha1", "-o", program.to_str().unwrap()];
    compiled::run("cc", &[&flags[..], &[&one, &two]].concat())?;
    Some(program)
}

/// A program's branches from these marks, each to itself.
fn marked(program: &Path, marks: &[&str]) -> Vec<u8> {
    let mapped = compiled::mapped(100, program, 0, profile::symbols::build_id(program));
    let at = marks.iter().rev().map(|mark| compiled::symbol(program, mark));
    let entries: Vec<_> = at.map(|at| entry(at, at)).collect();
    stream(here(), &[mapped, sample(2000, entries, exact())])
}

/// Of each branch row, in order: its function, how it was matched, and its count on each side.
fn functions(comparison: &Comparison) -> Vec<(String, By, [u64; 2])> {
    let count = |side: &Option<compare::Side>| side.as_ref().map_or(0, |of| of.count);
    let rows = branch_rows(comparison).map(|row| {
        let side = row.side().unwrap();
        assert_eq!(side.line.is_some(), row.by == By::Line);
        let function = side.function.clone().unwrap();
        (function, row.by, [count(&row.before), count(&row.after)])
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|(function, _, counts)| (function.clone(), *counts));
    rows
}

/// By hand, from the sources. A build whose source files were renamed has a line before all
/// functions and one in `edited`, and inlines `small`.
#[test]
fn functions_with_equal_lines_match_by_line() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let path = |at: usize| dirs[at].path();
    let inlined = "inline __attribute__((always_inline))";
    let Some(old) = build(path(0), ["one.c", "two.c"], "APART", "") else { return };
    let new = build(path(1), ["late.c", "early.c"], inlined, "extern int sink;\n").unwrap();
    let marks = [
        "kept_1", "kept_2", "edited_1", "edited_2", "parted_1", "parted_2", "same_1", "same_2",
        "small_1", "other_1",
    ];
    let sources = Sources::default();
    let compare = |before: &[u8], after: &[u8]| {
        functions(&compared([(&sources, before), (&sources, after)], None))
    };
    let (before, after) = (marked(&old, &marks), marked(&new, &marks));
    let row = |function: &str, by, counts| (function.to_owned(), by, counts);
    let wanted = [
        row("edited", By::Function, [2, 2]),
        row("kept", By::Line, [1, 1]),
        row("kept", By::Line, [1, 1]),
        row("other", By::Line, [1, 1]),
        row("parted", By::Function, [2, 2]),
        row("same", By::Line, [1, 1]),
        row("same", By::Line, [1, 1]),
        row("small", By::Function, [1, 1]),
    ];
    assert_eq!(compare(&before, &after), wanted);
    // One build: by offset, so that nothing is joined.
    let same = compare(&before, &before);
    assert!(same.iter().all(|(_, by, counts)| *by == By::Offset && *counts == [1, 1]), "{same:?}");
    assert_eq!(same.len(), marks.len());
    // Without lines on one side, inlined code counts for the function around it.
    let bare = path(2).join("program");
    std::fs::copy(&old, &bare).unwrap();
    compiled::run("strip", &["-g", bare.to_str().unwrap()]);
    let wanted = [
        row("kept", By::Function, [2, 2]),
        row("main", By::Function, [0, 1]),
        row("small", By::Function, [1, 0]),
    ];
    let marks = ["kept_1", "kept_2", "small_1"];
    assert_eq!(compare(&marked(&bare, &marks), &marked(&new, &marks)), wanted);
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
/// ends are 1.25 · exp(±1.95996 / 5), and the logarithm of 1.25 is 1.11572 errors.
#[test]
fn only_sampled_totals_widen_the_interval() {
    let of = |stacks: u64, integrity: Integrity| {
        let stack = |n| sample(2000 + n, vec![entry(BASE, BASE + 0x10); 4], integrity);
        let bytes = stream(meta(), &(0..stacks).map(stack).collect::<Vec<_>>());
        count(compare::looker(), &Sources::default(), &bytes)
    };
    let (before, after) = (of(20, exact()), of(25, Integrity::UNKNOWN));
    let total = Total::of([&before, &after], [1, 1], true).unwrap();
    assert_eq!((total.before, total.after, total.relative()), (80.0, 100.0, 0.25));
    let [low, high] = total.interval.unwrap();
    assert!((low - 0.8446).abs() < 1e-4 && (high - 1.8499).abs() < 1e-4, "{low} {high}");
    assert!((total.p - 0.26454).abs() < 1e-5, "{}", total.p);
}

/// A recording of every call counts each, so that its total has no error.
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
    let (mixed, once) = (line("7") + &line(""), looked(line("1").as_bytes()));
    let mixed = looked(mixed.as_bytes());
    for (sides, one_event, reason) in [
        ([&timed, &lossy], false, Some(NotComparable::Lost)),
        ([&lossy, &plain], true, Some(NotComparable::Lost)),
        ([&plain, &timed], false, Some(NotComparable::NoPeriod)),
        ([&timed, &plain], true, Some(NotComparable::NoPeriod)),
        ([&timed, &mixed], true, Some(NotComparable::NoPeriod)),
        ([&timed, &timed], false, Some(NotComparable::Events)),
        ([&timed, &timed], true, None),
        ([&once, &timed], true, None),
    ] {
        assert_eq!(Total::of(sides, [1, 1], one_event).err(), reason);
    }
}
