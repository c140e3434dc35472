//! Finds an emulator and a matching plugin.

use lbr_msr::text::AsText;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use lbr_msr::environment;

use super::Qemu;
use super::channel::VERSION;

/// The emulator's name in PATH.
const EMULATOR: &str = "qemu-x86_64";
/// The plugin's file name.
pub const PLUGIN: &str = "liblbr_machine_user.so";
/// Environment variable with the folder of the plugin.
const FOLDER: &str = "LBR_PLUGIN_DIR";

/// Why programs cannot be recorded in QEMU on this system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The emulator is missing.
    #[error("qemu-x86_64 is not in PATH (Debian 12: package qemu-user)")]
    NoEmulator,
    /// The plugin is missing.
    #[error("{PLUGIN} is not in {}; scripts/plugins builds it", list(searched))]
    NoPlugin {
        /// The searched folders.
        searched: Vec<PathBuf>,
    },
    /// The emulator cannot be executed.
    #[error("{}: {cause}", emulator.as_text())]
    Os {
        /// The emulator.
        emulator: PathBuf,
        /// The system's error message.
        cause: io::Error,
    },
    /// The plugin belongs to another version.
    #[error("{} was built for another version of lbr; run scripts/plugins to rebuild it", plugin.as_text())]
    OtherVersion {
        /// The plugin.
        plugin: PathBuf,
    },
    /// The emulator rejects the plugin: it was built without plugins (Debian's static builds from
    /// 13 on), or with another plugin interface version.
    #[error(
        "{} refuses the plugin {}: {said} (QEMU 7.2 with plugins is needed, as in Debian 12)",
        emulator.as_text(), plugin.as_text()
    )]
    Refused {
        /// The emulator.
        emulator: PathBuf,
        /// The plugin.
        plugin: PathBuf,
        /// The emulator's message.
        said: String,
    },
}

fn list(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.as_text().into_owned()).collect();
    names.join(", ")
}

