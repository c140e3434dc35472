//! `lbr decode`, as a user runs it.

use std::io::Write;
use std::process::Output;

use crate::support::lbr::{lbr_with_input, piped};
use crate::support::oracle::{self, LBR_KINDS, Said, Values};
use crate::support::random::Random;

fn decode(args: &[&str], input: &str) -> Output {
    lbr_with_input(&[&["decode"], args].concat(), input)
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// A very long line ends its parsing.
#[test]
fn an_endless_line_is_refused() {
    let output = decode(&["--format", "5", "/dev/zero"], "");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "lbr: cannot read /dev/zero: a line without end\n");
}

#[test]
fn worked_values() {
    let input = "0x9FFFFFFF81000123 1\n1fffffff81000123 1\n0XC000555555554444 0x1\n0 0\n";
    let output = decode(&["--format", "4", "--json"], input);
    let line = |from, mispredicted, in_tx| {
        format!(
            "{{\"from\":\"{from}\",\"to\":\"0x1\",\"mispredicted\":{mispredicted},\"in_tx\":{in_tx},\
             \"abort\":false,\"cycles\":null,\"cycles_saturated\":null,\"type\":null,\"spec\":null,\
             \"counters\":null}}\n"
        )
    };
    let expected = line("0xffffffff81000123", true, false)
        + &line("0xffffffff81000123", false, false)
        + &line("0x555555554444", true, true)
        + "{\"empty\":true}\n";
    assert_eq!(stdout(&output), expected);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

/// Arguments that are numbers are one record; a file that exists is read, whatever its name.
#[test]
fn a_record_is_given_by_arguments() {
    let of_line = decode(&["--format", "3", "--json"], "8000000000401000 0x401020\n");
    let of_arguments = decode(&["--format", "3", "8000000000401000", "0x401020", "--json"], "");
    assert_eq!(stdout(&of_arguments), stdout(&of_line));
    assert!(stdout(&of_arguments).starts_with("{\"from\":\"0x401000\",\"to\":\"0x401020\""));
    let packed = decode(&["--facility", "pm", "40102000401000", "--json"], "");
    assert!(stdout(&packed).starts_with("{\"from\":\"0x401000\",\"to\":\"0x401020\""));
    for (args, why) in [
        (&["401000"][..], "lbr: 1 of 2 columns (FROM TO [INFO])\n"),
        (&["401000", "x"], "lbr: \"x\" is not a hexadecimal number\n"),
        (&["401000x"], "lbr: cannot open 401000x: No such file or directory\n"),
    ] {
        let refused = decode(&[&["--format", "3"], args].concat(), "");
        assert_eq!((refused.status.code(), stderr(&refused)), (Some(2), why), "{args:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("401000"), "401000 401020\n").unwrap();
    let args = ["decode", "--format", "3", "--json", "401000"];
    let of_file = crate::support::lbr::lbr_in(folder.path(), &args);
    assert!(stdout(&of_file).contains("\"to\":\"0x401020\""), "{}", stderr(&of_file));
}

/// Every format and facility in the program, line for line.
#[test]
fn agrees_with_a_second_decoder_on_random_records() {
    let mut values = Values(Random(0x345));
    for kind in LBR_KINDS {
        for turn in 0..4 {
            let said = Said {
                kind,
                tsx: turn % 2 == 0,
                virt_bits: [48, 57][turn / 2],
                ecx: [0xF_0007, 0x5_0005, 0x2, 0xF_0007][turn],
            };
            let mut input = String::new();
            let mut expected = String::new();
            for i in 0..600 {
                let (from, to, info) = (values.value(), values.value(), values.info());
                expected += &(oracle::line(said, from, to, info) + "\n");
                let info = info.map_or(String::new(), |info| format!("{info:#018x}"));
                input += &match i % 3 {
                    0 => format!("{from:#x} {to:#x} {info}\n"),
                    1 => format!("{from:X}\t{to:016x}   {info}\r\n"),
                    _ => format!("  {from:#018X} {to:x} {info}\n").replace("0X", "0x"),
                };
            }
            let virt_bits = said.virt_bits.to_string();
            let caps = format!("0x4000000b,7,{:#x}", said.ecx);
            let mut args = match kind.parse::<u8>() {
                Ok(_) => vec!["--format", kind],
                Err(_) => vec!["--facility", kind],
            };
            args.extend(["--json", "--virt-bits", &virt_bits]);
            if kind == "arch" && turn != 0 {
                args.extend(["--caps", &caps]);
            }
            if !said.tsx {
                args.push("--no-tsx");
            }
            args.push("-");
            let output = decode(&args, &input);
            assert_eq!(output.status.code(), Some(0), "{args:?} {}", stderr(&output));
            for (i, (ours, theirs)) in stdout(&output).lines().zip(expected.lines()).enumerate() {
                let record = input.lines().nth(i).unwrap();
                assert_eq!(ours, theirs, "{args:?}: {record}");
            }
            assert_eq!(stdout(&output).lines().count(), 600);
        }
    }
}

#[test]
fn brbe_agrees_with_a_second_decoder() {
    let mut values = Values(Random(0x1c9));
    let (mut input, mut expected) = (String::new(), String::new());
    for _ in 0..5000 {
        let (inf, src, tgt) = (values.brbinf(), values.value(), values.value());
        input += &format!("{inf:#x} {src:x} {tgt:#x}\n");
        expected += &(oracle::brbe_line(inf, src, tgt) + "\n");
    }
    let output = decode(&["--facility", "brbe", "--json"], &input);
    assert_eq!(output.status.code(), Some(0));
    for (ours, theirs) in stdout(&output).lines().zip(expected.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(stdout(&output).lines().count(), 5000);
}

#[test]
fn every_line_is_json_with_the_frozen_keys() {
    let output = decode(&["--facility", "arch", "--json"], "1 2 d30000e4ffffffff\n1 2\n");
    for line in stdout(&output).lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let object = value.as_object().unwrap();
        assert!(oracle::KEYS.iter().all(|key| object.contains_key(*key)), "{line}");
    }
    let first: serde_json::Value =
        serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    assert_eq!(first["cycles"], 65535);
    assert_eq!(first["cycles_saturated"], true);
    assert_eq!(first["type"], "ind_call");
    assert_eq!(first["counters"], serde_json::json!([0, 1, 2, 3]));
}

#[test]
fn a_bad_line_is_reported_and_the_rest_decoded() {
    let input = "1 2\nzz 2\n# a comment\n\n1\n3 4\n1 2 3 4\n1 10000000000000000\n1 2 x\n-1 2\n5 6";
    let output = decode(&["--format", "3", "--json"], input);
    assert_eq!(output.status.code(), Some(2));
    let froms: Vec<String> = stdout(&output)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["from"].to_string())
        .collect();
    assert_eq!(froms, ["\"0x1\"", "\"0x3\"", "\"0x5\""]);
    let numbers: Vec<&str> = stderr(&output)
        .lines()
        .map(|line| line.strip_prefix("lbr: standard input:").unwrap().split(':').next().unwrap())
        .collect();
    assert_eq!(numbers, ["2", "5", "7", "8", "9", "10"], "{}", stderr(&output));
}

#[test]
fn packed_records_ignore_further_columns() {
    for args in [["--format", "0"], ["--facility", "pm"]] {
        let input = "1111111122222222\n1111111122222222 junk\n0 1\n";
        let output = decode(&[&args[..], &["--json"]].concat(), input);
        let lines: Vec<&str> = stdout(&output).lines().collect();
        assert!(lines[0].starts_with("{\"from\":\"0x22222222\",\"to\":\"0x11111111\","));
        assert_eq!((lines[0], lines[2]), (lines[1], "{\"empty\":true}"));
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn amd_is_an_alias() {
    let input = "8000000000001000 8000000000002000\n1000 3fffffffffffffff\n";
    let long = decode(&["--facility", "amd_v2", "--json"], input);
    let short = decode(&["--facility", "amd", "--json"], input);
    assert_eq!(stdout(&long), stdout(&short));
    assert!(stdout(&long).contains("\"spec\":\"non_spec_correct_path\""));
    assert!(stdout(&long).ends_with("{\"empty\":true}\n"));
}

#[test]
fn bad_usage_is_status_2_and_one_reason() {
    let cases: [(&[&str], &str); 12] = [
        (&[], "--format"),
        (&["--format", "8"], "LBR_FMT 0x8"),
        (&["--format", "3f"], "--facility arch"),
        (&["--format", "100"], "LBR_FMT 0x100"),
        (&["--format", "-1"], "-1"),
        (&["--facility", "x86"], "x86"),
        (&["--format", "4", "--facility", "arch"], "cannot be used"),
        (&["--facility", "amd_v2", "--virt-bits", "0"], "virt-bits"),
        (&["--facility", "arch", "--caps", "1,2"], "EAX,EBX,ECX"),
        (&["--facility", "arch", "--caps", "1,2,100000000"], "32 bits"),
        (&["--format", "5", "--caps", "1,2,3"], "--facility arch"),
        (&["--format", "5", "/nonexistent/file"], "cannot open /nonexistent/file"),
    ];
    for (args, reason) in cases {
        let output = decode(args, "");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(reason), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
    }
}

#[test]
fn bytes_that_are_not_text_are_a_bad_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("records");
    std::fs::write(&file, b"1 2\n\xFF\xFE\n3 4\n").unwrap();
    let output = decode(&["--format", "1", "--json", file.to_str().unwrap()], "");
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(2), 2));
    assert!(stderr(&output).contains("records:2: "));
}

#[test]
fn an_endless_line_is_one_bad_line_and_not_echoed() {
    let long = "a".repeat(1 << 20);
    let comment = format!("# {long}");
    let input = format!("{long}\n{}\n{comment}\n1 2\n{long}", "b".repeat(1000));
    let output = decode(&["--format", "3", "--json"], &input);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stdout(&output).lines().count(), 1);
    let said: Vec<&str> = stderr(&output).lines().collect();
    let [first, second, last] = said[..] else { panic!("{} lines", said.len()) };
    assert_eq!(first, "lbr: standard input:1: it is longer than 65536 bytes");
    assert!(second.starts_with("lbr: standard input:2: \"bbbb") && second.len() < 120);
    assert_eq!(last, "lbr: standard input:5: it is longer than 65536 bytes");
}

