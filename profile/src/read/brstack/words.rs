//! Words in the columns before the branches.

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
        let nameless = name.starts_with(b"raw ") || name.starts_with(b"unknown attr type");
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
    if len > 0
        && let Some(words) = text.get(len..).and_then(|rest| rest.strip_prefix(b" |OP "))
    {
        let last = memchr::memrchr(b'|', words).map_or(words.len(), |at| {
            let rest = words.get(at..).unwrap_or_default();
            at + rest.windows(2).position(|two| two == b"  ").unwrap_or(rest.len())
        });
        len += b" |OP ".len() + last;
    }
    let is_end = text.get(len).is_none_or(|byte| *byte == b' ');
    (len > 0 && is_end).then_some(len)
}

pub(super) fn is_hex(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

pub(super) fn hex(digits: &[u8]) -> Option<u64> {
    let (value, count) = super::digits::hex(digits);
    (count == digits.len() && (1..=16).contains(&count)).then_some(value)
}

pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    super::digits::decimal(digits)
}

pub(super) fn is_id(digits: &[u8]) -> bool {
    id(digits).is_some()
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
    let mut words = line.split(u8::is_ascii_whitespace);
    words.any(|word| word.strip_suffix(b":").is_some_and(|time| seconds(time).is_some()))
}

/// `174024.746063` in nanoseconds.
pub(super) fn seconds(text: &[u8]) -> Option<u64> {
    let point = memchr::memchr(b'.', text)?;
    let (whole, fraction) = text.split_at_checked(point)?;
    let fraction = fraction.get(1..)?;
    let digits = u32::try_from(fraction.len()).ok().filter(|len| (1..=9).contains(len))?;
    let nanos = decimal(fraction)?.checked_mul(10u64.pow(9 - digits))?;
    decimal(whole)?.checked_mul(1_000_000_000)?.checked_add(nanos)
}
