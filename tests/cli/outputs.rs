//! Output files: never through a link, never over an input, one writer per file; and pipes without
//! a reader or writer are ended by a signal.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, chown, geteuid, mkfifo};

use crate::support::lbr::{self, PROGRAM, alone, command, lbr_in, lbr_with_input, stderr, text};
use crate::support::programs::{BARE, Program, build};
use crate::support::skip::skipped;

const TEXT: &str = " 0x10/0x20/P/-/-/5  0x30/0x10/M/-/-/7 \n";

/// A folder with a recording `text`, a file `victim` that must not be written, and links to it.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("text"), TEXT).unwrap();
    fs::write(dir.path().join("victim"), "secret").unwrap();
    dir
}

fn victim_is_whole(dir: &tempfile::TempDir) {
    assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "secret");
}

const RECORD: [&str; 5] = ["record", "--backend", "soft", "--source", "ptrace"];

fn record(dir: &Path, more: &[&str], program: &Program) -> Output {
    lbr_in(dir, &[&RECORD[..], more, &["--", program.name()]].concat())
}

/// The exit status of these tests' program.
const ENDED: Option<i32> = Some(7);

fn program() -> Option<Program> {
    build("oracle.S", BARE)
}

#[test]
fn a_recording_does_not_follow_a_link() {
    let (Some(program), dir) = (program(), folder()) else { return };
    symlink("victim", dir.path().join("perf.data")).unwrap();
    let out = record(dir.path(), &[], &program);
    assert_eq!(out.status.code(), ENDED, "{}", stderr(&out));
    victim_is_whole(&dir);
    let made = fs::symlink_metadata(dir.path().join("perf.data")).unwrap();
    assert!(made.is_file());
    assert_eq!(made.mode() & 0o777, 0o600);
    // The link existed before.
    assert_eq!(fs::read_link(dir.path().join("perf.data.old")).unwrap(), Path::new("victim"));
}

#[test]
fn an_existing_recording_is_renamed_to_old() {
    let (Some(program), dir) = (program(), folder()) else { return };
    let file = |name: &str| fs::read(dir.path().join(name));
    assert_eq!(record(dir.path(), &[], &program).status.code(), ENDED);
    let first = file("perf.data").unwrap();
    assert!(file("perf.data.old").is_err());
    let second = record(dir.path(), &["-c", "3"], &program);
    assert_eq!(second.status.code(), ENDED);
    let moved = "to perf.data (the older one is now perf.data.old), complete";
    assert!(stderr(&second).contains(moved), "{}", stderr(&second));
    assert_eq!(file("perf.data.old").unwrap(), first);
    assert_ne!(file("perf.data").unwrap(), first);
    // An empty file is not worth keeping.
    fs::write(dir.path().join("perf.data"), "").unwrap();
    assert_eq!(record(dir.path(), &[], &program).status.code(), ENDED);
    assert_eq!(file("perf.data.old").unwrap(), first);
}

/// Only an older recording is moved: anything else may be missed.
#[test]
fn a_file_that_is_not_a_recording_is_refused() {
    let (Some(program), dir) = (program(), folder()) else { return };
    let notes = dir.path().join("notes.txt");
    for content in ["a", "PERFILE", "what I did today\n", "\u{7f}ELF and more", "PERFILE3 and more"]
    {
        fs::write(&notes, content).unwrap();
        let out = record(dir.path(), &["-o", "notes.txt"], &program);
        assert_eq!(out.status.code(), Some(2), "{content:?}: {}", stderr(&out));
        let says = "notes.txt: not a recording; it is left as it is: give another file with -o";
        assert!(stderr(&out).contains(says), "{}", stderr(&out));
        assert_eq!(fs::read_to_string(&notes).unwrap(), content);
        assert!(!dir.path().join("notes.txt.old").exists());
    }
}

