//! The addresses of the program's signal handlers.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Different handlers that are remembered. There are 64 signals; a program
/// may change a handler over and over.
const LIMIT: usize = 256;

/// A set that only grows, readable without a lock.
#[derive(Debug)]
pub(super) struct Handlers {
    adding: Mutex<()>,
    /// A bit of each address's hash: most others are told apart by it.
    bits: AtomicU64,
    count: AtomicUsize,
    addresses: [AtomicU64; LIMIT],
}

impl Handlers {
    pub(super) const fn new() -> Handlers {
        Handlers {
            adding: Mutex::new(()),
            bits: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            addresses: [const { AtomicU64::new(0) }; LIMIT],
        }
    }

    /// Adds a handler; beyond the limit it is not known as one.
    pub(super) fn add(&self, address: u64) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.contains(address) {
            return;
        }
        let index = self.count.load(Ordering::Relaxed);
        if let Some(slot) = self.addresses.get(index) {
            slot.store(address, Ordering::Relaxed);
            self.count.store(index + 1, Ordering::Release);
            self.bits.fetch_or(bit(address), Ordering::Release);
        }
    }

    /// Whether a signal can enter the program here.
    #[inline]
    pub(super) fn contains(&self, address: u64) -> bool {
        self.bits.load(Ordering::Acquire) & bit(address) != 0 && self.search(address)
    }

    #[cold]
    fn search(&self, address: u64) -> bool {
        let count = self.count.load(Ordering::Acquire);
        self.addresses.iter().take(count).any(|known| known.load(Ordering::Relaxed) == address)
    }
}

const fn bit(address: u64) -> u64 {
    1 << ((address ^ address >> 6 ^ address >> 12) & 63)
}
