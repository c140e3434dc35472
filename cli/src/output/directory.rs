//! The directory and the name of an output.
//!
//! The path is resolved one component at a time, and the directory stays open: renaming a component
//! afterwards changes nothing. A link is followed only if root or the user who runs `lbr` owns it,
//! since its owner decides where it leads (systemd's `CHASE_SAFE` is the same idea). The kernel's
//! `RESOLVE_NO_SYMLINKS` would also refuse `/var/run` and people's own links.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use anyhow::anyhow;
use lbr_msr::text::AsText;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, readlinkat, renameat};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};

use crate::exit::{Failure, Result, usage};
use crate::input::file::is_trusted;

/// Links followed in one path, the kernel's own limit (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;
/// Random names that are tried.
const TRIES: usize = 100;

/// A name, and the open directory that it is in.
pub(super) struct DirEntry {
    directory: OwnedFd,
    name: OsString,
}

impl DirEntry {
    /// Resolves a path, all but its last component.
    pub(super) fn of(path: &Path) -> Result<DirEntry> {
        let Some(name) = path.file_name() else {
            let what = if path.as_os_str().is_empty() { "empty" } else { "a directory" };
            return Err(usage!("{} is {what}: name a file", path.as_text()));
        };
        Ok(DirEntry { directory: Walk::to(path)?, name: name.to_owned() })
    }

    /// The same directory with `suffix` appended to the name.
    pub(super) fn with_suffix(&self, suffix: &str) -> io::Result<DirEntry> {
        let mut name = self.name.clone();
        name.push(suffix);
        Ok(DirEntry { directory: self.directory.try_clone()?, name })
    }

    /// The status of the name, also of a link.
    pub(super) fn status(&self) -> nix::Result<FileStat> {
        fstatat(&self.directory, self.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// Whether the name refers to this file.
    pub(super) fn is_of(&self, file: &File) -> bool {
        let both = self.status().and_then(|named| Ok((named, fstat(file)?)));
        both.is_ok_and(|(named, file)| (named.st_dev, named.st_ino) == (file.st_dev, file.st_ino))
    }

    /// Opens it, never through a link.
    pub(super) fn open(&self, flags: OFlag, mode: u32) -> nix::Result<File> {
        self.open_name(&self.name, flags, mode)
    }

    fn open_name(&self, name: &OsStr, flags: OFlag, mode: u32) -> nix::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, name, flags, Mode::from_bits_truncate(mode)).map(File::from)
    }

    /// Renames it in its directory.
    pub(super) fn rename(&self, to: &DirEntry) -> nix::Result<()> {
        renameat(&self.directory, self.name.as_os_str(), &to.directory, to.name.as_os_str())
    }

    /// Removes the file or the link.
    pub(super) fn remove(&self) -> nix::Result<()> {
        unlinkat(&self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir)
    }

