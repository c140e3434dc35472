//! The memory that the plugin inside QEMU and `lbr` share: one ring of records
//! for each thread of the target.
//!
//! This file is compiled into both (`machine` includes it by path), so that
//! the two can only disagree in version, which [`VERSION`] detects. Everything
//! in it is atomic: whatever the other side writes, reading it is defined, and
//! nothing read from it is trusted ([`Corrupt`]).
//!
//! A ring has one producer (the thread of the target) and one consumer. It
//! never overflows: the producer waits. Where a recording looks at few of many
//! branches, the producer keeps the newest aside, still in shared memory, and
//! writes them when it is time.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::record::{Corrupt, Record, Words};

/// First word of the memory.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"lbr-qemu");
/// Changes with every change of layout or meaning, here and in `record`.
pub(super) const VERSION: u32 = 2;
/// Threads of the target that can be recorded at the same time.
pub(super) const RINGS: usize = 128;
/// Records that a ring holds. A power of two. Miri is slow, and looks at every one.
pub(super) const CAPACITY: usize = if cfg!(miri) { 1 << 4 } else { 1 << 14 };
/// The most branches that a producer keeps aside. A power of two.
const MOST_KEPT: usize = 64;

/// The consumer is gone, or wants no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

/// The whole memory. All-zero bytes are a valid start, except for
/// [`Header::open`].
#[derive(Debug)]
#[repr(C)]
pub(super) struct Region {
    /// What concerns the whole process.
    pub(super) header: Header,
    /// The rings.
    pub(super) rings: [Ring; RINGS],
}

/// What concerns the whole process.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    /// Consumer: it wants no more.
    closed: AtomicU32,
    /// Producer: the plugin is loaded.
    pub(super) attached: AtomicU32,
    /// Producer: recording has started.
    pub(super) reached: AtomicU32,
    /// Producer: the plugin has failed and said why on standard error.
    pub(super) failed: AtomicU32,
    /// Producer: the program's addresses are not ours (QEMU's guest_base).
    pub(super) relocated: AtomicU32,
    /// Producer: processes forked, which are not recorded.
    pub(super) forks: AtomicU64,
    /// Producer: threads for which there was no ring.
    pub(super) threads_left: AtomicU64,
    /// Producer: rings at or above this index have never been claimed.
    claimed: AtomicU64,
    /// Consumer: the tags of the branches that it wants, a bit each.
    wanted: AtomicU32,
    /// Consumer: it wants only so many of the newest branches; 0 for all.
    newest: AtomicU32,
    /// Consumer: each time after so many; where it asks for them, `u64::MAX`.
    every: AtomicU64,
}

