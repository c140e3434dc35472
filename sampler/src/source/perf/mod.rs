//! The kernel's perf events with branch stacks: perf_event_open(2).
//!
//! The kernel arms the branch records, reads them at the interrupt of a counter of retired
//! branches, and saves them across context switches; `lbr` writes no register. So no restore guard
//! is needed, ordinary users may record their own programs if `kernel.perf_event_paranoid` permits
//! it, and Secure Boot's lockdown does not matter.
//!
//! A started program or a running process is followed thread by thread on all its CPUs; the kernel
//! reports each stack's thread, and the mappings. Between two stacks lies everything that ran
//! between two interrupts, so no stack is joined to the previous one.
//!
//! One sampler empties the ring buffers of all CPUs every few milliseconds. The kernel counts and
//! reports the records that found no space.

mod counting;
mod host;
mod open;
mod records;
mod refused;
mod stacks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lbr_msr::BranchFilter;
use lbr_msr::caps::LbrCaps;
use lbr_msr::record::{Event, SourceKnowledge};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

use super::cpu::ProcessCode;
use super::cpu::code::UserCode;
use super::cpu::target::wait_until;
use super::{Command, Decoding, Exit, Source, SourceError, SourceNotes};
use crate::clock::monotonic_ns;
use crate::config::{RecordConfig, Sampling};
use crate::drain::RawStack;
use crate::gate::{Gate, Recorder};
use crate::maps::{comm, is_running, numbers};
use crate::outlet::{KernelReport, Outlet, Sampler, SamplerError};
use crate::target::{Affinity, Doing, Held, ThreadId};
pub use counting::Counting;
pub use host::{Host, Monitor};
pub use open::attempt;
use open::{EventRequest, Events};
use records::{DecodedRecord, Reading};
pub use refused::Refused;
pub use stacks::Stacks;

/// Time between two reads of the ring buffers. One buffer holds the stacks of 100,000 interrupts
/// per second for that long.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two checks of the program.
const NAP: Duration = Duration::from_millis(1);

/// The target of the recording.
#[derive(Debug)]
pub enum Subject {
    /// A program to start.
    Program {
        /// Its file.
        path: PathBuf,
        /// The command; with [`follow_children`](Command::follow_children), children are recorded
        /// too.
        command: Box<Command>,
        /// The CPUs it may use; `None`: those of this process.
        pin: Option<Affinity>,
    },
    /// A running process, with its present and later threads.
    Process {
        /// Its process id.
        pid: u32,
        /// The duration, if limited.
        limit: Option<Duration>,
    },
    /// Everything that runs on the CPUs.
    Everything {
        /// The duration, if limited.
        limit: Option<Duration>,
    },
}

/// The target, after the events were opened.
enum Followed {
    Program(Held, PathBuf),
    Process(u32, Option<Duration>),
    Everything(Option<Duration>),
}

/// The kernel's branch stacks, opened but not yet enabled.
pub struct Perf {
    followed: Followed,
    events: Option<Events>,
    caps: LbrCaps,
    /// The only process to record; `None`: all that the kernel reports.
    alone: Option<u32>,
    children_left: Arc<AtomicU64>,
}

impl std::fmt::Debug for Perf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Perf").field("alone", &self.alone).finish_non_exhaustive()
    }
}

impl Perf {
    /// Opens the events. A program is started up to its `execve`; it ends there if this is dropped
    /// before [`run`](Source::run).
    ///
    /// `caps`: the branch records of the CPUs; `cpus`: the CPUs to record.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn open(
        subject: Subject,
        host: &Host,
        caps: &LbrCaps,
        cpus: &[u32],
        filter: BranchFilter,
        sampling: Sampling,
    ) -> Result<Perf, Refused> {
        host.allows(filter, matches!(subject, Subject::Everything { .. }))?;
        let (followed, threads, alone) = match subject {
            Subject::Program { path, command, pin } => {
                let held = Held::spawn(&path, &command)?;
                let pid = held.pid().as_raw();
                if let Some(pin) = pin {
                    pin.apply(pid)?;
                }
                let alone = (!command.follow_children).then_some(pid.cast_unsigned());
                (Followed::Program(held, path), Some(vec![pid]), alone)
            }
            Subject::Process { pid, limit } => {
                (Followed::Process(pid, limit), Some(threads_of(pid)?), Some(pid))
            }
            Subject::Everything { limit } => (Followed::Everything(limit), None, None),
        };
        let on_exec = matches!(followed, Followed::Program(..));
        let threads = threads.as_deref();
        let events = open::open(&EventRequest { host, filter, sampling, on_exec, threads, cpus })?;
        Ok(Perf {
            followed,
            events: Some(events),
            caps: caps.clone(),
            alone,
            children_left: Arc::default(),
        })
    }
}

