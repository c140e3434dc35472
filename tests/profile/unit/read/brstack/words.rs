use super::{append_decimal, append_hex, flags, hex_slowly, leading_hex as hex, tod};

/// `perf script --ns` prints nine digits.
#[test]
fn dates_have_a_fraction_of_six_or_nine_digits() {
    let of = |fraction: &str| tod(format!("2024-05-01 12:00:00.{fraction}").as_bytes());
    assert_eq!([of("123456 1.0: "), of("123456789 1.0: ")], [Some(27), Some(30)]);
    assert_eq!([of("1234567 "), of("123456"), of("12345 ")], [None; 3]);
    assert_eq!(tod(b"2024/05/01 12:00:00.123456 "), None);
}

/// perf prints `  %-21s `; before 5.12, `  %-11s `. A sample of another kind has spaces only.
#[test]
fn the_type_of_a_branch_is_in_a_column() {
    let column = |word: &str, width: usize| format!("  {word:<width$} ");
    let widths =
        [21, 11].map(|width| ["jcc", "", " jcc"].map(|word| flags(column(word, width).as_bytes())));
    assert_eq!(widths, [24, 14].map(|width| [Some(width), Some(width), None]));
}

#[test]
fn numbers_are_printed_as_others_print_them() {
    let numbers =
        (0..64).flat_map(|bit| [1u64 << bit, u64::MAX >> bit, 0xFEDC_BA98_7654_3210 >> bit]);
    for number in numbers.chain([0, 9, 10, 99, 100, 65_535]) {
        let mut text = Vec::new();
        append_hex(&mut text, number);
        text.push(b' ');
        append_decimal(&mut text, number as u32);
        let expected = format!("{number:x} {}", number as u32);
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }
}

#[test]
fn every_byte_ends_a_number_or_is_a_digit() {
    for byte in 0..=255u8 {
        for len in 0..=17 {
            let mut text = vec![b'1'; len];
            text.push(byte);
            text.extend_from_slice(b"/0x12345678");
            let expected = hex_slowly(&text);
            let found = hex(&text);
            assert_eq!(found.1, expected.1, "{len} digits, then byte {byte:#x}");
            assert_eq!(expected.1 > len, byte.is_ascii_hexdigit() && len < 17);
            // Seventeen digits have no value.
            assert!(found.1 == 17 || found.0 == expected.0, "{len}, {byte:#x}");
        }
    }
}

#[test]
fn numbers_have_their_value() {
    assert_eq!(hex(b"7fffdeadBEEF/0x1"), (0x7FFF_DEAD_BEEF, 12));
    assert_eq!(hex(b"ffffffff9c00ab1f/P/-"), (0xFFFF_FFFF_9C00_AB1F, 16));
    assert_eq!(hex(b"0/0x0000000000000"), (0, 1));
}
