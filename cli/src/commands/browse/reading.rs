//! The data of the recordings, and the thread that reads them.

use std::collections::hash_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use profile::annotate::Annotated;
use profile::callgraph::{self, CallGraph};
use profile::compare::By;
use profile::flow::FlowCounts;
use profile::loops::Loops;
use profile::maps::{Location, Maps};
use profile::overview::{Overview, OverviewCounter};
use profile::paths::Paths;
use profile::perf_data::ReadError;
use profile::select::Selection;
use profile::{Counter, Flow, Recording, View};

use crate::commands::annotate::text::Marks;
use crate::commands::diff::{self, Compared, Names};
use crate::commands::functions::{self, FunctionSum, moved};
use crate::exit::{Failure, Result};
use crate::input::{self, Count, Progress, Reading, Recordings, Source};
use crate::select::RowArgs;

/// How long the first readings may take: a screen comes early, and is replaced by better ones.
const EARLY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(50);
/// Locations of each view, about a screen, whose source lines are looked up before they are shown.
const LINES: usize = 50;

/// The data of a reading.
pub(super) struct Model {
    pub(super) overview: Overview,
    pub(super) functions: Vec<FunctionSum>,
    pub(super) sources: Vec<Source>,
    /// The share that was read, if more is to come.
    pub(super) share: Option<f64>,
    pub(super) graph: Option<CallGraph>,
    pub(super) loops: Option<Loops>,
    pub(super) paths: Option<Paths>,
    /// The comparisons with a baseline: by function, and as `lbr diff` matches by default.
    pub(super) compared: [Option<Difference>; 2],
    /// The blocks of the baseline.
    pub(super) baseline: Option<Flow>,
}

/// How recordings are matched, in the order of `Model::compared`.
const MATCHES: [Option<By>; 2] = [Some(By::Function), None];

/// A comparison, and its symbols.
pub(super) type Difference = (Compared, Names);

impl Model {
    /// The significant changes in a function.
    pub(super) fn marks(&self, annotated: &Annotated) -> Marks {
        let mut marks = Marks::new();
        let Some((compared, names)) = &self.compared[1] else { return marks };
        for row in compared.comparison.rows.iter().filter(|row| row.is_significant()) {
            let (Some(side), Some((word, style))) = (&row.after, diff::table::mark(row)) else {
                continue;
            };
            let function = &annotated.function;
            let here = moved(names.of(row), &self.overview.flow.maps, side.location);
            let Some(offset) = here.and_then(|here| function.distance(here)) else { continue };
            let of =
                |insn: &profile::annotate::Instruction| insn.address.wrapping_sub(function.address);
            let Ok(at) = annotated.instructions.binary_search_by_key(&offset, of) else { continue };
            let change = diff::table::changed(row);
            match marks.entry(at) {
                Entry::Occupied(mut mark) => mark.get_mut().2 += &format!(", {change}"),
                Entry::Vacant(entry) => drop(entry.insert((word, style, change))),
            }
        }
        marks
    }
}

/// Has a screen find the files of its symbols and lines open: debug information may take half a
/// second to decompress.
fn open_files(maps: &mut Maps, locations: impl Iterator<Item = Location>) {
    locations.take(LINES).for_each(|location| drop(maps.frames(location)));
}

/// A request to the thread.
pub(super) enum Ask {
    /// Everything that one reading gives, then the comparison of these rows, then the call graph.
    All(Arc<Selection>, RowArgs),
    Loops,
    Paths,
}

/// A reply of the thread.
pub(super) enum Told {
    /// The share of this reading that is done.
    Progress(f64),
    Model(Box<Model>),
    /// Adds what another reading gave to the model.
    More(Box<dyn FnOnce(&mut Model) + Send>),
    Failed(Failure),
    /// The request is complete.
    Done,
}

/// The thread's other end.
pub(super) struct Reader {
    asks: Sender<(u64, Ask)>,
    told: Receiver<(u64, Told)>,
    /// Number of the last selection: readings for others end.
    latest: Arc<AtomicU64>,
    /// Requests without a complete answer.
    pub(super) open: usize,
    /// The recording that is compared with.
    pub(super) baseline: Option<String>,
}

