//! Straight-line code that no branch ends: before the first branch of a thread, after
//! its last, and where a signal interrupts it.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::lbr::{PROGRAM, done, rows, sources, traced};
use crate::support::programs::{BARE, Program, build};
use crate::support::skip::{run_tool, tool};

/// Records a program; `None` where it cannot be traced.
fn record(program: &Program, source: &str, options: &[&str], file: &str) -> Option<()> {
    let record = ["record", "--backend", "soft", "--source", source, "-o", file];
    traced(&[&record[..], options, &["--", program.name()]].concat()).map(|_| ())
}

/// Records ends.c into a folder. The program's code must stay for as long as it is read. `None` if
/// it cannot be built or traced.
fn ends() -> Option<(Program, TempDir, String)> {
    let program = build("kinds/ends.c", BARE)?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data").to_str().unwrap().to_owned();
    record(&program, "ptrace", &[], &file)?;
    Some((program, folder, file))
}

/// Taken, not taken and maybe passed of each conditional branch, by address.
fn outcomes(file: &str) -> Vec<(u64, [u64; 3])> {
    let rows = rows(&["report", file, "--view", "outcomes", "--json", "--sort", "address"]);
    let conditional = rows.iter().filter(|row| row["kind"] == "conditional");
    let number = |row: &Value, key: &str| row[key].as_u64().unwrap();
    let counts = |row| ["taken", "not_taken", "unsure"].map(|key| number(row, key));
    let address = |row: &Value| row["from"].as_str().unwrap()[2..].to_owned();
    conditional.map(|row| (u64::from_str_radix(&address(row), 16).unwrap(), counts(row))).collect()
}

fn quality(file: &str) -> Value {
    rows(&["report", file, "--view", "outcomes", "--json"]).pop().unwrap()
}

/// ends.c, by hand: a branch is passed, a loop of five rounds takes its branch four
/// times, and three more are passed on the way to exit_group: 4 taken, 5 not.
#[test]
fn code_before_the_first_branch_and_after_the_last_is_counted() {
    let Some(program) = build("kinds/ends.c", BARE) else { return };
    let folder = tempfile::tempdir().unwrap();
    for source in sources() {
        // Every number of branches in the last stack, none left over among them.
        for period in ["1", "2", "3", "4", "5", "31"] {
            let file = folder.path().join(format!("{source}{period}"));
            let file = file.to_str().unwrap();
            if record(&program, source, &["-c", period], file).is_none() {
                return;
            }
            let counts: Vec<[u64; 3]> = outcomes(file).into_iter().map(|(_, n)| n).collect();
            let wanted = [[0, 1, 0], [4, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]];
            assert_eq!(counts, wanted, "{source}, -c {period}");
            let printed = done(&["report", file, "--view", "outcomes"]);
            assert!(printed.contains("complete: every taken branch\n"), "{printed}");
            assert_eq!(quality(file)["open_ends"], json!(0));
        }
    }
}

/// A file of an older version lacks the code before the first and after the last branch: counts
/// that may be too low are marked, here the loop's branch, by one.
#[test]
fn rows_are_marked_if_the_end_of_the_code_is_unknown() {
    let Some((_program, _folder, file)) = ends() else { return };
    let name = file.as_str();
    let mut bytes = std::fs::read(&file).unwrap();
    // The note of the only stack: version 1, a stream, joined; then how many moves.
    let note = bytes.windows(8).position(|at| at == b"lbr\x01\x00\x01\x08\x02").unwrap();
    assert_eq!(bytes[note + 8..note + 12], [2, 0, 0, 0], "it starts, and it ends");
    bytes[note + 8] = 0;
    std::fs::write(&file, bytes).unwrap();
    let row = &rows(&["report", name, "--view", "outcomes", "--json"])[0];
    let keys = ["taken", "not_taken", "unsure", "taken_share", "low", "high"];
    let wanted = json!([4, 0, 1, 1.0, 0.8, 1.0]);
    assert_eq!(json!(keys.map(|key| row[key].clone())), wanted);
    assert_eq!(quality(name)["open_ends"], json!(2));
    let printed = done(&["report", name, "--view", "outcomes"]);
    assert!(printed.contains("2 addresses from which"), "{printed}");
    assert!(printed.contains("maybe passed"), "{printed}");
}

/// perf reads the file as if nothing were added.
#[test]
fn perf_reads_a_recording_with_moves() {
    let Some((_program, _folder, file)) = ends() else { return };
    let name = file.as_str();
    let Some(perf) = run_tool(tool("perf").args(["script", "-i", name, "-F", "brstack"])) else {
        return;
    };
    let printed = String::from_utf8(perf.stdout).unwrap();
    assert_eq!(printed.split_whitespace().count(), 4, "{printed}");
}

/// Runs scripts/compare-programs, which counts the same runs by single-stepping.
fn compared(source: &str, kinds: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/compare-programs");
    for needed in ["python3", "gcc", "objdump", "readelf", "setarch"] {
        if run_tool(tool(needed).arg("--version")).is_none() {
            return;
        }
    }
    let mut script = tool(script.to_str().unwrap());
    script.env("LBR", PROGRAM).args(["--source", source]).args(kinds);
    let compared = script.output().unwrap();
    let printed = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.success(), "{printed}{}", String::from_utf8_lossy(&compared.stderr));
    let agree = format!("{0} of {0} programs agree", kinds.len());
    assert!(printed.contains(&agree), "{printed}");
    // What is compared is the truth by what lbr says, too.
    assert!(!printed.contains("not complete"), "{printed}");
}

#[test]
fn signals_count_as_in_single_stepping() {
    if ends().is_some() {
        compared("ptrace", &["ends", "signals", "siglongjmp", "fork", "exec", "killed"]);
    }
}

/// Without the threads: how far they get before the program ends differs from run to run.
#[test]
fn programs_under_qemu_count_as_in_single_stepping() {
    if sources().contains(&"qemu") {
        compared("qemu", &["ends", "signals", "siglongjmp", "killed"]);
    }
}

/// A program that starts to be recorded in the middle, and a thread that ends in it.
#[test]
fn recording_from_a_function_starts_there() {
    let Some(program) = build("kinds/recursion.c", &["-O1", "-no-pie", "-static"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    for source in sources() {
        let file = folder.path().join(source);
        let file = file.to_str().unwrap();
        if record(&program, source, &["--from", "main"], file).is_none() {
            return;
        }
        let blocks = rows(&["report", file, "--view", "blocks", "--json"]);
        let main = format!("{:#x}", program.at("main"));
        let first = blocks.iter().find(|row| row["entry"] == json!(main)).unwrap();
        assert_eq!(first["count"], json!(1), "{source}: main is not called in the recording");
        assert_eq!(quality(file)["open_ends"], json!(0), "{source}");
    }
}
