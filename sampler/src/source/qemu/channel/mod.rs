//! The memory shared by the plugin inside QEMU and `lbr`: one ring of records for each thread of
//! the target.
//!
//! This file is compiled into both (`machine` includes it by path). Everything in it is atomic:
//! reading is defined behaviour whatever the other side writes, and all values read are checked
//! ([`Corrupt`]).
//!
//! A ring has one producer (the target's thread) and one consumer. It never overflows: the producer
//! waits. If a recording samples few of many branches, the producer keeps only the newest, also in
//! shared memory, and writes them when due.

pub(super) mod consumer;
pub(super) mod producer;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::record::{self, Words};

/// First word of the shared memory.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"lbr-qemu");
/// Maximum number of threads of the target recorded at the same time.
pub(super) const RINGS: usize = 128;
/// Records per ring. A power of two. Small under Miri, which is slow.
pub(super) const CAPACITY: usize = if cfg!(miri) { 1 << 4 } else { 1 << 14 };
/// Maximum number of branches that a producer keeps. A power of two.
const MOST_KEPT: usize = 64;

/// The consumer is gone, or wants no more records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

/// The outcome of sending to the consumer.
pub(super) type Sent = Result<(), Stopped>;

/// The shared memory. All-zero bytes are a valid start, except for [`Header::open`].
#[derive(Debug)]
#[repr(C)]
pub(super) struct Region {
    /// State of the process.
    pub(super) header: Header,
    /// The rings.
    pub(super) rings: [Ring; RINGS],
}

/// State of the process.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Header {
    magic: AtomicU64,
    /// Consumer: it wants no more records.
    closed: AtomicU32,
    /// Producer: the plugin is loaded.
    pub(super) attached: AtomicU32,
    /// Producer: recording has started.
    pub(super) reached: AtomicU32,
    /// Producer: the plugin has failed and printed the reason to standard error.
    pub(super) failed: AtomicU32,
    /// Producer: the program's addresses differ from the host's (QEMU's guest_base).
    pub(super) relocated: AtomicU32,
    /// Producer: number of forked processes, which are not recorded.
    pub(super) forks: AtomicU64,
    /// Producer: number of threads without a ring.
    pub(super) threads_left: AtomicU64,
    /// Producer: rings at or above this index were never claimed.
    claimed: AtomicU64,
    /// Consumer: bitmap of the branch tags that it wants.
    wanted: AtomicU32,
    /// Consumer: number of newest branches it wants; 0 for all.
    newest: AtomicU32,
    /// Consumer: after how many branches each time; `u64::MAX` if only on request.
    every: AtomicU64,
    /// Consumer: it wants predictions and cycles of the model.
    modelled: AtomicU32,
}

impl Header {
    /// Initializes new memory, before the consumer starts QEMU. `wanted`: bitmap of branch tags.
    /// `sampling`: how many branches the consumer wants each time (at most 64), and after how many;
    /// `None` requests all. `modelled`: it wants predictions and cycles of the model.
    pub(super) fn open(&self, wanted: u32, sampling: Option<(usize, Option<u64>)>, modelled: bool) {
        self.wanted.store(wanted, Ordering::Relaxed);
        self.modelled.store(modelled.into(), Ordering::Relaxed);
        if let Some((newest, every)) = sampling {
            self.newest.store(newest.min(MOST_KEPT) as u32, Ordering::Relaxed);
            self.every.store(every.unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether the memory has the right magic.
    pub(super) fn is_ours(&self) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC
    }

    /// Whether the consumer wants branches whose record starts with this word.
    pub(super) fn wants(&self, word: u64) -> bool {
        self.wanted.load(Ordering::Relaxed) >> (record::tag(word) & 31) & 1 != 0
    }

    /// Whether the consumer wants predictions and cycles of the model.
    pub(super) fn is_modelled(&self) -> bool {
        self.modelled.load(Ordering::Relaxed) != 0
    }

    /// Tells the producer that the consumer wants no more records.
    pub(super) fn close(&self) {
        self.closed.store(1, Ordering::Release);
    }

    /// Whether the consumer wants no more records.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }
}

impl Region {
    /// The rings that threads have ever used.
    pub(super) fn claimed(&self) -> &[Ring] {
        let count = self.header.claimed.load(Ordering::Acquire);
        let count = usize::try_from(count).unwrap_or(RINGS).min(RINGS);
        self.rings.get(..count).unwrap_or(&self.rings)
    }
}

/// A counter on its own cache line (and the adjacent line, which is prefetched).
#[derive(Debug)]
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// One thread's records.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ring {
    /// Number of records written; set by the producer.
    tail: Counter,
    /// Number of records released; set by the consumer.
    head: Counter,
    /// The number of kept branches at which the producer writes the newest. Set by the producer;
    /// the consumer stores 0 to request them.
    due: Counter,
    kept: Kept,
    /// The producer's counters.
    pub(super) counts: Counts,
    /// A thread uses it.
    live: AtomicU32,
    entries: [[AtomicU64; 2]; CAPACITY],
}

/// The newest branches of a thread whose branches are sampled. Only the producer writes them; the
/// consumer reads them after the thread has died.
#[derive(Debug)]
#[repr(C, align(128))]
struct Kept {
    /// Total number of branches kept; their slots are these numbers modulo the size.
    total: AtomicU64,
    entries: [[AtomicU64; 2]; MOST_KEPT],
}

/// Counters of a thread. Only its producer writes them, except that the consumer resets them when
/// the thread has ended.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Counts {
    /// Instructions of executed blocks.
    pub(super) instructions: AtomicU64,
    /// System calls that returned, and signals that were delivered.
    pub(super) kernel_returns: AtomicU64,
    /// Branches followed by neither of their possible addresses, so that something else transferred
    /// control; not recorded.
    pub(super) impossible: AtomicU64,
    /// Executed conditional branches to the next instruction: it is not visible whether they were
    /// taken, so they are not recorded.
    pub(super) invisible: AtomicU64,
    /// Branches that a signal interrupted and that are not known to be taken (yet, or ever); not
    /// recorded.
    pub(super) interrupted: AtomicU64,
    /// Not a counter: address of the last block started, or the address after it once its system
    /// call executes.
    pub(super) at: AtomicU64,
}

impl Counts {
    /// Adds to a counter; there is no other writer.
    #[inline]
    pub(super) fn add(count: &AtomicU64, n: u64) {
        count.store(count.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }
}

impl Kept {
    /// The last `count` of `total` branches, oldest first.
    fn last(&self, total: u64, count: u64) -> impl Iterator<Item = Words> + '_ {
        (0..count).rev().filter_map(move |age| {
            let number = total.wrapping_sub(1).wrapping_sub(age);
            let [low, high] = self.entries.get(number as usize & (MOST_KEPT - 1))?;
            Some([low.load(Ordering::Relaxed), high.load(Ordering::Relaxed)])
        })
    }
}

#[cfg(test)]
#[path = "../../../../../tests/sampler/unit/source/qemu/channel.rs"]
mod tests;
