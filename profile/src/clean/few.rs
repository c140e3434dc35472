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
mod tests {
    use super::Few;

    #[test]
    fn values_are_those_of_their_numbers_until_taken_out() {
        let mut few = Few::<u64>::default();
        for (number, more) in [(7, 1), (0, 2), (7, 4), (3, 8)] {
            *few.at(number) += more;
        }
        assert_eq!(few.drain().collect::<Vec<_>>(), [(7, 5), (0, 2), (3, 8)]);
        // Stale entries are ignored.
        for (number, more) in [(3, 1), (7, 2)] {
            *few.at(number) += more;
        }
        assert_eq!(few.drain().collect::<Vec<_>>(), [(3, 1), (7, 2)]);
    }
}
