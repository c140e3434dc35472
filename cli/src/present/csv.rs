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
#[path = "../../../tests/cli/unit/present/csv.rs"]
mod tests;
