//! The writing end: the plugin's.

use std::sync::atomic::Ordering;

use super::super::record::{Record, Words};
use super::{CAPACITY, Counts, MOST_KEPT, Region, Ring, Stopped};

impl Region {
    /// A producer for a thread that starts, on the first free ring; `None`
    /// where all are in use.
    #[must_use]
    pub(in super::super) fn claim(&self) -> Option<Producer<'_>> {
        let free = |ring: &Ring| {
            ring.live.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let (index, ring) = self.rings.iter().enumerate().find(|(_, ring)| free(ring))?;
        let tail = ring.tail.0.load(Ordering::Relaxed);
        let head = ring.head.0.load(Ordering::Acquire);
        self.header.claimed.fetch_max(index as u64 + 1, Ordering::Release);
        ring.kept.total.store(0, Ordering::Relaxed);
        let every = self.header.every.load(Ordering::Relaxed);
        ring.due.0.store(every, Ordering::Relaxed);
        Some(Producer {
            ring,
            tail,
            limit: head.wrapping_add(CAPACITY as u64),
            newest: self.header.newest.load(Ordering::Relaxed).into(),
            every,
            total: 0,
            handed: 0,
        })
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub(in super::super) struct Producer<'a> {
    ring: &'a Ring,
    tail: u64,
    /// Writing up to here needs no look at the consumer's counter.
    limit: u64,
    /// How many branches are wanted each time; 0 for all.
    newest: u64,
    /// After how many.
    every: u64,
    /// Branches kept aside, and how many of them when some were written last.
    total: u64,
    handed: u64,
}

impl<'a> Producer<'a> {
    /// Takes a branch where that needs neither waiting nor writing what was kept:
    /// `false` where [`branch`](Self::branch) has to be called.
    #[inline]
    #[must_use]
    pub(in super::super) fn offer(&mut self, words: Words) -> bool {
        if self.newest == 0 {
            let has_room = self.tail != self.limit;
            if has_room {
                self.put(words);
            }
            return has_room;
        }
        let total = self.total.wrapping_add(1);
        let is_time = total >= self.ring.due.0.load(Ordering::Relaxed);
        if !is_time {
            self.keep(words);
        }
        !is_time
    }

    /// Takes a branch.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub(in super::super) fn branch(
        &mut self,
        words: Words,
        wait: impl FnMut() -> bool,
    ) -> Result<(), Stopped> {
        if self.newest == 0 {
            return self.push(words, wait);
        }
        if self.offer(words) {
            return Ok(());
        }
        self.keep(words);
        self.hand_over(wait)
    }

    #[inline]
    fn keep(&mut self, [low, high]: Words) {
        if let Some([a, b]) = self.ring.kept.entries.get(self.total as usize & (MOST_KEPT - 1)) {
            a.store(low, Ordering::Relaxed);
            b.store(high, Ordering::Relaxed);
        }
        self.total = self.total.wrapping_add(1);
        self.ring.kept.total.store(self.total, Ordering::Release);
    }

    /// Writes what was kept: how many branches that stands for, and the newest.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub(in super::super) fn hand_over(
        &mut self,
        mut wait: impl FnMut() -> bool,
    ) -> Result<(), Stopped> {
        // Before anything is written: whoever reads that may ask again.
        self.ring.due.0.store(self.total.saturating_add(self.every), Ordering::Relaxed);
        let count = self.total.wrapping_sub(self.handed).min(self.newest);
        if count == 0 {
            return Ok(());
        }
        self.handed = self.total;
        let newest = Record::Newest { count, total: self.total };
        self.push(newest.encode().unwrap_or_default(), &mut wait)?;
        for words in self.ring.kept.last(self.total, count) {
            self.push(words, &mut wait)?;
        }
        Ok(())
    }

    /// Writes a record. Where the ring is full, `wait` is called until it is
    /// not; it says whether to go on waiting.
    ///
    /// # Errors
    /// [`Stopped`] where `wait` said no. The record is not written.
    #[inline]
    pub(in super::super) fn push(
        &mut self,
        words: Words,
        wait: impl FnMut() -> bool,
    ) -> Result<(), Stopped> {
        if self.tail == self.limit {
            self.make_room(wait)?;
        }
        self.put(words);
        Ok(())
    }

    #[inline]
    fn put(&mut self, [low, high]: Words) {
        if let Some([a, b]) = self.ring.entries.get(self.tail as usize & (CAPACITY - 1)) {
            a.store(low, Ordering::Relaxed);
            b.store(high, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.0.store(self.tail, Ordering::Release);
    }

    #[cold]
    fn make_room(&mut self, mut wait: impl FnMut() -> bool) -> Result<(), Stopped> {
        loop {
            self.limit = self.released().wrapping_add(CAPACITY as u64);
            if self.limit != self.tail {
                return Ok(());
            }
            if !wait() {
                return Err(Stopped);
            }
        }
    }

    /// Waits until the consumer has released everything written.
    ///
    /// # Errors
    /// [`Stopped`] where `wait` said no.
    pub(in super::super) fn flush(&self, mut wait: impl FnMut() -> bool) -> Result<(), Stopped> {
        while self.released() != self.tail {
            if !wait() {
                return Err(Stopped);
            }
        }
        Ok(())
    }

    fn released(&self) -> u64 {
        self.ring.head.0.load(Ordering::Acquire)
    }

    /// What the thread counts.
    #[inline]
    #[must_use]
    pub(in super::super) fn counts(&self) -> &'a Counts {
        &self.ring.counts
    }
}
