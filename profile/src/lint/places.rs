//! Where in its stacks each branch stood.

use crate::index::{Index, hash};
use crate::stack::{Entries, RawBranch};

/// How often a branch stood anywhere, and how often it was the newest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    from: u64,
    pub(super) at_top: u64,
    pub(super) all: u64,
    space: u32,
}

/// Branches by address and space.
#[derive(Debug, Default)]
pub(super) struct Places {
    index: Index,
    places: Vec<Place>,
    found: Vec<(RawBranch, u32, u32)>,
}

impl Places {
    /// Takes a stack in.
    pub(super) fn stack(&mut self, entries: &Entries<'_>, space: u32, weight: u64) {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        entries.for_each(|branch| {
            let hash = hash(branch.from, 0, u64::from(space));
            found.push((branch, hash, 0));
        });
        // Looked up together, so that no look waits for another.
        let touched = found.iter().fold(0, |all, (_, hash, _)| all ^ self.index.touch(*hash));
        std::hint::black_box(touched);
        for (_, hash, number) in &mut found {
            *number = self.index.guess(*hash);
        }
        let touch = |number: u32| self.places.get(number as usize).map_or(0, |place| place.all);
        std::hint::black_box(found.iter().fold(0, |all, (_, _, number)| all ^ touch(*number)));
        for (index, (branch, hash, guess)) in found.iter().enumerate() {
            if branch.is_empty() || branch.flags.not_taken() {
                continue;
            }
            let is = |number: u32| {
                let place = self.places.get(number as usize);
                place.is_some_and(|place| (place.from, place.space) == (branch.from, space))
            };
            let known = if is(*guess) { Some(*guess) } else { self.index.find(*hash, is) };
            let number = known.unwrap_or_else(|| {
                let number = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
                self.index.insert(*hash, number);
                self.places.push(Place { from: branch.from, space, ..Place::default() });
                number
            });
            if let Some(place) = self.places.get_mut(number as usize) {
                add(&mut place.all, weight);
                add(&mut place.at_top, weight * u64::from(index == 0));
            }
        }
        self.found = found;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Place> {
        self.places.iter()
    }
}

/// Counts claimed by a file must not overflow ours.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
