//! Parses numbers and strings in either byte order. Reading past the end returns `None`.

use lbr_msr::text::AsText;
use object::Endian;

/// Byte order of a file.
pub(crate) use object::Endianness as Order;

/// Appends a record, padded to 8 bytes; drops one that is too long.
pub(crate) fn put(to: &mut Vec<u8>, order: Order, (kind, misc): (u32, u16), parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let Ok(size) = u16::try_from(len.next_multiple_of(8) + 8) else { return };
    to.extend_from_slice(&order.write_u32(kind));
    to.extend_from_slice(&order.write_u16(misc));
    to.extend_from_slice(&order.write_u16(size));
    parts.iter().for_each(|part| to.extend_from_slice(part));
    to.resize(to.len() + len.next_multiple_of(8) - len, 0);
}

/// Appends numbers, in reverse for the other byte order.
pub(crate) fn put_words(to: &mut Vec<u8>, order: Order, words: &[u64]) {
    words.iter().for_each(|word| to.extend(order.write_u64(*word)));
}

/// A cursor in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
    order: Order,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(rest: &'a [u8], order: Order) -> Bytes<'a> {
        Bytes { rest, order }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    /// Skips `count` items of `size` bytes.
    pub(crate) fn skip(&mut self, count: u64, size: u64) -> Option<()> {
        let len = usize::try_from(count.checked_mul(size)?).ok()?;
        self.take(len).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(|b| self.order.read_u16(b))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(|b| self.order.read_u32(b))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(|b| self.order.read_u64(b))
    }

    /// perf's header string: length, then text padded with NULs.
    pub(crate) fn string(&mut self) -> Option<String> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len).map(until_nul)
    }
}

/// Text up to the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> String {
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    text.as_text().into_owned()
}

/// The u64 at an offset.
pub(crate) fn u64_at(bytes: &[u8], at: usize, order: Order) -> Option<u64> {
    Bytes::new(bytes.get(at..)?, order).u64()
}

/// The u32 at an offset.
pub(crate) fn u32_at(bytes: &[u8], at: usize, order: Order) -> Option<u32> {
    Bytes::new(bytes.get(at..)?, order).u32()
}
