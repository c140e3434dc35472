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
///
/// Most have one or two: of those all stands in one line of the cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Followers {
    edges: [u32; FOLLOWERS],
    /// Times that any branch followed.
    pub(super) all: u64,
    /// What counts may fall short by.
    pub(super) missing: u64,
    /// How often each followed; 0 where there is none.
    counts: [u64; FOLLOWERS],
}

impl Followers {
    /// Loads what [`add`](Self::add) needs.
    #[inline]
    pub(super) fn touch(&self) -> u64 {
        self.all
    }

    #[inline]
    pub(super) fn add(&mut self, edge: usize, weight: u64) {
        let Ok(edge) = u32::try_from(edge) else { return };
        let mut known = self.edges.iter().zip(&mut self.counts);
        if let Some((_, count)) = known.find(|(at, count)| **at == edge && **count > 0) {
            add(count, weight);
            add(&mut self.all, weight);
        } else {
            self.add_new(edge, weight);
        }
    }

    fn add_new(&mut self, edge: u32, weight: u64) {
        add(&mut self.all, weight);
        let mut left = weight;
        while left > 0 {
            if let Some(free) = self.counts.iter().position(|count| *count == 0) {
                (self.edges[free], self.counts[free]) = (edge, left);
                return;
            }
            let least = self.counts.iter().copied().min().unwrap_or(0).min(left);
            self.counts.iter_mut().for_each(|count| *count -= least);
            add(&mut self.missing, least);
            left -= least;
        }
    }

    fn kept(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let all = self.edges.iter().copied().zip(self.counts.iter().copied());
        all.filter(|(_, count)| *count > 0)
    }

    /// Adds those of the same branch in another process. `firsts` says of each
    /// branch the first that is the same.
    pub(super) fn merge(&mut self, other: &Followers, firsts: &[u32]) {
        let mut rest = other.all;
        for (edge, count) in other.kept() {
            self.add(firsts.get(edge as usize).map_or(edge, |first| *first) as usize, count);
            rest = rest.saturating_sub(count);
        }
        add(&mut self.all, rest);
        add(&mut self.missing, other.missing);
    }

    /// The followers, the most frequent first.
    pub(super) fn best(&self) -> Vec<(usize, u64)> {
        let best = self.kept().map(|(edge, count)| (edge as usize, count));
        let mut best: Vec<(usize, u64)> = best.collect();
        best.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        best
    }
}
