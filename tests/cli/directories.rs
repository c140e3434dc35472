//! The directory of an output: links of other users are not followed, and no
//! file stays under a temporary name.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, chown, geteuid, mkfifo};

use crate::support::lbr::{command, lbr_in, stderr};
use crate::support::skip::skipped;

const TEXT: &str = " 0x10/0x20/P/-/-/5  0x30/0x10/M/-/-/7 \n";
const OTHER: u32 = 65534;

/// A directory `mine` and a directory `theirs` of another user, who has a link
/// to `mine` there, an absolute one and a relative one.
fn folder() -> Option<tempfile::TempDir> {
    if !geteuid().is_root() {
        skipped("only root gives files away");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("text"), TEXT).unwrap();
    for name in ["mine", "theirs", "theirs/inner"] {
        fs::create_dir(at(name)).unwrap();
    }
    symlink(at("mine"), at("theirs/absolute")).unwrap();
    symlink("../mine", at("theirs/relative")).unwrap();
    for name in ["theirs", "theirs/absolute", "theirs/relative"] {
        lchown(at(name), Some(OTHER), None).unwrap();
    }
    Some(dir)
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn no_output_goes_through_a_link_of_another_user() {
    let Some(dir) = folder() else { return };
    let commands: [&[&str]; 9] = [
        &["report", "-i", "text", "--html"],
        &["annotate", "-i", "text", "--html"],
        &["diff", "text", "text", "--html"],
        &["hist", "-i", "text", "-o"],
        &["export", "--to", "speedscope", "-i", "text", "-o"],
        &["explain", "LBR_SELECT", "--svg"],
        &["verify", "--soft-cpu", "skylake", "--json"],
        &["learn", "--html"],
        &["record", "-o"],
    ];
    for link in ["absolute", "relative"] {
        for args in commands {
            let place = format!("theirs/{link}/new.svg");
            let program: &[&str] =
                if args[0] == "record" { &["--", "/bin/true"] } else { Default::default() };
            let out = lbr_in(dir.path(), &[args, &[&*place], program].concat());
            assert_eq!(out.status.code(), Some(2), "{args:?}: {}", stderr(&out));
            let said = format!("theirs/{link} is a link that another user owns (uid 65534)");
            assert!(stderr(&out).contains(&said), "{args:?}: {}", stderr(&out));
            assert!(is_empty(&dir.path().join("mine")), "{args:?}");
        }
    }
}

/// Also where the link is not the last directory, or another link leads to it.
#[test]
fn a_link_of_another_user_is_found_anywhere_in_a_path() {
    let Some(dir) = folder() else { return };
    fs::create_dir(dir.path().join("mine/inner")).unwrap();
    symlink("theirs/relative", dir.path().join("own")).unwrap();
    let absolute = dir.path().join("theirs/absolute/inner/page");
    for place in ["theirs/relative/inner/page", "own/inner/page", absolute.to_str().unwrap()] {
        let out = lbr_in(dir.path(), &["report", "-i", "text", "--html", place]);
        assert_eq!(out.status.code(), Some(2), "{place}: {}", stderr(&out));
        assert!(is_empty(&dir.path().join("mine/inner")), "{place}");
    }
    // A directory that they can move meanwhile may have any other one above it.
    let out = lbr_in(dir.path(), &["report", "-i", "text", "--html", "theirs/inner/../../page"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}

/// Links of root or of the user, directories of others, and `..` from where we are.
#[test]
fn private_directories_are_written() {
    let Some(dir) = folder() else { return };
    symlink("mine", dir.path().join("own")).unwrap();
    symlink(dir.path().join("own"), dir.path().join("theirs/of_root")).unwrap();
    for place in ["own/a", "theirs/b", "theirs/of_root/c", "./mine/../mine/d", "theirs/inner/e"] {
        let out = lbr_in(dir.path(), &["report", "-i", "text", "--html", place]);
        assert_eq!(out.status.code(), Some(0), "{place}: {}", stderr(&out));
        assert!(dir.path().join(place).is_file(), "{place}");
    }
    let from = dir.path().join("theirs");
    let out = lbr_in(&from, &["report", "-i", "../text", "--html", "../mine/f"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let out =
        lbr_in(dir.path(), &["record", "--backend", "soft", "-o", "own/g", "--", "/bin/true"]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let mut made: Vec<_> = fs::read_dir(dir.path().join("mine"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    made.sort();
    assert_eq!(made, ["a", "c", "d", "f", "g"]);
}

#[test]
fn a_pipe_of_another_user_is_refused() {
    let Some(dir) = folder() else { return };
    let pipe = dir.path().join("theirs/pipe");
    mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    chown(&pipe, Some(OTHER.into()), None).unwrap();
    let out = lbr_in(dir.path(), &["record", "-o", "theirs/pipe", "--", "/bin/true"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
    assert!(stderr(&out).contains("a pipe that another user owns"), "{}", stderr(&out));
}

/// A file of the directory `dir` that has no name, as the kernel lists descriptors.
fn has_unnamed(pid: u32, dir: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let named = fs::read_link(descriptor.path()).unwrap_or_default();
        named.parent() == Some(dir) && named.to_string_lossy().ends_with("(deleted)")
    })
}

/// Not even of a process that is killed while it writes.
#[test]
fn no_temporary_file_remains() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().canonicalize().unwrap();
    if nix::fcntl::open(
        &place,
        nix::fcntl::OFlag::O_TMPFILE | nix::fcntl::OFlag::O_RDWR,
        Mode::S_IRWXU,
    )
    .is_err()
    {
        return skipped("the file system of temporary files has no O_TMPFILE");
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGKILL] {
        let mut child = command(&["export", "--to", "brstack", "-i", "-", "-o", "copy"]);
        let child = child.current_dir(&place).stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(TEXT.as_bytes()).unwrap();
        let began = Instant::now();
        while !has_unnamed(child.id(), &place) {
            assert!(began.elapsed() < Duration::from_secs(300), "it did not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(is_empty(&place), "{signal}: the file has a name while it is written");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        drop(input);
        child.wait().unwrap();
        // SIGINT only ends reading: the copy has what was read.
        let _ = fs::remove_file(place.join("copy"));
        assert!(is_empty(&place), "{signal}");
    }
}
