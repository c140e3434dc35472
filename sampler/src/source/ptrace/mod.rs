//! Single-stepping a program with ptrace(2).
//!
//! Every thread of the target executes one instruction at a time, or runs up to
//! the next branch whose way is not known before, where the debug registers can
//! be had. Each instruction is decoded before it executes; where it was a branch
//! and was taken, it is retired into that thread's ring. Nothing is guessed: what
//! a stop does not show (kernel code, predictions, cycles) is left out, and
//! counted in [`SourceNotes`].
//!
//! The target and the thread that steps it share one CPU: the one asked for,
//! or else the one they start on. Every step is a switch from one to the other
//! and back, which is several times dearer across CPUs. Children that are left
//! alone get back every CPU we may use.
//!
//! # What differs from a run without it
//!
//! - SIGTRAP cannot stay blocked: the kernel forces the step's own SIGTRAP
//!   through, and would reset the program's handler. The mask is kept free of
//!   it instead, so that the handler survives.
//! - Restartable sequences (rseq) of the target are aborted by every step and
//!   may never finish, as under any debugger. One that is aborted while its thread
//!   runs takes it past the breakpoint, up to its next system call: that is counted
//!   as a transfer that could not be read.
//! - A setuid program runs without the rights of its owner, unless we have
//!   CAP_SYS_PTRACE.
//! - Where a signal handler starts, one thread's branches do not join: the
//!   kernel's transfer to it is not seen. It is counted.
//! - A program that writes its own read-only code through `/proc/self/mem`
//!   may execute instructions decoded before that.

pub mod code;
mod family;
mod run;
mod shared;
mod start;
mod step;
pub mod sys;
mod task;
mod tracer;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use lbr_msr::record::Event;
use lbr_msr::soft::{Retired, SoftLbr};

use super::sites::Sites;
use super::{Command, Decoding, Exit, Software, Source, SourceError, SourceNotes};
use crate::gate::{Closed, Gate, Ring};
use crate::target::ThreadId;
use crate::target::{self, Affinity};
use shared::Shared;
use tracer::Tracer;

/// Single-stepping as a choice.
pub const SOFTWARE: Software = Software {
    name: "ptrace",
    about: "From branch to branch with ptrace: any program, thousands of branches a second",
    open: |command| Ok(Box::new(Ptrace::new(command)?)),
};

/// Where branches go: what the source needs of a [`Gate`].
pub trait Recorder {
    /// The ring of one thread.
    type Ring: Retire;

    /// A thread starts.
    ///
    /// # Errors
    /// [`Closed`].
    fn start(&self, thread: ThreadId) -> Result<Self::Ring, Closed>;

    /// Something happened beside the branches.
    ///
    /// # Errors
    /// [`Closed`].
    fn emit(&self, event: Event) -> Result<(), Closed>;

    /// Whether the source should stop.
    fn is_closed(&self) -> bool;

    /// This process was started to be recorded.
    fn started(&self, _pid: u32) {}

    /// See [`Gate::model`].
    fn model(&self) -> Option<SoftLbr> {
        None
    }

    /// See [`Gate::period`].
    fn period(&self) -> Option<u64> {
        None
    }
}

/// Takes the branches of one thread: what the source needs of a [`Ring`].
pub trait Retire {
    /// Retires one taken branch.
    ///
    /// # Errors
    /// [`Closed`].
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed>;

    /// Retires taken branches, the oldest first.
    ///
    /// # Errors
    /// [`Closed`].
    fn retire_run(&mut self, run: &[Retired]) -> Result<(), Closed> {
        run.iter().try_for_each(|branch| self.retire(branch))
    }

    /// See [`Ring::retire_entry`].
    ///
    /// # Errors
    /// [`Closed`].
    fn retire_entry(&mut self, branch: &Retired, _arguments: [u64; 6]) -> Result<(), Closed> {
        self.retire(branch)
    }

    /// See [`Ring::retire_newest`]; called where the recorder has a
    /// [model](Recorder::model), and then followed by a flush where it has no
    /// [period](Recorder::period).
    ///
    /// # Errors
    /// [`Closed`].
    fn retire_newest(&mut self, _left_out: u64, run: &[Retired]) -> Result<(), Closed> {
        self.retire_run(run)
    }

