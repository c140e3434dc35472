//! Finds an emulator that accepts the plugin.

use lbr_msr::text::AsText;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use lbr_msr::insn::Isa;

use super::Qemu;
use super::shared::Plugin;
use crate::source::SourceError;

/// The emulator's name in PATH.
pub(super) const fn emulator(isa: Isa) -> &'static str {
    match isa {
        Isa::X86_64 => "qemu-x86_64",
        Isa::Aarch64 => "qemu-aarch64",
    }
}

/// The plugin, or nothing: `build.rs` builds it.
pub(super) const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));

/// Why programs cannot be recorded in QEMU on this system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The emulator is missing.
    #[error("{0} is not in PATH (Debian 12: package qemu-user)")]
    NoEmulator(&'static str),
    /// This program was built without the plugin: outside the project's source tree.
    #[error(
        "this lbr was built without its plugin; scripts/install in its source tree builds both"
    )]
    NoPlugin,
    /// The emulator cannot be executed.
    #[error("{}: {cause}", emulator.as_text())]
    Os {
        /// The emulator.
        emulator: PathBuf,
        /// The system's error message.
        cause: io::Error,
    },
    /// The emulator rejects the plugin: it was built without plugins (Debian's static builds from
    /// 13 on), or with another plugin interface version.
    #[error(
        "{} refuses the plugin: {said} (QEMU 7.2 with plugins is needed, as in Debian 12)",
        emulator.as_text()
    )]
    Refused {
        /// The emulator.
        emulator: PathBuf,
        /// The emulator's message.
        said: String,
    },
}

impl From<Unavailable> for SourceError {
    fn from(why: Unavailable) -> SourceError {
        SourceError::Unavailable { why: why.to_string() }
    }
}

/// Looks for the emulator in a list of folders like PATH.
pub(super) fn find_in(path: &OsStr, library: &[u8], isa: Isa) -> Result<Qemu, Unavailable> {
    // An empty entry of PATH means the current folder, where no one keeps an emulator on purpose.
    let folders = std::env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty());
    let name = emulator(isa);
    let mut emulators = folders.map(|folder| folder.join(name));
    let emulator = emulators.find(|path| path.is_file()).ok_or(Unavailable::NoEmulator(name))?;
    if library.is_empty() {
        return Err(Unavailable::NoPlugin);
    }
    probe(&emulator, library)?;
    Ok(Qemu { emulator, isa })
}

/// Makes the emulator load the plugin, which then exits with status 0.
fn probe(emulator: &Path, library: &[u8]) -> Result<(), Unavailable> {
    let failed = |cause| Unavailable::Os { emulator: emulator.to_owned(), cause };
    let plugin = Plugin::new(library).map_err(failed)?;
    let mut process = Process::new(emulator);
    plugin.load(&["probe=on".to_owned()], &mut process);
    let output = process.arg(emulator).stdin(Stdio::null()).output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = output.stderr.as_text();
    let said = stderr.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map_or_else(|| output.status.to_string(), str::to_owned);
    Err(Unavailable::Refused { emulator: emulator.to_owned(), said })
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/qemu/find.rs"]
mod tests;
