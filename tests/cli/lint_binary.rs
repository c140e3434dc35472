//! `lbr lint --binary`: whether a recording suits a program.

use crate::support::lbr::{lbr_in, stderr, text};
use crate::support::programs::build;

#[test]
fn another_build_is_found_by_its_functions() {
    // `pick` is inlined at -O3.
    let (Some(program), Some(other)) =
        (build("calls.c", &["-O1"]), build("calls.c", &["-O3", "-fno-ipa-icf"]))
    else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let lbr = |args: &[&str]| {
        let out = lbr_in(folder.path(), args);
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", stderr(&out));
        text(&out.stdout).to_owned()
    };
    lbr(&["record", "--backend", "soft", "--", program.name(), "20"]);
    let shown = lbr(&["lint", "--binary", program.name()]);
    let line = shown.lines().find(|line| line.contains("of the branches; ")).unwrap();
    assert!(line.contains("same build id") || line.contains("no build id"), "{line}");
    let (matching, rest) = line.split_once(" of ").and_then(|_| line.split_once("id, ")).unwrap();
    let counts: Vec<&str> = rest.split(' ').take(3).collect();
    assert_eq!(counts[0], counts[2], "every function matches itself: {matching}");
    assert!(line.ends_with("100.00% of its executed branches seen"), "{line}");
    assert!(!shown.contains("functions_differ"), "{shown}");

    let shown = lbr(&["lint", "--binary", other.name()]);
    assert!(shown.contains("error: functions_differ: "), "{shown}");
    assert!(shown.contains(" pick"), "{shown}");
    let shown = lbr(&["lint", "--binary", "/bin/sh"]);
    assert!(shown.contains("/bin/sh: no branch is in it"), "{shown}");
    let out = lbr_in(folder.path(), &["lint", "--binary", "/dev/null"]);
    assert_eq!(out.status.code(), Some(2));
}
