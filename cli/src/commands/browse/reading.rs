//! The data of the recordings, and the thread that reads them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use profile::callgraph::{self, CallGraph};
use profile::loops::{self, Loops};
use profile::overview::{Overview, OverviewCounter};
use profile::paths::{self, Growth, Paths};
use profile::perf_data::ReadError;
use profile::select::Selection;
use profile::{Counter, Recording, View};

use crate::commands::functions::{self, FunctionSum};
use crate::exit::Failure;
use crate::input::{Reading, Reread, Source};
use crate::symbols::SymbolArgs;

/// How long the first readings may take: a screen comes early, and is replaced by better ones.
const EARLY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(50);
/// Branches whose source lines are looked up before they are shown.
const LINES: usize = 25;

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
}

/// A request to the thread.
pub(super) enum Ask {
    /// Everything that one reading gives, then the call graph.
    All(Arc<Selection>),
    Loops,
    Paths,
}

/// A reply of the thread.
pub(super) enum Told {
    /// The share of this reading that is done.
    Progress(f64),
    Model(Box<Model>),
    Graph(Box<CallGraph>),
    Loops(Box<Loops>),
    Paths(Box<Paths>),
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
}

impl Reader {
    /// Starts the thread.
    pub(super) fn start(
        paths: Vec<PathBuf>,
        reading: Reading,
        symbols: SymbolArgs,
    ) -> std::io::Result<Reader> {
        let (asks, asked) = channel();
        let (tell, told) = channel();
        let latest = Arc::new(AtomicU64::new(0));
        let worker = Worker { tell, latest: Arc::clone(&latest), number: 0, symbols };
        std::thread::Builder::new().spawn(move || worker.run(&paths, &reading, &asked))?;
        Ok(Reader { asks, told, latest, open: 0 })
    }

    /// Asks for something.
    pub(super) fn ask(&mut self, ask: Ask) {
        if matches!(ask, Ask::All(_)) {
            self.latest.fetch_add(1, Ordering::Relaxed);
            self.open = 0;
        }
        self.open += 1;
        // The thread ends only with an error, which it has sent.
        let _ = self.asks.send((self.latest.load(Ordering::Relaxed), ask));
    }

    /// The next answer, if there is one.
    pub(super) fn next(&mut self) -> Option<Told> {
        self.receive(|told| told.try_recv().ok())
    }

    /// The next answer, waited for.
    pub(super) fn wait(&mut self, most: Duration) -> Option<Told> {
        self.receive(|told| told.recv_timeout(most).ok())
    }

    fn receive(
        &mut self,
        next: impl Fn(&Receiver<(u64, Told)>) -> Option<(u64, Told)>,
    ) -> Option<Told> {
        loop {
            let (number, told) = next(&self.told)?;
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
    symbols: SymbolArgs,
}

impl Worker {
    fn run(mut self, paths: &[PathBuf], reading: &Reading, asked: &Receiver<(u64, Ask)>) {
        let mut recordings: Option<Reread> = None;
        while let Ok((number, ask)) = asked.recv() {
            self.number = number;
            // Copies what is a pipe, which may take as long as its writer.
            let made = match recordings.take() {
                Some(recordings) => Ok(recordings),
                None => Reread::new(paths, reading),
            };
            let done = made.and_then(|made| {
                let recordings = recordings.insert(made);
                self.answer(recordings, paths, ask)
            });
            self.tell(done.map_or_else(Told::Failed, |()| Told::Done));
        }
    }

    fn tell(&self, told: Told) {
        // Nobody listens at the end.
        let _ = self.tell.send((self.number, told));
    }

    fn is_stale(&self) -> bool {
        self.latest.load(Ordering::Relaxed) != self.number
    }

    fn answer(&self, recordings: &mut Reread, paths: &[PathBuf], ask: Ask) -> Result<(), Failure> {
        match ask {
            Ask::All(selection) => {
                for most in EARLY.into_iter().chain([Duration::MAX]) {
                    recordings.again(&selection);
                    match self.model(recordings, paths, most)? {
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
                recordings.again(&selection);
                self.pass(recordings, callgraph::counter(false), |graph| {
                    Told::Graph(Box::new(graph))
                })
            }
            Ask::Loops => {
                let finder = self.count(recordings, loops::finder())?;
                self.pass(recordings, finder.counter(), |loops| Told::Loops(Box::new(loops)))
            }
            Ask::Paths => {
                let finder = self.count(recordings, paths::finder())?;
                let counter = finder.counter(Growth::default());
                self.pass(recordings, counter, |paths| Told::Paths(Box::new(paths)))
            }
        }
    }

    /// Reads once for all views that share a reading, for a limited time; `None` if that was too
    /// short for a sample.
    fn model(
        &self,
        recordings: &Reread,
        paths: &[PathBuf],
        most: Duration,
    ) -> Result<Option<Model>, Failure> {
        let mut counter = OverviewCounter::new(paths.len() > 1);
        self.symbols.apply(counter.maps());
        let mut watch = Watch::new(self, paths, most);
        let sources = recordings.read(|recording, _| {
            watch.recording(recording, |recording, progress| counter.recording(recording, progress))
        });
        let stopped = watch.is_stopped();
        let mut sources = match sources {
            Err(_) if stopped => return Ok(None),
            sources => sources?,
        };
        if stopped {
            sources.iter_mut().for_each(Source::goes_on);
        }
        let mut overview = counter.finish();
        let functions = functions::sums(&mut overview);
        let share = stopped.then_some(watch.share);
        let (branches, maps) = (&overview.branches, &mut overview.flow.maps);
        // The first screen finds the files of symbols and lines open.
        branches.iter().take(LINES).for_each(|branch| drop(maps.frames(branch.from_location)));
        let (graph, loops, paths) = (None, None, None);
        Ok(Some(Model { overview, functions, sources, share, graph, loops, paths }))
    }

    fn pass<V: View>(
        &self,
        recordings: &Reread,
        counter: Counter<V>,
        told: impl FnOnce(V::Table) -> Told,
    ) -> Result<(), Failure> {
        let table = self.count(recordings, counter)?;
        if !self.is_stale() {
            self.tell(told(table));
        }
        Ok(())
    }

    fn count<V: View>(
        &self,
        recordings: &Reread,
        mut counter: Counter<V>,
    ) -> Result<V::Table, Failure> {
        self.symbols.apply(counter.maps());
        let mut watch = Watch::new(self, &[], Duration::MAX);
        recordings.read(|recording, _| {
            watch.recording(recording, |recording, progress| counter.recording(recording, progress))
        })?;
        Ok(counter.finish())
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
        read: impl FnOnce(&mut Recording, &mut dyn FnMut(u64, Option<u64>)) -> Result<(), ReadError>,
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
