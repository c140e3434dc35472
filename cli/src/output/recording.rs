//! The file that is recorded into.
//!
//! A recorder that is killed leaves a readable file under the name that was
//! asked for, so the file has its name from the first byte on, and becomes
//! seekable where it lies; it is not renamed into place at the end. What
//! keeps it from being another file than ours: it is always made new
//! (`O_EXCL`, which follows no link), for its owner alone, and is locked as
//! long as it is written. What stood there before becomes `FILE.old`, as under
//! perf, unless another recorder still holds its lock: then this one is
//! refused. An empty file is taken away instead, as perf does; it is also what
//! a recorder leaves that lost a race for the name.

use lbr_msr::text::AsText;
use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use nix::libc;
use profile::perf_data::{Meta, WriteError, Writer};
use sampler::interrupt::Interrupts;

use super::stream::Stream;
use super::{Output, To, is_same, name};
use crate::exit::{FAILED, Failure};
use crate::present::number::grouped;

/// Others may take the name as often while we try to have it.
const TRIES: usize = 100;

/// An output of perf.data.
#[derive(Debug)]
pub(crate) enum RecordingFile {
    /// Becomes seekable.
    File(File),
    /// Stays in pipe form.
    Stream(Stream),
}

/// Takes standard output for the recording alone, where it goes there: what the
/// program prints, and we, goes to standard error, as under perf. To be called
/// before the program is started, which inherits what it finds.
pub(crate) fn prepare(output: &Output) -> Result<(), Failure> {
    output.no_terminal()?;
    if matches!(output.to, To::Ours(_)) {
        nix::unistd::dup2_stdout(io::stderr().as_fd()).context("standard output")?;
    }
    Ok(())
}

/// Begins a recording. A signal ends waiting for a pipe's reader.
pub(crate) fn begin(
    output: Output,
    meta: Meta,
    interrupts: Interrupts,
) -> Result<Writer<RecordingFile>, Failure> {
    let Output { path, to, .. } = output;
    let file = match to {
        To::Ours(file) => RecordingFile::Stream(Stream::new(file, Some(interrupts))),
        To::Device => RecordingFile::Stream(
            Stream::open(&path, Some(interrupts)).with_context(|| cannot_write(&path))?,
        ),
        To::File => {
            let file = create(&path)?;
            crate::memory::keeps(&path.as_text());
            RecordingFile::File(file)
        }
    };
    Ok(Writer::new(file, meta).with_context(|| cannot_write(&path))?)
}

/// Ends it: a file becomes seekable. What was recorded before a failure is
/// worth keeping: it is finished either way.
pub(crate) fn finish<T>(
    writer: Writer<RecordingFile>,
    path: &Path,
    recorded: Result<T, Failure>,
) -> Result<T, Failure> {
    // Of what a disk refused in the end it took the begin.
    let bytes = match writer.output() {
        Some(RecordingFile::File(file)) => Some(file.metadata().map_or(0, |there| there.len())),
        _ => None,
    };
    let is_file = bytes.is_some();
    let kept = match bytes {
        Some(bytes) if bytes > 0 => {
            let (bytes, path) = (grouped(bytes), path.as_text());
            format!("; the {bytes} bytes before it are kept in {path} and can be read")
        }
        _ => String::new(),
    };
    let finished = if is_file { writer.finish_file() } else { writer.finish_stream() };
    match (recorded, finished) {
        (Ok(recorded), Ok(())) => Ok(recorded),
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

fn create(path: &Path) -> Result<File, Failure> {
    let cannot = || cannot_write(path);
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    for _ in 0..TRIES {
        match options.open(path) {
            Ok(file) if !lock(&file) => return Err(in_use(path)),
            Ok(file) if is_at(&file, path) => return Ok(file),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => move_away(path)?,
            Err(error) => return Err(error).with_context(cannot)?,
        }
    }
    Err(in_use(path))
}

/// Makes room for a new file under this name.
fn move_away(path: &Path) -> Result<(), Failure> {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    let old = PathBuf::from(old);
    let cannot = || format!("cannot rename {} to {}", path.as_text(), old.as_text());
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        there => there.with_context(cannot)?,
    };
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) if there.is_file() => {
            if !lock(&file) {
                return Err(in_use(path));
            }
            if !is_at(&file, path) {
                return Ok(());
            }
            if there.len() == 0 {
                std::fs::remove_file(path).with_context(cannot)?;
            } else {
                std::fs::rename(path, &old).with_context(cannot)?;
            }
        }
        // A link, or what we may not read, which no recorder of ours writes.
        _ => std::fs::rename(path, &old).with_context(cannot)?,
    }
    Ok(())
}

/// Whether nobody else has the lock. A file system without locks refuses nobody.
fn lock(file: &File) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

/// Whether the name still leads to the file.
fn is_at(file: &File, path: &Path) -> bool {
    let there = std::fs::symlink_metadata(path);
    there.is_ok_and(|there| file.metadata().is_ok_and(|file| is_same(&file, &there)))
}

fn in_use(path: &Path) -> Failure {
    let path = path.as_text();
    let error = anyhow!("{path} is being written by another lbr record: give another file with -o");
    Failure { code: FAILED, error }
}

impl Write for RecordingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            RecordingFile::File(file) => file.write(bytes),
            RecordingFile::Stream(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            RecordingFile::File(file) => file.flush(),
            RecordingFile::Stream(stream) => stream.flush(),
        }
    }
}

impl Seek for RecordingFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            RecordingFile::File(file) => file.seek(to),
            RecordingFile::Stream(_) => Err(io::ErrorKind::NotSeekable.into()),
        }
    }
}
