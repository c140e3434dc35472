//! Base-128 numbers: seven bits a byte, the lowest first; the top bit marks continuation.

/// Appends a number.
#[inline]
pub(crate) fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7F {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The number at the start of `bytes`.
#[inline]
pub(crate) fn take(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    let mut value = 0;
    for (byte, shift) in bytes.zip((0..u64::BITS).step_by(7)) {
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

#[cfg(test)]
#[path = "../../tests/profile/unit/varint.rs"]
mod tests;
