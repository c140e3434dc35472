//! Running a program in QEMU's user-mode emulator, `qemu-x86_64` or `qemu-aarch64`.
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

use std::path::PathBuf;

use lbr_msr::environment;
use lbr_msr::insn::Isa;
use lbr_msr::record::SourceKnowledge;

use super::sites::Sites;
use super::{Command, Decoding, Exit, Software, Source, SourceError, SourceNotes};
use crate::gate::Gate;
use crate::target::{self, Affinity};

pub use find::Unavailable;

/// The emulator as a choice.
pub const SOFTWARE: Software = Software {
    name: "qemu",
    about: "QEMU with this project's plugin: hundreds of times faster, and Arm programs too",
    open: |command| {
        let isa = target::isa(&command.program).unwrap_or_default();
        Ok(Box::new(Qemu::find_for(isa)?.program(command)?))
    },
};

/// An emulator that accepts the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    emulator: PathBuf,
    isa: Isa,
}

impl Qemu {
    /// Looks for `qemu-x86_64` in PATH, and tests that it accepts the plugin.
    ///
    /// # Errors
    /// [`Unavailable`] names the missing part.
    pub fn find() -> Result<Qemu, Unavailable> {
        Qemu::find_for(Isa::X86_64)
    }

    /// The same for the emulator of an instruction set.
    ///
    /// # Errors
    /// [`Unavailable`] names the missing part.
    pub fn find_for(isa: Isa) -> Result<Qemu, Unavailable> {
        let path = environment::trusted("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        find::find_in(&path, find::LIBRARY, isa)
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
        match target::inspect(&path)? {
            target::ProgramKind::Elf { isa, .. } if isa == self.isa => {}
            target::ProgramKind::Elf { .. } => return unavailable("the program is of another CPU"),
            target::ProgramKind::Script => return unavailable("QEMU's user mode runs no scripts"),
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

impl Source<'_> for Emulated {
    fn name(&self) -> &'static str {
        find::emulator(self.qemu.isa)
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
