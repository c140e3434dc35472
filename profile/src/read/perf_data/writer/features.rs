//! The data around the records: the header of a seekable file, and the features.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::Writer;
use crate::read;
use crate::read::KERNEL_NAME;
use crate::read::perf_data::bytes::{Order, put_words};
use crate::read::perf_data::layout::{HEADER_SIZE, MAGIC, feature, misc, record};
use crate::read::perf_data::meta::EVENT_ID;

impl<W: Write> Writer<W> {
    pub(super) fn file_header(&self, data_end: u64, features: [u64; 4]) -> Vec<u8> {
        let ids_at = HEADER_SIZE;
        let attr_at = ids_at + 8;
        let mut header = MAGIC.to_vec();
        let (attr_size, data_size) = (128 + 16, data_end - self.data_at);
        let sections = [attr_size, attr_at, attr_size, self.data_at, data_size, 0, 0];
        put_words(&mut header, Order::Little, &[HEADER_SIZE]);
        put_words(&mut header, Order::Little, &sections);
        put_words(&mut header, Order::Little, &features);
        put_words(&mut header, Order::Little, &[EVENT_ID]);
        header.extend_from_slice(&self.attr.encode());
        put_words(&mut header, Order::Little, &[ids_at, 8]);
        header
    }

    /// Features known from the start.
    pub(super) fn early_features(&self) -> BTreeMap<u8, Vec<u8>> {
        let meta = &self.meta;
        let mut features = BTreeMap::new();
        let mut text = |bit: u8, text: Option<&String>| {
            features.extend(text.map(|text| (bit, header_string(text))));
        };
        text(feature::HOSTNAME, meta.hostname.as_ref());
        text(feature::OSRELEASE, meta.osrelease.as_ref());
        text(feature::VERSION, Some(&meta.version));
        text(feature::ARCH, Some(&meta.arch));
        text(feature::CPUDESC, meta.cpudesc.as_ref());
        text(feature::CPUID, meta.cpuid.as_ref());
        if let Some((online, available)) = meta.nrcpus {
            // perf reads the available CPUs first.
            let payload = [available.to_le_bytes(), online.to_le_bytes()].concat();
            features.insert(feature::NRCPUS, payload);
        }
        let mut cmdline = (meta.cmdline.len() as u32).to_le_bytes().to_vec();
        for word in &meta.cmdline {
            cmdline.extend_from_slice(&header_string(word));
        }
        features.insert(feature::CMDLINE, cmdline);
        let mut desc = [1u32.to_le_bytes(), 128u32.to_le_bytes()].concat();
        desc.extend_from_slice(&self.attr.encode());
        desc.extend_from_slice(&1u32.to_le_bytes());
        desc.extend_from_slice(&header_string(&meta.event));
        desc.extend_from_slice(&EVENT_ID.to_le_bytes());
        features.insert(feature::EVENT_DESC, desc);
        features.insert(feature::BRANCH_STACK, Vec::new());
        if let Some(packer) = &self.packer {
            features.insert(feature::COMPRESSED, packer.feature());
        }
        features
    }

    /// Every feature, in ascending order.
    pub(super) fn late_features(&self) -> BTreeMap<u8, Vec<u8>> {
        let mut features = self.early_features();
        if let Some((first, last)) = self.sample_time {
            let payload = [first.to_le_bytes(), last.to_le_bytes()].concat();
            features.insert(feature::SAMPLE_TIME, payload);
        }
        let mut payload = Vec::new();
        for (path, id) in self.build_ids() {
            let body = build_id_body(&path, &id);
            let size = (body.len() + 8) as u16;
            payload.extend_from_slice(&record::BUILD_ID.to_le_bytes());
            let misc = mode_of_file(&path) | misc::BUILD_ID_SIZE;
            payload.extend_from_slice(&misc.to_le_bytes());
            payload.extend_from_slice(&size.to_le_bytes());
            payload.extend_from_slice(&body);
        }
        if !payload.is_empty() {
            features.insert(feature::BUILD_ID, payload);
        }
        features
    }

    /// Build IDs of the mapped files: from the events, or else from the files.
    pub(super) fn build_ids(&self) -> Vec<(String, Vec<u8>)> {
        let of = |(path, id): (&String, &Option<Vec<u8>>)| {
            let id = match id {
                Some(id) => Some(id.clone()),
                None => read::build_id(Path::new(path)),
            };
            // The symbol after the kernel's name belongs to the mapping.
            let path = if path.starts_with(KERNEL_NAME) { KERNEL_NAME } else { path };
            Some((path.to_owned(), id?))
        };
        self.files.iter().filter(|(path, _)| path.len() < 4096).filter_map(of).collect()
    }
}

/// perf's header string: length, then the text padded with NULs to a multiple of 64.
fn header_string(text: &str) -> Vec<u8> {
    let len = (text.len() + 1).next_multiple_of(64);
    let mut bytes = (len as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(4 + len, 0);
    bytes
}

/// A build ID record without its header.
pub(super) fn build_id_body(path: &str, id: &[u8]) -> Vec<u8> {
    let mut body = (-1i32).to_le_bytes().to_vec();
    let id = id.get(..20).unwrap_or(id);
    let mut field = id.to_vec();
    field.resize(24, 0);
    field[20] = id.len() as u8;
    body.append(&mut field);
    body.extend_from_slice(path.as_bytes());
    body.resize(28 + (path.len() + 1).next_multiple_of(64), 0);
    body
}

pub(super) fn mode_of_file(path: &str) -> u16 {
    if path == KERNEL_NAME { misc::KERNEL } else { misc::USER }
}
