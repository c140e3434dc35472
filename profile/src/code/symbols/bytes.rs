//! The bytes of an ELF file: on disk, in memory, or compressed in another ELF file.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use object::read::ReadRef;
use object::{Object, ObjectSection};
use xz4rust::{XzDecoder, XzReader};

/// The bytes of an ELF file.
#[derive(Debug)]
pub(super) enum ElfBytes {
    File(File),
    Memory(Arc<[u8]>),
}

/// A reader of an ELF file.
pub(super) trait Input: Read + Seek {}
impl<T: Read + Seek> Input for T {}

impl ElfBytes {
    pub(super) fn input(&self) -> std::io::Result<Box<dyn Input>> {
        Ok(match self {
            ElfBytes::File(file) => Box::new(file.try_clone()?),
            ElfBytes::Memory(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
        })
    }

    /// Up to `len` bytes at an offset.
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        match self {
            ElfBytes::File(file) => {
                let mut bytes = vec![0; len];
                let read = file.read_at(&mut bytes, offset).unwrap_or(0);
                bytes.truncate(read);
                bytes
            }
            ElfBytes::Memory(all) => {
                let rest = usize::try_from(offset).ok().and_then(|offset| all.get(offset..));
                rest.unwrap_or_default().iter().take(len).copied().collect()
            }
        }
    }
}

/// Maximum compressed size; the largest programs have a few megabytes.
const MAX_PACKED: u64 = 16 << 20;
/// Maximum decompressed size.
const MAX_UNPACKED: u64 = 64 << 20;
/// The largest dictionary of `xz`'s presets (`-9`).
const MAX_DICTIONARY: usize = (64 << 20) + 1;
/// The usual dictionary size.
const DICTIONARY: usize = 1 << 20;
const BUFFER: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// The decompressed ELF file in a stripped program, with the functions that the dynamic symbols lack
/// (`.gnu_debugdata`, MiniDebugInfo).
pub(super) fn unpacked<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<Vec<u8>> {
    let section = object.section_by_name(".gnu_debugdata")?;
    if section.size() > MAX_PACKED {
        return None;
    }
    let packed = section.data().ok()?.to_vec();
    let decoder = XzDecoder::in_heap_with_alloc_dict_size(DICTIONARY, MAX_DICTIONARY);
    let reader = XzReader::new_with_buffer_size_and_decoder(Cursor::new(packed), BUFFER, decoder);
    let mut bytes = Vec::new();
    // One byte more shows whether it exceeds the limit.
    reader.take(MAX_UNPACKED + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_UNPACKED).then_some(bytes)
}
