//! The process that runs the code under test: a traced fork, so that whatever the code does is
//! detected, ends in time, and harms nothing else.
//!
//! The child waits at an INT3 before its bracket. Each time it is continued it runs the bracket
//! once and returns to the INT3. Signals, system calls that end it or start processes, and runs
//! that take too long stop it elsewhere: such a child is not used again.
#![allow(unsafe_code, reason = "fork, and si_addr")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lbr_msr::soft::Retired;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork};

use super::bracket::{Bracket, FrameRun, GprValues, Layout, SwitchWrites};
use super::confine::{Confinement, is_exec};
use super::fault::{Fault, FaultKind, NoResult, os};
use super::forked::{self, NOT_CONFINED, Setting};
use super::sealed::SealedSwitch;
use crate::code::frame::Data;
use sampler::source::ptrace::{code, sys};

/// A stop of the child.
pub(super) enum Stopped {
    /// After the INT3 at this address.
    At(u64),
    /// The code did something else.
    Fault(Fault),
}

/// Counts between the two marker jumps, without the bracket's own instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// Instructions retired. One with a REP prefix counts once.
    pub instructions: u64,
    /// Branches taken.
    pub branches: u64,
    /// Conditional branches that were not taken.
    pub not_taken: u64,
    /// System calls.
    pub system_calls: u64,
    /// Iterations of the loop around the copies.
    pub rounds: u64,
    /// Transfers of control at instructions that could not be decoded.
    pub undecoded: u64,
}

/// A child that waits at its INT3.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    memory: File,
    pub(super) layout: Layout,
    pub(super) dead: bool,
    /// It was reaped: its process id may belong to another process.
    reaped: bool,
    /// Threads and processes that it started.
    started: Vec<Pid>,
    /// Addresses in the child of the values that its bracket writes.
    values_at: [u64; 2],
    stop: Arc<AtomicBool>,
}

