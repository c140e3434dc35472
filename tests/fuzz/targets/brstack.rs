//! Any line of text. What is parsed prints as text that parses to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::brstack::{Line, Printed, parse_line};

fuzz_target!(|line: &[u8]| {
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