    /// See [`Ring::is_due`].
    fn is_due(&self) -> bool {
        false
    }

    /// See [`Ring::flush`].
    ///
    /// # Errors
    /// [`Closed`].
    fn flush(&mut self) -> Result<(), Closed> {
        Ok(())
    }

    /// The thread has ended.
    ///
    /// # Errors
    /// [`Closed`].
    fn finish(self) -> Result<(), Closed>;
}

impl Recorder for Gate {
    type Ring = Ring;

    fn start(&self, thread: ThreadId) -> Result<Ring, Closed> {
        Gate::start(self, thread)
    }

    fn emit(&self, event: Event) -> Result<(), Closed> {
        Gate::emit(self, event)
    }

    fn is_closed(&self) -> bool {
        Gate::is_closed(self)
    }

    fn started(&self, pid: u32) {
        Gate::started(self, pid);
    }

    fn model(&self) -> Option<SoftLbr> {
        Gate::model(self)
    }

    fn period(&self) -> Option<u64> {
        Gate::period(self)
    }
}

impl Retire for Ring {
    fn retire(&mut self, branch: &Retired) -> Result<(), Closed> {
        Ring::retire(self, branch)
    }

    fn retire_run(&mut self, run: &[Retired]) -> Result<(), Closed> {
        Ring::retire_run(self, run)
    }

    fn retire_entry(&mut self, branch: &Retired, arguments: [u64; 6]) -> Result<(), Closed> {
        Ring::retire_entry(self, branch, arguments)
    }

    fn retire_newest(&mut self, left_out: u64, run: &[Retired]) -> Result<(), Closed> {
        Ring::retire_newest(self, left_out, run)
    }

    fn is_due(&self) -> bool {
        Ring::is_due(self)
    }

    fn flush(&mut self) -> Result<(), Closed> {
        Ring::flush(self)
    }

    fn finish(self) -> Result<(), Closed> {
        Ring::finish(self)
    }
}

/// A program that is single-stepped.
#[derive(Debug)]
pub struct Ptrace {
    command: Command,
    path: PathBuf,
    /// `e_entry` of the program's file; `None` for a script.
    entry: Option<u64>,
    allowed: Affinity,
    /// The CPU that was asked for.
    pin: Option<Affinity>,
    sites: Sites,
}

impl Ptrace {
    /// Checks that the program can be found, is x86-64 and can be pinned as
    /// asked. Nothing runs yet.
    ///
    /// # Errors
    /// [`SourceError::NotFound`], [`SourceError::NotExecutable`],
    /// [`SourceError::NotX86_64`] (also for [`Command::from`] with a script),
    /// [`SourceError::NoSuchCpu`].
    pub fn new(command: Command) -> Result<Ptrace, SourceError> {
        let path = target::find(&command.program)?;
        let entry = match target::inspect(&path)? {
            target::ProgramKind::Elf { entry } => Some(entry),
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

    /// [`run`](Source::run) into any recorder.
    ///
    /// Returns when all threads of the target have ended, and of its children
    /// where they are followed. When the recorder closes, they are killed.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn run_into<R: Recorder + Sync>(
        &mut self,
        recorder: &R,
    ) -> Result<(Exit, SourceNotes), SourceError> {
        /// How soon a closed recorder is noticed while the target sleeps.
        const LOOK: Duration = Duration::from_millis(20);

        let shared = Shared { running: Mutex::default(), sites: self.sites.clone() };
        let caller = std::thread::current();
        // A thread of its own: ptrace and waitpid go by thread, so this one
        // can neither steal nor lose the caller's children, and its death
        // takes the target along (EXITKILL).
        std::thread::scope(|scope| {
            let tracer = scope.spawn(|| {
                let result = Tracer::launch(self, recorder, &shared).and_then(Tracer::run);
                caller.unpark();
                result
            });
            while !tracer.is_finished() {
                std::thread::park_timeout(LOOK);
                if recorder.is_closed() {
                    shared.kill();
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

    fn decoding(&mut self) -> Decoding {
        self.sites.decoding()
    }

    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        self.run_into(gate)
    }
}