fn threads_of(pid: u32) -> Result<Vec<i32>, Refused> {
    let threads = numbers(&format!("/proc/{pid}/task")).unwrap_or_default();
    if threads.is_empty() { Err(Refused::NoProcess { pid }) } else { Ok(threads) }
}

impl<'a> Source<'a> for Perf {
    fn name(&self) -> &'static str {
        "perf_event_open"
    }

    fn knowledge(&self) -> SourceKnowledge {
        SourceKnowledge::HARDWARE
    }

    fn decoding(&mut self) -> Decoding {
        let tsx = self.caps.tsx();
        Decoding {
            decode: Some(Box::new(move |entry| Some(stacks::decode(entry, tsx)))),
            ..Decoding::default()
        }
    }

    fn samplers(&mut self, config: &RecordConfig) -> Vec<Sampler<'a>> {
        let Some(events) = self.events.take() else { return Vec::new() };
        let emptying = Emptying {
            events,
            depth: self.caps.depth,
            call_stack: config.call_stack,
            is_by_thread: !matches!(self.followed, Followed::Everything(_)),
            there: match self.followed {
                Followed::Program(..) => None,
                Followed::Process(pid, _) => Some(vec![pid]),
                Followed::Everything(_) => {
                    let all = numbers("/proc").unwrap_or_default();
                    Some(all.into_iter().map(i32::cast_unsigned).collect())
                }
            },
            alone: self.alone,
            children_left: Arc::clone(&self.children_left),
            report: KernelReport::default(),
        };
        vec![Box::new(move |outlet: &mut Outlet| emptying.run(outlet))]
    }

    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        let is_over = || gate.is_closed();
        let ran = match &mut self.followed {
            Followed::Program(held, path) => {
                gate.started(held.pid().as_raw().cast_unsigned());
                run_program(held, path, &is_over)
            }
            Followed::Process(pid, limit) => {
                wait_until(&is_over, *limit, || !is_running(*pid));
                Ok(Exit::Code(0))
            }
            Followed::Everything(limit) => {
                wait_until(&is_over, *limit, || false);
                Ok(Exit::Code(0))
            }
        };
        gate.end();
        let children_left = self.children_left.load(Ordering::Relaxed);
        Ok((ran?, SourceNotes { children_left, ..SourceNotes::default() }))
    }
}

