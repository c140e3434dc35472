//! Ctrl-C while a recording is read.

use std::io::Write;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The table of what was read, and the word that it is not all.
#[test]
fn what_was_read_is_reported_as_a_part() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lbr"))
        .args(["report", "--json", "-i", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let line = b" 0x10/0x20/P/-/-/5  0x30/0x40/M/-/-/0 \n";
    // More than pipe and buffers hold: once it is written, reading has begun.
    let text = line.repeat(40_000);
    stdin.write_all(&text).unwrap();
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    // It waits for its input; whether it takes more is its business.
    let _ = stdin.write_all(&text);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("standard input: stopped by Ctrl-C: partial"), "{said}");
    let json = String::from_utf8(output.stdout).unwrap();
    let totals: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let samples = totals["samples"].as_u64().unwrap();
    assert!(samples > 10_000 && samples < 80_000, "{samples}");
    assert_eq!(totals["partial"], true);
    // A line that was read in part is no sample.
    assert_eq!(totals["entries"].as_u64(), Some(samples * 2));
}
