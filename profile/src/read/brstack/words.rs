//! Words and numbers of a line. Numbers are parsed and printed eight digits at a time.

/// The width of perf's column of an address, with the space before it.
pub(super) const IP_WIDTH: usize = 17;

pub(super) fn first_word_is(text: &[u8], is: impl Fn(&[u8]) -> bool) -> bool {
    text.split(|byte| *byte == b' ').next().is_some_and(is)
}

/// The name of an event, and its length including the colon and space.
pub(super) fn events(rest: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    const TRIED: usize = 4;
    let ends = memchr::memchr_iter(b':', rest);
    let ends = ends.filter(|at| rest.get(at + 1).is_none_or(|byte| *byte == b' '));
    ends.take(TRIED).filter_map(|at| {
        let name = rest.get(..at)?.trim_ascii_start();
        // perf's texts for events without a name.
        let nameless = name.starts_with(b"raw ")
            || name.starts_with(b"unknown attr type")
            || name == b"unknown tracepoint";
        let is_name = !name.is_empty()
            && (nameless || !name.iter().any(u8::is_ascii_whitespace))
            && seconds(name).is_none()
            && name != b"-";
        is_name.then_some((name, (at + 2).min(rest.len())))
    })
}

/// The first word of a text after spaces, and the width of both.
pub(super) fn word(text: &[u8]) -> Option<(&[u8], usize)> {
    let start = text.iter().position(|byte| *byte != b' ')?;
    let rest = text.get(start..)?;
    let len = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    Some((rest.get(..len)?, start + len))
}

/// `2024-05-01 12:00:00.123456 `.
pub(super) fn tod(text: &[u8]) -> Option<usize> {
    const SHAPE: &[u8] = b"0000-00-00 00:00:00.";
    let begins = SHAPE.iter().zip(text).all(|(shape, byte)| match shape {
        b'0' => byte.is_ascii_digit(),
        other => byte == other,
    });
    let digits = text.get(SHAPE.len()..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = SHAPE.len() + digits;
    (begins && matches!(digits, 6 | 9) && text.get(end) == Some(&b' ')).then_some(end + 1)
}

/// The type of the sampled branch in processor traces: two spaces, one or two words in 21 columns
/// (11 up to 5.11), a space. perf 6.15 and later add events: `jcc/miss,not_taken/`.
pub(super) fn flags(text: &[u8]) -> Option<usize> {
    [24, 14].into_iter().find(|width| {
        let column = text.get(..*width).and_then(|column| column.strip_prefix(b"  "));
        let inside = column.and_then(|column| column.strip_suffix(b" "));
        inside.is_some_and(|inside| {
            let is_word = |byte: &u8| byte.is_ascii_alphabetic() || b" ()/,_".contains(byte);
            inside.iter().all(is_word)
                && (inside.first() != Some(&b' ') || inside.trim_ascii().is_empty())
        })
    })
}

/// Adjacent 16-column numbers, and perf's description of data sources (`|OP LOAD|LVL L1 hit|…`).
pub(super) fn wide(text: &[u8]) -> Option<usize> {
    let mut len = 0;
    while let Some(column) = text.get(len..len + 16)
        && is_hex(column.trim_ascii_start())
    {
        len += 16;
    }
    if let Some(words) = text.get(len..).and_then(|rest| rest.strip_prefix(b" |OP ")) {
        let last = memchr::memrchr(b'|', words).map_or(words.len(), |at| {
            // The last part has capitalized words: `|LCK No`, and from 5.12 on `|BLK  Data Addr`.
            let values = at + b"|BLK ".len();
            let rest = words.get(values..).unwrap_or_default();
            let is_end = |two: &[u8]| matches!(two, [b' ', next] if !next.is_ascii_uppercase());
            values + rest.windows(2).position(is_end).unwrap_or(rest.len())
        });
        len += b" |OP ".len() + last;
        // The padding belongs to the description: the next number is aligned in its own column.
        let padded = text.get(len..).unwrap_or_default();
        let number = padded.trim_ascii_start();
        let digits = number.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        len += (padded.len() - number.len() + digits).saturating_sub(IP_WIDTH);
    }
    let is_end = text.get(len).is_none_or(|byte| *byte == b' ');
    (len > 0 && is_end).then_some(len)
}

pub(super) fn is_hex(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

/// The words of a text.
pub(super) fn not_empty(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A text of 1 to 16 hexadecimal digits.
pub(super) fn hex(digits: &[u8]) -> Option<u64> {
    let (value, count) = leading_hex(digits);
    (count == digits.len() && (1..=16).contains(&count)).then_some(value)
}

/// A process or thread number; -1 is the kernel's.
pub(super) fn id(digits: &[u8]) -> Option<u32> {
    match digits {
        b"-1" => Some(u32::MAX),
        digits => u32::try_from(decimal(digits)?).ok(),
    }
}

/// Whether a line has the time of a sample or other event.
pub(crate) fn has_time(line: &[u8]) -> bool {
    not_empty(line).any(|word| word.strip_suffix(b":").is_some_and(|time| seconds(time).is_some()))
}

/// `174024.746063` in nanoseconds.
pub(crate) fn seconds(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = text.split_at_checked(memchr::memchr(b'.', text)?)?;
    let fraction = fraction.get(1..)?;
    let digits = u32::try_from(fraction.len()).ok().filter(|len| (1..=9).contains(len))?;
    let nanos = decimal(fraction)?.checked_mul(10u64.pow(9 - digits))?;
    decimal(whole)?.checked_mul(1_000_000_000)?.checked_add(nanos)
}

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
pub(super) fn leading_hex(text: &[u8]) -> (u64, usize) {
    let Some((first, rest)) = text.split_first_chunk::<16>() else { return hex_slowly(text) };
    let (value, digits) = hex_16(first);
    match digits.trailing_ones() {
        0 => (0, 0),
        16 => (value, 16 + usize::from(rest.first().is_some_and(u8::is_ascii_hexdigit))),
        count => (value >> (64 - 4 * count), count as usize),
    }
}

/// As [`leading_hex`], for the end of a line.
fn hex_slowly(text: &[u8]) -> (u64, usize) {
    let count = text.iter().take(17).take_while(|byte| byte.is_ascii_hexdigit()).count();
    let digits = text.get(..count).and_then(|digits| str::from_utf8(digits).ok());
    (digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0), count)
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
#[path = "../../../../tests/profile/unit/read/brstack/words.rs"]
mod tests;
