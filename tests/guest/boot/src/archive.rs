//! The kernel's first file system: a cpio archive in the "new ASCII" format
//! that `Documentation/driver-api/early-userspace/buffer-format.rst` of Linux
//! describes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// Writes an archive. Folders are created as needed.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
    folders: BTreeSet<String>,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// An archive with only `/dev/console`, which the kernel opens for its first process.
    ///
    /// # Errors
    /// The write error.
    pub fn new(out: W) -> io::Result<Archive<W>> {
        let mut archive = Archive { out, folders: BTreeSet::new(), entries: 0 };
        archive.folder("dev")?;
        archive.entry("dev/console", CHARACTER_DEVICE, (5, 1), &[])?;
        Ok(archive)
    }

    /// Adds a folder and its parents. The name has no leading slash.
    ///
    /// # Errors
    /// The write error.
    pub fn folder(&mut self, name: &str) -> io::Result<()> {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for prefix in ends.filter_map(|end| name.get(..end)).filter(|prefix| !prefix.is_empty()) {
            if self.folders.insert(prefix.to_owned()) {
                self.entry(prefix, FOLDER, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// Adds a file.
    ///
    /// # Errors
    /// The write error; `InvalidInput` for a file of 4 GiB or more.
    pub fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) -> io::Result<()> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.folder(folder)?;
        }
        self.entry(name, FILE | (permissions & 0o7777), (0, 0), contents)
    }

    /// Adds all files below the host's `folder`, under `prefix`.
    ///
    /// # Errors
    /// The read or write error.
    pub fn tree(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        let mut found = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        found.sort_by_key(std::fs::DirEntry::file_name);
        for entry in found {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let path = entry.path();
            let about = fs::metadata(&path)?;
            if about.is_dir() {
                self.folder(&name)?;
                self.tree(&path, &format!("{name}/"))?;
            } else {
                self.file(&name, about.permissions().mode(), &fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    /// Completes the archive.
    ///
    /// # Errors
    /// The write error.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, dev: (u32, u32), data: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "4 GiB or more");
        let len = u32::try_from(data.len()).map_err(too_long)?;
        let name_len = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.entries += 1;
        // inode, mode, uid, gid, links, mtime, size, file's device (2), device number (2), name
        // length, checksum (unused).
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, dev.0, dev.1, name_len, 0];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(6 + 13 * 8 + name.len() + 1)?;
        self.out.write_all(data)?;
        self.pad(data.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        let missing = written.next_multiple_of(4) - written;
        self.out.write_all(&[0; 4][..missing])
    }
}

#[cfg(test)]
#[path = "../../../machine/unit/boot/archive.rs"]
mod tests;
