//! The most frequent followers of each branch, in bounded memory.

use crate::read::add;

/// Number of followers kept for each branch.
pub const FOLLOWERS: usize = 8;

/// Number of followers kept without an allocation: most branches have no more.
const FEW: usize = 2;

/// The followers of a branch.
///
/// With at most [`FOLLOWERS`] distinct followers the counts are exact. Otherwise each count is too
/// low by at most [`missing`](Self::missing), which is at most a ninth of the total (Misra and
/// Gries, Finding repeated elements, 1982): every more frequent follower is here.
#[derive(Clone, Debug, Default)]
#[repr(align(32))]
pub(super) struct Followers {
    few: Counts<FEW>,
    more: Option<Box<More>>,
}

const _: () = assert!(size_of::<Followers>() == 32);

/// Branches with their counts; 0 if unused.
#[derive(Clone, Debug)]
struct Counts<const N: usize> {
    edges: [u32; N],
    counts: [u64; N],
}

#[derive(Clone, Debug, Default)]
struct More {
    counts: Counts<{ FOLLOWERS - FEW }>,
    /// Total count of followers that is not in the counts.
    dropped: u64,
    missing: u64,
}

impl<const N: usize> Default for Counts<N> {
    fn default() -> Counts<N> {
        Counts { edges: [0; N], counts: [0; N] }
    }
}

impl<const N: usize> Counts<N> {
    #[inline]
    fn get_mut(&mut self, edge: u32) -> Option<&mut u64> {
        let mut all = self.edges.iter().zip(&mut self.counts);
        all.find(|(at, count)| **at == edge && **count > 0).map(|(_, count)| count)
    }

    /// Adds a branch; `false` if all places are in use.
    fn put(&mut self, edge: u32, count: u64) -> bool {
        let mut all = self.edges.iter_mut().zip(&mut self.counts);
        let free = all.find(|(_, count)| **count == 0);
        free.map(|(at, free)| (*at, *free) = (edge, count)).is_some()
    }

    fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let all = self.edges.iter().copied().zip(self.counts.iter().copied());
        all.filter(|(_, count)| *count > 0)
    }
}

impl Followers {
    #[inline]
    pub(super) fn add(&mut self, edge: usize, weight: u64) {
        let Ok(edge) = u32::try_from(edge) else { return };
        let more = self.more.as_deref_mut();
        match self.few.get_mut(edge).or_else(|| more?.counts.get_mut(edge)) {
            Some(count) => add(count, weight),
            None => self.add_new(edge, weight),
        }
    }

    fn add_new(&mut self, edge: u32, weight: u64) {
        let mut left = weight;
        while left > 0 && !self.few.put(edge, left) {
            let more = self.more.get_or_insert_default();
            if more.counts.put(edge, left) {
                return;
            }
            let least = self.few.counts.iter().chain(&more.counts.counts).copied();
            let least = least.min().unwrap_or(0).min(left);
            let counts = self.few.counts.iter_mut().chain(&mut more.counts.counts);
            counts.for_each(|count| *count -= least);
            add(&mut more.dropped, least.saturating_mul(FOLLOWERS as u64 + 1));
            add(&mut more.missing, least);
            left -= least;
        }
    }

    fn kept(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let more = self.more.iter().flat_map(|more| more.counts.iter());
        self.few.iter().chain(more)
    }

    /// Total count of followers.
    pub(super) fn all(&self) -> u64 {
        let dropped = self.more.as_ref().map_or(0, |more| more.dropped);
        self.kept().fold(dropped, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The maximum error of the counts.
    pub(super) fn missing(&self) -> u64 {
        self.more.as_ref().map_or(0, |more| more.missing)
    }

    /// A word of its memory, for [`touch`](crate::views::walk::touch).
    #[inline]
    pub(super) fn word(&self) -> u64 {
        self.few.counts[0]
    }

    /// Adds the followers of the same branch in another process. `firsts` has, for each branch, the
    /// first that is the same.
    pub(super) fn merge(&mut self, other: &Followers, firsts: &[u32]) {
        for (edge, count) in other.kept() {
            self.add(firsts.get(edge as usize).map_or(edge, |first| *first) as usize, count);
        }
        if let Some(other) = &other.more {
            let more = self.more.get_or_insert_default();
            add(&mut more.dropped, other.dropped);
            add(&mut more.missing, other.missing);
        }
    }

    /// The followers, most frequent first.
    pub(super) fn best(&self) -> Vec<(usize, u64)> {
        let best = self.kept().map(|(edge, count)| (edge as usize, count));
        let mut best: Vec<(usize, u64)> = best.collect();
        best.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        best
    }
}
