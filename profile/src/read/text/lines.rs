//! The lines of a stream, in place in a buffer.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ahead::{Ahead, CHUNK, Piece};
use crate::read::perf_data::ReadError;
use crate::read::perf_data::error::is_damage;
use crate::read::stack::RawBranch;

/// Longest sensible line: 2,700 entries take 200 KB.
const MAX_LINE: usize = 1 << 20;
/// A line longer than this is assumed to be endless.
pub const ENDLESS: u64 = 1 << 26;
/// Bytes examined before the first line.
const HEAD: usize = 64 * 1024;

/// A line reader.
#[derive(Default)]
pub(crate) struct Lines {
    /// Taken by `ahead`.
    input: Option<Box<dyn Read + Send>>,
    /// The reader with several threads, and its parsed parts of the buffer: where each piece starts
    /// in the text, and how many of its lines were passed.
    ahead: Option<Ahead>,
    pieces: VecDeque<(u64, usize, Piece)>,
    buffer: Vec<u8>,
    /// Start of the unread part of the buffer.
    start: usize,
    end: usize,
    /// Text offset of `start`.
    pub(crate) position: u64,
    /// Total size in bytes, if known.
    pub(crate) size: Option<u64>,
    /// Number of the last line passed, from 1.
    pub(super) number: u64,
    /// There is no further input after the buffer.
    ended: bool,
    /// Where the text ends early: a truncated compressed file, or an endless line.
    pub(super) cut_at: Option<u64>,
    /// Reading stops as soon as this is set.
    pub(crate) stop: Option<Arc<AtomicBool>>,
    /// Lines from this offset on are ignored.
    pub(crate) stop_at: Option<u64>,
    /// Whether reading was stopped early.
    pub(super) stopped: bool,
}

/// The next item.
pub(super) enum Next {
    /// A line of this length, including its end.
    Line(usize),
    /// A line longer than any sensible one, which was skipped.
    TooLong,
    /// The end.
    End,
}

impl Lines {
    pub(super) fn new(input: Box<dyn Read + Send>, size: Option<u64>) -> Lines {
        Lines { input: Some(input), buffer: vec![0; CHUNK], size, ..Lines::default() }
    }

    /// Parses the input in `threads` threads.
    pub(crate) fn read_ahead(&mut self, threads: usize) {
        self.ahead = self.input.take().map(|input| Ahead::new(input, threads));
    }

    /// The entries of the next line, if it contains branches only and was parsed ahead. Returns
    /// their length in bytes, else 0.
    #[inline]
    pub(super) fn parsed(&mut self, entries: &mut Vec<RawBranch>) -> usize {
        while let Some((base, passed, piece)) = self.pieces.front_mut() {
            while let Some(&(start, begun, end)) = piece.lines.get(*passed) {
                let start = *base + start as u64;
                if start > self.position {
                    return 0;
                }
                let before = passed.checked_sub(1).and_then(|before| piece.lines.get(before));
                *passed += 1;
                if start == self.position {
                    let all = before.map_or(0, |before| before.2)..end;
                    entries.clear();
                    entries.extend_from_slice(piece.entries.get(all).unwrap_or_default());
                    return begun;
                }
            }
            let piece = self.pieces.pop_front();
            if let Some((ahead, (_, _, piece))) = self.ahead.as_mut().zip(piece) {
                ahead.give_back(piece);
            }
        }
        0
    }

    /// The bytes read but not passed.
    #[inline]
    pub(super) fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The whole lines at the start, as examined before reading.
    pub(super) fn head(&mut self) -> Result<&[u8], ReadError> {
        while self.end - self.start < HEAD && self.more()? {}
        let unread = self.unread();
        let whole = if self.ended { Some(unread.len()) } else { None };
        let end = whole.or(memchr::memrchr(b'\n', unread).map(|at| at + 1)).unwrap_or_default();
        Ok(unread.get(..end).unwrap_or_default())
    }

    /// Whether reading must stop here.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        let over = self.stop_at.is_some_and(|stop| stop <= self.position);
        self.stopped |= over;
        over
    }

    /// Marks a line as read.
    #[inline]
    pub(super) fn pass(&mut self, len: usize) {
        self.number += 1;
        self.start += len;
        self.position += len as u64;
    }

    /// The next line; its first `seen` bytes contain no line end.
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
                    // A partial line is dropped.
                    _ if self.stopped || self.cut_at.is_some() || self.stop_at.is_some() => {
                        Next::End
                    }
                    len => Next::Line(len),
                });
            }
        }
    }

    /// Skips the rest of a line.
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

    /// Reads more input after the buffer's contents; returns the number of bytes.
    fn read(&mut self) -> std::io::Result<usize> {
        let Some(ahead) = &mut self.ahead else {
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            return self.input.as_mut().map_or(Ok(0), |input| input.read(room));
        };
        let Some(mut piece) = ahead.next()? else { return Ok(0) };
        let len = piece.bytes.len();
        if self.end == 0 {
            std::mem::swap(&mut self.buffer, &mut piece.bytes);
        } else {
            self.buffer.truncate(self.end);
            self.buffer.extend_from_slice(&piece.bytes);
        }
        self.pieces.push_back((self.position + self.end as u64, 0, piece));
        Ok(len)
    }

    /// Reads more; `false` at the end.
    fn more(&mut self) -> Result<bool, ReadError> {
        self.stopped |= self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed));
        if self.stopped || self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.ahead.is_none() && self.buffer.len() < self.end + CHUNK / 2 {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        loop {
            match self.read() {
                Ok(read) => {
                    self.end += read;
                    self.ended = read == 0;
                    return Ok(read > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A truncated or damaged compressed file: the data before is valid.
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
