//! Output on a terminal: no row is wider than it, and text from files does not control it. Pipes
//! hide both.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::poll::{PollFd, PollFlags, poll};
use nix::pty::{Winsize, openpty};
use unicode_width::UnicodeWidthStr;

use crate::support::lbr::{alone, command, lbr, setuid};
use crate::support::programs::build;
use crate::support::skip::skipped;

/// The output of a command on a terminal with a number of columns, results and messages.
fn shown(width: u16, args: &[&str]) -> String {
    typed(width, args, |command, _| {
        command.stdin(Stdio::null());
    })
}

/// The same; `change` gets the terminal, for a command that also reads from it.
pub(crate) fn typed(
    width: u16,
    args: &[&str],
    change: impl FnOnce(&mut Command, &OwnedFd),
) -> String {
    let size = Winsize { ws_row: 40, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let mut command = command(args);
    command.env("NO_COLOR", "1").env("TERM", "xterm-256color");
    change(&mut command, &pty.slave);
    let end = || pty.slave.try_clone().unwrap();
    command.stdout(end()).stderr(end());
    let mut child = command.spawn().unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    let mut terminal = File::from(pty.master);
    // The slave stays open until all is read: Linux may answer EIO, instead of the last bytes, to
    // a reader that was interrupted while they were written and the last slave closed.
    loop {
        let ended = child.try_wait().unwrap();
        let mut ready = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, 2_u8).unwrap() > 0 {
            let read = terminal.read(&mut buffer).unwrap();
            text.extend_from_slice(&buffer[..read]);
        } else if let Some(status) = ended {
            assert!(status.code().is_some(), "{args:?}");
            return String::from_utf8(text).unwrap();
        }
    }
}

const VIEWS: [&str; 9] =
    ["hot", "types", "mispredict", "outcomes", "blocks", "loops", "paths", "callgraph", "args"];

/// Every command that prints a recording.
fn of_recording(file: &str) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> =
        VIEWS.map(|view| vec!["report", "-i", file, "--view", view]).into();
    all.extend([
        vec!["report", "-i", file, "--view", "callgraph", "--callee"],
        vec!["hist", "-i", file],
        vec!["annotate", "-i", file],
        vec!["annotate", "-i", file, "--hottest"],
        vec!["lint", "-i", file],
        vec!["diff", file, file],
    ]);
    all
}

const CPP: &str = "_ZNSt6vectorISt4pairIidESaIS1_EE17_M_realloc_insertIJRiRdEEEvN9__gnu_cxx17__normal_iteratorIPS1_S3_EEDpOT_";
const RUST: &str = "_ZN88_$LT$alloc..vec..Vec$LT$u64$GT$$u20$as$u20$core..iter..traits..collect..IntoIterator$GT$9into_iter17h0123456789abcdefE";

/// A pager runs in a shell, found through PATH, with its own variables: it is not used with rights
/// that differ from the caller's.
#[test]
fn a_setuid_lbr_starts_no_pager() {
    let folder = tempfile::tempdir().unwrap();
    let Some([setuid, ordinary]) = setuid(folder.path()) else { return };
    std::fs::copy("/bin/true", folder.path().join("sh")).unwrap();
    let text = |program: &Path| {
        typed(80, &[], |command, terminal| {
            *command = alone(Command::new(program));
            command.args(["explain", "LBR_SELECT"]).uid(65_534).gid(65_534);
            command.current_dir(folder.path()).env("PATH", folder.path()).env("PAGER", "x");
            command.env("TERM", "xterm").stdin(terminal.try_clone().unwrap());
        })
    };
    assert!(text(&setuid).contains("LBR_SELECT"));
    assert_eq!(text(&ordinary), "", "the shell of the caller took it");
}

#[test]
fn output_to_a_terminal_is_paged() {
    let args = ["explain", "LBR_SELECT"];
    let plain = shown(80, &args);
    assert!(plain.lines().count() > 5, "{plain}");
    let paged = |args: &[&str], pager: &str| {
        typed(80, args, |command, terminal| {
            command.env("PAGER", pager).stdin(terminal.try_clone().unwrap());
        })
    };
    let marked: String = plain.lines().map(|line| format!("page: {line}\r\n")).collect();
    assert_eq!(paged(&args, "sed 's/^/page: /'"), marked);
    // A pager that is switched off, does nothing, or exits at once.
    assert_eq!(paged(&["--no-pager", "explain", "LBR_SELECT"], "sed 's/^/page: /'"), plain);
    assert_eq!(paged(&args, ""), plain);
    assert_eq!(paged(&args, "true"), "");
    // No one can turn a page.
    let piped = typed(80, &args, |command, _| {
        command.env("PAGER", "sed 's/^/page: /'").stdin(Stdio::null());
    });
    assert_eq!(piped, plain);
}