impl Child {
    /// Forks a child, which inherits the bracket.
    pub(super) fn new(bracket: &Bracket, setting: &Setting) -> Result<Child, NoResult> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        let null = null.map_err(|cause| NoResult::Os("opening /dev/null", cause))?;
        let parent = Pid::this();
        let switch = setting.switch.as_deref();
        let mut confinement = match setting.confined {
            Some(rights) => Confinement::new(rights, bracket.layout(), switch, setting.lifeline),
            None => Confinement::one_process(),
        };
        // SAFETY: the child calls only async-signal-safe functions until it runs the code under
        // test. What a caller's closure may do in a fork is the caller's responsibility, and
        // documented there.
        let forked = unsafe { fork() }.map_err(os("forking"))?;
        let pid = match forked {
            ForkResult::Parent { child } => child,
            ForkResult::Child => forked::serve(bracket, setting, &null, parent, &mut confinement),
        };
        let mut child = Child {
            pid,
            memory: null,
            layout: bracket.layout().clone(),
            dead: false,
            reaped: false,
            started: Vec::new(),
            values_at: switch.map_or([0; 2], SealedSwitch::values_at),
            stop: Arc::clone(&setting.stop),
        };
        child.first_stop(setting)?;
        Ok(child)
    }

    fn first_stop(&mut self, setting: &Setting) -> Result<(), NoResult> {
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEEXIT
            | Options::PTRACE_O_TRACESECCOMP;
        let why = match self.wait(Instant::now() + Duration::from_secs(10))? {
            Stopped::At(at) if at == self.layout.home => None,
            Stopped::Fault(Fault { kind: FaultKind::Exit(NOT_CONFINED), .. }) => Some(
                "its rights cannot be limited here (setresuid or seccomp fails: a container \
                 without user 65534, perhaps); --unconfined runs the code with all rights",
            ),
            _ => Some(
                "it cannot be traced (a sandbox or /proc/sys/kernel/yama/ptrace_scope forbids it)",
            ),
        };
        if let Some(why) = why {
            return Err(NoResult::Os("starting a process for the code", io::Error::other(why)));
        }
        ptrace::setoptions(self.pid, options).map_err(os("tracing the process of the code"))?;
        if let Some(pin) = setting.pin {
            pin.apply(self.pid.as_raw()).map_err(|error| {
                NoResult::Os("pinning the process of the code", io::Error::other(error))
            })?;
        }
        let memory =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{}/mem", self.pid));
        self.memory = memory.map_err(|cause| NoResult::Os("opening /proc/PID/mem", cause))?;
        Ok(())
    }

    /// Runs the bracket once.
    pub(super) fn run(
        &mut self,
        start: GprValues,
        switch: SwitchWrites,
        limit: Duration,
    ) -> Result<FrameRun, NoResult> {
        self.set(start, switch)?;
        match self.go(limit)? {
            Stopped::At(at) if at == self.layout.home => self.ran(),
            Stopped::At(at) => Err(self.own_trap(at)),
            Stopped::Fault(fault) => Err(NoResult::Fault(fault)),
        }
    }

    /// Runs a bracket [made for stepping](super::bracket::Body::stepped) once, one instruction at a
    /// time between its two marker jumps, both included.
    pub(super) fn step(
        &mut self,
        start: GprValues,
        limit: Duration,
        mut retire: impl FnMut(&Retired),
    ) -> Result<(StepCounts, FrameRun), NoResult> {
        self.set(start, SwitchWrites::NONE)?;
        match self.go(limit)? {
            Stopped::At(at) if Some(at) == self.layout.halt => {}
            Stopped::At(at) => return Err(self.own_trap(at)),
            Stopped::Fault(fault) => return Err(NoResult::Fault(fault)),
        }
        let counts = self.walk(Instant::now() + limit, &mut retire)?;
        match self.go(limit)? {
            Stopped::At(at) if at == self.layout.home => Ok((counts, self.ran()?)),
            Stopped::At(at) => Err(self.own_trap(at)),
            Stopped::Fault(fault) => Err(NoResult::Fault(fault)),
        }
    }

    fn set(&mut self, start: GprValues, switch: SwitchWrites) -> Result<(), NoResult> {
        if self.dead {
            return Err(NoResult::Os("running the code", io::Error::other("its process is gone")));
        }
        let bytes = Data::new(start, switch, self.values_at).bytes();
        let written = self.memory.write_all_at(&bytes, self.layout.mapping.start);
        written.map_err(|cause| NoResult::Os("writing registers of the code", cause))
    }

    fn ran(&mut self) -> Result<FrameRun, NoResult> {
        let mut bytes = [0; size_of::<Data>()];
        let read = self.memory.read_exact_at(&mut bytes, self.layout.mapping.start);
        read.map_err(|cause| NoResult::Os("reading registers of the code", cause))?;
        Ok(Data::from_bytes(&bytes).ran())
    }

    /// Reads its memory; returns the number of bytes read.
    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> usize {
        code::read(self.pid.as_raw(), address, into)
    }

    /// Handles an INT3 of the code, or one of the bracket that it jumped to.
    pub(super) fn own_trap(&mut self, at: u64) -> NoResult {
        self.dead = true;
        let kind = FaultKind::Signal { signal: libc::SIGTRAP, address: None };
        NoResult::Fault(Fault { kind, at: Some(at) })
    }

    fn go(&mut self, limit: Duration) -> Result<Stopped, NoResult> {
        let deadline = Instant::now() + limit;
        sys::cont(self.pid.as_raw(), 0).map_err(os("running the code"))?;
        self.wait(deadline)
    }

    /// Waits for a stop of interest.
    fn wait(&mut self, deadline: Instant) -> Result<Stopped, NoResult> {
        loop {
            let status = self.look_until(deadline)?;
            let Some(status) = status else { return self.overdue() };
            if let Some(stopped) = self.judge(status)? {
                return Ok(stopped);
            }
            // Code may raise such signals endlessly.
            self.go_on()?;
            if Instant::now() > deadline {
                return self.hangs(Some(self.regs()?.rip), false);
            }
            sys::cont(self.pid.as_raw(), 0).map_err(os("running the code"))?;
        }
    }

    /// Short runs take microseconds: polls without sleeping at first.
    pub(super) fn look_until(&mut self, deadline: Instant) -> Result<Option<i32>, NoResult> {
        let start = Instant::now();
        loop {
            let status = sys::look_for(self.pid.as_raw());
            let status = status.map_err(os("waiting for the code"))?;
            if status.is_some() {
                return Ok(status);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(None);
            }
            self.go_on()?;
            if now.duration_since(start) < SHORT {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Fails if the caller asked to stop. A child stopped in the middle of a run is not used again.
    pub(super) fn go_on(&mut self) -> Result<(), NoResult> {
        let stop = self.stop.load(Ordering::Relaxed);
        self.dead |= stop;
        if stop { Err(NoResult::Stopped) } else { Ok(()) }
    }

    /// Stops a child that exceeded its time limit, to find out where it is.
    pub(super) fn overdue(&mut self) -> Result<Stopped, NoResult> {
        self.dead = true;
        kill(self.pid, Signal::SIGSTOP).map_err(os("stopping the code"))?;
        let Some(status) = self.look_until(Instant::now() + Duration::from_secs(1))? else {
            return self.hangs(None, true);
        };
        if !libc::WIFSTOPPED(status) || libc::WSTOPSIG(status) != libc::SIGSTOP {
            return match self.judge(status)? {
                Some(stopped) => Ok(stopped),
                None => self.hangs(self.regs().ok().map(|regs| regs.rip), false),
            };
        }
        let regs = self.regs()?;
        let in_call = regs.orig_rax.cast_signed() >= 0;
        // SYSCALL is two bytes long.
        let at = if in_call { regs.rip.wrapping_sub(2) } else { regs.rip };
        self.hangs(Some(at), in_call)
    }

    fn hangs(&mut self, at: Option<u64>, in_call: bool) -> Result<Stopped, NoResult> {
        self.dead = true;
        Ok(Stopped::Fault(Fault { kind: FaultKind::Hang { in_call }, at }))
    }

    /// Interprets a wait status; `None` for a signal to ignore.
    pub(super) fn judge(&mut self, status: i32) -> Result<Option<Stopped>, NoResult> {
        self.reaped = !libc::WIFSTOPPED(status);
        let regs = if self.reaped { None } else { Some(self.regs()?) };
        let dead = &mut self.dead;
        let mut fault = |kind, at| {
            *dead = true;
            Ok(Some(Stopped::Fault(Fault { kind, at })))
        };
        let Some(regs) = regs else { return fault(ended(status), None) };
        let signal = libc::WSTOPSIG(status);
        // The instruction pointer is after the SYSCALL.
        let call = Some(regs.rip.wrapping_sub(2));
        match status >> 16 {
            0 => {}
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let started = ptrace::getevent(self.pid).map(|tid| Pid::from_raw(tid as i32));
                self.started.extend(started);
                return fault(FaultKind::Fork, call);
            }
            libc::PTRACE_EVENT_SECCOMP => {
                let is_exec = is_exec(regs.orig_rax.cast_signed());
                return fault(if is_exec { FaultKind::Exec } else { FaultKind::Fork }, call);
            }
            libc::PTRACE_EVENT_EXEC => return fault(FaultKind::Exec, None),
            libc::PTRACE_EVENT_EXIT => {
                let status = ptrace::getevent(self.pid).unwrap_or(0) as i32;
                let at = if libc::WIFEXITED(status) { call } else { Some(regs.rip) };
                return fault(ended(status), at);
            }
            _ => return Ok(None),
        }
        let info = ptrace::getsiginfo(self.pid).map_err(os("asking why the code stopped"))?;
        match signal {
            libc::SIGTRAP => {
                let at = match info.si_code {
                    // INT3 leaves the address of the next instruction.
                    libc::SI_KERNEL => regs.rip.wrapping_sub(1),
                    _ => regs.rip,
                };
                Ok(Some(Stopped::At(at)))
            }
            libc::SIGSEGV | libc::SIGBUS => {
                // SAFETY: these signals carry an address if the kernel sent them (si_code > 0).
                let address = (info.si_code > 0 && info.si_code != libc::SI_KERNEL)
                    .then(|| unsafe { info.si_addr() } as u64);
                fault(FaultKind::Signal { signal, address }, Some(regs.rip))
            }
            // Raised after the SYSCALL.
            libc::SIGSYS => fault(FaultKind::Signal { signal, address: None }, call),
            libc::SIGILL
            | libc::SIGFPE
            | libc::SIGABRT
            | libc::SIGALRM
            | libc::SIGXCPU
            | libc::SIGPIPE
            | libc::SIGTERM
            | libc::SIGINT => fault(FaultKind::Signal { signal, address: None }, Some(regs.rip)),
            // From the terminal or job control, not from the code.
            _ => Ok(None),
        }
    }

    pub(super) fn regs(&self) -> Result<user_regs_struct, NoResult> {
        ptrace::getregs(self.pid).map_err(os("reading registers"))
    }
}

/// How a process ended.
fn ended(status: i32) -> FaultKind {
    match libc::WIFEXITED(status) {
        true => FaultKind::Exit(libc::WEXITSTATUS(status)),
        false => FaultKind::Killed(libc::WTERMSIG(status)),
    }
}

/// How long to wait for a killed process to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to poll without sleeping.
const SHORT: Duration = Duration::from_micros(300);

impl Drop for Child {
    /// Kills the process and all that it started, within [`PATIENCE`].
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.started);
        if !self.reaped {
            left.push(self.pid);
            // Unconfined code may have started processes that are not traced.
            let _ = kill(Pid::from_raw(-self.pid.as_raw()), Signal::SIGKILL);
        }
        for pid in &left {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        let deadline = Instant::now() + PATIENCE;
        while !left.is_empty() && Instant::now() < deadline {
            left.retain(|pid| match sys::look_for(pid.as_raw()) {
                // Its end may be preceded by a stop event; one already stopped at its exit no
                // longer reacts to signals.
                Ok(None) => {
                    let _ = sys::cont(pid.as_raw(), 0);
                    true
                }
                Ok(Some(status)) => libc::WIFSTOPPED(status),
                Err(_) => false,
            });
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
