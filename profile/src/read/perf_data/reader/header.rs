//! The header of a file: events, position of the records, features.

use std::io::{Read, Seek, SeekFrom};

use super::frames::RecordSpan;
use super::{Input, MAX_EVENTS, MAX_IDS, MAX_SECTION, ReadError, Reader};
use crate::read::perf_data::attr::EventAttr;
use crate::read::perf_data::bytes::{Bytes, Order, u64_at};
use crate::read::perf_data::features::name_events;
use crate::read::perf_data::layout::{
    HEADER_SIZE, MAGIC_BIG, MAGIC_OLD, PIPE_HEADER_SIZE, branch, feature,
};
use crate::read::perf_data::sample::{SampleLayout, Trailer, id_in_sample};

impl Reader {
    pub(super) fn read_header(&mut self) -> Result<(), ReadError> {
        if !self.fill(PIPE_HEADER_SIZE as usize)? {
            return Err(ReadError::Header("the file ends inside it".to_owned()));
        }
        let head = &self.buffer;
        self.order = match head.first_chunk::<8>() {
            Some(&MAGIC_BIG) => Order::Big,
            Some(&MAGIC_OLD)
                if u64_at(head, 8, Order::Big).is_some_and(|size| size <= HEADER_SIZE) =>
            {
                Order::Big
            }
            // The caller has checked the magic.
            _ => Order::Little,
        };
        let size = u64_at(head, 8, self.order).unwrap_or(0);
        if size == PIPE_HEADER_SIZE {
            self.consume(PIPE_HEADER_SIZE as usize);
            return Ok(());
        }
        if size != HEADER_SIZE {
            let what = format!("its size is {size}, but only 104 and 16 are known");
            return Err(ReadError::Header(what));
        }
        if !self.fill(HEADER_SIZE as usize)? {
            return Err(ReadError::Header("the file ends inside it".to_owned()));
        }
        self.read_file_header()
    }

    fn read_file_header(&mut self) -> Result<(), ReadError> {
        let bytes = self.buffer.get(16..104).unwrap_or_default().to_vec();
        let mut bytes = Bytes::new(&bytes, self.order);
        let mut word = || bytes.u64().unwrap_or(0);
        let attr_size = word();
        let (attrs_at, attrs_size) = (word(), word());
        let (data_at, data_size) = (word(), word());
        let (_, _) = (word(), word()); // event types: gone since Linux 3.0
        let bits = [word(), word(), word(), word()];

        if data_at < HEADER_SIZE || self.size.is_none() && data_at > MAX_SECTION {
            let what = format!("its records start at byte {data_at}, which is impossible");
            return Err(ReadError::Header(what));
        }
        if self.size.is_some_and(|size| size < data_at) {
            let what = format!("the file ends before its records, which start at byte {data_at}");
            return Err(ReadError::Header(what));
        }
        let prefix = match self.input {
            Input::File(_) => Vec::new(),
            // Newer writers put the attributes after the records.
            Input::Stream(_) if attrs_at >= data_at && attrs_size > 0 => {
                let what = "its attributes follow its records, but a pipe or a compressed \
                            file is read only once, from start to end: decompress it to a file";
                return Err(ReadError::Header(what.to_owned()));
            }
            Input::Stream(_) => self.prefix(data_at)?,
        };
        self.read_attrs(attr_size, attrs_at, attrs_size, &prefix)?;
        self.data_end = match data_size {
            0 => {
                self.notes.unfinished = true;
                None
            }
            size => Some(data_at.saturating_add(size)),
        };
        match self.data_end {
            Some(end) if matches!(self.input, Input::File(_)) => {
                let count: u64 = bits.iter().map(|b| u64::from(b.count_ones())).sum();
                let table = self.section(end, 16 * count, &[]);
                self.features(bits, &table, |reader, at, size| Some(reader.section(at, size, &[])));
            }
            Some(_) => self.late_features = Some(bits),
            None => {}
        }
        if let Input::File(file) = &mut self.input {
            file.seek(SeekFrom::Start(data_at))
                .map_err(|cause| ReadError::Io { offset: data_at, cause })?;
            self.start = 0;
            self.end = 0;
            self.offset = data_at;
        }
        self.require_branches()
    }

    /// Everything before the records, for an unseekable input.
    fn prefix(&mut self, data_at: u64) -> Result<Vec<u8>, ReadError> {
        let mut prefix = Vec::new();
        while self.offset < data_at {
            if !self.fill(1)? {
                return Err(ReadError::Header("the file ends inside it".to_owned()));
            }
            let left = usize::try_from(data_at - self.offset).unwrap_or(usize::MAX);
            let step = left.min(self.end - self.start);
            let part = self.buffer.get(self.start..self.start + step).unwrap_or_default();
            prefix.extend_from_slice(part);
            self.consume(step);
        }
        Ok(prefix)
    }

