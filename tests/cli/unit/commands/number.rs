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
    assert_eq!(why(hex("10000000000000000")), "\"10000000000000000\" does not fit into 64 bits");
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
