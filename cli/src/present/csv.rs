//! Writes comma-separated values (RFC 4180).
//!
//! Spreadsheets take text that starts with `=`, `+`, `-`, `@`, a tab or a line
//! end for a formula, and symbols of a hostile program can start so. Such a cell
//! gets a leading apostrophe and quotes, as OWASP recommends ("CSV Injection").

use std::io::{self, Write};

use super::escape::escaped;

/// Writes a line of cells.
pub(crate) fn write<T: AsRef<str>>(
    out: &mut impl Write,
    cells: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    let mut line = String::new();
    for (at, cell) in cells.into_iter().enumerate() {
        if at > 0 {
            line.push(',');
        }
        push(&mut line, cell.as_ref());
    }
    line.push('\n');
    out.write_all(line.as_bytes())
}

fn push(line: &mut String, cell: &str) {
    let text = escaped(cell);
    let guarded = is_formula(cell);
    if !guarded && !text.contains([',', '"']) {
        line.push_str(&text);
        return;
    }
    line.push('"');
    if guarded {
        line.push('\'');
    }
    line.push_str(&text.replace('"', "\"\""));
    line.push('"');
}

/// Whether a spreadsheet may interpret a cell as a formula. Numbers are safe.
fn is_formula(cell: &str) -> bool {
    let starts = cell.starts_with([
        '=', '+', '-', '@', '\t', '\r', '\n', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}',
    ]);
    starts && !is_number(cell)
}

/// A decimal number; `inf` and `nan`, which Rust parses too, are not.
fn is_number(cell: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    cell.bytes().all(is_part) && cell.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn formulas_are_guarded_and_numbers_are_not() {
        for (cell, written) in [
            ("=cmd|calc!A0", "\"'=cmd|calc!A0\""),
            ("@SUM(1,2)", "\"'@SUM(1,2)\""),
            ("-1+1", "\"'-1+1\""),
            ("+a", "\"'+a\""),
            ("-", "\"'-\""),
            ("-inf", "\"'-inf\""),
            ("=\"a\"", "\"'=\"\"a\"\"\""),
            ("\t=1", "\"'\\t=1\""),
            ("\r=1", "\"'\\r=1\""),
            ("\u{ff1d}1", "\"'\u{ff1d}1\""),
            ("-5", "-5"),
            ("+3.2e4", "+3.2e4"),
            ("-0.5", "-0.5"),
            ("a=b", "a=b"),
            ("f(int, char)", "\"f(int, char)\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("a\nb", "a\\nb"),
            ("", ""),
        ] {
            let mut line = Vec::new();
            super::write(&mut line, [cell, "0"]).expect("memory takes it");
            assert_eq!(String::from_utf8_lossy(&line), format!("{written},0\n"));
        }
    }
}