#[test]
fn no_row_is_wider_than_the_terminal() {
    let names = [format!("-Df0={CPP}"), format!("-Dtop={RUST}")];
    let flags = ["-nostdlib", "-static", "-no-pie", &names[0], &names[1]];
    let Some(program) = build("outcomes.S", &flags) else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let (file, path) = (file.to_str().unwrap(), program.path.to_str().unwrap());
    let recorded = ["record", "--backend", "soft", "--source", "ptrace", "-o", file, "--", path];
    let out = lbr(&recorded);
    if out.status.code() == Some(4) {
        return skipped(String::from_utf8_lossy(&out.stderr));
    }
    let records = folder.path().join("records.txt");
    std::fs::write(&records, "0x4011a0 0x401136 0x8000000000000005\n0 0 0\n").unwrap();
    let mut all = of_recording(file);
    all.extend([
        vec!["probe"],
        vec!["doctor"],
        vec!["verify", "--soft-cpu", "skylake", "--write"],
        vec!["dump", "--soft-cpu", "sapphire-rapids"],
        vec!["decode", "--facility", "arch", records.to_str().unwrap()],
        vec!["explain", "IA32_DEBUGCTL", "0x4801"],
        vec!["explain", "LBR_SELECT"],
    ]);
    for width in [80, 120, 200] {
        for args in &all {
            let text = shown(width, args);
            for line in text.lines() {
                assert!(line.width() <= usize::from(width), "{width} {args:?}: {line:?}\n{text}");
            }
        }
    }
    let hot = shown(120, &["report", "-i", file, "--limit", "0"]);
    assert!(hot.contains("std::vector<…>::_M_realloc_insert<…>(…)"), "{hot}");
    assert!(hot.contains("IntoIterator>::into_iter"), "{hot}");
    // A file gets full names, and so does `--wide`.
    let whole = "<alloc::vec::Vec<u64> as core::iter::traits::collect::IntoIterator>::into_iter";
    assert!(!hot.contains(whole), "{hot}");
    let wide = shown(80, &["report", "-i", file, "--limit", "0", "--wide"]);
    assert!(wide.contains(whole), "{wide}");
    let piped = lbr(&["report", "-i", file, "--limit", "0"]);
    assert!(String::from_utf8(piped.stdout).unwrap().contains(whole));
}

/// Names with characters that control a terminal, imitate a row, or are invisible.
#[test]
fn foreign_text_is_shown_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("na\u{1b}[2Jme\u{202e}\nlbr: forged.txt");
    let evil = "e\u{1b}]0;TXT\u{7}\u{1b}[2Jvil\u{9b}2J\u{7f}\u{202e}\u{200b}";
    let line = format!(" {evil}+0x4/main+0x8/P/-/-/1  main+0x20/{evil}+0x0/P/-/-/2 \n");
    std::fs::write(&file, line.repeat(40)).unwrap();
    let file = file.to_str().unwrap();
    let mut all = of_recording(file);
    all.extend(VIEWS.map(|view| vec!["report", "-i", file, "--json", "--view", view]));
    all.extend(VIEWS.map(|view| vec!["report", "-i", file, "--csv", "--view", view]));
    all.extend([
        vec!["report", "-i", file, "--view", "callgraph", "--folded"],
        vec!["report", "-i", file, "--html", "-"],
        vec!["script", "-i", file],
        vec!["script", "-i", file, "--json"],
        vec!["lint", "-i", file, "--json"],
        vec!["lint", "-i", file, "--csv"],
        vec!["diff", file, file, "--json"],
        vec!["diff", file, file, "--csv"],
        vec!["diff", file, file, "--html", "-"],
        vec!["export", "--to", "flamegraph", "-i", file],
        vec!["hist", "-i", file, "--json"],
        vec!["report", "-i", "no\u{1b}[2Jthing\nlbr: forged"],
    ]);
    for args in &all {
        let text = shown(100, args);
        let hidden = |c: char| {
            c.is_control() && !matches!(c, '\r' | '\n') || matches!(c, '\u{202e}' | '\u{200b}')
        };
        assert_eq!(text.find(hidden), None, "{args:?}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("lbr: forged")), "{text}");
    }
    for kind in ["pprof", "perfdata"] {
        let text = shown(100, &["export", "--to", kind, "-i", file]);
        assert!(text.starts_with("lbr: this output is binary"), "{text}");
    }
    let hot = shown(300, &["report", "-i", file]);
    assert!(hot.contains(r"e\x1b]0;TXT\x07\x1b[2Jvil\x9b2J\x7f\u{202e}\u{200b}+0x4"), "{hot}");
}

