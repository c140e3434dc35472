//! Which samples count, by selections over recordings whose samples are all set here.

use std::io::Cursor;
use std::sync::Arc;

use lbr_msr::record::{Comm, Event, Head, Integrity, Label, Lost, Task};
use profile::flow::FlowCounter;
use profile::lint::{DEFAULT_STRIDE, Lint};
use profile::maps::{Location, LocationFilter, Maps};
use profile::perf_data::Meta;
use profile::select::{Field, Names, SelectError, Times, Why};
use profile::symbols::Sources;
use profile::{HotTable, Item, Recording, Selection};

use crate::reader::{Crafted, copied};
use crate::recorded::{each_stack, entry, exact, jit, map, meta, sample, stream, write};
use crate::support::mapping::mapping;

fn open(bytes: &[u8]) -> Recording {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
}

fn selected(mut recording: Recording, selection: Selection) -> Recording {
    recording.select(&Arc::new(selection)).unwrap();
    recording
}

/// FROM of the newest entry of each sample that counts, as identification.
fn chosen(recording: &mut Recording) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(item) = recording.next_item().unwrap() {
        if let Item::Stack(stack) = item {
            found.push(stack.entries.get(0).unwrap().from);
        }
    }
    found
}

/// The omitted samples for one field and reason.
type Left = ((Field, Why), u64);

