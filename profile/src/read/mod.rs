//! Reading and writing recordings: perf.data and `perf script` output, their samples one by one,
//! and which of them to count.

pub mod brstack;
pub mod names;
pub mod note;
pub mod perf_data;
pub mod recording;
pub mod registers;
pub mod select;
pub mod stack;
pub(crate) mod text;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use object::Object;
use object::read::ReadCache;

/// Addresses from here on belong to the kernel, in every process.
pub(crate) const KERNEL: u64 = 1 << 63;

/// Longest plausible fall-through range, bytes; as in AutoFDO.
pub(crate) const LONGEST_BLOCK: u64 = 1 << 20;

/// Whether exactly one of the addresses belongs to the kernel.
pub(crate) const fn crosses(a: u64, b: u64) -> bool {
    (a >= KERNEL) != (b >= KERNEL)
}

/// Saturates, because counts in a file may be any number.
pub(crate) fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}

/// perf's name for the kernel; a symbol may follow.
pub(crate) const KERNEL_NAME: &str = "[kernel.kallsyms]";

/// Opens a file if it is a regular file.
pub(crate) fn regular(path: &Path) -> io::Result<Option<File>> {
    // Checked before opening, because opening a pipe would wait for a writer.
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    // In case a pipe replaced the file after the check.
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map(Some)
}

/// Build ID of a file; `None` if it has none or is not an object file.
pub fn build_id(path: &Path) -> Option<Vec<u8>> {
    if !path.is_absolute() {
        return None;
    }
    let cache = ReadCache::new(regular(path).ok()??);
    let object = object::File::parse(&cache).ok()?;
    object.build_id().ok().flatten().map(<[u8]>::to_vec)
}
