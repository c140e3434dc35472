//! Any lines of text, after a byte that selects the test. Parsed items print as text that parses to
//! the same items, and the fast parser of entries agrees with the general one. Symbols instead of
//! addresses print as symbols again, and no address represents one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use profile::brstack::{Line, Printed, parse_line};
use profile::hot::Counter;
use profile::names::{Names, Symbols};
use profile::{Item, RawBranch, Recording, Symbol};

/// The line with an empty path after the first address of each entry. It adds no information, and
/// only the general grammar accepts it.
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

/// The name of an end of a branch.
fn place(symbols: &Symbols, number: u64) -> String {
    let Some((symbol, offset)) = symbols.find(number) else { return format!("{number:#x}") };
    let Symbol { name, file, .. } = symbol;
    let file = file.map_or_else(String::new, |file| format!("({file})"));
    match name {
        Some(name) => format!("{name}+{offset:#x}{file}"),
        None => format!("[unknown]{file}"),
    }
}

/// The branches of a text by name, and all of them as text again.
fn by_name(text: &[u8]) -> Option<(Vec<Vec<String>>, String)> {
    let stream = Box::new(std::io::Cursor::new(text.to_vec()));
    let mut recording = Recording::from_stream(stream).ok()?;
    let (mut found, mut printed, mut symbols) = (Vec::new(), String::new(), Symbols::default());
    while let Ok(Some(item)) = recording.next_item() {
        match item {
            Item::Symbol(symbol) => symbols.add(symbol),
            Item::Stack(stack) => {
                let mut branches = Vec::new();
                for branch in stack.entries.iter() {
                    let [from, to] = [branch.from, branch.to].map(|end| place(&symbols, end));
                    let mut fields = Vec::new();
                    Printed(branch).append_fields(&mut fields);
                    branches.push(format!("{from}/{to}{}", String::from_utf8_lossy(&fields)));
                }
                // Spaces of the first name may be confused with the preceding fields.
                let first =
                    branches.first().is_none_or(|first| first.contains(char::is_whitespace));
                if !first {
                    printed += &branches.join(" ");
                    printed.push('\n');
                    found.push(branches);
                }
            }
            Item::Event(_) | Item::Straight(_) | Item::LeftOut => {}
        }
    }
    recording.has_names().then_some((found, printed))
}

/// The samples of a text without an invalid line. Extra space follows it, because the general
/// parser handles the end of a text.
fn samples(text: &[u8]) -> Option<Vec<Vec<RawBranch>>> {
    let text = [b"\n", text, b"\n", &[b' '; 256]].concat();
    let mut recording = Recording::from_stream(Box::new(std::io::Cursor::new(text))).ok()?;
    let mut samples = Vec::new();
    while let Ok(Some(item)) = recording.next_item() {
        if let Item::Stack(stack) = item {
            samples.push(stack.entries.iter().collect());
        }
    }
    recording.refused().is_none().then_some(samples)
}

/// Both parsers of entries. With an invalid line, or with brackets in the text, the inserted paths
/// may turn another line into a sample, or into none.
fn fast_and_general(text: &[u8]) {
    if text.contains(&b'(') {
        return;
    }
    let lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(with_paths).collect();
    if let (Some(fast), Some(general)) = (samples(text), samples(&lines.join(&b'\n'))) {
        assert_eq!(fast, general);
    }
}

fn names(text: &[u8]) {
    let Some((found, printed)) = by_name(text) else { return };
    // Text that was corrected during parsing may contain other names, and without any name it is
    // another kind of text.
    if text.is_ascii()
        && let Some((again, _)) = by_name(printed.as_bytes())
    {
        assert_eq!(found, again, "{printed}");
    }
}

fn counted(text: &[u8]) {
    let mut counter = Counter::default();
    let stream = Box::new(std::io::Cursor::new(text.to_vec()));
    if let Ok(mut recording) = Recording::from_stream(stream)
        && counter.recording(&mut recording, |_, _| {}).is_ok()
    {
        for branch in counter.finish().branches {
            std::hint::black_box(branch.from_location);
        }
    }
}

fn one_line(line: &[u8]) {
    let mut entries = Vec::new();
    let mut names = Names::default();
    let Ok(Line::Sample(_)) = parse_line(line, &mut entries, &mut names) else { return };
    if !names.is_empty() {
        return;
    }
    let text: String = entries.iter().map(|entry| format!(" {} ", Printed(*entry))).collect();
    let mut again = Vec::new();
    if parse_line(text.as_bytes(), &mut again, &mut names).is_ok() {
        assert_eq!(entries, again);
    } else {
        assert!(entries.is_empty());
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&option, text)) = bytes.split_first() else { return };
    match option % 4 {
        0 => fast_and_general(text),
        1 => names(text),
        2 => counted(text),
        _ => one_line(text),
    }
});
