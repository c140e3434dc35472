//! Escapes foreign text: names of functions, files, threads, events and CPUs, and errors that quote
//! them. Control characters would control the terminal, line ends would forge rows, and direction
//! marks and zero-width characters make a name look like another.

use std::borrow::Cow;
use std::fmt::Write;

/// Text with every character escaped that does not show: `\x1b`, `\n`,
/// `\u{202e}`.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if is_plain(text) || !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => shown.extend(c.escape_default()),
            c if !is_hidden(c) => shown.push(c),
            // Writing to a String cannot fail.
            c if u32::from(c) < 0x100 => drop(write!(shown, "\\x{:02x}", u32::from(c))),
            c => shown.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

/// As `escaped`, for each line: line ends are kept.
pub(crate) fn escaped_lines(text: &str) -> String {
    let shown = |line: &str| {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        escaped(line).into_owned() + end
    };
    text.split_inclusive('\n').map(shown).collect()
}

/// Whether it is printable ASCII, as most text is.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// Whether a character is invisible: C0, DEL and C1, line ends, direction marks, zero-width
/// characters, tags, and unassigned ones.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}'
            | '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{3164}' | '\u{FEFF}' | '\u{FFA0}'
            | '\u{FFF0}'..='\u{FFFB}' | '\u{FFFE}' | '\u{FFFF}' | '\u{E0000}'..='\u{E0FFF}')
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/escape.rs"]
mod tests;
