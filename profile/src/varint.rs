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
mod tests {
    #[test]
    fn numbers_of_each_length() {
        // The example of Protocol Buffers' documentation, "Base 128 Varints".
        let mut bytes = Vec::new();
        super::push(&mut bytes, 150);
        assert_eq!(bytes, [0x96, 0x01]);
        for number in [0, 0x7F, 0x80, 0x3FFF, 0x4000, u64::MAX] {
            let mut bytes = Vec::new();
            super::push(&mut bytes, number);
            assert_eq!(super::take(&mut bytes.into_iter()), number);
        }
    }
}
