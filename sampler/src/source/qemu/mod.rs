//! Running a program in QEMU's user-mode emulator, `qemu-x86_64`.
//!
//! A plugin inside the emulator (the crate `machine`, built by
//! `scripts/plugins`) ships every taken branch through shared memory, one ring
//! for each thread. Where a ring is full, its thread waits: nothing is lost,
//! and the program stands still while a drain runs.
//!
//! The program runs as on any CPU of QEMU's model `max`: the branches are
//! those it takes there, which may differ from those on the CPU below
//! (libraries choose code by CPUID).
//!
//! # What differs from a run without it
//!
//! - A taken conditional branch to the very next instruction cannot be told
//!   from one that is not taken, and is not recorded;
//!   [`SourceNotes::invisible`] counts such instructions.
//! - The branch that a signal interrupts is recorded when its handler returns,
//!   after the branches of the handler. One whose handler never returns
//!   (`longjmp`), or that the program sends elsewhere, is counted in
//!   [`SourceNotes::unresolved`]. So is an indirect call of a function that is
//!   a signal handler too, which cannot be told from a signal.
//! - A forked child runs in the emulator without being recorded, and a program
//!   that takes the place of the recorded one (execve) runs on the CPU itself:
//!   both count as [`SourceNotes::children_left`].
//!   [`Command::follow_children`] changes nothing.
//! - At most 128 threads are recorded at the same time; further ones run
//!   unrecorded and are counted in [`SourceNotes::threads_left`].

#[allow(dead_code, reason = "the writing half is for the plugin")]
mod channel;
mod code;
mod find;
mod reader;
#[allow(dead_code, reason = "writing is for the plugin")]
mod record;
mod run;
mod shared;
mod site_cache;

use std::path::{Path, PathBuf};

use super::ptrace::Recorder;
use super::sites::Sites;
use super::{Command, Decoding, Exit, Software, Source, SourceError, SourceNotes};
use crate::gate::Gate;
use crate::target::{self, Affinity};

pub use find::{PLUGIN, Unavailable};

/// The emulator as a choice.
pub const SOFTWARE: Software = Software {
    name: "qemu",
    about: "qemu-x86_64 with this project's plugin: hundreds of times faster",
    open: |command| {
        let qemu = Qemu::find().map_err(|why| SourceError::Unavailable { why: why.to_string() })?;
        Ok(Box::new(qemu.program(command)?))
    },
};

/// An emulator that takes our plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    emulator: PathBuf,
    plugin: PathBuf,
}

impl Qemu {
    /// Looks for `qemu-x86_64` in PATH and for the plugin in
    /// `$LBR_PLUGIN_DIR`, beside the running program, and in the folder
    /// `plugins` beside that one's; and tries the two together.
    ///
    /// # Errors
    /// [`Unavailable`] says what is missing.
    pub fn find() -> Result<Qemu, Unavailable> {
        find::find()
    }

    /// The emulator.
    #[must_use]
    pub fn emulator(&self) -> &Path {
        &self.emulator
    }

    /// The plugin.
    #[must_use]
    pub fn plugin(&self) -> &Path {
        &self.plugin
    }

    /// A program to run in it. Nothing runs yet.
    ///
    /// # Errors
    /// [`SourceError::NotFound`], [`SourceError::NotExecutable`],
    /// [`SourceError::NotX86_64`] (also for a script), and
    /// [`SourceError::NoSuchCpu`]; [`SourceError::Unavailable`] where arguments of a
    /// function are asked for.
    pub fn program(self, command: Command) -> Result<Emulated, SourceError> {
        if command.arguments_of.is_some() {
            let why = "plugins of QEMU 7.2 see no registers, and so no arguments".to_owned();
            return Err(SourceError::Unavailable { why });
        }
        let path = target::find(&command.program)?;
        if let target::ProgramKind::Script = target::inspect(&path)? {
            let what = "a script, which qemu-x86_64 cannot run".to_owned();
            return Err(SourceError::NotX86_64 { path, what });
        }
        let pin = command.cpu.map(|cpu| Affinity::current()?.only(cpu)).transpose()?;
        let start = command.from.map(|from| code::start(&path, from)).transpose()?;
        Ok(Emulated { qemu: self, command, path, pin, start, sites: Sites::default() })
    }
}

/// A program that runs in [`Qemu`].
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
    /// [`run`](Source::run) into any recorder.
    ///
    /// Returns when the program has ended. When the recorder closes, it is
    /// killed; processes that it forked are left alone.
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

    fn decoding(&mut self) -> Decoding {
        self.sites.decoding()
    }

    fn run(&mut self, gate: &Gate) -> Result<(Exit, SourceNotes), SourceError> {
        self.run_into(gate)
    }
}
