//! The most frequent followers of each branch, in bounded memory.

use crate::clean::add;

/// Number of followers kept for each branch.
pub const FOLLOWERS: usize = 8;

/// The followers of a branch.
///
/// With at most [`FOLLOWERS`] distinct followers the counts are exact. Otherwise each count is too
/// low by at most `missing`, which is at most a ninth of the total (Misra and Gries, Finding
/// repeated elements, 1982): every more frequent follower is here.
///
/// Most have one or two: their data is in one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Followers {
    edges: [u32; FOLLOWERS],
    /// Total count of followers.
    pub(super) all: u64,
    /// The maximum error of the counts.
    pub(super) missing: u64,
    /// The count of each; 0 if unused.
    counts: [u64; FOLLOWERS],
}

impl Followers {
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

    /// Adds the followers of the same branch in another process. `firsts` has, for each branch, the
    /// first that is the same.
    pub(super) fn merge(&mut self, other: &Followers, firsts: &[u32]) {
        let mut rest = other.all;
        for (edge, count) in other.kept() {
            self.add(firsts.get(edge as usize).map_or(edge, |first| *first) as usize, count);
            rest = rest.saturating_sub(count);
        }
        add(&mut self.all, rest);
        add(&mut self.missing, other.missing);
    }

    /// The followers, most frequent first.
    pub(super) fn best(&self) -> Vec<(usize, u64)> {
        let best = self.kept().map(|(edge, count)| (edge as usize, count));
        let mut best: Vec<(usize, u64)> = best.collect();
        best.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        best
    }
}
