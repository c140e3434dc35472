//! The reading end: `lbr`'s.

use std::sync::atomic::Ordering;

use super::super::record::{Corrupt, Words};
use super::{CAPACITY, MOST_KEPT, Ring};

/// The reading end of a ring.
#[derive(Debug)]
pub(in super::super) struct Consumer<'a> {
    ring: &'a Ring,
    head: u64,
}

impl<'a> Consumer<'a> {
    /// Reads `ring` from where the last consumer stopped.
    #[must_use]
    pub(in super::super) fn new(ring: &'a Ring) -> Consumer<'a> {
        Consumer { ring, head: ring.head.0.load(Ordering::Relaxed) }
    }

    /// How many records are there.
    ///
    /// # Errors
    /// [`Corrupt`] where that is more than the ring can hold.
    pub(in super::super) fn available(&self) -> Result<u64, Corrupt> {
        let count = self.ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head);
        if count <= CAPACITY as u64 { Ok(count) } else { Err(Corrupt) }
    }

    /// The record `n` places behind the oldest, as it lies there.
    #[inline]
    pub(in super::super) fn words(&self, n: u64) -> Words {
        let index = self.head.wrapping_add(n) as usize & (CAPACITY - 1);
        // The index is below the capacity.
        let Some([low, high]) = self.ring.entries.get(index) else { return Words::default() };
        [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
    }

    /// Asks the producer for the newest branches. For one that is to write them where it
    /// is asked, and has answered.
    pub(in super::super) fn ask(&self) {
        self.ring.due.0.store(0, Ordering::Relaxed);
    }

    /// How many branches a producer that has died has kept aside, and the last of
    /// them, at most `newest`, of those after the first `handed`.
    pub(in super::super) fn left(
        &self,
        handed: u64,
        newest: u64,
    ) -> (u64, impl Iterator<Item = Words> + 'a) {
        let total = self.ring.kept.total.load(Ordering::Acquire);
        let left = total.wrapping_sub(handed);
        (left, self.ring.kept.last(total, left.min(newest).min(MOST_KEPT as u64)))
    }

    /// Gives the room of the oldest `n` records back to the producer.
    pub(in super::super) fn release(&mut self, n: u64) {
        self.head = self.head.wrapping_add(n);
        self.ring.head.0.store(self.head, Ordering::Release);
    }

    /// Gives the ring back, after [`Record::End`] was released.
    pub(in super::super) fn free(&self) {
        self.ring.live.store(0, Ordering::Release);
    }
}