/// Lets the program run, and waits for its end.
fn run_program(
    held: &mut Held,
    path: &Path,
    is_over: &dyn Fn() -> bool,
) -> Result<Exit, SourceError> {
    let pid = held.pid();
    held.release()?;
    let refused = held.exec_error();
    let mut is_killed = false;
    loop {
        match waitpid(pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => {
                return match refused {
                    Some(cause) => Err(SourceError::NotExecutable { path: path.to_owned(), cause }),
                    None => Ok(Exit::Code(code)),
                };
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => return Ok(Exit::Signal(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(SourceError::os("waiting for the program", errno)),
        }
        if is_over() && !std::mem::replace(&mut is_killed, true) {
            // It did not end, although signals were passed on to it.
            let _ = kill(pid, Signal::SIGKILL);
        }
        std::thread::sleep(NAP);
    }
}

/// The sampler: reads the records that the kernel wrote.
struct Emptying {
    events: Events,
    depth: u32,
    call_stack: bool,
    is_by_thread: bool,
    /// Processes whose names and mappings must be reported first; `None`: the events start with the
    /// program.
    there: Option<Vec<u32>>,
    alone: Option<u32>,
    children_left: Arc<AtomicU64>,
    report: KernelReport,
}

impl Emptying {
    fn run(mut self, outlet: &mut Outlet) -> Result<(), SamplerError> {
        let begun = self.begin(outlet).doing("switching the perf events on");
        begun.map_err(SamplerError::Place)?;
        outlet.ready();
        let mut waiting: Vec<RawStack> = Vec::new();
        let mut before = 0;
        loop {
            // Checked before reading, so that everything before the end is read.
            let is_last_look = outlet.is_over();
            if is_last_look {
                self.end();
            }
            let now = monotonic_ns();
            self.take_all(&mut waiting, outlet, now);
            // Buffers are read one after the other: all stacks older than the previous read have
            // arrived.
            waiting.sort_by_key(|stack| stack.time);
            let until = if is_last_look { u64::MAX } else { before };
            let settled = waiting.partition_point(|stack| stack.time <= until);
            for stack in waiting.drain(..settled) {
                // If the queue is full this waits, and the kernel counts what it loses.
                let _ = outlet.push(&stack);
            }
            if is_last_look {
                break;
            }
            before = now;
            std::thread::sleep(LOOK);
        }
        self.report.scheduled = self.scheduled();
        outlet.report.kernel = Some(self.report);
        Ok(())
    }

    /// Enables the events if the program's start does not, and reports what already exists.
    fn begin(&mut self, outlet: &Outlet) -> std::io::Result<()> {
        let Some(pids) = &self.there else { return Ok(()) };
        let time = monotonic_ns();
        for ring in &mut self.events.rings {
            ring.enable()?;
        }
        self.events.others.iter_mut().try_for_each(|event| event.enable())?;
        // Read after enabling, because the kernel reports later mappings.
        for &pid in pids {
            let id = ThreadId { pid, tid: pid };
            let mapped = ProcessCode::new(id).look(time);
            for event in comm(id, time, false).into_iter().chain(mapped) {
                // If the receiver is gone, the recording has failed anyway.
                let _ = outlet.shared.send(event);
            }
        }
        Ok(())
    }

    /// Disables the events.
    fn end(&mut self) {
        let Events { rings, others } = &mut self.events;
        for counter in rings.iter_mut().map(|ring| &mut **ring).chain(others) {
            // One that stays enabled is read as long as the others.
            let _ = counter.disable();
        }
    }

    /// Reads the records written before `now`. Reading makes branches too: if the sampler itself is
    /// recorded, its new records wait for the next read, or reading would never end.
    fn take_all(&mut self, waiting: &mut Vec<RawStack>, outlet: &Outlet, now: u64) {
        let Emptying { events, depth, call_stack, .. } = self;
        let mut said = Vec::new();
        for ring in &mut events.rings {
            let config = ring.config().clone();
            let reading = Reading { config, depth: *depth, call_stack: *call_stack };
            while let Some(record) = ring.next_record() {
                let taken = reading.read(record.ty(), record.misc(), &record.to_contiguous());
                let is_later = matches!(&taken, DecodedRecord::Stack(stack) if stack.time > now);
                match taken {
                    DecodedRecord::Stack(stack) if is_meant(self.alone, stack.thread.pid) => {
                        waiting.push(*stack);
                    }
                    DecodedRecord::Event(event) => said.push(event),
                    DecodedRecord::Throttled => self.report.throttled += 1,
                    DecodedRecord::Stack(_) | DecodedRecord::Nothing => {}
                }
                if is_later {
                    break;
                }
            }
        }
        for event in said {
            if let Event::Lost(lost) = &event {
                self.report.lost += lost.stacks;
            }
            if self.is_told(&event) {
                // If the receiver is gone, the recording has failed anyway.
                let _ = outlet.shared.send(event);
            }
        }
    }

    /// Whether an event belongs to the recording; counts children that do not.
    fn is_told(&self, event: &Event) -> bool {
        let pid = match event {
            Event::Mmap(map) => map.pid,
            Event::Comm(comm) => comm.pid,
            Event::Exit(task) => task.pid,
            Event::Fork(task) => {
                if !is_meant(self.alone, task.pid) && is_meant(self.alone, task.ppid) {
                    self.children_left.fetch_add(1, Ordering::Relaxed);
                }
                task.pid
            }
            Event::Sample(_) | Event::Lost(_) => return true,
        };
        is_meant(self.alone, pid)
    }

    /// The time for which the target ran with the events enabled, and for which they had a counter.
    fn scheduled(&mut self) -> Option<(Duration, Duration)> {
        let Events { rings, others } = &mut self.events;
        let cpus = rings.len();
        let counters = rings.iter_mut().map(|ring| &mut **ring).chain(others);
        let times = counters.filter_map(|counter| {
            let read = counter.read_full().ok()?;
            Some((read.time_enabled()?, read.time_running()?))
        });
        scheduled(times, self.is_by_thread.then_some(cpus))
    }
}

/// Adds the times for which events were enabled, and for which they had a counter. `cpus`: the
/// number of CPUs on which the events of each thread were opened; `None` for events of whole CPUs.
fn scheduled(
    times: impl Iterator<Item = (Duration, Duration)>,
    cpus: Option<usize>,
) -> Option<(Duration, Duration)> {
    let (on, ran) = times.reduce(|(on, ran), (enabled, running)| (on + enabled, ran + running))?;
    // A thread's events are enabled on all CPUs while it runs on one of them.
    let on = on.checked_div(u32::try_from(cpus.unwrap_or(1)).ok()?)?;
    Some((on, ran))
}

/// Whether a process is recorded.
fn is_meant(alone: Option<u32>, pid: u32) -> bool {
    alone.is_none_or(|alone| alone == pid)
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/perf.rs"]
mod tests;
