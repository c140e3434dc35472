//! A started program as a target.

use std::path::Path;
use std::time::{Duration, Instant};

use lbr_msr::record::{Event, Task};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Emit, LONG_NAP, Target};
use crate::clock::monotonic_ns;
use crate::interrupt::Delivered;
use crate::maps::comm;
use crate::source::cpu::code::{ProcessCode, UserCode};
use crate::source::ptrace::sys;
use crate::target::{Affinity, Command, Doing, Exit, Held, SourceError, ThreadId};

/// Shortest sleep between two checks of the program.
const SHORT_NAP: Duration = Duration::from_micros(50);
/// How long to wait for the end of a killed program.
const GRACE: Duration = Duration::from_secs(2);

/// A started program: held after its `execve` until recording is on, and at its end until the
/// remaining records are drained.
///
/// It is traced for these two moments. In between it runs at full speed, except that each signal to
/// its main thread passes through the tracer.
#[derive(Debug)]
pub struct Program {
    id: ThreadId,
    code: ProcessCode,
    state: State,
    delivered: Delivered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Stopped; must be continued.
    Held,
    Runs,
    Ended(Exit),
}

impl Program {
    /// Starts `path` on these CPUs, up to its first instruction. The thread that calls this must
    /// also make all later calls.
    ///
    /// # Errors
    /// [`SourceError`]: it cannot be executed, pinned or traced.
    pub fn launch(path: &Path, command: &Command, cpus: &Affinity) -> Result<Program, SourceError> {
        let mut held = Held::spawn(path, command)?;
        let pid = held.pid();
        cpus.apply(pid.as_raw())?;
        let options = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACEEXIT;
        ptrace::seize(pid, options).doing("holding the program until recording is on")?;
        held.release()?;
        let number = pid.as_raw().cast_unsigned();
        let id = ThreadId { pid: number, tid: number };
        let (code, delivered) = (ProcessCode::new(id), Delivered::default());
        let mut program = Program { id, code, state: State::Runs, delivered };
        loop {
            match program.next_stop(&|| false)? {
                Some(Stop::Exec) => {
                    program.state = State::Held;
                    return Ok(program);
                }
                // Its execve failed, and it reports why before it ends.
                Some(Stop::Exit) => program.go_on(0)?,
                Some(Stop::Ended(exit)) => {
                    program.state = State::Ended(exit);
                    let path = path.to_owned();
                    return Err(match held.exec_error() {
                        Some(cause) => SourceError::NotExecutable { path, cause },
                        None => SourceError::os("starting the program", Errno::ESRCH),
                    });
                }
                Some(other) => program.pass(other)?,
                None => {}
            }
        }
    }

    fn tid(&self) -> i32 {
        self.id.pid.cast_signed()
    }

    fn look(&self) -> Result<Option<i32>, SourceError> {
        sys::look_for(self.tid()).doing("waiting for the program")
    }

    /// Waits for the next stop or the end, unless it `is_over` before. The sleeps get longer while
    /// nothing happens.
    fn next_stop(&self, is_over: &dyn Fn() -> bool) -> Result<Option<Stop>, SourceError> {
        let mut nap = SHORT_NAP;
        while !is_over() {
            if let Some(status) = self.look()? {
                return Ok(Some(Stop::of(status)));
            }
            nap = (nap * 2).min(LONG_NAP);
            std::thread::sleep(nap);
        }
        Ok(None)
    }

    fn go_on(&mut self, signal: i32) -> Result<(), SourceError> {
        self.state = State::Runs;
        sys::unless_gone(sys::cont(self.tid(), signal), "continuing the program")
    }

    /// Handles stops that need no action.
    fn pass(&mut self, stop: Stop) -> Result<(), SourceError> {
        match stop {
            Stop::Group => sys::unless_gone(sys::listen(self.tid()), "leaving the program stopped"),
            Stop::Signal(signal) => {
                let repeated = self.delivered.is_repeated(signal, sys::sender(self.tid()));
                self.go_on(if repeated { 0 } else { signal })
            }
            Stop::Exec | Stop::Exit | Stop::Other => self.go_on(0),
            Stop::Ended(exit) => {
                self.state = State::Ended(exit);
                Ok(())
            }
        }
    }

