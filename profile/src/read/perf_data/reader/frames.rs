//! Splits bytes into records, including compressed ones.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{MAX_SECTION, ReadError, Reader};
use crate::read::perf_data::bytes::{Bytes, Order};
use crate::read::perf_data::error::is_damage;
use crate::read::perf_data::layout::record;
use crate::read::perf_data::unpack::{Damaged, Unpacker};

/// The location of a record in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordSpan {
    pub(super) kind: u32,
    pub(super) misc: u16,
    at: usize,
    end: usize,
    pub(super) offset: u64,
    /// Whether it comes from a compressed record.
    pub(super) unpacked: bool,
}

impl RecordSpan {
    /// The record without its header. Takes fields of the reader, so that the caller may change
    /// others.
    pub(super) fn body<'a>(&self, buffer: &'a [u8], unpacker: Option<&'a Unpacker>) -> &'a [u8] {
        match unpacker {
            Some(unpacker) if self.unpacked => unpacker.bytes(self.at, self.end),
            _ => buffer.get(self.at..self.end).unwrap_or_default(),
        }
    }
}

/// Kind, `misc` and size from a record's header.
fn header(bytes: &[u8], order: Order) -> Option<(u32, u16, usize)> {
    let mut bytes = Bytes::new(bytes, order);
    Some((bytes.u32()?, bytes.u16()?, usize::from(bytes.u16()?)))
}

/// Whether the reader must stop.
fn is_set(stop: &Arc<AtomicBool>) -> bool {
    stop.load(Ordering::Relaxed)
}

impl Reader {
    pub(super) fn io(&self, cause: std::io::Error) -> ReadError {
        ReadError::Io { offset: self.offset, cause }
    }

    /// Reads until the buffer holds `len` unread bytes; `false` at the end of the input.
    #[inline]
    pub(super) fn fill(&mut self, len: usize) -> Result<bool, ReadError> {
        if self.end - self.start >= len { Ok(true) } else { self.read_on(len) }
    }

