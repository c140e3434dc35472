//! A flight recorder: keeps the newest branches of each thread, and hands out those that led to a
//! deadly signal, or to another [`Trigger`].
//!
//! It takes the place of the engine as a source's [`Recorder`]. Its memory does not grow with the
//! length of the run.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lbr_msr::record::{BranchEntry, Event, HwBranchType, Mmap, MoveKind};
use lbr_msr::soft::Retired;

use crate::clock::monotonic_ns;
use crate::gate::{Closed, Recorder, Retire, lock};
use crate::interrupt::{Interrupts, Passing};
use crate::source::cpu::target::{Emit, Program, Target};
use crate::source::cpu::{ProcessCode, UserCode};
use crate::source::ptrace::code::branch_at;
use crate::source::ptrace::{Ptrace, sys};
use crate::source::qemu::Qemu;
use crate::source::{Command, Exit, SourceError, SourceNotes};
use crate::target::{SignalStop, ThreadId};

/// A transfer of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The branch; for a move by the kernel, the first instruction that did not execute.
    pub from: u64,
    /// The instruction that executed next.
    pub to: u64,
    /// A branch, or a move by the kernel.
    pub kind: StepKind,
}

/// The kind of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A taken branch.
    Branch(HwBranchType),
    /// A move by the kernel, into or out of a signal handler.
    Kernel(MoveKind),
}

/// When a path is kept besides deadly signals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trigger {
    /// Never.
    #[default]
    Death,
    /// When a thread ends.
    Exit,
    /// When this signal is first delivered.
    Signal(i32),
    /// When the function is first called that [`FlightRecorder::new`] looks up.
    Call,
}

/// The branches of one thread up to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The thread.
    pub thread: ThreadId,
    /// The signal; `None` for [`Trigger::Exit`] and [`Trigger::Call`].
    pub signal: Option<SignalStop>,
    /// Whether the signal ended the thread.
    pub deadly: bool,
    /// The newest branches, oldest first, and the kernel's moves between them.
    pub steps: Vec<Step>,
    /// Number of branches that the thread took since its start or exec; `None`: not counted, on the
    /// registers of a CPU.
    pub taken: Option<u64>,
    /// Number of [events](Flight::events) that precede it.
    pub events: usize,
}

/// The result of a run.
#[derive(Debug)]
pub struct Flight {
    /// How the program ended.
    pub exit: Exit,
    /// Losses of the source.
    pub notes: SourceNotes,
    /// The kept paths, in the order of their events.
    pub paths: Vec<Path>,
    /// Mappings, names and tasks.
    pub events: Vec<Event>,
    /// Newer records of other code on the same CPU, which are not part of the paths.
    pub foreign: u64,
}

/// The address of the function of [`Trigger::Call`], if this file has it.
pub type FindFunction = Box<dyn Fn(&Mmap) -> Option<u64> + Send + Sync>;

/// The newest branches of a process among a CPU's records (newest first), and the number of newer
/// ones from other code. The path ends where older records are from other code.
fn own(entries: &[BranchEntry], owns: impl Fn(u64) -> bool, tid: i32) -> (u64, Vec<Step>) {
    let newer = entries.iter().take_while(|entry| !owns(entry.from)).count();
    let of_kernel = |entry: &BranchEntry| entry.from >> 63 != 0;
    let own = entries.iter().skip(newer);
    let own = own.take_while(|entry| of_kernel(entry) || owns(entry.from));
    let mut steps: Vec<Step> = own
        .map(|entry| {
            let branch = branch_at(tid, entry.from);
            let class = branch.map_or(HwBranchType::Other, |branch| branch.class);
            Step { from: entry.from, to: entry.to, kind: StepKind::Branch(class) }
        })
        .collect();
    steps.reverse();
    (newer as u64, steps)
}

