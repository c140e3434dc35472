//! Copies selected records of a file. A seekable copy has perf's file layout: attributes, records,
//! features. Otherwise the copy has the pipe format, in which attributes and features are records
//! too.

use std::collections::BTreeMap;

use lbr_msr::record::Head;

use super::Reader;
use super::frames::RecordSpan;
use crate::read::note::{HEAD_AT, HEADS, code};
use object::Endian;

use crate::read::perf_data::bytes::{Bytes, Order, put, put_words, u64_at};
use crate::read::perf_data::features::{feature_sections, next_record};
use crate::read::perf_data::layout::{
    HEADER_SIZE, MAGIC, MAGIC_BIG, PIPE_HEADER_SIZE, feature, record,
};

/// The parts of a copy that the reader passes only once.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Attributes, each with the ids of its event.
    attrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Features, by bit.
    features: BTreeMap<u8, Vec<u8>>,
    /// Whether records must be kept.
    on: bool,
    /// Whether samples are dropped, so that the first and last may differ.
    is_part: bool,
    /// The header of a seekable copy, as far as known.
    header: Option<Vec<u8>>,
    /// The records other than samples.
    records: Vec<u8>,
    /// Start of the last of them.
    last: usize,
    /// The current sample, and the offset of the stack note in its body.
    sample: Option<(RecordSpan, Option<usize>)>,
}

impl Copied {
    /// Adds an attribute with its event's ids.
    pub(super) fn attr(&mut self, attr: &[u8], ids: &[u8]) {
        self.attrs.push((attr.to_vec(), ids.to_vec()));
    }

    /// Adds a feature, except those for trace data or compression, which are not copied.
    pub(super) fn feature(&mut self, bit: u8, payload: &[u8]) {
        if !matches!(bit, 1 | 18 | 19 | 24 | feature::COMPRESSED) {
            self.features.insert(bit, payload.to_vec());
        }
    }

    /// The features since the last call.
    fn features(&mut self) -> BTreeMap<u8, Vec<u8>> {
        let mut features = std::mem::take(&mut self.features);
        if self.is_part {
            features.remove(&feature::SAMPLE_TIME);
        }
        features
    }

    /// Adds a build ID record.
    pub(super) fn build_id(&mut self, order: Order, misc: u16, body: &[u8]) {
        let ids = self.features.entry(feature::BUILD_ID).or_default();
        put(ids, order, (record::BUILD_ID, misc), &[body]);
    }

    /// Sets the current sample.
    #[inline]
    pub(super) fn sample(&mut self, frame: RecordSpan, note_at: Option<usize>) {
        if self.on {
            self.sample = Some((frame, note_at));
        }
    }

    /// Adds any other record.
    #[inline]
    pub(super) fn other(&mut self, frame: RecordSpan, body: &[u8], order: Order) {
        if self.on && stays(frame.kind) {
            self.sample = None;
            self.last = self.records.len();
            put(&mut self.records, order, (frame.kind, frame.misc), &[body]);
        }
    }
}

/// Whether a feature remains valid with a record's padding: host, CPU, command line, events,
/// units and groups of events, times, clocks.
const fn fits_record(bit: u8) -> bool {
    matches!(bit, 3..=12 | 16 | 17 | feature::SAMPLE_TIME | 23 | 29)
}

/// Whether a record is copied as it is: compressed ones are copied uncompressed, trace data is
/// dropped, and attributes and features are handled separately.
const fn stays(kind: u32) -> bool {
    // 70 to 72 are AUXTRACE_INFO to AUXTRACE_ERROR.
    !matches!(
        kind,
        record::HEADER_ATTR
            | record::HEADER_FEATURE
            | record::BUILD_ID
            | record::COMPRESSED
            | record::COMPRESSED2
            | record::TRACING_DATA
            | 70..=72
    )
}

impl Reader {
    /// Starts keeping records for a copy, seekable or not.
    pub(crate) fn begin_copy(&mut self, seekable: bool, is_part: bool) {
        self.copied.on = true;
        self.copied.is_part = is_part;
        self.copied.header = seekable.then(Vec::new);
    }

