//! Recordings as arguments: opening them, and saying what was odd about them.

pub(crate) mod file;
mod reread;
pub(crate) mod selected;

use lbr_msr::text::AsText;
use std::collections::HashMap;
use std::io::IsTerminal;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use profile::perf_data::{Notes, ReadError};
use profile::recording::Refused;
use profile::select::{EventSamples, Names, SelectError, Selection};
use profile::{Counter, Recording, View};
use signal_hook::{consts::SIGINT, flag};

pub(crate) use self::reread::Reread;
use crate::exit::{FAILED, Failure, USAGE};
use crate::present::number::{counted, grouped};
use crate::present::out::say;

/// Recordings as arguments.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Inputs {
    /// perf.data, or text of `perf script` with the branches (`-F brstack`, `brstacksym`, `+brstackoff`);
    /// `-` is standard input [default: perf.data].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The same, as perf's option.
    #[arg(short, long, value_name = "FILE", conflicts_with = "files")]
    input: Vec<PathBuf>,
}

impl Inputs {
    /// One recording.
    pub(crate) fn one(path: &Path) -> Inputs {
        Inputs { files: vec![path.to_owned()], input: Vec::new() }
    }

    /// Their paths: at least one.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        static DEFAULT: LazyLock<[PathBuf; 1]> = LazyLock::new(|| [PathBuf::from("perf.data")]);
        let given = [&*self.files, &*self.input];
        given.into_iter().find(|paths| !paths.is_empty()).unwrap_or(&*DEFAULT)
    }
}

/// Opens a recording, of which some samples count; `-` is standard input.
pub(crate) fn open(path: &Path, selection: &Arc<Selection>) -> Result<Recording, Failure> {
    let mut recording = open_whole(path)?;
    recording.stop_when(interrupted()?);
    recording.read_ahead(threads());
    select(path, &mut recording, selection)?;
    Ok(recording)
}

/// Says which samples count.
fn select(
    path: &Path,
    recording: &mut Recording,
    selection: &Arc<Selection>,
) -> Result<(), Failure> {
    recording.select(selection).map_err(|error| match error {
        SelectError::Read(error) => failure(path, error),
        error => Failure { code: USAGE, error: anyhow::Error::new(error).context(name(path)) },
    })
}