/// Keeps the newest branches of each thread.
pub struct FlightRecorder {
    depth: usize,
    trigger: Trigger,
    find: FindFunction,
    /// Run-time address of the function; 0 while it is not mapped, or was called.
    function: AtomicU64,
    triggered: AtomicBool,
    kept: Mutex<(Vec<Event>, Vec<Path>)>,
    /// The process that signals are passed on to, and whether it is time to end.
    passing: Mutex<(Passing, Option<u32>, bool)>,
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder").field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// Maximum number of kept paths: threads that end, or die, one after the other.
const MOST_PATHS: usize = 256;

impl FlightRecorder {
    /// Keeps `depth` branches of each thread. `find` is for [`Trigger::Call`].
    pub fn new(
        depth: usize,
        trigger: Trigger,
        find: FindFunction,
        interrupts: Interrupts,
    ) -> FlightRecorder {
        FlightRecorder {
            depth,
            trigger,
            find,
            function: AtomicU64::new(0),
            triggered: AtomicBool::new(false),
            kept: Mutex::default(),
            passing: Mutex::new((Passing::new(interrupts), None, false)),
        }
    }

    /// Runs a program under a single-stepper.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn step(self, command: Command) -> Result<Flight, SourceError> {
        let (exit, notes) = Ptrace::new(command)?.run_into(&&self)?;
        Ok(self.landed(exit, notes))
    }

    /// Runs a program in QEMU.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn emulate(self, qemu: Qemu, command: Command) -> Result<Flight, SourceError> {
        let (exit, notes) = qemu.program(command)?.run_into(&&self)?;
        Ok(self.landed(exit, notes))
    }

    /// Runs a held program on a CPU whose LBR records user code. While the program is held at a
    /// signal, `read` reads the records, newest first.
    ///
    /// Records do not name a thread: all threads of the program, and those of other programs at
    /// known addresses, count as the main thread. Only signals to the main thread are seen.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn on_cpu(
        self,
        mut program: Program,
        read: &mut dyn FnMut() -> Vec<BranchEntry>,
    ) -> Result<Flight, SourceError> {
        let recorder = &self;
        let mut emit = |event| {
            // Nothing closes this recorder before its end.
            let _ = recorder.emit(event);
        };
        let thread = program.id();
        recorder.started(thread.pid);
        let (mut foreign, mut last) = (0, None);
        let mut stopped = |signal: Option<i32>, code: &ProcessCode, emit: Emit<'_>| {
            let tid = thread.tid.cast_signed();
            let signal = signal.map(|signal| sys::signal_stop(tid, signal)).transpose();
            let Ok(signal) = signal else { return };
            let is_wanted = match (&signal, recorder.trigger) {
                (Some(stop), Trigger::Signal(wanted)) => {
                    stop.signal == wanted && recorder.is_first()
                }
                (None, trigger) => trigger == Trigger::Exit && last.is_none(),
                _ => false,
            };
            if signal.is_none() && !is_wanted {
                return;
            }
            let entries = read();
            code.clone().look(monotonic_ns()).into_iter().for_each(emit);
            let (newer, steps) = own(&entries, |address| code.owns(address), tid);
            let path = Path { thread, signal, deadly: false, steps, taken: None, events: 0 };
            if is_wanted {
                foreign = newer;
                recorder.keep(path.clone());
            }
            if path.signal.is_some() {
                last = Some((newer, path));
            }
        };
        program.start(&mut emit)?;
        program.watch(&|| recorder.is_closed(), &mut emit, &mut stopped)?;
        let exit = program.finish(&mut emit)?.unwrap_or(Exit::Code(0));
        if let (Exit::Signal(signal), Some((newer, path))) = (exit, last)
            && path.signal.as_ref().is_some_and(|stop| stop.signal == signal)
        {
            foreign = newer;
            recorder.keep(Path { deadly: true, ..path });
        }
        Ok(Flight { foreign, ..self.landed(exit, SourceNotes::default()) })
    }

    fn landed(self, exit: Exit, notes: SourceNotes) -> Flight {
        let (events, paths) = std::mem::take(&mut *lock(&self.kept));
        Flight { exit, notes, paths, events, foreign: 0 }
    }

    fn keep(&self, path: Path) {
        let (events, paths) = &mut *lock(&self.kept);
        if paths.len() < MOST_PATHS {
            paths.push(Path { events: events.len(), ..path });
        }
    }

    /// Whether the trigger acts for the first time.
    fn is_first(&self) -> bool {
        !self.triggered.swap(true, Ordering::Relaxed)
    }
}

