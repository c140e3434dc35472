//! Numbers out of text, eight and sixteen digits at a time.
#![allow(unsafe_code, reason = "vector instructions count as unsafe wherever they are called")]

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

/// Sixteen bytes of text: the digits as a number, as if all of them were
/// digits, and how many from the first on are.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn hex_16(bytes: [u8; 16]) -> (u64, u32) {
    // SAFETY: every x86-64 has SSE2, and nothing else is asked of the caller.
    unsafe { hex_16_vector(bytes) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
#[inline]
fn hex_16_vector(bytes: [u8; 16]) -> (u64, u32) {
    use core::arch::x86_64::{
        __m128i, _mm_add_epi8, _mm_and_si128, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cvtsi128_si64,
        _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_packus_epi16, _mm_set_epi64x,
        _mm_set1_epi8, _mm_set1_epi16, _mm_slli_epi16, _mm_srli_epi16, _mm_sub_epi8,
    };
    let all = u128::from_le_bytes(bytes);
    let text = _mm_set_epi64x((all >> 64) as i64, all as i64);
    let each = |byte: u8| _mm_set1_epi8(byte as i8);
    let up_to = |value: __m128i, most| _mm_cmpeq_epi8(_mm_min_epu8(value, each(most)), value);
    let decimal = _mm_sub_epi8(text, each(b'0'));
    let letter = _mm_sub_epi8(_mm_or_si128(text, each(0x20)), each(b'a'));
    let (is_decimal, is_letter) = (up_to(decimal, 9), up_to(letter, 5));
    let digits = _mm_movemask_epi8(_mm_or_si128(is_decimal, is_letter)) as u32;
    let values = _mm_or_si128(
        _mm_and_si128(is_decimal, decimal),
        _mm_andnot_si128(is_decimal, _mm_and_si128(_mm_add_epi8(letter, each(10)), each(0x0F))),
    );
    // Two digits to a byte, the first of them above.
    let pairs = _mm_or_si128(_mm_slli_epi16::<4>(values), _mm_srli_epi16::<8>(values));
    let pairs = _mm_and_si128(pairs, _mm_set1_epi16(0xFF));
    let value = _mm_cvtsi128_si64(_mm_packus_epi16(pairs, pairs)) as u64;
    (value.swap_bytes(), digits.trailing_ones())
}

/// As above, a word at a time.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn hex_16(bytes: [u8; 16]) -> (u64, u32) {
    let half = |word: u64| {
        let lower = word | each(0x20);
        let letters = within(lower, b'a', b'g') & within(word, b'A', b'g');
        let marked = letters | within(word, b'0', b'9' + 1);
        // Letters are 9 above the low half of their codes.
        let nibbles = (word & each(0x0F)) + 9 * (word >> 6 & each(1));
        let pairs = (nibbles << 4 | nibbles >> 8) & 0x00FF_00FF_00FF_00FF;
        let quads = (pairs << 8 | pairs >> 16) & 0x0000_FFFF_0000_FFFF;
        ((quads << 16 | quads >> 32) & 0xFFFF_FFFF, (!marked & TOP).trailing_zeros() / 8)
    };
    let all = u128::from_le_bytes(bytes);
    let (first, second) = (half(all as u64), half((all >> 64) as u64));
    (first.0 << 32 | second.0, if first.1 < 8 { first.1 } else { 8 + second.1 })
}

/// The hexadecimal digits that `text` begins with: value, number. More than
/// 16 digits count as 17.
#[inline(always)]
pub(super) fn hex(text: &[u8]) -> (u64, usize) {
    let Some((first, rest)) = text.split_first_chunk::<16>() else { return hex_slowly(text) };
    let (value, count) = hex_16(*first);
    match count {
        0 => (0, 0),
        16 => (value, 16 + usize::from(rest.first().is_some_and(u8::is_ascii_hexdigit))),
        count => (value >> (64 - 4 * count), count as usize),
    }
}

/// As [`hex`], near the end of a line.
#[cold]
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

/// The first eight bytes of a text as a word, the first lowest; zeros where
/// it is shorter.
#[inline(always)]
pub(super) fn word(text: &[u8]) -> u64 {
    #[cold]
    fn short(text: &[u8]) -> u64 {
        text.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
    }
    text.first_chunk().map_or_else(|| short(text), |bytes| u64::from_le_bytes(*bytes))
}

/// The decimal digits that a [`word`] begins with: value, number. `None` where
/// all eight are.
#[inline(always)]
pub(super) fn decimal_7(word: u64) -> Option<(u32, usize)> {
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
    use super::{decimal_7, hex, hex_slowly, word};

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
        assert_eq!(decimal_7(word(b"65535/COND")), Some((65_535, 5)));
        assert_eq!(decimal_7(word(b"1234567/")), Some((1_234_567, 7)));
        assert_eq!(decimal_7(word(b"0//-    ")), Some((0, 1)));
        assert_eq!(decimal_7(word(b"/COND/- ")), Some((0, 0)));
        assert_eq!(decimal_7(word(b"12345678")), None);
        assert_eq!(decimal_7(word(b"1234567")), Some((1_234_567, 7)));
        assert_eq!(decimal_7(word(b"31")), Some((31, 2)));
        assert_eq!(decimal_7(word(b"")), Some((0, 0)));
    }
}
