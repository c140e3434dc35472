//! Ctrl-C while a recording is read.

use std::io::Write;
use std::process::Output;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::lbr::{catches, piped};

/// A line of two branches.
const LINE: &[u8] = b" 0x50/0x20/P/-/-/5  0x30/0x40/M/-/-/0 \n";

/// The output of a command for text through a pipe, if Ctrl-C comes after the first 40,000 lines.
fn interrupted(args: &[&str]) -> Output {
    let mut child = piped(args).args(["-i", "-"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than pipe and buffers hold: after writing it, reading has started.
    let text = LINE.repeat(40_000);
    stdin.write_all(&text).unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    // It waits for its input; it may or may not read more.
    let _ = stdin.write_all(&text);
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// The table of the data so far, and the message that it is partial.
#[test]
fn an_interrupted_report_is_marked_partial() {
    let output = interrupted(&["report", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("standard input: stopped by Ctrl-C: partial"), "{said}");
    let json = String::from_utf8(output.stdout).unwrap();
    let totals: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let samples = totals["samples"].as_u64().unwrap();
    assert!(samples > 10_000 && samples < 80_000, "{samples}");
    assert_eq!(totals["partial"], true);
    // A partial line is not a sample.
    assert_eq!(totals["entries"].as_u64(), Some(samples * 2));
}

/// Views with two passes copy a pipe first: the copied part is counted.
#[test]
fn an_interrupted_copy_is_marked_partial() {
    for view in ["loops", "paths"] {
        let output = interrupted(&["report", "--json", "--view", view]);
        assert_eq!(output.status.code(), Some(0), "{view}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("standard input: stopped by Ctrl-C: partial"), "{said}");
        assert!(!said.contains("damaged"), "{said}");
        let json = String::from_utf8(output.stdout).unwrap();
        let totals: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        let samples = totals["samples"].as_u64().unwrap();
        assert!(samples > 10_000 && samples < 80_000, "{view}: {samples}");
        assert_eq!(totals["partial"], true);
    }
}

/// The table itself must show that it is partial, in case the messages are lost.
#[test]
fn interrupted_tables_are_marked_partial() {
    let views = ["hot", "mispredict", "outcomes", "blocks", "loops", "paths", "callgraph"];
    let mut commands: Vec<Vec<&str>> =
        views.iter().map(|view| vec!["report", "--view", view]).collect();
    commands.extend([vec!["lint"], vec!["hist"]]);
    for command in commands {
        let output = interrupted(&command);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("partial: stopped by Ctrl-C"), "{command:?}: {table}");
    }
}

/// Without a sample there is nothing to report or to export: an error, and no file.
#[test]
fn nothing_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stacks");
    for args in [&["export", "--to", "brstack", "-o", file.to_str().unwrap()][..], &["report"]] {
        let mut child = piped(args).args(["-i", "-"]).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while !catches(child.id(), Signal::SIGINT) {
            std::thread::yield_now();
        }
        kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
        let stdin = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(stdin);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("stopped by Ctrl-C before the first sample"), "{args:?}: {said}");
        assert!(!file.exists());
    }
}
