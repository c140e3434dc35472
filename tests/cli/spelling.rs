//! `lbr record` and `lbr report` take `perf`'s spellings, or answer with ours, and serve every
//! option that is given or fail.

use std::fs;
use std::path::Path;
use std::process::Output;

use nix::unistd::geteuid;

use crate::support::lbr::{json_lines, lbr, lbr_in, sources, stderr, stdout};
use crate::support::programs::{BARE, build};

/// `lbr record` of a shell that prints its arguments, in a folder.
fn record(dir: &Path, words: &[&str]) -> Output {
    lbr_in(dir, &[&["record", "--backend", "soft", "--source", "ptrace"], words].concat())
}

const PRINTS: [&str; 4] = ["sh", "-c", "for word; do echo \"$word\"; done", "sh"];

#[test]
fn everything_after_the_program_belongs_to_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let its = ["-o", "other.data", "--wide", "--soft-cpu", "list", "--", "-z", "--help"];
    for before in [&[][..], &["--"], &["-o", "perf.data", "-b"]] {
        let out = record(dir.path(), &[before, &PRINTS, &its].concat());
        assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
        assert_eq!(stdout(&out).lines().collect::<Vec<_>>(), its, "{before:?}");
        assert!(dir.path().join("perf.data").exists() && !dir.path().join("other.data").exists());
    }
    let out = record(dir.path(), &["--bogus", "true"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("'--bogus'"), "{}", stderr(&out));
    let out = record(dir.path(), &["-C", "0", "--soft-cpu", "list"]);
    assert!(stdout(&out).contains("06_5E"), "an option of ours: {}", stderr(&out));
}

#[test]
fn two_lines_summarize_a_recording() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = record(dir.path(), &[program.name()]);
    let said = stderr(&out);
    let root = if geteuid().is_root() {
        "; the program runs as root (--user NAME: as another user)"
    } else {
        ""
    };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            &format!(
                "lbr: recording on the software LBR (Skylake) through ptrace: no predictions, no \
                 cycles{root}"
            ),
            "lbr: 15 branches in 1 sample to perf.data, complete: every taken branch that passes \
             the filter, once and in order",
        ]
    );
    for (cpu, name) in [("zen4", "(zen4)"), ("haswell", "(Haswell)"), ("06_8F", "(Golden Cove)")] {
        let out = record(dir.path(), &["--soft-cpu", cpu, program.name()]);
        assert!(stderr(&out).contains(name), "{cpu}: {}", stderr(&out));
    }
    let verbose = stderr(&record(dir.path(), &["-v", program.name()]));
    assert!(verbose.contains(", 1 drain\n") && !verbose.contains("accesses"), "{verbose}");
    assert!(verbose.contains("not known to ptrace: predictions, cycles, the kernel"), "{verbose}");
}

/// The filter of a recording, as `lbr script` prints the branches.
fn types(dir: &Path) -> Vec<String> {
    let out = lbr_in(dir, &["report", "--view", "types", "--json", "-i", "perf.data"]);
    let rows = json_lines(&out);
    let mut types: Vec<String> = rows
        .iter()
        .filter(|row| row["view"] == "types")
        .map(|row| row["type"].as_str().unwrap().to_owned())
        .collect();
    types.sort();
    types
}

#[test]
fn perf_record_options_are_accepted() {
    let Some(program) = build("nested.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    for (words, wanted) in [
        (&["-b"][..], &["CALL", "COND", "RET"][..]),
        (&["-e", "branches:u"], &["CALL", "COND", "RET"]),
        (&["-e", "cpu/branch-instructions/u", "-b", "-i"], &["CALL", "COND", "RET"]),
        (&["-j", "any_call,any_ret"], &["CALL", "RET"]),
        (&["-j", "any_ret", "-e", "branches:u"], &["RET"]),
    ] {
        let out = record(dir.path(), &[words, &[program.name()]].concat());
        assert_eq!(out.status.code(), Some(0), "{words:?}: {}", stderr(&out));
        assert_eq!(types(dir.path()), wanted, "{words:?}");
    }
    let out = record(dir.path(), &["--call-graph", "lbr", "-c", "1", program.name()]);
    assert!(stderr(&out).contains("each a snapshot of a call stack"), "{}", stderr(&out));
    let out = record(dir.path(), &["-F", "max", program.name()]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
}

#[test]
fn other_perf_options_are_answered_with_lbrs() {
    for (words, status, answer) in [
        (&["record", "-e", "cycles", "--", "true"][..], 2, "drop -e"),
        (&["record", "-e", "branches:upp", "--", "true"], 2, "-e branches:u"),
        (&["record", "-e", "branches:k", "--backend", "soft", "--", "true"], 2, "ask for `u`"),
        (&["record", "-g", "--", "true"], 2, "--call-graph lbr"),
        (&["record", "--call-graph", "dwarf", "--", "true"], 2, "--call-graph lbr"),
        (&["record", "-t", "12"], 2, "-p PID"),
        (&["record", "-a", "--", "sleep", "1"], 2, "lbr record -a --for MS"),
        (&["record", "-p", "abc"], 2, "give the number of one"),
        (&["record", "-F", "often", "--", "true"], 2, "per second, or max"),
        (&["report", "-s", "symbol_from,symbol_to"], 2, "--group function"),
        (&["report", "--sort", "colour"], 2, "count, mispredicts, rate, cycles or address"),
    ] {
        let out = lbr(words);
        assert_eq!(out.status.code(), Some(status), "{words:?}: {}", stderr(&out));
        assert!(stderr(&out).contains(answer), "{words:?}: {}", stderr(&out));
    }
}

#[test]
fn perf_report_options_for_defaults_change_nothing() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), &[program.name()]);
    let report = |words: &[&str]| stdout(&lbr_in(dir.path(), &[&["report"], words].concat()));
    let plain = report(&[]);
    assert!(plain.contains("COND"), "{plain}");
    assert_eq!(report(&["--stdio", "-b", "--no-children", "-s", "count"]), plain);
}

