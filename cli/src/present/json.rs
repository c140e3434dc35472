//! JSON Lines.

use std::io::{self, Write};

use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::ser::{CompactFormatter, Formatter};

use super::escape::{is_hidden, is_plain};

/// Writes one object as one line, its keys in the order in which they are
/// documented.
pub(crate) fn line(out: &mut impl Write, fields: &[(&str, Value)]) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Escaped);
    serializer.collect_map(fields.iter().map(|(key, value)| (key, value)))?;
    out.write_all(b"\n")
}

/// Writes an object in the syntax of [`serde_json::json`] as one line, its keys in this order.
macro_rules! object {
    ($out:expr, { $($key:literal: $value:expr),* $(,)? }) => {
        $crate::present::json::line($out, &[$(($key, serde_json::json!($value))),*])
    };
}
pub(crate) use object;

/// Writes one value as one line.
pub(crate) fn value(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    write(out, value)?;
    out.write_all(b"\n")
}

pub(crate) fn write(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, Escaped);
    Ok(value.serialize(&mut serializer)?)
}

/// Strings are equal as JSON, but contain no control characters.
struct Escaped;

impl Formatter for Escaped {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        if is_plain(fragment) {
            return out.write_all(fragment.as_bytes());
        }
        let mut from = 0;
        for (at, c) in fragment.char_indices().filter(|(_, c)| is_hidden(*c)) {
            out.write_all(fragment.as_bytes().get(from..at).unwrap_or_default())?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}")?;
            }
            from = at + c.len_utf8();
        }
        CompactFormatter.write_string_fragment(out, fragment.get(from..).unwrap_or_default())
    }
}

/// An address, or any other 64-bit register value.
pub(crate) fn hex(value: u64) -> Value {
    Value::String(format!("{value:#x}"))
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/json.rs"]
mod tests;