pub(super) fn find() -> Result<Qemu, Unavailable> {
    find_in(&environment::trusted("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()), folders())
}

/// Looks for the emulator in a list of folders like PATH, and for the plugin in `searched`.
fn find_in(path: &OsStr, searched: Vec<PathBuf>) -> Result<Qemu, Unavailable> {
    // An empty entry of PATH means the current folder, where no one keeps an emulator on purpose.
    let folders = std::env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty());
    let mut emulators = folders.map(|folder| folder.join(EMULATOR));
    let emulator = emulators.find(|path| path.is_file());
    let emulator = emulator.ok_or(Unavailable::NoEmulator)?;
    let plugin = searched.iter().map(|folder| folder.join(PLUGIN)).find(|path| path.is_file());
    let Some(plugin) = plugin else { return Err(Unavailable::NoPlugin { searched }) };
    let qemu = Qemu { emulator, plugin };
    probe(&qemu)?;
    Ok(qemu)
}

/// `$LBR_PLUGIN_DIR` alone if set. Otherwise the folder of the running program, `plugins` next to
/// that folder (`target/plugins` for `target/release/lbr`) or next to its parent (tests run in
/// `target/debug/deps`), and `lib/lbr` next to the `bin` it was installed into.
fn folders() -> Vec<PathBuf> {
    if let Some(folder) = environment::trusted(FOLDER) {
        return vec![PathBuf::from(folder)];
    }
    let Ok(exe) = std::env::current_exe() else { return Vec::new() };
    let beside = exe.parent().map(Path::to_owned);
    let plugins = exe.ancestors().skip(2).take(2).map(|folder| folder.join("plugins"));
    let installed = exe.ancestors().nth(2).map(|prefix| prefix.join("lib/lbr"));
    beside.into_iter().chain(plugins).chain(installed).collect()
}

/// Makes the emulator load the plugin, which then exits with status 0.
fn probe(qemu: &Qemu) -> Result<(), Unavailable> {
    let output = Process::new(&qemu.emulator)
        .arg("-plugin")
        .arg(option(&qemu.plugin, &[format!("version={VERSION}"), "probe=on".to_owned()]))
        .arg(&qemu.emulator)
        .stdin(Stdio::null())
        .output()
        .map_err(|cause| Unavailable::Os { emulator: qemu.emulator.clone(), cause })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = output.stderr.as_text();
    let said = stderr.lines().map(str::trim).find(|line| !line.is_empty());
    let said = said.map_or_else(|| output.status.to_string(), str::to_owned);
    // The messages of plugins with another version, or without versions.
    if ["argument version=", "another version"].iter().any(|words| said.contains(words)) {
        return Err(Unavailable::OtherVersion { plugin: qemu.plugin.clone() });
    }
    let (emulator, plugin) = (qemu.emulator.clone(), qemu.plugin.clone());
    Err(Unavailable::Refused { emulator, plugin, said })
}

/// The value of QEMU's option `-plugin`, which is split at commas; a comma in a path is doubled.
pub(super) fn option(plugin: &Path, arguments: &[String]) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut value = b"file=".to_vec();
    for &byte in plugin.as_os_str().as_bytes() {
        value.push(byte);
        if byte == b',' {
            value.push(byte);
        }
    }
    for argument in arguments {
        value.push(b',');
        value.extend_from_slice(argument.as_bytes());
    }
    OsString::from_vec(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with this script as emulator, and a plugin.
    fn installed(script: &str) -> tempfile::TempDir {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let emulator = folder.path().join(EMULATOR);
        std::fs::write(&emulator, script).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&emulator, mode).expect("executable");
        std::fs::write(folder.path().join(PLUGIN), "").expect("written");
        folder
    }

    // One test for both cases, in sequence: a newly written script cannot be executed while another
    // test's forked child still has it open.
    #[test]
    fn qemu_is_asked_whether_it_accepts_the_plugin() {
        // As the plugin exits: with status 0 once it sees its argument.
        let script = "#!/bin/sh\ncase \"$1 $2\" in '-plugin file='*',version='*',probe=on') exit 0; esac\nexit 9\n";
        let folder = installed(script);
        let folders = vec![PathBuf::from("/nowhere"), folder.path().to_owned()];
        let qemu = find_in(folder.path().as_os_str(), folders).expect("found");
        assert_eq!(qemu.emulator, folder.path().join(EMULATOR));
        assert_eq!(qemu.plugin, folder.path().join(PLUGIN));

        let old =
            "lbr: the plugin in qemu-x86_64 cannot start: it does not know the argument version=2";
        let folder = installed(&format!("#!/bin/sh\necho '{old}' >&2\nexit 1\n"));
        let searched = vec![folder.path().to_owned()];
        let error = find_in(folder.path().as_os_str(), searched).expect_err("refused").to_string();
        assert!(
            error.ends_with("another version of lbr; run scripts/plugins to rebuild it"),
            "{error}"
        );

        let folder = installed("#!/bin/sh\necho 'qemu-x86_64: plugins are disabled' >&2\nexit 1\n");
        let searched = vec![folder.path().to_owned()];
        let error = find_in(folder.path().as_os_str(), searched).expect_err("refused").to_string();
        assert!(error.contains("refuses the plugin"), "{error}");
        assert!(error.contains("qemu-x86_64: plugins are disabled"), "{error}");
    }

    #[test]
    fn missing_parts_are_named() {
        let error = find_in(OsStr::new("/nowhere"), Vec::new()).expect_err("no emulator");
        assert!(matches!(error, Unavailable::NoEmulator), "{error}");
        let folder = installed("#!/bin/sh\n");
        let searched = vec![PathBuf::from("/a"), PathBuf::from("/b")];
        let error = find_in(folder.path().as_os_str(), searched).expect_err("no plugin");
        let wanted = "liblbr_machine_user.so is not in /a, /b; scripts/plugins builds it";
        assert_eq!(error.to_string(), wanted);
    }

    #[test]
    fn commas_in_paths_are_doubled() {
        let value = option(Path::new("/a,b/p.so"), &["fd=3".to_owned(), "from=0x10".to_owned()]);
        assert_eq!(value, "file=/a,,b/p.so,fd=3,from=0x10");
    }
}
