//! The loop that waits for the target's threads and resumes them.

use std::collections::{HashMap, HashSet};

use lbr_msr::caps::CpuIdentity;
use lbr_msr::probe::{RecordedCpuid, identify};
use lbr_msr::record::Event;
use nix::errno::Errno;
use nix::libc::{self, user_regs_struct as Registers};
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use super::Handled;
use super::start::{Start, relocated};
use super::sys;
use super::task::{Passage, Process, Task, task_event};
use super::{Ptrace, Running, kill_all};
use crate::gate::{Closed, Recorder, lock};
use crate::interrupt::Delivered;
use crate::source::{Exit, SourceError, SourceNotes, Stop};
use crate::target::{self, Doing, Held, ProgramKind, ThreadId};

/// Whether breakpoints are available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breakpoints {
    Unknown,
    /// This thread has a breakpoint at its current address, which must stop a step.
    Tried(i32),
    Work,
    Missing,
}

impl Breakpoints {
    /// On this CPU. QEMU without KVM passes over a breakpoint now and then, and the next stop does
    /// not show it: 18 of 120 recordings of at most 1,922 branches lost some (QEMU 11, 27 November
    /// 2026).
    fn on(cpu: &CpuIdentity) -> Breakpoints {
        if cpu.hypervisor.as_deref() == Some("QEMU") {
            Breakpoints::Missing
        } else {
            Breakpoints::Unknown
        }
    }
}

/// A running target.
#[derive(Debug)]
pub(super) struct Tracer<'a, R: Recorder> {
    pub(super) source: &'a Ptrace,
    pub(super) recorder: &'a R,
    pub(super) running: &'a Running,
    pub(super) tasks: HashMap<i32, Task<R::Ring>>,
    pub(super) processes: HashMap<u32, Process>,
    /// New threads that stopped before their creator's stop announced them.
    pub(super) early: HashSet<i32>,
    /// Children to detach from at their first stop.
    pub(super) strangers: HashSet<i32>,
    pub(super) main: u32,
    pub(super) exit: Option<Exit>,
    /// The breakpoint where recording starts.
    pub(super) start: Option<Start>,
    /// The run-time address of the function whose arguments are recorded.
    pub(super) function: Option<u64>,
    pub(super) recording: bool,
    pub(super) notes: SourceNotes,
    pub(super) breakpoints: Breakpoints,
    delivered: Delivered,
}

