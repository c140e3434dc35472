//! Running a program in QEMU's user-mode emulator, `qemu-x86_64`.
//!
//! A plugin inside the emulator (the crate `machine`, which `build.rs` builds and this crate carries)
//! sends every taken branch through shared memory, with one ring for each thread. If a ring is full, its thread
//! waits: nothing is lost, and the program stops during a drain.
//!
//! The program runs on QEMU's CPU model `max`, so it may take other branches than on the host CPU
//! (libraries choose code by CPUID).
//!
//! # Differences from a native run
//!
//! - A taken conditional branch to the next instruction looks like one that is not taken, and is
//!   not recorded; [`SourceNotes::invisible`] counts such instructions.
//! - The branch that a signal interrupts is recorded when its handler returns, after the branches
//!   of the handler. If the handler never returns (`longjmp`), or the program continues elsewhere,
//!   it is counted in [`SourceNotes::unresolved`]. So is an indirect call of a function that is
//!   also a signal handler, which looks like a signal.
//! - The plugin does not see the address of a fault. If the handler never returns, or the fault ends
//!   the program, the instructions of that block are not counted.
//! - A forked child runs in the emulator without being recorded ([`SourceNotes::children_left`]), and
//!   a program started by execve runs natively ([`SourceNotes::replaced`]).
//! - At most 128 threads are recorded at the same time; others run unrecorded and are counted in
//!   [`SourceNotes::threads_left`].

#[allow(dead_code, reason = "the writing half is for the plugin")]
mod channel;
mod code;
mod find;
mod gdb;
mod reader;
#[allow(dead_code, reason = "writing is for the plugin")]
mod record;
mod run;
mod shared;

use std::path::{Path, PathBuf};

use lbr_msr::record::SourceKnowledge;

use super::sites::Sites;
use super::{Command, Decoding, Exit, Software, Source, SourceError, SourceNotes};
use crate::gate::{Gate, Recorder};
use crate::target::{self, Affinity};

pub use find::Unavailable;

/// The emulator as a choice.
pub const SOFTWARE: Software = Software {
    name: "qemu",
    about: "qemu-x86_64 with this project's plugin: hundreds of times faster",
    open: |command| {
        let qemu = Qemu::find().map_err(|why| SourceError::Unavailable { why: why.to_string() })?;
        Ok(Box::new(qemu.program(command)?))
    },
};

/// An emulator that accepts the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    emulator: PathBuf,
}

impl Qemu {
    /// Looks for `qemu-x86_64` in PATH, and tests that it accepts the plugin.
    ///
    /// # Errors
    /// [`Unavailable`] names the missing part.
    pub fn find() -> Result<Qemu, Unavailable> {
        find::find()
    }

    /// The emulator.
    pub fn emulator(&self) -> &Path {
        &self.emulator
    }

    /// Prepares a program to run in it. Does not run it yet.
    ///
    /// # Errors
    /// [`SourceError::NotFound`], [`SourceError::NotExecutable`],
    /// [`SourceError::NotX86_64`], and [`SourceError::NoSuchCpu`]; [`SourceError::Unavailable`] if
    /// the command asks for arguments of a function or child processes, or names a script.
    pub fn program(self, command: Command) -> Result<Emulated, SourceError> {
        let unavailable = |why: &str| Err(SourceError::Unavailable { why: why.to_owned() });
        if command.arguments_of.is_some() {
            return unavailable(
                "plugins of QEMU 7.2 cannot read registers, so arguments cannot be recorded",
            );
        }
        if command.follow_children {
            return unavailable("the plugin cannot follow child processes");
        }
        let path = target::find(&command.program)?;
        if let target::ProgramKind::Script = target::inspect(&path)? {
            return unavailable("qemu-x86_64 runs no scripts");
        }
        let pin = command.cpu.map(|cpu| Affinity::current()?.only(cpu)).transpose()?;
        let start = command.from.map(|from| code::start(&path, from)).transpose()?;
        Ok(Emulated { qemu: self, command, path, pin, start, sites: Sites::default() })
    }
}

/// A program prepared to run in [`Qemu`].
#[derive(Debug)]
pub struct Emulated {
    qemu: Qemu,
    command: Command,
    path: PathBuf,
    pin: Option<Affinity>,
    start: Option<code::Start>,
    sites: Sites,
}

impl Emulated {
    /// Like [`run`](Source::run), with any recorder.
    ///
    /// Returns when the program has ended. When the recorder closes, the program is killed;
    /// processes that it forked continue running.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn run_into<R: Recorder>(
        &mut self,
        recorder: &R,
    ) -> Result<(Exit, SourceNotes), SourceError> {
        run::run(self, recorder)
    }
}

impl Source<'_> for Emulated {
    fn name(&self) -> &'static str {
        "qemu-x86_64"
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
