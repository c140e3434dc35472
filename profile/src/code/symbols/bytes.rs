//! The bytes of an ELF file, on disk or in memory.

use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

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
