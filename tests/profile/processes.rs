//! Recordings of many processes: equal code is counted once, and different code separately.

use std::collections::BTreeMap;
use std::io::Cursor;

use lbr_msr::record::{BranchEntry, BranchStack, BranchType, Event, Head, Integrity, Sample, Task};
use profile::Recording;
use profile::flow::FlowCounter;
use profile::hot::HotTable;
use profile::lint::{DEFAULT_STRIDE, Lint};
use profile::maps::{Location, Maps};
use profile::note::Source;
use profile::paths::Break;
use profile::perf_data::Meta;
use profile::symbols::Sources;
use proptest::prelude::*;

use crate::agree::agree;
use crate::recorded::{entry, exact, meta, stream};
use crate::support::mapping::mapping;

const KERNEL: u64 = 0xFFFF_FFFF_8100_0000;

fn open(bytes: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

/// A recorder that does not record how stacks join.
fn others() -> Meta {
    Meta { source: Source::Unsaid, ..meta() }
}

/// A stack of such a recorder.
fn stack(pid: u32, entries: Vec<BranchEntry>) -> Event {
    Event::Sample(Sample {
        arguments: None,
        time: 1,
        pid,
        tid: pid,
        cpu: 0,
        ip: 0,
        period: 1,
        stack: BranchStack {
            entries,
            integrity: Integrity { head: Head::Unknown, ..exact() },
            moves: Vec::new(),
        },
    })
}

fn task(pid: u32, ppid: u32) -> Task {
    Task { time: 1, pid, tid: pid, ppid, ptid: ppid }
}

/// Rounds of a loop that calls into a library, with both at these addresses.
fn rounds(program: u64, library: u64) -> Vec<BranchEntry> {
    let round = [
        entry(program + 0x40, program + 0x10),
        entry(library + 0x88, program + 0x30),
        entry(program + 0x20, library + 0x80),
    ];
    round.repeat(4)
}

/// A thousand processes, each with the program and the library at other addresses.
fn thousand() -> Vec<u8> {
    let mut events = Vec::new();
    for n in 0..1000u64 {
        let pid = 1000 + n as u32;
        // Sometimes at an address where another process has other code.
        let program = 0x5500_0000_0000 + (n * 7 % 40) * 0x1000;
        let library = 0x5500_0000_0000 + (50 + n * 11 % 500) * 0x1000;
        events.push(Event::Fork(task(pid, 1)));
        events.push(mapping(pid, program, 0x1000, 0, "/nowhere/program"));
        events.push(mapping(pid, library, 0x1000, 0x3000, "/nowhere/library"));
        events.push(stack(pid, rounds(program, library)));
        events.push(Event::Exit(task(pid, 1)));
    }
    stream(others(), &events)
}

/// A return to up to twenty addresses, in three processes with the code at different addresses: as
/// many targets as are searched linearly, and more.
#[test]
fn return_targets_are_merged_across_processes() {
    [8, 9, 20].into_iter().for_each(merge_return_targets);
}

fn merge_return_targets(number: u64) {
    let mut events = Vec::new();
    for pid in 1..=3u32 {
        let program = 0x5500_0000_0000 + u64::from(pid) * 0x10_0000;
        events.push(mapping(pid, program, 0x1000, 0, "/nowhere/program"));
        for target in 0..number {
            let taken = entry(program + 0x800, program + 0x10 * target);
            // Target n has a count of n + 1.
            (0..=target).for_each(|_| events.push(stack(pid, vec![taken])));
        }
    }
    // Our recorder's processes are counted separately and merged at the end.
    let flow =
        FlowCounter::default().count(&mut open(&stream(meta(), &events)), |_, _| {}).unwrap();
    let [site] = &flow.sites[..] else { panic!("{} branches", flow.sites.len()) };
    assert_eq!((site.taken, flow.distinct), (3 * number * (number + 1) / 2, number));
    let targets: Vec<(u64, u64)> =
        site.targets.iter().map(|target| (target.to, target.count)).collect();
    let first = 0x5500_0010_0000;
    let expected: Vec<(u64, u64)> =
        (0..number).rev().map(|target| (first + 0x10 * target, 3 * (target + 1))).collect();
    assert_eq!(targets, expected);
}

/// A branch goes to another target of its file in a second process, which has the file at another
/// address: after an exec, say.
#[test]
fn a_target_is_an_address_in_the_process_of_its_branch() {
    let mut events = Vec::new();
    for (pid, target) in [(1, 0x10), (2, 0x20)] {
        let program = 0x5500_0000_0000 + u64::from(pid) * 0x10_0000;
        events.push(mapping(pid, program, 0x1000, 0, "/nowhere/program"));
        events.push(stack(pid, vec![entry(program + 0x800, program + target)]));
    }
    let flow =
        FlowCounter::default().count(&mut open(&stream(meta(), &events)), |_, _| {}).unwrap();
    let [site] = &flow.sites[..] else { panic!("{} branches", flow.sites.len()) };
    let targets: Vec<u64> =
        site.targets.iter().map(|target| target.to.wrapping_sub(site.from)).collect();
    assert_eq!(targets, [0x10u64.wrapping_sub(0x800), 0x20u64.wrapping_sub(0x800)]);
}

/// An address outside of files is another place in each process; code of a file is the same.
#[test]
fn a_branch_to_an_address_outside_of_files_is_of_its_process() {
    let (program, outside) = (0x5500_0000_0000, 0x7000_0000_0000);
    let mut events = Vec::new();
    for pid in 1..=2 {
        events.push(mapping(pid, program, 0x1000, 0, "/nowhere/program"));
        events.push(stack(
            pid,
            vec![entry(program + 0x40, outside), entry(program + 0x30, program + 0x10)],
        ));
    }
    let table = HotTable::count(&mut open(&stream(others(), &events)), |_, _| {}).unwrap();
    let mut rows: Vec<_> = table.branches.iter().map(|row| (row.to, row.count)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(program + 0x10, 2), (outside, 1), (outside, 1)]);
}

