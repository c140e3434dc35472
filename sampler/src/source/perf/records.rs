//! Decodes records of the kernel's ring buffer.

use lbr_msr::record::{Comm, Event, Label, Lost, Mmap, RawEntry, Task};
use lbr_msr::text::AsText;
use perf_event::data::endian::Native;
use perf_event::data::parse::{ParseConfig, Parser};
use perf_event::data::{self, RecordMetadata, Visitor};
use perf_event_open_sys::bindings::{self, perf_event_header};

use crate::drain::RawStack;
use crate::target::ThreadId;

/// A decoded record.
#[derive(Debug)]
pub(super) enum DecodedRecord {
    /// A sample.
    Stack(Box<RawStack>),
    /// An event other than a sample. Lost are the records that found no space in the ring buffer.
    Event(Event),
    /// The kernel throttled the event: too many interrupts.
    Throttled,
    /// A record that a recording does not need.
    Nothing,
}

/// The parser for a ring buffer's records.
pub(super) struct Reading {
    /// The record format that was requested.
    pub(super) config: ParseConfig<Native>,
    /// Maximum depth of a stack.
    pub(super) depth: u32,
    /// Stacks are snapshots of call frames.
    pub(super) call_stack: bool,
}

impl Reading {
    /// Decodes the body of a record.
    pub(super) fn read(&self, kind: u32, misc: u16, bytes: &[u8]) -> DecodedRecord {
        if kind == bindings::PERF_RECORD_SAMPLE {
            let stack = self.stack(bytes);
            return stack
                .map_or(DecodedRecord::Nothing, |stack| DecodedRecord::Stack(Box::new(stack)));
        }
        let size = u16::try_from(bytes.len() + size_of::<perf_event_header>());
        let header = perf_event_header { type_: kind, misc, size: size.unwrap_or(u16::MAX) };
        let mut parser = Parser::new(bytes, self.config.clone());
        parser.parse_record_with_header(Side, header).unwrap_or(DecodedRecord::Nothing)
    }

    /// Decodes a sample with the requested fields: TID, TIME, CPU, PERIOD, BRANCH_STACK.
    /// perf_event_open(2), "PERF_RECORD_SAMPLE".
    fn stack(&self, bytes: &[u8]) -> Option<RawStack> {
        let words = bytes.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
        let [task, time, cpu, period, count, entries @ ..] = &words[..] else { return None };
        let thread = ThreadId { pid: *task as u32, tid: (task >> 32) as u32 };
        let mut stack = RawStack::empty(thread, *cpu as u32);
        stack.time = *time;
        stack.period = *period;
        let entries = entries.as_chunks::<3>().0.iter().take(usize::try_from(*count).ok()?);
        for [from, to, flags] in entries.filter(|[from, to, _]| *from != 0 || *to != 0) {
            stack.push(RawEntry { from: *from, to: *to, info: Some(*flags) });
        }
        if self.call_stack {
            stack.integrity.label = Label::Snapshot;
            stack.integrity.truncated = stack.entries().len() as u32 >= self.depth;
        }
        Some(stack)
    }
}

/// Decodes all records except samples.
struct Side;

impl Side {
    fn time(metadata: &RecordMetadata) -> u64 {
        metadata.sample_id().time().unwrap_or(0)
    }

    fn lost(stacks: u64, metadata: &RecordMetadata) -> DecodedRecord {
        let id = metadata.sample_id();
        DecodedRecord::Event(Event::Lost(Lost {
            time: Side::time(metadata),
            pid: id.pid().unwrap_or(u32::MAX),
            tid: id.tid().unwrap_or(u32::MAX),
            cpu: id.cpu().unwrap_or(u32::MAX),
            stacks,
            label: None,
        }))
    }
}

const fn task(record: &data::Exit) -> Task {
    let data::Exit { pid, ppid, tid, ptid, time } = *record;
    Task { time, pid, tid, ppid, ptid }
}

impl<'a> Visitor<'a> for Side {
    type Output = DecodedRecord;

    fn visit_unimplemented(self, _: RecordMetadata) -> DecodedRecord {
        DecodedRecord::Nothing
    }

    fn visit_mmap2(self, record: data::Mmap2<'a>, metadata: RecordMetadata) -> DecodedRecord {
        DecodedRecord::Event(Event::Mmap(Box::new(Mmap {
            time: Side::time(&metadata),
            pid: record.pid,
            tid: record.tid,
            addr: record.addr,
            len: record.len,
            pgoff: record.pgoff,
            dev: (record.maj().unwrap_or(0), record.min().unwrap_or(0)),
            ino: record.ino().unwrap_or(0),
            ino_generation: record.ino_generation().unwrap_or(0),
            build_id: record.build_id().map(<[u8]>::to_vec),
            prot: record.prot,
            flags: record.flags,
            path: record.filename.as_text().into_owned(),
        })))
    }

    fn visit_comm(self, record: data::Comm<'a>, metadata: RecordMetadata) -> DecodedRecord {
        let exec = u32::from(metadata.misc()) & bindings::PERF_RECORD_MISC_COMM_EXEC != 0;
        let time = Side::time(&metadata);
        let comm = record.comm.as_text().into_owned();
        DecodedRecord::Event(Event::Comm(Comm {
            time,
            pid: record.pid,
            tid: record.tid,
            comm,
            exec,
        }))
    }

    fn visit_fork(self, record: data::Fork, _: RecordMetadata) -> DecodedRecord {
        DecodedRecord::Event(Event::Fork(task(&record)))
    }

    fn visit_exit(self, record: data::Exit, _: RecordMetadata) -> DecodedRecord {
        DecodedRecord::Event(Event::Exit(task(&record)))
    }

    fn visit_lost(self, record: data::Lost, metadata: RecordMetadata) -> DecodedRecord {
        Side::lost(record.lost, &metadata)
    }

    fn visit_lost_samples(
        self,
        record: data::LostSamples,
        metadata: RecordMetadata,
    ) -> DecodedRecord {
        Side::lost(record.lost, &metadata)
    }

    fn visit_throttle(self, _: data::Throttle, _: RecordMetadata) -> DecodedRecord {
        DecodedRecord::Throttled
    }
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/perf/records.rs"]
mod tests;
