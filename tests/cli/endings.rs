//! A recorded program ends as it would without lbr: by its own handlers if a signal arrives, and by
//! its own traps.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::lbr::{alone, lbr, piped, setuid, text};
use crate::support::programs::{Program, build};
use crate::support::skip::skipped;

/// Static, so that no dynamic linker is stepped through.
fn ending() -> Option<Program> {
    build("ending.c", &["-static", "-O1"])
}

/// Records a program that says when it is ready, and sends it a signal then: once, or until it has
/// ended.
fn signalled(program: &Program, way: &str, signal: Signal, again: bool) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let file = file.to_str().unwrap();
    let options = ["record", "--backend", "soft", "--source", "ptrace", "-o", file, "--"];
    let mut child = piped(&[&options[..], &[program.name(), way]].concat()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let send = || kill(pid, signal).unwrap();
    send();
    while again && child.try_wait().unwrap().is_none() {
        // Sooner than 200 ms after the first they count as one.
        std::thread::sleep(Duration::from_millis(250));
        send();
    }
    let mut rest = Vec::new();
    stdout.read_to_end(&mut rest).unwrap();
    let out = Output { stdout: rest, ..child.wait_with_output().unwrap() };
    let lint = lbr(&["lint", "-i", file]);
    assert_eq!(lint.status.code(), Some(0), "the file is whole: {}", text(&lint.stderr));
    out
}

#[test]
fn signals_reach_the_program_and_its_status_is_ours() {
    let Some(program) = ending() else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let out = signalled(&program, "handler", signal, false);
        assert_eq!(text(&out.stdout), "finished\n", "{signal}");
        assert_eq!(out.status.code(), Some(5), "{signal}: {}", text(&out.stderr));
    }
}

/// A signal to a whole process group also reaches the program directly.
#[test]
fn a_signal_to_the_group_comes_once() {
    let Some(program) = ending() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let options = ["record", "--backend", "soft", "--source", "ptrace", "-o"];
    let more = [file.to_str().unwrap(), "--", program.name(), "receive"];
    let mut child = piped(&[&options[..], &more].concat()).process_group(0).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    nix::sys::signal::killpg(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM)
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(11), "{}", text(&out.stderr));
}

#[test]
fn the_second_signal_kills() {
    let Some(program) = ending() else { return };
    let out = signalled(&program, "stubborn", Signal::SIGINT, true);
    assert_eq!(out.status.code(), Some(128 + 9), "{}", text(&out.stderr));
}

#[test]
fn programs_that_trap_or_trace_themselves_end_as_without_lbr() {
    let Some(program) = ending() else { return };
    for (way, wanted) in [("trap", 128 + 5), ("count", 3), ("traceme", 4)] {
        let alone = Command::new(program.name()).arg(way).status().unwrap();
        let status = alone.code().or(alone.signal().map(|signal| 128 + signal));
        assert_eq!(status, Some(wanted), "{way}: expected status");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("perf.data");
        let options = ["record", "--backend", "soft", "--source", "ptrace", "-o"];
        let out =
            lbr(&[&options[..], &[file.to_str().unwrap(), "--", program.name(), way]].concat());
        assert_eq!(out.status.code(), Some(wanted), "{way}: {}", text(&out.stderr));
    }
}