/// The same, read to its end whatever signals come.
pub(crate) fn open_whole(path: &Path) -> Result<Recording, Failure> {
    let cannot = |cause| failure(path, ReadError::Open { path: path.to_owned(), cause });
    let opened = if path == Path::new("-") {
        let stream = file::Stream::stdin(interrupted()?).map_err(cannot)?;
        Recording::from_stream(Box::new(stream))
    } else {
        let file = file::open(path).map_err(cannot)?;
        let kind = file.metadata().map_err(cannot)?;
        if kind.is_file() && !FORCE.load(Ordering::Relaxed) && !file::is_owned(&file)? {
            let owner = kind.uid();
            let error = anyhow!(
                "{} belongs to another user ({owner}), who may have made it to deceive: --force \
                 reads it all the same",
                path.as_text()
            );
            return Err(Failure { code: USAGE, error });
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

/// Recordings of other users are read too; set from the command line.
static FORCE: AtomicBool = AtomicBool::new(false);

/// Does as the command line says: `--force`.
pub(crate) fn force(yes: bool) {
    FORCE.store(yes, Ordering::Relaxed);
}

/// How many threads read and count; 0 where nobody said it.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Does as the command line says: `--threads`.
pub(crate) fn use_threads(threads: Option<u16>) {
    THREADS.store(threads.map_or(0, usize::from), Ordering::Relaxed);
}

/// Recordings that are counted in several threads where nobody said it, bytes
/// together: joining what the parts counted costs more than smaller ones gain.
const LARGE: u64 = 512 << 20;

/// How many threads count the branches of recordings.
pub(crate) fn threads_for(paths: &[PathBuf]) -> usize {
    let sizes = paths.iter().filter_map(|path| Some(std::fs::metadata(path).ok()?.len()));
    let is_asked_for = THREADS.load(Ordering::Relaxed) > 0;
    if is_asked_for || sizes.sum::<u64>() >= LARGE { threads() } else { 1 }
}

/// How many threads read text: where nobody said it, one for each CPU that this
/// process may use.
fn threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        threads => threads,
    }
}

static INTERRUPTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Whether Ctrl-C came where something is read.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Set by Ctrl-C: reading ends, and what was read so far is reported. The
/// second Ctrl-C ends the process, as it would have without us.
pub(crate) fn interrupted() -> std::io::Result<Arc<AtomicBool>> {
    if let Some(flag) = INTERRUPTED.get() {
        return Ok(Arc::clone(flag));
    }
    let flag = Arc::new(AtomicBool::new(false));
    flag::register_conditional_default(SIGINT, Arc::clone(&flag))?;
    flag::register(SIGINT, Arc::clone(&flag))?;
    Ok(Arc::clone(INTERRUPTED.get_or_init(|| flag)))
}

/// Events that a head names.
const EVENTS: usize = 12;

/// What is left of a recording that was read.
#[derive(Debug)]
pub(crate) struct Source {
    /// As people call it.
    pub(crate) name: String,
    /// CPU, as the recording describes it.
    pub(crate) cpu: Option<String>,
    /// Who recorded it.
    pub(crate) by: Option<String>,
    /// What its samples were chosen by, if not all were.
    pub(crate) selection: Option<Arc<Selection>>,
    /// Which names it has.
    pub(crate) names: Names,
    events: Vec<EventSamples>,
    /// It has symbols in place of addresses.
    pub(crate) has_names: bool,
    notes: Notes,
    refused: Option<Refused>,
}

impl Source {
    pub(crate) fn of(path: &Path, recording: &Recording) -> Source {
        let info = recording.info();
        Source {
            name: name(path),
            cpu: info.and_then(|info| info.cpudesc.clone()),
            by: info.and_then(|info| info.version.clone()),
            selection: recording.selection().cloned(),
            names: recording.names(),
            events: by_name(recording.samples_by_event()),
            has_names: recording.has_names(),
            notes: recording.notes(),
            refused: recording.refused().copied(),
        }
    }

    /// Samples that counted.
    pub(crate) fn samples(&self) -> u64 {
        self.events.iter().fold(0, |sum, event| sum.saturating_add(event.samples))
    }

    /// Its events with branch stacks; of a selection those that are in it.
    /// What nobody named is none.
    pub(crate) fn events(&self) -> impl Iterator<Item = &EventSamples> {
        let several = self.events.len() > 1;
        let all = self.selection.is_none();
        self.events
            .iter()
            .filter(move |event| (event.named || several) && (all || event.samples > 0))
    }

    /// Whose branches these are, for the head of what is printed.
    pub(crate) fn origin(&self) -> String {
        let said = self.recorder().into_iter().chain(self.events_line());
        let said = said.chain(self.limits().into_iter().map(str::to_owned));
        let said = said.chain(self.partial().map(str::to_owned));
        format!("{}: {}", self.name, said.collect::<Vec<_>>().join("; "))
    }

    /// The CPU, and who recorded it.
    pub(crate) fn recorder(&self) -> Vec<String> {
        let cpu = self.cpu.clone().unwrap_or_else(|| "CPU not said".to_owned());
        let by = self.by.as_ref().map(|by| format!("recorded by {by}"));
        std::iter::once(cpu).chain(by).collect()
    }

    /// What it does not say, and others do.
    pub(crate) fn limits(&self) -> Vec<&'static str> {
        let Notes { offsets_in_files, processes_unsaid, straights, .. } = self.notes;
        let limits = [
            (self.has_names, "symbols in place of addresses"),
            (offsets_in_files, "offsets in files in place of addresses"),
            (processes_unsaid, "threads without their processes"),
            (straights > 0, "straight code without its branches"),
        ];
        limits.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what).collect()
    }

    /// The events: `event cycles:u`, and where several are counted together, how
    /// many samples each has. `None` where nothing is known of them.
    pub(crate) fn events_line(&self) -> Option<String> {
        let name = |event: &EventSamples| match event.name.as_str() {
            "" => "none said".to_owned(),
            name => name.to_owned(),
        };
        let events: Vec<&EventSamples> = self.events().collect();
        Some(match events.as_slice() {
            [] => return None,
            [one] => format!("event {}", name(one)),
            several => {
                let each = several.iter().take(EVENTS).map(|event| {
                    format!("{} ({})", name(event), counted(event.samples, "sample", "samples"))
                });
                let each = each.collect::<Vec<_>>().join(", ");
                match several.len().saturating_sub(EVENTS) {
                    0 => format!("events {each}"),
                    more => format!("events {each} and {} more", grouped(more as u64)),
                }
            }
        })
    }

    /// Whether its recorder says that nothing was measured: the registers of an
    /// emulated CPU look like those of any other.
    pub(crate) fn says_modelled(&self) -> bool {
        self.cpu.as_ref().is_some_and(|cpu| cpu.contains("not measured"))
    }

    /// Says that branches are modelled, where its recorder does not.
    pub(crate) fn modelled(sources: &[Source], software: u64) -> Option<&'static str> {
        let is_unsaid = software > 0 && !sources.iter().any(Source::says_modelled);
        is_unsaid.then_some("software LBR, not measured")
    }

    /// Whether Ctrl-C ended its reading.
    pub(crate) fn is_stopped(&self) -> bool {
        self.notes.stopped
    }

    /// Says that Ctrl-C ended it before it was given to the reader, which took
    /// its end for damage.
    pub(crate) fn was_stopped(&mut self) {
        self.notes.stopped = true;
        self.notes.cut_at = None;
    }

    /// Whether its end was not read: Ctrl-C, or a file that was cut.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial().is_some()
    }

    /// Why its end was not read, for the head of what is printed.
    pub(crate) fn partial(&self) -> Option<&'static str> {
        if self.notes.stopped {
            return Some("partial: stopped by Ctrl-C");
        }
        self.notes.cut_at.map(|_| "partial: cut off or damaged")
    }
}

