//! The reader on files of every form, valid and damaged.

use std::io::Cursor;

use lbr_msr::record::{
    BranchEntry, BranchSpec, BranchType, Event, Head, Integrity, Label, Lost, Mmap, MoveKind,
    Sample, Task, ThreadMove,
};
use profile::note::{Source, StackNote};
use profile::perf_data::{Meta, Rate, ReadError};
use profile::{EntryFlags, Item, RawBranch, Recording};
use proptest::prelude::*;

use crate::recorded::{Pieces, each_stack, events, exact, meta, sample, stream, write};
use crate::support::decoded::sample_of;

fn reader(bytes: &[u8]) -> Result<Recording, ReadError> {
    Recording::from_stream(Box::new(Cursor::new(bytes.to_vec())))
}

fn read(reader: &mut Recording) -> Result<Vec<Event>, ReadError> {
    let mut events = Vec::new();
    while let Some(record) = reader.next_item()? {
        events.push(match record {
            Item::Stack(stack) => Event::Sample(sample_of(&stack)),
            Item::Event(event) => event,
            _ => continue,
        });
    }
    Ok(events)
}

#[test]
fn written_recordings_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &events());
    let mut seekable = Recording::open(&file).unwrap();
    assert_eq!(seekable.info().unwrap().hostname.as_deref(), Some("box"));
    assert_eq!(seekable.info().unwrap().cmdline, ["lbr", "record", "a b"]);
    assert_eq!(seekable.info().unwrap().sample_time, Some((2000, 3500)));
    assert_eq!(seekable.events()[0].name.as_deref(), Some("branches:u"));
    let expected = as_read(events());
    assert_eq!(read(&mut seekable).unwrap(), expected);
    assert_eq!(seekable.notes(), Default::default());

    let mut pipe = reader(&stream(meta(), &events())).unwrap();
    assert_eq!(read(&mut pipe).unwrap(), expected);
    assert_eq!(pipe.events()[0].name.as_deref(), Some("branches:u"));

    // A seekable file through a pipe: features come last.
    let mut piped = reader(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(read(&mut piped).unwrap(), expected);
    assert_eq!(piped.info().unwrap().hostname.as_deref(), Some("box"));
    assert_eq!(piped.info().unwrap().sample_time, Some((2000, 3500)));
}

/// Data that perf's format cannot hold: "not in a transaction" for entries next to ones where it is
/// unknown. A sample without a period has that of its event.
fn as_read(mut events: Vec<Event>) -> Vec<Event> {
    for event in &mut events {
        let Event::Sample(Sample { stack, period, .. }) = event else { continue };
        if *period == 0 {
            *period = 31;
        }
        let told = stack.entries.iter().any(|e| e.in_tx.is_some() || e.abort.is_some());
        for entry in &mut stack.entries {
            if told {
                entry.in_tx = Some(entry.in_tx == Some(true));
                entry.abort = Some(entry.abort == Some(true));
            }
        }
    }
    events
}

#[test]
fn a_slow_pipe_is_read_to_its_end() {
    let slow = Pieces::new(stream(meta(), &events()), 1);
    let mut slow = Recording::from_stream(Box::new(slow)).unwrap();
    assert_eq!(read(&mut slow).unwrap(), as_read(events()));
    assert_eq!(slow.notes(), Default::default());
}

