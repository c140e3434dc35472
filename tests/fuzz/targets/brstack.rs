//! Any line of text. What is parsed prints as text that parses to the same,
//! and the fast way to read entries reads what the general one reads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::brstack::{Line, Printed, parse_line};
use profile::{Item, RawBranch, Recording};

/// The line with an empty path behind the first address of each entry, which
/// says nothing, and which only the general grammar reads.
fn with_paths(line: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for word in line.split_inclusive(u8::is_ascii_whitespace) {
        let digits = word.strip_prefix(b"0x").unwrap_or_default();
        let len = digits.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let is_entry = (1..=16).contains(&len) && digits.get(len) == Some(&b'/');
        let (address, behind) = word.split_at(if is_entry { 2 + len } else { 0 });
        all.extend_from_slice(address);
        all.extend_from_slice(if is_entry { b"()" } else { b"" });
        all.extend_from_slice(behind);
    }
    all
}

/// The samples of a text, and its first bad line. There is room behind it:
/// near its end a text is read the general way.
fn samples(text: &[u8]) -> (Vec<Vec<RawBranch>>, Option<(u64, String)>) {
    let text = [b"\n", text, b"\n", &[b' '; 256]].concat();
    let stream = Box::new(std::io::Cursor::new(text));
    let Ok(mut recording) = Recording::from_stream(stream) else { return Default::default() };
    let mut samples = Vec::new();
    while let Ok(Some(item)) = recording.next_item() {
        if let Item::Stack(stack) = item {
            samples.push(stack.entries.iter().collect());
        }
    }
    (samples, recording.refused().map(|refused| (refused.first, refused.error.to_string())))
}

fuzz_target!(|line: &[u8]| {
    let lines: Vec<Vec<u8>> = line.split(|byte| *byte == b'\n').map(with_paths).collect();
    assert_eq!(samples(line), samples(&lines.join(&b'\n')));
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
