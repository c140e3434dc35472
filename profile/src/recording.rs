//! Any recording: perf.data or brstack text, told apart by how it begins.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use flate2::read::MultiGzDecoder;
use lbr_msr::record::Event;

use crate::perf_data::error::is_damage;
use crate::perf_data::{EventAttr, FileInfo, Notes, ReadError, Reader, Record, layout};
use crate::stack::Stack;
pub use crate::text::{Refused, TextReader};

/// One thing out of a recording.
#[derive(Debug)]
pub enum Item<'a> {
    /// A stack of branches.
    Stack(Stack<'a>),
    /// Anything else.
    Event(Event),
}

/// A recording being read.
#[derive(Debug)]
pub enum Recording {
    /// perf.data.
    PerfData(Box<Reader>),
    /// Text of `perf script -F brstack`.
    Text(Box<TextReader>),
}

impl Recording {
    /// Opens a file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(path: &Path) -> Result<Recording, ReadError> {
        let open = |cause| ReadError::Open { path: path.to_owned(), cause };
        let mut file = File::open(path).map_err(open)?;
        let kind = file.metadata().map_err(open)?;
        if kind.is_dir() {
            return Err(ReadError::Directory);
        }
        if !kind.is_file() {
            return Recording::from_stream(Box::new(file));
        }
        let magic = first_bytes(&mut file)?;
        if is_wrapped(&magic)? {
            return Recording::from_stream(Box::new(Cursor::new(magic).chain(file)));
        }
        if is_perf_data(&magic) {
            return Ok(Recording::PerfData(Box::new(Reader::open(path)?)));
        }
        let stream = Box::new(Cursor::new(magic).chain(file));
        Ok(Recording::Text(Box::new(TextReader::new(stream, Some(kind.len())))))
    }

    /// Reads a stream, such as standard input.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn from_stream(mut stream: Box<dyn Read>) -> Result<Recording, ReadError> {
        let mut magic = first_bytes(&mut stream)?;
        let mut layers = 0;
        while is_wrapped(&magic)? {
            layers += 1;
            if layers > MAX_LAYERS {
                return Err(ReadError::NoBranches);
            }
            stream = unwrapped(&magic, Cursor::new(magic.clone()).chain(stream))?;
            magic = first_bytes(&mut stream)?;
        }
        let perf_data = is_perf_data(&magic);
        let stream: Box<dyn Read> = Box::new(Cursor::new(magic).chain(stream));
        Ok(if perf_data {
            Recording::PerfData(Box::new(Reader::from_stream(stream)?))
        } else {
            Recording::Text(Box::new(TextReader::new(stream, None)))
        })
    }

    /// The next stack or event; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        match self {
            Recording::PerfData(reader) => Ok(reader.next_record()?.map(|record| match record {
                Record::Stack(stack) => Item::Stack(stack),
                Record::Event(event) => Item::Event(event),
            })),
            Recording::Text(text) => text.next_item(),
        }
    }

    /// Ends the recording before its end as soon as `flag` is set, such as by a
    /// signal: what was read so far keeps its meaning, and
    /// [`notes`](Self::notes) say that it is a part.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        match self {
            Recording::PerfData(reader) => reader.stop_when(flag),
            Recording::Text(text) => text.stop_when(flag),
        }
    }

    /// Ends the recording where an earlier reading of it was stopped, at its
    /// [`position`](Self::position), to read the same part again.
    pub fn stop_at(&mut self, position: u64) {
        match self {
            Recording::PerfData(reader) => reader.stop_at(position),
            Recording::Text(text) => text.stop_at(position),
        }
    }

    /// What the recording says about itself; text says nothing.
    #[must_use]
    pub fn info(&self) -> Option<&FileInfo> {
        match self {
            Recording::PerfData(reader) => Some(reader.info()),
            Recording::Text(_) => None,
        }
    }

    /// Its events; text has none.
    #[must_use]
    pub fn events(&self) -> &[EventAttr] {
        match self {
            Recording::PerfData(reader) => reader.events(),
            Recording::Text(_) => &[],
        }
    }

    /// What was odd so far.
    #[must_use]
    pub fn notes(&self) -> Notes {
        match self {
            Recording::PerfData(reader) => reader.notes().clone(),
            Recording::Text(text) => {
                Notes { cut_at: text.cut_at(), stopped: text.is_stopped(), ..Notes::default() }
            }
        }
    }

    /// Lines of text that were refused so far.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Recording::PerfData(_) => None,
            Recording::Text(text) => text.refused(),
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self {
            Recording::PerfData(reader) => reader.position(),
            Recording::Text(text) => text.position(),
        }
    }

    /// Bytes of the whole, where that is known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match self {
            Recording::PerfData(reader) => reader.size(),
            Recording::Text(text) => text.size(),
        }
    }
}

fn first_bytes(stream: &mut impl Read) -> Result<Vec<u8>, ReadError> {
    let mut magic = Vec::new();
    stream.take(8).read_to_end(&mut magic).map_err(|cause| {
        if is_damage(&cause) {
            ReadError::Packed { cause }
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
/// Nobody compresses more often; each layer has buffers of its own.
const MAX_LAYERS: usize = 4;
/// What wants a larger window than 128 MiB to be unpacked is refused.
const WINDOW_LOG: u32 = 27;

/// Whether a whole file was compressed, by its first bytes.
fn is_wrapped(magic: &[u8]) -> Result<bool, ReadError> {
    let others = [(&XZ[..], "xz"), (&BZIP2, "bzip2"), (&LZ4, "lz4")];
    if let Some((_, by)) = others.into_iter().find(|(first, _)| magic.starts_with(first)) {
        return Err(ReadError::Wrapped { by });
    }
    Ok(magic.starts_with(&GZIP) || magic.starts_with(&ZSTD))
}

/// What a compressed file holds, unpacked as it is read.
fn unwrapped(magic: &[u8], stream: impl Read + 'static) -> Result<Box<dyn Read>, ReadError> {
    if magic.starts_with(&GZIP) {
        return Ok(Box::new(MultiGzDecoder::new(stream)));
    }
    let io = |cause| ReadError::Io { offset: 0, cause };
    let mut decoder = zstd::stream::read::Decoder::new(stream).map_err(io)?;
    decoder.window_log_max(WINDOW_LOG).map_err(io)?;
    Ok(Box::new(decoder))
}

fn is_perf_data(magic: &[u8]) -> bool {
    [layout::MAGIC, layout::MAGIC_BIG, layout::MAGIC_OLD].iter().any(|known| magic == known)
}