/// Events of one name together: a recorder may have one for each kind of core,
/// or for each CPU.
fn by_name(events: Vec<EventSamples>) -> Vec<EventSamples> {
    let mut names: Vec<EventSamples> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for event in events {
        let at = *known.entry(event.name.clone()).or_insert(names.len());
        match names.get_mut(at) {
            Some(same) => same.samples = same.samples.saturating_add(event.samples),
            None => names.push(event),
        }
    }
    names
}

/// Counts recordings for a view, one after the other, as [`read_all`] reads them.
pub(crate) fn count<V: View>(
    paths: &[PathBuf],
    selection: &Arc<Selection>,
    mut counter: Counter<V>,
) -> Result<(V::Table, Vec<Source>), Failure> {
    let sources = read_all(paths, selection, |recording, at| counter.recording(recording, at))?;
    Ok((counter.finish(), sources))
}

/// Reads recordings one after the other, `read` each to its end. Ctrl-C ends
/// the one at hand and leaves out the others, which is said.
///
/// What a pipe says only at its end, and the selection asks for, takes a copy.
pub(crate) fn read_all(
    paths: &[PathBuf],
    selection: &Arc<Selection>,
    read: impl FnMut(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError>,
) -> Result<Vec<Source>, Failure> {
    if selection.needs_names() {
        return Reread::new(paths, selection)?.read(read);
    }
    once(paths)?;
    let open_at = |at: usize| {
        let path = paths.get(at).map_or(Path::new("-"), PathBuf::as_path);
        open(path, selection)
    };
    read_each(paths, open_at, read)
}

/// The same, with recordings that `open` opens, by index.
pub(crate) fn read_each(
    paths: &[PathBuf],
    open: impl Fn(usize) -> Result<Recording, Failure>,
    mut read: impl FnMut(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError>,
) -> Result<Vec<Source>, Failure> {
    let stop = interrupted()?;
    let mut sources: Vec<Source> = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        if let Some(last) = sources.last_mut().filter(|_| stop.load(Ordering::Relaxed)) {
            say!("{}: stopped by Ctrl-C: not read", name(path));
            last.notes.stopped = true;
            continue;
        }
        sources.push(read_one(path, open(at)?, &mut read)?);
    }
    selected::check(&sources)?;
    Ok(sources)
}

/// Reads a recording to its end.
pub(crate) fn read_one(
    path: &Path,
    mut recording: Recording,
    read: &mut impl FnMut(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError>,
) -> Result<Source, Failure> {
    let mut progress = Progress::new();
    let end = read(&mut recording, &mut |at, size| progress.at(at, size));
    end.map_err(|e| failure(path, e))?;
    Ok(Source::of(path, &recording))
}

/// Standard input can be read once.
pub(crate) fn once(paths: &[PathBuf]) -> Result<(), Failure> {
    if paths.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        let error = anyhow::Error::msg("standard input (-i -) can be read once only");
        return Err(Failure { code: USAGE, error });
    }
    warn_of_twins(paths);
    Ok(())
}

/// A file that is given twice counts twice, and its intervals are as narrow as
/// those of two recordings.
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

/// What a reading error means for the exit status: a recording that cannot be
/// used is bad input, one that could not be read is a failure.
pub(crate) fn failure(path: &Path, error: ReadError) -> Failure {
    let code = if matches!(error, ReadError::Io { .. }) { FAILED } else { USAGE };
    // An error of opening names the file itself.
    let named = matches!(error, ReadError::Open { .. });
    let error = anyhow::Error::new(error);
    let error = if named { error } else { error.context(name(path)) };
    Failure { code, error }
}

/// A file as people call it.
pub(crate) fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.as_text().into_owned() }
}