impl<'a> Recorder for &'a FlightRecorder {
    type Ring = FlightRing<'a>;

    fn start(&self, thread: ThreadId) -> Result<FlightRing<'a>, Closed> {
        Ok(FlightRing {
            recorder: self,
            thread,
            steps: VecDeque::new(),
            branches: 0,
            taken: 0,
            has_died: false,
        })
    }

    fn emit(&self, event: Event) -> Result<(), Closed> {
        if let (Event::Mmap(map), Trigger::Call) = (&event, self.trigger)
            && let Some(address) = (self.find)(map)
        {
            self.function.store(address, Ordering::Relaxed);
        }
        lock(&self.kept).0.push(event);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        let (passing, pid, is_closed) = &mut *lock(&self.passing);
        *is_closed |= passing.is_time_to_end(pid.map(u32::cast_signed));
        *is_closed
    }

    fn started(&self, pid: u32) {
        lock(&self.passing).1 = Some(pid);
    }

    fn wants_signals(&self) -> bool {
        true
    }
}

/// The newest branches of one thread.
#[derive(Debug)]
pub struct FlightRing<'a> {
    recorder: &'a FlightRecorder,
    thread: ThreadId,
    steps: VecDeque<Step>,
    /// Number of branches among `steps`.
    branches: usize,
    taken: u64,
    has_died: bool,
}

impl FlightRing<'_> {
    fn push(&mut self, step: Step) {
        self.steps.push_back(step);
        let is_branch = |step: &Step| usize::from(matches!(step.kind, StepKind::Branch(_)));
        self.branches += is_branch(&step);
        // Moves are dropped with the branch before them; without branches they must not grow.
        while self.branches > self.recorder.depth || self.steps.len() > 2 * self.recorder.depth + 2
        {
            self.branches -= self.steps.pop_front().as_ref().map_or(0, is_branch);
        }
    }

    fn path(&self, signal: Option<SignalStop>, deadly: bool) -> Path {
        let steps = self.steps.iter().copied().collect();
        let taken = Some(self.taken);
        Path { thread: self.thread, signal, deadly, steps, taken, events: 0 }
    }
}

impl Retire for FlightRing<'_> {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        // System calls and other far transfers, as the default filter of recordings.
        if branch.cpl_after == 0 || (branch.class == HwBranchType::Other && !branch.abort) {
            return Ok(());
        }
        self.taken += 1;
        let kind = StepKind::Branch(branch.class);
        self.push(Step { from: branch.from, to: branch.to, kind });
        let is_call = matches!(branch.class, HwBranchType::RelCall | HwBranchType::IndCall)
            || branch.class == HwBranchType::IndJmp;
        if is_call
            && branch.to != 0
            && branch.to == self.recorder.function.load(Ordering::Relaxed)
            && self.recorder.is_first()
        {
            self.recorder.keep(self.path(None, false));
        }
        Ok(())
    }

    fn moved(&mut self, kind: MoveKind, from: u64, to: u64) -> Result<(), Closed> {
        if matches!(kind, MoveKind::Signal | MoveKind::SignalAtBranch | MoveKind::Return) {
            self.push(Step { from, to, kind: StepKind::Kernel(kind) });
        }
        Ok(())
    }

    fn signalled(&mut self, stop: &SignalStop) {
        if self.recorder.trigger == Trigger::Signal(stop.signal) && self.recorder.is_first() {
            self.recorder.keep(self.path(Some(stop.clone()), false));
        }
    }

    fn died(&mut self, stop: SignalStop) {
        self.recorder.keep(self.path(Some(stop), true));
        self.has_died = true;
    }

    fn finish(self) -> Result<(), Closed> {
        if self.recorder.trigger == Trigger::Exit && !self.has_died {
            self.recorder.keep(self.path(None, false));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../tests/sampler/unit/flight.rs"]
mod tests;
