//! The writer.
//!
//! While recording, the output is a pipe-format stream: after the header come
//! one HEADER_ATTR and the HEADER_FEATURE records, then what happens. A
//! recorder that is killed leaves that behind, readable up to its last whole
//! record. On a clean end of a file, [`Writer::finish_file`] appends the
//! feature table after the records and only then overwrites the first 256
//! bytes, until then header and attribute of the pipe form, with header, ids
//! and attribute of the seekable form, in one write. Nothing is copied and no
//! second file is needed. Compressed, all that happens lies in records of zstd;
//! what stands before and after does not.

mod features;
mod pack;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use lbr_msr::record::{BranchEntry, Comm, Event, Lost, Mmap, Sample, Sink, Task};

use self::features::{build_id_body, mode_of_file};
use self::pack::Packer;
use super::attr::EventAttr;
use super::layout::{HEADER_SIZE, MAGIC, PIPE_HEADER_SIZE, misc, record};
use super::meta::{EVENT_ID, Meta};
use super::side::{LOST_NOTE, NO_LABEL};
use crate::read::note::{StackNote, label_code};
use crate::read::registers::ARGUMENTS;
use crate::read::stack::EntryFlags;

/// Where the records of a seekable file may begin: after header, one id, and
/// attribute with the section of its ids.
const MIN_DATA_AT: u64 = HEADER_SIZE + 8 + 128 + 16;
/// Bytes collected before they go to the file.
const CHUNK: usize = 64 * 1024;
/// No record waits longer than this in memory, as long as others arrive.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// A CPU that nobody knows, as perf's -1.
const NO_CPU: u32 = u32::MAX;
/// Why a recording could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It refused before, and the recording ends there.
    #[error("the recording ended where it could not be written")]
    Ended,
    /// A stack does not fit a record, which is at most 65,535 bytes.
    #[error("a stack of {entries} branches does not fit a perf.data record (2,700 at most)")]
    StackTooLarge {
        /// Its entries.
        entries: usize,
    },
}

/// Writes a recording. Dropped without a finish it leaves the pipe form.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Option<W>,
    meta: Meta,
    attr: EventAttr,
    pending: Vec<u8>,
    /// Compresses what is pending, once the recording has begun.
    packer: Option<Packer>,
    /// Bytes of the output.
    written: u64,
    /// Where the records begin.
    data_at: u64,
    last_flush: Instant,
    sample_time: Option<(u64, u64)>,
    /// Mapped files, with their build ids where an event brought one.
    files: BTreeMap<String, Option<Vec<u8>>>,
    failed: bool,
}

impl Writer<File> {
    /// Creates the file. That nobody else writes it is the caller's to see to.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn create(path: &Path, meta: Meta) -> Result<Writer<File>, WriteError> {
        Writer::new(File::create(path)?, meta)
    }
}

impl<W: Write + Seek> Writer<W> {
    /// Ends the recording and makes the file seekable.
    ///
    /// # Errors
    /// The system's refusal; the pipe form stays behind, as it does where an
    /// event could not be written.
    pub fn finish_file(mut self) -> Result<(), WriteError> {
        self.event_fully_written()?;
        let header = self.file_header(self.written);
        let tail = self.feature_sections(self.written);
        if let Some(mut out) = self.out.take() {
            out.write_all(&tail)?;
            out.seek(SeekFrom::Start(0))?;
            out.write_all(&header)?;
            out.flush()?;
        }
        Ok(())
    }
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn new(out: W, meta: Meta) -> Result<Writer<W>, WriteError> {
        let attr = meta.attr();
        let packer = meta.compression.map(Packer::new).transpose()?;
        let mut writer = Writer {
            out: Some(out),
            attr,
            meta,
            pending: Vec::with_capacity(CHUNK * 2),
            packer,
            written: 0,
            data_at: 0,
            last_flush: Instant::now(),
            sample_time: None,
            files: BTreeMap::new(),
            failed: false,
        };
        writer.begin()?;
        Ok(writer)
    }

    /// What it writes to.
    #[must_use]
    pub fn output(&self) -> Option<&W> {
        self.out.as_ref()
    }

