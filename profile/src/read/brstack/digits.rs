//! Parses and prints numbers, eight digits at a time.

/// A word with the same byte in every position.
pub(super) const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const TOP: u64 = each(0x80);

/// The top bit of every byte that is at least `low` and below `high`; both are below 128.
#[inline(always)]
const fn within(word: u64, low: u8, high: u8) -> u64 {
    let seven = word & !TOP;
    let from_low = seven.wrapping_add(each(0x80 - low));
    let from_high = seven.wrapping_add(each(0x80 - high));
    from_low & !from_high & !word & TOP
}

/// Gathers the top bits of the bytes, the first byte's lowest.
#[inline(always)]
const fn gathered(tops: u64) -> u64 {
    (tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Eight bytes of text as a hexadecimal number, as if all were digits, and a bitmap of those that
/// are.
#[inline(always)]
const fn hex_8(word: u64) -> (u64, u64) {
    let letters = within(word | each(0x20), b'a', b'g') & within(word, b'A', b'g');
    let digits = letters | within(word, b'0', b'9' + 1);
    // Letters are 9 above the low half of their codes.
    let nibbles =
        (word & each(0x0F)).wrapping_add((word >> 6 & each(1)).wrapping_mul(9)) & each(0x0F);
    let pairs = (nibbles << 4 | nibbles >> 8) & 0x00FF_00FF_00FF_00FF;
    let quads = (pairs << 8 | pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    ((quads << 16 | quads >> 32) & 0xFFFF_FFFF, gathered(digits))
}

#[inline(always)]
fn hex_16(bytes: &[u8; 16]) -> (u64, u32) {
    let all = u128::from_le_bytes(*bytes);
    let (first, second) = (hex_8(all as u64), hex_8((all >> 64) as u64));
    (first.0 << 32 | second.0, (first.1 | second.1 << 8) as u32)
}

/// A bitmap of the bytes that are a slash or space. Other control characters count as spaces.
#[inline(always)]
pub(super) fn ends(text: &[u8; 64]) -> u64 {
    let (words, _) = text.as_chunks::<8>();
    words.iter().rev().fold(0, |bits, word| {
        let word = u64::from_le_bytes(*word);
        let ends = within(word, b'/', b'/' + 1) | within(word, 0, b' ' + 1);
        bits << 8 | gathered(ends)
    })
}

/// Two texts as hexadecimal numbers of 16 digits, as if every byte were a digit, and a bitmap of
/// the bytes that are.
#[inline(always)]
pub(super) fn hex_pair(first: &[u8; 16], second: &[u8; 16]) -> (u64, u64, u32) {
    let (first, second) = (hex_16(first), hex_16(second));
    (first.0, second.0, first.1 | second.1 << 16)
}

/// The leading hexadecimal digits of `text`: value and count. More than 16 digits count as 17.
pub(super) fn hex(text: &[u8]) -> (u64, usize) {
    let Some((first, rest)) = text.split_first_chunk::<16>() else { return hex_slowly(text) };
    let (value, digits) = hex_16(first);
    match digits.trailing_ones() {
        0 => (0, 0),
        16 => (value, 16 + usize::from(rest.first().is_some_and(u8::is_ascii_hexdigit))),
        count => (value >> (64 - 4 * count), count as usize),
    }
}

/// As [`hex`], for the end of a line.
fn hex_slowly(text: &[u8]) -> (u64, usize) {
    let mut value = 0u64;
    let mut count = 0;
    for &b in text.iter().take(17) {
        let digit = match b {
            b'0'..=b'9' => b - b'0',
            b'a'..=b'f' => b - b'a' + 10,
            b'A'..=b'F' => b - b'A' + 10,
            _ => break,
        };
        value = value << 4 | u64::from(digit);
        count += 1;
    }
    (value, count)
}

/// Parses a text of decimal digits only.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// The eight hexadecimal digits of a number, the first in the lowest byte.
#[inline]
const fn hex_digits(number: u32) -> u64 {
    let word = number as u64;
    let word = (word | word << 16) & 0x0000_FFFF_0000_FFFF;
    let word = (word | word << 8) & 0x00FF_00FF_00FF_00FF;
    let nibbles = ((word | word << 4) & each(0x0F)).swap_bytes();
    // Values from ten on carry into the upper half.
    let letters = nibbles.wrapping_add(each(6)) >> 4 & each(1);
    nibbles + each(b'0') + letters * (b'a' - b'0' - 10) as u64
}

/// Appends a number in hexadecimal digits.
#[inline]
pub(super) fn append_hex(text: &mut Vec<u8>, number: u64) {
    let high = u128::from(hex_digits((number >> 32) as u32));
    let low = u128::from(hex_digits(number as u32));
    let digits = (high | low << 64).to_le_bytes();
    let zeros = (number | 1).leading_zeros() as usize / 4;
    text.extend_from_slice(digits.get(zeros..).unwrap_or_default());
}

/// Appends a number in decimal digits.
#[inline]
pub(super) fn append_decimal(text: &mut Vec<u8>, number: u32) {
    let mut digits = [0; 10];
    let mut rest = number;
    let mut first = digits.len();
    for (at, digit) in digits.iter_mut().enumerate().rev() {
        (*digit, first) = (b'0' + (rest % 10) as u8, at);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend_from_slice(digits.get(first..).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::{append_decimal, append_hex, hex, hex_slowly};

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
}
