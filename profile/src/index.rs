//! An index of things that stand in a list: from a hash to the number of the
//! thing. Eight bytes a place, so that it stays in the second-level cache
//! where the things do not.

use std::hash::Hasher;

/// Places to begin with: 32 KiB. Fuzzing makes many indexes of a few things.
const FIRST_PLACES: usize = if cfg!(fuzzing) { 1 << 4 } else { 1 << 12 };

/// Numbers by hash, with open addressing.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Upper half: hash; lower half: the number counted from 1, 0 where the
    /// place is free.
    places: Vec<u64>,
    len: usize,
}

impl Default for Index {
    fn default() -> Index {
        Index { places: vec![0; FIRST_PLACES], len: 0 }
    }
}

/// Mixes a key of three parts; the upper half is the well mixed one.
#[inline]
pub(crate) fn hash(a: u64, b: u64, c: u64) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = a.wrapping_mul(ODD) ^ b.rotate_left(32) ^ c << 17;
    (mixed.wrapping_mul(ODD) >> 32) as u32
}

/// Products: enough for addresses, at a tenth of the price of a hash that
/// withstands whoever chooses them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Product(u64);

impl Hasher for Product {
    #[inline]
    fn finish(&self) -> u64 {
        // A table looks at the lowest bits, which are mixed the least.
        self.0 ^ self.0 >> 32
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(32) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Index {
    /// Loads where the search for a hash begins.
    #[inline]
    pub(crate) fn touch(&self, hash: u32) -> u64 {
        let mask = self.places.len() - 1;
        self.places.get(hash as usize & mask).copied().unwrap_or(0)
    }

    /// The number that a hash leads to, nearly always the right one; one that
    /// nothing has where there is none. For fetching things before they are
    /// needed, so that the fetches do not wait for each other.
    #[inline]
    pub(crate) fn guess(&self, hash: u32) -> u32 {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        // Never full, so the search ends.
        loop {
            let place = self.places.get(at).copied().unwrap_or(0);
            if (place >> 32) as u32 == hash || place == 0 {
                return (place as u32).wrapping_sub(1);
            }
            at = (at + 1) & mask;
        }
    }

    /// The number under this hash that `is` the one looked for.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let place = *self.places.get(at)?;
            if place == 0 {
                return None;
            }
            let number = (place as u32).wrapping_sub(1);
            if (place >> 32) as u32 == hash && is(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Puts a number in that is not yet there. Nothing happens with the last
    /// number of all, which stands for none.
    pub(crate) fn insert(&mut self, hash: u32, number: u32) {
        // Two thirds full at most.
        if self.len * 3 >= self.places.len() * 2 {
            self.grow();
        }
        let Some(counted) = number.checked_add(1) else { return };
        put(&mut self.places, u64::from(hash) << 32 | u64::from(counted));
        self.len += 1;
    }

    fn grow(&mut self) {
        let doubled = vec![0; self.places.len() * 2];
        let old = std::mem::replace(&mut self.places, doubled);
        for place in old.into_iter().filter(|place| *place != 0) {
            put(&mut self.places, place);
        }
    }
}

/// Puts a place where its hash belongs.
fn put(places: &mut [u64], place: u64) {
    let mask = places.len() - 1;
    let mut at = (place >> 32) as usize & mask;
    while places.get(at).is_some_and(|taken| *taken != 0) {
        at = (at + 1) & mask;
    }
    if let Some(free) = places.get_mut(at) {
        *free = place;
    }
}

#[cfg(test)]
mod tests {
    use super::{Index, hash};

    /// Numbers come back, through growth and among equal hashes.
    #[test]
    fn numbers_come_back() {
        let mut index = Index::default();
        let keys: Vec<u64> = (0..10_000).collect();
        // Only 100 hashes, then one for each.
        for spread in [100, u64::MAX] {
            let of = |key: u64| hash(key % spread, 0, 0);
            let base = if spread == 100 { 0 } else { keys.len() as u32 };
            let is = |key: u64| move |number: u32| u64::from(number - base) == key;
            for &key in &keys {
                assert_eq!(index.find(of(key), |n| n >= base && is(key)(n)), None);
                index.insert(of(key), base + key as u32);
            }
            for &key in &keys {
                let found = index.find(of(key), |n| n >= base && is(key)(n));
                assert_eq!(found, Some(base + key as u32));
            }
        }
        assert_eq!(Index::default().guess(7), u32::MAX);
    }
}
