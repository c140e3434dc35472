//! Any line of text. What is parsed prints as text that parses to the same,
//! and the fast way to read an entry reads what the general one reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::brstack::{Line, Printed, parse_entry, parse_line};

/// Entries with a path are none for the fast way; an empty one says nothing.
fn both_ways(text: &[u8]) {
    let Some(digits) = text.strip_prefix(b"0x") else { return };
    let end = digits.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(digits.len());
    let (from, behind) = text.split_at(2 + end);
    if behind.first() != Some(&b'(') {
        assert_eq!(parse_entry(text), parse_entry(&[from, b"()", behind].concat()));
    }
}

fuzz_target!(|line: &[u8]| {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    for word in words {
        both_ways(word);
        both_ways(&[word, b" 0x1/0x2"].concat());
    }
    let mut entries = Vec::new();
    let Ok(Line::Sample(_)) = parse_line(line, &mut entries) else { return };
    let text: String = entries.iter().map(|entry| format!(" {} ", Printed(*entry))).collect();
    let mut again = Vec::new();
    if parse_line(text.as_bytes(), &mut again).is_ok() {
        assert_eq!(entries, again);
    } else {
        assert!(entries.is_empty());
    }
});