impl Header {
    /// Marks new memory as ours. The consumer does this before it starts QEMU.
    /// `wanted`: bits of the tags of branches. `sampling`: how many branches it
    /// wants each time (64 at most), and after how many; `None` asks for all.
    pub(super) fn open(&self, wanted: u32, sampling: Option<(usize, Option<u64>)>) {
        self.wanted.store(wanted, Ordering::Relaxed);
        if let Some((newest, every)) = sampling {
            self.newest.store(newest.min(MOST_KEPT) as u32, Ordering::Relaxed);
            self.every.store(every.unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.version.store(VERSION, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether the memory is ours and of this version.
    #[must_use]
    pub(super) fn is_ours(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
            && self.version.load(Ordering::Relaxed) == VERSION
    }

    /// Whether the consumer wants branches whose record begins like this.
    #[must_use]
    pub(super) fn wants(&self, word: u64) -> bool {
        self.wanted.load(Ordering::Relaxed) >> (super::record::tag(word) & 31) & 1 != 0
    }

    /// The consumer wants no more.
    pub(super) fn close(&self) {
        self.closed.store(1, Ordering::Release);
    }

    /// Whether the consumer wants no more.
    #[must_use]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }
}

impl Region {
    /// A producer for a thread that starts, on the first free ring; `None`
    /// where all are in use.
    #[must_use]
    pub(super) fn claim(&self) -> Option<Producer<'_>> {
        let free = |ring: &Ring| {
            ring.live.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let (index, ring) = self.rings.iter().enumerate().find(|(_, ring)| free(ring))?;
        let tail = ring.tail.0.load(Ordering::Relaxed);
        let head = ring.head.0.load(Ordering::Acquire);
        self.header.claimed.fetch_max(index as u64 + 1, Ordering::Release);
        ring.kept.total.store(0, Ordering::Relaxed);
        let every = self.header.every.load(Ordering::Relaxed);
        Some(Producer {
            ring,
            tail,
            limit: head.wrapping_add(CAPACITY as u64),
            newest: self.header.newest.load(Ordering::Relaxed).into(),
            every,
            total: 0,
            handed: 0,
            answered: ring.asked.0.load(Ordering::Relaxed),
        })
    }

    /// The rings that a thread has ever used.
    #[must_use]
    pub(super) fn claimed(&self) -> &[Ring] {
        let count = self.header.claimed.load(Ordering::Acquire);
        let count = usize::try_from(count).unwrap_or(RINGS).min(RINGS);
        self.rings.get(..count).unwrap_or(&self.rings)
    }
}

/// A counter on a cache line (and the line fetched along with it) of its own.
#[derive(Debug)]
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// One thread's records on their way.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ring {
    /// Records ever written; the producer's.
    tail: Counter,
    /// Records ever released; the consumer's.
    head: Counter,
    /// How often the newest branches were asked for; the consumer's.
    asked: Counter,
    kept: Kept,
    /// What the producer counts beside them.
    pub(super) counts: Counts,
    /// A thread uses it.
    live: AtomicU32,
    entries: [[AtomicU64; 2]; CAPACITY],
}

/// The newest branches of a thread of which not all are wanted. Only its
/// producer writes them; the consumer looks where the thread has died.
#[derive(Debug)]
#[repr(C, align(128))]
struct Kept {
    /// Branches ever kept; the last of them lie at these numbers, modulo.
    total: AtomicU64,
    entries: [[AtomicU64; 2]; MOST_KEPT],
}

/// What a thread counts. Only its producer writes them, except that the
/// consumer takes them when the thread has ended.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Counts {
    /// Instructions of the blocks that were entered.
    pub(super) instructions: AtomicU64,
    /// System calls that returned, and signals that were delivered.
    pub(super) kernel_returns: AtomicU64,
    /// Branches that ended in neither of their ends, so that the transfer of
    /// control was not theirs; not recorded.
    pub(super) impossible: AtomicU64,
    /// Executions of conditional branches to the next instruction: whether
    /// they were taken cannot be seen, and they are not recorded.
    pub(super) invisible: AtomicU64,
    /// Branches that a signal interrupted and of which it is not known (yet,
    /// or ever) whether they were taken; not recorded.
    pub(super) interrupted: AtomicU64,
}

impl Counts {
    /// Adds to one of the counts; there is no other writer.
    #[inline]
    pub(super) fn add(count: &AtomicU64, n: u64) {
        count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl Kept {
    /// The last `count` of `total` branches, the oldest first.
    fn last(&self, total: u64, count: u64) -> impl Iterator<Item = Words> + '_ {
        (0..count).rev().filter_map(move |age| {
            let number = total.wrapping_sub(1).wrapping_sub(age);
            let [low, high] = self.entries.get(number as usize & (MOST_KEPT - 1))?;
            Some([low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)])
        })
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub(super) struct Producer<'a> {
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
    /// [`Ring::asked`] at that time.
    answered: u64,
}

impl<'a> Producer<'a> {
    /// Takes a branch where that needs neither waiting nor writing what was kept:
    /// `false` where [`branch`](Self::branch) has to be called.
    #[inline]
    #[must_use]
    pub(super) fn offer(&mut self, words: Words) -> bool {
        if self.newest == 0 {
            let has_room = self.tail != self.limit;
            if has_room {
                self.put(words);
            }
            return has_room;
        }
        let total = self.total.wrapping_add(1);
        let is_time = total.wrapping_sub(self.handed) >= self.every
            || self.ring.asked.0.load(Ordering::Relaxed) != self.answered;
        if !is_time {
            self.keep(words);
        }
        !is_time
    }

    /// Takes a branch.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub(super) fn branch(
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
    pub(super) fn hand_over(&mut self, mut wait: impl FnMut() -> bool) -> Result<(), Stopped> {
        self.answered = self.ring.asked.0.load(Ordering::Relaxed);
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
    pub(super) fn push(&mut self, words: Words, wait: impl FnMut() -> bool) -> Result<(), Stopped> {
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
    pub(super) fn flush(&self, mut wait: impl FnMut() -> bool) -> Result<(), Stopped> {
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
    pub(super) fn counts(&self) -> &'a Counts {
        &self.ring.counts
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub(super) struct Consumer<'a> {
    ring: &'a Ring,
    head: u64,
}

impl<'a> Consumer<'a> {
    /// Reads `ring` from where the last consumer stopped.
    #[must_use]
    pub(super) fn new(ring: &'a Ring) -> Consumer<'a> {
        Consumer { ring, head: ring.head.0.load(Ordering::Relaxed) }
    }

    /// How many records are there.
    ///
    /// # Errors
    /// [`Corrupt`] where that is more than the ring can hold.
    pub(super) fn available(&self) -> Result<u64, Corrupt> {
        let count = self.ring.tail.0.load(Ordering::Acquire).wrapping_sub(self.head);
        if count <= CAPACITY as u64 { Ok(count) } else { Err(Corrupt) }
    }

    /// The record `n` places behind the oldest, as it lies there.
    #[inline]
    pub(super) fn words(&self, n: u64) -> Words {
        let index = self.head.wrapping_add(n) as usize & (CAPACITY - 1);
        // The index is below the capacity.
        let Some([low, high]) = self.ring.entries.get(index) else { return Words::default() };
        [low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)]
    }

    /// Asks the producer for the newest branches.
    pub(super) fn ask(&self) {
        self.ring.asked.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many branches a producer that has died has kept aside, and the last of
    /// them, at most `newest`, of those after the first `handed`.
    pub(super) fn left(&self, handed: u64, newest: u64) -> (u64, impl Iterator<Item = Words> + 'a) {
        let total = self.ring.kept.total.load(Ordering::Acquire);
        let left = total.wrapping_sub(handed);
        (left, self.ring.kept.last(total, left.min(newest).min(MOST_KEPT as u64)))
    }

    /// Gives the room of the oldest `n` records back to the producer.
    pub(super) fn release(&mut self, n: u64) {
        self.head = self.head.wrapping_add(n);
        self.ring.head.0.store(self.head, Ordering::Release);
    }

    /// Gives the ring back, after [`Record::End`] was released.
    pub(super) fn free(&self) {
        self.ring.live.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lbr_msr::record::HwBranchType;

    /// A region on the heap, as new shared memory is: all zero.
    fn region() -> Box<Region> {
        let mut region = Box::<Region>::new_uninit();
        #[allow(unsafe_code, reason = "a region is too large to be built on the stack")]
        // SAFETY: the pointer is the box's own, and all-zero bytes are a
        // valid `Region`, which consists of atomic integers alone.
        unsafe {
            region.as_mut_ptr().write_bytes(0, 1);
            region.assume_init()
        }
    }

    fn branch(n: u64) -> Words {
        let record = Record::Branch {
            from: 0x40_0000 + n,
            to: !n,
            class: HwBranchType::Ret,
            zero_length_call: false,
        };
        record.encode().expect("a user address")
    }

    #[test]
    fn a_full_ring_makes_the_producer_wait_and_loses_nothing() {
        let region = region();
        let mut producer = region.claim().expect("a free ring");
        for n in 0..CAPACITY as u64 {
            producer.push(branch(n), || panic!("full at {n}")).expect("room");
        }
        let mut waits = 0;
        let refused = producer.push(branch(0xdead), || {
            waits += 1;
            waits < 3
        });
        assert_eq!((refused, waits), (Err(Stopped), 3));

        let mut consumer = Consumer::new(&region.rings[0]);
        assert_eq!(consumer.available(), Ok(CAPACITY as u64));
        consumer.release(1);
        producer.push(branch(CAPACITY as u64), || panic!("there is room for one")).expect("room");
        for n in 1..=CAPACITY as u64 {
            assert_eq!(consumer.words(0), branch(n));
            consumer.release(1);
        }
        assert_eq!(consumer.available(), Ok(0));
        assert_eq!(producer.flush(|| false), Ok(()));
    }

    #[test]
    fn counters_wrap() {
        let region = region();
        let ring = &region.rings[0];
        ring.tail.0.store(u64::MAX - 2, Ordering::Relaxed);
        ring.head.0.store(u64::MAX - 2, Ordering::Relaxed);
        let mut producer = region.claim().expect("a free ring");
        let mut consumer = Consumer::new(ring);
        for n in 0..CAPACITY as u64 {
            producer.push(branch(n), || false).expect("room for all");
        }
        assert_eq!(producer.push(branch(0), || false), Err(Stopped));
        assert_eq!(consumer.available(), Ok(CAPACITY as u64));
        assert_eq!(consumer.words(5), branch(5));
        consumer.release(CAPACITY as u64);
        assert_eq!(consumer.available(), Ok(0));
    }

    #[test]
    fn an_impossible_counter_is_corrupt() {
        let region = region();
        let ring = &region.rings[0];
        ring.tail.0.store(CAPACITY as u64 + 1, Ordering::Relaxed);
        assert_eq!(Consumer::new(ring).available(), Err(Corrupt));
    }

    #[test]
    fn two_threads_agree_on_order() {
        const RECORDS: u64 = 40 * CAPACITY as u64 + 13;
        let region = region();
        let mut producer = region.claim().expect("a free ring");
        let mut consumer = Consumer::new(&region.rings[0]);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..RECORDS {
                    let pushed = producer.push(branch(n), || {
                        std::thread::yield_now();
                        true
                    });
                    pushed.expect("the wait never gives up");
                }
            });
            let mut seen = 0;
            while seen < RECORDS {
                let count = consumer.available().expect("sound");
                for n in 0..count {
                    assert_eq!(consumer.words(n), branch(seen + n));
                }
                consumer.release(count);
                seen += count;
                std::thread::yield_now();
            }
        });
        assert_eq!(consumer.available(), Ok(0));
    }

    #[test]
    fn the_newest_are_written_after_so_many_or_when_they_are_asked_for() {
        let region = region();
        region.header.open(!0, Some((3, Some(5))));
        let mut producer = region.claim().expect("a free ring");
        let mut consumer = Consumer::new(&region.rings[0]);
        let newest = |total| Record::Newest { count: 3, total }.encode().expect("it has a form");
        for n in 0..12 {
            assert_eq!(consumer.available(), Ok(n / 5 * 4));
            producer.branch(branch(n), || false).expect("room");
        }
        let wanted = [newest(5), branch(2), branch(3), branch(4)];
        assert_eq!([0, 1, 2, 3].map(|n| consumer.words(n)), wanted);
        assert_eq!(consumer.words(4), newest(10));
        assert_eq!(consumer.words(7), branch(9));
        consumer.release(8);
        // A producer that dies leaves two.
        let (left, words) = consumer.left(10, 3);
        assert_eq!((left, words.collect::<Vec<_>>()), (2, vec![branch(10), branch(11)]));
        consumer.ask();
        assert!(!producer.offer(branch(12)));
        producer.branch(branch(12), || false).expect("room");
        let words = [0, 1, 2, 3].map(|n| consumer.words(n));
        assert_eq!(words, [newest(13), branch(10), branch(11), branch(12)]);
        assert!(producer.offer(branch(13)), "asked and answered");
    }

    #[test]
    fn rings_are_claimed_once_and_given_back() {
        let region = region();
        let mut producers: Vec<_> = (0..RINGS).map(|_| region.claim()).collect();
        assert!(producers.iter().all(Option::is_some));
        assert!(region.claim().is_none(), "all in use");
        producers.remove(3);
        Consumer::new(&region.rings[3]).free();
        assert!(region.claim().is_some() && region.claim().is_none());
        assert_eq!(region.claimed().len(), RINGS);
    }
}
