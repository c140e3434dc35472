//! Finds an emulator that accepts the plugin.

use lbr_msr::text::AsText;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use lbr_msr::environment;
use lbr_msr::insn::Isa;

use super::Qemu;
use super::shared::Plugin;

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

pub(super) fn find(isa: Isa) -> Result<Qemu, Unavailable> {
    find_in(&environment::trusted("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()), LIBRARY, isa)
}

/// Looks for the emulator in a list of folders like PATH.
fn find_in(path: &OsStr, library: &[u8], isa: Isa) -> Result<Qemu, Unavailable> {
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
mod tests {
    use super::*;

    /// A folder with this script as emulator.
    fn installed(script: &str) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let emulator = folder.path().join(emulator(Isa::X86_64));
        std::fs::write(&emulator, script).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&emulator, mode).expect("executable");
        folder
    }

    // One test for both cases, in sequence: a newly written script cannot be executed while another
    // test's forked child still has it open.
    #[test]
    fn qemu_is_asked_whether_it_accepts_the_plugin() {
        // Like the plugin: status 0 if the library can be read under its name and sees its argument.
        let script = "#!/bin/sh\nfile=${2#file=}\n[ \"$1 ${2##*,} $(cat \"${file%%,*}\")\" = '-plugin probe=on bytes' ]\n";
        let folder = installed(script);
        let qemu = find_in(folder.path().as_os_str(), b"bytes", Isa::X86_64).expect("found");
        assert_eq!(qemu.emulator, folder.path().join(emulator(Isa::X86_64)));

        let folder = installed("#!/bin/sh\necho 'qemu-x86_64: plugins are disabled' >&2\nexit 1\n");
        let error = find_in(folder.path().as_os_str(), b"bytes", Isa::X86_64)
            .expect_err("refused")
            .to_string();
        assert!(error.contains("refuses the plugin: qemu-x86_64: plugins are disabled"), "{error}");
    }

    #[test]
    fn missing_parts_are_named() {
        let error =
            find_in(OsStr::new("/nowhere"), b"bytes", Isa::Aarch64).expect_err("no emulator");
        assert!(matches!(error, Unavailable::NoEmulator("qemu-aarch64")), "{error}");
        let folder = installed("#!/bin/sh\n");
        let error = find_in(folder.path().as_os_str(), b"", Isa::X86_64).expect_err("no plugin");
        assert!(matches!(error, Unavailable::NoPlugin), "{error}");
    }
}