/// A recorder refuses the file that another one writes, and leaves it unchanged.
#[test]
fn two_recorders_do_not_write_one_file() {
    let Some(program) = ending() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let file = file.to_str().unwrap();
    let options = ["record", "--backend", "soft", "--source", "ptrace", "-o", file, "--"];
    let mut first = piped(&[&options[..], &[program.name(), "handler"]].concat()).spawn().unwrap();
    first.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    let second = lbr(&[&options[..], &["true"]].concat());
    assert_eq!(second.status.code(), Some(1), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("is being written by another"), "{second:?}");
    kill(Pid::from_raw(i32::try_from(first.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(5));
    assert_eq!(lbr(&["lint", "-i", file]).status.code(), Some(0));
    assert_eq!(lbr(&[&options[..], &["true"]].concat()).status.code(), Some(0), "free again");
}

/// For root, `lbr` reports whose rights a program gets, and can choose another user's.
#[test]
fn a_program_runs_with_the_requested_rights() {
    let Some(program) = ending() else { return };
    let is_root = nix::unistd::geteuid().is_root();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let file = file.to_str().unwrap();
    let options = ["record", "--backend", "soft", "--source", "ptrace", "-o", file];
    let run = |more: &[&str]| lbr(&[&options[..], more, &["--", program.name(), "user"]].concat());
    let ours = run(&[]);
    let nobody = nix::unistd::geteuid().as_raw() == 65534;
    assert_eq!(ours.status.code(), Some(if nobody { 8 } else { 7 }));
    let says = text(&ours.stderr).contains("runs as root (--user NAME");
    assert_eq!(says, is_root, "{}", text(&ours.stderr));
    // The first line names the source.
    assert!(text(&ours.stderr).starts_with("lbr: recording on "), "{}", text(&ours.stderr));
    // Its folder is a temporary one, accessible only to its owner.
    let place = program.path.parent().unwrap();
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
    let nobodys = run(&["--user", "nobody"]);
    let wanted = if is_root { 8 } else { 4 };
    assert_eq!(nobodys.status.code(), Some(wanted), "{}", text(&nobodys.stderr));
    assert!(!text(&nobodys.stderr).contains("as root"));
}

/// A setuid `lbr` trusts nothing in its caller's environment, and the caller's program gets the
/// caller's rights.
#[test]
fn a_setuid_lbr_ignores_its_callers_choices() {
    let Some(program) = ending() else { return };
    let folder = tempfile::tempdir().unwrap();
    let Some([setuid, ordinary]) = setuid(folder.path()) else { return };
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(program.path.parent().unwrap(), open).unwrap();
    std::fs::copy("/bin/true", folder.path().join("only-here")).unwrap();
    let run = |program: &std::path::Path, words: &[&str]| {
        let mut command = alone(Command::new(program));
        command.uid(65_534).gid(65_534).current_dir(folder.path());
        command.env("PATH", folder.path());
        command.args(["record", "--backend", "soft", "-o", "out"]).args(words).output().unwrap()
    };
    let ours = run(&setuid, &["--source", "ptrace", "--", program.name(), "user"]);
    assert_eq!(ours.status.code(), Some(8), "{}", text(&ours.stderr));
    let mut overhead = alone(Command::new(&setuid));
    overhead.uid(65_534).gid(65_534).current_dir(folder.path());
    overhead.args(["record", "--backend", "soft", "--source", "ptrace", "--overhead=8", "--"]);
    let overhead = overhead.args([program.name(), "user"]).output().unwrap();
    assert_eq!(overhead.status.code(), Some(0), "alone as recorded: {}", text(&overhead.stderr));
    let found = |program: &std::path::Path| {
        let found = run(program, &["--source", "ptrace", "--", "only-here"]);
        !text(&found.stderr).contains("not found in PATH")
    };
    assert!(!found(&setuid), "PATH");
    assert!(found(&ordinary), "PATH of an ordinary program");
}

/// A killed recorder takes its program with it, which would otherwise remain stopped.
#[test]
fn a_killed_recorder_leaves_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    for source in ["ptrace", "qemu"] {
        let options = ["record", "--backend", "soft", "--source", source, "-o"];
        let words = [file.to_str().unwrap(), "--", "sh", "-c", "echo $$; while :; do :; done"];
        let mut child = piped(&[&options[..], &words].concat()).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        child.kill().unwrap();
        let said = text(&child.wait_with_output().unwrap().stderr);
        let Ok(pid) = pid.trim().parse::<u32>() else {
            skipped(said);
            continue;
        };
        // The process that inherits it may not reap it.
        let has_ended = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.contains(") ") || stat.contains(") Z ")
        };
        let since = Instant::now();
        while !has_ended() {
            assert!(since.elapsed() < Duration::from_secs(300), "{source}: {pid} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(lbr(&["report", "-i", file.to_str().unwrap()]).status.code(), Some(0));
    }
}
