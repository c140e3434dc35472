//! Records as they stand in a file, for a copy of some of them. The copy has the
//! form of a pipe: nothing in it says how long it will be, and what a file says
//! at its end or its begin becomes records.

use lbr_msr::record::Head;

use super::Reader;
use super::frames::Frame;
use crate::read::note::{HEAD_AT, head_code};
use crate::read::perf_data::bytes::{Bytes, Order};
use crate::read::perf_data::layout::{MAGIC, MAGIC_BIG, PIPE_HEADER_SIZE, feature, record};

/// A feature that does not fit a record is left out.
const LARGEST: usize = u16::MAX as usize - 16;

/// What the copy is made of that the reader does not pass by again.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// Attributes, as records.
    attrs: Vec<u8>,
    /// Features, by bit.
    features: Vec<(u8, Vec<u8>)>,
    /// Records are kept until they are asked for.
    on: bool,
    /// Samples are left out: first and last may be others.
    is_part: bool,
    /// Those that are no samples.
    records: Vec<u8>,
    /// Where the last of them begins.
    last: usize,
    /// The sample at hand, and where the stack note begins in its body.
    sample: Option<(Frame, Option<usize>)>,
}

impl Copied {
    /// An attribute with the numbers of its event.
    pub(super) fn attr(&mut self, order: Order, attr: &[u8], ids: &[u8]) {
        put(&mut self.attrs, order, (record::HEADER_ATTR, 0), &[attr, ids]);
    }

    /// A feature of a file.
    pub(super) fn feature(&mut self, bit: u8, payload: &[u8]) {
        if is_copied(bit) && payload.len() <= LARGEST {
            self.features.push((bit, payload.to_vec()));
        }
    }

    /// A sample that is handed out.
    #[inline]
    pub(super) fn sample(&mut self, frame: Frame, note_at: Option<usize>) {
        if self.on {
            self.sample = Some((frame, note_at));
        }
    }

    /// Anything else, as it comes.
    #[inline]
    pub(super) fn other(&mut self, frame: Frame, body: &[u8], order: Order) {
        if self.on && stays(frame.kind, body, order) {
            self.sample = None;
            self.last = self.records.len();
            put(&mut self.records, order, (frame.kind, frame.misc), &[body]);
        }
    }
}

/// Whether a feature stays true of a copy, and whole behind the bytes that pad
/// a record: build ids, host, CPU, command line, events, units and groups of
/// events, times, clocks.
const fn is_copied(bit: u8) -> bool {
    matches!(bit, 2..=12 | 16 | 17 | feature::SAMPLE_TIME | 23 | 29)
}

/// Whether a record stays as it is: what is compressed comes unpacked, and of
/// trace data only the records would be left.
fn stays(kind: u32, body: &[u8], order: Order) -> bool {
    match kind {
        record::COMPRESSED | record::COMPRESSED2 | record::TRACING_DATA => false,
        // AUXTRACE_INFO to AUXTRACE_ERROR.
        70..=72 => false,
        record::HEADER_FEATURE => {
            let bit = Bytes::new(body, order).u64().and_then(|bit| u8::try_from(bit).ok());
            bit.is_some_and(is_copied)
        }
        _ => true,
    }
}

/// Appends a record, padded to 8 bytes; one that is too long is left out.
fn put(to: &mut Vec<u8>, order: Order, (kind, misc): (u32, u16), parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let Ok(size) = u16::try_from(len.next_multiple_of(8) + 8) else { return };
    // The two orders are each other's mirror.
    to.extend_from_slice(&order.u32(kind.to_ne_bytes()).to_ne_bytes());
    to.extend_from_slice(&order.u16(misc.to_ne_bytes()).to_ne_bytes());
    to.extend_from_slice(&order.u16(size.to_ne_bytes()).to_ne_bytes());
    parts.iter().for_each(|part| to.extend_from_slice(part));
    to.resize(to.len() + len.next_multiple_of(8) - len, 0);
}

impl Reader {
    /// From now on keeps the records that it passes. Appends what stands before
    /// them in a copy.
    pub(crate) fn begin_copy(&mut self, is_part: bool, to: &mut Vec<u8>) {
        (self.copied.on, self.copied.is_part) = (true, is_part);
        to.extend_from_slice(match self.order {
            Order::Little => &MAGIC,
            Order::Big => &MAGIC_BIG,
        });
        to.extend_from_slice(&self.order.u64(PIPE_HEADER_SIZE.to_ne_bytes()).to_ne_bytes());
        to.append(&mut self.copied.attrs);
        self.copy_features(to);
    }

    /// Appends what was passed since the last call and is no sample; the event at
    /// hand only if it is kept.
    pub(crate) fn copy_others(&mut self, keep_last: bool, to: &mut Vec<u8>) {
        let copied = &mut self.copied;
        if copied.sample.is_none() && !keep_last {
            copied.records.truncate(copied.last);
        }
        to.append(&mut copied.records);
        copied.last = 0;
        self.copy_features(to);
    }

    /// Appends the sample at hand, whose stack joins to the one before as `head`
    /// says: what came before it may be missing in the copy.
    pub(crate) fn copy_sample(&mut self, head: Head, to: &mut Vec<u8>) {
        let Some((frame, note_at)) = self.copied.sample.take() else { return };
        let begin = to.len() + 8;
        let body = frame.body(&self.buffer, self.unpacker.as_deref());
        put(to, self.order, (frame.kind, frame.misc), &[body]);
        let of_note = note_at.and_then(|at| to.get_mut(begin + at + HEAD_AT));
        of_note.into_iter().for_each(|code| *code = head_code(head));
    }

    /// Appends the features that a file has said so far: some say them at their
    /// end.
    fn copy_features(&mut self, to: &mut Vec<u8>) {
        let order = self.order;
        for (bit, payload) in std::mem::take(&mut self.copied.features) {
            if bit == feature::SAMPLE_TIME && self.copied.is_part {
                continue;
            }
            if bit != feature::BUILD_ID {
                let number = order.u64(u64::from(bit).to_ne_bytes()).to_ne_bytes();
                put(to, order, (record::HEADER_FEATURE, 0), &[&number, &payload]);
                continue;
            }
            let mut bytes = Bytes::new(&payload, order);
            while let (Some(_), Some(misc), Some(size)) = (bytes.u32(), bytes.u16(), bytes.u16()) {
                let Some(body) = usize::from(size).checked_sub(8).and_then(|len| bytes.take(len))
                else {
                    break;
                };
                put(to, order, (record::BUILD_ID, misc), &[body]);
            }
        }
    }
}
