//! Seekable files created here: old ones, ones with sections in another order, and compressed or
//! damaged ones.

use std::io::{Cursor, Read, Write};

use lbr_msr::record::Event;
use profile::perf_data::{Notes, ReadError};
use profile::{Item, Recording};

use crate::recorded::{Broken, Pieces};

const IP: u64 = 1;
const TIME: u64 = 1 << 2;
const TID: u64 = 1 << 1;
const BRANCH_STACK: u64 = 1 << 11;
const IDENTIFIER: u64 = 1 << 16;
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// The layout of a file.
struct Crafted {
    magic: [u8; 8],
    big: bool,
    attr_size: u32,
    /// The attributes are after the records.
    behind: bool,
    /// `data.offset` and `data.size`, if they are wrong.
    data: (Option<u64>, Option<u64>),
}

const PLAIN: Crafted =
    Crafted { magic: *b"PERFILE2", big: false, attr_size: 112, behind: false, data: (None, None) };

impl Crafted {
    fn word(&self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(&self, values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| self.word(*value)).collect()
    }

    fn record(&self, kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(8 + body.len()).unwrap();
        let mut out = Vec::new();
        if self.big {
            out.extend(kind.to_be_bytes());
            out.extend(misc.to_be_bytes());
            out.extend(size.to_be_bytes());
        } else {
            out.extend(kind.to_le_bytes());
            out.extend(misc.to_le_bytes());
            out.extend(size.to_le_bytes());
        }
        out.extend(body);
        out
    }

    /// One sample of one branch; the event has only `IP` before it.
    fn sample(&self, from: u64) -> Vec<u8> {
        self.record(9, 2, &self.words(&[0xA0, 1, from, 0x20, 0]))
    }

    /// Events by sample type and id, and records.
    fn file(&self, events: &[(u64, u64)], records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let each = u64::from(self.attr_size) + 16;
        let head = 104 + 8 * events.len() as u64;
        let attrs_size = each * events.len() as u64;
        let (attrs_at, data_at) = if self.behind {
            (head + records.len() as u64, head)
        } else {
            (head, head + attrs_size)
        };
        let mut out = self.magic.to_vec();
        let data = (self.data.0.unwrap_or(data_at), self.data.1.unwrap_or(records.len() as u64));
        out.extend(self.words(&[104, each, attrs_at, attrs_size, data.0, data.1, 0, 0]));
        out.extend(self.words(&[0; 4]));
        events.iter().for_each(|(_, id)| out.extend(self.word(*id)));
        let mut attrs = Vec::new();
        for (index, (sample_type, _)) in events.iter().enumerate() {
            let start = attrs.len();
            let size = u64::from(self.attr_size);
            attrs.extend(self.word(if self.big { size } else { size << 32 }));
            let flags = if self.big { SAMPLE_ID_ALL.reverse_bits() } else { SAMPLE_ID_ALL };
            attrs.extend(self.words(&[0, 0, *sample_type, 0, flags, 0, 0, 0, 8]));
            attrs.resize(start + self.attr_size as usize, 0);
            attrs.extend(self.words(&[104 + 8 * index as u64, 8]));
        }
        let parts = if self.behind { [records, attrs] } else { [attrs, records] };
        out.extend(parts.concat());
        out
    }
}

/// The source addresses of all branches, the other events, and the anomalies.
type Found = (Vec<u64>, Vec<Event>, Notes);

fn read(mut recording: Recording) -> Result<Found, ReadError> {
    let (mut branches, mut events) = (Vec::new(), Vec::new());
    while let Some(item) = recording.next_item()? {
        match item {
            Item::Stack(stack) => branches.extend(stack.entries.iter().map(|branch| branch.from)),
            Item::Event(event) => events.push(event),
            Item::LeftOut | Item::Straight(_) => {}
            Item::Symbol(symbol) => panic!("{symbol:?}"),
        }
    }
    Ok((branches, events, recording.notes()))
}