    #[cold]
    fn read_on(&mut self, len: usize) -> Result<bool, ReadError> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < len {
            // Checking once per buffer is enough.
            if self.stop.as_ref().is_some_and(is_set) {
                self.notes.stopped = true;
                return Ok(false);
            }
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.input.read(room) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A truncated or damaged compressed file: the data before is valid.
                Err(e) if is_damage(&e) => {
                    self.notes.cut_at = Some(self.offset);
                    return Ok(false);
                }
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(true)
    }

    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        self.offset += len as u64;
    }

    /// The next record, from a compressed one or from the buffer.
    #[inline(always)]
    pub(super) fn frame(&mut self) -> Result<Option<RecordSpan>, ReadError> {
        if self.done {
            return Ok(None);
        }
        if let Some(frame) = self.unpacked_frame()? {
            return Ok(Some(frame));
        }
        if self.done {
            return Ok(None);
        }
        if self.stop_at.is_some_and(|stop| stop <= self.offset) {
            self.notes.stopped = true;
            return self.finish(false).map(|()| None);
        }
        let left = self.data_end.map(|end| end.saturating_sub(self.offset));
        if left == Some(0) {
            return self.finish(false).map(|()| None);
        }
        if !self.fill(8)? {
            let torn = self.end != self.start || left.is_some();
            return self.finish(torn).map(|()| None);
        }
        let offset = self.offset;
        let unread = self.buffer.get(self.start..self.end).unwrap_or_default();
        let (kind, misc, size) = header(unread, self.order).unwrap_or_default();
        // After a record that is shorter than its header, or exceeds the data, the next one cannot
        // be found.
        if size < 8 || left.is_some_and(|left| left < size as u64) || !self.fill(size)? {
            return self.finish(true).map(|()| None);
        }
        let at = self.start;
        self.consume(size);
        let (at, end) = (at + 8, at + size);
        Ok(Some(RecordSpan { kind, misc, at, end, offset, unpacked: false }))
    }

    /// The next record in the last compressed one; `None` if there is no other whole one.
    #[inline]
    fn unpacked_frame(&mut self) -> Result<Option<RecordSpan>, ReadError> {
        let offset = self.offset;
        let Some(unpacker) = &mut self.unpacker else { return Ok(None) };
        let unread = unpacker.unread();
        let mut found = header(unread, self.order);
        if found.is_none_or(|(_, _, size)| unread.len() < size) {
            // A small compressed buffer may hold gigabytes.
            if self.stop.as_ref().is_some_and(is_set) {
                self.notes.stopped = true;
                return self.finish(false).map(|()| None);
            }
            found = match unpacker.fill(8) {
                Ok(true) => header(unpacker.unread(), self.order),
                Ok(false) => return Ok(None),
                Err(Damaged) => None,
            };
        }
        let whole = match found {
            Some((_, _, size)) if size >= 8 => unpacker.fill(size),
            _ => Err(Damaged),
        };
        match (found, whole) {
            (Some((kind, misc, size)), Ok(true)) => {
                let at = unpacker.advance(size);
                let (at, end) = (at + 8, at + size);
                Ok(Some(RecordSpan { kind, misc, at, end, offset, unpacked: true }))
            }
            (_, Ok(_)) => Ok(None),
            (_, Err(Damaged)) => self.finish(true).map(|()| None),
        }
    }

    /// Passes a compressed record to the decompressor.
    pub(super) fn compressed(&mut self, frame: RecordSpan) -> Result<(), ReadError> {
        if self.unpacker.is_none() {
            let unpacker = Unpacker::new().map_err(|cause| self.io(cause))?;
            self.unpacker = Some(Box::new(unpacker));
        }
        let body = self.buffer.get(frame.at..frame.end).unwrap_or_default();
        let payload = if frame.kind == record::COMPRESSED2 {
            // Its payload is padded, and starts with its length.
            let mut bytes = Bytes::new(body, self.order);
            let len = bytes.u64().and_then(|len| usize::try_from(len).ok());
            len.and_then(|len| bytes.take(len))
        } else {
            Some(body)
        };
        match (payload, &mut self.unpacker) {
            (Some(payload), Some(unpacker)) => unpacker.take(payload),
            _ => return self.finish(true),
        }
        Ok(())
    }

    /// Skips data that follows a record.
    pub(super) fn skip_payload(&mut self, size: Option<u64>) -> Result<(), ReadError> {
        let mut left = size.unwrap_or(0);
        while left > 0 {
            if !self.fill(1)? {
                return self.finish(true);
            }
            let step = usize::try_from(left).unwrap_or(usize::MAX).min(self.end - self.start);
            self.consume(step);
            left -= step as u64;
        }
        Ok(())
    }

    /// The records have ended.
    fn finish(&mut self, cut: bool) -> Result<(), ReadError> {
        self.done = true;
        if self.notes.stopped {
            return Ok(());
        }
        let leftover = self.unpacker.as_ref().is_some_and(|packed| !packed.unread().is_empty());
        if cut || leftover {
            self.notes.cut_at = Some(self.offset);
            return Ok(());
        }
        if let Some(bits) = self.late_features.take() {
            let table_at = self.offset;
            let mut tail = self.buffer.get(self.start..self.end).unwrap_or_default().to_vec();
            let mut more = Vec::new();
            // All records were read; unreadable features are ignored.
            let read = (&mut self.input).take(MAX_SECTION).read_to_end(&mut more);
            read.map(drop).or_else(|e| if is_damage(&e) { Ok(()) } else { Err(self.io(e)) })?;
            tail.append(&mut more);
            self.features(bits, &tail, |_, at, size| {
                let at = usize::try_from(at.checked_sub(table_at)?).ok()?;
                let end = at.checked_add(usize::try_from(size).ok()?)?;
                Some(tail.get(at..end)?.to_vec())
            });
        }
        Ok(())
    }
}