#[test]
fn a_comment_may_contain_any_bytes() {
    let output = lbr_with_input(&["decode", "--format", "3", "--json"], b" # \xFCber\r\n1 2\r\n");
    assert_eq!((output.status.code(), stdout(&output).lines().count()), (Some(0), 1));
}

#[test]
fn a_table_shows_raw_and_decoded_values_and_dashes_for_absent_ones() {
    let output = decode(&["--format", "5"], "1000 2000 800000000000ffff\n1000 2000\n0 0 0\n");
    let rows: Vec<Vec<&str>> =
        stdout(&output).lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        rows[1],
        [
            "0000000000001000",
            "0000000000002000",
            "800000000000ffff",
            "|",
            "0x1000",
            "0x2000",
            "yes",
            "no",
            "no",
            "65535+"
        ]
    );
    assert_eq!(
        rows[2],
        ["0000000000001000", "0000000000002000", "-", "|", "0x1000", "0x2000", "-", "-", "-", "-"]
    );
    assert_eq!(rows[3].last(), Some(&"empty"));
    assert_eq!(rows.len(), 4);
}

#[test]
fn a_closed_pipe_is_success() {
    // More than a pipe holds, to a reader that exits.
    let mut child = piped(&["decode", "--format", "1", "--json"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all("1 2\n".repeat(50_000).as_bytes());
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

/// Groups by hand after Linux's `setup_pebs_adaptive_sample_data` and `setup_arch_pebs_sample_data`:
/// the LBR group follows basic, memory and general registers.
#[test]
fn lbr_entries_of_pebs_records() {
    let zeros = |n: usize| "0 ".repeat(n);
    // 2 LBR entries, memory and general registers: bits 0, 1, 3 and 24; then ip, counters, TSC.
    let entries = "401020 401000 f000000000000005 401010 401040 7";
    let adaptive = format!("0100000b 1 2 3 {}{entries}\n", zeros(4 + 18));
    let output = decode(&["--facility", "pebs_info", "--json"], &adaptive);
    let branch = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        (row["from"].to_string(), row["cycles"].as_u64(), row["mispredicted"].as_bool())
    };
    let rows = |output: &Output| stdout(output).lines().map(branch).collect::<Vec<_>>();
    let from = |addr: &str| format!("\"{addr}\"");
    let both = [(from("0x401020"), Some(5), Some(true)), (from("0x401010"), Some(7), Some(false))];
    assert_eq!(rows(&output), both, "{}", stderr(&output));
    // With Architectural LBR, cycles count only if INFO[60] is set.
    let output = decode(&["--facility", "pebs", "--json"], &adaptive);
    assert_eq!(rows(&output).iter().map(|row| row.1).collect::<Vec<_>>(), [Some(5), None]);
    // Bits 63, 61, 49 and 40: basic, general registers, XMM, 8 LBR entries; the third is empty.
    let format = 1u64 << 63 | 1 << 61 | 1 << 49 | 1 << 40;
    let record = |format: u64| {
        format!("{format:x} 0 {}{entries} {}\n", zeros(6 + 20 + 2 + 32 + 6), zeros(6 * 3))
    };
    let output = decode(&["--facility", "arch_pebs", "--json"], &record(format));
    assert_eq!(rows(&output).len(), 2, "{}", stderr(&output));
    // The LBR group is in the second fragment, 16 bytes further.
    let split = format!("{:x} 0 {}", 1u64 << 31 | 16, record(format));
    assert_eq!(rows(&decode(&["--facility", "arch_pebs", "--json"], &split)).len(), 2);
    let output = decode(&["--facility", "arch_pebs"], "8000000000000000 0 1\n");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "lbr: standard input:1: the PEBS record has no LBR group\n");
    let output = decode(&["--facility", "pebs"], "8 1 2 3 401020\n");
    let short = "the PEBS record needs 7 64-bit words, and 5 are here";
    assert_eq!(stderr(&output), format!("lbr: standard input:1: {short}\n"));
}
