//! Recordings that are read twice, because a view or a selection needs a first pass.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use nix::sys::statvfs::fstatvfs;
use profile::loops::{self, Loops};
use profile::paths::{self, Paths};
use profile::select::Selection;
use profile::{Counter, Recording, View};

use super::{Source, file};
use crate::exit::Result;
use crate::input::{self, ReadOne, Reading};
use crate::symbols::SymbolArgs;

/// Maximum number of bytes of a pipe that are copied.
const MOST_KEPT: u64 = 16 << 30;

/// Recordings that can be read again for another view.
pub(crate) trait Count {
    /// Reads them for a view.
    fn count<V: View>(&self, counter: Counter<V>) -> Result<(V::Table, Vec<Source>)>;

    /// Their loops, in code that is read where `symbols` say.
    fn loops(&self, symbols: &SymbolArgs) -> Result<(Loops, Vec<Source>)> {
        let (finder, sources) = self.count(with(loops::finder(), symbols))?;
        match finder.replay() {
            Ok(loops) => Ok((loops, sources)),
            Err(finder) => self.count(with(finder.counter(), symbols)),
        }
    }

    /// Their paths, in code that is read where `symbols` say.
    fn paths(&self, symbols: &SymbolArgs) -> Result<(Paths, Vec<Source>)> {
        let (finder, sources) = self.count(with(paths::finder(), symbols))?;
        match finder.replay() {
            Ok(paths) => Ok((paths, sources)),
            Err(finder) => self.count(with(finder.counter(), symbols)),
        }
    }
}

fn with<V: View>(mut counter: Counter<V>, symbols: &SymbolArgs) -> Counter<V> {
    symbols.apply(counter.maps());
    counter
}

impl Count for Reread {
    fn count<V: View>(&self, mut counter: Counter<V>) -> Result<(V::Table, Vec<Source>)> {
        let sources = self.read(&mut |recording, at| counter.recording(recording, at))?;
        Ok((counter.finish(), sources))
    }
}

/// Recordings that can be read again.
#[derive(Debug)]
pub(crate) struct Reread {
    paths: Vec<PathBuf>,
    reading: Reading,
    /// Copies of pipes, in unnamed files: the kernel removes them, however this process ends.
    kept: Vec<Option<File>>,
    /// Ctrl-C ended the copying.
    stopped: bool,
    /// How far the first reading came, by recording, if Ctrl-C ended it.
    reached: RefCell<Option<Vec<u64>>>,
}

impl Reread {
    /// Takes paths; a pipe is copied to a temporary file first.
    pub(crate) fn new(paths: &[PathBuf], reading: &Reading) -> Result<Reread> {
        input::once(paths)?;
        let kept: Result<Vec<_>> = paths.iter().map(|path| kept(path)).collect();
        let kept = kept?;
        // The part copied before Ctrl-C is read, twice and whole.
        let stopped = kept.iter().any(Option::is_some) && interrupted()?;
        let reached = stopped.then(|| vec![u64::MAX; paths.len()]);
        let (paths, reading) = (paths.to_vec(), reading.clone());
        Ok(Reread { paths, reading, kept, stopped, reached: RefCell::new(reached) })
    }

    /// Reads them from the beginning, one after the other. If Ctrl-C ends the
    /// first reading, the next one ends at the same place.
    pub(crate) fn read(&self, read: &mut ReadOne<'_>) -> Result<Vec<Source>> {
        if let Some(reached) = self.reached.borrow().as_ref() {
            let parts = self.paths.iter().zip(reached).enumerate();
            return parts
                .map(|(at, (path, position))| {
                    let mut recording = input::open_whole(&self.path(at), self.reading.force)?;
                    recording.stop_at(*position);
                    input::select(path, &mut recording, &self.reading.selection)?;
                    let mut source = input::read_one(path, recording, read)?;
                    if self.stopped && matches!(self.kept.get(at), Some(Some(_))) {
                        // The reader took its end for damage.
                        source.notes.stopped = true;
                        source.notes.cut_at = None;
                    }
                    Ok(source)
                })
                .collect();
        }
        let mut reached = Vec::new();
        let sources = input::read_each(
            &self.paths,
            &|at| input::open(&self.path(at), &self.reading),
            &mut |recording, progress| {
                read(recording, progress)?;
                reached.push(recording.position());
                Ok(())
            },
        )?;
        if sources.iter().any(Source::is_stopped) {
            *self.reached.borrow_mut() = Some(reached);
        }
        Ok(sources)
    }

    /// Reads all of them from now on, with another selection, also if their reading was stopped.
    pub(crate) fn again(&mut self, selection: &Arc<Selection>) {
        self.reading.selection = Arc::clone(selection);
        self.reached = RefCell::new(None);
    }

    /// Opens one of them.
    pub(crate) fn open(&self, at: usize) -> Result<Recording> {
        input::open(&self.path(at), &self.reading)
    }

    fn path(&self, at: usize) -> PathBuf {
        match self.kept.get(at) {
            // Reopened, so that it has its own position.
            Some(Some(kept)) => format!("/proc/self/fd/{}", kept.as_raw_fd()).into(),
            _ => self.paths.get(at).cloned().unwrap_or_else(|| "-".into()),
        }
    }
}

fn kept(path: &Path) -> Result<Option<File>> {
    let stdin = path == Path::new("-");
    let stays = |path| std::fs::metadata(path).map_or(true, |kind| kind.is_file() || kind.is_dir());
    if !stdin && stays(path) {
        return Ok(None);
    }
    let keep = || -> anyhow::Result<File> {
        let mut kept = tempfile::tempfile()?;
        let room = fstatvfs(&kept)?;
        // Leaves half of the free space to others.
        let most = MOST_KEPT.min(room.blocks_available() * room.fragment_size() / 2);
        let mut stream = file::Stream::of(path, input::interrupted()?)?;
        copy(&mut stream, &mut kept, most)?;
        Ok(kept)
    };
    let kept = keep().with_context(|| {
        format!("{} must be read twice, and cannot be copied", input::name(path))
    })?;
    Ok(Some(kept))
}

/// Copies to the end, to a line without end, or until Ctrl-C; at most `most` bytes.
fn copy(from: &mut impl Read, to: &mut File, most: u64) -> anyhow::Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    let (mut line, mut copied) = (0, 0);
    while line <= profile::ENDLESS && !interrupted()? {
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                let bytes = buffer.get(..read).unwrap_or_default();
                let end = bytes.iter().rposition(|byte| *byte == b'\n');
                line = end.map_or(line + read as u64, |end| (read - end) as u64);
                copied += read as u64;
                ensure!(
                    copied <= most,
                    "it does not end within {} MiB, the space for the copy: give a file",
                    most >> 20
                );
                to.write_all(bytes)?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn interrupted() -> std::io::Result<bool> {
    Ok(input::interrupted()?.load(Ordering::Relaxed))
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/input/reread.rs"]
mod tests;
