//! The writer.
//!
//! While recording, the output is a pipe-format stream: after the header follow one HEADER_ATTR,
//! the HEADER_FEATURE records, and then the events. If the recorder is killed, the file is readable
//! up to the last whole record. When recording ends cleanly, [`Writer::finish_file`] appends the
//! feature table after the records and then overwrites the first 256 bytes (header and attribute of
//! the pipe form) with header, ids and attribute of the seekable form, in one write. Nothing is
//! copied, and no second file is needed. With compression, all events are in zstd records, but not
//! the data before and after.

mod features;
mod pack;

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use lbr_msr::record::{BranchEntry, Comm, Event, Lost, Mmap, Sample, Sink, Task};

use self::features::{build_id_body, mode_of_file};
use self::pack::Packer;
use super::attr::EventAttr;
use super::bytes::{Order, put, put_words};
use super::features::feature_sections;
use super::layout::{MAGIC, PIPE_HEADER_SIZE, misc, record};
use super::meta::{EVENT_ID, Meta};
use super::side::{LOST_NOTE, NO_LABEL};
use crate::read::note::{LABELS, StackNote, code, with_moves};
use crate::read::registers::ARGUMENTS;
use crate::read::stack::EntryFlags;

/// Bytes collected before a write.
const CHUNK: usize = 64 * 1024;
/// The longest time that a record waits in memory while others arrive.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// An unknown CPU, as perf's -1.
const NO_CPU: u32 = u32::MAX;
/// Why a recording could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A system error.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A write failed earlier, and the recording ends there.
    #[error("the recording ended at an earlier write error")]
    Ended,
    /// A stack of this number of entries does not fit into a record, which is at most 65,535 bytes.
    #[error("a stack of {0} branches does not fit a perf.data record (2,700 at most)")]
    StackTooLarge(usize),
}

/// Totals of a finished file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Its length.
    pub bytes: u64,
    /// Stacks.
    pub samples: u64,
    /// Branches in them.
    pub branches: u64,
}

/// Writes a recording. Dropped without a finish it leaves the pipe form.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Option<W>,
    meta: Meta,
    attr: EventAttr,
    pending: Vec<u8>,
    /// Compresses pending data after the start of the recording.
    packer: Option<Packer>,
    /// The output so far.
    written: Written,
    /// Where the records begin.
    data_at: u64,
    last_flush: Instant,
    sample_time: Option<(u64, u64)>,
    /// Mapped files, with their build IDs if an event had one.
    files: BTreeMap<String, Option<Vec<u8>>>,
    failed: bool,
}

impl<W: Write + Seek> Writer<W> {
    /// Finishes the recording and makes the file seekable.
    ///
    /// # Errors
    /// The system's error; the file then keeps the pipe form, also if an event could not be written.
    pub fn finish_file(mut self) -> Result<Written, WriteError> {
        self.event_fully_written()?;
        let (end, features) = (self.written.bytes, self.late_features());
        let (bits, tail) = feature_sections(features.iter(), Order::Little, end);
        let header = self.file_header(end, bits);
        if let Some(mut out) = self.out.take() {
            out.write_all(&tail)?;
            out.seek(SeekFrom::Start(0))?;
            out.write_all(&header)?;
            out.flush()?;
        }
        Ok(Written { bytes: self.written.bytes + tail.len() as u64, ..self.written })
    }
}