/// Says on standard error what was odd about a recording that was read.
pub(crate) fn warn(source: &Source) {
    let Source { name, notes, refused, .. } = source;
    if notes.stopped {
        say!("{name}: stopped by Ctrl-C: partial, what follows was not read");
    }
    if let Some(selection) = source.selection.as_ref().filter(|_| source.samples() == 0) {
        say!("{name}: no sample is of the selection ({selection})");
    }
    if let Some(at) = notes.cut_at {
        say!("{name}: cut off or damaged at byte {at}: what follows is missing");
    }
    if notes.unfinished {
        say!("{name}: its recorder never finished it; read to the end");
    }
    if let Some(at) = notes.first_malformed {
        let many = counted(
            notes.malformed,
            "record announces more than it holds and was skipped, at byte",
            "records announce more than they hold and were skipped, the first at byte",
        );
        say!("{name}: {many} {at}");
    }
    if notes.unknown_event > 0 {
        let many = counted(
            notes.unknown_event,
            "sample of an event that it does not describe was skipped",
            "samples of events that it does not describe were skipped",
        );
        say!("{name}: {many}");
    }
    if notes.processes_unsaid {
        say!(
            "{name}: says one number of each task, read as its thread, and not the process: branches are \
             counted by address (perf script -F +pid,+tid says both)"
        );
    }
    if notes.straights > 0 {
        let many = counted(
            notes.straights,
            "line says straight code without its branches: it counts in blocks and outcomes, without",
            "lines say straight code without its branches: it counts in blocks and outcomes, without",
        );
        say!("{name}: {many} cycles, order and what led there");
    }
    if let Some(refused) = refused {
        let Refused { first, error, .. } = refused;
        say!("{name}: line {first}: {error} ({})", skipped(refused));
    }
}

/// Which lines were skipped.
fn skipped(refused: &Refused) -> String {
    let lines = refused.lines;
    let run = |(first, last): (u64, u64)| {
        if first == last { first.to_string() } else { format!("{first} to {last}") }
    };
    let which = refused.runs().map(run).collect::<Vec<_>>().join(", ");
    let named: u64 = refused.runs().map(|(first, last)| last - first + 1).sum();
    match lines.saturating_sub(named) {
        _ if lines == 1 => "skipped".to_owned(),
        0 => format!("skipped: {} lines, {which}", grouped(lines)),
        more => format!("skipped: {} lines, {which} and {} more", grouped(lines), grouped(more)),
    }
}

/// Progress on standard error: only on a terminal, only after a second.
pub(crate) struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    wanted: bool,
}

impl Progress {
    /// Begins to wait.
    pub(crate) fn new() -> Progress {
        let wanted = std::io::stderr().is_terminal();
        Progress { started: Instant::now(), bar: None, wanted }
    }

    /// How far it is.
    pub(crate) fn at(&mut self, position: u64, size: Option<u64>) {
        if !self.wanted || self.started.elapsed() < Duration::from_secs(1) {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| match size {
            Some(size) => ProgressBar::new(size).with_style(
                ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {eta}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            ),
            None => ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{spinner} {bytes}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner()),
            ),
        });
        bar.set_position(position);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
