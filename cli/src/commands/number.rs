//! Numbers as people type them: hexadecimal, with or without `0x`.

/// Why a word is not a number.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotHex {
    /// It is empty, or holds something other than hexadecimal digits.
    #[error("{} is not a hexadecimal number", quoted(.0))]
    Digits(String),
    /// It needs more than 64 bits.
    #[error("{} does not fit into 64 bits", quoted(.0))]
    TooLong(String),
}

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
pub(crate) fn hex(word: &str) -> Result<u64, NotHex> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
    // `from_str_radix` would take a sign.
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(NotHex::Digits(word.to_owned()));
    }
    u64::from_str_radix(digits, 16).map_err(|_| NotHex::TooLong(word.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_takes_an_optional_prefix_and_nothing_else() {
        for word in ["0x1d9", "0X1D9", "1d9", "00000000000000000001D9"] {
            assert_eq!(hex(word), Ok(0x1D9), "{word}");
        }
        assert_eq!(hex("ffffffffffffffff"), Ok(u64::MAX));
        for word in ["", "0x", "+1", "-1", "0x+1", "1g", "1_0", "0x0x1", "é"] {
            assert_eq!(hex(word), Err(NotHex::Digits(word.to_owned())), "{word}");
        }
        assert_eq!(hex("10000000000000000"), Err(NotHex::TooLong("10000000000000000".to_owned())));
    }

    #[test]
    fn a_long_word_is_not_repeated_whole() {
        let said = NotHex::Digits("é".repeat(10_000)).to_string();
        assert_eq!(said, format!("\"{}\"... is not a hexadecimal number", "é".repeat(40)));
        let said = NotHex::TooLong("f".repeat(40)).to_string();
        assert_eq!(said, format!("\"{}\" does not fit into 64 bits", "f".repeat(40)));
    }
}
