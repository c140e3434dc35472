//! Interned texts, stored contiguously.

use std::hash::{BuildHasher, RandomState};

use crate::index::Index;

/// Texts by number, in order of insertion.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    all: String,
    ends: Vec<usize>,
    index: Index,
    /// Seeded, so that input cannot be made to collide.
    hasher: RandomState,
}

impl Texts {
    /// The text of a number.
    pub(crate) fn get(&self, number: u32) -> Option<&str> {
        let at = number as usize;
        let start = at.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied())?;
        self.all.get(start..*self.ends.get(at)?)
    }

    /// The texts by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..).map_while(|number| self.get(number))
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn hash(&self, text: &str) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// The number of a text that was there before.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.index.find(self.hash(text), |number| self.get(number) == Some(text))
    }

    /// The number of a text, which is added if new; `None` if all numbers are in use.
    pub(crate) fn number(&mut self, text: &str) -> Option<u32> {
        let hash = self.hash(text);
        let known = self.index.find(hash, |number| self.get(number) == Some(text));
        if known.is_some() {
            return known;
        }
        let number = self.push(text)?;
        self.index.insert(hash, number);
        Some(number)
    }

    /// Adds a text that [`find`](Self::find) will not find; `None` if all numbers are in use.
    pub(crate) fn push(&mut self, text: &str) -> Option<u32> {
        let number = u32::try_from(self.ends.len()).ok().filter(|number| *number < u32::MAX)?;
        self.all.push_str(text);
        self.ends.push(self.all.len());
        Some(number)
    }
}

#[cfg(test)]
#[path = "../../tests/profile/unit/texts.rs"]
mod tests;
