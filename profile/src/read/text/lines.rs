//! The lines of a stream, where they lie in a buffer.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::read::perf_data::ReadError;
use crate::read::perf_data::error::is_damage;

/// No sensible line is longer: 2,700 entries take 200 KB.
const MAX_LINE: usize = 1 << 20;
/// A line that has no end within so many bytes has none: nothing follows it.
pub const ENDLESS: u64 = 1 << 26;
/// Bytes asked for at a time. Fuzzing reads many short texts, and meets ends of
/// the buffer more often with a short one.
const CHUNK: usize = if cfg!(fuzzing) { 1 << 10 } else { 256 * 1024 };
/// Bytes that are looked at before the first line is read.
const HEAD: usize = 64 * 1024;

/// Lines being read.
pub(super) struct Lines {
    input: Box<dyn Read>,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// Offset in the text of `start`.
    pub(super) position: u64,
    /// Bytes of the whole, where that is known.
    pub(super) size: Option<u64>,
    /// Number of the last line that was passed, counted from 1.
    pub(super) number: u64,
    /// Nothing comes behind what is in the buffer.
    ended: bool,
    /// Where the text ends before its end: a compressed file that was cut, or a
    /// line without end.
    pub(super) cut_at: Option<u64>,
    pub(super) stop: Option<Arc<AtomicBool>>,
    /// Lines from this offset on are left out.
    pub(super) stop_at: Option<u64>,
    /// It was ended before its end.
    pub(super) stopped: bool,
}

/// What comes next.
pub(super) enum Next {
    /// A line of so many bytes, its end among them.
    Line(usize),
    /// A line that is longer than any sensible one. It was passed.
    TooLong,
    /// Nothing.
    End,
}

impl Lines {
    pub(super) fn new(input: Box<dyn Read>, size: Option<u64>) -> Lines {
        Lines {
            input,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            position: 0,
            size,
            number: 0,
            ended: false,
            cut_at: None,
            stop: None,
            stop_at: None,
            stopped: false,
        }
    }

    /// What was read and not passed.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The whole lines at the beginning, as far as they are looked at before
    /// any is read.
    pub(super) fn head(&mut self) -> Result<&[u8], ReadError> {
        while self.end - self.start < HEAD && !self.is_stop_asked() && self.more()? {}
        let unread = self.unread();
        let whole = if self.ended { Some(unread.len()) } else { None };
        let end = whole.or(memchr::memrchr(b'\n', unread).map(|at| at + 1)).unwrap_or_default();
        Ok(unread.get(..end).unwrap_or_default())
    }

    /// Whether the text is to end here.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        let over = self.stop_at.is_some_and(|stop| stop <= self.position);
        self.stopped |= over;
        over
    }

    /// A line was read.
    #[inline]
    pub(super) fn pass(&mut self, len: usize) {
        self.number += 1;
        self.start += len;
        self.position += len as u64;
    }

    /// The next line, whose first `seen` bytes have no end in them.
    pub(super) fn next(&mut self, mut seen: usize) -> Result<Next, ReadError> {
        loop {
            let unread = self.unread();
            let found = memchr::memchr(b'\n', unread.get(seen..).unwrap_or_default());
            if let Some(at) = found {
                return Ok(Next::Line(seen + at + 1));
            }
            seen = unread.len();
            if seen >= MAX_LINE {
                self.pass(seen);
                self.skip()?;
                return Ok(Next::TooLong);
            }
            if !self.more()? {
                return Ok(match self.unread().len() {
                    0 => Next::End,
                    // Half a line says nothing.
                    _ if self.stopped || self.cut_at.is_some() || self.stop_at.is_some() => {
                        Next::End
                    }
                    len => Next::Line(len),
                });
            }
        }
    }

    /// Passes over the rest of a line.
    fn skip(&mut self) -> Result<(), ReadError> {
        let most = self.position.saturating_add(ENDLESS);
        loop {
            let found = memchr::memchr(b'\n', self.unread());
            let len = found.map_or(self.unread().len(), |at| at + 1);
            self.start += len;
            self.position += len as u64;
            if self.position > most && found.is_none() {
                self.cut_at = Some(self.position);
                self.ended = true;
            }
            if found.is_some() || !self.more()? {
                return Ok(());
            }
        }
    }

    fn is_stop_asked(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Reads on; `false` at the end.
    fn more(&mut self) -> Result<bool, ReadError> {
        self.stopped |= self.is_stop_asked();
        if self.stopped || self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + CHUNK / 2 {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        loop {
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.input.read(room) {
                Ok(read) => {
                    self.end += read;
                    self.ended = read == 0;
                    return Ok(read > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A compressed file that was cut or damaged: what came before is sound.
                Err(e) if is_damage(&e) => {
                    self.cut_at = Some(self.position + self.end as u64);
                    self.ended = true;
                    return Ok(false);
                }
                Err(cause) => {
                    let offset = self.position + self.end as u64;
                    return Err(ReadError::Io { offset, cause });
                }
            }
        }
    }
}
