//! Compressed records, and compressed files.

use std::io::{Cursor, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lbr_msr::record::Event;
use profile::perf_data::{Notes, ReadError};
use profile::{Item, Recording};
use proptest::prelude::*;

use crate::recorded::{entry, events, exact, meta, sample, stream};
use crate::support::decoded::sample_of;

/// Every event of a recording, stacks as samples, and the anomalies.
fn read(bytes: &[u8]) -> (Vec<Event>, Notes) {
    let mut recording = Recording::from_stream(Box::new(Cursor::new(bytes.to_vec()))).unwrap();
    let mut found = Vec::new();
    while let Some(item) = recording.next_item().unwrap() {
        found.push(match item {
            Item::Stack(stack) => Event::Sample(sample_of(&stack)),
            Item::Event(event) => event,
            Item::LeftOut | Item::Straight(_) => continue,
            Item::Symbol(symbol) => panic!("{symbol:?}"),
        });
    }
    (found, recording.notes())
}

/// The offset of the first record other than attribute (64), feature (80) and empty round (68).
fn first_event(bytes: &[u8]) -> usize {
    let mut at = 16;
    loop {
        let size = usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]));
        if !matches!(bytes[at], 64 | 80 | 68) {
            return at;
        }
        at += size;
    }
}

/// The records of a pipe file as `perf record -z` writes them: one zstd stream that is flushed at
/// each cut and continues in the next record. `steps` are the uncompressed sizes, repeated;
/// `padded` is the form of Linux 6.16.
fn packed(plain: &[u8], steps: &[usize], padded: bool) -> Vec<u8> {
    let (head, mut records) = plain.split_at(first_event(plain));
    let mut out = head.to_vec();
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    for step in steps.iter().cycle() {
        if records.is_empty() {
            break;
        }
        let (part, rest) = records.split_at((*step).min(records.len()));
        records = rest;
        encoder.write_all(part).unwrap();
        encoder.flush().unwrap();
        let payload = std::mem::take(encoder.get_mut());
        let mut body = Vec::new();
        if padded {
            body.extend((payload.len() as u64).to_le_bytes());
        }
        body.extend(payload);
        if padded {
            body.resize(body.len().next_multiple_of(8), 0xEE);
        }
        out.extend(if padded { 83u32 } else { 81 }.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend(u16::try_from(body.len() + 8).unwrap().to_le_bytes());
        out.extend(body);
    }
    out
}

fn many() -> Vec<Event> {
    let mut all = events();
    let stack = |time: u64| (0..32).map(|i| entry(0x1000 + time * 64 + i, 0x2000 + i)).collect();
    all.extend((100..1000).map(|time| sample(time, stack(time), exact())));
    all
}

#[test]
fn compressed_records_hold_what_the_plain_ones_do() {
    // Last, a record without a body: the end of a round.
    let plain = [&stream(meta(), &many())[..], &[68, 0, 0, 0, 0, 0, 8, 0]].concat();
    let expected = read(&plain);
    assert_eq!(expected.1, Notes::default());
    assert!(expected.0.len() > 900);
    // Up to one record at a time, a whole buffer, and more than the decompression buffer holds.
    for steps in [&[1usize, 7, 100][..], &[4096], &[50_000], &[600_000]] {
        for padded in [false, true] {
            let packed = packed(&plain, steps, padded);
            assert_eq!(read(&packed), expected, "{steps:?} {padded}");
        }
    }
}

/// perf writes some records uncompressed.
#[test]
fn plain_records_follow_compressed_ones() {
    let (plain, others) = (stream(meta(), &many()), stream(meta(), &events()));
    let others = &others[first_event(&others)..];
    let packed = packed(&plain, &[600_000], false);
    assert_eq!(read(&[&packed, others].concat()), read(&[&plain, others].concat()));
}

/// The last block of a record may exceed the rest of the decompression buffer.
#[test]
fn the_end_of_a_compressed_record_is_read() {
    let plain = stream(meta(), &many());
    let last = 1 << 18;
    let first = plain.len() - first_event(&plain) - last;
    assert_eq!(read(&packed(&plain, &[first, last], false)), read(&plain));
}

/// A record may hold any part of a zstd block, also one that decompresses to nothing yet.
#[test]
fn a_zstd_block_may_continue_in_the_next_record() {
    let plain = stream(meta(), &many());
    let (head, records) = plain.split_at(first_event(&plain));
    let mut split = head.to_vec();
    for part in zstd::encode_all(records, 3).unwrap().chunks(8) {
        let size = 8 + part.len() as u16;
        split.extend([81u32.to_le_bytes(), [0, 0, size as u8, 0]].concat());
        split.extend(part);
    }
    assert_eq!(read(&split), read(&plain));
}

#[test]
fn data_before_damage_is_read() {
    let plain = stream(meta(), &many());
    let (expected, _) = read(&plain);
    let mut bytes = packed(&plain, &[4096], false);
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0xA5);
    let (found, notes) = read(&bytes);
    assert!(notes.cut_at.is_some());
    assert!(!found.is_empty() && found.len() < expected.len());
    // Cut between two compressed records, inside a record that they contain.
    let bytes = packed(&plain, &[first_event(&plain) + 5], false);
    let size = |at: usize| usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]));
    let first = first_event(&plain);
    let (found, notes) = read(&bytes[..first + size(first)]);
    assert!(notes.cut_at.is_some());
    assert_eq!(found[..], expected[..found.len()]);
}