    /// A new file without a name: nothing is left of it if this process dies.
    /// File systems without `O_TMPFILE` (NFS, FAT) get one of the directory for
    /// temporary files, which [`publish`](Self::publish) copies.
    pub(super) fn unnamed(&self, mode: u32) -> io::Result<File> {
        match self.open_name(OsStr::new("."), OFlag::O_TMPFILE | OFlag::O_RDWR, mode) {
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL) => tempfile::tempfile(),
            made => Ok(made?),
        }
    }

    /// Gives a file that [`unnamed`](Self::unnamed) made its name, replacing any other file of that
    /// name.
    pub(super) fn publish(&self, file: &mut File, mode: u32) -> io::Result<()> {
        let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |name: &OsStr| {
            let follow = AtFlags::AT_SYMLINK_FOLLOW;
            linkat(AT_FDCWD, descriptor.as_str(), self.directory.as_fd(), name, follow)
        };
        match link(&self.name) {
            Ok(()) => return Ok(()),
            Err(Errno::EEXIST) if self.replace(|name| Ok(link(name)?)).is_ok() => return Ok(()),
            // Another file system, or one without /proc.
            Err(_) => {}
        }
        self.replace(|name| {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
            let mut copy = self.open_name(name, flags, mode)?;
            io::Seek::rewind(file)?;
            io::copy(file, &mut copy).map(drop).inspect_err(|_| self.discard(name))
        })
    }

    /// Makes a file under a random name and renames it. Signals are blocked, so that only SIGKILL
    /// can leave the random name.
    fn replace(&self, mut make: impl FnMut(&OsStr) -> io::Result<()>) -> io::Result<()> {
        let ends = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        let before = SigSet::from_iter(ends).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let made = self.replace_blocked(&mut make);
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        made
    }

    fn replace_blocked(&self, make: &mut impl FnMut(&OsStr) -> io::Result<()>) -> io::Result<()> {
        for _ in 0..TRIES {
            let name = OsString::from(format!(".lbr-{:016x}", RandomState::new().hash_one(())));
            match make(&name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let (from, to) = (name.as_os_str(), self.name.as_os_str());
            let renamed = renameat(&self.directory, from, &self.directory, to);
            return Ok(renamed.inspect_err(|_| self.discard(&name))?);
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes a random name after a failure, which is the error to report.
    fn discard(&self, name: &OsStr) {
        let _ = unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
    }
}

/// A walk along a path.
struct Walk<'a> {
    /// The whole path, for messages.
    path: &'a Path,
    at: OwnedFd,
    /// The components that were passed, for messages.
    passed: PathBuf,
    /// Components to come, the next one last.
    rest: Vec<OsString>,
    /// The owner of a directory on the way, if another user: that user can move
    /// what is in it.
    foreign: Option<u32>,
}

impl Walk<'_> {
    /// Opens the directory of a path.
    fn to(path: &Path) -> Result<OwnedFd> {
        let here = open(".", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        let at = here.map_err(|error| cannot_write(path, error))?;
        let mut walk = Walk { path, at, passed: PathBuf::new(), rest: Vec::new(), foreign: None };
        walk.push(path.parent().unwrap_or(Path::new("")));
        let mut links = 0;
        while let Some(name) = walk.rest.pop() {
            if let Some(target) = walk.step(&name)? {
                links += 1;
                if links > MOST_LINKS {
                    return Err(cannot_write(path, Errno::ELOOP));
                }
                walk.push(&target);
            }
        }
        Ok(walk.at)
    }

    fn push(&mut self, path: &Path) {
        self.rest.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
    }

    /// Enters a directory, or returns where a link leads.
    fn step(&mut self, name: &OsStr) -> Result<Option<PathBuf>> {
        if name == Component::RootDir.as_os_str() {
            self.foreign = None;
        }
        let up = name == Component::ParentDir.as_os_str();
        let passed = self.passed.join(name);
        // `..` in a directory that another user can move.
        if let Some(owner) = self.foreign.filter(|_| up) {
            return Err(self.refused(&passed, "goes up from a directory that", owner));
        }
        let failed = |error| cannot_write(self.path, error);
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let next = openat(&self.at, name, flags, Mode::empty()).map_err(failed)?;
        // Through the descriptor, because the name may change.
        let status = fstat(&next).map_err(failed)?;
        match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => {
                if !is_trusted(status.st_uid) && !up {
                    self.foreign = Some(status.st_uid);
                }
                (self.at, self.passed) = (next, passed);
                Ok(None)
            }
            SFlag::S_IFLNK if is_trusted(status.st_uid) => {
                Ok(Some(PathBuf::from(readlinkat(&next, "").map_err(failed)?)))
            }
            SFlag::S_IFLNK => Err(self.refused(&passed, "is a link that", status.st_uid)),
            _ => Err(failed(Errno::ENOTDIR)),
        }
    }

    fn refused(&self, at: &Path, what: &str, owner: u32) -> Failure {
        usage!(
            "{} is not written: {} {what} another user owns (uid {owner}), who decides where it \
             leads; name the directory itself",
            self.path.as_text(),
            at.as_text()
        )
    }
}

fn cannot_write(path: &Path, error: Errno) -> Failure {
    let error = anyhow!(io::Error::from(error));
    error.context(format!("{} cannot be written", path.as_text())).into()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#[path = "../../../tests/cli/unit/output/directory.rs"]
mod tests;
