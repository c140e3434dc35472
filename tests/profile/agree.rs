//! Every view of a recording has the same totals: samples, branches, distinct branches, and omitted
//! data.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::{Path, PathBuf};

use lbr_msr::record::{BranchEntry, Event};
use profile::flow::{Flow, FlowCounter};
use profile::hot::HotTable;
use profile::lint::{DEFAULT_STRIDE, Lint};
use profile::note::Source;
use profile::overview::OverviewCounter;
use profile::perf_data::Meta;
use profile::quality::Quality;
use profile::symbols::Sources;
use profile::{Item, Recording};
use proptest::prelude::*;

use crate::recorded::{entry, exact, meta, sample, stream};
use crate::support::corpus::corpus;
use crate::support::mapping::mapping;

/// The totals of a view.
type Says = (Quality, u64, u64);

/// Reads ahead in one thread and in several: the results have the same values in the same order.
fn same_in_threads(open: impl Fn() -> Recording) {
    let count = |threads: usize| {
        let mut recording = open();
        recording.read_ahead(threads);
        let hot = HotTable::count(&mut recording, |_, _| {}).unwrap();
        let refused = format!("{:?} {:?}", recording.notes(), recording.refused());
        (hot.branches, hot.total, hot.known, hot.mispredicted, hot.quality, refused)
    };
    let one = count(1);
    for threads in [2, 3, 7] {
        assert_eq!(count(threads), one, "{threads} threads");
    }
}

/// Runs every view on a recording, which is opened again for each. Returns the number of distinct
/// branches that all of them count.
pub(crate) fn agree(open: impl Fn() -> Recording) -> u64 {
    same_in_threads(&open);
    let hot = HotTable::count(&mut open(), |_, _| {}).unwrap();
    let distinct = hot.branches.len() as u64;
    let hot: Says = (hot.quality, hot.total, distinct);
    let of_flow = |flow: Flow| (flow.quality, flow.taken, flow.distinct);
    let flow = FlowCounter::default().count(&mut open(), |_, _| {}).unwrap();
    let apart = (flow.block_quality, flow.is_complete());
    assert_eq!(of_flow(flow), hot, "the flow");
    let lint = Lint::check(&mut open(), DEFAULT_STRIDE, Sources::default(), |_, _| {}).unwrap();
    assert_eq!(of_flow(lint.flow), hot, "lint");
    let loops = profile::loops::counter().count(&mut open(), |_, _| {}).unwrap().unwrap();
    assert_eq!((loops.filtered, loops.complete), (apart.0.filtered, apart.1), "loops");
    assert_eq!(loops.broken, apart.0.unjoined(), "loops");
    assert_eq!((loops.quality, loops.taken, loops.distinct), hot, "loops");
    let paths = profile::paths::counter().count(&mut open(), |_, _| {}).unwrap().unwrap();
    assert_eq!((paths.filtered, paths.complete), (apart.0.filtered, apart.1), "paths");
    assert_eq!((paths.quality, paths.taken, paths.distinct), hot, "paths");
    let graph = profile::callgraph::counter(false).count(&mut open(), |_, _| {}).unwrap();
    assert_eq!((graph.quality, graph.entries, graph.distinct), hot, "the call graph");
    for times in [1, 2] {
        let mut page = OverviewCounter::new(times > 1);
        (0..times).for_each(|_| page.recording(&mut open(), |_, _| {}).unwrap());
        let page = page.finish();
        assert_eq!(page.judged.len() as u64, times);
        assert_eq!(page.flow.taken, hot.1 * times, "the page");
        let sum = page.branches.iter().map(|branch| branch.count).sum::<u64>();
        assert_eq!((sum, page.branches.len() as u64), (page.flow.taken, page.flow.distinct));
        if times == 1 {
            assert_eq!(of_flow(page.flow), hot, "the page");
        }
    }
    distinct
}

