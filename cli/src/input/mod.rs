//! Recordings as arguments: opens them, and reports anomalies.

pub(crate) mod file;
mod recordings;
pub(crate) mod selected;
mod source;
pub(crate) mod source_text;

use lbr_msr::text::AsText;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use anyhow::Context;
use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use profile::Recording;
use profile::perf_data::ReadError;
use profile::select::{SelectError, Selection};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

pub(crate) use self::recordings::{Count, Progress, Recordings};
pub(crate) use self::source::{Source, warn};
use crate::args::heading;
use crate::exit::{FAILED, Failure, Result, USAGE, usage};
use crate::present::say;
use crate::symbols::SymbolArgs;

/// Recordings as arguments.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = heading::INPUT)]
pub(crate) struct Inputs {
    /// perf.data or perf script text; - is stdin [default: perf.data]
    ///
    /// Text needs the branch stacks: `perf script -F brstack`, `brstacksym` or `+brstackoff`.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Same as FILE, as in perf
    #[arg(short, long, value_name = "FILE", conflicts_with = "files", hide_short_help = true)]
    pub(crate) input: Vec<PathBuf>,
}

impl Inputs {
    /// Their paths: at least one.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        static DEFAULT: LazyLock<[PathBuf; 1]> = LazyLock::new(|| [PathBuf::from("perf.data")]);
        let given = [&*self.files, &*self.input];
        given.into_iter().find(|paths| !paths.is_empty()).unwrap_or(&*DEFAULT)
    }
}

/// How recordings are read, from the command line.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// The samples that count.
    pub(crate) selection: Arc<Selection>,
    /// Whether files of other users are read (`--force`).
    pub(crate) force: bool,
    /// Whether modelled predictions and cycles are omitted: the output cannot label them.
    pub(crate) omit_modelled: bool,
    /// Where symbols are looked up.
    pub(crate) symbols: SymbolArgs,
}

/// Opens a recording and selects its samples; `-` is standard input.
pub(crate) fn open(path: &Path, reading: &Reading) -> Result<Recording> {
    let mut recording = open_whole(path, reading.force)?;
    recording.stop_when(interrupted()?);
    recording.read_ahead(std::thread::available_parallelism().map_or(1, NonZero::get));
    if reading.omit_modelled {
        recording.omit_modelled();
    }
    select(path, &mut recording, &reading.selection)?;
    Ok(recording)
}

/// Selects samples.
fn select(path: &Path, recording: &mut Recording, selection: &Arc<Selection>) -> Result<()> {
    recording.select(selection).map_err(|error| match error {
        SelectError::Read(error) => failure(path, error),
        error => Failure { code: USAGE, error: anyhow::Error::new(error).context(name(path)) },
    })
}

/// As [`open`], without a selection, and not ended by signals.
pub(crate) fn open_whole(path: &Path, force: bool) -> Result<Recording> {
    let cannot = |cause| failure(path, ReadError::Open { path: path.to_owned(), cause });
    let opened = if path == Path::new("-") {
        let stream = file::Stream::stdin(interrupted()?).map_err(cannot)?;
        Recording::from_stream(Box::new(stream))
    } else {
        let file = file::open(path).map_err(cannot)?;
        let kind = file.metadata().map_err(cannot)?;
        if kind.is_file() && !force && !file::is_owned(&file)? {
            let owner = kind.uid();
            return Err(usage!(
                "{} belongs to another user ({owner}), who may have made it to deceive: --force \
                 reads it all the same",
                path.as_text()
            ));
        }
        if kind.is_file() || kind.is_dir() {
            Recording::of_file(path, file)
        } else {
            let stream = file::Stream::new(file, interrupted()?).map_err(cannot)?;
            Recording::from_stream(Box::new(stream))
        }
    };
    opened.map_err(|error| failure(path, error))
}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether Ctrl-C was pressed.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Set by Ctrl-C: reading ends, and what was read so far is reported. The second Ctrl-C ends the
/// process, as usual.
pub(crate) fn interrupted() -> std::io::Result<Arc<AtomicBool>> {
    if let Some(flag) = INTERRUPTED.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    // A signal between the two calls would be lost.
    let both = SigSet::from(Signal::SIGINT);
    both.thread_block()?;
    flag::register_conditional_default(SIGINT, Arc::clone(&flag))?;
    flag::register(SIGINT, Arc::clone(&flag))?;
    both.thread_unblock()?;
    Ok(Arc::clone(INTERRUPTED.get_or_init(|| flag)))
}

/// Set by SIGINT and SIGTERM, which then do not end the process: the caller restores what it changed.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop)).context("signals cannot be listened for")?;
    }
    Ok(stop)
}

/// Refuses to read standard input twice.
fn once(paths: &[PathBuf]) -> Result<()> {
    if paths.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(usage!("standard input (-i -) can be read once only"));
    }
    warn_of_twins(paths);
    Ok(())
}

/// Warns about files that are given twice: they count twice, and their intervals get too narrow.
fn warn_of_twins(paths: &[PathBuf]) {
    let file = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        found.is_file().then(|| (found.dev(), found.ino()))
    };
    let files: Vec<_> = paths.iter().map(file).collect();
    for (at, (path, this)) in paths.iter().zip(&files).enumerate() {
        if this.is_some() && files.iter().take(at).any(|other| other == this) {
            say!("{}: given more than once, and counted so", path.as_text());
        }
    }
}

/// The exit status of a read error: a recording that cannot be used is bad input, one that could
/// not be read is a failure.
pub(crate) fn failure(path: &Path, error: ReadError) -> Failure {
    let code = if matches!(error, ReadError::Io { .. }) { FAILED } else { USAGE };
    if let Some(why) = nothing_there(path, &error) {
        return usage!(why);
    }
    // An error of opening names the file itself.
    let named = matches!(error, ReadError::Open { .. });
    let error = anyhow::Error::new(error);
    let error = if named { error } else { error.context(name(path)) };
    Failure { code, error }
}

/// What to do about a recording that does not exist, or that is empty.
fn nothing_there(path: &Path, error: &ReadError) -> Option<String> {
    let not_found = std::io::ErrorKind::NotFound;
    let is_missing = matches!(error, ReadError::Open { cause, .. } if cause.kind() == not_found);
    if is_missing && path == Path::new("perf.data") {
        let makes = "lbr record PROGRAM makes one, -i FILE names another recording";
        return Some(format!("no perf.data here: {makes}"));
    }
    if is_missing {
        return Some(format!("{} does not exist", name(path)));
    }
    let is_empty = std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0);
    is_empty.then(|| format!("{} is empty: nothing was recorded into it", name(path)))
}

/// The path for messages.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.as_text().into_owned() }
}
