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
mod tests {
    use super::*;

    fn why(parsed: Result<u64>) -> String {
        parsed.expect_err("no number").to_string()
    }

    #[test]
    fn hex_takes_an_optional_prefix_and_nothing_else() {
        for word in ["0x1d9", "0X1D9", "1d9", "00000000000000000001D9"] {
            assert_eq!(hex(word).ok(), Some(0x1D9), "{word}");
        }
        assert_eq!(hex("ffffffffffffffff").ok(), Some(u64::MAX));
        for word in ["", "0x", "+1", "-1", "0x+1", "1g", "1_0", "0x0x1", "é"] {
            assert_eq!(why(hex(word)), format!("{word:?} is not a hexadecimal number"));
        }
        assert_eq!(
            why(hex("10000000000000000")),
            "\"10000000000000000\" does not fit into 64 bits"
        );
    }

    #[test]
    fn a_value_may_be_binary_and_have_underscores() {
        for (word, value) in [("0b1_0110", 22), ("0x3_3c5", 0x33C5), ("0B0", 0), ("0b2", 0xB2)] {
            assert_eq!(number(word).ok(), Some(value), "{word}");
        }
        assert_eq!(number(&format!("0b{}", "1".repeat(64))).ok(), Some(u64::MAX));
        assert!(why(number(&format!("0b{}", "1".repeat(65)))).ends_with("64 bits"));
        for word in ["_", "", "0x_", "0x"] {
            assert!(number(word).is_err(), "{word}");
        }
    }

    #[test]
    fn a_long_word_is_not_repeated_whole() {
        let message = why(hex(&"é".repeat(10_000)));
        assert_eq!(message, format!("\"{}\"... is not a hexadecimal number", "é".repeat(40)));
        let message = why(hex(&"f".repeat(40)));
        assert_eq!(message, format!("\"{}\" does not fit into 64 bits", "f".repeat(40)));
    }
}