/// Recordings of the corpus with branches, and texts.
fn recordings(corpus: &Path) -> Vec<PathBuf> {
    let folders = [
        "perf-data-converter/perfdata",
        "autofdo/perfdata",
        "llvm-profgen/perfscript",
        "perf-text",
    ];
    let files = folders.iter().filter_map(|folder| std::fs::read_dir(corpus.join(folder)).ok());
    let mut files: Vec<PathBuf> = files.flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_recording_of_the_corpus_is_counted_alike() {
    let Some(corpus) = corpus() else { return };
    let mut agreed = 0;
    for file in recordings(&corpus) {
        // Some have no branches, some are not recordings.
        let Ok(mut recording) = Recording::open(&file) else { continue };
        if HotTable::count(&mut recording, |_, _| {}).is_ok_and(|table| table.total > 0) {
            eprintln!("{}", file.display());
            agree(|| Recording::open(&file).unwrap());
            agreed += 1;
        }
    }
    assert!(agreed >= 20, "{agreed}");
}

/// An independent count: mappings are replayed here, with a set of (file, offset) pairs.
#[test]
fn as_a_set_of_places_counts_them() {
    let Some(corpus) = corpus() else { return };
    for name in ["perf.data.callgraph_and_branch-3.4", "perf.data.branch-3.4"] {
        let file = corpus.join("perf-data-converter/perfdata").join(name);
        let distinct = agree(|| Recording::open(&file).unwrap());
        assert_eq!(by_set(&file), distinct, "{name}");
    }
}

/// A location: file and offset, or a process and an address if there is no file.
type Place = (String, u64, Option<u32>);

fn by_set(file: &Path) -> u64 {
    let mut mapped: BTreeMap<u32, Vec<(u64, u64, u64, String)>> = BTreeMap::new();
    let mut found: BTreeSet<(Place, Place)> = BTreeSet::new();
    let mut recording = Recording::open(file).unwrap();
    // All mappings first: buffers of other CPUs arrive late.
    let mut stacks: Vec<(u32, Vec<(u64, u64)>)> = Vec::new();
    while let Some(item) = recording.next_item().unwrap() {
        match item {
            // The kernel's own mapping is the same for all processes, whatever its recorded offset.
            Item::Event(Event::Mmap(map)) => {
                let pgoff = if map.path == "[vdso]" { 0 } else { map.pgoff };
                let maps = mapped.entry(map.pid).or_default();
                maps.push((map.addr, map.len, pgoff, map.path.clone()));
            }
            Item::Event(Event::Fork(task)) if task.pid != task.ppid => {
                let parent = mapped.get(&task.ppid).cloned().unwrap_or_default();
                mapped.entry(task.pid).or_insert(parent);
            }
            Item::Stack(stack) => {
                let all = stack.entries.iter().filter(|branch| !branch.is_empty());
                let pid = stack.head.pid.unwrap();
                stacks.push((pid, all.map(|branch| (branch.from, branch.to)).collect()));
            }
            _ => {}
        }
    }
    for (pid, branches) in stacks {
        let maps = mapped.get(&pid);
        let place = |addr: u64| -> Place {
            // The latest mapping at an address applies.
            let over = |(start, len, ..): &&(u64, u64, u64, String)| {
                addr.checked_sub(*start).is_some_and(|within| within < *len)
            };
            match maps.and_then(|maps| maps.iter().rev().find(over)) {
                Some((start, _, pgoff, path)) if is_file(path) => {
                    (path.clone(), addr - start + pgoff, None)
                }
                _ if addr >> 63 == 1 => (String::new(), addr, None),
                _ => (String::new(), addr, Some(pid)),
            }
        };
        found.extend(branches.iter().map(|(from, to)| (place(*from), place(*to))));
    }
    found.len() as u64
}

/// Whether a mapping with this name has the same bytes in every process.
fn is_file(path: &str) -> bool {
    path.starts_with('/') && !path.starts_with("//") || path == "[vdso]"
}

/// Unusual entries of every kind, and ordinary ones.
fn odd() -> impl Strategy<Value = BranchEntry> {
    let place = || prop_oneof![4 => 0..12u64, 1 => 0x2000..0x2004u64, 1 => (0u64..2).prop_map(|n| (1 << 63) + n)];
    (place(), place(), 0..12u8).prop_map(|(from, to, kind)| {
        let base = |place: u64| if place >> 63 == 1 { place } else { 0x40_0000 + 16 * place };
        let branch = entry(base(from), base(to));
        match kind {
            0 => entry(0, 0),
            1 => BranchEntry { abort: Some(true), ..branch },
            2 => BranchEntry { cycles: None, mispredicted: None, ..branch },
            _ => branch,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn on_made_up_ones(
        stacks in proptest::collection::vec(proptest::collection::vec(odd(), 0..8), 1..12),
        source in 0..3u8,
        twice in any::<bool>(),
    ) {
        let source = [Source::Unsaid, Source::Hardware, Source::Software][usize::from(source)];
        let mut events = vec![mapping(100, 0x40_0000, 0x1000, 0, "/nowhere/program")];
        if twice {
            // The same bytes at another address.
            events.push(mapping(100, 0x42_0000, 0x1000, 0, "/nowhere/program"));
        }
        let mut branches = 0;
        for (time, mut entries) in stacks.into_iter().enumerate() {
            // The newest entry twice.
            if time % 3 == 0 && let Some(newest) = entries.first().cloned() {
                entries.insert(0, newest);
            }
            branches += entries.iter().filter(|branch| branch.from != 0).count();
            events.push(sample(time as u64, entries, exact()));
        }
        prop_assume!(branches > 0);
        let bytes = stream(Meta { source, ..meta() }, &events);
        agree(|| Recording::from_stream(Box::new(Cursor::new(bytes.clone()))).unwrap());
    }
}