/// A copy has the permissions of a recording.
#[test]
fn a_copied_recording_is_private_to_its_owner() {
    let (Some(program), dir) = (program(), folder()) else { return };
    assert_eq!(record(dir.path(), &[], &program).status.code(), ENDED);
    let out = lbr_in(dir.path(), &["export", "--to", "perfdata", "-o", "copy"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert_eq!(fs::metadata(dir.path().join("copy")).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn pages_and_pictures_replace_links() {
    let dir = folder();
    let histogram = ["hist", "-i", "text", "-o"];
    let outputs: [(&[&str], &str); 3] = [
        (&["report", "-i", "text", "--html"], "page.html"),
        (&histogram, "a.svg"),
        (&["verify", "--soft-cpu", "skylake", "--markdown"], "report.md"),
    ];
    for (args, name) in outputs {
        symlink("victim", dir.path().join(name)).unwrap();
        let out = lbr_in(dir.path(), &[args, &[name]].concat());
        assert_eq!(out.status.code(), Some(0), "{name}: {}", stderr(&out));
        victim_is_whole(&dir);
        let made = fs::symlink_metadata(dir.path().join(name)).unwrap();
        assert!(made.is_file() && made.len() > 100, "{name}");
        // Readable by everyone whom the umask permits.
        assert_ne!(made.permissions().mode() & 0o777, 0o600, "{name}");
    }
    // No other files remain.
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2 + outputs.len());
}

#[test]
fn an_output_that_is_an_input_is_refused() {
    let (Some(program), dir) = (program(), folder()) else { return };
    fs::hard_link(dir.path().join("text"), dir.path().join("again.html")).unwrap();
    fs::write(dir.path().join("a"), "{\"facility\":\"x\"}\n").unwrap();
    fs::write(dir.path().join("list.html"), TEXT).unwrap();
    fs::copy(&program.path, dir.path().join("own")).unwrap();
    let own = fs::read(&program.path).unwrap();
    let refused: [&[&str]; 9] = [
        &["report", "-i", "text", "--html", "text"],
        &["report", "-i", "text", "--html", "again.html"],
        &["annotate", "-i", "text", "--html", "./text"],
        &["verify", "--diff", "a", "a", "--json", "a"],
        &["report", "-i", "text", "--kallsyms", "list.html", "--html", "list.html"],
        &["hist", "-i", "text", "--vmlinux", "list.html", "-o", "list.html"],
        &["export", "--to", "llvm", "-i", "text", "--binary", "own", "-o", "own"],
        &["diff", "text", "text", "--kallsyms", "list.html", "--html", "list.html"],
        &["learn", "--html", "own", "--", "./own"],
    ];
    let untouched = || {
        for name in ["text", "list.html"] {
            assert_eq!(fs::read_to_string(dir.path().join(name)).unwrap(), TEXT);
        }
        assert_eq!(fs::read(dir.path().join("own")).unwrap(), own);
    };
    for args in refused {
        let out = lbr_in(dir.path(), args);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains("would be written over"), "{args:?}: {}", stderr(&out));
        untouched();
    }
    let mut piped = command(&["report", "-i", "-", "--html", "text"]);
    let stdin = fs::File::open(dir.path().join("text")).unwrap();
    let out = piped.current_dir(&dir).stdin(stdin).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    untouched();
    // The recorded program.
    let before = fs::read(&program.path).unwrap();
    let out = record(dir.path(), &["-o", program.name()], &program);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert_eq!(fs::read(&program.path).unwrap(), before);
}

#[test]
fn a_directory_is_not_an_output() {
    let (Some(program), dir) = (program(), folder()) else { return };
    fs::create_dir(dir.path().join("perf.data")).unwrap();
    let out = record(dir.path(), &[], &program);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    let out = lbr_in(dir.path(), &["report", "-i", "text", "--html", "perf.data"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}

#[test]
fn standard_output_and_devices() {
    let (Some(program), dir) = (program(), folder()) else { return };
    for name in ["-", "/dev/stdout", "/dev/fd/1"] {
        let out = record(dir.path(), &["-o", name], &program);
        assert_eq!(out.status.code(), ENDED, "{}", stderr(&out));
        // A header of 16 bytes: the pipe format.
        assert!(out.stdout.starts_with(b"PERFILE2\x10\0\0\0\0\0\0\0"), "{name}");
        let read = lbr_with_input(&["report", "-i", "-", "--json"], &out.stdout);
        assert_eq!(read.status.code(), Some(0), "{}", stderr(&read));
    }
    let made = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(made, 2, "a file called - or so");
    assert_eq!(record(dir.path(), &["-o", "/dev/null"], &program).status.code(), ENDED);
    let out = record(dir.path(), &["-o", "/dev/full"], &program);
    assert_eq!(out.status.code(), Some(1));
    assert!(stderr(&out).contains("/dev/full: No space left on device"), "{}", stderr(&out));
    let page = lbr_in(dir.path(), &["report", "-i", "text", "--html", "/dev/stdout"]);
    assert!(page.stdout.starts_with(b"<!DOCTYPE html>"));
}

/// The program's own output does not get into the recording.
#[test]
fn the_programs_output_stays_out_of_the_recording() {
    let Ok(echo) = fs::canonicalize("/bin/echo") else { return skipped("no /bin/echo") };
    let dir = folder();
    let program = [echo.to_str().unwrap(), "what it prints"];
    let out = lbr_in(dir.path(), &[&RECORD[..], &["-o", "-", "--"], &program].concat());
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    assert!(stderr(&out).contains("what it prints\n"), "{}", stderr(&out));
    let read = lbr_with_input(&["lint", "-i", "-"], &out.stdout);
    assert_eq!(read.status.code(), Some(0), "{}", text(&read.stdout));
}

fn pipe(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("pipe");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    path
}

fn started(dir: &Path, args: &[&str]) -> Child {
    let mut child = command(args);
    child.current_dir(dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a process handles a signal, which would otherwise kill it.
#[track_caller]
fn catches(child: &Child, signal: Signal) {
    let began = Instant::now();
    while !lbr::catches(child.id(), signal) {
        assert!(began.elapsed() < Duration::from_secs(60), "it never listens for {signal}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process sleeps, as between two attempts to open a pipe without a reader.
#[track_caller]
fn sleeps(child: &Child) {
    let began = Instant::now();
    let call = || fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap();
    while !call().starts_with(&format!("{} ", libc::SYS_clock_nanosleep)) {
        assert!(began.elapsed() < Duration::from_secs(60), "it never sleeps");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn signalled(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Waits for the end, for at most a minute.
#[track_caller]
fn ends(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_pipe_without_a_reader_is_stopped() {
    let (Some(program), dir) = (program(), folder()) else { return };
    pipe(&dir);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let args = [&RECORD[..], &["-o", "pipe", "--", program.name()]].concat();
        let child = started(dir.path(), &args);
        catches(&child, signal);
        signalled(&child, signal);
        let out = ends(child);
        assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
        assert!(stderr(&out).contains("cannot write pipe: stopped"), "{}", stderr(&out));
    }
}

/// Nor does a page wait for its reader after Ctrl-C has ended reading.
#[test]
fn a_page_for_a_pipe_without_a_reader_is_stopped() {
    let dir = folder();
    pipe(&dir);
    let child = started(dir.path(), &["report", "-i", "text", "--html", "pipe"]);
    // Before the end of the input, the signal would end the reading.
    sleeps(&child);
    signalled(&child, Signal::SIGINT);
    let out = ends(child);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    assert!(stderr(&out).contains("pipe cannot be written: stopped"), "{}", stderr(&out));
}

#[test]
fn a_pipe_with_a_reader_is_written() {
    let (Some(program), dir) = (program(), folder()) else { return };
    let path = pipe(&dir);
    let reader = std::thread::spawn(move || fs::read(path).unwrap());
    assert_eq!(record(dir.path(), &["-o", "pipe"], &program).status.code(), ENDED);
    assert!(reader.join().unwrap().starts_with(b"PERFILE2\x10"));
}

#[test]
fn a_pipe_without_a_writer() {
    let dir = folder();
    pipe(&dir);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let child = started(dir.path(), &["report", "-i", "pipe"]);
        catches(&child, Signal::SIGINT);
        signalled(&child, signal);
        ends(child);
    }
    // A file that is not a recording does not cause endless waiting.
    let report = "{\"facility\":\"x\"}\n";
    fs::write(dir.path().join("report"), report).unwrap();
    let waiting: [&[&str]; 4] = [
        &["probe", "--cpuid", "pipe"],
        &["verify", "--diff", "report", "pipe"],
        &["time", "--object", "pipe", "--symbol", "x"],
        &["report", "-i", "text", "--view", "callgraph", "--truth", "pipe"],
    ];
    for child in waiting.map(|args| started(dir.path(), args)) {
        assert_ne!(ends(child).status.code(), Some(0));
    }
}

#[test]
fn one_recorder_per_file() {
    let Ok(sleep) = fs::canonicalize("/bin/sleep") else { return skipped("no /bin/sleep") };
    let dir = folder();
    let first = [&RECORD[..], &["--", sleep.to_str().unwrap(), "30"]].concat();
    let first = started(dir.path(), &first);
    let file = dir.path().join("perf.data");
    let began = Instant::now();
    while fs::metadata(&file).map_or(0, |file| file.len()) == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "it did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = lbr_in(dir.path(), &[&RECORD[..], &["--", "/bin/true"]].concat());
    assert_eq!(second.status.code(), Some(1), "{}", stderr(&second));
    assert!(stderr(&second).contains("perf.data is being written"), "{}", stderr(&second));
    assert!(!dir.path().join("perf.data.old").exists());
    signalled(&first, Signal::SIGTERM);
    ends(first);
}

#[test]
fn another_users_recording_requires_force() {
    if !geteuid().is_root() {
        return skipped("only root gives files away");
    }
    let dir = folder();
    chown(&dir.path().join("text"), Some(65534.into()), None).unwrap();
    for args in [&["report"][..], &["hist"], &["lint"], &["script"], &["annotate"]] {
        let out = lbr_in(dir.path(), &[args, &["-i", "text"]].concat());
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
        assert!(stderr(&out).contains("--force"), "{args:?}: {}", stderr(&out));
    }
    for force in ["-f", "--force"] {
        let out = lbr_in(dir.path(), &["report", "-i", "text", force]);
        assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    }
}

/// `lbr` with a limit of `ulimit`, and its standard error redirected.
fn limited(dir: &Path, limit: &str, to: &str, args: &[&str]) -> Output {
    let mut sh = alone(Command::new("sh"));
    sh.args(["-c", &format!("{limit}; exec \"$0\" \"$@\" {to}"), PROGRAM]);
    sh.args(args).current_dir(dir).output().unwrap()
}

/// Lost messages do not affect the recording.
#[test]
fn a_full_or_closed_standard_error() {
    let (Some(program), dir) = (program(), folder()) else { return };
    for to in ["2>/dev/full", "2>&-", "2>&- >&-", "> /dev/full 2>&1"] {
        let args = [&RECORD[..], &["-o", "x", "--", program.name()]].concat();
        let out = limited(dir.path(), ":", to, &args);
        assert_eq!(out.status.code(), ENDED, "{to}");
        let read = lbr_in(dir.path(), &["script", "-i", "x"]);
        assert_eq!(read.status.code(), Some(0), "{to}: {}", stderr(&read));
    }
}

#[test]
fn a_file_at_its_size_limit_keeps_its_contents() {
    let dir = folder();
    let args = [&RECORD[..], &["-c", "1", "-o", "x", "--", "/bin/true"]].concat();
    // Blocks of 512 or of 1,024 bytes.
    let out = limited(dir.path(), "ulimit -f 160", "", &args);
    let said = stderr(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("x: ") && said.contains("File too large"), "{said}");
    // 160 blocks of 512 bytes, up to the last.
    assert!(said.contains("the 81,920 bytes before it are kept in x and can be read"), "{said}");
    assert_eq!(fs::metadata(dir.path().join("x")).unwrap().len(), 81_920);
    let read = lbr_in(dir.path(), &["script", "-i", "x"]);
    assert_eq!(read.status.code(), Some(0), "{}", stderr(&read));
    assert!(text(&read.stdout).lines().count() > 100);
}
