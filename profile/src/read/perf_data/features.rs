//! Metadata of a file: the header features.

use std::collections::HashMap;

use super::attr::EventAttr;
use super::bytes::{Bytes, Order, put_words, until_nul};
use super::layout::{feature, misc};

/// More words of perf's 64 bytes each than any command line has.
const MAX_WORDS: u32 = 1 << 15;
/// More files than any recording names.
const MAX_BUILD_IDS: usize = 1 << 16;
/// The longest path (PATH_MAX).
const MAX_PATH: usize = 4096;

/// Metadata of a recording. Absent is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// Host name.
    pub hostname: Option<String>,
    /// Kernel release.
    pub osrelease: Option<String>,
    /// Version of the recorder.
    pub version: Option<String>,
    /// CPU description; `software LBR (06_5E), not measured` without hardware.
    pub cpudesc: Option<String>,
    /// Command line of the recorder.
    pub cmdline: Vec<String>,
    /// Times of the first and the last sample, nanoseconds.
    pub sample_time: Option<(u64, u64)>,
    /// Build ids of mapped files, by path.
    pub build_ids: Vec<(String, Vec<u8>)>,
}

impl FileInfo {
    /// Adds a feature. Unreadable ones are skipped.
    pub(crate) fn take(&mut self, bit: u8, payload: &[u8], order: Order) {
        let mut bytes = Bytes::new(payload, order);
        match bit {
            feature::HOSTNAME => self.hostname = not_empty(bytes.string()),
            feature::OSRELEASE => self.osrelease = not_empty(bytes.string()),
            feature::VERSION => self.version = not_empty(bytes.string()),
            feature::CPUDESC => self.cpudesc = not_empty(bytes.string()),
            feature::CMDLINE => {
                let count = bytes.u32().unwrap_or(0).min(MAX_WORDS);
                self.cmdline = (0..count).map_while(|_| bytes.string()).collect();
            }
            feature::SAMPLE_TIME => self.sample_time = bytes.u64().zip(bytes.u64()),
            feature::BUILD_ID => {
                while let Some((kind_misc, body)) = next_record(&mut bytes) {
                    self.take_build_id(kind_misc, body, order);
                }
            }
            _ => {}
        }
    }

    /// Adds a build ID record.
    pub(crate) fn take_build_id(&mut self, misc_bits: u16, body: &[u8], order: Order) {
        let mut bytes = Bytes::new(body, order);
        let (Some(_pid), Some(id)) = (bytes.u32(), bytes.take(24)) else { return };
        let len = match id.get(20) {
            Some(&len @ 1..=20) if misc_bits & misc::BUILD_ID_SIZE != 0 => usize::from(len),
            _ => 20,
        };
        let Some(id) = id.get(..len) else { return };
        let path = bytes.rest();
        if id.iter().any(|&b| b != 0)
            && path.len() <= MAX_PATH + 64
            && self.build_ids.len() < MAX_BUILD_IDS
        {
            self.build_ids.push((until_nul(path), id.to_vec()));
        }
    }
}

/// The features' bits, and their table and payloads, to be placed at `at`.
pub(crate) fn feature_sections<'a>(
    features: impl ExactSizeIterator<Item = (&'a u8, &'a Vec<u8>)>,
    order: Order,
    at: u64,
) -> ([u64; 4], Vec<u8>) {
    let mut place = at + 16 * features.len() as u64;
    let (mut bits, mut table, mut payloads) = ([0; 4], Vec::new(), Vec::new());
    for (bit, payload) in features {
        bits[usize::from(bit / 64)] |= 1 << (bit % 64);
        put_words(&mut table, order, &[place, payload.len() as u64]);
        place += payload.len() as u64;
        payloads.extend_from_slice(payload);
    }
    table.append(&mut payloads);
    (bits, table)
}

/// Some recorders write empty strings for unknown values.
fn not_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// The next record of a section: its `misc` and its body.
pub(crate) fn next_record<'a>(bytes: &mut Bytes<'a>) -> Option<(u16, &'a [u8])> {
    bytes.u32()?;
    let misc_bits = bytes.u16()?;
    let size = usize::from(bytes.u16()?);
    Some((misc_bits, bytes.take(size.checked_sub(8)?)?))
}

/// Sets the names of events from EVENT_DESC, by their ids.
pub(crate) fn name_events(
    payload: &[u8],
    order: Order,
    events: &mut [EventAttr],
    by_id: &HashMap<u64, usize>,
) {
    let mut bytes = Bytes::new(payload, order);
    let (Some(count), Some(attr_size)) = (bytes.u32(), bytes.u32()) else { return };
    for index in 0..count as usize {
        let Some(()) = bytes.skip(1, u64::from(attr_size)) else { return };
        let Some(ids) = bytes.u32() else { return };
        let Some(name) = bytes.string() else { return };
        let mut first = None;
        for _ in 0..ids {
            let Some(id) = bytes.u64() else { return };
            first.get_or_insert(id);
        }
        // Ids identify the event; without any, its index does.
        let named = match first {
            Some(id) => by_id.get(&id).and_then(|&index| events.get_mut(index)),
            None => events.get_mut(index),
        };
        if let Some(event) = named {
            event.name = Some(name);
        }
    }
}
