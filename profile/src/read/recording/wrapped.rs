//! Detects the format of a file by its first bytes; decompresses whole files.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::read::perf_data::error::is_damage;
use crate::read::perf_data::{ReadError, layout};

/// The first bytes of a recording.
pub(super) fn first_bytes(stream: &mut impl Read) -> Result<Vec<u8>, ReadError> {
    let mut magic = Vec::new();
    stream.take(8).read_to_end(&mut magic).map_err(|cause| {
        if is_damage(&cause) {
            ReadError::Packed(cause)
        } else {
            ReadError::Io { offset: 0, cause }
        }
    })?;
    Ok(magic)
}

const GZIP: [u8; 2] = [0x1F, 0x8B];
const ZSTD: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const XZ: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
const BZIP2: [u8; 3] = *b"BZh";
const LZ4: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
/// Byte order marks.
const UTF16: [[u8; 2]; 2] = [[0xFF, 0xFE], [0xFE, 0xFF]];
/// Limit of nested compression; each layer has its own buffers.
pub(super) const MAX_LAYERS: usize = 4;
/// Windows larger than 128 MiB are refused.
const WINDOW_LOG: u32 = 27;

/// Whether the first bytes are those of a compressed file.
pub(super) fn is_wrapped(magic: &[u8]) -> Result<bool, ReadError> {
    let others = [(&XZ[..], "xz"), (&BZIP2, "bzip2"), (&LZ4, "lz4")];
    if let Some((_, by)) = others.into_iter().find(|(first, _)| magic.starts_with(first)) {
        return Err(ReadError::Wrapped(by));
    }
    if UTF16.iter().any(|mark| magic.starts_with(mark)) {
        return Err(ReadError::Utf16);
    }
    Ok(magic.starts_with(&GZIP) || magic.starts_with(&ZSTD))
}

/// The decompressed contents of a file, streamed.
pub(super) fn unwrapped(
    magic: &[u8],
    stream: impl Read + Send + 'static,
) -> Result<Box<dyn Read + Send>, ReadError> {
    if magic.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(stream)));
    }
    let io = |cause| ReadError::Io { offset: 0, cause };
    let mut decoder = zstd::stream::read::Decoder::new(stream).map_err(io)?;
    decoder.window_log_max(WINDOW_LOG).map_err(io)?;
    Ok(Box::new(decoder))
}

/// Whether a file that starts with these eight bytes is a perf.data.
pub fn is_perf_data(magic: &[u8]) -> bool {
    [layout::MAGIC, layout::MAGIC_BIG, layout::MAGIC_OLD].iter().any(|known| magic == known)
}