impl<W: Write> Writer<W> {
    /// Starts a recording.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(out: W, meta: Meta) -> Result<Writer<W>, WriteError> {
        let attr = meta.attr();
        let packer = meta.compression.map(Packer::new).transpose()?;
        let mut writer = Writer {
            out: Some(out),
            attr,
            meta,
            pending: Vec::with_capacity(CHUNK * 2),
            packer,
            written: Written::default(),
            data_at: 0,
            last_flush: Instant::now(),
            sample_time: None,
            files: BTreeMap::new(),
            failed: false,
        };
        writer.begin()?;
        Ok(writer)
    }

    /// The output.
    pub fn output(&self) -> Option<&W> {
        self.out.as_ref()
    }

    /// Finishes the recording in pipe form, for an output that is not a file.
    ///
    /// # Errors
    /// The system's error.
    pub fn finish_stream(mut self) -> Result<(), WriteError> {
        self.event_fully_written()?;
        // perf does not compress these.
        self.packer = None;
        for (path, id) in self.build_ids() {
            let body = build_id_body(&path, &id);
            self.record(record::BUILD_ID, mode_of_file(&path) | misc::BUILD_ID_SIZE, &body);
        }
        self.event_fully_written()
    }

    /// Writes the header, the attribute and the features: always more than the 256 bytes that the
    /// seekable form overwrites.
    fn begin(&mut self) -> Result<(), WriteError> {
        self.pending.extend_from_slice(&MAGIC);
        put_words(&mut self.pending, Order::Little, &[PIPE_HEADER_SIZE]);
        let (attr, ids) = (self.attr.encode(), EVENT_ID.to_le_bytes());
        put(&mut self.pending, Order::Little, (record::HEADER_ATTR, 0), &[&attr, &ids]);
        for (bit, payload) in self.early_features() {
            let parts = [&u64::from(bit).to_le_bytes()[..], &payload];
            put(&mut self.pending, Order::Little, (record::HEADER_FEATURE, 0), &parts);
        }
        let packer = self.packer.take();
        self.event_fully_written()?;
        self.data_at = self.written.bytes;
        self.packer = packer;
        Ok(())
    }

    /// Appends a record; drops one that does not fit, such as a long command line.
    fn record(&mut self, kind: u32, misc_bits: u16, body: &[u8]) {
        put(&mut self.pending, Order::Little, (kind, misc_bits), &[body]);
    }

    fn event_fully_written(&mut self) -> Result<(), WriteError> {
        self.last_flush = Instant::now();
        // After a partial record nothing may follow, neither at the end nor on drop.
        if self.failed {
            return Err(WriteError::Ended);
        }
        if let Some(out) = &mut self.out {
            let packed = self.packer.as_mut().map(|packer| packer.pack(&self.pending)).transpose();
            let outcome = packed.and_then(|packed| {
                let bytes = packed.as_ref().unwrap_or(&self.pending);
                self.written.bytes += bytes.len() as u64;
                out.write_all(bytes).and_then(|()| out.flush())
            });
            self.pending.clear();
            self.failed = outcome.is_err();
            outcome?;
        }
        Ok(())
    }

    // Events.

    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        let integrity = sample.stack.integrity;
        if integrity.label.is_excluded() {
            let Sample { time, pid, tid, cpu, .. } = *sample;
            self.lost(&Lost { time, pid, tid, cpu, stacks: 1, label: Some(integrity.label) });
            return Ok(());
        }
        let entries = &sample.stack.entries;
        let tsx_known = entries.iter().any(|e| e.in_tx.is_some() || e.abort.is_some());
        let note = StackNote { integrity, source: self.meta.source, tsx_known };
        let note = with_moves(note.encode(), &sample.stack.moves);
        // Header, six words, the note with its length, the number of entries and, after them, the
        // registers.
        let count = entries.iter().filter(|entry| entry.from != 0 || entry.to != 0).count();
        let registers = self.meta.arguments.then(|| registers(sample.arguments));
        let registers = registers.unwrap_or_default();
        let size = 8 + 6 * 8 + 4 + note.len() + 8 + 24 * count + 8 * registers.len();
        let Ok(size) = u16::try_from(size) else {
            return Err(WriteError::StackTooLarge(count));
        };
        let pending = &mut self.pending;
        pending.reserve(size.into());
        pending.extend_from_slice(&record::SAMPLE.to_le_bytes());
        pending.extend_from_slice(&mode(sample.ip).to_le_bytes());
        pending.extend_from_slice(&size.to_le_bytes());
        let task = u64::from(sample.pid) | u64::from(sample.tid) << 32;
        let cpu = u64::from(sample.cpu);
        let words = [EVENT_ID, sample.ip, task, sample.time, cpu, sample.period];
        put_words(pending, Order::Little, &words);
        pending.extend_from_slice(&(note.len() as u32).to_le_bytes());
        pending.extend_from_slice(&note);
        pending.extend_from_slice(&(count as u64).to_le_bytes());
        put_entries(pending, entries, self.meta.types);
        registers.iter().for_each(|word| pending.extend_from_slice(&word.to_le_bytes()));
        let (first, last) = self.sample_time.unwrap_or((sample.time, sample.time));
        self.sample_time = Some((first.min(sample.time), last.max(sample.time)));
        self.written.samples += 1;
        self.written.branches += count as u64;
        Ok(())
    }

    fn mmap(&mut self, map: &Mmap) {
        let known = self.files.entry(map.path.clone()).or_default();
        if known.is_none() {
            known.clone_from(&map.build_id);
        }
        let mut body = Vec::new();
        put_numbers(&mut body, &[map.pid, map.tid]);
        put_words(&mut body, Order::Little, &[map.addr, map.len, map.pgoff]);
        put_numbers(&mut body, &[map.dev.0, map.dev.1]);
        put_words(&mut body, Order::Little, &[map.ino, map.ino_generation]);
        put_numbers(&mut body, &[map.prot, map.flags]);
        put_text(&mut body, &map.path, 4096);
        put_trailer(&mut body, map.pid, map.tid, map.time, NO_CPU);
        self.record(record::MMAP2, mode(map.addr), &body);
    }

    fn comm(&mut self, comm: &Comm) {
        let mut body = Vec::new();
        put_numbers(&mut body, &[comm.pid, comm.tid]);
        put_text(&mut body, &comm.comm, 16);
        put_trailer(&mut body, comm.pid, comm.tid, comm.time, NO_CPU);
        let exec = if comm.exec { misc::COMM_EXEC } else { 0 };
        self.record(record::COMM, exec, &body);
    }

    fn task(&mut self, kind: u32, task: &Task) {
        let mut body = Vec::new();
        put_numbers(&mut body, &[task.pid, task.ppid, task.tid, task.ptid]);
        put_words(&mut body, Order::Little, &[task.time]);
        put_trailer(&mut body, task.pid, task.tid, task.time, NO_CPU);
        self.record(kind, 0, &body);
    }

    fn lost(&mut self, lost: &Lost) {
        let mut body = Vec::new();
        let code = lost.label.map_or(NO_LABEL, |label| code(&LABELS, label));
        let note = u64::from(LOST_NOTE) | u64::from(code) << 32;
        put_words(&mut body, Order::Little, &[EVENT_ID, lost.stacks, note]);
        put_trailer(&mut body, lost.pid, lost.tid, lost.time, lost.cpu);
        self.record(record::LOST, 0, &body);
    }
}

