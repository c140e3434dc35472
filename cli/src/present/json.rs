//! JSON Lines with the keys in the order in which they are documented.

use serde_json::Value;
use std::io::{self, Write};

/// One object, its values being JSON already.
pub(crate) fn object<V: std::fmt::Display>(fields: &[(&str, V)]) -> String {
    let cells: Vec<String> =
        fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
    format!("{{{}}}", cells.join(","))
}

/// Writes one object as one line.
pub(crate) fn line<V: std::fmt::Display>(
    out: &mut impl Write,
    fields: &[(&str, V)],
) -> io::Result<()> {
    writeln!(out, "{}", object(fields))
}

/// An address, or any other 64-bit register value.
pub(crate) fn hex(value: u64) -> Value {
    Value::String(format!("{value:#x}"))
}