    /// Ends the recording in pipe form: for an output that is no file.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn finish_stream(mut self) -> Result<(), WriteError> {
        self.event_fully_written()?;
        // perf leaves these as they are.
        self.packer = None;
        for (path, id) in self.build_ids() {
            let body = build_id_body(&path, &id);
            self.record(record::BUILD_ID, mode_of_file(&path) | misc::BUILD_ID_SIZE, &body);
        }
        self.event_fully_written()
    }

    fn begin(&mut self) -> Result<(), WriteError> {
        self.put(&MAGIC);
        self.put(&PIPE_HEADER_SIZE.to_le_bytes());
        let mut attr = self.attr.encode().to_vec();
        attr.extend_from_slice(&EVENT_ID.to_le_bytes());
        self.record(record::HEADER_ATTR, 0, &attr);
        for (bit, payload) in self.early_features() {
            let mut body = u64::from(bit).to_le_bytes().to_vec();
            body.extend_from_slice(&payload);
            // A command line of more than a record would be cut in half.
            if body.len() < usize::from(u16::MAX) - 16 {
                self.record(record::HEADER_FEATURE, 0, &body);
            }
        }
        // Room for the seekable header. Empty rounds are what every reader
        // passes over.
        while (self.pending.len() as u64) < MIN_DATA_AT {
            self.record(record::FINISHED_ROUND, 0, &[]);
        }
        let packer = self.packer.take();
        self.event_fully_written()?;
        self.data_at = self.written;
        self.packer = packer;
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// Appends a record, padded to 8 bytes. Whoever calls has checked that it
    /// fits; one that does not is left out.
    fn record(&mut self, kind: u32, misc_bits: u16, body: &[u8]) {
        let padded = body.len().next_multiple_of(8);
        let Ok(size) = u16::try_from(padded + 8) else { return };
        self.put(&kind.to_le_bytes());
        self.put(&misc_bits.to_le_bytes());
        self.put(&size.to_le_bytes());
        self.put(body);
        self.put(&[0; 8][..padded - body.len()]);
    }

    fn event_fully_written(&mut self) -> Result<(), WriteError> {
        self.last_flush = Instant::now();
        // After half a record nothing more may follow, neither at the end nor on drop.
        if self.failed {
            return Err(WriteError::Ended);
        }
        if let Some(out) = &mut self.out {
            let packed = self.packer.as_mut().map(|packer| packer.pack(&self.pending)).transpose();
            let outcome = packed.and_then(|packed| {
                let bytes = packed.as_ref().unwrap_or(&self.pending);
                self.written += bytes.len() as u64;
                out.write_all(bytes).and_then(|()| out.flush())
            });
            self.pending.clear();
            self.failed = outcome.is_err();
            outcome?;
        }
        Ok(())
    }

    fn flush_when_due(&mut self) -> Result<(), WriteError> {
        if self.pending.len() >= CHUNK || self.last_flush.elapsed() >= MAX_WAIT {
            self.event_fully_written()?;
        }
        Ok(())
    }

    // Events.

    fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        let integrity = sample.stack.integrity;
        if integrity.label.is_excluded() {
            self.lost(&Lost {
                time: sample.time,
                pid: sample.pid,
                tid: sample.tid,
                cpu: sample.cpu,
                stacks: 1,
                label: Some(integrity.label),
            });
            return Ok(());
        }
        let entries = &sample.stack.entries;
        let tsx_known = entries.iter().any(|e| e.in_tx.is_some() || e.abort.is_some());
        let note = StackNote { integrity, source: self.meta.source, tsx_known }.encode();
        // Header, six words, the note with its length, how many entries there are, and
        // behind them the registers.
        let count = entries.iter().filter(|entry| entry.from != 0 || entry.to != 0).count();
        let registers = self.meta.arguments.then(|| registers(sample.arguments));
        let registers = registers.unwrap_or_default();
        let size = 8 + 6 * 8 + 4 + note.len() + 8 + 24 * count + 8 * registers.len();
        let Ok(size) = u16::try_from(size) else {
            return Err(WriteError::StackTooLarge { entries: count });
        };
        let pending = &mut self.pending;
        pending.reserve(size.into());
        pending.extend_from_slice(&record::SAMPLE.to_le_bytes());
        pending.extend_from_slice(&mode(sample.ip).to_le_bytes());
        pending.extend_from_slice(&size.to_le_bytes());
        let task = u64::from(sample.pid) | u64::from(sample.tid) << 32;
        let cpu = u64::from(sample.cpu);
        for word in [EVENT_ID, sample.ip, task, sample.time, cpu, sample.period] {
            pending.extend_from_slice(&word.to_le_bytes());
        }
        pending.extend_from_slice(&(note.len() as u32).to_le_bytes());
        pending.extend_from_slice(&note);
        pending.extend_from_slice(&(count as u64).to_le_bytes());
        put_entries(pending, entries, self.meta.types);
        registers.iter().for_each(|word| pending.extend_from_slice(&word.to_le_bytes()));
        let (first, last) = self.sample_time.unwrap_or((sample.time, sample.time));
        self.sample_time = Some((first.min(sample.time), last.max(sample.time)));
        Ok(())
    }

    fn mmap(&mut self, map: &Mmap) {
        let known = self.files.entry(map.path.clone()).or_default();
        if known.is_none() {
            known.clone_from(&map.build_id);
        }
        let mut body = Vec::new();
        body.extend_from_slice(&map.pid.to_le_bytes());
        body.extend_from_slice(&map.tid.to_le_bytes());
        for value in [map.addr, map.len, map.pgoff] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        body.extend_from_slice(&map.dev.0.to_le_bytes());
        body.extend_from_slice(&map.dev.1.to_le_bytes());
        body.extend_from_slice(&map.ino.to_le_bytes());
        body.extend_from_slice(&map.ino_generation.to_le_bytes());
        body.extend_from_slice(&map.prot.to_le_bytes());
        body.extend_from_slice(&map.flags.to_le_bytes());
        put_text(&mut body, &map.path, 4096);
        put_trailer(&mut body, map.pid, map.tid, map.time, NO_CPU);
        self.record(record::MMAP2, mode(map.addr), &body);
    }

    fn comm(&mut self, comm: &Comm) {
        let mut body = Vec::new();
        body.extend_from_slice(&comm.pid.to_le_bytes());
        body.extend_from_slice(&comm.tid.to_le_bytes());
        put_text(&mut body, &comm.comm, 16);
        put_trailer(&mut body, comm.pid, comm.tid, comm.time, NO_CPU);
        let exec = if comm.exec { misc::COMM_EXEC } else { 0 };
        self.record(record::COMM, exec, &body);
    }

    fn task(&mut self, kind: u32, task: &Task) {
        let mut body = Vec::new();
        for value in [task.pid, task.ppid, task.tid, task.ptid] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        body.extend_from_slice(&task.time.to_le_bytes());
        put_trailer(&mut body, task.pid, task.tid, task.time, NO_CPU);
        self.record(kind, 0, &body);
    }

    fn lost(&mut self, lost: &Lost) {
        let mut body = Vec::new();
        let code = lost.label.map_or(NO_LABEL, label_code);
        let note = u64::from(LOST_NOTE) | u64::from(code) << 32;
        for value in [EVENT_ID, lost.stacks, note] {
            body.extend_from_slice(&value.to_le_bytes());
        }
        put_trailer(&mut body, lost.pid, lost.tid, lost.time, lost.cpu);
        self.record(record::LOST, 0, &body);
    }
}

