//! Mapped files.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use object::Object;
use object::read::ReadCache;

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
