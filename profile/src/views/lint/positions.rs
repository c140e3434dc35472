//! The branches that were newest in their stacks.

use crate::clean::add;
use crate::clean::table::{Keyed, Table};
use crate::index;

/// How often a branch was the newest of its stack, and how often it occurred at all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    from: u64,
    pub(super) at_top: u64,
    /// Set at the end.
    pub(super) all: u64,
    space: u32,
}

impl Keyed for Position {
    type Key = (u64, u32);

    #[inline]
    fn key(&self) -> (u64, u32) {
        (self.from, self.space)
    }

    #[inline]
    fn hash((from, space): (u64, u32)) -> u32 {
        index::hash(from, 0, u64::from(space))
    }
}

/// Branches that were the newest, by address and space.
#[derive(Debug, Default)]
pub(super) struct Positions {
    places: Table<Position>,
}

impl Positions {
    /// Adds the count of a branch as the newest.
    pub(super) fn newest(&mut self, (from, space): (u64, u32), weight: u64) {
        let known = self.find((from, space));
        let new = Position { from, space, ..Position::default() };
        let number = known.or_else(|| self.places.push(new));
        let place = number.and_then(|number| self.places.list.get_mut(number as usize));
        place.into_iter().for_each(|place| add(&mut place.at_top, weight));
    }

    /// Adds the total count of a branch.
    pub(super) fn anywhere(&mut self, key: (u64, u32), count: u64) {
        let number = self.find(key);
        let place = number.and_then(|number| self.places.list.get_mut(number as usize));
        place.into_iter().for_each(|place| add(&mut place.all, count));
    }

    fn find(&self, key: (u64, u32)) -> Option<u32> {
        self.places.find(Position::hash(key), key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Position> {
        self.places.list.iter()
    }
}
