//! Bytes of debug information, where they lie: sections of mapped files, and
//! what was unpacked.
#![allow(unsafe_code, reason = "mapping files, and promising that the bytes stay where they are")]

use std::fs::File;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::{Mmap, UncheckedAdvice};

use super::cut::Watch;

/// Bytes that stay where they are as long as anybody has them. A handle is in
/// every string and every list of what was parsed, so it is small.
///
/// Whoever looks at bytes takes a handle first, so a new handle is the occasion
/// to give memory back: of a large file, all of whose units are looked at, only
/// what was looked at last stays in memory.
#[derive(Debug)]
pub(crate) struct Bytes(Arc<Backing>);

#[derive(Debug)]
enum Backing {
    /// Dropped in this order: it is watched over as long as it is there.
    Mapped {
        watch: Watch,
        map: Mmap,
        handles: AtomicU32,
    },
    Owned(Vec<u8>),
}

/// New handles after which the memory of a file is given back. Each leads to a
/// look at a place or two, and the system brings 64 KiB for a look.
const HANDLES: u32 = 512;

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        if let Backing::Mapped { handles, .. } = &*self.0
            && handles.fetch_add(1, Ordering::Relaxed) % HANDLES == HANDLES - 1
        {
            self.let_go();
        }
        Bytes(Arc::clone(&self.0))
    }
}

impl Bytes {
    /// A whole file. Debug information is too much to be read: of gigabytes a
    /// few pages are looked at.
    pub(super) fn map(file: &File, path: &Path) -> std::io::Result<Bytes> {
        // SAFETY: the bytes are only read, and nothing is concluded from one
        // look for the next: what a writer changes meanwhile can make the
        // answers wrong, not the memory. A file that is cut short while it is
        // mapped is watched for.
        let map = unsafe { Mmap::map(file) }?;
        let watch =
            Watch::over(&map, path).ok_or_else(|| std::io::Error::other("too many files"))?;
        Ok(Bytes(Arc::new(Backing::Mapped { watch, map, handles: AtomicU32::new(0) })))
    }

    /// What was unpacked; nothing stands for a section that is missing.
    pub(super) fn owned(bytes: Vec<u8>) -> Bytes {
        Bytes(Arc::new(Backing::Owned(bytes)))
    }

    /// Whether the file was cut short since it was mapped, and some of what
    /// was read of it is none of its bytes.
    pub(super) fn is_cut(&self) -> bool {
        matches!(&*self.0, Backing::Mapped { watch, .. } if watch.is_cut())
    }

    /// Gives the memory of the whole file back; what is looked at again is
    /// there again.
    pub(super) fn let_go(&self) {
        if let Backing::Mapped { map, .. } = &*self.0 {
            // SAFETY: the mapping is shared, of a file, and never written to,
            // so dropping its pages loses nothing: the next access has the
            // system bring them back with the same bytes.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
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

// SAFETY: both kinds lie behind an `Arc`, in a mapping or on the heap; neither
// is ever changed, and moving the handle moves none of the bytes.
unsafe impl gimli::StableDeref for Bytes {}
// SAFETY: a clone is another handle of the same `Arc`, so of the same bytes.
unsafe impl gimli::CloneStableDeref for Bytes {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_is_cut_short_ends_nothing() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[7; 1 << 16]).expect("written");
        let bytes = Bytes::map(&file, Path::new("/one")).expect("mapped");
        assert_eq!((bytes.first(), bytes.is_cut()), (Some(&7), false));
        file.set_len(5000).expect("cut");
        assert_eq!((bytes.get(4096), bytes.last()), (Some(&7), Some(&0)));
        assert!(bytes.is_cut());
        // Another file is another matter.
        let other = tempfile::tempfile().expect("a file");
        other.set_len(10).expect("longer");
        assert!(!Bytes::map(&other, Path::new("/other")).expect("mapped").is_cut());
        let cut = || super::super::cut_files().contains(&"/one".into());
        assert!(cut());
        drop(bytes);
        assert!(cut() && !super::super::cut_files().contains(&"/other".into()));
    }
}