/// Not generic over the writer, so that it is compiled in this crate with everything it calls.
fn put_entries(pending: &mut Vec<u8>, entries: &[BranchEntry], types: bool) {
    for entry in entries.iter().filter(|entry| entry.from != 0 || entry.to != 0) {
        let flags = EntryFlags::of(entry, types);
        let words = [entry.from, entry.to, flags.0].map(u64::to_le_bytes);
        pending.extend_from_slice(words.as_flattened());
    }
}

/// `PERF_SAMPLE_REGS_USER`: the ABI, and the registers in numeric order; without registers, no ABI.
fn registers(arguments: Option<[u64; 6]>) -> Vec<u64> {
    /// `PERF_SAMPLE_REGS_ABI_64`
    const ABI_64: u64 = 2;
    let Some(values) = arguments else { return vec![0] };
    let numbered: BTreeMap<u32, u64> =
        ARGUMENTS.iter().zip(values).map(|((number, _), value)| (*number, value)).collect();
    std::iter::once(ABI_64).chain(numbered.into_values()).collect()
}

impl<W: Write> Sink for Writer<W> {
    type Error = WriteError;

    fn event(&mut self, event: &Event) -> Result<(), WriteError> {
        match event {
            Event::Sample(sample) => self.sample(sample)?,
            Event::Mmap(map) => self.mmap(map),
            Event::Comm(comm) => self.comm(comm),
            Event::Fork(task) => self.task(record::FORK, task),
            Event::Exit(task) => self.task(record::EXIT, task),
            Event::Lost(lost) => self.lost(lost),
        }
        if self.pending.len() >= CHUNK || self.last_flush.elapsed() >= MAX_WAIT {
            self.event_fully_written()?;
        }
        Ok(())
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        if !self.failed {
            // A failure cannot be reported here; the file is readable up to this point.
            let _ = self.event_fully_written();
        }
    }
}

fn put_numbers(body: &mut Vec<u8>, numbers: &[u32]) {
    numbers.iter().for_each(|number| body.extend(number.to_le_bytes()));
}

/// Text padded with NULs to a multiple of 8, truncated to `limit` bytes.
fn put_text(body: &mut Vec<u8>, text: &str, limit: usize) {
    let text = text.as_bytes();
    body.extend_from_slice(text.get(..limit - 1).unwrap_or(text));
    body.push(0);
    body.resize(body.len().next_multiple_of(8), 0);
}

/// The mode of an address, by which readers look up its symbol.
const fn mode(addr: u64) -> u16 {
    if addr >> 63 == 0 { misc::USER } else { misc::KERNEL }
}

/// The trailer of every record except samples: task, time, CPU, event.
fn put_trailer(body: &mut Vec<u8>, pid: u32, tid: u32, time: u64, cpu: u32) {
    let task = u64::from(pid) | u64::from(tid) << 32;
    put_words(body, Order::Little, &[task, time, u64::from(cpu), EVENT_ID]);
}
