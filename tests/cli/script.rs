//! `lbr script`.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::corpus::corpus;

fn lbr(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lbr")).args(args).stdin(Stdio::null()).output().unwrap()
}

fn lbr_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lbr"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may end before it has read everything: that is its right.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    out
}

fn stdout(out: &Output) -> String {
    String::from_utf8(out.stdout.clone()).unwrap()
}

fn stderr(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).unwrap()
}

const TEXT: &str = "  12/13 [001] 7.000001:  a0 0x10/0x20/M/-/-/5/COND  0x30/0x40/-/-/-/0\n";

#[test]
fn text_comes_out_in_one_shape() {
    let out = lbr_with_input(&["script", "-i", "-"], TEXT.as_bytes());
    assert_eq!(stdout(&out), " 0x10/0x20/M/-/-/5/COND/-  0x30/0x40/-/-/-/0//- \n");
    assert_eq!((stderr(&out).as_str(), out.status.code()), ("", Some(0)));
    let fields = ["script", "-i", "-", "-F", "brstack,ip,quality,time,cpu,tid,pid"];
    let out = lbr_with_input(&fields, TEXT.as_bytes());
    let wanted = "     12/13      [001]     7.000001:                a0 {-} 0x10/0x20/M/-/-/5/COND/-  0x30/0x40/-/-/-/0//- \n";
    assert_eq!(stdout(&out), wanted);
}

#[test]
fn json_has_null_for_what_is_absent() {
    let out = lbr_with_input(&["script", "-i", "-", "--json"], TEXT.as_bytes());
    let object: serde_json::Value = serde_json::from_str(&stdout(&out)).unwrap();
    assert_eq!(object["time"], 7_000_001_000u64);
    assert_eq!((&object["pid"], &object["tid"]), (&12.into(), &13.into()));
    assert_eq!(object["ip"], "0xa0");
    assert!(object["exact"].is_null() && object["period"].is_null());
    let [known, unknown] = &object["entries"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&known["from"], &known["to"]), (&"0x10".into(), &"0x20".into()));
    assert_eq!((&known["mispredicted"], &known["cycles"]), (&true.into(), &5.into()));
    assert_eq!(known["type"], "COND");
    for key in ["mispredicted", "cycles", "cycles_saturated", "type", "spec", "in_tx", "abort"] {
        assert!(unknown[key].is_null(), "{key}");
    }
}

#[test]
fn refused_lines_are_named_and_the_rest_is_printed() {
    let text = format!("{TEXT}0x1/0x2/Q/-/-/0\n{TEXT}");
    let out = lbr_with_input(&["script", "-i", "-"], text.as_bytes());
    assert_eq!(stdout(&out).lines().count(), 2);
    let said = "lbr: standard input: line 2: branch 1: the prediction is none of M, P, -, MN, PN (1 such lines were skipped)\n";
    assert_eq!(stderr(&out), said);
    assert_eq!(out.status.code(), Some(0));
}

#[test]
fn bad_input_is_a_sentence_and_2() {
    let missing = lbr(&["script", "-i", "/nonexistent/perf.data"]);
    assert_eq!(
        stderr(&missing),
        "lbr: cannot open /nonexistent/perf.data: No such file or directory (os error 2)\n"
    );
    assert_eq!(missing.status.code(), Some(2));
    let garbage = lbr_with_input(&["script", "-i", "-"], b"\x7fELF\x02\x01\x01\0\0\0");
    assert_eq!(
        stderr(&garbage),
        "lbr: standard input: holds no branches: neither perf.data nor text of perf script -F brstack\n"
    );
    assert_eq!(garbage.status.code(), Some(2));
    let wrapped = lbr_with_input(&["script", "-i", "-"], b"\xfd7zXZ\0\0\x04");
    let said = "lbr: standard input: is compressed by xz; unpack it into a pipe: xz -dc FILE | lbr report -i -\n";
    assert_eq!((stderr(&wrapped).as_str(), wrapped.status.code()), (said, Some(2)));
    let short = lbr_with_input(&["script", "-i", "-"], b"PERFILE2");
    assert_eq!(short.status.code(), Some(2));
    assert!(stderr(&short).starts_with("lbr: standard input: not a perf.data file"));
}

/// Whoever reads has seen enough.
#[test]
fn a_closed_pipe_is_success() {
    let Some(corpus) = corpus() else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_lbr"))
        .args(["script", "-i"])
        .arg(corpus.join("autofdo/perfdata/test.lbr"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
}

/// perf 6.12's own lines, from a file and through a pipe.
#[test]
fn prints_what_perf_prints() {
    let Some(corpus) = corpus() else { return };
    let file = corpus.join("autofdo/perfdata/test.lbr");
    let expected = corpus.join("autofdo/expected/test.lbr.perf6.12.head200.txt");
    let expected = std::fs::read_to_string(expected).unwrap();
    let first = |out: &Output| -> Vec<String> {
        stdout(out).lines().take(200).map(str::to_owned).collect()
    };
    let path = file.to_str().unwrap();
    let seekable = lbr(&["script", "-F", "pid,ip,brstack", "-i", path]);
    let lines: Vec<&str> = expected.lines().collect();
    assert_eq!(first(&seekable), lines);
    let bytes = std::fs::read(Path::new(path)).unwrap();
    let piped = lbr_with_input(&["script", "-F", "pid,ip,brstack", "-i", "-"], &bytes);
    assert_eq!(stdout(&piped), stdout(&seekable));
    assert_eq!(stderr(&piped), "");
}