impl Reader {
    /// Starts the thread.
    pub(super) fn start(
        paths: Vec<PathBuf>,
        baseline: Vec<PathBuf>,
        reading: Reading,
    ) -> std::io::Result<Reader> {
        let (asks, asked) = channel();
        let (tell, told) = channel();
        let latest = Arc::new(AtomicU64::new(0));
        let worker = Worker { tell, latest: Arc::clone(&latest), number: 0 };
        let name = baseline.first().map(|path| input::name(path));
        let sides = [baseline, paths];
        std::thread::Builder::new().spawn(move || worker.run(&sides, &reading, &asked))?;
        Ok(Reader { asks, told, latest, open: 0, baseline: name })
    }

    /// Asks for something.
    pub(super) fn ask(&mut self, ask: Ask) {
        if matches!(ask, Ask::All(..)) {
            self.latest.fetch_add(1, Ordering::Relaxed);
            self.open = 0;
        }
        self.open += 1;
        // The thread ends only with an error, which it has sent.
        let _ = self.asks.send((self.latest.load(Ordering::Relaxed), ask));
    }

    /// The next answer, waited for.
    pub(super) fn wait(&mut self, most: Duration) -> Option<Told> {
        loop {
            let (number, told) = self.told.recv_timeout(most).ok()?;
            if number != self.latest.load(Ordering::Relaxed) {
                continue;
            }
            if matches!(told, Told::Done | Told::Failed(_)) {
                self.open = self.open.saturating_sub(1);
            }
            return Some(told);
        }
    }
}

struct Worker {
    tell: Sender<(u64, Told)>,
    latest: Arc<AtomicU64>,
    number: u64,
}

impl Worker {
    fn run(mut self, paths: &[Vec<PathBuf>; 2], reading: &Reading, asked: &Receiver<(u64, Ask)>) {
        // Copies what is a pipe, which may take as long as its writer.
        let open = || -> Result<[Recordings; 2]> {
            let open = |side: &Vec<PathBuf>| Recordings::reread(side, reading.clone());
            Ok([open(&paths[0])?, open(&paths[1])?])
        };
        let mut opened: Option<[Recordings; 2]> = None;
        while let Ok((number, ask)) = asked.recv() {
            self.number = number;
            let sides = match &mut opened {
                Some(sides) => Ok(sides),
                none => open().map(|sides| none.insert(sides)),
            };
            let done = sides.and_then(|sides| self.answer(sides, ask));
            self.tell(done.map_or_else(Told::Failed, |()| Told::Done));
        }
    }

    fn tell(&self, told: Told) {
        // Nobody listens at the end.
        let _ = self.tell.send((self.number, told));
    }

    /// Adds to the model, unless it is of another selection by now.
    fn add(&self, more: impl FnOnce(&mut Model) + Send + 'static) {
        if !self.is_stale() {
            self.tell(Told::More(Box::new(more)));
        }
    }

    fn is_stale(&self) -> bool {
        self.latest.load(Ordering::Relaxed) != self.number
    }

    fn answer(&self, sides: &mut [Recordings; 2], ask: Ask) -> Result<()> {
        let [baseline, recordings] = sides;
        let is_compared = !baseline.paths.is_empty();
        match ask {
            Ask::All(selection, shown) => {
                for most in EARLY.into_iter().chain([Duration::MAX]) {
                    recordings.select(&selection);
                    match self.model(recordings, most)? {
                        _ if self.is_stale() => return Ok(()),
                        Some(model) => {
                            let is_whole = model.share.is_none();
                            self.tell(Told::Model(Box::new(model)));
                            if is_whole {
                                break;
                            }
                        }
                        None => {}
                    }
                }
                sides.iter_mut().for_each(|side| side.select(&selection));
                let compared = if is_compared { self.compare(sides, &shown) } else { Ok(()) };
                let (graph, _) = Watched(self, &sides[1]).count(callgraph::counter(false))?;
                self.add(|model| {
                    let maps = &mut model.overview.flow.maps;
                    functions::add_totals(&mut model.functions, maps, &graph);
                    model.graph = Some(graph);
                });
                compared?;
                if is_compared {
                    let blocks = Counter::of(FlowCounts::without_sites());
                    let (blocks, _) = Watched(self, &sides[0]).count(blocks)?;
                    self.add(|model| model.baseline = Some(blocks));
                }
                Ok(())
            }
            Ask::Loops => {
                let (mut loops, _) = Watched(self, recordings).loops()?;
                open_files(&mut loops.maps, loops.loops.iter().map(|found| found.location));
                self.add(|model| model.loops = Some(loops));
                Ok(())
            }
            Ask::Paths => {
                let (mut paths, _) = Watched(self, recordings).paths()?;
                let firsts = paths.paths.iter().filter_map(|path| path.links.first());
                open_files(&mut paths.maps, firsts.map(|link| link.from_location));
                self.add(|model| model.paths = Some(paths));
                Ok(())
            }
        }
    }

