//! Bytes of debug information in place: sections of mapped files, and decompressed sections.
#![allow(unsafe_code, reason = "mapping files, and promising stable addresses")]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::cut::Watch;

/// Bytes with a stable address as long as any handle exists. Every string and list in parsed data
/// has a handle, so it is small.
#[derive(Clone, Debug)]
pub(crate) struct Bytes(Arc<Backing>);

#[derive(Debug)]
enum Backing {
    /// Dropped in this order: the watch must end before the mapping.
    Mapped {
        watch: Watch,
        map: Mmap,
    },
    Owned(Vec<u8>),
}

impl Bytes {
    /// Maps a whole file. Debug information is too large to be read: of gigabytes, a few pages are
    /// used.
    pub(super) fn map(file: &File, path: &Path) -> std::io::Result<Bytes> {
        // SAFETY: the bytes are only read, and no result depends on reading the same value twice,
        // so concurrent changes can make results wrong but not unsafe. Truncation of the mapped
        // file is handled by the watch.
        let map = unsafe { Mmap::map(file) }?;
        let watch =
            Watch::over(&map, path).ok_or_else(|| std::io::Error::other("too many files"))?;
        Ok(Bytes(Arc::new(Backing::Mapped { watch, map })))
    }

    /// Decompressed bytes; empty for a missing section.
    pub(super) fn owned(bytes: Vec<u8>) -> Bytes {
        Bytes(Arc::new(Backing::Owned(bytes)))
    }

    /// Whether the file was truncated since it was mapped, so that some bytes read were not the
    /// file's.
    pub(super) fn is_cut(&self) -> bool {
        matches!(&*self.0, Backing::Mapped { watch, .. } if watch.is_cut())
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Backing::Mapped { map, .. } => map,
            Backing::Owned(bytes) => bytes,
        }
    }
}

// SAFETY: both kinds are behind an `Arc`, in a mapping or on the heap; neither is ever changed, and
// moving the handle does not move the bytes.
unsafe impl gimli::StableDeref for Bytes {}
// SAFETY: a clone is another handle of the same `Arc`, so of the same bytes.
unsafe impl gimli::CloneStableDeref for Bytes {}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/code/lines/bytes.rs"]
mod tests;
