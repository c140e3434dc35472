//! Recordings with given cycles, for commands that draw them.

use std::path::Path;

use lbr_msr::BranchFilter;
use lbr_msr::record::{
    BranchEntry, BranchStack, Comm, Event, Integrity, Sample, Sink, SourceKnowledge,
};
use profile::note::Source;
use profile::perf_data::{Meta, Rate, Writer};

use crate::support::mapping::mapping;

pub(crate) const PID: u32 = 100;

/// An execution of a block: its entry, the branch at its end, its cycles.
pub(crate) type Run = (u64, u64, u32);

/// The recording's description of itself.
pub(crate) fn meta(source: Source) -> Meta {
    Meta {
        hostname: Some("box".to_owned()),
        osrelease: None,
        version: "lbr 0.1.0".to_owned(),
        arch: "x86_64".to_owned(),
        nrcpus: None,
        cpudesc: Some("cycles put in by hand".to_owned()),
        cpuid: None,
        cmdline: vec!["lbr".to_owned(), "<b>&amp;".to_owned()],
        event: "branches:u".to_owned(),
        filter: BranchFilter::DEFAULT,
        rate: Rate::Period(31),
        knowledge: SourceKnowledge::HARDWARE,
        source,
        types: true,
        arguments: false,
        compression: None,
    }
}

/// A file's mapping: address, and offset in the file.
pub(crate) type Mapped<'a> = (&'a str, u64, u64);

/// Writes a recording of these executions, in this order, four per stack. Each stack starts with an
/// entry that ends no block, so that every execution has its block. `entry` is the target of that
/// first entry: the entry of the first execution.
pub(crate) fn record(path: &Path, meta: Meta, mapped: Option<Mapped<'_>>, runs: &[Run]) {
    let mut writer = Writer::new(std::fs::File::create(path).unwrap(), meta).unwrap();
    let comm = Comm { time: 1, pid: PID, tid: PID, comm: "prog".to_owned(), exec: true };
    writer.event(&Event::Comm(comm)).unwrap();
    if let Some((file, addr, pgoff)) = mapped {
        writer.event(&mapping(PID, addr, 0x1000, pgoff, file)).unwrap();
    }
    for (index, stack) in runs.chunks(4).enumerate() {
        let entry = |from, to, cycles, missed| BranchEntry {
            from,
            to,
            cycles,
            mispredicted: Some(missed),
            ..BranchEntry::default()
        };
        let mut entries = Vec::new();
        // From oldest to newest: a branch goes to the start of the next execution.
        let first = stack[0].0;
        entries.push(entry(first + 1, first, None, false));
        for (at, &(_, exit, cycles)) in stack.iter().enumerate() {
            let to = stack.get(at + 1).map_or(first, |next| next.0);
            entries.push(entry(exit, to, (cycles > 0).then_some(cycles), cycles % 7 == 3));
        }
        entries.reverse();
        let sample = Sample {
            arguments: None,
            time: 1_000 + index as u64,
            pid: PID,
            tid: PID,
            cpu: 0,
            ip: first,
            period: entries.len() as u64,
            stack: BranchStack { entries, integrity: Integrity::UNKNOWN, moves: Vec::new() },
        };
        writer.event(&Event::Sample(sample)).unwrap();
    }
    writer.finish_file().unwrap();
}

/// Two peaks, around 12 (twice as high) and around 40, in mixed order: cycles with their counts.
pub(crate) const HUMPS: [(u32, u64); 12] = [
    (10, 20),
    (11, 90),
    (12, 200),
    (13, 90),
    (14, 20),
    (36, 10),
    (38, 40),
    (39, 60),
    (40, 100),
    (41, 60),
    (42, 40),
    (44, 10),
];

/// The peaks as executions of a block, `more` cycles later.
pub(crate) fn humps(entry: u64, exit: u64, more: u32) -> Vec<Run> {
    let mut left: Vec<(u32, u64)> = HUMPS.to_vec();
    let mut runs = Vec::new();
    while left.iter().any(|(_, n)| *n > 0) {
        for (cycles, n) in left.iter_mut().filter(|(_, n)| *n > 0) {
            *n -= 1;
            runs.push((entry, exit, *cycles + more));
        }
    }
    runs
}
