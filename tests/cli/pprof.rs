//! pprof's format, taken apart by hand.

use std::collections::HashMap;
use std::io::Read as _;

use crate::support::lbr::{done, traced};
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
    let out = dir.path().join("go.pprof");
    let [input, file] = [&input, &out].map(|path| path.to_str().unwrap());
    done(&["export", "--to", "pprof:go", "-i", input, "-o", file]);
    let mut bytes = Vec::new();
    let packed = std::fs::File::open(&out).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
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
