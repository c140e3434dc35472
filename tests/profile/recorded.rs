//! A small recording in which every number is set here.

use std::io::{self, Read};
use std::path::Path;

use lbr_msr::BranchFilter;
use lbr_msr::record::{
    BranchEntry, BranchSpec, BranchStack, BranchType, Comm, Event, Head, Integrity, Label, Lost,
    Mmap, Sample, Sink, SourceKnowledge, Task,
};
use profile::note::Source;
use profile::perf_data::{Meta, Rate, ReadError, Writer};
use profile::symbols::Sources;
use profile::{Item, Recording, Stack};

/// The mapped address of the recorded program.
pub(crate) const BASE: u64 = 0x5555_5555_4000;

pub(crate) fn meta() -> Meta {
    Meta {
        hostname: Some("box".to_owned()),
        osrelease: Some("6.1.0".to_owned()),
        version: "lbr 0.1.0".to_owned(),
        arch: "x86_64".to_owned(),
        nrcpus: Some((2, 4)),
        cpudesc: Some("software LBR (06_5E), not measured".to_owned()),
        cpuid: Some("GenuineIntel,6,94,3".to_owned()),
        cmdline: vec!["lbr".to_owned(), "record".to_owned(), "a b".to_owned()],
        event: "branches:u".to_owned(),
        filter: BranchFilter::DEFAULT,
        rate: Rate::Period(31),
        knowledge: SourceKnowledge::HARDWARE,
        source: Source::Software,
        types: true,
        arguments: false,
        compression: None,
    }
}

/// Without a host, as if recorded on this machine: its files are those of the recording.
pub(crate) fn here() -> Meta {
    Meta { hostname: None, osrelease: None, ..meta() }
}

pub(crate) fn exact() -> Integrity {
    Integrity {
        head: Head::Joined,
        cut: false,
        label: Label::Stream,
        truncated: false,
        underflow: false,
    }
}

pub(crate) fn entry(from: u64, to: u64) -> BranchEntry {
    BranchEntry { from, to, ..BranchEntry::default() }
}

pub(crate) fn sample(time: u64, entries: Vec<BranchEntry>, integrity: Integrity) -> Event {
    Event::Sample(Sample {
        arguments: None,
        time,
        pid: 100,
        tid: 101,
        cpu: 1,
        ip: entries.first().map_or(0, |entry| entry.to),
        period: entries.len() as u64,
        stack: BranchStack { entries, integrity, moves: Vec::new() },
    })
}

pub(crate) fn map(path: &str, addr: u64, len: u64, pgoff: u64) -> Event {
    Event::Mmap(Box::new(Mmap {
        time: 1000,
        pid: 100,
        tid: 100,
        addr,
        len,
        pgoff,
        dev: (8, 1),
        ino: 77,
        ino_generation: 3,
        build_id: None,
        prot: 5,
        flags: 2,
        path: path.to_owned(),
    }))
}

/// Every kind of event, and entries with every kind of field.
pub(crate) fn events() -> Vec<Event> {
    let known = |mispredicted: bool, branch_type: BranchType| BranchEntry {
        mispredicted: Some(mispredicted),
        branch_type: Some(branch_type),
        ..entry(BASE + 0x10, BASE + 0x20)
    };
    let rich = BranchEntry {
        mispredicted: Some(true),
        in_tx: Some(true),
        abort: Some(true),
        cycles: Some(65535),
        cycles_saturated: Some(true),
        branch_type: Some(BranchType::RET),
        spec: Some(BranchSpec::SpecCorrectPath),
        ..entry(BASE + 0x30, 0xffff_ffff_8000_1000)
    };
    vec![
        Event::Comm(Comm { time: 1000, pid: 100, tid: 100, comm: "prog".to_owned(), exec: true }),
        map("/nowhere/prog", BASE, 0x2000, 0x1000),
        Event::Fork(Task { time: 1100, pid: 100, tid: 101, ppid: 100, ptid: 100 }),
        sample(
            2000,
            vec![known(false, BranchType::COND), known(true, BranchType(17)), rich],
            exact(),
        ),
        sample(
            3000,
            vec![entry(BASE + 0x40, BASE + 0x50), entry(BASE + 0x40, BASE + 0x50)],
            Integrity { head: Head::Lost, cut: true, label: Label::Gap, ..exact() },
        ),
        sample(3500, vec![], exact()),
        Event::Lost(Lost {
            time: 4000,
            pid: 100,
            tid: 101,
            cpu: 1,
            stacks: 7,
            label: Some(Label::Torn),
        }),
        Event::Lost(Lost { time: 4001, pid: 100, tid: 101, cpu: 1, stacks: 2, label: None }),
        Event::Exit(Task { time: 5000, pid: 100, tid: 101, ppid: 100, ptid: 100 }),
    ]
}

/// Writes a seekable file.
pub(crate) fn write(path: &Path, meta: Meta, events: &[Event]) {
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), meta).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish_file().unwrap();
}

/// Writes the pipe form.
pub(crate) fn stream(meta: Meta, events: &[Event]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, meta).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish_stream().unwrap();
    bytes
}

/// Calls `visit` with every remaining stack.
pub(crate) fn each_stack(
    recording: &mut Recording,
    mut visit: impl FnMut(&Stack<'_>),
) -> Result<(), ReadError> {
    while let Some(item) = recording.next_item()? {
        if let Item::Stack(stack) = item {
            visit(&stack);
        }
    }
    Ok(())
}

/// The names that a JIT compiler lists for process 100, a line for each function, and their folder.
pub(crate) fn jit(list: &str) -> (tempfile::TempDir, Sources) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("perf-100.map"), list).unwrap();
    let jit = folder.path().to_owned();
    (folder, Sources { jit, ..Sources::default() })
}

/// A stream that delivers at most `most` bytes at a time, each time after an interruption by a
/// signal.
pub(crate) struct Pieces {
    bytes: io::Cursor<Vec<u8>>,
    most: usize,
    is_interrupted: bool,
}

impl Pieces {
    pub(crate) fn new(bytes: Vec<u8>, most: usize) -> Pieces {
        Pieces { bytes: io::Cursor::new(bytes), most, is_interrupted: false }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let len = buffer.len().min(self.most);
        self.bytes.read(&mut buffer[..len])
    }
}

/// A stream that cannot be read: EIO.
pub(crate) struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(5))
    }
}
