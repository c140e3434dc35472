//! A recorded program that removes, renames, replaces or overwrites its
//! recording, and one whose recording lint doubts: none is called complete.

use std::fs;
use std::path::Path;

use crate::support::lbr::{lbr_in, stderr};
use crate::support::programs::{BARE, build};
use crate::support::skip::{skipped, tool};

const RECORD: [&str; 5] = ["record", "--backend", "soft", "-o", "x"];

fn record(dir: &Path, script: &str) -> (Option<i32>, String) {
    let out = lbr_in(dir, &[&RECORD[..], &["--", "/bin/sh", "-c", script]].concat());
    (out.status.code(), stderr(&out))
}

#[test]
fn a_recording_damaged_by_the_program_is_not_complete() {
    if !Path::new("/bin/sh").exists() {
        return skipped("no /bin/sh");
    }
    // The shell writes and truncates by itself; later writes leave a hole.
    for (script, said) in [
        ("unset PATH; exec 9> x; exit 7", "the recording is damaged: x "),
        ("rm x; exit 7", "the recording is lost: x was removed while it was recorded into"),
        ("mv x y; exit 7", "x was removed while it was recorded into; it is "),
        ("rm x; echo a > x; exit 7", "x was replaced by another file while it was recorded into"),
        ("rm x; ln -s victim x; exit 7", "x was replaced by another file"),
        ("cp victim x; exit 7", "the recording is damaged: x "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("victim"), "secret").unwrap();
        let (code, shown) = record(dir.path(), script);
        assert_eq!(code, Some(1), "{script}: {shown}");
        assert!(shown.contains(said), "{script}: {shown}");
        assert!(!shown.contains("complete"), "{script}: {shown}");
        assert_eq!(fs::read_to_string(dir.path().join("victim")).unwrap(), "secret");
    }
}

/// Lint calls a recording doubtful in which code runs backwards: `complete` would
/// contradict it.
#[test]
fn a_recording_with_lint_findings_is_not_called_complete() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("queue.c");
    fs::write(
        &source,
        "#include <signal.h>\nstatic void f(int s) { (void)s; }\nint main(void) { sigset_t s; \
         sigfillset(&s); sigprocmask(SIG_BLOCK, &s, 0); signal(40, f); \
         for (int i = 0; i < 500; i++) raise(40); sigprocmask(SIG_UNBLOCK, &s, 0); return 0; }\n",
    )
    .unwrap();
    let program = dir.path().join("queue");
    let built = tool("cc").arg("-o").arg(&program).arg(&source).status();
    if !built.is_ok_and(|status| status.success()) {
        return skipped("no C compiler");
    }
    let out = lbr_in(dir.path(), &[&RECORD[..], &["--source", "ptrace", "--", "./queue"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let lint = lbr_in(dir.path(), &["lint", "-i", "x", "--json"]);
    let impossible = String::from_utf8_lossy(&lint.stdout).contains("impossible_fall_through");
    let said = stderr(&out);
    assert_eq!(said.contains("complete: every taken branch"), !impossible, "{said}");
    assert_eq!(said.contains("but lbr lint finds impossible_fall_through ("), impossible, "{said}");
}

#[test]
fn a_pipe_cannot_be_read_back() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let record = [&RECORD[..4], &["-", "--source", "ptrace", "--", program.name()]].concat();
    let out = lbr_in(dir.path(), &record);
    let said = stderr(&out);
    assert!(said.contains("once and in order; not checked by lbr lint"), "{said}");
}