    fn compare(&self, sides: &[Recordings; 2], shown: &RowArgs) -> Result<()> {
        for (at, by) in MATCHES.into_iter().enumerate() {
            let [before, after] = sides.each_ref().map(|side| Watched(self, side));
            let compared = diff::compare([&before, &after], by, shown, diff::LEVEL / 100.0)?;
            self.add(move |model| model.compared[at] = Some(compared));
        }
        Ok(())
    }

    /// Reads once for all views that share a reading, for a limited time; `None` if that was too
    /// short for a sample.
    fn model(&self, recordings: &Recordings, most: Duration) -> Result<Option<Model>> {
        let mut counter = OverviewCounter::new(recordings.paths.len() > 1);
        recordings.reading.symbols.apply(counter.maps());
        let mut watch = Watch::new(self, &recordings.paths, most);
        let sources = recordings.read(&mut |recording, _| {
            watch.recording(recording, |recording, progress| counter.recording(recording, progress))
        });
        let stopped = watch.is_stopped();
        let mut sources = match sources {
            Err(_) if stopped => return Ok(None),
            sources => sources?,
        };
        if stopped {
            // The rest will be read.
            sources.iter_mut().for_each(|source| source.notes.stopped = false);
        }
        let mut overview = counter.finish();
        let functions = functions::sums(&mut overview);
        let share = stopped.then_some(watch.share);
        let Flow { maps, blocks, sites, .. } = &mut overview.flow;
        let branches = overview.branches.iter();
        open_files(maps, branches.flat_map(|branch| [branch.from_location, branch.to_location]));
        if !stopped {
            open_files(maps, functions.iter().map(|sum| sum.location));
            open_files(maps, blocks.iter().map(|block| block.exit_location));
            open_files(maps, sites.iter().map(|site| site.location));
        }
        Ok(Some(Model {
            overview,
            functions,
            sources,
            share,
            graph: None,
            loops: None,
            paths: None,
            compared: [None, None],
            baseline: None,
        }))
    }
}

/// Recordings that are read only as long as they are asked for.
struct Watched<'a>(&'a Worker, &'a Recordings);

impl Count for Watched<'_> {
    fn count<V: View>(&self, mut counter: Counter<V>) -> Result<(V::Table, Vec<Source>)> {
        let Watched(worker, recordings) = *self;
        recordings.reading.symbols.apply(counter.maps());
        let mut watch = Watch::new(worker, &[], Duration::MAX);
        let sources = recordings.read(&mut |recording, _| {
            watch.recording(recording, |recording, progress| counter.recording(recording, progress))
        })?;
        Ok((counter.finish(), sources))
    }
}

/// Reports progress, and ends a reading that takes too long or is no longer asked for.
struct Watch<'a> {
    worker: &'a Worker,
    /// Bytes of all files, and of those that were read.
    size: u64,
    before: u64,
    share: f64,
    started: Instant,
    reported: Instant,
    most: Duration,
    stop: Arc<AtomicBool>,
}

impl<'a> Watch<'a> {
    fn new(worker: &'a Worker, paths: &[PathBuf], most: Duration) -> Watch<'a> {
        let sizes = paths.iter().filter_map(|path| Some(std::fs::metadata(path).ok()?.len()));
        let (now, stop) = (Instant::now(), Arc::default());
        let (size, before, share) = (sizes.sum(), 0, 0.0);
        Watch { worker, size, before, share, started: now, reported: now, most, stop }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn recording(
        &mut self,
        recording: &mut Recording,
        read: impl FnOnce(&mut Recording, Progress<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        recording.stop_when(Arc::clone(&self.stop));
        let mut last = 0;
        let read = read(recording, &mut |at, size| {
            last = at;
            let size = self.size.max(size.unwrap_or(0)).max(1);
            self.share = self.before.saturating_add(at) as f64 / size as f64;
            if self.started.elapsed() > self.most || self.worker.is_stale() {
                self.stop.store(true, Ordering::Relaxed);
            }
            if self.reported.elapsed() > PROGRESS {
                self.reported = Instant::now();
                self.worker.tell(Told::Progress(self.share.min(1.0)));
            }
        });
        self.before = self.before.saturating_add(last);
        read
    }
}