/// The payload is not zstd data, or shorter than it announces: the rest of the stream is lost.
#[test]
fn nothing_is_read_after_a_damaged_compressed_record() {
    let plain = stream(meta(), &events());
    let more = &plain[first_event(&plain)..];
    for damaged in [[81, 16 << 16, u32::MAX, u32::MAX], [83, 16 << 16, 9, 0]] {
        let damaged = damaged.map(u32::to_le_bytes).concat();
        let (found, notes) = read(&[&plain, &damaged, more].concat());
        let end = (plain.len() + damaged.len()) as u64;
        assert_eq!((found, notes.cut_at), (read(&plain).0, Some(end)));
    }
}

/// A record of a few bytes may decompress to gigabytes, and Ctrl-C must end that too.
#[test]
fn stopped_within_a_compressed_record() {
    let packed = packed(&stream(meta(), &many()), &[600_000], false);
    let whole = read(&packed).0;
    let mut recording = Recording::from_stream(Box::new(Cursor::new(packed))).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    recording.stop_when(Arc::clone(&stop));
    let mut found = 0;
    while recording.next_item().unwrap().is_some() {
        stop.store(true, Ordering::Relaxed);
        found += 1;
    }
    assert!(recording.notes().stopped);
    assert_eq!(recording.notes().cut_at, None);
    assert!(0 < found && found < whole.len() / 2, "{found} of {}", whole.len());
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn whole_files_are_unpacked() {
    let plain = stream(meta(), &many());
    let expected = read(&plain);
    let text = b"  0x10/0x20/P/-/-/5  0x30/0x40/M/-/-/0 \n".repeat(1000);
    let expected_text = read(&text);
    assert_eq!(expected_text.0.len(), 1000);
    for (bytes, expected) in [(&plain, &expected), (&text, &expected_text)] {
        assert_eq!(&read(&gzip(bytes)), expected);
        assert_eq!(&read(&zstd::encode_all(&bytes[..], 3).unwrap()), expected);
        // Two members in sequence are one file.
        let (a, b) = bytes.split_at(bytes.len() / 3);
        assert_eq!(&read(&[gzip(a), gzip(b)].concat()), expected);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf.data.gz");
        std::fs::write(&path, gzip(bytes)).unwrap();
        let mut recording = Recording::open(&path).unwrap();
        let mut count = 0;
        while recording.next_item().unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, expected.0.len());
    }
}

/// Each layer has its own buffers, so an archive must not have any number of them.
#[test]
fn an_archive_may_contain_three_others() {
    let text = b"  0x10/0x20/P/-/-/5 \n";
    let four = (0..4).fold(text.to_vec(), |bytes, _| gzip(&bytes));
    assert_eq!(read(&four).0.len(), 1);
    let five = Recording::from_stream(Box::new(Cursor::new(gzip(&four))));
    assert!(matches!(five.err(), Some(ReadError::NoBranches)));
}

#[test]
fn a_cut_archive_is_read_to_the_cut() {
    let plain = stream(meta(), &many());
    let text = b"  0x10/0x20/P/-/-/5  0x30/0x40/M/-/-/0 \n".repeat(25_000);
    for bytes in [plain, text] {
        let whole = read(&bytes).0;
        for packed in [gzip(&bytes), zstd::encode_all(&bytes[..], 3).unwrap()] {
            for tenths in 5..10 {
                let (found, notes) = read(&packed[..packed.len() * tenths / 10]);
                assert!(notes.cut_at.is_some());
                assert!(!found.is_empty() && found.len() < whole.len(), "{}", found.len());
                // An incomplete line yields nothing.
                assert!(whole.starts_with(&found), "{tenths} tenths");
            }
        }
    }
}

/// A partial read of a text may end inside a line, which could look like a complete one.
#[test]
fn a_truncated_last_line_is_dropped() {
    let text = b" 0x10/0x20/P/-/-/5\n 0x30/0x40/P/-/-/0 0x55/0x5";
    for (part, expected) in [(false, [1, 2].as_slice()), (true, &[1])] {
        let mut recording = Recording::from_stream(Box::new(Cursor::new(text.to_vec()))).unwrap();
        if part {
            recording.stop_at(u64::MAX);
        }
        let mut entries = Vec::new();
        while let Some(item) = recording.next_item().unwrap() {
            let Item::Stack(stack) = item else { panic!() };
            entries.push(stack.entries.len());
        }
        assert_eq!(entries, expected);
        assert!(recording.refused().is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn arbitrary_compressed_records_are_harmless(
        at in 0usize..4000, flips in prop::collection::vec(any::<u8>(), 1..40), padded: bool,
    ) {
        let mut bytes = packed(&stream(meta(), &events()), &[300], padded);
        let start = at % bytes.len();
        bytes.iter_mut().skip(start.max(16)).zip(flips).for_each(|(b, flip)| *b ^= flip);
        if let Ok(mut recording) = Recording::from_stream(Box::new(Cursor::new(bytes))) {
            while let Ok(Some(_)) = recording.next_item() {}
        }
    }
}