#[test]
fn the_same_code_of_a_thousand_processes_is_one() {
    let bytes = thousand();
    let table = HotTable::count(&mut open(&bytes), |_, _| {}).unwrap();
    assert_eq!(table.branches.iter().map(|row| row.count).collect::<Vec<_>>(), [4000; 3]);
    let flow = FlowCounter::default().count(&mut open(&bytes), |_, _| {}).unwrap();
    let mut blocks: Vec<(u64, u64)> =
        flow.blocks.iter().map(|block| (block.exit - block.entry, block.count)).collect();
    blocks.sort_unstable();
    // From 0x30 to 0x40, from 0x10 to 0x20, and the library's: the oldest entry of a stack has no
    // block before it.
    assert_eq!(blocks, [(0x8, 4000), (0x10, 3000), (0x10, 4000)]);
    let paths = profile::paths::counter().count(&mut open(&bytes), |_, _| {}).unwrap().unwrap();
    assert_eq!((paths.taken, paths.distinct), (12_000, 3));
    // Each branch is in one chain, whichever process ran it.
    let links = paths.paths.iter().flat_map(|path| &path.links);
    let mut counts: Vec<(Location, u64)> =
        links.map(|link| (link.from_location, link.count)).collect();
    counts.sort_by_key(|(location, _)| format!("{location:?}"));
    counts.dedup_by_key(|(location, _)| *location);
    assert_eq!(counts.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [4000; 3]);
    assert_eq!(paths.paths.iter().map(|path| path.links.len()).sum::<usize>(), 3);
}

/// A branch whose type only a later process's records tell is a call in all of them: a chain ends
/// with it.
#[test]
fn a_type_that_one_process_tells_holds_in_all() {
    let mut events = Vec::new();
    for (pid, typed) in [(1, None), (2, Some(BranchType::CALL))] {
        let program = 0x5500_0000_0000 + u64::from(pid) * 0x10_0000;
        events.push(mapping(pid, program, 0x1000, 0, "/nowhere/program"));
        let call = BranchEntry { branch_type: typed, ..entry(program + 0x20, program + 0x80) };
        let round = [entry(program + 0x88, program + 0x10), call];
        events.push(stack(pid, round.repeat(4)));
    }
    // Our recorder's processes are counted separately and merged at the end.
    let bytes = stream(meta(), &events);
    let paths = profile::paths::counter().count(&mut open(&bytes), |_, _| {}).unwrap().unwrap();
    let [path] = &paths.paths[..] else { panic!("{} paths", paths.paths.len()) };
    assert_eq!((paths.taken, path.links.len(), &path.ends), (16, 2, &Break::Call));
    // The first call of each process comes before the chain's first branch.
    assert_eq!(path.whole, 2 * 3);
}

/// Processes come and go; their data does not grow without bound.
#[test]
fn processes_that_ended_are_forgotten() {
    let mut maps = Maps::default();
    for pid in 1..=20_000 {
        maps.event(&Event::Fork(task(pid, 0)));
        maps.event(&mapping(pid, 0x40_0000, 0x1000, 0, "/nowhere/program"));
        maps.event(&Event::Exit(task(pid, 0)));
    }
    assert!(maps.len() < 5_000, "{}", maps.len());
}

