//! Numbers out of text, eight digits at a time in one word.

/// A byte in every place of a word.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

const TOP: u64 = each(0x80);

/// The top bit of every byte that is at least `low` and below `high`, both
/// below 128.
#[inline(always)]
const fn within(word: u64, low: u8, high: u8) -> u64 {
    let seven = word & !TOP;
    let from_low = seven.wrapping_add(each(0x80 - low));
    let from_high = seven.wrapping_add(each(0x80 - high));
    from_low & !from_high & !word & TOP
}

/// How many bytes from the first on are marked, and the word with them moved
/// to its end, zeros before them.
#[inline(always)]
const fn leading(word: u64, marked: u64) -> (u64, usize) {
    let count = (!marked & TOP).trailing_zeros() as usize / 8;
    match count {
        0 => (0, 0),
        count => (word << (64 - 8 * count), count),
    }
}

/// The hexadecimal digits that `bytes` begins with: their value and number.
#[inline(always)]
fn hex_8(bytes: [u8; 8]) -> (u64, usize) {
    let word = u64::from_le_bytes(bytes);
    let lower = word | each(0x20);
    let letters = within(lower, b'a', b'g') & within(word, b'A', b'g');
    let (word, count) = leading(word, within(word, b'0', b'9' + 1) | letters);
    // Letters are 9 above the low half of their codes.
    let nibbles = (word & each(0x0F)) + 9 * (word >> 6 & each(1));
    let pairs = (nibbles << 4 | nibbles >> 8) & 0x00FF_00FF_00FF_00FF;
    let quads = (pairs << 8 | pairs >> 16) & 0x0000_FFFF_0000_FFFF;
    ((quads << 16 | quads >> 32) & 0xFFFF_FFFF, count)
}

/// The hexadecimal digits that `text` begins with: value, number. More than
/// 16 digits count as 17.
#[inline(always)]
pub(super) fn hex(text: &[u8]) -> (u64, usize) {
    let Some((first, rest)) = text.split_first_chunk::<8>() else { return hex_slowly(text) };
    let (high, count) = hex_8(*first);
    if count < 8 {
        return (high, count);
    }
    let Some((second, rest)) = rest.split_first_chunk::<8>() else { return hex_slowly(text) };
    let (low, count) = hex_8(*second);
    if count == 8 {
        let more = rest.first().is_some_and(u8::is_ascii_hexdigit);
        return (high << 32 | low, 16 + usize::from(more));
    }
    (high << (4 * count) | low, 8 + count)
}

/// As [`hex`], near the end of a line.
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

/// The decimal digits that `text` begins with, up to 7: value, number. `None`
/// where there are fewer than 8 bytes or more digits.
#[inline(always)]
pub(super) fn decimal_7(text: &[u8]) -> Option<(u32, usize)> {
    let word = u64::from_le_bytes(*text.first_chunk::<8>()?);
    let (word, count) = leading(word, within(word, b'0', b'9' + 1));
    if count == 8 {
        return None;
    }
    let digits = word & each(0x0F);
    // Neighbours are joined to numbers of two, four and eight digits.
    let pairs = digits.wrapping_mul(1 + (10 << 8)) >> 8 & 0x00FF_00FF_00FF_00FF;
    let quads = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & 0x0000_FFFF_0000_FFFF;
    let all = quads.wrapping_mul(1 + (10_000 << 32)) >> 32;
    Some((all as u32, count))
}

/// A whole text of decimal digits.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{decimal_7, hex, hex_slowly};

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
        assert_eq!(decimal_7(b"65535/COND"), Some((65_535, 5)));
        assert_eq!(decimal_7(b"1234567/"), Some((1_234_567, 7)));
        assert_eq!(decimal_7(b"0//-    "), Some((0, 1)));
        assert_eq!(decimal_7(b"/COND/- "), Some((0, 0)));
        assert_eq!(decimal_7(b"12345678"), None);
        assert_eq!(decimal_7(b"1234567"), None);
    }
}
