//! The program under test, kept from what surrounds it: what it answers is
//! decided by its arguments and its input, not by the machine it happens to
//! run on nor by whoever runs it.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::skip::skipped;

/// Where the built program lies.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lbr");

/// What the program may see of the environment: where tools and the plugin of
/// QEMU are, where temporary files go, and what measures the coverage of tests.
const SEEN: [&str; 5] =
    ["PATH", "LBR_PLUGIN_DIR", "TMPDIR", "LD_LIBRARY_PATH", "LLVM_PROFILE_FILE"];

/// Leaves a command nothing else of the environment, and no input.
pub(crate) fn alone(mut command: Command) -> Command {
    command.env_clear().env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    for name in SEEN {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// `lbr` with arguments, ready to run. What looks at a machine looks at the
/// [`host`] unless the arguments name another.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = alone(Command::new(PROGRAM));
    let (name, rest) = args.split_first().unwrap_or((&"", &[]));
    let options: Vec<&str> = rest.iter().copied().take_while(|arg| *arg != "--").collect();
    let names_a_machine = ["--msr-root", "--diff"].iter().any(|named| options.contains(named));
    if let Some(host) = host().filter(|_| LOOKING.contains(name) && !names_a_machine) {
        command.arg(name).arg("--msr-root").arg(host).args(rest);
    } else {
        command.args(args);
    }
    command
}

/// The commands that look at a machine.
const LOOKING: [&str; 7] = ["disarm", "doctor", "dump", "probe", "record", "time", "verify"];

/// The machine that commands look at: a folder of `tests/hosts`, named by
/// `LBR_TEST_HOST`, or any other path; `None` for `here`, the machine that the
/// tests run on.
pub(crate) fn host() -> Option<PathBuf> {
    let name = std::env::var_os("LBR_TEST_HOST").unwrap_or_else(|| "skylake".into());
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hosts");
    (name != "here").then(|| {
        let host = hosts.join(&name);
        assert!(host.join("cpuid").is_file(), "LBR_TEST_HOST: no {}/cpuid", host.display());
        host
    })
}

/// A script in a folder that runs `lbr` as [`command`] does, for shells and
/// scripts that find it there.
pub(crate) fn wrapper(folder: &Path) -> PathBuf {
    let path = folder.join("lbr");
    let looking = LOOKING.join("|");
    let root = host().map_or(String::new(), |host| format!("--msr-root '{}'", host.display()));
    let text = format!(
        "#!/bin/sh\nname=$1\nshift\ncase $name in\n{looking}) set -- {root} \"$@\" ;;\nesac\n\
         exec '{PROGRAM}' \"$name\" \"$@\"\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Runs `lbr`.
pub(crate) fn lbr(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs `lbr` in a folder.
pub(crate) fn lbr_in(dir: &Path, args: &[&str]) -> Output {
    command(args).current_dir(dir).output().unwrap()
}

/// Runs `lbr` with bytes on its standard input.
pub(crate) fn lbr_with_input(args: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = piped(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    // The pipe may fill while the child writes; and it may end before it has
    // read everything: that is its right.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    out
}

/// `lbr` with all three streams as pipes.
pub(crate) fn piped(args: &[&str]) -> Command {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What was printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The results.
pub(crate) fn stdout(out: &Output) -> String {
    text(&out.stdout)
}

/// What was said beside them.
pub(crate) fn stderr(out: &Output) -> String {
    text(&out.stderr)
}

/// The results of a command that ended well.
#[track_caller]
pub(crate) fn printed(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(0), "{}", stderr(out));
    stdout(out)
}

/// The JSON Lines of a command that ended well.
#[track_caller]
pub(crate) fn json_lines(out: &Output) -> Vec<Value> {
    printed(out).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs `lbr`, which has to end well, and gives its results.
#[track_caller]
pub(crate) fn done(args: &[&str]) -> String {
    printed(&lbr(args))
}

/// The same for results that are JSON Lines.
#[track_caller]
pub(crate) fn rows(args: &[&str]) -> Vec<Value> {
    json_lines(&lbr(args))
}

/// Runs `lbr record` under ptrace; `None`, after saying so, where nothing may
/// be traced. It has to end well otherwise.
#[track_caller]
pub(crate) fn traced(args: &[&str]) -> Option<Output> {
    let out = lbr(args);
    if out.status.code() == Some(4) {
        skipped(stderr(&out));
        return None;
    }
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    Some(out)
}

/// A setuid copy of `lbr` in a folder that is everybody's.
pub(crate) fn setuid(folder: &Path) -> Option<PathBuf> {
    let flags = nix::sys::statvfs::statvfs(folder).unwrap().flags();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if !nix::unistd::geteuid().is_root()
        || flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID)
        || status.contains("NoNewPrivs:\t1")
    {
        skipped("nobody can run setuid programs here, or make them");
        return None;
    }
    let all = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder, all(0o777)).unwrap();
    let setuid = folder.join("lbr");
    std::fs::copy(PROGRAM, &setuid).unwrap();
    std::fs::set_permissions(&setuid, all(0o4755)).unwrap();
    Some(setuid)
}