/// A process's number is used again after its end; the fork tells its mappings.
#[test]
fn a_reused_pid_is_another_process() {
    let events = [
        mapping(10, 0x40_0000, 0x1000, 0, "/nowhere/parent"),
        mapping(20, 0x40_0000, 0x1000, 0, "/nowhere/old"),
        stack(20, vec![entry(0x40_0100, 0x40_0200)]),
        Event::Exit(task(20, 10)),
        Event::Fork(task(20, 10)),
        stack(20, vec![entry(0x40_0100, 0x40_0200)]),
        // Reported late, by another CPU: already known.
        mapping(30, 0x40_0000, 0x1000, 0, "/nowhere/other"),
        Event::Fork(task(30, 10)),
        stack(30, vec![entry(0x40_0100, 0x40_0200)]),
        // The end of a thread is not that of its process.
        mapping(40, 0x40_0000, 0x1000, 0, "/nowhere/threads"),
        Event::Exit(Task { tid: 41, ..task(40, 10) }),
        Event::Fork(task(40, 10)),
        stack(40, vec![entry(0x40_0100, 0x40_0200)]),
    ];
    let table = HotTable::count(&mut open(&stream(others(), &events)), |_, _| {}).unwrap();
    let mut files: Vec<&str> =
        table.branches.iter().map(|row| path_of(&table.maps, row.from_location)).collect();
    files.sort_unstable();
    let threads = "/nowhere/threads";
    assert_eq!(files, ["/nowhere/old", "/nowhere/other", "/nowhere/parent", threads]);
}

/// Different addresses are not a duplicated record, although they have one meaning: the other
/// process has them moved to common ones.
#[test]
fn a_file_mapped_twice_has_no_duplicates() {
    let at = |place: u64, offset: u64| address(Where::Place(place, offset));
    let events = |newest: &[BranchEntry]| {
        let pair = [entry(at(2, 0), at(2, 32)), entry(at(2, 0), at(0, 32))];
        let events = [
            mapping(100, at(2, 0), SIZE, 0, "/a"),
            mapping(100, at(0, 0), SIZE, 0, "/a"),
            stack(101, vec![entry(at(0, 0), at(0, 0))]),
            stack(100, [newest, &pair].concat()),
        ];
        stream(others(), &events)
    };
    let table = HotTable::count(&mut open(&events(&[])), |_, _| {}).unwrap();
    let counts: Vec<u64> = table.branches.iter().map(|row| row.count).collect();
    assert_eq!((counts, table.quality.duplicated_newest), (vec![2, 1], 0));
    let mut recording = open(&events(&[entry(at(2, 16), at(2, 48))]));
    let lint = Lint::check(&mut recording, DEFAULT_STRIDE, Sources::default(), |_, _| {}).unwrap();
    assert!(lint.findings.iter().all(|found| found.id != "repeated_last_pair"), "{lint:?}");
}

fn path_of(maps: &Maps, location: Location) -> &str {
    match location {
        Location::File { file, .. } => maps.path(file).unwrap(),
        Location::Address(_) => panic!("{location:?} is in no file"),
    }
}

/// The meaning of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meaning {
    Byte(String, u64),
    Kernel(u64),
    /// The mapping at the address in this process.
    Own(u64),
}

/// A branch, and its process if an end has a meaning only there.
type Branch = (Meaning, Meaning, Option<usize>);

/// An event on the simulated machine.
#[derive(Clone, Debug)]
enum Happens {
    /// A process maps a part of a file, both by number, at one of a few addresses.
    Maps { process: usize, place: u64, part: usize },
    /// A process runs branches, each between two addresses.
    Runs { process: usize, branches: Vec<(Where, Where)> },
    /// A process ends, and its number is used again for a child of another one.
    Ends { process: usize, parent: usize },
}

/// An address, before its meaning is known.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// At an address with possible mappings.
    Place(u64, u64),
    Kernel(u64),
    /// At an address that is never mapped.
    Nowhere(u64),
}

const PROCESSES: usize = 6;
const PLACES: u64 = 5;
const SIZE: u64 = 0x1000;
/// File and offset.
const PARTS: [(&str, u64); 5] =
    [("/a", 0), ("/a", 0x2000), ("/b", 0), ("/c", 0x1000), ("[vdso]", 0)];

fn address(place: Where) -> u64 {
    match place {
        Where::Place(place, offset) => 0x40_0000 + place * SIZE + offset,
        Where::Kernel(offset) => KERNEL + offset,
        Where::Nowhere(offset) => 0x10_0000 + offset,
    }
}

fn happens() -> impl Strategy<Value = Happens> {
    let place = prop_oneof![
        8 => (0..PLACES, 0..4u64).prop_map(|(place, byte)| Where::Place(place, 16 * byte)),
        1 => (0..2u64).prop_map(Where::Kernel),
        1 => (0..2u64).prop_map(Where::Nowhere),
    ];
    let branches = proptest::collection::vec((place.clone(), place), 1..5);
    prop_oneof![
        4 => (0..PROCESSES, 0..PLACES, 0..PARTS.len())
            .prop_map(|(process, place, part)| Happens::Maps { process, place, part }),
        6 => (0..PROCESSES, branches)
            .prop_map(|(process, branches)| Happens::Runs { process, branches }),
        1 => (0..PROCESSES, 0..PROCESSES)
            .prop_map(|(process, parent)| Happens::Ends { process, parent }),
    ]
}

