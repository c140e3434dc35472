//! The recording file.
//!
//! A recorder that is killed leaves a readable file under the name that was asked for, so the file
//! has its name from the first byte on, and becomes seekable where it lies; it is not renamed into
//! place at the end. It is always created anew (`O_EXCL`, which follows no link), for its owner
//! alone, and is locked while it is written. An older recording becomes `FILE.old`, as under perf,
//! unless another recorder still holds its lock: then recording is refused, as for a file that is
//! not a recording. An empty file is removed, as in perf; a recorder that loses a race for the name
//! leaves one, too.

use lbr_msr::text::AsText;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::SFlag;
use profile::perf_data::{Meta, WriteError, Writer, Written};
use profile::recording::is_perf_data;
use sampler::interrupt::Interrupts;

use super::directory::DirEntry;
use super::stream::Stream;
use super::{Output, To, name};
use crate::exit::{FAILED, Failure, Result, failure, usage};
use crate::present::grouped;

/// Attempts to get the name while other processes take it.
const TRIES: usize = 100;

/// Reserves standard output for the recording, if it is the output: what the program and lbr print
/// goes to standard error, as under perf. Must be called before the program is started, because it
/// inherits the descriptors.
pub(crate) fn prepare(output: &Output) -> Result<()> {
    output.no_terminal()?;
    if matches!(output.to, To::Ours(_)) {
        nix::unistd::dup2_stdout(io::stderr().as_fd()).context("standard output")?;
    }
    Ok(())
}

/// Starts a recording; also returns whether an older one became `FILE.old`. A signal ends waiting
/// for a pipe's reader.
pub(crate) fn begin(
    output: Output,
    meta: Meta,
    interrupts: Interrupts,
) -> Result<(Writer<Stream>, bool)> {
    let Output { path, to, .. } = output;
    let mut has_moved = false;
    let file = match to {
        To::Ours(file) => Stream::new(file, Some(interrupts)),
        To::Device(entry) => {
            Stream::open(&entry, Some(interrupts)).with_context(|| cannot_write(&path))?
        }
        To::File(entry) => {
            let file = create(&entry, &path, &mut has_moved)?;
            crate::memory::keeps(&path.as_text());
            Stream::of_file(file)
        }
    };
    Ok((Writer::new(file, meta).with_context(|| cannot_write(&path))?, has_moved))
}

/// A recording that was written into a file.
pub(crate) struct Finished {
    file: File,
    /// Its contents.
    pub(crate) written: Written,
}

impl Finished {
    /// The file's new place, if it was renamed, for a message.
    fn moved(&self) -> String {
        let named = self.file.metadata().is_ok_and(|file| file.nlink() > 0);
        let link = || std::fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        match named.then(link) {
            Some(Ok(path)) => format!("; it is {} now", path.as_text()),
            _ => String::new(),
        }
    }

    /// Opens what is at the path now, if it is this file, as long as it was
    /// written.
    pub(crate) fn reopen(&self, path: &Path) -> Result<File> {
        let lost = |why: String| -> Failure {
            anyhow!("the recording is lost: {} {why}", path.as_text()).into()
        };
        let entry = DirEntry::of(path)?;
        if !entry.is_of(&self.file) {
            let what = if entry.status().is_ok() { "replaced by another file" } else { "removed" };
            return Err(lost(format!("was {what} while it was recorded into{}", self.moved())));
        }
        let file = entry.open(OFlag::O_RDONLY, 0).map_err(io::Error::from);
        let file = file.map_err(|error| lost(format!("cannot be read: {error}")))?;
        let (bytes, written) = (file.metadata()?.len(), self.written.bytes);
        if bytes != written {
            let (bytes, written) = (grouped(bytes), grouped(written));
            return Err(lost(format!(
                "has {bytes} bytes and not the {written} that were written: something else wrote to it"
            )));
        }
        Ok(file)
    }
}

/// Finishes it: a file becomes seekable. A recording that ends in a failure is finished too,
/// because it is worth keeping. `None` for a pipe.
pub(crate) fn finish<T>(
    writer: Writer<Stream>,
    path: &Path,
    recorded: Result<T>,
) -> Result<(T, Option<Finished>)> {
    let file = match writer.output() {
        Some(to) if to.is_file => Some(to.file.try_clone().context("the recording")?),
        _ => None,
    };
    // If the disk is full at the end, the start was still written.
    let kept = match file.as_ref().map(|file| file.metadata().map_or(0, |there| there.len())) {
        Some(bytes) if bytes > 0 => {
            let (bytes, path) = (grouped(bytes), path.as_text());
            format!("; the {bytes} bytes before it are kept in {path} and can be read")
        }
        _ => String::new(),
    };
    let finished = match file {
        Some(file) => writer.finish_file().map(|written| Some(Finished { file, written })),
        None => writer.finish_stream().map(|()| None),
    };
    match (recorded, finished) {
        (Ok(recorded), Ok(finished)) => Ok((recorded, finished)),
        (Ok(_), Err(error)) => Err(anyhow!("{}: {error}{kept}", cannot_write(path)).into()),
        (Err(Failure { code, error }), Err(WriteError::Ended)) => {
            Err(Failure { code, error: anyhow!("{}: {error:#}{kept}", path.as_text()) })
        }
        (Err(failure), _) => Err(failure),
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", name(path))
}

fn create(entry: &DirEntry, path: &Path, has_moved: &mut bool) -> Result<File> {
    for _ in 0..TRIES {
        match entry.open(OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, 0o600) {
            Ok(file) if !lock(&file) => return Err(in_use(path)),
            Ok(file) if entry.is_of(&file) => return Ok(file),
            Ok(_) => {}
            Err(Errno::EEXIST) => *has_moved |= move_away(entry, path)?,
            Err(error) => {
                return Err(io::Error::from(error)).with_context(|| cannot_write(path))?;
            }
        }
    }
    Err(in_use(path))
}

/// Makes room for a new file under this name. Returns whether one became `FILE.old`.
fn move_away(entry: &DirEntry, path: &Path) -> Result<bool> {
    let cannot = || format!("cannot rename {0} to {0}.old", path.as_text());
    let status = match entry.status() {
        Err(Errno::ENOENT) => return Ok(false),
        status => status.map_err(io::Error::from).with_context(cannot)?,
    };
    if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG {
        let file = entry.open(OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0).map_err(io::Error::from);
        let mut file = file.map_err(|error| not_a_recording(path, &error.to_string()))?;
        if !lock(&file) {
            return Err(in_use(path));
        }
        if !entry.is_of(&file) {
            return Ok(false);
        }
        if status.st_size == 0 {
            entry.remove().map_err(io::Error::from).with_context(cannot)?;
            return Ok(false);
        }
        let mut magic = [0; 8];
        if file.read_exact(&mut magic).is_err() || !is_perf_data(&magic) {
            return Err(not_a_recording(path, "not a recording"));
        }
    }
    // A link is renamed too: its target stays.
    entry.rename(&entry.with_suffix(".old")?).map_err(io::Error::from).with_context(cannot)?;
    Ok(true)
}

/// Refuses to take the name of a file that may be missed.
fn not_a_recording(path: &Path, why: &str) -> Failure {
    usage!("{}: {why}; it is left as it is: give another file with -o", path.as_text())
}

/// Takes the lock if it is free. A file system without locks always grants it.
fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn in_use(path: &Path) -> Failure {
    let path = path.as_text();
    failure!(FAILED, "{path} is being written by another lbr record: give another file with -o")
}
