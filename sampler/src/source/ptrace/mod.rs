//! Single-stepping a program with ptrace(2).
//!
//! Every thread of the target executes one instruction at a time or, if debug registers are
//! available, runs up to the next branch whose direction is not known in advance. Each instruction
//! is decoded before it executes; if it was a taken branch, it is retired into that thread's LBR.
//! Nothing is guessed: what a stop does not show (kernel code, predictions, cycles) is omitted, and
//! counted in [`SourceNotes`].
//!
//! The target and the thread that steps it share one CPU: the requested one, or else the one they
//! start on. Every step switches between the two twice, which costs several times more across CPUs.
//! Children that are not followed may use all of this process's CPUs again.
//!
//! # Differences from an untraced run
//!
//! - SIGTRAP cannot stay blocked: the kernel would force the step's SIGTRAP through and reset the
//!   program's handler. The mask is kept free of SIGTRAP instead, so that the handler survives.
//! - Every step aborts a restartable sequence (rseq), which may therefore never finish, as under
//!   any debugger. One that is aborted while its thread runs takes the thread past its breakpoint,
//!   up to its next system call: this counts as a transfer that could not be read.
//! - A setuid program runs without its owner's rights, unless this process has CAP_SYS_PTRACE.
//! - A program that changes its own read-only code through `/proc/self/mem` may execute
//!   instructions that were decoded before the change.

pub mod code;
mod family;
mod run;
mod start;
mod step;
pub mod sys;
mod task;
mod tracer;

use std::collections::HashSet;
use std::path::PathBuf;
use std::thread::Builder;
use std::time::Duration;

use lbr_msr::insn::Isa;
use lbr_msr::record::SourceKnowledge;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::sites::Sites;
use super::{Command, Decoding, Exit, Software, Source, SourceError, SourceNotes};
use crate::gate::{Gate, Recorder, lock};
use crate::sync::Mutex;
use crate::target::{self, Affinity, Doing};
use tracer::Tracer;

/// Single-stepping as a choice.
pub const SOFTWARE: Software = Software {
    name: "ptrace",
    about: "From branch to branch with ptrace: any program, thousands of branches a second",
    open: |command| Ok(Box::new(Ptrace::new(command)?)),
};

/// The outcome of handling a stop of a thread.
type Handled<T = ()> = Result<T, super::Stop>;

/// The traced processes.
type Running = Mutex<HashSet<u32>>;

/// Kills every process of the target.
fn kill_all(running: &Running) {
    for &pid in lock(running).iter() {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
}

/// A single-stepped program.
#[derive(Debug)]
pub struct Ptrace {
    command: Command,
    path: PathBuf,
    /// `e_entry` of the program's file; `None` for a script.
    entry: Option<u64>,
    allowed: Affinity,
    /// The requested CPU.
    pin: Option<Affinity>,
    sites: Sites,
}

impl Ptrace {
    /// Checks that the program exists, is x86-64 and can use the requested CPU. Does not run it
    /// yet.
    ///
    /// # Errors
    /// [`SourceError::NotFound`], [`SourceError::NotExecutable`],
    /// [`SourceError::NotX86_64`] (also for [`Command::from`] with a script),
    /// [`SourceError::NoSuchCpu`].
    pub fn new(command: Command) -> Result<Ptrace, SourceError> {
        let path = target::find(&command.program)?;
        let entry = match target::inspect(&path)? {
            target::ProgramKind::Elf { isa: Isa::X86_64, entry } => Some(entry),
            target::ProgramKind::Elf { .. } => {
                let why =
                    "the program is for AArch64: only lbr record and lbr dump run it, in QEMU"
                        .to_owned();
                return Err(SourceError::Unavailable { why });
            }
            target::ProgramKind::Script if command.from.is_some() => {
                let what = "a script, which has no addresses to start from".to_owned();
                return Err(SourceError::NotX86_64 { path, what });
            }
            target::ProgramKind::Script => None,
        };
        let allowed = Affinity::current()?;
        let pin = command.cpu.map(|cpu| allowed.only(cpu)).transpose()?;
        Ok(Ptrace { command, path, entry, allowed, pin, sites: Sites::default() })
    }

    /// Like [`run`](Source::run), with any recorder.
    ///
    /// Returns when all threads of the target, and of followed children, have ended. Kills them
    /// when the recorder closes.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn run_into<R: Recorder + Sync>(
        &mut self,
        recorder: &R,
    ) -> Result<(Exit, SourceNotes), SourceError> {
        /// How soon a closed recorder is noticed while the target sleeps.
        const LOOK: Duration = Duration::from_millis(20);

        let running = Running::default();
        let caller = std::thread::current();
        // A separate thread, because ptrace and waitpid work per thread: it can neither reap nor
        // lose the caller's children, and its death kills the target (EXITKILL).
        std::thread::scope(|scope| {
            let trace = || {
                let result = Tracer::launch(self, recorder, &running).and_then(Tracer::run);
                caller.unpark();
                result
            };
            let tracer =
                Builder::new().spawn_scoped(scope, trace).doing("starting a thread that traces")?;
            while !tracer.is_finished() {
                std::thread::park_timeout(LOOK);
                if recorder.is_closed() {
                    kill_all(&running);
                }
            }
            tracer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Source<'_> for Ptrace {
    fn name(&self) -> &'static str {
        "ptrace"
    }

    fn knowledge(&self) -> SourceKnowledge {
        self.command.knowledge()
    }

    fn decoding(&mut self) -> Decoding {
        self.sites.decoding()
    }

    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        self.run_into(gate)
    }
}