    /// A part of the file, shorter at its end.
    fn section(&mut self, at: u64, size: u64, prefix: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let size = size.min(MAX_SECTION);
        match &mut self.input {
            Input::File(file) => {
                if file.seek(SeekFrom::Start(at)).is_ok() {
                    // Unreadable features are ignored.
                    let _ = file.take(size).read_to_end(&mut bytes);
                }
            }
            Input::Stream(_) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                let end = at.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
                let part = prefix.get(at..end.min(prefix.len()));
                bytes.extend_from_slice(part.unwrap_or_default());
            }
        }
        bytes
    }

    fn read_attrs(
        &mut self,
        attr_size: u64,
        at: u64,
        size: u64,
        prefix: &[u8],
    ) -> Result<(), ReadError> {
        let each = usize::try_from(attr_size).unwrap_or(0);
        // At least 64 bytes and the section of the ids.
        if !(80..=4096).contains(&each) {
            let what = format!("attributes of {attr_size} bytes");
            return Err(ReadError::Header(what));
        }
        let section = self.section(at, size, prefix);
        // Sections may overlap. The total size of all ids is limited, so that a small file cannot
        // request the same bytes repeatedly.
        let mut budget = MAX_SECTION;
        for entry in section.chunks_exact(each) {
            let (raw, ids) = entry.split_at(each - 16);
            let Some(mut attr) = EventAttr::parse(raw, self.order) else { continue };
            let mut ids = Bytes::new(ids, self.order);
            let mut numbers = Vec::new();
            if let (Some(at), Some(size)) = (ids.u64(), ids.u64()) {
                numbers = self.section(at, size.min(budget), prefix);
                budget -= numbers.len() as u64;
                let mut bytes = Bytes::new(&numbers, self.order);
                attr.ids = std::iter::from_fn(|| bytes.u64()).collect();
            }
            self.copied.attr(raw, &numbers);
            self.add_event(attr);
        }
        if self.events.is_empty() {
            return Err(ReadError::Header("it does not describe an event".to_owned()));
        }
        Ok(())
    }

    /// Reads the announced features.
    pub(super) fn features(
        &mut self,
        bits: [u64; 4],
        table: &[u8],
        mut section: impl FnMut(&mut Reader, u64, u64) -> Option<Vec<u8>>,
    ) {
        let set = (0..=255u8).filter(|bit| {
            bits.get(usize::from(bit / 64)).is_some_and(|word| word >> (bit % 64) & 1 == 1)
        });
        let mut table = Bytes::new(table, self.order);
        for bit in set {
            let (Some(at), Some(size)) = (table.u64(), table.u64()) else { return };
            let wanted =
                matches!(bit, feature::BUILD_ID..=feature::EVENT_DESC | feature::SAMPLE_TIME);
            // A copy takes features that fit into a record.
            if size > if wanted { MAX_SECTION } else { u64::from(u16::MAX) } {
                continue;
            }
            if let Some(payload) = section(self, at, size) {
                self.copied.feature(bit, &payload);
                if wanted {
                    self.take_feature(bit, &payload);
                }
            }
        }
    }

    pub(super) fn header_attr(&mut self, frame: RecordSpan) {
        let body = frame.body(&self.buffer, self.unpacker.as_deref());
        let Some(mut attr) = EventAttr::parse(body, self.order) else {
            self.malformed(frame);
            return;
        };
        let (raw, ids) = body.split_at_checked(attr.size as usize).unwrap_or((body, &[]));
        self.copied.attr(raw, ids);
        let mut bytes = Bytes::new(ids, self.order);
        attr.ids = std::iter::from_fn(|| bytes.u64()).collect();
        self.add_event(attr);
    }

    pub(super) fn header_feature(&mut self, frame: RecordSpan) {
        let body = frame.body(&self.buffer, self.unpacker.as_deref());
        let mut bytes = Bytes::new(body, self.order);
        let Some(bit) = bytes.u64().and_then(|bit| u8::try_from(bit).ok()) else { return };
        let payload = bytes.rest().to_vec();
        self.copied.feature(bit, &payload);
        self.take_feature(bit, &payload);
    }

    fn take_feature(&mut self, bit: u8, payload: &[u8]) {
        if bit == feature::EVENT_DESC {
            name_events(payload, self.order, &mut self.events, &self.by_id);
        } else {
            self.info.take(bit, payload, self.order);
        }
    }

    pub(super) fn add_event(&mut self, mut attr: EventAttr) {
        let index = self.events.len();
        if index >= MAX_EVENTS {
            return;
        }
        attr.ids.truncate(MAX_IDS.saturating_sub(self.by_id.len()));
        for &id in &attr.ids {
            self.by_id.insert(id, index);
        }
        self.layouts.push(SampleLayout::new(&attr, self.order));
        self.events.push(attr);
        let counts = |event: &&EventAttr| event.branch_sample_type & branch::COUNTERS != 0;
        let counting = self.events.iter().filter(counts).count();
        self.layouts.iter_mut().for_each(|layout| layout.log(counting));
        self.id_in_sample = id_in_sample(&self.events);
        self.id_from_end = Trailer::id_from_end(&self.events);
    }
}
