//! The result of one drain: a fixed-size value that a bounded queue can carry without allocating.

use lbr_msr::record::{Integrity, RawEntry};

use crate::target::ThreadId;

/// The capacity of a [`RawStack`], and so the largest depth that can be drained. All documented
/// facilities have at most 64.
pub const MAX_DEPTH: usize = 64;

/// The raw records of one drain, **newest first**.
#[derive(Clone, Copy)]
pub struct RawStack {
    entries: [RawEntry; MAX_DEPTH],
    len: u8,
    /// How far the entries can be trusted.
    pub integrity: Integrity,
    /// CLOCK_MONOTONIC just after the freeze, nanoseconds.
    pub time: u64,
    /// The thread that executed the branches.
    pub thread: ThreadId,
    /// Logical CPU whose registers were read.
    pub cpu: u32,
    /// Number of new slots: the entries and, on AMD, slots without a record among them.
    pub new_slots: u32,
    /// The oldest entry is the first one after recording was enabled, so its cycle count measures
    /// nothing.
    pub starts_after_thaw: bool,
    /// Number of branches it represents, if the source counted them; else 0.
    pub period: u64,
    /// Argument registers of the thread at its newest branch; see
    /// [`Sample::arguments`](lbr_msr::record::Sample::arguments).
    pub arguments: Option<[u64; 6]>,
    /// Number of register accesses of the drain.
    pub accesses: u32,
}

impl RawStack {
    /// An empty stack of a thread.
    #[must_use]
    pub const fn empty(thread: ThreadId, cpu: u32) -> RawStack {
        RawStack {
            entries: [RawEntry { from: 0, to: 0, info: None }; MAX_DEPTH],
            len: 0,
            integrity: Integrity::UNKNOWN,
            time: 0,
            thread,
            cpu,
            new_slots: 0,
            starts_after_thaw: false,
            period: 0,
            arguments: None,
            accesses: 0,
        }
    }

    /// Resets it to an empty stack of the same thread. The entries are not cleared: that would cost
    /// as much as a drain.
    pub(crate) fn restart(&mut self, cpu: u32) {
        self.len = 0;
        self.integrity = Integrity::UNKNOWN;
        self.time = 0;
        self.cpu = cpu;
        self.new_slots = 0;
        self.starts_after_thaw = false;
        self.period = 0;
        self.arguments = None;
        self.accesses = 0;
    }

    /// The entries, newest first.
    #[must_use]
    pub fn entries(&self) -> &[RawEntry] {
        self.entries.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Adds an entry older than all others. Returns whether there was space.
    pub(crate) fn push(&mut self, entry: RawEntry) -> bool {
        let Some(slot) = self.entries.get_mut(usize::from(self.len)) else { return false };
        *slot = entry;
        self.len += 1;
        true
    }
}

impl std::fmt::Debug for RawStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawStack")
            .field("entries", &self.entries())
            .field("integrity", &self.integrity)
            .field("time", &self.time)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}