/// Truncated at every byte: the part before is read, or there is an error message.
#[test]
fn cut_at_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    write(&file, meta(), &events());
    let seekable = std::fs::read(&file).unwrap();
    let pipe = stream(meta(), &events());
    let whole = as_read(events());
    let cut_file = dir.path().join("cut");
    // A pipe that ends between two records shows no truncation.
    for (bytes, knows_its_end) in [(&seekable, true), (&pipe, false)] {
        let mut most = 0;
        for len in 0..=bytes.len() {
            let part = &bytes[..len];
            let mut outcomes = vec![reader(part)];
            // Only sometimes through the file system, which is slow.
            if len % 7 == 0 {
                std::fs::write(&cut_file, part).unwrap();
                outcomes.push(Recording::open(&cut_file));
            }
            for outcome in outcomes {
                match outcome.and_then(|mut reader| Ok((read(&mut reader)?, reader))) {
                    Ok((found, reader)) => {
                        assert!(whole.starts_with(&found), "at {len}");
                        if found.len() < whole.len() && knows_its_end {
                            assert!(reader.notes().cut_at.is_some(), "at {len}: no warning");
                        }
                        most = most.max(found.len());
                    }
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
        assert_eq!(most, whole.len());
    }
}

#[test]
fn sentences() {
    let sentence = |bytes: &[u8]| {
        reader(bytes).and_then(|mut reader| read(&mut reader)).unwrap_err().to_string()
    };
    let mut wrong = stream(meta(), &events());
    wrong[8] = 112;
    assert_eq!(
        sentence(&wrong),
        "damaged perf.data header: its size is 112, but only 104 and 16 are known"
    );
    // A stream's header is kept until its records start, up to 16 MiB.
    for (data_at, what) in [
        (16 << 20, "the file ends inside it"),
        ((16 << 20) + 1, "its records start at byte 16777217, which is impossible"),
    ] {
        let header = [104u64, 144, 104, 144, data_at].map(u64::to_le_bytes).concat();
        let late = [b"PERFILE2", &header[..], &[0; 56 + 144]].concat();
        assert_eq!(sentence(&late), format!("damaged perf.data header: {what}"));
    }
    let missing = Recording::open(std::path::Path::new("/nonexistent/perf.data")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot open /nonexistent/perf.data: No such file"));
}

// Files created here byte by byte.

const BRANCH_STACK: u64 = 0x800;

/// A pipe file of one byte order.
pub(crate) struct Crafted {
    pub(crate) bytes: Vec<u8>,
    big: bool,
}

impl Crafted {
    pub(crate) fn new(big: bool) -> Crafted {
        let mut file = Crafted { bytes: Vec::new(), big };
        file.u64(u64::from_le_bytes(*b"PERFILE2"));
        file.u64(16);
        file
    }

    fn u64(&mut self, value: u64) {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    fn u32(&mut self, value: u32) {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
    }

    fn header(&mut self, kind: u32, misc: u16, size: usize) {
        self.u32(kind);
        let halves = [misc, size as u16];
        for half in halves {
            let bytes = if self.big { half.to_be_bytes() } else { half.to_le_bytes() };
            self.bytes.extend(bytes);
        }
    }

    pub(crate) fn attr(
        &mut self,
        size: u32,
        sample_type: u64,
        read_format: u64,
        branch: u64,
        ids: &[u64],
    ) {
        self.attr_of(size, (0, 0, 0), sample_type, read_format, branch, ids);
    }

    /// The same with an event type, its config and its flags.
    pub(crate) fn attr_of(
        &mut self,
        size: u32,
        (kind, config, flags): (u32, u64, u64),
        sample_type: u64,
        read_format: u64,
        branch: u64,
        ids: &[u64],
    ) {
        self.header(64, 0, 8 + size as usize + 8 * ids.len());
        let start = self.bytes.len();
        self.u32(kind);
        self.u32(size);
        for word in [config, 1000, sample_type, read_format, flags, 0, 0, 0, branch] {
            self.u64(word);
        }
        self.bytes.resize(start + size as usize, 0);
        ids.iter().for_each(|id| self.u64(*id));
    }

    /// Adds user-mode registers and sample registers, by perf's numbers, to the last event. It has
    /// no IDs.
    pub(crate) fn registers(&mut self, of_user: u64, at_sample: u64) {
        let attr = self.bytes.len() - 128;
        for (at, mask) in [(80, of_user), (96, at_sample)] {
            let bytes = if self.big { mask.to_be_bytes() } else { mask.to_le_bytes() };
            self.bytes[attr + at..attr + at + 8].copy_from_slice(&bytes);
        }
    }

    /// Any record.
    pub(crate) fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.header(kind, misc, 8 + body.len());
        self.bytes.extend_from_slice(body);
    }

    /// Names the first two events, which have no ids: `first` and `second`.
    fn name_events(&mut self) {
        let mut body = 12u64.to_le_bytes().to_vec();
        body.extend([2u32, 128].map(u32::to_le_bytes).concat());
        for name in [b"first\0\0\0", b"second\0\0"] {
            body.extend([0; 128]);
            body.extend([0u32, 8].map(u32::to_le_bytes).concat());
            body.extend(name);
        }
        self.record(80, 0, &body);
    }

    pub(crate) fn sample(&mut self, words: &[u64]) {
        self.header(9, 2, 8 + 8 * words.len());
        words.iter().for_each(|word| self.u64(*word));
    }
}

fn stacks(file: &Crafted) -> Vec<Vec<RawBranch>> {
    let mut reader = reader(&file.bytes).unwrap();
    let mut found = Vec::new();
    each_stack(&mut reader, |stack| found.push(stack.entries.iter().collect())).unwrap();
    found
}

fn branch(from: u64, to: u64, flags: u64) -> RawBranch {
    RawBranch { from, to, flags: EntryFlags(flags) }
}

#[test]
fn attributes_of_every_size() {
    for size in [80, 96, 104, 112, 120, 128, 136, 144, 200] {
        let mut file = Crafted::new(false);
        file.attr(size, 1 | BRANCH_STACK, 0, 8, &[]);
        file.sample(&[0xa0, 1, 0x10, 0x20, 2]);
        assert_eq!(stacks(&file), [[branch(0x10, 0x20, 2)]], "{size}");
    }
}

/// A size of 0 means the first published form, of 64 bytes (`PERF_ATTR_SIZE_VER0`): the ids follow
/// it.
#[test]
fn an_attribute_without_its_size() {
    let mut file = Crafted::new(false);
    let words = [0, 0, 0, 0x10000 | 1 | BRANCH_STACK, 0, 0, 0, 0, 11];
    file.record(64, 0, &words.map(u64::to_le_bytes).concat());
    file.attr(128, 0x10000 | 1 | 4 | BRANCH_STACK, 0, 8, &[12]);
    file.sample(&[11, 0xa0, 1, 0x10, 0x20, 2]);
    assert_eq!(stacks(&file), [[branch(0x10, 0x20, 2)]]);
    let mut reader = reader(&file.bytes).unwrap();
    read(&mut reader).unwrap();
    // This form has no branch filter, and a period of 0 is none.
    let attr = &reader.events()[0];
    assert_eq!((attr.branch_sample_type, attr.rate()), (0, None));
}

/// The first published form has 64 bytes.
#[test]
fn shorter_attributes_are_malformed() {
    let mut file = Crafted::new(false);
    file.record(64, 0, &[0; 56]);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    file.sample(&[0xa0, 1, 0x10, 0x20, 2]);
    let mut reader = reader(&file.bytes).unwrap();
    assert_eq!(read(&mut reader).unwrap().len(), 1);
    let notes = reader.notes();
    assert_eq!((notes.malformed, notes.first_malformed), (1, Some(16)));
}

/// Without its own, a sample has the fixed period of its event, unless that is a frequency.
#[test]
fn periods_of_events() {
    const FREQUENCY: u64 = 1 << 10;
    const PERIOD: u64 = 1 << 8;
    for (flags, fields, own, period) in [
        (0, 0, &[][..], Some(1000)),
        (0, PERIOD, &[7], Some(7)),
        (0, PERIOD, &[0], Some(1000)),
        (FREQUENCY, 0, &[], None),
        (FREQUENCY, PERIOD, &[7], Some(7)),
        (FREQUENCY, PERIOD, &[0], None),
    ] {
        let mut file = Crafted::new(false);
        file.attr_of(128, (0, 0, flags), 1 | fields | BRANCH_STACK, 0, 8, &[]);
        file.sample(&[&[0xa0][..], own, &[1, 0x10, 0x20, 2]].concat());
        let mut reader = reader(&file.bytes).unwrap();
        let Some(Item::Stack(stack)) = reader.next_item().unwrap() else { panic!() };
        assert_eq!(stack.head.period, period, "{flags:#x} {own:?}");
        let rate = if flags == 0 { Rate::Period(1000) } else { Rate::Frequency(1000) };
        assert_eq!(reader.events()[0].rate(), Some(rate));
    }
    let mut periods = Vec::new();
    for of_event in [1u64, 0] {
        let mut file = Crafted::new(false);
        file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
        // `sample_period` follows the type, the size and the config.
        file.bytes[40..48].copy_from_slice(&of_event.to_le_bytes());
        file.sample(&[0xa0, 1, 0x10, 0x20, 2]);
        let mut reader = reader(&file.bytes).unwrap();
        each_stack(&mut reader, |stack| periods.push(stack.head.period)).unwrap();
    }
    assert_eq!(periods, [Some(1), None]);
}

/// HEADER_EVENT_DESC (`perf.data-file-format.txt`): each attribute, its number of ids, its name, its
/// ids. Without ids, names are in the order of the events.
#[test]
fn names_of_events_without_ids() {
    let mut file = Crafted::new(false);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    file.name_events();
    file.sample(&[0xa0, 1, 0x10, 0x20, 2]);
    let mut reader = reader(&file.bytes).unwrap();
    // Without ids, a sample is of the first event.
    assert_eq!(read(&mut reader).unwrap().len(), 1);
    let names = reader.events().iter().map(|event| event.name.as_deref());
    assert_eq!(names.collect::<Vec<_>>(), [Some("first"), Some("second")]);
}

/// The error lists the events of the recording, also if it has no samples.
#[test]
fn recordings_without_branch_stacks_are_refused() {
    for (unnamed, samples, expected) in
        [(0, 1, "first, second"), (0, 0, "first, second"), (1, 0, "first, second, 1 unnamed")]
    {
        let mut file = Crafted::new(false);
        (0..2 + unnamed).for_each(|_| file.attr(128, 1, 0, 0, &[]));
        file.name_events();
        (0..samples).for_each(|_| file.sample(&[0xa0]));
        let error = read(&mut reader(&file.bytes).unwrap()).unwrap_err();
        let ReadError::NoBranchStacks(events) = error else { panic!("{error}") };
        assert_eq!(events, expected);
    }
}

/// FORK and EXIT (`perf_event.h`): pid, ppid, tid, ptid, time; then maybe the fields that all records
/// have, of which the time is that of writing.
#[test]
fn times_of_forks_and_exits() {
    for flags in [0, 1 << 18] {
        let mut file = Crafted::new(false);
        file.attr_of(128, (0, 0, flags), 1 | 4 | BRANCH_STACK, 0, 8, &[]);
        let mut body = [8u32, 7, 9, 6].map(u32::to_le_bytes).concat();
        body.extend(30u64.to_le_bytes());
        if flags != 0 {
            body.extend(40u64.to_le_bytes());
        }
        file.record(7, 0, &body);
        file.record(4, 0, &body);
        let task = Task { time: 30, pid: 8, tid: 9, ppid: 7, ptid: 6 };
        let found = read(&mut reader(&file.bytes).unwrap()).unwrap();
        assert_eq!(found, [Event::Fork(task), Event::Exit(task)], "{flags:#x}");
    }
}

/// HW_INDEX before the entries, COUNTERS after them. An index of -1 is unknown (`perf_event.h`).
#[test]
fn index_and_counters() {
    for (index, known) in [(5, Some(5)), (u64::MAX, None)] {
        let mut file = Crafted::new(false);
        file.attr(128, 1 | BRANCH_STACK, 0, 8 | 1 << 17 | 1 << 19, &[]);
        file.sample(&[0xa0, 2, index, 0x10, 0x20, 2, 0x30, 0x40, 1, 77, 78]);
        let mut reader = reader(&file.bytes).unwrap();
        let Some(Item::Stack(stack)) = reader.next_item().unwrap() else { panic!() };
        assert_eq!(stack.head.hw_idx, known);
        let found: Vec<_> = stack.entries.iter().collect();
        assert_eq!(found, [branch(0x10, 0x20, 2), branch(0x30, 0x40, 1)]);
    }
    // An event without counters, and a stack without branches.
    let mut file = Crafted::new(false);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    file.sample(&[0xa0, 0]);
    let mut reader = reader(&file.bytes).unwrap();
    let Some(Item::Stack(stack)) = reader.next_item().unwrap() else { panic!() };
    assert!(stack.counters.is_none());
}

/// Every field that can precede the stack.
#[test]
fn fields_before_the_stack() {
    let all = 1 | 2 | 4 | 8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x10000;
    let group = |format: u64, counters: &[u64]| {
        let mut file = Crafted::new(false);
        file.attr(128, all | BRANCH_STACK, format, 8, &[]);
        // identifier, ip, tid, time, addr, id, stream, cpu, period
        let mut words = vec![9, 0xa0, 7 << 32 | 6, 123, 0xdead, 9, 8, 3, 55];
        words.extend(counters);
        words.extend([2, 0x111, 0x222]); // call chain
        words.extend([12 | 0xABCD << 32, 0x1234]); // raw, 4 + 12 bytes
        words.extend([1, 0x10, 0x20, 2]);
        file.sample(&words);
        let mut reader = reader(&file.bytes).unwrap();
        let Some(Item::Stack(stack)) = reader.next_item().unwrap() else { panic!() };
        let head = stack.head;
        assert_eq!((head.ip, head.pid, head.tid), (Some(0xa0), Some(6), Some(7)));
        assert_eq!((head.time, head.cpu, head.period), (Some(123), Some(3), Some(55)));
        assert_eq!(stack.entries.get(0), Some(branch(0x10, 0x20, 2)), "{format}");
    };
    group(0, &[1]);
    group(1 | 2, &[1, 2, 3]);
    group(4 | 16, &[1, 2, 3]);
    group(8, &[3, 1, 2, 3]);
    group(1 | 2 | 4 | 8 | 16, &[2, 91, 92, 1, 1, 1, 2, 2, 2]);
}

/// A software LBR models predictions and cycles; those of hardware are measured.
#[test]
fn modelled_fields_can_be_omitted() {
    let timed = BranchEntry {
        mispredicted: Some(true),
        cycles: Some(7),
        cycles_saturated: Some(false),
        branch_type: Some(BranchType::COND),
        ..BranchEntry { from: 0x10, to: 0x20, ..BranchEntry::default() }
    };
    let plain = BranchEntry { mispredicted: None, cycles: None, cycles_saturated: None, ..timed };
    for (source, omits, expected) in [
        (Source::Software, true, plain),
        (Source::Software, false, timed),
        (Source::Hardware, true, timed),
    ] {
        let bytes = stream(Meta { source, ..meta() }, &[sample(1, vec![timed], exact())]);
        let mut reader = reader(&bytes).unwrap();
        if omits {
            reader.omit_modelled();
        }
        let Some(Item::Stack(stack)) = reader.next_item().unwrap() else { panic!() };
        assert_eq!(sample_of(&stack).stack.entries, [expected], "{source:?} {omits}");
        let omitted = (source, omits) == (Source::Software, true);
        assert_eq!(reader.has_omitted_modelled(), omitted, "{source:?} {omits}");
    }
}

/// Samples of several events, some of them without branches. perf synthesizes samples with id 0, of
/// the first event.
#[test]
fn several_events() {
    let mut file = Crafted::new(false);
    file.attr(128, 0x10000 | 1 | BRANCH_STACK, 0, 8, &[11]);
    file.attr(128, 0x10000 | 1 | 4 | BRANCH_STACK, 0, 8 | 1 << 17, &[12, 13]);
    file.attr(128, 0x10000 | 1, 0, 0, &[14]);
    file.sample(&[12, 0xa0, 99, 1, 5, 0x10, 0x20, 2]);
    file.sample(&[11, 0xa0, 1, 0x30, 0x40, 2]);
    file.sample(&[14, 0xa0]);
    file.sample(&[66, 0xa0, 1, 2, 3]);
    file.sample(&[0, 0xa0, 1, 0x50, 0x60, 2]);
    let mut reader = reader(&file.bytes).unwrap();
    let mut found = Vec::new();
    each_stack(&mut reader, |s| {
        found.push((s.head.event, s.head.time, s.entries.get(0).unwrap().from))
    })
    .unwrap();
    assert_eq!(found, [(1, Some(99), 0x10), (0, None, 0x30), (0, None, 0x50)]);
    assert_eq!(reader.notes().unknown_event, 1);
}

/// Without `IDENTIFIER`, the id of a sample is after its address, and that of another record before
/// its stream and CPU.
#[test]
fn ids_among_other_fields() {
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    let mut file = Crafted::new(false);
    let with_id = 1 | 2 | 8 | 0x40 | 0x80 | 0x200 | BRANCH_STACK;
    file.attr_of(128, (0, 0, SAMPLE_ID_ALL), with_id | 4, 0, 8, &[11]);
    file.attr_of(128, (0, 0, SAMPLE_ID_ALL), with_id, 0, 8, &[12]);
    // ip, tid, time, address, id, stream, CPU.
    file.sample(&[0xa0, 6 << 32 | 6, 99, 0xdead, 11, 77, 3, 1, 0x10, 0x20, 2]);
    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let name = u64::from_le_bytes(*b"prog\0\0\0\0");
    file.record(3, 2, &words(&[7 << 32 | 7, name, 7 << 32 | 7, 98, 11, 77, 3]));
    file.record(3, 2, &words(&[8 << 32 | 8, name, 8 << 32 | 8, 12, 77, 3]));
    let mut reader = reader(&file.bytes).unwrap();
    let found = read(&mut reader).unwrap();
    let times: Vec<(u64, u32)> = found
        .iter()
        .map(|event| match event {
            Event::Comm(comm) => (comm.time, comm.pid),
            Event::Sample(sample) => (sample.time, sample.cpu),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(times, [(99, 3), (98, 7), (0, 8)]);
    assert_eq!(reader.notes().unknown_event, 0);
}

/// On big-endian machines, bit fields start at the top.
#[test]
fn the_other_byte_order() {
    let mut file = Crafted::new(true);
    file.attr(112, 1 | 2 | BRANCH_STACK, 0, 8, &[]);
    // mispredicted 63, predicted 62, in_tx 61, abort 60, cycles 59..44,
    // type 43..40, spec 39..38, new type 37..34, privilege 33..31, not taken 30.
    let word = 1 << 63 | 1 << 60 | 0x1234 << 44 | 15 << 40 | 2 << 38 | 5 << 34 | 3 << 31 | 1 << 30;
    file.sample(&[0xa0, 6 << 32 | 7, 1, 0x10, 0x20, word]);
    let mut reader = reader(&file.bytes).unwrap();
    let Some(Item::Stack(stack)) = reader.next_item().unwrap() else { panic!() };
    assert_eq!((stack.head.pid, stack.head.tid), (Some(6), Some(7)));
    let little = 1 | 1 << 3 | 0x1234 << 4 | 15 << 20 | 2 << 24 | 5 << 26 | 3 << 30 | 1 << 33;
    assert_eq!(stack.entries.get(0), Some(branch(0x10, 0x20, little)));
    // Without a note, a clear transaction bit means "unknown".
    let entry = stack.entries.get(0).unwrap().decode(stack.head.tsx_known);
    assert_eq!((entry.mispredicted, entry.abort), (Some(true), Some(true)));
    assert_eq!(entry.in_tx, None);
    assert_eq!((entry.cycles, entry.branch_type), (Some(0x1234), Some(BranchType(21))));
    assert_eq!(entry.spec, Some(BranchSpec::NonSpecCorrectPath));
    // Each of the lowest four flags.
    let mut file = Crafted::new(true);
    file.attr(112, 1 | BRANCH_STACK, 0, 8, &[]);
    (0..4).for_each(|bit| file.sample(&[0xa0, 1, 0x10, 0x20, 1 << (63 - bit)]));
    assert_eq!(stacks(&file), [1, 2, 4, 8].map(|flag| [branch(0x10, 0x20, flag)]));
}

/// Counts beyond the record's size skip the record, not the file.
#[test]
fn hostile_counts() {
    for nr in [2, 1 << 20, 1 << 61, u64::MAX, u64::MAX / 24 + 1] {
        let mut file = Crafted::new(false);
        file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
        file.sample(&[0xa0, nr, 0x10, 0x20, 2]);
        file.sample(&[0xa0, 1, 0x30, 0x40, 2]);
        let mut reader = reader(&file.bytes).unwrap();
        let mut found = Vec::new();
        each_stack(&mut reader, |s| found.push(s.entries.get(0).unwrap().from)).unwrap();
        assert_eq!(found, [0x30], "{nr:#x}");
        assert_eq!(reader.notes().malformed, 1);
    }
}

/// Events, IDs and build IDs above the limits are ignored: a small archive could decompress to any
/// number of them.
#[test]
fn more_than_any_recording_has() {
    let mut file = Crafted::new(false);
    for id in 0..5000 {
        file.attr(128, 1 | 1 << 16 | BRANCH_STACK, 0, 8, &[id]);
    }
    // A path above the maximum length.
    file.header(67, 0, 36 + 8192);
    file.u32(0);
    file.bytes.extend([1; 24 + 8192]);
    for number in 0..70_000u64 {
        file.header(67, 0, 48);
        for word in [u64::from(u32::MAX), 1, 1, 1, number] {
            file.u64(word);
        }
    }
    for id in [4095, 4096] {
        file.sample(&[id, 0xa0, 1, 0x30, 0x40, 2]);
    }
    let mut reader = reader(&file.bytes).unwrap();
    let mut found = Vec::new();
    each_stack(&mut reader, |stack| found.push(stack.head.event)).unwrap();
    assert_eq!(reader.events().len(), 4096);
    assert_eq!(found, [4095]);
    assert_eq!(reader.notes().unknown_event, 1);
    let ids = &reader.info().unwrap().build_ids;
    assert_eq!(ids.len(), 1 << 16);
    assert!(ids.iter().all(|(path, _)| path.len() < 4096));
}

/// Data after AUXTRACE and TRACING_DATA is not a record.
#[test]
fn payloads_are_passed_over() {
    let mut file = Crafted::new(false);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    file.header(71, 0, 48);
    for word in [40, 0, 0, 0, 0] {
        file.u64(word);
    }
    file.bytes.extend([0xFF; 40]);
    let mut cut = reader(&file.bytes[..file.bytes.len() - 1]).unwrap();
    let missing = read(&mut cut);
    assert!(missing.unwrap().is_empty() && cut.notes().cut_at.is_some());
    file.header(66, 0, 16);
    file.u64(5);
    file.bytes.extend([0xFF; 8]);
    file.header(200, 0, 16);
    file.u64(0);
    file.sample(&[0xa0, 1, 0x30, 0x40, 2]);
    assert_eq!(stacks(&file), [[branch(0x30, 0x40, 2)]]);
}

/// PERF_RECORD_MMAP2 holds an inode or, with PERF_RECORD_MISC_MMAP_BUILD_ID, a build ID; of
/// PERF_RECORD_MMAP, PERF_RECORD_MISC_MMAP_DATA is all that is known of its protection.
#[test]
fn mappings_of_every_form() {
    let mapped = |kind: u32, misc: u16, words: &[u32]| {
        let mut file = Crafted::new(false);
        file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
        let places = [100, 101, 0x40_0000, 0, 0x2000, 0, 0x1000, 0];
        let body = places.iter().chain(words).flat_map(|word| word.to_le_bytes());
        file.record(kind, misc, &body.chain(*b"/prog\0\0\0").collect::<Vec<u8>>());
        match &read(&mut reader(&file.bytes).unwrap()).unwrap()[..] {
            [Event::Mmap(map)] => (**map).clone(),
            other => panic!("{other:?}"),
        }
    };
    let plain = Mmap {
        pid: 100,
        tid: 101,
        addr: 0x40_0000,
        len: 0x2000,
        pgoff: 0x1000,
        prot: 5,
        path: "/prog".to_owned(),
        ..Mmap::default()
    };
    assert_eq!(mapped(1, 2, &[]), plain);
    assert_eq!(mapped(1, 0x2002, &[]), Mmap { prot: 1, ..plain.clone() });
    let of_file = Mmap { dev: (8, 1), ino: 77, ino_generation: 3, flags: 2, ..plain.clone() };
    assert_eq!(mapped(10, 2, &[8, 1, 77, 0, 3, 0, 5, 2]), of_file);
    // Its length, then up to 20 bytes.
    let id = [16, 0x0403_0201, 0x0807_0605, 0x0C0B_0A09, 0x100F_0E0D, 0, 5, 2];
    let of_build = Mmap { build_id: Some((1..=16).collect()), flags: 2, ..plain };
    assert_eq!(mapped(10, 0x4002, &id), of_build);
}

/// A build ID has 20 bytes. PERF_RECORD_MISC_BUILD_ID_SIZE tells that its length follows (perf since
/// 5.11), which is 16 for an MD5 hash.
#[test]
fn build_ids_of_either_length() {
    const BUILD_ID_SIZE: u16 = 1 << 15;
    let mut file = Crafted::new(false);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    for (misc, length) in [(BUILD_ID_SIZE, 16), (BUILD_ID_SIZE, 20), (0, 0), (0, 16)] {
        let mut body = u32::MAX.to_le_bytes().to_vec();
        body.extend(1..=20);
        body.extend([length, 0, 0, 0]);
        file.record(67, misc, &[&body[..], b"/prog\0\0\0"].concat());
    }
    // PATH_MAX includes the NUL; padding may follow.
    let longest = format!("/{}", "a".repeat(4094));
    file.record(67, 0, &[&[0xFF; 4][..], &[7; 24], longest.as_bytes(), &[0; 65]].concat());
    file.sample(&[0xa0, 1, 0x30, 0x40, 2]);
    let mut reader = reader(&file.bytes).unwrap();
    read(&mut reader).unwrap();
    let ids = &reader.info().unwrap().build_ids;
    let expected = [16, 20, 20, 20].map(|length| ("/prog".to_owned(), (1..=length).collect()));
    assert_eq!(ids[..4], expected);
    assert_eq!(ids[4..], [(longest, vec![7; 20])]);
}

/// Of the features of perf.data (`perf_header` in the kernel's `tools/perf`), a copy holds those
/// that a record's padding does not change, and no trace data, topology, cache or BPF program.
#[test]
fn features_of_a_copy() {
    let mut file = Crafted::new(false);
    file.attr(128, 1 | BRANCH_STACK, 0, 8, &[]);
    for feature in 3..=31_u64 {
        file.record(80, 0, &[feature.to_le_bytes(), [0; 8]].concat());
    }
    file.sample(&[0xa0, 1, 0x30, 0x40, 2]);
    let copy = copied(&mut reader(&file.bytes).unwrap(), false);
    let (mut at, mut features, mut samples) = (16, Vec::new(), 0);
    while at < copy.len() {
        let word = |from: usize| u64::from_le_bytes(copy[from..from + 8].try_into().unwrap());
        match (word(at) as u32, (word(at) >> 32) as u16) {
            // Features come before the first sample.
            (80, 0) if samples == 0 => features.push(word(at + 8)),
            (9, 2) => samples += 1,
            kind => assert_eq!(kind, (64, 0), "at {at:#x}"),
        }
        at += (word(at) >> 48) as usize;
    }
    let kept = (3..=12).chain([16, 17, 21, 23, 29]);
    assert_eq!((features, samples), (kept.collect::<Vec<u64>>(), 1));
    // Nothing is padded in a file, which has everything except trace data, statistics, the form of
    // a directory and compression.
    let copy = copied(&mut reader(&file.bytes).unwrap(), true);
    let word = |at: usize| u64::from_le_bytes(copy[at..at + 8].try_into().unwrap());
    let bits = (0..64).filter(|bit| word(72) >> bit & 1 == 1);
    let kept = (3..=31).filter(|bit| ![18, 19, 24, 27].contains(bit));
    assert_eq!(bits.collect::<Vec<_>>(), kept.collect::<Vec<_>>());
    // No event types.
    assert_eq!((word(56), word(64)), (0, 0));
}

/// A copy of a recording. The header of a seekable one is written last, over its start.
pub(crate) fn copied(recording: &mut Recording, seekable: bool) -> Vec<u8> {
    let mut copy = Vec::new();
    let header = profile::export::perf_data(recording, seekable, &mut copy, |_, _| {});
    let header = header.unwrap().unwrap();
    assert_eq!(header.is_empty(), !seekable);
    copy[..header.len()].copy_from_slice(&header);
    copy
}

/// Copies of either form, of recordings of either form.
#[test]
fn a_copy_is_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data");
    let id = Some((1..=20).collect());
    let with_id = Mmap { path: "/nowhere/other".to_owned(), build_id: id, ..Mmap::default() };
    let events = [&events()[..], &[Event::Mmap(Box::new(with_id))]].concat();
    write(&path, meta(), &events);
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Recording::open(&path).unwrap()
    };
    let content = |bytes: &[u8]| {
        let mut recording = open(bytes);
        let events = read(&mut recording).unwrap();
        let info = recording.info().unwrap().clone();
        (events, info, recording.events().to_vec(), recording.notes())
    };
    for bytes in [std::fs::read(&path).unwrap(), stream(meta(), &events)] {
        let original = content(&bytes);
        assert_eq!(original.1.build_ids, [("/nowhere/other".to_owned(), (1..=20).collect())]);
        for seekable in [false, true] {
            let copy = copied(&mut open(&bytes), seekable);
            assert_eq!(content(&copy), original, "{seekable}");
        }
    }
}

/// In a file, attributes have equal sizes, and their ids are elsewhere.
#[test]
fn attributes_of_a_seekable_copy() {
    for big in [false, true] {
        let mut file = Crafted::new(big);
        file.attr(80, 0x10000 | 1 | BRANCH_STACK, 0, 8, &[11]);
        file.attr(128, 0x10000 | 1 | 4 | BRANCH_STACK, 0, 8, &[12, 13]);
        file.sample(&[13, 0xa0, 99, 1, 0x10, 0x20, 2]);
        file.sample(&[11, 0xa0, 1, 0x30, 0x40, 2]);
        let copy = copied(&mut reader(&file.bytes).unwrap(), true);
        let mut copy = reader(&copy).unwrap();
        let mut found = Vec::new();
        each_stack(&mut copy, |stack| found.push((stack.head.event, stack.head.time))).unwrap();
        assert_eq!(found, [(1, Some(99)), (0, None)]);
        let attrs = copy.events().iter();
        let attrs = attrs.map(|a| (a.size, &a.ids[..], a.branch_sample_type, a.sample_regs_user));
        assert_eq!(attrs.collect::<Vec<_>>(), [(128, &[11][..], 8, 0), (128, &[12, 13], 8, 0)]);
    }
}

#[test]
fn the_stack_note() {
    let integrity = Integrity {
        head: Head::Lost,
        cut: true,
        label: Label::Snapshot,
        truncated: true,
        underflow: false,
    };
    let note = StackNote { integrity, source: Source::Software, tsx_known: true };
    let bytes = [b'l', b'b', b'r', 1, 1, 2, 0b1011, 2, 0, 0, 0, 0];
    assert_eq!(note.encode(), bytes);
    assert_eq!(StackNote::decode(&bytes), Some(note));
    let mut newer = bytes;
    newer[3] = 2;
    assert_eq!(StackNote::decode(&newer), None);
    assert_eq!(StackNote::decode(&bytes[..7]), None);
}

/// The codes of recordings, from the tables in the documentation of [`StackNote`].
#[test]
fn codes_of_the_stack_note() {
    let with = |at: usize, code: u8| {
        let mut bytes = [b'l', b'b', b'r', 1, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[at] = code;
        StackNote::decode(&bytes)
    };
    let labels: Vec<_> = (0..9).map_while(|code| Some(with(4, code)?.integrity.label)).collect();
    let names = ["stream", "snapshot", "gap", "wiped", "torn", "foreign", "stopped", "mixed"];
    assert_eq!(labels.iter().map(|label| label.name()).collect::<Vec<_>>(), names);
    let heads: Vec<_> = (0..9).map_while(|code| Some(with(5, code)?.integrity.head)).collect();
    assert_eq!(heads, [Head::Unknown, Head::Joined, Head::Lost]);
    let sources: Vec<_> = (0..9).map_while(|code| Some(with(7, code)?.source)).collect();
    assert_eq!(sources, [Source::Unsaid, Source::Hardware, Source::Software]);

    const RAW: u64 = 0x400;
    let mut file = Crafted::new(false);
    file.attr(128, 1 | RAW | BRANCH_STACK, 0, 8, &[]);
    // The length of the note, its first eight bytes, and the number of moves.
    let note = u64::from(u32::from_le_bytes(*b"lbr\x01"));
    let mut words = vec![0xa0, (12 + 7 * 24) | (note << 32), 7 << 32];
    (0..7).for_each(|code| words.extend([0x20, 0x30, 5 | code << 32]));
    words.extend([1, 0x10, 0x20, 2]);
    file.sample(&words);
    let mut moves = Vec::new();
    each_stack(&mut reader(&file.bytes).unwrap(), |stack| moves.extend(stack.moves.iter()))
        .unwrap();
    let moved = |kind| ThreadMove { newer: 5, kind, from: 0x20, to: 0x30 };
    use MoveKind::{End, Return, Signal, SignalAtBranch, Start, Unknown};
    assert_eq!(moves, [Start, End, Signal, SignalAtBranch, Return, Unknown, Unknown].map(moved));
}

fn any_entry() -> impl Strategy<Value = BranchEntry> {
    let types = prop_oneof![Just(None), (1u8..15).prop_map(Some), (16u8..32).prop_map(Some)];
    let fields = (1u64.., any::<u64>(), any::<Option<bool>>(), any::<bool>(), any::<bool>());
    (fields, 0u32..=65535, types, 0u8..4).prop_map(
        |((from, to, mispredicted, in_tx, abort), cycles, branch_type, spec)| BranchEntry {
            from,
            to,
            mispredicted,
            in_tx: Some(in_tx),
            abort: Some(abort),
            cycles: (cycles > 0).then_some(cycles),
            cycles_saturated: (cycles > 0).then_some(cycles == 65535),
            branch_type: branch_type.map(BranchType),
            spec: BranchSpec::from_code(spec),
            ..BranchEntry::default()
        },
    )
}

fn any_integrity() -> impl Strategy<Value = Integrity> {
    let heads = prop_oneof![Just(Head::Joined), Just(Head::Lost), Just(Head::Unknown)];
    let labels = prop_oneof![
        Just(Label::Stream),
        Just(Label::Snapshot),
        Just(Label::Gap),
        Just(Label::Stopped)
    ];
    (heads, any::<bool>(), labels, any::<bool>(), any::<bool>()).prop_map(
        |(head, cut, label, truncated, underflow)| Integrity {
            head,
            cut,
            label,
            truncated,
            underflow,
        },
    )
}

fn any_event() -> impl Strategy<Value = Event> {
    let entries = proptest::collection::vec(any_entry(), 1..40);
    let sample = (any::<u64>(), entries, any_integrity()).prop_map(|(t, e, i)| sample(t, e, i));
    let lost = (any::<u64>(), any::<u64>()).prop_map(|(time, stacks)| {
        Event::Lost(Lost { time, pid: 1, tid: 2, cpu: 3, stacks, label: Some(Label::Mixed) })
    });
    prop_oneof![4 => sample, 1 => lost]
}

fn quiet() -> Meta {
    Meta { cmdline: vec![], ..meta() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn round_trip(events in proptest::collection::vec(any_event(), 0..20)) {
        let mut reader = reader(&stream(quiet(), &events)).unwrap();
        prop_assert_eq!(read(&mut reader).unwrap(), events);
    }

    /// Bytes changed anywhere: no panic, and memory is bounded by the file's size.
    #[test]
    fn mutated(changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..12)) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("perf.data");
        write(&file, quiet(), &events());
        for mut bytes in [stream(quiet(), &events()), std::fs::read(&file).unwrap()] {
            for (at, byte) in &changes {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *byte;
            }
            let _ = reader(&bytes).and_then(|mut reader| read(&mut reader));
            std::fs::write(&file, &bytes).unwrap();
            let _ = Recording::open(&file).and_then(|mut reader| read(&mut reader));
            let recording = profile::Recording::open(&file);
            let _ = recording.and_then(|mut r| profile::HotTable::count(&mut r, |_, _| {}));
        }
    }
}