#[test]
fn a_process_that_does_not_run_is_named() {
    // Linux's highest pid_max is 4,194,304.
    let out = lbr(&["record", "-p", "4999999"]);
    assert_eq!(out.status.code(), Some(2));
    assert_eq!(stderr(&out), "lbr: no process 4999999 is running\n");
    let own = std::process::id().to_string();
    let out = lbr(&["record", "--backend", "soft", "-p", &own]);
    assert_eq!(out.status.code(), Some(2));
    let said = stderr(&out);
    assert!(
        said.contains(&format!("process {own}")) && said.contains("lbr record PROGRAM"),
        "{said}"
    );
}

/// Requests that a backend or source cannot serve are served by another or rejected, never ignored.
#[test]
fn no_option_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    for (words, status, why) in [
        (&["--backend", "soft", "--placement", "same"][..], 2, "--placement"),
        (&["--backend", "perf", "--soft-cpu", "haswell"], 2, "--soft-cpu"),
        (&["--backend", "msr", "--soft-cpu", "haswell"], 2, "--soft-cpu"),
        (&["--backend", "msr", "--source", "ptrace"], 2, "--source"),
        (&["--backend", "msr", "--from", "main"], 2, "--from"),
        (&["--backend", "msr", "--args", "main"], 2, "--args"),
        (&["--backend", "msr", "--children"], 2, "--children"),
        (&["--backend", "msr", "-c", "5"], 2, "-c"),
        (&["--backend", "soft", "-C", "0-1"], 2, "-C"),
        (&["--backend", "soft", "--for", "5"], 2, "--for"),
        (&["--source", "qemu", "--children"], 1, "--source qemu"),
    ] {
        let file = dir.path().join("perf.data");
        let options = ["record", "-o", file.to_str().unwrap()];
        let out = lbr(&[&options, words, &["--", "sh"]].concat());
        let said = stderr(&out);
        assert_eq!(out.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
        assert!(!file.exists(), "{words:?}");
    }
    for of_a_program in ["--children", "--from", "--args"] {
        let value = if of_a_program == "--children" { &[][..] } else { &["main"] };
        let out = lbr(&[&["record", "-C", "0", of_a_program], value].concat());
        assert_eq!(out.status.code(), Some(2), "{of_a_program}: {}", stderr(&out));
    }
}

/// The faster source neither follows children nor runs scripts: the other one is used for them.
#[test]
fn the_source_is_chosen_by_the_options() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "#!/bin/sh\n/bin/true\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for words in [&["--children", "--", "sh", "-c", "/bin/true; :"][..], &["./script"]] {
        let out = lbr_in(dir.path(), &[&["record", "--backend", "soft"], words].concat());
        assert_eq!(out.status.code(), Some(0), "{words:?}: {}", stderr(&out));
        assert!(stderr(&out).contains("through ptrace"), "{words:?}: {}", stderr(&out));
        let followed = !stderr(&out).contains("child process left alone");
        assert_eq!(followed, words.contains(&"--children"), "{words:?}: {}", stderr(&out));
    }
    let rows = json_lines(&lbr_in(dir.path(), &["script", "--json"]));
    assert!(!rows.is_empty());
}

/// QEMU does not follow a program that replaces the recorded one, single-stepping does.
#[test]
fn a_recording_up_to_exec_is_not_called_complete() {
    let dir = tempfile::tempdir().unwrap();
    for source in sources() {
        let command = ["record", "--source", source, "--", "sh", "-c", "exec /bin/true"];
        let said = stderr(&lbr_in(dir.path(), &command));
        let ends = said.contains("only until the program ran another one in its place (exec)");
        assert_eq!(ends, source == "qemu", "{said}");
        assert_eq!(said.contains("complete: every"), source == "ptrace", "{said}");
        assert!(!said.contains("child process"), "{said}");
    }
}

#[test]
fn errors_of_disarm_do_not_mention_arming() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hosts/zen3");
    let out = lbr(&["disarm", "--msr-root", host.to_str().unwrap(), "-C", "0"]);
    assert_eq!(out.status.code(), Some(3));
    assert_eq!(stderr(&out), "lbr: nothing to switch off: lbr never records with amd_single\n");
}

#[test]
fn the_overhead_is_measured_in_turns() {
    let Some(program) = build("oracle.S", BARE) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = record(dir.path(), &["--overhead=8", program.name()]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    let printed = stdout(&out);
    let lines: Vec<&str> = printed.lines().collect();
    let [ratio, alone, recorded, source] = lines[..] else { panic!("{printed}") };
    assert!(ratio.starts_with("recorded: ") && ratio.ends_with("; 99%, 8 pairs"), "{ratio}");
    assert!(ratio.contains(" times the wall time ("), "{ratio}");
    assert!(alone.starts_with("  alone     ") && recorded.ends_with(", 15 branches"), "{printed}");
    assert!(source.ends_with("; this is not the cost of hardware"), "{source}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "no recording stays");

    let out = record(dir.path(), &["--overhead", "no-such-program"]);
    assert!(stderr(&out).contains("no-such-program"), "{}", stderr(&out));
    let out = record(dir.path(), &["--overhead", "-c", "0x", "true"]);
    assert_eq!(out.status.code(), Some(2), "{}", stderr(&out));
}
