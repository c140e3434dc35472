//! Recordings that are read, once or several times: a view or a selection may need a first pass.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::statvfs::fstatvfs;
use profile::loops::{self, Loops};
use profile::paths::{self, Paths};
use profile::perf_data::ReadError;
use profile::select::Selection;
use profile::{Counter, Recording, View};

use super::{Source, file, selected};
use crate::exit::{FAILED, Result, failure};
use crate::input::{self, Reading};
use crate::present::say;

/// Maximum number of bytes of a pipe that are copied.
const MOST_KEPT: u64 = 16 << 30;

/// Takes the position in a recording, and its size if known.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64, Option<u64>);

/// Reads a recording to its end; reports its position.
pub(crate) type ReadOne<'r> = dyn FnMut(&mut Recording, Progress<'_>) -> Result<(), ReadError> + 'r;

/// Recordings that can be read again for another view.
pub(crate) trait Count {
    /// Reads them for a view.
    fn count<V: View>(&self, counter: Counter<V>) -> Result<(V::Table, Vec<Source>)>;

    /// Their loops.
    fn loops(&self) -> Result<(Loops, Vec<Source>)> {
        let (loops, sources) = self.count(loops::counter())?;
        Ok((loops?, sources))
    }

    /// Their paths.
    fn paths(&self) -> Result<(Paths, Vec<Source>)> {
        let (paths, sources) = self.count(paths::counter())?;
        Ok((paths?, sources))
    }
}

impl Count for Recordings {
    fn count<V: View>(&self, mut counter: Counter<V>) -> Result<(V::Table, Vec<Source>)> {
        self.reading.symbols.apply(counter.maps());
        let sources = self.read(&mut |recording, at| counter.recording(recording, at))?;
        Ok((counter.finish(), sources))
    }
}

/// Recordings, and how they are read.
pub(crate) struct Recordings {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) reading: Reading,
    /// Copies of pipes, in unnamed files: the kernel removes them, however this process ends.
    kept: Vec<Option<File>>,
    /// Ctrl-C ended the copying.
    stopped: bool,
    /// How far the first reading came, by recording, if Ctrl-C ended it.
    reached: RefCell<Option<Vec<u64>>>,
}

impl Recordings {
    /// For one pass. A selection that depends on the end of a recording takes two.
    pub(crate) fn once(paths: &[PathBuf], reading: Reading) -> Result<Recordings> {
        let twice = reading.selection.needs_names();
        Recordings::new(paths, reading, twice)
    }

    /// For several passes: a pipe is copied to a temporary file first.
    pub(crate) fn reread(paths: &[PathBuf], reading: Reading) -> Result<Recordings> {
        Recordings::new(paths, reading, true)
    }

    fn new(paths: &[PathBuf], reading: Reading, keeps: bool) -> Result<Recordings> {
        input::once(paths)?;
        let kept: Result<Vec<_>> = paths.iter().filter(|_| keeps).map(|path| kept(path)).collect();
        let kept = kept?;
        // The part copied before Ctrl-C is read, twice and whole.
        let stopped = kept.iter().any(Option::is_some) && input::is_interrupted();
        let reached = RefCell::new(stopped.then(|| vec![u64::MAX; paths.len()]));
        Ok(Recordings { paths: paths.to_vec(), reading, kept, stopped, reached })
    }

    /// Reads them one after another with `read`, each to its end. Ctrl-C ends the current one and
    /// skips the others, with a message; the next reading ends at the same place.
    pub(crate) fn read(&self, read: &mut ReadOne<'_>) -> Result<Vec<Source>> {
        if let Some(reached) = self.reached.borrow().as_ref() {
            return self.read_to(reached, read);
        }
        let (mut sources, mut reached): (Vec<Source>, Vec<u64>) = Default::default();
        for (at, path) in self.paths.iter().enumerate() {
            if let Some(last) = sources.last_mut().filter(|_| input::is_interrupted()) {
                say!("{}: stopped by Ctrl-C: not read", input::name(path));
                last.notes.stopped = true;
                continue;
            }
            let mut recording = self.open(at)?;
            sources.push(read_one(path, &mut recording, read)?);
            reached.push(recording.position());
        }
        let nothing = |source: &Source| source.selection.is_none() && source.samples() == 0;
        let stopped = sources.iter().any(|source| source.notes.stopped);
        if stopped && sources.iter().all(nothing) {
            return Err(failure!(FAILED, "stopped by Ctrl-C before the first sample"));
        }
        selected::check(&sources)?;
        *self.reached.borrow_mut() = stopped.then_some(reached);
        Ok(sources)
    }

    /// As [`read`](Self::read), each up to a position.
    fn read_to(&self, reached: &[u64], read: &mut ReadOne<'_>) -> Result<Vec<Source>> {
        let parts = self.paths.iter().zip(reached).enumerate();
        let part = |(at, (path, position)): (usize, (&PathBuf, &u64))| {
            let mut recording = input::open_whole(&self.path(at), self.reading.force)?;
            recording.stop_at(*position);
            input::select(path, &mut recording, &self.reading.selection)?;
            let mut source = read_one(path, &mut recording, read)?;
            if self.stopped && matches!(self.kept.get(at), Some(Some(_))) {
                // The reader took its end for damage.
                source.notes.stopped = true;
                source.notes.cut_at = None;
            }
            Ok(source)
        };
        parts.map(part).collect()
    }

    /// Reads all of them from now on, with another selection, also if their reading was stopped.
    pub(crate) fn select(&mut self, selection: &Arc<Selection>) {
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

/// Reads a recording to its end.
fn read_one(path: &Path, recording: &mut Recording, read: &mut ReadOne<'_>) -> Result<Source> {
    let (started, mut bar) = (Instant::now(), None);
    let end = read(recording, &mut |at, size| {
        if started.elapsed() >= Duration::from_secs(1) {
            bar.get_or_insert_with(|| progress_bar(size)).set_position(at);
        }
    });
    end.map_err(|e| input::failure(path, e))?;
    Ok(Source::of(path, recording))
}

/// A progress bar on standard error. indicatif shows it only on a terminal, and clears it when it is
/// dropped.
fn progress_bar(size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:30} {bytes}/{total_bytes} {eta}{msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}{msg}"),
    };
    let style = ProgressStyle::with_template(template);
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(if cfg!(unoptimized) { " (slow: a build without --release)" } else { "" })
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
    while line <= profile::ENDLESS && !input::is_interrupted() {
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

#[cfg(test)]
#[path = "../../../tests/cli/unit/input/recordings.rs"]
mod tests;