/// The samples that a selection keeps, and those that it omits by field and reason.
fn counts(bytes: &[u8], selection: Selection) -> (Vec<u64>, Vec<Left>) {
    let mut recording = selected(open(bytes), selection);
    let found = chosen(&mut recording);
    let left = recording.left_out();
    assert_eq!(left.samples, left.by.values().sum::<u64>());
    (found, left.by.into_iter().collect())
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn event(names: &[&str]) -> Selection {
    Selection { events: strings(names), ..Selection::default() }
}

fn comm(names: &[&str]) -> Selection {
    Selection { comms: strings(names), ..Selection::default() }
}

const BRANCH_STACK: u64 = 0x800;
/// IDENTIFIER, IP, TID, TIME, CPU.
const FULL: u64 = 0x10000 | 1 | 2 | 4 | 0x80 | BRANCH_STACK;
/// IDENTIFIER, IP.
const SHORT: u64 = 0x10000 | 1 | BRANCH_STACK;

/// EVENT_DESC with names by id.
fn describe(file: &mut Crafted, names: &[(&str, u64)]) {
    let mut body = 12u64.to_le_bytes().to_vec();
    body.extend((names.len() as u32).to_le_bytes());
    body.extend(128u32.to_le_bytes());
    for (name, id) in names {
        body.resize(body.len() + 128, 0);
        body.extend(1u32.to_le_bytes());
        let len = (name.len() + 1).next_multiple_of(64);
        body.extend((len as u32).to_le_bytes());
        let end = body.len() + len;
        body.extend(name.as_bytes());
        body.resize(end, 0);
        body.extend(id.to_le_bytes());
    }
    file.record(80, 0, &body);
}

/// A sample with every field; one branch, from `from`.
fn full(file: &mut Crafted, id: u64, (pid, tid): (u64, u64), time: u64, cpu: u64, from: u64) {
    file.sample(&[id, 0xa0, pid | tid << 32, time, cpu, 1, from, from + 8, 2]);
}

/// Two events with every field, and one without task, time and CPU; a fourth has no branches.
fn several() -> Vec<u8> {
    let mut file = Crafted::new(false);
    file.attr_of(128, (0, 0, 0), FULL, 0, 8, &[11]);
    file.attr_of(128, (0, 5, 0), FULL, 0, 8, &[12]);
    file.attr_of(128, (4, 0xc4, 0), SHORT, 0, 8, &[13]);
    file.attr_of(128, (0, 1, 0), 0x10001, 0, 0, &[14]);
    let names = [("cpu_core/cycles/u", 11), ("branch-misses:u", 12), ("r1c4", 13), ("idle", 14)];
    describe(&mut file, &names);
    full(&mut file, 11, (7, 7), 1000, 0, 0x10);
    full(&mut file, 12, (7, 8), 2000, 1, 0x20);
    full(&mut file, 11, (9, 9), 3000, 1, 0x30);
    full(&mut file, 12, (7, 7), 4000, 2, 0x40);
    file.sample(&[13, 0xa0, 1, 0x50, 0x58, 2]);
    full(&mut file, 11, (7, 8), 5000, 0, 0x60);
    file.sample(&[14, 0xa0]);
    file.bytes
}

/// As the head of a report shows them.
#[test]
fn selections_in_words() {
    let whole = Selection::default();
    assert_eq!(
        (whole.is_empty(), whole.needs_names(), whole.to_string().as_str()),
        (true, false, "")
    );
    let numbers = Selection {
        pids: vec![12, u32::MAX],
        tids: vec![13],
        cpus: vec![0, 2],
        times: vec![
            Times::Between { from: Some(1_500_000_000), to: Some(2_000_000_001) },
            Times::Between { from: Some(7), to: None },
            Times::Between { from: None, to: Some(3_000_000_000) },
        ],
        ..Selection::default()
    };
    let words = "pid 12 or -1, tid 13, cpu 0 or 2, time 1.500000000 to 2.000000001 or \
                 from 0.000000007 on or up to 3.000000000";
    assert_eq!(numbers.to_string(), words);
    assert!(!numbers.is_empty() && !numbers.needs_names());
    let share =
        Selection { times: vec![Times::Share { from: 0.0, to: 0.5 }], ..Selection::default() };
    let named = Selection { comms: strings(&["a", "b"]), ..event(&["cycles:u"]) };
    assert_eq!(share.to_string(), "time 0 to 50%");
    assert_eq!(named.to_string(), "event cycles:u, comm a or b");
    for needs in [share, event(&["cycles"]), comm(&["a"])] {
        assert!(needs.needs_names(), "{needs}");
    }
}

/// Without a selection everything counts, with its event.
#[test]
fn events_are_counted() {
    let mut recording = open(&several());
    assert_eq!(chosen(&mut recording), [0x10, 0x20, 0x30, 0x40, 0x50, 0x60]);
    let events: Vec<(String, bool, u64)> =
        recording.samples_by_event().into_iter().map(|e| (e.name, e.named, e.samples)).collect();
    let expected = [("cpu_core/cycles/u", 3), ("branch-misses:u", 2), ("r1c4", 1)];
    assert_eq!(events, expected.map(|(name, samples)| (name.to_owned(), true, samples)));
    assert_eq!(recording.left_out().samples, 0);
    assert_eq!(recording.names(), Names::default());
    // By number, so with the events without branches.
    let names = ["cpu_core/cycles/u", "branch-misses:u", "r1c4", "idle"];
    assert_eq!(recording.event_names(), names);
}

#[test]
fn events_by_name() {
    let file = several();
    let other = |n| vec![((Field::Event, Why::Other), n)];
    for name in ["branch-misses:u", "branch-misses"] {
        assert_eq!(counts(&file, event(&[name])), (vec![0x20, 0x40], other(4)), "{name}");
    }
    for name in ["cpu_core/cycles/u", "cpu_core/cycles/"] {
        assert_eq!(counts(&file, event(&[name])), (vec![0x10, 0x30, 0x60], other(3)), "{name}");
    }
    assert_eq!(counts(&file, event(&["r1c4", "branch-misses"])).0, [0x20, 0x40, 0x50]);
    // One that does not exist, and one without branches.
    let mut recording = selected(open(&file), event(&["cycles", "r1c4", "idle"]));
    assert_eq!(chosen(&mut recording), [0x50]);
    let names = recording.names();
    assert_eq!(names.known_events, [false, true, true]);
    assert_eq!(names.events, ["cpu_core/cycles/u", "branch-misses:u", "r1c4"]);
}

/// perf derives names from attributes if the file has none; those of these attributes by `perf
/// evlist` 6.1.
#[test]
fn events_without_names() {
    let flags = |bits: &[u32]| bits.iter().fold(0u64, |word, bit| word | 1 << bit);
    let attributes = [
        (0, 0, flags(&[5, 6]), "cycles:u"),
        (0, 5, flags(&[4, 6]), "branch-misses:k"),
        (0, 4, flags(&[16]), "branches:pp"),
        (1, 0, flags(&[20]), "cpu-clock"),
        (4, 0x1c2, flags(&[5, 6, 15]), "raw 0x1c2:up"),
        (9, 1, 0, "unknown attr type: 9"),
        (0, 1, 0, "instructions:HG"),
        (0, 2, flags(&[19]), "cache-references:G"),
        (0, 3, flags(&[15, 20]), "cache-misses:pH"),
        (0, 6, flags(&[5, 19]), "bus-cycles:uhG"),
        (1, 9, flags(&[4, 5, 6]), "dummy"),
        (0, 11, 0, "unknown-hardware:HG"),
        (0, 7, flags(&[5, 20]), "stalled-cycles-frontend:uhH"),
        (0, 8, flags(&[15, 16]), "stalled-cycles-backend:ppp"),
        (0, 9, 0, "ref-cycles:HG"),
        (1, 1, 0, "task-clock:HG"),
        (1, 2, 0, "page-faults:HG"),
        (1, 3, 0, "context-switches:HG"),
        (1, 4, 0, "cpu-migrations:HG"),
        (1, 5, 0, "minor-faults:HG"),
        (1, 6, 0, "major-faults:HG"),
        (1, 7, 0, "alignment-faults:HG"),
        (1, 8, 0, "emulation-faults:HG"),
        (1, 10, 0, "unknown-software:HG"),
        (2, 5, 0, "unknown tracepoint"),
        (0, 9, flags(&[6]), "ref-cycles:ku"),
    ];
    let mut file = Crafted::new(false);
    for (at, (kind, config, flags, _)) in attributes.iter().enumerate() {
        file.attr_of(128, (*kind, *config, *flags), SHORT, 0, 8, &[at as u64 + 1]);
    }
    for at in 0..attributes.len() as u64 {
        file.sample(&[at + 1, 0xa0, 1, at + 1, at + 9, 2]);
    }
    let mut recording = open(&file.bytes);
    chosen(&mut recording);
    let names: Vec<(String, bool)> =
        recording.samples_by_event().into_iter().map(|event| (event.name, event.named)).collect();
    assert_eq!(names, attributes.map(|(.., name)| (name.to_owned(), false)));
    assert_eq!(counts(&file.bytes, event(&["cycles"])).0, [1]);
    assert_eq!(counts(&file.bytes, event(&["branch-misses:k"])).0, [2]);
}

/// A list each of tasks, CPUs and times; samples without these fields match none.
#[test]
fn tasks_cpus_and_times() {
    let file = several();
    let none = Selection::default;
    let pids = Selection { pids: vec![7], ..none() };
    let left = vec![((Field::Pid, Why::Other), 1), ((Field::Pid, Why::Unsaid), 1)];
    assert_eq!(counts(&file, pids), (vec![0x10, 0x20, 0x40, 0x60], left));
    let tids = Selection { tids: vec![8, 9], ..none() };
    let left = vec![((Field::Tid, Why::Other), 2), ((Field::Tid, Why::Unsaid), 1)];
    assert_eq!(counts(&file, tids), (vec![0x20, 0x30, 0x60], left));
    let cpus = Selection { cpus: vec![1, 2], ..none() };
    let left = vec![((Field::Cpu, Why::Other), 2), ((Field::Cpu, Why::Unsaid), 1)];
    assert_eq!(counts(&file, cpus), (vec![0x20, 0x30, 0x40], left));
    // Both ends are included.
    let between = |from, to| Times::Between { from, to };
    let times = Selection { times: vec![between(Some(2000), Some(4000))], ..none() };
    let left = vec![((Field::Time, Why::Other), 2), ((Field::Time, Why::Unsaid), 1)];
    assert_eq!(counts(&file, times), (vec![0x20, 0x30, 0x40], left));
    let times = vec![between(None, Some(1000)), between(Some(4001), None)];
    assert_eq!(counts(&file, Selection { times, ..none() }).0, [0x10, 0x60]);
    // Each is omitted once, for the first reason.
    let all = Selection {
        events: strings(&["cpu_core/cycles/"]),
        pids: vec![7],
        cpus: vec![0],
        times: vec![between(Some(1001), None)],
        ..none()
    };
    let left = vec![
        ((Field::Event, Why::Other), 3),
        ((Field::Pid, Why::Other), 1),
        ((Field::Time, Why::Other), 1),
    ];
    assert_eq!(counts(&file, all), (vec![0x60], left));
}

/// Shares of time need the total time; our recordings have it.
#[test]
fn shares_of_the_time() {
    let share = Selection { times: Times::parse("50%/2").unwrap(), ..Selection::default() };
    let refused = open(&several()).select(&Arc::new(share.clone())).unwrap_err();
    assert!(matches!(refused, SelectError::NoTimes), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let at = |time| sample(time, vec![entry(time, 1)], Integrity::UNKNOWN);
    let named = Meta { event: "taken:u".to_owned(), ..meta() };
    write(&path, named, &[at(1000), at(1400), at(1500), at(2000)]);
    let mut recording = selected(Recording::open(&path).unwrap(), share.clone());
    assert_eq!(chosen(&mut recording), [1500, 2000]);
    // In a compressed file, the time and the event's name come after the samples.
    let packed = folder.path().join("perf.data.zst");
    std::fs::write(&packed, zstd::encode_all(&*std::fs::read(&path).unwrap(), 1).unwrap()).unwrap();
    let mut recording = selected(Recording::open(&packed).unwrap(), share);
    assert_eq!(chosen(&mut recording), [1500, 2000]);
    let mut recording = selected(Recording::open(&packed).unwrap(), event(&["taken"]));
    assert_eq!(chosen(&mut recording).len(), 4);
    assert_eq!(recording.names().known_events, [true]);
}

/// COMM as perf writes it: pid, tid, name; then pid, tid, time, CPU, id.
fn named(file: &mut Crafted, task: (u32, u32), time: u64, name: &str) {
    let mut body = Vec::new();
    body.extend([task.0.to_le_bytes(), task.1.to_le_bytes()].concat());
    let len = (name.len() + 1).next_multiple_of(8);
    body.extend(name.as_bytes());
    body.resize(8 + len, 0);
    trailer(&mut body, task, time);
    file.record(3, 0, &body);
}

fn forked(file: &mut Crafted, (pid, tid): (u32, u32), parent: (u32, u32), time: u64) {
    let mut body = Vec::new();
    for number in [pid, parent.0, tid, parent.1] {
        body.extend(number.to_le_bytes());
    }
    body.extend(time.to_le_bytes());
    trailer(&mut body, (pid, tid), time);
    file.record(7, 0, &body);
}

fn trailer(body: &mut Vec<u8>, task: (u32, u32), time: u64) {
    body.extend([task.0.to_le_bytes(), task.1.to_le_bytes()].concat());
    for word in [time, 0, 11] {
        body.extend(u64::to_le_bytes(word));
    }
}

/// Thread names arrive by CPU buffer: their time decides.
#[test]
fn threads_by_their_names_at_the_time() {
    let mut file = Crafted::new(false);
    file.attr_of(128, (0, 0, 1 << 18), FULL, 0, 8, &[11]);
    // One CPU's buffer: 8 is a new thread of 7 and then gets a name.
    full(&mut file, 11, (7, 8), 2500, 1, 0x20);
    full(&mut file, 11, (7, 8), 3500, 1, 0x30);
    full(&mut file, 11, (4, 4), 3600, 1, 0x40);
    full(&mut file, 11, (0, 0), 3700, 1, 0x50);
    // The buffers of other CPUs.
    forked(&mut file, (7, 8), (7, 7), 2000);
    named(&mut file, (7, 7), 1000, "main");
    full(&mut file, 11, (7, 7), 2600, 0, 0x10);
    named(&mut file, (7, 8), 3000, "a worker");
    named(&mut file, (7, 7), 3000, "renamed");
    full(&mut file, 11, (7, 7), 4000, 0, 0x60);
    // perf writes a running thread's fork and name with time 0.
    named(&mut file, (5, 5), 0, "parent");
    forked(&mut file, (5, 6), (5, 5), 0);
    named(&mut file, (5, 6), 0, "child");
    full(&mut file, 11, (5, 6), 100, 0, 0x70);
    // From the very time of its name on.
    named(&mut file, (5, 5), 500, "exec");
    full(&mut file, 11, (5, 5), 500, 0, 0x80);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    std::fs::write(&path, &file.bytes).unwrap();
    let of = |names: &[&str]| {
        let mut recording = selected(Recording::open(&path).unwrap(), comm(names));
        (chosen(&mut recording), recording.names(), recording.left_out())
    };
    assert_eq!(of(&["main"]).0, [0x20, 0x10]);
    assert_eq!(of(&["a worker"]).0, [0x30]);
    assert_eq!(of(&["renamed", "a worker"]).0, [0x30, 0x60]);
    assert_eq!(of(&["swapper"]).0, [0x50]);
    assert_eq!(of(&["child"]).0, [0x70]);
    assert_eq!(of(&["exec"]).0, [0x80]);
    // perf names an unnamed thread by its number.
    assert_eq!(of(&[":4"]).0, [0x40]);
    let (none, names, left) = of(&["nobody"]);
    assert!(none.is_empty());
    assert_eq!(names.known_comms, [false]);
    let met =
        [("main", 2), ("a worker", 1), ("child", 1), ("exec", 1), ("renamed", 1), ("swapper", 1)];
    assert_eq!(names.comms, met.map(|(name, n)| (name.to_owned(), n)));
    assert_eq!(left.by[&(Field::Comm, Why::Other)], 7);
    assert_eq!(left.by[&(Field::Comm, Why::Unsaid)], 1);
    // A stream must name threads before their samples: these names come later.
    assert_eq!(counts(&file.bytes, comm(&["main"])).0, [0x10]);
}

/// A name exists if any thread had it, also without a sample, and so does any thread's number. perf
/// prints numbers as signed, and synthesizes names that are longer than the kernel's.
#[test]
fn names_without_samples() {
    let (long, longer) = ("a".repeat(255), "b".repeat(256));
    let mut file = Crafted::new(false);
    file.attr_of(128, (0, 0, 1 << 18), FULL, 0, 8, &[11]);
    for (tid, name) in [(1, "idle"), (2, &long), (3, &longer)] {
        named(&mut file, (7, tid), 1000, name);
    }
    for (tid, from) in [(2, 0x20), (3, 0x30), (u64::from(u32::MAX), 0x40)] {
        full(&mut file, 11, (7, tid), 2000, 0, from);
    }
    let wanted = ["idle", &long, &longer, ":3", ":-1", ":99", ":x"];
    let mut recording = selected(open(&file.bytes), comm(&wanted));
    assert_eq!(chosen(&mut recording), [0x20, 0x30, 0x40]);
    assert_eq!(recording.names().known_comms, [true, true, false, true, true, true, false]);
    assert!(counts(&file.bytes, comm(&[&longer])).0.is_empty());
}

/// Text as `perf script` prints it with several columns.
#[test]
fn columns_of_text() {
    let text = "\
        prog  7/7   [000]   1.000001:  1000     cycles:u:  401000 main+0x6 (/bin/x) 0x10/0x18/P/-/-/0\n\
        my prog 2  7/8   [001]   2.000000:  1  branch-misses:u:  401000 0x20/0x28/P/-/-/0\n\
        prog  9/9   [001]   3.500000:  1     cycles:u:  401000 0x30/0x38/P/-/-/0\n\
        prog  9/9   [001]   4.000000:  0x40/0x48/P/-/-/0\n \
        0x50/0x58/P/-/-/0\n";
    let file = text.as_bytes();
    let mut recording = open(file);
    assert_eq!(chosen(&mut recording), [0x10, 0x20, 0x30, 0x40, 0x50]);
    let events: Vec<(String, u64)> =
        recording.samples_by_event().into_iter().map(|e| (e.name, e.samples)).collect();
    assert_eq!(
        events,
        [("", 2), ("cycles:u", 2), ("branch-misses:u", 1)].map(|(n, c)| (n.to_owned(), c))
    );
    assert_eq!(recording.event_names(), ["", "cycles:u", "branch-misses:u"]);
    let left = |field, other| vec![((field, Why::Other), other), ((field, Why::Unsaid), 2)];
    assert_eq!(counts(file, event(&["cycles"])), (vec![0x10, 0x30], left(Field::Event, 1)));
    let mut recording = selected(open(file), comm(&["prog"]));
    assert_eq!(chosen(&mut recording), [0x10, 0x30, 0x40]);
    assert_eq!(recording.names().events, ["cycles:u", "branch-misses:u"]);
    let unsaid = |field, other| vec![((field, Why::Other), other), ((field, Why::Unsaid), 1)];
    assert_eq!(counts(file, comm(&["my prog 2"])), (vec![0x20], unsaid(Field::Comm, 3)));
    let none = Selection::default;
    let of = |selection| counts(file, selection).0;
    assert_eq!(of(Selection { pids: vec![7], ..none() }), [0x10, 0x20]);
    assert_eq!(of(Selection { tids: vec![8], ..none() }), [0x20]);
    assert_eq!(of(Selection { cpus: vec![0], ..none() }), [0x10]);
    let times = Times::parse("1.000001,2").unwrap();
    assert_eq!(of(Selection { times, ..none() }), [0x10, 0x20]);
    // perf's default columns have only the thread.
    let alone = b" prog  12 [000] 1.5: 1 cycles: 401000 0x10/0x18/P/-/-/0\n";
    assert_eq!(counts(alone, Selection { tids: vec![12], ..none() }).0, [0x10]);
    // Only the second sample has an event.
    let late = [b" 0x20/0x28/P/-/-/0\n", &alone[..]].concat();
    assert_eq!(counts(&late, event(&["cycles"])).0, [0x10]);
    // Every sample has one.
    let mut all_named = open(alone);
    chosen(&mut all_named);
    assert_eq!(all_named.samples_by_event().len(), 1);
    assert_eq!(counts(alone, comm(&["prog"])).0, [0x10]);
    // perf's names for events without one.
    let nameless = b" prog 7/7 1.5: 1 raw 0x1c2:up: a0 main+0x6 (/bin/x) 0x10/0x18/P/-/-/0\n\
        prog 7/8 2.5: 1 unknown attr type: 9:  0x20/0x28/P/-/-/0\n\
        prog 7/8 2.6: 1 unknown tracepoint:  0x30/0x38/P/-/-/0\n";
    assert_eq!(counts(nameless, event(&["raw 0x1c2"])).0, [0x10]);
    assert_eq!(counts(nameless, event(&["unknown attr type: 9"])).0, [0x20]);
    assert_eq!(counts(nameless, event(&["unknown tracepoint"])).0, [0x30]);
    let tids = Selection { tids: vec![7], times: Times::parse("1,2").unwrap(), ..none() };
    assert_eq!(counts(nameless, tids).0, [0x10]);
    // Neither column applies here, and no value is invented.
    let mut bare = open(b" 0x10/0x18/P/-/-/0\n");
    chosen(&mut bare);
    assert_eq!(bare.samples_by_event().len(), 1);
    assert!(!bare.samples_by_event()[0].named);
    let mut dumped = selected(open(DUMPED.as_bytes()), event(&["cycles"]));
    assert_eq!(chosen(&mut dumped), [0x10]);
}

/// A hostile recording could have any number of names.
#[test]
fn at_most_4096_names_are_listed() {
    let line = |n| format!("prog 7/7 1.5: 1 event{n:04}: 401000 0x10/0x18/P/-/-/0\n");
    let mut text = open((0..4100).map(line).collect::<String>().as_bytes());
    assert_eq!(chosen(&mut text).len(), 4100);
    assert_eq!(text.event_names().len(), 1 + 4096);
    let mut file = Crafted::new(false);
    file.attr_of(128, (0, 0, 1 << 18), FULL, 0, 8, &[11]);
    for tid in 0..4100 {
        named(&mut file, (7, tid), 1000, &format!("thread {tid}"));
        full(&mut file, 11, (7, tid.into()), 2000, 0, 0x10);
    }
    let mut recording = selected(open(&file.bytes), comm(&["thread 4099"]));
    assert_eq!(chosen(&mut recording).len(), 1);
    assert_eq!(recording.names().comms.len(), 4096);
}

/// `perf script -D` prints a sample twice; only the second contains its event.
const DUMPED: &str = "\
0 1000 0x100 [0x50]: PERF_RECORD_SAMPLE(IP, 0x2): 7/7: 0x401000 period: 1 addr: 0
... branch stack: nr:1
.....  0: 0000000000000010 -> 0000000000000018 0 cycles  P   0
prog  7/7   [000]   0.000001:  1 cycles:u:  401000 0x10/0x18/P/-/-/0
";

/// Three stacks of one thread that join, each of two branches, and one of another thread between
/// them.
fn joined() -> Vec<u8> {
    let of = |tid: u32, cpu: u32, time: u64, part: u64| {
        let at = 0x1000 * part;
        let entries =
            vec![entry(0x5000 + at + 0x900, 0x6000 + at), entry(0x5000 + at, 0x5000 + at)];
        let mut event = sample(time, entries, exact());
        if let Event::Sample(sample) = &mut event {
            (sample.tid, sample.cpu) = (tid, cpu);
        }
        event
    };
    let comm = |tid, comm: &str| {
        let comm = comm.to_owned();
        Event::Comm(Comm { time: 1000, pid: 100, tid, comm, exec: false })
    };
    let events = [
        comm(1, "one"),
        comm(2, "two"),
        of(1, 0, 2000, 0),
        of(2, 0, 2100, 8),
        of(1, 1, 3000, 1),
        of(1, 0, 4000, 2),
    ];
    stream(meta(), &events)
}

/// Blocks by entry and exit with their counts, the number of exact stacks, and whether every branch
/// is included.
fn blocks(bytes: &[u8], selection: Selection) -> (Vec<(u64, u64, u64)>, u64, bool) {
    let mut counter = FlowCounter::default();
    counter.recording(&mut selected(open(bytes), selection), |_, _| {}).unwrap();
    let flow = counter.finish();
    let mut blocks: Vec<(u64, u64, u64)> =
        flow.blocks.iter().map(|block| (block.entry, block.exit, block.count)).collect();
    blocks.sort_unstable();
    (blocks, flow.quality.exact, flow.is_complete())
}

/// A thread has all its branches, unless it is unknown whose some of them are.
#[test]
fn samples_without_a_task_cut_a_selection() {
    let text = "  7/8   0x10/0x18/P/-/-/0\n  7/9   0x20/0x28/P/-/-/0\n";
    let cuts = |text: &str| {
        let tids = Selection { tids: vec![8], ..Selection::default() };
        let mut recording = selected(open(text.as_bytes()), tids);
        assert_eq!(chosen(&mut recording), [0x10]);
        recording.left_out().cuts
    };
    assert!(!cuts(text));
    assert!(cuts(&format!("{text} 0x30/0x38/P/-/-/0\n")));
}

/// Code omitted between two stacks of a thread is not a fall-through range.
#[test]
fn stacks_are_contiguous_only_with_selected_ones() {
    let file = joined();
    let inside = |part: u64| (0x5000 + 0x1000 * part, 0x5900 + 0x1000 * part, 1);
    let between = |part: u64| (0x5000 + 0x1000 * part, 0x5000 + 0x1000 * part, 1);
    let none = Selection::default;
    let all = vec![inside(0), between(1), inside(1), between(2), inside(2), inside(8)];
    assert_eq!(blocks(&file, none()), (all, 4, true));
    // A thread alone has all its branches, and so has a process.
    let one = vec![inside(0), between(1), inside(1), between(2), inside(2)];
    let tids = Selection { tids: vec![1], ..none() };
    assert_eq!(blocks(&file, tids), (one.clone(), 3, true));
    assert_eq!(blocks(&file, comm(&["one"])), (one, 3, true));
    assert!(blocks(&file, Selection { pids: vec![100], ..none() }).2);
    // The middle one ran on another CPU: the others do not join.
    let cpu = Selection { cpus: vec![0], ..none() };
    assert_eq!(blocks(&file, cpu), (vec![inside(0), inside(2), inside(8)], 2, false));
    // Neighbours still join, but the rest is missing.
    let times = |text: &str| Selection { times: Times::parse(text).unwrap(), ..none() };
    let first = times(",0.000003");
    let both = vec![inside(0), between(1), inside(1), inside(8)];
    assert_eq!(blocks(&file, first), (both, 3, false));
    let last = times("0.000003,");
    assert_eq!(blocks(&file, last), (vec![inside(1), between(2), inside(2)], 1, false));
    // The whole time omits nothing.
    assert!(blocks(&file, times("0,1")).2);
}

/// A stack without branches after an omitted one: the next stack does not join to the one before
/// both. One that joins keeps the position.
#[test]
fn an_empty_stack_does_not_bridge_omitted_stacks() {
    let at = |time, cpu, entries| {
        let mut event = sample(time, entries, exact());
        if let Event::Sample(sample) = &mut event {
            sample.cpu = cpu;
        }
        event
    };
    let file = |second: u32| {
        let events = [
            at(2000, 0, vec![entry(0x10, 0x20)]),
            at(3000, second, vec![entry(0x28, 0x30)]),
            at(4000, 0, vec![]),
            at(5000, 0, vec![entry(0x38, 0x40)]),
        ];
        stream(meta(), &events)
    };
    let cpu = || Selection { cpus: vec![0], ..Selection::default() };
    assert_eq!(blocks(&file(0), cpu()).0, [(0x20, 0x28, 1), (0x30, 0x38, 1)]);
    assert_eq!(blocks(&file(1), cpu()).0, []);
    let mut selected = selected(open(&file(1)), cpu());
    let loops = profile::loops::counter().count(&mut selected, |_, _| {}).unwrap().unwrap();
    assert_eq!((loops.taken, loops.broken), (2, 0));
}

/// Every view reports it, and there is an interval again.
#[test]
fn a_part_of_the_time_is_a_sample() {
    let file = joined();
    let part = || {
        let times = Times::parse(",0.000003").unwrap();
        selected(open(&file), Selection { times, ..Selection::default() })
    };
    let loops = profile::loops::counter().count(&mut open(&file), |_, _| {}).unwrap().unwrap();
    assert!(loops.complete);
    let loops = profile::loops::counter().count(&mut part(), |_, _| {}).unwrap().unwrap();
    assert!(!loops.complete);
    assert_eq!((loops.quality.samples, loops.quality.left_out.samples), (3, 1));
    let graph = profile::callgraph::counter(false).count(&mut part(), |_, _| {}).unwrap();
    assert!(!graph.complete);
    let hot = HotTable::count(&mut part(), |_, _| {}).unwrap();
    assert!(!hot.quality.is_complete() && hot.quality.left_out.cuts);
    assert_eq!((hot.quality.samples, hot.total), (3, 6));
    let lint = Lint::check(&mut part(), DEFAULT_STRIDE, Sources::default(), |_, _| {}).unwrap();
    assert_eq!((lint.flow.quality.samples, lint.flow.quality.left_out.samples), (3, 1));
}

/// A thread that changed its name: neither name covers all its branches.
#[test]
fn a_thread_of_two_names_is_cut() {
    let comm_at = |time, name: &str| {
        let comm = name.to_owned();
        Event::Comm(Comm { time, pid: 100, tid: 101, comm, exec: false })
    };
    let at = |time, from| sample(time, vec![entry(from, from)], exact());
    let file = stream(
        meta(),
        &[comm_at(1, "before"), at(2000, 0x10), comm_at(2500, "after"), at(3000, 0x20)],
    );
    for (name, from, head) in [("before", 0x10, Head::Joined), ("after", 0x20, Head::Unknown)] {
        let mut recording = selected(open(&file), comm(&[name]));
        let mut found = Vec::new();
        while let Some(item) = recording.next_item().unwrap() {
            if let Item::Stack(stack) = item {
                found.push((stack.entries.get(0).unwrap().from, stack.head.integrity.head));
            }
        }
        assert_eq!(found, [(from, head)], "{name}");
        assert!(recording.left_out().cuts);
    }
}

/// Our recorder records whose stacks it lost; others do not.
#[test]
fn losses_in_files_of_other_recorders() {
    let lost =
        |tid, label| Event::Lost(Lost { time: 2500, pid: 100, tid, cpu: 0, stacks: 5, label });
    let of = |tid: u32| {
        let mut event = sample(2000, vec![entry(0x10, 0x10)], exact());
        if let Event::Sample(sample) = &mut event {
            sample.tid = tid;
        }
        event
    };
    let tid = |tid| Selection { tids: vec![tid], ..Selection::default() };
    let quality = |bytes: &[u8], selection| {
        HotTable::count(&mut selected(open(bytes), selection), |_, _| {}).unwrap().quality
    };
    let file = stream(meta(), &[of(1), of(2), lost(2, Some(Label::Torn))]);
    assert!(!quality(&file, Selection::default()).is_complete());
    let one = quality(&file, tid(1));
    assert_eq!((one.lost_total(), one.left_out.lost), (0, 5));
    assert!(one.is_complete());
    let two = quality(&file, tid(2));
    assert_eq!((two.lost_total(), two.left_out.lost), (5, 0));
    assert!(!two.is_complete());
    // By process, and by the thread's name at the time.
    let pid = |pid| Selection { pids: vec![pid], ..Selection::default() };
    let name = |time, comm: &str| {
        let comm = comm.to_owned();
        Event::Comm(Comm { time, pid: 100, tid: 2, comm, exec: false })
    };
    let named = [name(1, "two"), name(2600, "later"), of(1), of(2), lost(2, Some(Label::Torn))];
    let file = stream(meta(), &named);
    for (selection, losses) in
        [(pid(0), (0, 5)), (pid(100), (5, 0)), (comm(&["two"]), (5, 0)), (comm(&["later"]), (0, 5))]
    {
        let of = quality(&file, selection.clone());
        assert_eq!((of.lost_total(), of.left_out.lost), losses, "{selection}");
    }
    let file = stream(meta(), &[of(1), of(2), lost(2, None)]);
    assert_eq!(quality(&file, tid(1)).lost_total(), 5);
}

/// A copy's stacks join only to those that it contains; it has no losses of other threads.
#[test]
fn a_copy_of_selected_samples() {
    let copy = |bytes: &[u8], selection| copied(&mut selected(open(bytes), selection), false);
    let inside = |part: u64| (0x5000 + 0x1000 * part, 0x5900 + 0x1000 * part, 1);
    let cpu = copy(&joined(), Selection { cpus: vec![0], ..Selection::default() });
    let found = blocks(&cpu, Selection::default());
    assert_eq!(found, (vec![inside(0), inside(2), inside(8)], 2, false));
    let label = Some(Label::Torn);
    let lost = |tid| Event::Lost(Lost { time: 2500, pid: 100, tid, cpu: 0, stacks: 5, label });
    let ran = |tid| {
        let mut event = sample(2000, vec![entry(0x10, 0x10)], exact());
        if let Event::Sample(sample) = &mut event {
            sample.tid = tid;
        }
        event
    };
    // The ends of two rounds, which belong to no thread.
    let head = stream(meta(), &[]).len();
    let records = |event: Event| stream(meta(), &[event]).split_off(head);
    let round = [68, 0, 0, 0, 0, 0, 8, 0].to_vec();
    let mut file = stream(meta(), &[lost(101), ran(101)]);
    for records in [&round, &records(ran(102)), &round, &records(lost(102)), &records(ran(101))] {
        file.extend(records);
    }
    let tid = copy(&file, Selection { tids: vec![101], ..Selection::default() });
    let quality = HotTable::count(&mut open(&tid), |_, _| {}).unwrap().quality;
    assert_eq!((quality.samples, quality.lost_total()), (2, 5));
    let (mut copy, mut rounds) = (open(&tid), Vec::new());
    each_stack(&mut copy, |stack| rounds.push(stack.head.round)).unwrap();
    assert_eq!(rounds, [0, 2]);
}

/// The first and the last sample of a copy may be others.
#[test]
fn a_copy_of_selected_samples_has_no_times_of_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let at = |time| sample(time, vec![entry(time, 1)], Integrity::UNKNOWN);
    write(&path, meta(), &[at(1000), at(2000)]);
    let whole = Times::Between { from: None, to: None };
    for (wanted, times) in [(vec![whole], None), (vec![], Some((1000, 2000)))] {
        let selection = Selection { times: wanted, ..Selection::default() };
        let copy = copied(&mut selected(Recording::open(&path).unwrap(), selection), true);
        let mut copy = open(&copy);
        chosen(&mut copy);
        assert_eq!(copy.info().unwrap().sample_time, times);
    }
}

/// A reused number is another thread, which starts from the beginning.
#[test]
fn a_reused_thread_id() {
    let at = |time, from| sample(time, vec![entry(from, from)], exact());
    let exit = Event::Exit(Task { time: 2500, pid: 100, tid: 101, ppid: 1, ptid: 1 });
    let file = stream(meta(), &[at(2000, 0x10), exit, at(3000, 0x20)]);
    let times = Times::parse("0.000003,").unwrap();
    let mut recording = selected(open(&file), Selection { times, ..Selection::default() });
    let mut exits = 0;
    while let Some(item) = recording.next_item().unwrap() {
        match item {
            Item::Stack(stack) => assert_eq!(stack.head.integrity.head, Head::Joined),
            item => exits += usize::from(matches!(item, Item::Event(Event::Exit(_)))),
        }
    }
    assert_eq!(exits, 1);
}

/// Files by perf's names for them.
#[test]
fn rows_by_file() {
    let mut maps = Maps::default();
    for (at, path) in
        ["/usr/lib/libc.so.6", "/opt/a/prog", "/opt/b/prog", "[vdso]"].iter().enumerate()
    {
        maps.event(&map(path, 0x10_0000 * (at as u64 + 1), 0x1000, 0));
    }
    let space = maps.space(Some(100));
    let places: Vec<Location> =
        (1..=5).map(|number| maps.locate(space, 0x10_0000 * number + 8)).collect();
    let mut has = |name: &str| {
        let within = LocationFilter::new(&mut maps, &[name.to_owned()], &[]);
        let found: Vec<usize> = (1..=5).filter(|number| within.has(places[number - 1])).collect();
        (found, within.missing.len())
    };
    assert_eq!(has("libc.so.6"), (vec![1], 0));
    assert_eq!(has("/opt/b/prog"), (vec![3], 0));
    assert_eq!(has("prog"), (vec![2, 3], 0));
    assert_eq!(has("[vdso]"), (vec![4], 0));
    assert_eq!(has("[unknown]"), (vec![5], 0));
    assert_eq!(has("libc"), (vec![], 1));
    assert_eq!(LocationFilter::name_of(&maps, places[0]), "libc.so.6");
    assert_eq!(LocationFilter::name_of(&maps, Location::Address(1)), "[unknown]");
}

/// perf's short name of the kernel; a file that was deleted while it ran keeps its name.
#[test]
fn other_names_of_files() {
    let mut maps = Maps::default();
    maps.event(&map("/opt/a/gone (deleted)", 0x10_0000, 0x1000, 0));
    let kernel = 0xFFFF_FFFF_8100_0000;
    maps.event(&mapping(u32::MAX, kernel, 0x1000, kernel, "[kernel.kallsyms]_text"));
    let space = maps.space(Some(100));
    let places = [0x10_0008, kernel + 8].map(|addr| maps.locate(space, addr));
    for (name, expected) in [
        ("gone", [true, false]),
        ("/opt/a/gone", [true, false]),
        ("[kernel]", [false, true]),
        ("[kernel.kallsyms]", [false, true]),
    ] {
        let within = LocationFilter::new(&mut maps, &[name.to_owned()], &[]);
        assert_eq!(
            (places.map(|at| within.has(at)), within.missing.len()),
            (expected, 0),
            "{name}"
        );
    }
}

/// From the first byte of each function to the one before its end, also of neighbours.
#[test]
fn rows_of_functions_by_address() {
    let (_names, sources) = jit("1000 40 f\n1040 40 g\n1080 40 h\n");
    let mut maps = Maps::with_sources(sources);
    maps.event(&map("//anon", 0x1000, 0x1000, 0));
    let space = maps.space(Some(100));
    let ends = [0xFFF, 0x1000, 0x103F, 0x1040, 0x107F, 0x1080, 0x10BF, 0x10C0];
    for (functions, expected) in [
        (&["f", "h"][..], [false, true, true, false, false, true, true, false]),
        (&["g", "f"], [false, true, true, true, true, false, false, false]),
        (&["g"], [false, false, false, true, true, false, false, false]),
    ] {
        let within = LocationFilter::new(&mut maps, &[], &strings(functions));
        let has = ends.map(|addr| within.has(maps.locate(space, addr)));
        assert_eq!(has, expected, "{functions:?}");
    }
}
