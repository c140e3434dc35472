//! Wrong command lines: each is one sentence with the cause, and what to do.

use std::fs;

use crate::support::lbr::{lbr_in, stderr};

/// The arguments, and the first line of the answer.
const WRONG: [(&[&str], &str); 29] = [
    (
        &["report"],
        "no perf.data here: lbr record PROGRAM makes one, -i FILE names another recording",
    ),
    (
        &["annotate"],
        "no perf.data here: lbr record PROGRAM makes one, -i FILE names another recording",
    ),
    (&["lint", "none.data"], "none.data does not exist"),
    (&["report", "empty.data"], "empty.data is empty: nothing was recorded into it"),
    (
        &["report", "notes.txt"],
        "notes.txt: not a recording with branches: neither perf.data nor perf script -F brstack \
         text",
    ),
    (
        &["diff", "one.data"],
        "no perf.data.old here to compare one.data with: name the baseline first (lbr diff \
         BASELINE one.data)",
    ),
    (&["report", "-n", "abc"], "--limit abc: not a whole number"),
    (&["report", "--min-n", ""], "--min-n : not a whole number"),
    (&["record", "-c", "0", "ls"], "--count 0: must be at least 1"),
    (&["report", "-C", "x"], "--cpu x: not a list of CPUs, such as 0-3,6"),
    (
        &["report", "--view", "foo"],
        "--view foo: no such value (one of hot, types, mispredict, outcomes, blocks, loops, \
         callgraph, paths, args)",
    ),
    (
        &["report", "--group", "functon"],
        "--group functon: no such value; did you mean function? (one of function, line, file)",
    ),
    (&["report", "--bogus"], "unexpected argument '--bogus'; lbr report -h lists the options"),
    (
        &["report", "--limt", "3"],
        "unexpected argument '--limt'; did you mean '--limit'?; lbr report -h lists the options",
    ),
    (
        &["annotate", "main", "notes.txt"],
        "unexpected argument 'notes.txt'; name a recording with -i notes.txt",
    ),
    (&["doctor", "--foo"], "unexpected argument '--foo'; lbr doctor -h lists the options"),
    (&["repor"], "no command is called repor; did you mean 'report'?; lbr -h lists the commands"),
    (&["foo"], "no command is called foo; lbr -h lists the commands"),
    (&["report", "--csv", "--json"], "--csv cannot be used with --json"),
    (
        &["decode", "notes.txt"],
        "missing --format <N> or --facility <FACILITY>; lbr decode --help has examples",
    ),
    (&["time"], "missing CODE or --hex <BYTES> or --object <FILE>; lbr time --help has examples"),
    (&["export"], "missing --to <KIND>; lbr export --help has examples"),
    (&["explain", "FOO"], "no register is called \"FOO\"; lbr explain lists the registers"),
    (
        &["probe", "--soft-cpu", "foo"],
        "--soft-cpu foo: unknown CPU `foo`: neither a known model, such as 06_5E, nor a name, \
         such as skylake; --soft-cpu list lists them",
    ),
    (
        &["record", "--soft-cpu", "foo", "ls"],
        "--soft-cpu foo: unknown CPU `foo`: neither a known model, such as 06_5E, nor a name, \
         such as skylake; --soft-cpu list lists them",
    ),
    (&["record", "-p", "999999999"], "no process 999999999 is running"),
    (&["record", "none-such-program"], "none-such-program: not found in PATH"),
    (&["decode", "--format", "5", "none.txt"], "cannot open none.txt: No such file or directory"),
    (
        &["probe", "--cpuid", "none.txt"],
        "cannot read CPUID from none.txt: No such file or directory",
    ),
];

#[test]
fn wrong_command_lines_are_answered_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty.data"), "").unwrap();
    fs::write(folder.path().join("notes.txt"), "hello world\n").unwrap();
    fs::write(folder.path().join("one.data"), "").unwrap();
    for (args, wanted) in WRONG {
        let out = lbr_in(folder.path(), args);
        let said = stderr(&out);
        assert_eq!(said.lines().next().unwrap_or_default(), format!("lbr: {wanted}"), "{args:?}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(matches!(out.status.code(), Some(1..=4)) && out.stdout.is_empty(), "{args:?}");
        for rust in ["os error", "found in string", "..="] {
            assert!(!said.contains(rust), "{args:?}: {said}");
        }
    }
}