/// A process of the model: the mapping at each of its addresses.
#[derive(Clone, Debug, Default)]
struct Process {
    places: BTreeMap<u64, usize>,
    /// Addresses executed before a mapping: a later mapping applies to them too, because records
    /// are not strictly ordered. The model does not map there.
    taken: Vec<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Every branch counts with its meaning at the time it ran, whatever other processes had
    /// mapped.
    #[test]
    fn every_branch_counts_by_its_type(all in proptest::collection::vec(happens(), 1..60)) {
        let mut processes = vec![Process::default(); PROCESSES];
        let pid = |process: usize| 100 + process as u32;
        let mut events = Vec::new();
        let mut expected: BTreeMap<Branch, u64> = BTreeMap::new();
        for one in all {
            match one {
                Happens::Maps { process, place, part } => {
                    let known = &mut processes[process];
                    let (path, pgoff) = PARTS[part];
                    // Nothing replaces a vDSO except in a process of another kind.
                    let fixed = |old: &usize| PARTS[*old].0 == "[vdso]";
                    if known.taken.contains(&place) || known.places.get(&place).is_some_and(fixed) {
                        continue;
                    }
                    known.places.insert(place, part);
                    let addr = address(Where::Place(place, 0));
                    events.push(mapping(pid(process), addr, SIZE, pgoff, path));
                }
                Happens::Runs { process, branches } => {
                    let known = &mut processes[process];
                    let mut entries = Vec::new();
                    let mut before = None;
                    for (from, to) in branches {
                        // Repeating the newest entry would look like a duplicate.
                        let ends = (address(from), address(to));
                        if before.replace(ends) == Some(ends) {
                            continue;
                        }
                        let mut meaning = |place: Where| match place {
                            Where::Kernel(_) => Meaning::Kernel(address(place)),
                            Where::Nowhere(_) => Meaning::Own(address(place)),
                            Where::Place(at, offset) => match known.places.get(&at) {
                                Some(part) => {
                                    let (path, pgoff) = PARTS[*part];
                                    // Whatever the recorder writes as its offset.
                                    let pgoff = if path == "[vdso]" { 0 } else { pgoff };
                                    Meaning::Byte(path.to_owned(), pgoff + offset)
                                }
                                None => {
                                    known.taken.push(at);
                                    Meaning::Own(address(place))
                                }
                            },
                        };
                        let ends = (meaning(from), meaning(to));
                        let own = |end: &Meaning| matches!(end, Meaning::Own(_));
                        let owner = (own(&ends.0) || own(&ends.1)).then_some(process);
                        *expected.entry((ends.0, ends.1, owner)).or_default() += 1;
                        entries.push(entry(address(from), address(to)));
                    }
                    // Newest first.
                    entries.reverse();
                    events.push(stack(pid(process), entries));
                }
                Happens::Ends { process, parent } if process != parent => {
                    let places = processes[parent].places.clone();
                    let known = &mut processes[process];
                    *known = Process { places, taken: known.taken.clone() };
                    events.push(Event::Exit(task(pid(process), pid(parent))));
                    events.push(Event::Fork(task(pid(process), pid(parent))));
                }
                Happens::Ends { .. } => {}
            }
        }
        let bytes = stream(others(), &events);
        let table = match HotTable::count(&mut open(&bytes), |_, _| {}) {
            Ok(table) => table,
            // Nothing ran.
            Err(_) => return Ok(()),
        };
        let meaning = |maps: &Maps, location: Location| match location {
            Location::File { file, offset } => {
                Meaning::Byte(maps.path(file).unwrap().to_owned(), offset)
            }
            Location::Address(addr) if addr >= KERNEL => Meaning::Kernel(addr),
            Location::Address(addr) => Meaning::Own(addr),
        };
        let mut found: Vec<(Meaning, Meaning, u64)> = Vec::new();
        for row in &table.branches {
            let (from, to) = (row.from_location, row.to_location);
            found.push((meaning(&table.maps, from), meaning(&table.maps, to), row.count));
        }
        let mut wanted: Vec<(Meaning, Meaning, u64)> =
            expected.into_iter().map(|((from, to, _), count)| (from, to, count)).collect();
        found.sort();
        wanted.sort();
        prop_assert_eq!(&found, &wanted);
        prop_assert_eq!(agree(|| open(&bytes)), wanted.len() as u64);
    }
}
