//! pprof's format, taken apart by hand.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use lbr_msr::record::{BranchEntry, BranchStack, Event, Integrity, Sample, Sink};
use profile::note::Source;
use profile::perf_data::Writer;
use serde_json::Value;

use crate::drawn::meta;
use crate::support::lbr::{done, json_lines, lbr, traced};
use crate::support::mapping::mapping;
use crate::support::programs::build;

/// Takes a number from the start: seven bits a byte, the lowest first.
fn number(bytes: &mut &[u8]) -> u64 {
    let len = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (digits, rest) = bytes.split_at(len);
    *bytes = rest;
    digits.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7F))
}

/// Fields of a message of protocol buffers: its number, and a value or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let value = number(&mut bytes);
        let (part, rest) = bytes.split_at(if key & 7 == 2 { value as usize } else { 0 });
        bytes = rest;
        found.push((key >> 3, value, part));
    }
    found
}

/// Exports a recording and decompresses the result.
fn export(input: &Path, kind: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("pprof.gz");
    let [input, file] = [input, &out].map(|path| path.to_str().unwrap());
    done(&["export", "--to", kind, "-i", input, "-o", file]);
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(&out).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

/// As Go's cmd/internal/pgo reads it: the sample type `samples`/`count`, an edge for each pair of
/// neighbours in a sample, and a function's start line.
#[test]
fn pprof_for_go_has_calls_and_start_lines() {
    let Some(program) = build("calls.c", &["-O1", "-g"]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("perf.data");
    let record = ["record", "--backend", "soft", "-o", input.to_str().unwrap(), "--"];
    if traced(&[&record[..], &[program.name(), "50"]].concat()).is_none() {
        return;
    }
    let bytes = export(&input, "pprof:go");
    let all = fields(&bytes);
    let of = |wanted: u64| all.iter().filter(move |(field, ..)| *field == wanted);
    let part = |bytes: &[u8], wanted| {
        let found = fields(bytes).into_iter().find(|(field, ..)| *field == wanted);
        found.map_or(0, |(_, value, _)| value)
    };
    let texts: Vec<&str> = of(6).map(|(.., text)| std::str::from_utf8(text).unwrap()).collect();
    let types: Vec<&[u8]> = of(1).map(|(.., of)| *of).collect();
    let words = |of: &[u8]| [1, 2].map(|field| texts[part(of, field) as usize]);
    assert_eq!(types.into_iter().map(words).collect::<Vec<_>>(), [["samples", "count"]]);
    // Name and start line of each function, by its number.
    let function = |of: &[u8]| (part(of, 1), (texts[part(of, 2) as usize], part(of, 5)));
    let functions: HashMap<u64, (&str, u64)> = of(5).map(|(.., f)| function(f)).collect();
    // The outermost function and its line at each location.
    let place = |of: &[u8]| {
        let mut lines = fields(of).into_iter().filter(|(field, ..)| *field == 4);
        let last = lines.next_back().map(|(.., line)| (part(line, 1), part(line, 2)));
        (part(of, 1), last.unwrap_or_default())
    };
    let places: HashMap<u64, (u64, u64)> = of(4).map(|(.., of)| place(of)).collect();
    let mut edges = Vec::new();
    for (.., sample) in of(2) {
        let mut ids = fields(sample).into_iter().find(|(field, ..)| *field == 1).unwrap().2;
        let callee = number(&mut ids);
        if ids.is_empty() {
            continue;
        }
        let call = number(&mut ids);
        let name = |id: u64| functions.get(&places[&id].0).copied();
        if let (Some((callee, start)), Some((caller, from))) = (name(callee), name(call)) {
            edges.push((caller, places[&call].1 - from, callee, start));
        }
    }
    // calls.c: main is in line 41 and calls pick of line 25 in line 47; three calls itself.
    for edge in [("main", 6, "pick", 25), ("three", 1, "three", 21), ("pick", 4, "two", 12)] {
        assert!(edges.contains(&edge), "{edge:?} in {edges:?}");
    }
}

/// Branches from `main` of a program to a library that is missing, and one back to `pick`: each end
/// has its own names. Fields by profile.proto.
#[test]
fn each_end_has_its_own_file_function_and_line() {
    const LIBRARY: &str = "/nowhere/libother.so";
    const AT: u64 = 0x7f31_4000_0000;
    let flags = ["-O0", "-g", "-no-pie", "-Wl,--build-id=0x0123456789abcdef"];
    let Some(program) = build("calls.c", &flags) else { return };
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("perf.data");
    let file = std::fs::File::create(&input).unwrap();
    let mut writer = Writer::new(file, meta(Source::Hardware)).unwrap();
    let map = |addr, path: &str, build_id: &[u8]| {
        let Event::Mmap(mut map) = mapping(7, addr, 0x10000, 0, path) else { unreachable!() };
        map.build_id = Some(build_id.to_vec());
        Event::Mmap(map)
    };
    // It is linked at 0x400000.
    let own = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
    writer.event(&map(0x40_0000, program.name(), &own)).unwrap();
    writer.event(&map(AT, LIBRARY, &[0xfe; 8])).unwrap();
    let [main, pick] = ["main", "pick"].map(|name| program.at(name));
    let entry =
        |from, to, mispredicted| BranchEntry { from, to, mispredicted, ..BranchEntry::default() };
    let out = |mispredicted| entry(main, AT + 0x10, mispredicted);
    let entries = vec![entry(AT + 0x20, pick, None), out(None), out(Some(true)), out(Some(false))];
    let sample = Sample {
        arguments: None,
        time: 1,
        pid: 7,
        tid: 7,
        cpu: 0,
        ip: pick,
        period: 1,
        stack: BranchStack { entries, integrity: Integrity::UNKNOWN, moves: Vec::new() },
    };
    writer.event(&Event::Sample(sample)).unwrap();
    writer.finish_file().unwrap();

    let bytes = export(&input, "pprof");
    let all = fields(&bytes);
    let of = |wanted: u64| all.iter().filter(move |(field, ..)| *field == wanted);
    let texts: Vec<&str> = of(6).map(|(.., text)| std::str::from_utf8(text).unwrap()).collect();
    let value = |message: &[u8], wanted| {
        let found = fields(message).into_iter().find(|(field, ..)| *field == wanted);
        found.map_or(0, |(_, value, _)| value)
    };
    let text = |message: &[u8], wanted| texts[value(message, wanted) as usize];
    let types: Vec<_> = of(1).map(|(.., of)| (text(of, 1), text(of, 2))).collect();
    let names = ["branches", "mispredicted", "predictions_known"];
    assert_eq!(types, names.map(|name| (name, "count")));
    assert_eq!(texts[of(14).next().unwrap().1 as usize], "branches");
    let values = |(.., sample): &(u64, u64, &[u8])| {
        let (.., mut packed) = fields(sample).into_iter().find(|(field, ..)| *field == 2).unwrap();
        [(); 3].map(|()| number(&mut packed))
    };
    assert_eq!(of(2).map(values).collect::<Vec<_>>(), [[3, 1, 2], [1, 0, 0]]);
    let mappings: Vec<_> = of(3).map(|(.., of)| (text(of, 5), text(of, 6))).collect();
    let expected = [(program.name(), "0123456789abcdef"), (LIBRARY, "fefefefefefefefe")];
    assert_eq!(mappings, expected);
    let functions: Vec<_> = of(5).map(|(.., of)| [2, 3, 4].map(|field| text(of, field))).collect();
    let [[name, linked, file]] = functions[..] else { panic!("{functions:?}") };
    assert_eq!((name, linked), ("main", "main"));
    assert!(file.ends_with("/calls.c"), "{file}");
    let (.., location) = of(4).next().unwrap();
    let (.., line) = fields(location).into_iter().find(|(field, ..)| *field == 4).unwrap();
    assert_eq!(value(line, 2), 41);

    let rows = json_lines(&lbr(&["export", "--to", "jsonl:edges", "-i", input.to_str().unwrap()]));
    let end = |row: &Value, end: &str| {
        let field = |name: &str| row[format!("{end}_{name}")].clone();
        let line = field("line").as_str().map(|line| line.rsplit('/').next().unwrap().to_owned());
        (field("build_id"), field("file"), field("offset"), field("symbol"), line)
    };
    let program = |offset: u64, symbol: &str, line: &str| {
        let file = Value::from(program.name());
        ("0123456789abcdef".into(), file, offset.into(), symbol.into(), Some(line.to_owned()))
    };
    let library =
        |offset: u64| ("fefefefefefefefe".into(), LIBRARY.into(), offset.into(), Value::Null, None);
    let found: Vec<_> = rows.iter().map(|row| (end(row, "from"), end(row, "to"))).collect();
    let expected = [
        (program(main - 0x40_0000, "main", "calls.c:41"), library(0x10)),
        (library(0x20), program(pick - 0x40_0000, "pick", "calls.c:25")),
    ];
    assert_eq!(found, expected);
}