/// Of no one kind of writer, so that it is compiled here, with all that it calls.
fn put_entries(pending: &mut Vec<u8>, entries: &[BranchEntry], types: bool) {
    for entry in entries.iter().filter(|entry| entry.from != 0 || entry.to != 0) {
        let flags = EntryFlags::of(entry, types);
        let mut bytes = [0; 24];
        let words = [entry.from, entry.to, flags.0];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        pending.extend_from_slice(&bytes);
    }
}

/// `PERF_SAMPLE_REGS_USER`: which kind of program, and the registers in the order
/// of their numbers; where they were not taken, that there are none.
fn registers(arguments: Option<[u64; 6]>) -> Vec<u64> {
    /// `PERF_SAMPLE_REGS_ABI_64`
    const ABI_64: u64 = 2;
    let Some(values) = arguments else { return vec![0] };
    let mut numbered: Vec<(u32, u64)> =
        ARGUMENTS.iter().zip(values).map(|((number, _), value)| (*number, value)).collect();
    numbered.sort_unstable();
    std::iter::once(ABI_64).chain(numbered.into_iter().map(|(_, value)| value)).collect()
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
        self.flush_when_due()
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        if !self.failed {
            // Nobody is left to tell; the file is readable up to here.
            let _ = self.event_fully_written();
        }
    }
}

/// Text with NULs up to a multiple of 8, at most `limit` bytes of it.
fn put_text(body: &mut Vec<u8>, text: &str, limit: usize) {
    let text = text.as_bytes();
    body.extend_from_slice(text.get(..limit - 1).unwrap_or(text));
    body.push(0);
    body.resize(body.len().next_multiple_of(8), 0);
}

/// The mode in which an address ran: readers look for its names accordingly.
const fn mode(addr: u64) -> u16 {
    if addr >> 63 == 0 { misc::USER } else { misc::KERNEL }
}

/// What every record but samples ends with: task, time, CPU, event.
fn put_trailer(body: &mut Vec<u8>, pid: u32, tid: u32, time: u64, cpu: u32) {
    let task = u64::from(pid) | u64::from(tid) << 32;
    for word in [task, time, u64::from(cpu), EVENT_ID] {
        body.extend_from_slice(&word.to_le_bytes());
    }
}
