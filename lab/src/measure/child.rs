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

use lbr_msr::insn::{BranchInsn, Insn, UnderTrapFlag};
use lbr_msr::record::BranchType;
use lbr_msr::soft::Retired;
use nix::libc::{self, user_regs_struct};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork};

use super::bracket::{Bracket, FrameRun, GprValues, Layout, SwitchWrites};
use super::confine::{Confinement, SealedSwitch, is_exec};
use super::forked::{self, NOT_CONFINED, Setting};
use super::options::{Fault, FaultKind, MeasureError, os};
use crate::code::frame::Data;
use sampler::source::ptrace::code::TracedCode;
use sampler::source::ptrace::sys::{self, TRAP_FLAG, put_trap_flag};

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
    /// The registers at the start of a run.
    pub(super) start: GprValues,
    dead: bool,
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
    pub(super) fn new(bracket: &Bracket, setting: &Setting) -> Result<Child, MeasureError> {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        let null = null.map_err(os("opening /dev/null"))?;
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
            start: bracket.start(),
            dead: false,
            reaped: false,
            started: Vec::new(),
            values_at: switch.map_or([0; 2], SealedSwitch::values_at),
            stop: Arc::clone(&setting.stop),
        };
        child.first_stop(setting)?;
        Ok(child)
    }

    fn first_stop(&mut self, setting: &Setting) -> Result<(), MeasureError> {
        let options = Options::PTRACE_O_EXITKILL
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACEEXIT
            | Options::PTRACE_O_TRACESECCOMP;
        let cannot = |why| Err(os("starting a process for the code")(io::Error::other(why)));
        match self.wait(Instant::now() + Duration::from_secs(10)) {
            Ok(at) if at == self.layout.home => {}
            Err(MeasureError::Fault {
                fault: Fault { kind: FaultKind::Exit(NOT_CONFINED), .. },
                ..
            }) => {
                return cannot(
                    "its rights cannot be limited here (setresuid or seccomp fails: a container \
                     without user 65534, perhaps); --unconfined runs the code with all rights",
                );
            }
            Ok(_) | Err(MeasureError::Fault { .. }) => {
                return cannot(
                    "it cannot be traced (a sandbox or /proc/sys/kernel/yama/ptrace_scope forbids it)",
                );
            }
            Err(error) => return Err(error),
        }
        ptrace::setoptions(self.pid, options).map_err(os("tracing the process of the code"))?;
        if let Some(pin) = setting.pin {
            let pinned = pin.apply(self.pid.as_raw()).map_err(io::Error::other);
            pinned.map_err(os("pinning the process of the code"))?;
        }
        let memory =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{}/mem", self.pid));
        self.memory = memory.map_err(os("opening /proc/PID/mem"))?;
        Ok(())
    }

    /// Runs the bracket once.
    pub(super) fn run(
        &mut self,
        switch: SwitchWrites,
        limit: Duration,
    ) -> Result<FrameRun, MeasureError> {
        self.set(switch)?;
        self.go(self.layout.home, limit)?;
        let mut bytes = [0; size_of::<Data>()];
        let read = self.memory.read_exact_at(&mut bytes, self.layout.mapping.start);
        read.map_err(os("reading registers of the code"))?;
        Ok(Data::from_bytes(&bytes).ran())
    }

    /// Runs a bracket [made for stepping](super::bracket::Body::stepped) once, one instruction at a
    /// time between its two marker jumps, both included.
    pub(super) fn step(
        &mut self,
        limit: Duration,
        mut retire: impl FnMut(&Retired),
    ) -> Result<StepCounts, MeasureError> {
        self.set(SwitchWrites::NONE)?;
        self.go(self.layout.halt.unwrap_or_default(), limit)?;
        let counts = self.walk(Instant::now() + limit, &mut retire)?;
        self.go(self.layout.home, limit)?;
        Ok(counts)
    }

    fn set(&mut self, switch: SwitchWrites) -> Result<(), MeasureError> {
        if self.dead {
            return Err(os("running the code")(io::Error::other("its process is gone")));
        }
        let bytes = Data::new(self.start, switch, self.values_at).bytes();
        let written = self.memory.write_all_at(&bytes, self.layout.mapping.start);
        written.map_err(os("writing registers of the code"))
    }

    /// Handles an INT3 of the code, or one of the bracket that it jumped to.
    fn own_trap(&mut self, at: u64) -> MeasureError {
        self.fault(FaultKind::Signal { signal: libc::SIGTRAP, address: None }, Some(at))
    }

    /// The code did not reach its end: the child is not used again.
    fn fault(&mut self, kind: FaultKind, at: Option<u64>) -> MeasureError {
        self.dead = true;
        MeasureError::Fault {
            fault: Fault { kind, at },
            layout: Box::new(self.layout.clone()),
            stepped: false,
            needs: Vec::new(),
            again: false,
        }
    }

    /// Continues to the INT3 at an address.
    fn go(&mut self, to: u64, limit: Duration) -> Result<(), MeasureError> {
        let deadline = Instant::now() + limit;
        sys::cont(self.pid.as_raw(), 0).map_err(os("running the code"))?;
        let at = self.wait(deadline)?;
        if at == to { Ok(()) } else { Err(self.own_trap(at)) }
    }

    /// Waits for an INT3; returns its address.
    fn wait(&mut self, deadline: Instant) -> Result<u64, MeasureError> {
        loop {
            let status = self.look_until(deadline)?;
            let Some(status) = status else { return self.overdue() };
            if let Some(stopped) = self.judge(status)? {
                return Ok(stopped);
            }
            // Code may raise such signals endlessly.
            self.go_on()?;
            if Instant::now() > deadline {
                let at = self.regs()?.rip;
                return Err(self.fault(FaultKind::Hang { in_call: false }, Some(at)));
            }
            sys::cont(self.pid.as_raw(), 0).map_err(os("running the code"))?;
        }
    }

    /// Short runs take microseconds: polls without sleeping at first.
    fn look_until(&mut self, deadline: Instant) -> Result<Option<i32>, MeasureError> {
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
    fn go_on(&mut self) -> Result<(), MeasureError> {
        let stop = self.stop.load(Ordering::Relaxed);
        self.dead |= stop;
        if stop { Err(MeasureError::Stopped) } else { Ok(()) }
    }

    /// Stops a child that exceeded its time limit, to find out where it is.
    fn overdue(&mut self) -> Result<u64, MeasureError> {
        self.dead = true;
        kill(self.pid, Signal::SIGSTOP).map_err(os("stopping the code"))?;
        let Some(status) = self.look_until(Instant::now() + Duration::from_secs(1))? else {
            return Err(self.fault(FaultKind::Hang { in_call: true }, None));
        };
        if !libc::WIFSTOPPED(status) || libc::WSTOPSIG(status) != libc::SIGSTOP {
            if let Some(at) = self.judge(status)? {
                return Ok(at);
            }
            let at = self.regs().ok().map(|regs| regs.rip);
            return Err(self.fault(FaultKind::Hang { in_call: false }, at));
        }
        let regs = self.regs()?;
        let in_call = regs.orig_rax.cast_signed() >= 0;
        // SYSCALL is two bytes long.
        let at = if in_call { regs.rip.wrapping_sub(2) } else { regs.rip };
        Err(self.fault(FaultKind::Hang { in_call }, Some(at)))
    }

    /// Interprets a wait status: the address of an INT3; `None` for a signal to ignore.
    fn judge(&mut self, status: i32) -> Result<Option<u64>, MeasureError> {
        self.reaped = !libc::WIFSTOPPED(status);
        if self.reaped {
            return Err(self.fault(ended(status), None));
        }
        let regs = self.regs()?;
        let signal = libc::WSTOPSIG(status);
        // The instruction pointer is after the SYSCALL.
        let call = Some(regs.rip.wrapping_sub(2));
        match status >> 16 {
            0 => {}
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                let started = ptrace::getevent(self.pid).map(|tid| Pid::from_raw(tid as i32));
                self.started.extend(started);
                return Err(self.fault(FaultKind::Fork, call));
            }
            libc::PTRACE_EVENT_SECCOMP => {
                let is_exec = is_exec(regs.orig_rax.cast_signed());
                let kind = if is_exec { FaultKind::Exec } else { FaultKind::Fork };
                return Err(self.fault(kind, call));
            }
            libc::PTRACE_EVENT_EXEC => return Err(self.fault(FaultKind::Exec, None)),
            libc::PTRACE_EVENT_EXIT => {
                let status = ptrace::getevent(self.pid).unwrap_or(0) as i32;
                let at = if libc::WIFEXITED(status) { call } else { Some(regs.rip) };
                return Err(self.fault(ended(status), at));
            }
            _ => return Ok(None),
        }
        let info = ptrace::getsiginfo(self.pid).map_err(os("asking why the code stopped"))?;
        let (address, at) = match signal {
            libc::SIGTRAP => {
                return Ok(Some(match info.si_code {
                    // INT3 leaves the address of the next instruction.
                    libc::SI_KERNEL => regs.rip.wrapping_sub(1),
                    _ => regs.rip,
                }));
            }
            libc::SIGSEGV | libc::SIGBUS => {
                // SAFETY: these signals carry an address if the kernel sent them (si_code > 0).
                let address = (info.si_code > 0 && info.si_code != libc::SI_KERNEL)
                    .then(|| unsafe { info.si_addr() } as u64);
                (address, Some(regs.rip))
            }
            // Raised after the SYSCALL.
            libc::SIGSYS => (None, call),
            libc::SIGILL
            | libc::SIGFPE
            | libc::SIGABRT
            | libc::SIGALRM
            | libc::SIGXCPU
            | libc::SIGPIPE
            | libc::SIGTERM
            | libc::SIGINT => (None, Some(regs.rip)),
            // From the terminal or job control, not from the code.
            _ => return Ok(None),
        };
        Err(self.fault(FaultKind::Signal { signal, address }, at))
    }

    /// Steps from the opening jump to after the closing one.
    fn walk(
        &mut self,
        deadline: Instant,
        retire: &mut impl FnMut(&Retired),
    ) -> Result<StepCounts, MeasureError> {
        let pid = self.pid.as_raw();
        let (mut counts, mut code, mut steps) =
            (StepCounts::default(), TracedCode::default(), 0u32);
        let mut regs = self.regs()?;
        while regs.rip != self.layout.tail {
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(1024) {
                self.go_on()?;
                if Instant::now() > deadline {
                    return Err(self.fault(FaultKind::Hang { in_call: false }, Some(regs.rip)));
                }
            }
            let (mut decoded, _) = code.at(pid, regs.rip);
            if let (UnderTrapFlag::DelaysTrap, Insn::Straight { len }) =
                (decoded.under_trap_flag, decoded.insn)
            {
                counts.instructions += u64::from(!self.layout.is_ours(decoded.ip));
                (decoded, _) = code.at(pid, decoded.ip.wrapping_add(u64::from(len)));
            }
            let call = match decoded.insn {
                Insn::Branch(branch) => branch.branch_type == BranchType::SYSCALL || decoded.int80,
                _ => false,
            };
            sys::step(pid, 0).map_err(os("stepping through the code"))?;
            let Some(status) = self.look_until(deadline)? else {
                let at = self.overdue()?;
                return Err(self.own_trap(at));
            };
            match self.judge(status)? {
                Some(at) if decoded.is_interrupt() => return Err(self.own_trap(at)),
                Some(_) => {}
                // A signal to ignore: the step was not made.
                None => continue,
            }
            let before = regs;
            regs = self.regs()?;
            if regs.eflags & TRAP_FLAG != 0 {
                // POPF makes the kernel forget that it set the flag (Linux arch/x86/kernel/step.c):
                // it would stay set.
                regs.eflags &= !TRAP_FLAG;
                ptrace::setregs(self.pid, regs).map_err(os("writing registers"))?;
            }
            let ours = self.layout.is_ours(decoded.ip);
            match decoded.insn {
                // The next iteration of REP.
                Insn::Straight { .. } if regs.rip == decoded.ip => continue,
                Insn::Straight { len } => {
                    let next = decoded.ip.wrapping_add(u64::from(len));
                    counts.undecoded += u64::from(regs.rip != next);
                    if decoded.under_trap_flag == UnderTrapFlag::PushesFlags {
                        put_trap_flag(pid, regs.rsp, false);
                    }
                }
                Insn::Branch(_) if call => {
                    counts.system_calls += 1;
                    // Mappings may have changed.
                    code.forget();
                    if regs.r11 & TRAP_FLAG != 0 && !decoded.int80 {
                        // SYSCALL copies RFLAGS, with the trap flag, into R11.
                        regs.r11 &= !TRAP_FLAG;
                        ptrace::setregs(self.pid, regs).map_err(os("writing registers"))?;
                    }
                }
                Insn::Branch(branch) => {
                    let taken = is_taken(&branch, &before, regs.rip);
                    counts.branches += u64::from(taken && !ours);
                    counts.not_taken += u64::from(!taken && !ours);
                    if self.layout.around == Some(decoded.ip) {
                        counts.rounds += 1;
                    }
                    if taken {
                        let mut retired = Retired::user(decoded.ip, regs.rip, branch.class);
                        retired.zero_length_call = branch.is_zero_length_call();
                        retire(&retired);
                    }
                }
                Insn::Invalid => counts.undecoded += 1,
            }
            counts.instructions += u64::from(!ours);
        }
        Ok(counts)
    }

    fn regs(&self) -> Result<user_regs_struct, MeasureError> {
        ptrace::getregs(self.pid).map_err(os("reading registers"))
    }
}

fn is_taken(branch: &BranchInsn, before: &user_regs_struct, to: u64) -> bool {
    if branch.target == Some(branch.next()) {
        // Taken or not, the next instruction is the same: only the flags tell.
        return branch.taken(before.eflags, before.rcx).unwrap_or(true);
    }
    !(branch.is_conditional() && to == branch.next())
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
