//! A sparse map with few entries at a time.

/// Values by number, few of which are present at a time.
#[derive(Debug, Default)]
pub(crate) struct Few<T> {
    /// By number, the index in the list. Stale entries remain; the list tells whose they are.
    places: Vec<u32>,
    list: Vec<(u32, T)>,
}

impl<T: Default> Few<T> {
    /// The value of a number, created if missing.
    #[inline]
    pub(crate) fn at(&mut self, number: u32) -> &mut T {
        let index = number as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, 0);
        }
        let place = &mut self.places[index];
        if self.list.get(*place as usize).is_none_or(|(other, _)| *other != number) {
            *place = self.list.len() as u32;
            self.list.push((number, T::default()));
        }
        &mut self.list[*place as usize].1
    }

    /// Removes all values, in order of creation.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u32, T)> + '_ {
        self.list.drain(..)
    }
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/clean/few.rs"]
mod tests;
