//! The comparison program of `scripts/bench`: a straightforward reader of the recording of
//! `many_branches` that only counts by (from, to).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Read;

#[derive(Default)]
struct Product(u64);

impl Hasher for Product {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(32) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Bytes of a sample before its entries: header, identifier, ip, task, time,
/// CPU, period, 16 bytes of note, number of entries.
const HEAD: usize = 8 + 48 + 16 + 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: plain_scan FILE")?;
    let mut file = std::fs::File::open(path)?;
    let mut header = [0; 104];
    file.read_exact(&mut header)?;
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let (start, mut left) = (word(&header, 40), word(&header, 48) as usize);
    std::io::copy(&mut (&file).take(start - 104), &mut std::io::sink())?;
    let mut counts: HashMap<(u64, u64), u64, BuildHasherDefault<Product>> = HashMap::default();
    counts.reserve(2 * 82_100);
    let mut buffer: Vec<u8> = Vec::with_capacity(1 << 19);
    while left > 0 {
        let more = left.min(1 << 18);
        (&file).take(more as u64).read_to_end(&mut buffer)?;
        left -= more;
        let mut at = 0;
        while let Some(rest) = buffer.get(at..).filter(|rest| rest.len() >= 8) {
            let size = (word(rest, 0) >> 48) as usize;
            let Some(record) = rest.get(..size).filter(|_| size >= 8) else { break };
            if word(record, 0) as u32 == 9 {
                for entry in record.get(HEAD..).unwrap_or_default().chunks_exact(24) {
                    *counts.entry((word(entry, 0), word(entry, 8))).or_default() += 1;
                }
            }
            at += size;
        }
        buffer.drain(..at);
    }
    let total: u64 = counts.values().sum();
    println!("{total} branches, {} distinct", counts.len());
    Ok(())
}
