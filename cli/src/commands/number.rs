//! Parses numbers: hexadecimal, with or without `0x`; a single value also as binary, `0b`, and with
//! `_` between digits.

use anyhow::{Result, anyhow, ensure};

/// A word in quotation marks, control characters escaped; of a long one the
/// beginning.
fn quoted(word: &str) -> String {
    const SHOWN: usize = 40;
    match word.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", word.get(..end).unwrap_or_default()),
        None => format!("{word:?}"),
    }
}

/// The value of a hexadecimal word.
pub(crate) fn hex(word: &str) -> Result<u64> {
    value(word, word)
}

/// The value of a word: binary after `0b`, otherwise hexadecimal; `_` between digits is ignored.
pub(crate) fn number(word: &str) -> Result<u64> {
    let plain = word.replace('_', "");
    let binary = plain.strip_prefix("0b").or_else(|| plain.strip_prefix("0B"));
    match binary.filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b"01".contains(&b))) {
        Some(digits) => in_base(digits, 2, word),
        None => value(&plain, word),
    }
}

/// The value of hexadecimal digits after an optional `0x`, typed as `word`.
fn value(plain: &str, word: &str) -> Result<u64> {
    let digits = plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")).unwrap_or(plain);
    // `from_str_radix` would take a sign.
    let is_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    ensure!(is_hex, "{} is not a hexadecimal number", quoted(word));
    in_base(digits, 16, word)
}

/// The value of digits of a base.
fn in_base(digits: &str, base: u32, word: &str) -> Result<u64> {
    u64::from_str_radix(digits, base)
        .map_err(|_| anyhow!("{} does not fit into 64 bits", quoted(word)))
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/commands/number.rs"]
mod tests;
