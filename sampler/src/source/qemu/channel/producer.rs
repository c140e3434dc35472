//! The producer, used by the plugin.

use std::sync::atomic::Ordering;

use super::super::record::{Record, Words};
use super::{CAPACITY, Counts, MOST_KEPT, Region, Ring, Sent, Stopped};

impl Region {
    /// A producer for a new thread, on the first free ring; `None` if all are in use.
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

/// The producer of a ring.
#[derive(Debug)]
pub(in super::super) struct Producer<'a> {
    ring: &'a Ring,
    tail: u64,
    /// Writing up to this count does not require reading the consumer's counter.
    limit: u64,
    /// Number of branches wanted each time; 0 for all.
    newest: u64,
    /// After how many branches.
    every: u64,
    /// Total branches kept, and that total when some were last written.
    total: u64,
    handed: u64,
}

impl<'a> Producer<'a> {
    /// Takes a branch if that requires neither waiting nor writing kept branches; on `false`, call
    /// [`branch`](Self::branch).
    #[inline]
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
    /// As for [`push`](Self::push).
    pub(in super::super) fn branch(&mut self, words: Words, wait: impl FnMut() -> bool) -> Sent {
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

    /// Writes a count of the branches since the last time, and the newest of them.
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub(in super::super) fn hand_over(&mut self, mut wait: impl FnMut() -> bool) -> Sent {
        // Before writing, because a reader may then ask again.
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

    /// Writes a record. If the ring is full, calls `wait` until it is not; `wait` returns whether
    /// to continue waiting.
    ///
    /// # Errors
    /// [`Stopped`] if `wait` returned false. The record is not written.
    #[inline]
    pub(in super::super) fn push(&mut self, words: Words, wait: impl FnMut() -> bool) -> Sent {
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
    fn make_room(&mut self, mut wait: impl FnMut() -> bool) -> Sent {
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
    /// [`Stopped`] if `wait` returned false.
    pub(in super::super) fn flush(&self, mut wait: impl FnMut() -> bool) -> Sent {
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

    /// Whether the consumer wants every branch.
    pub(in super::super) fn wants_all(&self) -> bool {
        self.newest == 0
    }

    /// The thread's counters.
    #[inline]
    pub(in super::super) fn counts(&self) -> &'a Counts {
        &self.ring.counts
    }
}
