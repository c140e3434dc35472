//! Which branch follows which: the most frequent followers of each, in bounded
//! memory.

use crate::clean::add;

/// Followers that are told apart for each branch.
pub const FOLLOWERS: usize = 8;

/// The followers of a branch.
///
/// While there are no more than [`FOLLOWERS`] different ones the counts are
/// exact. Beyond that every count falls short by at most `missing`, which is
/// no more than a ninth of all (Misra and Gries, Finding repeated elements,
/// 1982): whoever follows more often than that is here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Followers {
    kept: [(u32, u64); FOLLOWERS],
    /// Times that any branch followed.
    pub(super) all: u64,
    /// What counts may fall short by.
    pub(super) missing: u64,
}

impl Followers {
    /// Loads what [`add`](Self::add) needs.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        let [first, .., last] = &self.kept;
        first.1 ^ last.1 ^ self.missing
    }

    pub(super) fn add(&mut self, edge: usize, weight: u64) {
        let Ok(edge) = u32::try_from(edge) else { return };
        if weight == 0 {
            return;
        }
        add(&mut self.all, weight);
        if let Some((_, count)) = self.kept.iter_mut().find(|(at, n)| *n > 0 && *at == edge) {
            add(count, weight);
            return;
        }
        let mut left = weight;
        while left > 0 {
            if let Some(free) = self.kept.iter_mut().find(|(_, count)| *count == 0) {
                *free = (edge, left);
                return;
            }
            let least = self.kept.iter().map(|(_, count)| *count).min().unwrap_or(0).min(left);
            for (_, count) in &mut self.kept {
                *count -= least;
            }
            add(&mut self.missing, least);
            left -= least;
        }
    }

    /// Adds those of the same branch in another process. `firsts` says of each
    /// branch the first that is the same.
    pub(super) fn merge(&mut self, other: &Followers, firsts: &[u32]) {
        let mut rest = other.all;
        for (edge, count) in other.kept.iter().filter(|(_, count)| *count > 0) {
            self.add(firsts.get(*edge as usize).map_or(*edge, |first| *first) as usize, *count);
            rest = rest.saturating_sub(*count);
        }
        add(&mut self.all, rest);
        add(&mut self.missing, other.missing);
    }

    /// The followers, the most frequent first.
    pub(super) fn best(&self) -> Vec<(usize, u64)> {
        let mut best: Vec<(usize, u64)> = self
            .kept
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(edge, count)| (*edge as usize, *count))
            .collect();
        best.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        best
    }
}