fn from_file(bytes: &[u8]) -> Result<Found, ReadError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(Recording::open(file.path())?)
}

fn from_pipe(bytes: &[u8]) -> Result<Found, ReadError> {
    read(Recording::from_stream(Box::new(Cursor::new(bytes.to_vec())))?)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn sentence(found: Result<Found, ReadError>) -> String {
    found.unwrap_err().to_string()
}

/// Before Linux 3.4 a file started with the same letters in either byte order. perf 6.1 prints the
/// branch of each of the little ones.
#[test]
fn files_with_the_old_magic() {
    for (attr_size, big) in [(64, false), (72, false), (80, false), (96, false), (96, true)] {
        let file = Crafted { magic: *b"PERFFILE", attr_size, big, ..PLAIN };
        let bytes = file.file(&[(IP | BRANCH_STACK, 7)], &[file.sample(0x1234)]);
        for found in [from_file(&bytes), from_pipe(&bytes)] {
            assert_eq!(found.unwrap().0, [0x1234], "{attr_size} {big}");
        }
    }
}

#[test]
fn attributes_after_the_records() {
    let file = Crafted { behind: true, ..PLAIN };
    for records in [&[file.sample(0x1234)][..], &[]] {
        let bytes = file.file(&[(IP | BRANCH_STACK, 7)], records);
        assert_eq!(from_file(&bytes).unwrap().0.len(), records.len());
        for found in [from_pipe(&bytes), from_pipe(&gzip(&bytes)), from_file(&gzip(&bytes))] {
            assert!(sentence(found).contains("decompress it to a file"));
        }
    }
    // Without any attribute, a file would not help.
    let none = file.file(&[], &[file.sample(0x1234)]);
    assert!(sentence(from_pipe(&none)).contains("does not describe an event"));
}

/// perf writes the size of the records last.
#[test]
fn unfinished_files() {
    let file = Crafted { data: (None, Some(0)), ..PLAIN };
    for records in [&[file.sample(0x1234)][..], &[]] {
        let bytes = file.file(&[(IP | BRANCH_STACK, 7)], records);
        for found in [from_file(&bytes), from_pipe(&bytes)] {
            let (branches, _, notes) = found.unwrap();
            assert_eq!(branches.len(), records.len());
            assert_eq!(notes, Notes { unfinished: true, ..Notes::default() });
        }
    }
}

/// The records start in the middle of a piece.
#[test]
fn a_header_may_arrive_in_pieces() {
    let bytes = PLAIN.file(&[(IP | BRANCH_STACK, 7)], &[PLAIN.sample(0x1234)]);
    let pieces = Box::new(Pieces::new(bytes, 100));
    assert_eq!(read(Recording::from_stream(pieces).unwrap()).unwrap().0, [0x1234]);
}

#[test]
fn records_with_invalid_offsets() {
    for at in [0, 50, 103, 1 << 20, 1 << 46, 1 << 62, 1 << 63, u64::MAX] {
        let file = Crafted { data: (Some(at), Some(100)), ..PLAIN };
        let bytes = file.file(&[(IP | BRANCH_STACK, 7)], &[file.sample(0x1234)]);
        let said = sentence(from_file(&bytes));
        assert!(said.starts_with("damaged perf.data header: "), "{at:#x}: {said}");
        assert!(said.contains(&format!("byte {at}")), "{at:#x}: {said}");
        assert!(sentence(from_pipe(&bytes)).starts_with("damaged perf.data header: "), "{at:#x}");
    }
}

#[test]
fn layers_of_compression() {
    let bytes = PLAIN.file(&[(IP | BRANCH_STACK, 7)], &[PLAIN.sample(0x1234)]);
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3).unwrap();
    for wrapped in [gzip(&zstd(&bytes)), zstd(&gzip(&gzip(&bytes)))] {
        assert_eq!(from_file(&wrapped).unwrap().0, [0x1234]);
        assert_eq!(from_pipe(&wrapped).unwrap().0, [0x1234]);
    }
    let many = (0..100).fold(bytes, |bytes, _| gzip(&bytes));
    assert!(sentence(from_file(&many)).starts_with("not a recording with branches"));
    for (first, by) in [(&b"BZh91AY&SY"[..], "bzip2"), (b"\x04\x22\x4D\x18dp\xB9", "lz4")] {
        assert!(sentence(from_pipe(first)).contains(&format!("compressed by {by};")));
    }
}

