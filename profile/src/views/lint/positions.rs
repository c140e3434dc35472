//! Where in its stacks each branch stood.

use crate::clean::table::{Keyed, Table};
use crate::clean::{add, index};
use crate::read::stack::{Entries, RawBranch};

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
    found: Vec<(RawBranch, u32, u32)>,
}

impl Positions {
    /// Takes a stack in.
    pub(super) fn stack(&mut self, entries: &Entries<'_>, space: u32, weight: u64) {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        entries.for_each(|branch| {
            let hash = Position::hash((branch.from, space));
            found.push((branch, hash, 0));
        });
        // Looked up together, so that no look waits for another.
        let touched = found.iter().fold(0, |all, (_, hash, _)| all ^ self.places.touch(*hash));
        std::hint::black_box(touched);
        for (_, hash, number) in &mut found {
            *number = self.places.guess(*hash);
        }
        let touch = |number: u32| self.places.get(number).map_or(0, |place| place.all);
        std::hint::black_box(found.iter().fold(0, |all, (_, _, number)| all ^ touch(*number)));
        for (index, (branch, hash, guess)) in found.iter().enumerate() {
            let key = (branch.from, space);
            let known = self.places.find_near(*guess, *hash, key);
            let number = known.or_else(|| {
                self.places.push(Position { from: branch.from, space, ..Position::default() })
            });
            let place = number.and_then(|number| self.places.list.get_mut(number as usize));
            if let Some(place) = place {
                add(&mut place.all, weight);
                add(&mut place.at_top, weight * u64::from(index == 0));
            }
        }
        self.found = found;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Position> {
        self.places.list.iter()
    }
}
