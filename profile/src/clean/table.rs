//! Items with keys, in order of insertion.
//!
//! `crate::index` has the figures of plain containers.

use crate::index::Index;

/// An item with a key.
pub(crate) trait Keyed {
    /// Identifies it.
    type Key: Copy + PartialEq;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// The hash of a key.
    fn hash(key: Self::Key) -> u32;
}

/// A list of items, numbered in order of insertion, and an index. Consecutive look-ups would each
/// wait for memory: callers with a batch of them use [`look_up`](Self::look_up) first.
#[derive(Debug, Default)]
pub(crate) struct Table<T> {
    index: Index,
    pub(crate) list: Vec<T>,
}

impl<T: Keyed> Table<T> {
    /// The first index position for a hash, for [`load_all`](crate::index::load_all).
    pub(crate) fn touch(&self, hash: u32) -> u64 {
        self.index.touch(hash)
    }

    /// For each key, its hash and its probable number. Fetches them in parallel, and calls `load`
    /// for each number to fetch further data.
    #[inline]
    pub(crate) fn look_up(
        &self,
        keys: impl Iterator<Item = T::Key>,
        found: &mut Vec<(u32, u32)>,
        load: impl Fn(&T) -> u64,
    ) {
        let load = |number| self.get(number).map_or(0, &load);
        self.index.look_up(keys.map(T::hash), found, load);
    }

    /// The item with a number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.list.get(number as usize)
    }

    /// The number of a key, probably `guess`.
    #[inline]
    pub(crate) fn find_near(&self, guess: u32, hash: u32, key: T::Key) -> Option<u32> {
        if self.is(guess, key) { Some(guess) } else { self.find(hash, key) }
    }

    /// The number of a key with this hash.
    #[inline]
    pub(crate) fn find(&self, hash: u32, key: T::Key) -> Option<u32> {
        self.index.find(hash, |number| self.is(number, key))
    }

    #[inline]
    fn is(&self, number: u32, key: T::Key) -> bool {
        self.get(number).is_some_and(|thing| thing.key() == key)
    }

    /// Adds an item with a new key. Returns its number; `None` if all are in use.
    pub(crate) fn push(&mut self, thing: T) -> Option<u32> {
        // The highest number means none.
        let number = u32::try_from(self.list.len()).ok().filter(|number| *number != u32::MAX)?;
        self.index.insert(T::hash(thing.key()), number);
        self.list.push(thing);
        Some(number)
    }
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/clean/table.rs"]
mod tests;