/// Data before a damaged part of an archive is read; an archive that cannot be decompressed at all
/// is invalid input, not a read error.
#[test]
fn damaged_archives() {
    let samples: Vec<Vec<u8>> = (0..20_000u64).map(|at| PLAIN.sample(at * at % 65_537)).collect();
    let bytes = PLAIN.file(&[(IP | BRANCH_STACK, 7)], &samples);
    let whole = from_file(&bytes).unwrap().0;
    for mut packed in [gzip(&bytes), zstd::encode_all(&bytes[..], 3).unwrap()] {
        // Only a checksum, a header or noise after the last record.
        for tail in [&b""[..], b"garbage", &[0; 512]] {
            let found = from_pipe(&[&packed[..], tail].concat()).unwrap();
            assert_eq!((&found.0, found.2.cut_at), (&whole, None));
        }
        let at = packed.len() * 9 / 10;
        packed[at..at + 32].fill(0xA5);
        let (found, _, notes) = from_pipe(&packed).unwrap();
        assert!(notes.cut_at.is_some() || found.len() == whole.len());
        packed.truncate(12);
        assert!(sentence(from_pipe(&packed)).starts_with("cannot be unpacked: "));
        assert!(matches!(from_file(&packed), Err(ReadError::Packed(..))));
    }
}

/// The features of a piped file follow its records: they may be missing, but are not ignored after
/// a read error.
#[test]
fn read_errors_after_the_records() {
    let bytes = PLAIN.file(&[(IP | BRANCH_STACK, 7)], &[PLAIN.sample(0x1234)]);
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes).chain(Broken))).unwrap();
    assert!(matches!(recording.next_item(), Ok(Some(Item::Stack(_)))));
    assert!(matches!(recording.next_item(), Err(ReadError::Io { .. })));
}

#[test]
fn a_directory_is_not_a_recording() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Recording::open(dir.path()), Err(ReadError::Directory)));
}

/// Records other than samples end with the fields of their event, which the ID in their last word
/// identifies.
#[test]
fn trailers_of_several_events() {
    let bare = IDENTIFIER | IP | BRANCH_STACK;
    let full = bare | TID | TIME;
    for events in [[(bare, 1), (full, 2)], [(full, 2), (bare, 1)]] {
        // LOST: id of the event and count. LOST_SAMPLES: only the count.
        let records = [
            PLAIN.record(2, 0, &PLAIN.words(&[1, 5, 1])),
            PLAIN.record(2, 0, &PLAIN.words(&[2, 7, 33 << 32 | 22, 4000, 2])),
            PLAIN.record(13, 0, &PLAIN.words(&[9, 33 << 32 | 22, 4001, 2])),
            PLAIN.record(9, 2, &PLAIN.words(&[1, 0xA0, 1, 0x10, 0x20, 0])),
        ];
        let (branches, found, notes) = from_file(&PLAIN.file(&events, &records)).unwrap();
        assert_eq!((branches, notes.malformed), (vec![0x10], 0));
        let lost: Vec<(u64, u32, u32, u64)> = found
            .iter()
            .map(|event| match event {
                Event::Lost(lost) => (lost.stacks, lost.pid, lost.tid, lost.time),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(lost, [(5, 0, 0, 0), (7, 22, 33, 4000), (9, 22, 33, 4001)]);
    }
}
