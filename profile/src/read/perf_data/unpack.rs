//! Compressed records (`perf record -z`): one zstd stream split into records, which decompresses to
//! records that may cross the splits.

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// As the reader's own buffer: records are at most 65,535 bytes.
const BUFFER: usize = 256 * 1024;
/// perf compresses with windows of at most 8 MiB (zstd level 22: 128 MiB). Larger windows are
/// refused, so that memory use never follows a claim.
const WINDOW_LOG: u32 = 27;

/// The stream is damaged: the rest is unreadable.
#[derive(Debug)]
pub(super) struct Damaged;

/// Decompresses records.
pub(super) struct Unpacker {
    decoder: Decoder<'static>,
    /// Compressed bytes not yet processed.
    packed: Vec<u8>,
    taken: usize,
    buffer: Vec<u8>,
    /// Start of the unread part of the buffer.
    start: usize,
    end: usize,
    /// The last output filled its buffer: there may be more without further input.
    full: bool,
}

impl Unpacker {
    /// Fails if zstd is out of memory.
    pub(super) fn new() -> std::io::Result<Unpacker> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        let (packed, buffer) = (Vec::new(), vec![0; BUFFER]);
        Ok(Unpacker { decoder, packed, taken: 0, buffer, start: 0, end: 0, full: false })
    }

    /// Adds the payload of a compressed record. Earlier data must have been consumed.
    pub(super) fn take(&mut self, payload: &[u8]) {
        self.packed.clear();
        self.packed.extend_from_slice(payload);
        self.taken = 0;
    }

    /// The decompressed bytes not yet consumed.
    pub(super) fn unread(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The decompressed bytes at a position returned by [`advance`](Self::advance).
    pub(super) fn bytes(&self, at: usize, end: usize) -> &[u8] {
        self.buffer.get(at..end).unwrap_or_default()
    }

    /// Consumes `len` bytes and returns their position.
    pub(super) fn advance(&mut self, len: usize) -> usize {
        let at = self.start;
        self.start = (self.start + len).min(self.end);
        at
    }

    /// Decompresses until `len` bytes are unread; `false` if the current record has no more.
    pub(super) fn fill(&mut self, len: usize) -> Result<bool, Damaged> {
        while self.end - self.start < len {
            if self.taken == self.packed.len() && !self.full {
                return Ok(false);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let mut input = InBuffer::around(self.packed.get(self.taken..).unwrap_or_default());
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            let size = room.len();
            let mut output = OutBuffer::around(room);
            self.decoder.run(&mut input, &mut output).map_err(|_| Damaged)?;
            let (read, written) = (input.pos(), output.pos());
            self.taken += read;
            self.end += written;
            self.full = written == size;
        }
        Ok(true)
    }
}
