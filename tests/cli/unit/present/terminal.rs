use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};
use nix::sys::termios::tcgetattr;

use super::*;

/// Runs on the terminal of the next test.
#[test]
#[ignore = "panics"]
fn panics() {
    let _terminal = Terminal::take(true).unwrap();
    panic!("farewell");
}

/// The message of a panic is printed after the terminal is restored.
#[test]
fn a_panic_restores_the_terminal() {
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let before = tcgetattr(&pty.slave).unwrap();
    let end = || Stdio::from(pty.slave.try_clone().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--nocapture", "--exact", "present::terminal::tests::panics"]);
    let status = command.stdin(end()).stdout(end()).stderr(end()).status().unwrap();
    assert!(!status.success());
    assert_eq!(tcgetattr(&pty.slave).unwrap(), before);
    // The last end closes, so that reading comes to an end: an error, on Linux.
    drop((command, pty.slave));
    let mut bytes = Vec::new();
    let _ = File::from(pty.master).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
    let order = ["\x1b[?1049h", "\x1b[?1000l", "\x1b[?25h", "\x1b[?1049l", "farewell"].map(at);
    assert!(order.is_sorted(), "{order:?} {text}");
}

/// The examples of RFC 4648.
#[test]
fn base64_pads() {
    let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|it| base64(it.as_bytes()));
    let wanted = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
    assert_eq!(all, wanted);
}