/// A target name printed after the instruction that jumps to it.
#[test]
fn a_foreign_target_is_shown_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let [code, program, file] = ["code.s", "program", "text"].map(|name| folder.path().join(name));
    let evil = "e\u{1b}]0;TXT\u{7}\u{202e}";
    // Five bytes of a call, one of NOP.
    let text = format!(
        ".globl _start\n.type _start,@function\n_start: call \"{evil}\"\nnop\n.size _start,.-_start\n\
         .type \"{evil}\",@function\n\"{evil}\": ret\n.size \"{evil}\",1\n"
    );
    std::fs::write(&code, text).unwrap();
    let linked = Command::new("cc")
        .args(["-g", "-nostdlib", "-static", "-no-pie", "-Wl,-Ttext=0x401000", "-o"])
        .args([&program, &code])
        .status();
    if !linked.is_ok_and(|status| status.success()) {
        return skipped("no C compiler (cc)");
    }
    let text = format!(
        "PERF_RECORD_MMAP2 1/1: [0x401000(0x1000) @ 0x1000 00:00 0 0]: r-xp {}\n \
         1/1 0x401006/0x401005/P/-/-/0  0x401000/0x401006/P/-/-/0 \n",
        program.display()
    );
    std::fs::write(&file, text).unwrap();
    let place = ["annotate", "-i", file.to_str().unwrap(), "_start"];
    for more in [&[][..], &["--hottest"], &["--html", "-"]] {
        let text = shown(200, &[&place, more].concat());
        assert!(text.contains(r"e\x1b]0;TXT\x07\u{202e}"), "{more:?}: {text}");
        assert!(!text.contains(['\u{7}', '\u{202e}']), "{more:?}: {text:?}");
    }
    // Its name would start the lines of a profile.
    let export = ["export", "--to", "llvm", "--partial", "-i", file.to_str().unwrap()];
    let profile = shown(200, &export);
    assert!(profile.contains("2 of 2 branches"), "{profile}");
    assert!(!profile.contains(['\u{7}', '\u{202e}']), "{profile:?}");
}

/// Colours are used on a terminal, or on request.
#[test]
fn colours_are_for_terminals() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("few.txt");
    std::fs::write(&file, " 0x40/0x10/P/-/-/1  0x20/0x30/P/-/-/2 \n".repeat(40)).unwrap();
    let has = |color: &str, unset: bool| {
        let mut command = command(&["lint", "-i", Path::new(&file).to_str().unwrap()]);
        command.args(["--color", color]);
        if unset {
            command.env("NO_COLOR", "1");
        }
        command.output().unwrap().stdout.contains(&0x1b)
    };
    assert!(has("always", false) && !has("auto", false) && !has("never", false));
    assert!(has("always", true), "who says always means it");
}

/// A lost message ends nothing.
#[test]
fn full_and_closed_outputs_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("few.txt");
    std::fs::write(&file, " 0x40/0x10/P/-/-/1  0x20/0x30/P/-/-/2 \nnonsense\n".repeat(3)).unwrap();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for name in ["report", "lint", "script", "hist"] {
        let mut quiet = command(&[name, "-i", file.to_str().unwrap()]);
        let heard = quiet.output().unwrap().status.code();
        let unheard = quiet.stdout(Stdio::null()).stderr(full()).status().unwrap();
        assert_eq!(unheard.code(), heard, "{name}");
        let full = quiet.stdout(full()).stderr(full()).status().unwrap();
        assert!(matches!(full.code(), Some(1 | 5)), "{name}: {full}");
    }
}
