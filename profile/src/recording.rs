//! Any recording: perf.data or brstack text, told apart by how it begins.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use lbr_msr::record::Event;

use crate::brstack::{self, Line, LineError};
use crate::perf_data::{EventAttr, FileInfo, Notes, ReadError, Reader, Record, layout};
use crate::stack::{Entries, RawBranch, SampleHead, Stack};

/// No sensible line is longer: 2,700 entries take 200 KB.
const MAX_LINE: u64 = 1 << 20;

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
        if !kind.is_file() {
            return Recording::from_stream(Box::new(file));
        }
        let magic = first_bytes(&mut file)?;
        refuse_wrapped(&magic)?;
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
        let magic = first_bytes(&mut stream)?;
        refuse_wrapped(&magic)?;
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

    /// What was odd about a perf.data so far.
    #[must_use]
    pub fn notes(&self) -> Notes {
        match self {
            Recording::PerfData(reader) => reader.notes().clone(),
            Recording::Text(_) => Notes::default(),
        }
    }

    /// Lines of text that were refused so far.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Recording::PerfData(_) => None,
            Recording::Text(text) => text.refused.as_ref(),
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        match self {
            Recording::PerfData(reader) => reader.position(),
            Recording::Text(text) => text.position,
        }
    }

    /// Bytes of the whole, where that is known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match self {
            Recording::PerfData(reader) => reader.size(),
            Recording::Text(text) => text.size,
        }
    }
}

fn first_bytes(stream: &mut impl Read) -> Result<Vec<u8>, ReadError> {
    let mut magic = Vec::new();
    stream.take(8).read_to_end(&mut magic).map_err(|cause| ReadError::Io { offset: 0, cause })?;
    Ok(magic)
}

/// Whole files that were compressed are not read yet: says how to.
fn refuse_wrapped(magic: &[u8]) -> Result<(), ReadError> {
    let by = match magic {
        [0x1F, 0x8B, ..] => "gzip",
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "zstd",
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        _ => return Ok(()),
    };
    Err(ReadError::Wrapped { by })
}

fn is_perf_data(magic: &[u8]) -> bool {
    magic == layout::MAGIC || magic == layout::MAGIC_BIG
}

/// Lines of text that were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub lines: u64,
    /// Number of the first, counted from 1.
    pub first: u64,
    /// Why that one.
    pub error: LineError,
}

/// Text being read.
pub struct TextReader {
    input: BufReader<Box<dyn Read>>,
    line: Vec<u8>,
    entries: Vec<RawBranch>,
    number: u64,
    position: u64,
    size: Option<u64>,
    weight: Option<u64>,
    stacks: u64,
    refused: Option<Refused>,
}

impl std::fmt::Debug for TextReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextReader").field("line", &self.number).finish_non_exhaustive()
    }
}

/// What [`TextReader::advance`] found.
enum Found {
    Sample(Box<SampleHead>),
    Event(Event),
}

impl TextReader {
    fn new(stream: Box<dyn Read>, size: Option<u64>) -> TextReader {
        TextReader {
            input: BufReader::with_capacity(256 * 1024, stream),
            line: Vec::new(),
            entries: Vec::new(),
            number: 0,
            position: 0,
            size,
            weight: None,
            stacks: 0,
            refused: None,
        }
    }

    fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        Ok(self.advance()?.map(|found| match found {
            Found::Sample(head) => {
                Item::Stack(Stack { head: *head, entries: Entries::Parsed(&self.entries) })
            }
            Found::Event(event) => Item::Event(event),
        }))
    }

    fn advance(&mut self) -> Result<Option<Found>, ReadError> {
        loop {
            self.line.clear();
            let offset = self.position;
            let read = (&mut self.input).take(MAX_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|cause| ReadError::Io { offset, cause })?;
            if read == 0 {
                // Text without one branch was no recording.
                return if self.stacks == 0 { Err(ReadError::NoBranches) } else { Ok(None) };
            }
            self.number += 1;
            self.position += read as u64;
            match brstack::parse_line(&self.line, &mut self.entries) {
                Ok(Line::Sample(mut head)) => {
                    head.weight = self.weight.take().unwrap_or(1);
                    self.stacks += 1;
                    return Ok(Some(Found::Sample(head)));
                }
                Ok(Line::Count(count)) => self.weight = Some(count),
                Ok(Line::Mmap(map)) => return Ok(Some(Found::Event(Event::Mmap(map)))),
                Ok(Line::Other) => {}
                Err(error) => {
                    let number = self.number;
                    let refused =
                        self.refused.get_or_insert(Refused { lines: 0, first: number, error });
                    refused.lines += 1;
                }
            }
        }
    }
}