    fn tell_code(&mut self, exec: bool, emit: Emit<'_>) {
        let time = monotonic_ns();
        comm(self.id, time, exec).into_iter().chain(self.code.look(time)).for_each(emit);
    }

    /// As [`Target::wait`], but calls `stopped` while the main thread is held: before each signal
    /// that it gets, and at its end (`None`).
    pub(crate) fn watch(
        &mut self,
        is_over: &dyn Fn() -> bool,
        emit: Emit<'_>,
        stopped: &mut dyn FnMut(Option<i32>, &ProcessCode, Emit<'_>),
    ) -> Result<(), SourceError> {
        while self.state == State::Runs
            && let Some(stop) = self.next_stop(is_over)?
        {
            match stop {
                Stop::Exec => {
                    self.tell_code(true, emit);
                    self.go_on(0)?;
                }
                Stop::Exit => {
                    self.tell_code(false, emit);
                    stopped(None, &self.code, emit);
                    if self.has_threads() {
                        self.go_on(0)?;
                    } else {
                        self.state = State::Held;
                    }
                }
                stop => {
                    if let Stop::Signal(signal) = stop {
                        stopped(Some(signal), &self.code, emit);
                    }
                    self.pass(stop)?;
                }
            }
        }
        Ok(())
    }

    /// Whether threads other than the main one are running.
    fn has_threads(&self) -> bool {
        let alone = || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id.pid));
            tasks.map_or(true, |tasks| tasks.count() <= 1)
        };
        // exit_group has just told the others to end.
        for _ in 0..20 {
            if alone() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

impl Target for Program {
    fn id(&self) -> ThreadId {
        self.id
    }

    fn started(&self) -> Option<u32> {
        Some(self.id.pid)
    }

    fn process(&self) -> Option<&ProcessCode> {
        Some(&self.code)
    }

    fn start(&mut self, emit: Emit<'_>) -> Result<(), SourceError> {
        self.tell_code(true, emit);
        self.go_on(0)
    }

    fn wait(&mut self, is_over: &dyn Fn() -> bool, emit: Emit<'_>) -> Result<(), SourceError> {
        self.watch(is_over, emit, &mut |_, _, _| {})
    }

    fn finish(&mut self, emit: Emit<'_>) -> Result<Option<Exit>, SourceError> {
        if self.state == State::Runs {
            // It did not end, although signals were passed on to it.
            let _ = kill(Pid::from_raw(self.tid()), Signal::SIGKILL);
        }
        if self.state == State::Held {
            self.go_on(0)?;
        }
        loop {
            if let State::Ended(exit) = self.state {
                let ThreadId { pid, tid } = self.id;
                let ours = std::process::id();
                let time = monotonic_ns();
                emit(Event::Exit(Task { time, pid, tid, ppid: ours, ptid: ours }));
                return Ok(Some(exit));
            }
            if let Some(stop) = self.next_stop(&|| false)? {
                self.pass(stop)?;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After an error elsewhere, nothing else would let it run.
        let since = Instant::now();
        while !matches!(self.state, State::Ended(_)) && since.elapsed() < GRACE {
            let _ = kill(Pid::from_raw(self.tid()), Signal::SIGKILL);
            match self.look() {
                Ok(Some(status)) if self.pass(Stop::of(status)).is_ok() => {}
                Ok(None) => std::thread::sleep(SHORT_NAP),
                Ok(Some(_)) | Err(_) => return,
            }
        }
    }
}

/// The meaning of a wait status of a seized tracee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// After its execve.
    Exec,
    /// About to end; its memory still exists.
    Exit,
    /// A signal is about to be delivered.
    Signal(i32),
    /// Stopped by SIGSTOP or a terminal, until SIGCONT.
    Group,
    /// Anything else.
    Other,
    Ended(Exit),
}

impl Stop {
    /// ptrace(2), "Stopped states" and "PTRACE_EVENT stops".
    fn of(status: i32) -> Stop {
        if !libc::WIFSTOPPED(status) {
            return Stop::Ended(Exit::of(status));
        }
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 => Stop::Signal(signal),
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            libc::PTRACE_EVENT_EXIT => Stop::Exit,
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => Stop::Group,
            _ => Stop::Other,
        }
    }
}

#[cfg(test)]
#[path = "../../../../../tests/sampler/unit/source/cpu/target/program.rs"]
mod tests;
