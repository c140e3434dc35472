//! Compressed records, as `perf record -z` writes them: one zstd stream, flushed at the end of each
//! record.

use std::io;

use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

use crate::read::perf_data::layout::record;

/// Input size of one record. zstd adds at most 1/128 and a few bytes, so it always fits.
pub(super) const PIECE: usize = 60_000;
/// Maximum contents of a record.
const MOST: usize = 65_535 - 8;

/// Compresses records.
pub(super) struct Packer {
    encoder: Encoder<'static>,
    level: i32,
    /// Bytes before and after compression.
    taken: u64,
    made: u64,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Packer {
    pub(super) fn new(level: i32) -> io::Result<Packer> {
        Ok(Packer { encoder: Encoder::new(level)?, level, taken: 0, made: 0 })
    }

    /// Compresses whole records.
    pub(super) fn pack(&mut self, records: &[u8]) -> io::Result<Vec<u8>> {
        let mut packed = Vec::with_capacity(records.len() / 4);
        let mut space = vec![0; MOST];
        for piece in records.chunks(PIECE) {
            let mut output = OutBuffer::around(space.as_mut_slice());
            let mut input = InBuffer::around(piece);
            self.encoder.run(&mut input, &mut output)?;
            let left = self.encoder.flush(&mut output)?;
            if input.pos() != piece.len() || left != 0 {
                return Err(io::Error::other("zstd output exceeds its limit"));
            }
            let payload = output.as_slice();
            packed.extend_from_slice(&record::COMPRESSED.to_le_bytes());
            packed.extend_from_slice(&0u16.to_le_bytes());
            packed.extend_from_slice(&(payload.len() as u16 + 8).to_le_bytes());
            packed.extend_from_slice(payload);
        }
        self.taken += records.len() as u64;
        self.made += packed.len() as u64;
        Ok(packed)
    }

    /// perf's header feature: version and type of the compression (zstd), level, compression ratio,
    /// and the maximum decompressed size of a record.
    pub(super) fn feature(&self) -> Vec<u8> {
        let ratio = self.taken.checked_div(self.made).unwrap_or(0);
        let ratio = u32::try_from(ratio).unwrap_or(u32::MAX);
        let words = [1, 1, self.level.unsigned_abs(), ratio, UNPACKED];
        words.into_iter().flat_map(u32::to_le_bytes).collect()
    }
}

/// perf allocates this many bytes, plus space for a truncated record before them.
const UNPACKED: u32 = 1 << 19;
