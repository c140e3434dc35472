//! Where in its stacks each branch stood.

use crate::clean::add;
use crate::clean::table::{Keyed, Table};
use crate::index;
use crate::read::stack::Entries;

/// How often a branch stood anywhere, and how often it was the newest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    from: u64,
    pub(super) at_top: u64,
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

/// Branches by address and space.
#[derive(Debug, Default)]
pub(super) struct Positions {
    places: Table<Position>,
    found: Vec<(u32, u32)>,
}

impl Positions {
    /// Takes a stack in.
    pub(super) fn stack(&mut self, entries: &Entries<'_>, space: u32, weight: u64) {
        let mut found = std::mem::take(&mut self.found);
        let keys = entries.iter().map(|branch| (branch.from, space));
        self.places.look_up(keys, &mut found, |place| place.all);
        let mut index = 0usize;
        entries.for_each(|branch| {
            let (hash, guess) = found.get(index).copied().unwrap_or_default();
            let known = self.places.find_near(guess, hash, (branch.from, space));
            let number = known.or_else(|| {
                self.places.push(Position { from: branch.from, space, ..Position::default() })
            });
            let place = number.and_then(|number| self.places.list.get_mut(number as usize));
            if let Some(place) = place {
                add(&mut place.all, weight);
                add(&mut place.at_top, weight * u64::from(index == 0));
            }
            index += 1;
        });
        self.found = found;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Position> {
        self.places.list.iter()
    }
}
