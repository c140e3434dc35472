//! The consumer, used by `lbr`.

use std::sync::atomic::Ordering;

use super::super::record::{Corrupt, Words};
use super::{CAPACITY, MOST_KEPT, Ring};

/// The consumer of a ring.
#[derive(Debug)]
pub(in super::super) struct Consumer<'a> {
    ring: &'a Ring,
    head: u64,
}

impl<'a> Consumer<'a> {
    /// Reads `ring` from the position where the last consumer stopped.
    pub(in super::super) fn new(ring: &'a Ring) -> Consumer<'a> {
        Consumer { ring, head: ring.head.0.load(Ordering::Relaxed) }
    }

    /// Number of available records.
    ///
    /// # Errors
    /// [`Corrupt`] if the number exceeds the capacity.
    pub(in super::super) fn available(&self) -> Result<u64, Corrupt> {
        let count = self.ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head);
        if count <= CAPACITY as u64 { Ok(count) } else { Err(Corrupt) }
    }

    /// The raw record `n` places after the oldest.
    #[inline]
    pub(in super::super) fn words(&self, n: u64) -> Words {
        let index = self.head.wrapping_add(n) as usize & (CAPACITY - 1);
        // The index is below the capacity.
        let Some([low, high]) = self.ring.entries.get(index) else { return Words::default() };
        [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
    }

    /// Asks the producer for the newest branches. Only for a producer in ask mode that has answered
    /// earlier requests.
    pub(in super::super) fn ask(&self) {
        self.ring.due.0.store(0, Ordering::Relaxed);
    }

    /// The number of branches that a dead producer kept after the first `handed`, and the last
    /// `newest` of them at most.
    pub(in super::super) fn left(
        &self,
        handed: u64,
        newest: u64,
    ) -> (u64, impl Iterator<Item = Words> + 'a) {
        let total = self.ring.kept.total.load(Ordering::Acquire);
        let left = total.wrapping_sub(handed);
        (left, self.ring.kept.last(total, left.min(newest).min(MOST_KEPT as u64)))
    }

    /// Releases the space of the oldest `n` records to the producer.
    pub(in super::super) fn release(&mut self, n: u64) {
        self.head = self.head.wrapping_add(n);
        self.ring.head.0.store(self.head, Ordering::Release);
    }

    /// Releases the ring, after [`Record::End`] was released.
    pub(in super::super) fn free(&self) {
        self.ring.live.store(0, Ordering::Release);
    }
}
