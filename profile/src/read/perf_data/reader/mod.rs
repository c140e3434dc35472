//! The streaming reader.
//!
//! One buffer of fixed size; records are processed in place. Sizes and counts claimed by a file are
//! checked against the actual data first, so that memory use never follows a claim.

mod copy;
mod frames;
mod header;
mod steps;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lbr_msr::record::Event;

use self::copy::Copied;
use self::frames::RecordSpan;
use super::attr::EventAttr;
use super::bytes::{Bytes, Order};
use super::error::{Notes, ReadError};
use super::features::FileInfo;
use super::layout::record;
use super::sample::SampleLayout;
use super::side;
use super::unpack::Unpacker;

/// Records are at most 65,535 bytes, so this always holds a whole one. A larger buffer would move
/// more data between CPU caches whenever another thread continues reading.
const BUFFER: usize = 64 * 1024;
/// More than any header section or feature of a valid file.
const MAX_SECTION: u64 = 16 << 20;
/// More events than any recording has; further ones are unknown.
const MAX_EVENTS: usize = 1 << 12;
/// More ids than any recording has: one for each event and CPU.
const MAX_IDS: usize = 1 << 21;

pub(crate) enum Input {
    /// Header features are read before the first record.
    File(File),
    /// Such as standard input. It may hold a seekable file; then header features come after the
    /// last record.
    Stream(Box<dyn Read + Send>),
}

impl Default for Input {
    fn default() -> Input {
        Input::Stream(Box::new(std::io::empty()))
    }
}

impl Read for Input {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Input::File(file) => file.read(buf),
            Input::Stream(stream) => stream.read(buf),
        }
    }
}

/// A recording being read.
#[derive(Default)]
pub(crate) struct Reader {
    input: Input,
    order: Order,
    buffer: Vec<u8>,
    /// Start of the unread part of the buffer.
    start: usize,
    end: usize,
    /// File offset of `start`: the bytes read so far.
    pub(crate) offset: u64,
    /// File offset of the end of the records; `None` for a pipe.
    data_end: Option<u64>,
    /// Feature table of an unseekable file: read after the records, event names included.
    pub(crate) late_features: Option<[u64; 4]>,
    /// Size of the file in bytes, if known.
    pub(crate) size: Option<u64>,
    /// Complete after the last record.
    pub(crate) events: Vec<EventAttr>,
    layouts: Vec<SampleLayout>,
    by_id: HashMap<u64, usize>,
    /// Offset of the id in a sample, and from the end of other records.
    id_in_sample: Option<usize>,
    id_from_end: Option<usize>,
    /// Complete after the last record.
    pub(crate) info: FileInfo,
    pub(crate) notes: Notes,
    done: bool,
    /// Number of rounds that the recorder has finished.
    round: u32,
    /// Created for the first compressed record.
    unpacker: Option<Box<Unpacker>>,
    /// Reading stops as soon as this is set; `notes` then reports it.
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// Records from this offset on are ignored; `notes` then reports it.
    pub(crate) stop_at: Option<u64>,
    copied: Copied,
}

impl Reader {
    /// Reads an input from its start; `size` is that of a file.
    pub(crate) fn new(input: Input, size: Option<u64>) -> Result<Reader, ReadError> {
        let mut reader = Reader { input, buffer: vec![0; BUFFER], size, ..Reader::default() };
        reader.read_header()?;
        Ok(reader)
    }

    fn body(&self, frame: RecordSpan) -> &[u8] {
        frame.body(&self.buffer, self.unpacker.as_deref())
    }

    fn malformed(&mut self, frame: RecordSpan) {
        self.notes.malformed += 1;
        self.notes.first_malformed.get_or_insert(frame.offset);
    }

    /// The event of a sample; `None` to skip it.
    #[inline(always)]
    fn event_of_sample(&mut self, frame: RecordSpan) -> Result<Option<usize>, ReadError> {
        self.require_branches()?;
        let event = match self.id_in_sample {
            None => Some(0),
            Some(at) => match super::bytes::u64_at(self.body(frame), at, self.order) {
                Some(0) => Some(0),
                Some(id) => self.by_id.get(&id).copied(),
                None => {
                    self.malformed(frame);
                    return Ok(None);
                }
            },
        };
        match event.and_then(|index| Some((index, self.events.get(index)?))) {
            Some((index, attr)) => Ok(attr.has_branches().then_some(index)),
            None => {
                self.notes.unknown_event += 1;
                Ok(None)
            }
        }
    }

    /// The event whose fields end a record other than a sample. Records that perf synthesized have
    /// id 0 and the first event's fields.
    fn event_of_other(&self, body: &[u8]) -> Option<&EventAttr> {
        let id = self
            .id_from_end
            .and_then(|back| super::bytes::u64_at(body, body.len().checked_sub(back)?, self.order));
        let named = id.and_then(|id| self.events.get(*self.by_id.get(&id)?));
        named.or(self.events.first())
    }

    fn require_branches(&self) -> Result<(), ReadError> {
        if self.events.iter().any(EventAttr::has_branches) {
            return Ok(());
        }
        let mut names: Vec<String> = self.events.iter().filter_map(|e| e.name.clone()).collect();
        match self.events.len() - names.len() {
            0 if names.is_empty() => names.push("none".to_owned()),
            0 => {}
            count => names.push(format!("{count} unnamed")),
        }
        Err(ReadError::NoBranchStacks(names.join(", ")))
    }

    /// Parses a record other than a sample.
    fn other(&mut self, frame: RecordSpan) -> Result<Option<Event>, ReadError> {
        let order = self.order;
        match frame.kind {
            record::HEADER_ATTR => self.header_attr(frame),
            record::HEADER_FEATURE => self.header_feature(frame),
            record::BUILD_ID => {
                let body = frame.body(&self.buffer, self.unpacker.as_deref());
                self.copied.build_id(order, frame.misc, body);
                self.info.take_build_id(frame.misc, body, order);
            }
            record::COMPRESSED | record::COMPRESSED2 if !frame.unpacked => {
                self.compressed(frame)?;
            }
            record::AUXTRACE if !frame.unpacked => {
                let size = Bytes::new(self.body(frame), order).u64();
                self.skip_payload(size)?;
            }
            record::TRACING_DATA if !frame.unpacked => {
                let size = Bytes::new(self.body(frame), order).u32();
                self.skip_payload(size.map(|size| u64::from(size).next_multiple_of(8)))?;
            }
            record::FINISHED_ROUND => self.round = self.round.wrapping_add(1),
            record::MMAP
            | record::MMAP2
            | record::COMM
            | record::FORK
            | record::EXIT
            | record::LOST
            | record::LOST_SAMPLES => {
                let (kind, misc, body) = (frame.kind, frame.misc, self.body(frame));
                let event = side::read(kind, misc, body, self.event_of_other(body), order);
                if event.is_none() {
                    self.malformed(frame);
                }
                return Ok(event);
            }
            _ => {}
        }
        Ok(None)
    }
}