impl<'a, R: Recorder> Tracer<'a, R> {
    /// Starts the program and stops it before its first instruction.
    pub(super) fn launch(
        source: &'a Ptrace,
        recorder: &'a R,
        running: &'a Running,
    ) -> Result<Tracer<'a, R>, SourceError> {
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEVFORKDONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEEXIT
            | Options::PTRACE_O_TRACESYSGOOD;
        let pin = match source.pin {
            Some(pin) => pin,
            None => {
                let here = nix::sched::sched_getcpu().doing("asking which CPU this is")?;
                source.allowed.only(u32::try_from(here).unwrap_or(0))?
            }
        };
        pin.apply(0)?;
        let mut held = Held::spawn(&source.path, &source.command)?;
        let pid = held.pid();
        let seized = ptrace::seize(pid, options);
        seized.doing(match seized {
            Err(Errno::EPERM) => {
                "tracing the program (a sandbox or /proc/sys/kernel/yama/ptrace_scope forbids it)"
            }
            _ => "tracing the program",
        })?;
        held.release()?;
        let mut tracer = Tracer {
            source,
            recorder,
            running,
            tasks: HashMap::new(),
            processes: HashMap::new(),
            early: HashSet::new(),
            strangers: HashSet::new(),
            main: pid.as_raw().unsigned_abs(),
            exit: None,
            start: None,
            function: None,
            recording: false,
            notes: SourceNotes::default(),
            breakpoints: Breakpoints::on(&identify(&RecordedCpuid::here())),
            delivered: Delivered::default(),
        };
        lock(running).insert(tracer.main);
        recorder.started(tracer.main);
        tracer.wait_for_exec(&mut held)?;
        Ok(tracer)
    }

    fn wait_for_exec(&mut self, held: &mut Held) -> Result<(), SourceError> {
        loop {
            let (tid, status) = sys::wait().doing("waiting for the program")?;
            if !libc::WIFSTOPPED(status) {
                lock(self.running).clear();
                let path = self.source.path.clone();
                return Err(match held.exec_error() {
                    Some(cause) => SourceError::NotExecutable { path, cause },
                    None => SourceError::os(
                        "starting the program",
                        std::io::Error::other("it was killed"),
                    ),
                });
            }
            if status >> 16 == libc::PTRACE_EVENT_EXEC {
                return Ok(());
            }
            let signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
            sys::cont(tid, signal).doing("starting the program")?;
        }
    }

    /// Runs the target to its end.
    pub(super) fn run(mut self) -> Result<(Exit, SourceNotes), SourceError> {
        let stop = self.trace().err();
        self.notes.without_breakpoints = self.breakpoints == Breakpoints::Missing;
        if stop.is_some() {
            self.reap();
        }
        match (stop, self.exit) {
            (Some(Stop::Failed(error)), _) => Err(error),
            // When told to stop, the target was killed.
            (Some(Stop::Closed(_)), exit) => {
                Ok((exit.unwrap_or(Exit::Signal(libc::SIGKILL)), self.notes))
            }
            (None, Some(_)) if !self.recording && !self.recorder.is_closed() => {
                let asked = self.source.command.from.unwrap_or(0);
                Err(SourceError::NeverReached { symbol: format!("{asked:#x}") })
            }
            (None, Some(exit)) => Ok((exit, self.notes)),
            (None, None) => Err(SourceError::os(
                "waiting for the program",
                std::io::Error::other("its end was not seen"),
            )),
        }
    }

    /// Kills the target and waits until it is gone.
    fn reap(&mut self) {
        kill_all(self.running);
        let kill =
            |tid| nix::sys::signal::kill(Pid::from_raw(tid), nix::sys::signal::Signal::SIGKILL);
        for orphan in std::mem::take(&mut self.early) {
            let _ = kill(orphan);
        }
        while let Ok((tid, status)) = sys::wait() {
            if libc::WIFSTOPPED(status) {
                // A new child whose first stop comes only now.
                let _ = if self.strangers.remove(&tid) { sys::detach(tid, 0) } else { kill(tid) };
                // A thread stopped before its end waits for this.
                let _ = sys::cont(tid, 0);
            } else if tid.unsigned_abs() == self.main {
                self.exit = Some(Exit::of(status));
            }
        }
        lock(self.running).clear();
    }

    fn trace(&mut self) -> Handled {
        self.begin()?;
        while !(self.tasks.is_empty() && self.strangers.is_empty()) {
            let (tid, status) = match sys::wait() {
                Ok(news) => news,
                Err(Errno::ECHILD) => break,
                Err(e) => return Err(SourceError::os("waiting for the program", e).into()),
            };
            let done = match libc::WIFSTOPPED(status) {
                true => self.stopped(tid, libc::WSTOPSIG(status), status >> 16),
                false => self.ended(tid, status),
            };
            match done {
                // A thread that is killed while stopped is gone before its end is reported.
                Err(Stop::Failed(SourceError::Os { cause, .. }))
                    if cause.raw_os_error() == Some(libc::ESRCH) => {}
                done => done?,
            }
            if self.recorder.is_closed() {
                return Err(Closed.into());
            }
        }
        // Their creators were killed before they could announce them.
        for orphan in std::mem::take(&mut self.early) {
            self.let_go(orphan, 0)?;
        }
        Ok(())
    }

    /// The first stop, at the exec of the program.
    fn begin(&mut self) -> Handled {
        let id = ThreadId { pid: self.main, tid: self.main };
        let ours = std::process::id();
        let mut task = Task::new(id, ThreadId { pid: ours, tid: ours });
        task.in_syscall = true;
        self.tasks.insert(self.main as i32, task);
        self.processes.insert(self.main, Process::default());
        let program = inspect(self.main)?;
        if let (Some(function), ProgramKind::Elf { entry, .. }) =
            (self.source.command.arguments_of, &program)
        {
            let entry = self.source.entry.unwrap_or(*entry);
            let function = relocated(self.main, function, entry)
                .doing("finding where the program was loaded")?;
            self.function = Some(function);
        }
        match (self.source.command.from, program) {
            (Some(from), ProgramKind::Elf { entry, .. }) => {
                let entry = self.source.entry.unwrap_or(entry);
                let start = Start::arm(self.main, from, entry);
                self.start = Some(start.doing(format!("setting a breakpoint at {from:#x}"))?);
            }
            _ => self.begin_recording()?,
        }
        self.go_on(self.main as i32, 0)
    }

    /// From now on every thread is stepped and recorded.
    fn begin_recording(&mut self) -> Handled {
        self.recording = true;
        let mut threads: Vec<_> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.leaving)
            .map(|(&tid, task)| (task.id, tid, task.parent))
            .collect();
        // Each process before its threads.
        threads.sort_by_key(|(id, _, _)| (id.pid, id.tid != id.pid, id.tid));
        for (id, tid, parent) in threads {
            if id.pid != id.tid || id.pid != self.main {
                self.recorder.emit(Event::Fork(task_event(id, parent)))?;
            }
            self.tell_comm(id, id.pid == id.tid)?;
            if id.pid == id.tid {
                self.tell_mappings(tid)?;
            }
            let ring = self.recorder.start(id)?;
            if let Some(task) = self.tasks.get_mut(&tid) {
                task.ring = Some(ring);
                task.model = self.source.command.model.then(Box::default);
            }
        }
        Ok(())
    }

    fn stopped(&mut self, tid: i32, signal: i32, event: i32) -> Handled {
        if self.strangers.remove(&tid) {
            return self.let_go(tid, 0);
        }
        let Some(task) = self.tasks.get_mut(&tid) else {
            self.early.insert(tid);
            return Ok(());
        };
        if task.leaving && self.recording {
            if let Some(start) = &mut self.start {
                start.disarm(task.id.pid);
            }
            self.tasks.remove(&tid);
            lock(self.running).remove(&tid.unsigned_abs());
            return self.let_go(tid, if event == 0 { signal } else { 0 });
        }
        if event == libc::PTRACE_EVENT_EXIT && self.recording {
            return self.ends(tid);
        }
        // Any stop except SIGTRAP only shows that it stopped.
        if task.run.is_some() && (event, signal) != (0, libc::SIGTRAP) {
            let regs = self.regs(tid)?;
            self.settle(tid, &regs, false)?;
        }
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        match event {
            0 if signal == libc::SIGTRAP => self.trapped(tid),
            0 if signal == libc::SIGTRAP | 0x80 => self.at_syscall(tid),
            0 => {
                let of_main = task.id.pid == self.main;
                let repeated = of_main && self.delivered.is_repeated(signal, sys::sender(tid));
                self.go_on(tid, if repeated { 0 } else { signal })
            }
            libc::PTRACE_EVENT_EXEC => self.executed(tid),
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                task.in_syscall |= task.pending.is_none();
                self.bore(tid)?;
                self.go_on(tid, 0)
            }
            // A group stop.
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                Ok(sys::listen(tid).doing("waiting out a stop")?)
            }
            libc::PTRACE_EVENT_STOP => self.go_on(tid, 0),
            _ => {
                task.in_syscall |= task.pending.is_none();
                self.go_on(tid, 0)
            }
        }
    }

    /// A SIGTRAP: the step's, the breakpoint's, or the program's own.
    fn trapped(&mut self, tid: i32) -> Handled {
        let code =
            ptrace::getsiginfo(Pid::from_raw(tid)).doing("asking why the program stopped")?.si_code;
        let regs = self.regs(tid)?;
        let start = self.start.as_ref().map(|start| start.address);
        // A breakpoint leaves the thread after its byte.
        if let (libc::SI_KERNEL, Some(address)) = (code, start)
            && regs.rip.wrapping_sub(1) == address
        {
            // Nothing was stepped: a thread may have hit the breakpoint just before its removal.
            let pending = self.tasks.get(&tid).and_then(|task| task.pending);
            if pending.is_none_or(|pending| pending.decoded.ip == regs.rip) {
                return self.at_start(tid, Registers { rip: address, ..regs });
            }
        }
        if !self.recording {
            return self.go_on(tid, libc::SIGTRAP);
        }
        match self.stepped(tid, code, &regs)? {
            true => self.advance(tid, &regs, 0),
            false => {
                self.signalled(tid, libc::SIGTRAP)?;
                self.advance(tid, &regs, libc::SIGTRAP)
            }
        }
    }

    /// A thread has hit the breakpoint; `regs` are its registers before that.
    fn at_start(&mut self, tid: i32, regs: Registers) -> Handled {
        ptrace::setregs(Pid::from_raw(tid), regs).doing("going back to the breakpoint")?;
        if !self.recording {
            // Stops all other threads, so that each is stepped from its next stop.
            for &other in self.tasks.keys().filter(|&&other| other != tid) {
                // One that is already stopped stops once more, which is harmless.
                let _ = ptrace::interrupt(Pid::from_raw(other));
            }
            self.begin_recording()?;
        }
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        task.pending = None;
        if task.leaving {
            return self.stopped(tid, libc::SIGTRAP, libc::PTRACE_EVENT_STOP);
        }
        self.go_on(tid, 0)
    }

    /// The entry or exit stop of a system call that is run at full speed.
    fn at_syscall(&mut self, tid: i32) -> Handled {
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        if task.passage == Passage::Entering {
            task.passage = Passage::Leaving;
            return Ok(sys::to_syscall(tid).doing("running a system call")?);
        }
        // A thread that ran past its breakpoint makes an unexpected call.
        task.in_syscall |= task.passage == Passage::Stepped;
        task.passage = Passage::Stepped;
        sys::unblock_sigtrap(tid).doing("changing the signal mask")?;
        let regs = self.regs(tid)?;
        self.complete(tid, &regs)?;
        self.advance(tid, &regs, 0)
    }

    /// Resumes a thread: with its pending step, or at full speed while nothing is recorded.
    pub(super) fn go_on(&mut self, tid: i32, signal: i32) -> Handled {
        if !self.recording {
            if let Some(task) = self.tasks.get_mut(&tid) {
                // At full speed, exits of system calls are not reported.
                task.in_syscall = false;
            }
            return Ok(sys::cont(tid, signal).doing("running the program")?);
        }
        if signal != 0 {
            self.interrupted(tid)?;
            self.signalled(tid, signal)?;
        }
        let Some(task) = self.tasks.get_mut(&tid) else { return Ok(()) };
        if task.pending.is_none() {
            let regs = self.regs(tid)?;
            return self.advance(tid, &regs, signal);
        }
        task.passage = Passage::Stepped;
        Ok(sys::step(tid, signal).doing("stepping the program")?)
    }

    pub(super) fn regs(&self, tid: i32) -> Result<Registers, SourceError> {
        ptrace::getregs(Pid::from_raw(tid)).doing("reading registers")
    }
}

/// Inspects the program that a process executes. An error has its file's path instead of the link in
/// `/proc`.
pub(super) fn inspect(pid: u32) -> Result<ProgramKind, SourceError> {
    target::inspect(format!("/proc/{pid}/exe").as_ref()).map_err(|mut error| {
        if let SourceError::NotX86_64 { path, .. } | SourceError::NotExecutable { path, .. } =
            &mut error
            && let Ok(file) = std::fs::read_link(&*path)
        {
            *path = file;
        }
        error
    })
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/ptrace/tracer.rs"]
mod tests;