    /// The start of the copy, before its records. All attributes precede the first sample.
    pub(crate) fn copy_head(&mut self) -> Vec<u8> {
        let order = self.order;
        let attrs = std::mem::take(&mut self.copied.attrs);
        let magic = if order == Order::Little { MAGIC } else { MAGIC_BIG };
        let mut head = magic.to_vec();
        let Some(header) = &mut self.copied.header else {
            put_words(&mut head, order, &[PIPE_HEADER_SIZE]);
            for (attr, ids) in &attrs {
                put(&mut head, order, (record::HEADER_ATTR, 0), &[attr, ids]);
            }
            self.copy_features(&mut head);
            return head;
        };
        // Attributes of equal length, each with the position of its ids.
        let length = attrs.iter().map(|(attr, _)| attr.len()).max().unwrap_or(0);
        let length = length.next_multiple_of(8);
        let (mut table, mut numbers) = (Vec::new(), Vec::new());
        let table_size = attrs.len() * (length + 16);
        for (attr, ids) in &attrs {
            let at = table.len();
            table.extend_from_slice(attr);
            table.resize(at + length, 0);
            let size = order.write_u32(length as u32);
            table.iter_mut().skip(at + 4).zip(size).for_each(|(byte, of)| *byte = of);
            let ids_at = HEADER_SIZE + (table_size + numbers.len()) as u64;
            put_words(&mut table, order, &[ids_at, ids.len() as u64]);
            numbers.extend_from_slice(ids);
        }
        let data_at = HEADER_SIZE + (table_size + numbers.len()) as u64;
        let (each, size) = ((length + 16) as u64, table_size as u64);
        put_words(&mut head, order, &[HEADER_SIZE, each, HEADER_SIZE, size, data_at]);
        header.clone_from(&head);
        head.resize(HEADER_SIZE as usize, 0);
        head.append(&mut table);
        head.append(&mut numbers);
        head
    }

    /// The end of the copy after its records, and the header that a seekable copy needs at its
    /// start; `written` is the copy's length so far.
    pub(crate) fn copy_tail(&mut self, written: u64) -> (Vec<u8>, Vec<u8>) {
        let order = self.order;
        let Some(mut header) = self.copied.header.take() else {
            let mut tail = Vec::new();
            self.copy_features(&mut tail);
            return (tail, Vec::new());
        };
        let (bits, tail) = feature_sections(self.copied.features().iter(), order, written);
        let data_at = header.len().checked_sub(8).and_then(|at| u64_at(&header, at, order));
        let size = written.saturating_sub(data_at.unwrap_or(0));
        // Without event types, which ended with Linux 3.0.
        put_words(&mut header, order, &[size, 0, 0]);
        put_words(&mut header, order, &bits);
        (tail, header)
    }

    /// Appends the records other than samples since the last call; the current event only if it is
    /// kept.
    pub(crate) fn copy_others(&mut self, keep_last: bool, to: &mut Vec<u8>) {
        let copied = &mut self.copied;
        if copied.sample.is_none() && !keep_last {
            copied.records.truncate(copied.last);
        }
        to.append(&mut copied.records);
    }

    /// Appends the current sample. `head` is its continuity, because earlier stacks may be missing
    /// in the copy.
    pub(crate) fn copy_sample(&mut self, head: Head, to: &mut Vec<u8>) {
        let Some((frame, note_at)) = self.copied.sample.take() else { return };
        let begin = to.len() + 8;
        let body = frame.body(&self.buffer, self.unpacker.as_deref());
        put(to, self.order, (frame.kind, frame.misc), &[body]);
        let of_note = note_at.and_then(|at| to.get_mut(begin + at + HEAD_AT));
        of_note.into_iter().for_each(|byte| *byte = code(&HEADS, head));
    }

    /// Appends the features read so far as records: some files have them at the end. Drops those
    /// that do not fit.
    fn copy_features(&mut self, to: &mut Vec<u8>) {
        let order = self.order;
        for (bit, payload) in self.copied.features() {
            if bit != feature::BUILD_ID {
                let number = order.write_u64(bit.into());
                if fits_record(bit) {
                    put(to, order, (record::HEADER_FEATURE, 0), &[&number, &payload]);
                }
                continue;
            }
            let mut bytes = Bytes::new(&payload, order);
            while let Some((misc, body)) = next_record(&mut bytes) {
                put(to, order, (record::BUILD_ID, misc), &[body]);
            }
        }
    }
}
