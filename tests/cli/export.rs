//! `lbr export` against what llvm-profgen and perf2bolt made of the same
//! recordings.

use std::io::Read as _;
use std::path::Path;

use crate::support::corpus::corpus;
use crate::support::lbr::lbr;
use crate::support::truth::{cases, unpacked};

/// Exports a recording; the text, and what was said.
fn export(input: &Path, args: &[&str]) -> (String, String) {
    let out = lbr(&[&["export", "-i", input.to_str().unwrap()], args].concat());
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{said}");
    (String::from_utf8(out.stdout).unwrap(), said)
}

/// A case of the ground truth, unpacked: each program of it, with the kinds and
/// what is expected of them.
fn compare(name: &str, programs: &[&str], kinds: &[(&str, &str)]) {
    let Some(case) = cases().map(|cases| cases.join(name)) else { return };
    let dir = tempfile::tempdir().unwrap();
    let Some(recording) = unpacked(&case.join("perf.data")) else { return };
    let input = dir.path().join("perf.data");
    std::fs::write(&input, recording).unwrap();
    for program in programs {
        let binary = dir.path().join(program);
        std::fs::write(&binary, unpacked(&case.join(program)).unwrap()).unwrap();
        for (kind, file) in kinds {
            let file = match programs {
                [_] => (*file).to_owned(),
                _ => format!("{program}.{file}"),
            };
            let Some(expected) = unpacked(&case.join(&file)) else { continue };
            let expected = String::from_utf8(expected).unwrap();
            let mut args = vec!["--binary", binary.to_str().unwrap(), "--to"];
            args.extend(kind.split(' '));
            let (text, _) = export(&input, &args);
            if text != expected {
                let differs = text.lines().zip(expected.lines()).find(|(ours, of)| ours != of);
                panic!("{name}/{program}, {kind}: {differs:?} (ours, {file})");
            }
        }
    }
}

const KINDS: [(&str, &str); 5] = [
    ("llvm-raw", "llvm-profgen.unsymbolized"),
    ("llvm", "llvm-profgen.prof"),
    ("preagg", "bolt.preagg-BFf"),
    ("preagg:T", "bolt.preagg-TB"),
    ("llvm --join", "joined.prof"),
];

/// Byte for byte, with positions, without, by two compilers, with inlined
/// functions in C++ and Rust, with DWARF 4 and 5.
#[test]
fn profiles_are_those_of_the_converters() {
    let names = ["sort-pie", "sort-nopie", "sort-gcc", "virt-pie", "virt-nopie", "virt-lld"];
    for name in names.into_iter().chain(["inl-pie", "inl-nopie"]) {
        compare(name, &[name], &KINDS);
    }
}

/// Two data mappings of its recording claim to be code.
#[test]
fn a_mapping_that_is_no_code_changes_nothing() {
    let kinds = [
        ("llvm-raw", "llvm-profgen.unsymbolized.after-fix"),
        ("llvm", "llvm-profgen.prof.after-fix"),
    ];
    compare("sort-lld", &["sort-lld"], &kinds);
}

#[test]
fn a_library_has_a_profile_of_its_own() {
    compare("shared", &["shared-main", "libshlib.so"], &KINDS);
}

/// The collatz loop ran 8,392 times; one stack at a time shows 8,121 of them.
#[test]
fn joined_stacks_show_the_code_between_them() {
    let Some(cases) = cases() else { return };
    let joined = std::fs::read_to_string(cases.join("sort-gcc/joined.prof")).unwrap();
    assert!(joined.contains(": 8392"));
    compare("sort-gcc", &["sort-gcc"], &[("llvm --join", "joined.prof")]);
}

/// AutoFDO's own figures of its own test: 357 ranges, run 134,622 times,
/// 5,383,657 bytes.
#[test]
fn autofdo_counts() {
    let Some(corpus) = corpus() else { return };
    let (text, _) = export(&corpus.join("autofdo/perfdata/test.lbr"), &["--to", "autofdo"]);
    let mut lines = text.lines();
    let ranges: usize = lines.next().unwrap().parse().unwrap();
    let (mut runs, mut bytes) = (0, 0);
    for line in lines.take(ranges) {
        let (range, count) = line.split_once(':').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let at = |text| u64::from_str_radix(text, 16).unwrap();
        let count: u64 = count.parse().unwrap();
        runs += count;
        bytes += count * (at(end) - at(start) + 1);
    }
    assert_eq!((ranges, runs, bytes), (357, 134_622, 5_383_657));
}

/// Without BOLT's control flow nobody can write it.
#[test]
fn fdata_names_what_to_use_instead() {
    let out = lbr(&["export", "--to", "fdata", "-i", "/dev/null"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2));
    assert!(said.contains("--to preagg"), "{said}");
}

/// Two samples of one stack in call-stack mode would need a recording of their
/// own; of plain branches a context is the function that they stand in.
#[test]
fn contexts_and_branches_for_viewers() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("branches.txt");
    std::fs::write(&input, "0x401010/0x401020/P/-/-/0 0x401008/0x401000/M/-/-/0\n").unwrap();
    let (text, _) = export(&input, &["--to", "speedscope"]);
    let made: serde_json::Value = serde_json::from_str(&text).unwrap();
    let profile = &made["profiles"][0];
    let weights = profile["weights"].as_array().unwrap();
    let sum: u64 = weights.iter().map(|weight| weight.as_u64().unwrap()).sum();
    assert_eq!((sum, profile["endValue"].as_u64()), (2, Some(2)));
    assert_eq!(weights.len(), profile["samples"].as_array().unwrap().len());
    let (folded, _) = export(&input, &["--to", "folded"]);
    let last = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    assert_eq!(folded.lines().map(last).sum::<u64>(), 2);

    let out = dir.path().join("pprof.gz");
    let (nothing, _) = export(&input, &["--to", "pprof", "-o", out.to_str().unwrap()]);
    assert_eq!(nothing, "");
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(&out).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    // A sample (field 2, 9 bytes): location 1, then one branch, mispredicted of one known.
    let sample = [0x12, 8, 0x0a, 1, 1, 0x12, 3, 1, 1, 1];
    assert!(bytes.windows(sample.len()).any(|part| part == sample), "{bytes:x?}");
}
