//! The program under test in a clean environment: its output depends only on its arguments and
//! input, not on the machine or user.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::skip::skipped;

/// The built program.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lbr");

/// The environment variables it gets: for tools, temporary files, and coverage measurement.
const SEEN: [&str; 4] = ["PATH", "TMPDIR", "LD_LIBRARY_PATH", "LLVM_PROFILE_FILE"];

/// Removes the rest of the environment, and input.
pub(crate) fn alone(mut command: Command) -> Command {
    command.env_clear().env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    for name in SEEN {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// `lbr` with arguments, ready to run. Commands that examine a machine examine the [`host`] unless
/// the arguments name another.
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

/// The commands that examine a machine.
const LOOKING: [&str; 7] = ["disarm", "doctor", "dump", "probe", "record", "time", "verify"];

/// The machine that commands examine: a folder of `tests/hosts`, named by `LBR_TEST_HOST`, or any
/// other path; `None` for `here`, the machine that runs the tests.
pub(crate) fn host() -> Option<PathBuf> {
    let name = std::env::var_os("LBR_TEST_HOST").unwrap_or_else(|| "skylake".into());
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hosts");
    (name != "here").then(|| {
        let host = hosts.join(&name);
        assert!(host.join("cpuid").is_file(), "LBR_TEST_HOST: no {}/cpuid", host.display());
        host
    })
}

/// Writes a script to a folder that runs `lbr` like [`command`], for shells and scripts.
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
    // Written by a thread, because the pipe may fill up. The child may exit before it has read
    // everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    out
}

/// `lbr` with pipes for all three streams.
pub(crate) fn piped(args: &[&str]) -> Command {
    let mut command = command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The printed text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Standard output.
pub(crate) fn stdout(out: &Output) -> String {
    text(&out.stdout)
}

/// Standard error.
pub(crate) fn stderr(out: &Output) -> String {
    text(&out.stderr)
}

/// Standard output of a successful command.
#[track_caller]
pub(crate) fn printed(out: &Output) -> String {
    assert_eq!(out.status.code(), Some(0), "{}", stderr(out));
    stdout(out)
}

/// The JSON Lines of a successful command.
#[track_caller]
pub(crate) fn json_lines(out: &Output) -> Vec<Value> {
    printed(out).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs `lbr`, which must succeed, and returns standard output.
#[track_caller]
pub(crate) fn done(args: &[&str]) -> String {
    printed(&lbr(args))
}

/// As [`done`], for JSON Lines.
#[track_caller]
pub(crate) fn rows(args: &[&str]) -> Vec<Value> {
    json_lines(&lbr(args))
}

/// Runs `lbr record` under ptrace, which must succeed; `None`, after a skip message, if tracing is
/// not permitted.
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

/// A setuid copy of `lbr`, and an ordinary one, in a world-readable folder: the program itself may be
/// below one that other users cannot search, such as /root.
pub(crate) fn setuid(folder: &Path) -> Option<[PathBuf; 2]> {
    let flags = nix::sys::statvfs::statvfs(folder).unwrap().flags();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if !nix::unistd::geteuid().is_root()
        || flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID)
        || status.contains("NoNewPrivs:\t1")
    {
        skipped("setuid programs cannot be created or run here");
        return None;
    }
    let all = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(folder, all(0o777)).unwrap();
    Some([("lbr", 0o4755), ("ordinary", 0o755)].map(|(name, mode)| {
        let copy = folder.join(name);
        std::fs::copy(PROGRAM, &copy).unwrap();
        std::fs::set_permissions(&copy, all(mode)).unwrap();
        copy
    }))
}

/// The sources of the software LBR that can run here.
pub(crate) fn sources() -> Vec<&'static str> {
    match sampler::source::qemu::Qemu::find() {
        Ok(_) => vec!["ptrace", "qemu"],
        Err(why) => {
            skipped(format_args!("the qemu source: {why}"));
            vec!["ptrace"]
        }
    }
}

/// Whether a process has a handler for a signal. proc(5), `SigCgt`.
pub(crate) fn catches(pid: u32, signal: nix::sys::signal::Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal as i32 - 1) & 1 != 0
}
