//! The addresses of the program's signal handlers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Maximum number of remembered handlers. There are 64 signals; a program may change handlers
/// repeatedly.
const LIMIT: usize = 256;

/// Words of a bitmap with a bit for each byte of a page.
const PLACES: usize = 4096 / 64;

/// An append-only set, readable without a lock.
#[derive(Debug)]
pub(super) struct Handlers {
    adding: Mutex<()>,
    /// Bitmap of the page offsets of handlers, which excludes most other addresses.
    places: [AtomicU64; PLACES],
    /// 0 in unused slots.
    addresses: [AtomicU64; LIMIT],
}

impl Handlers {
    pub(super) const fn new() -> Handlers {
        Handlers {
            adding: Mutex::new(()),
            places: [const { AtomicU64::new(0) }; PLACES],
            addresses: [const { AtomicU64::new(0) }; LIMIT],
        }
    }

    /// Adds a handler; ignored beyond the limit.
    pub(super) fn add(&self, address: u64) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if self.contains(address) {
            return;
        }
        let unused = self.addresses.iter().find(|slot| slot.load(Ordering::Relaxed) == 0);
        if let (Some(slot), Some(places)) = (unused, self.places.get(word(address))) {
            slot.store(address, Ordering::Relaxed);
            places.fetch_or(bit(address), Ordering::Release);
        }
    }

    /// Whether the address may be a signal handler: `false` is certain, and cheap.
    #[inline]
    pub(super) fn may_contain(&self, address: u64) -> bool {
        let places = self.places.get(word(address));
        places.is_some_and(|places| places.load(Ordering::Acquire) & bit(address) != 0)
    }

    /// Whether the address is a signal handler.
    pub(super) fn contains(&self, address: u64) -> bool {
        let mut known = self.addresses.iter().map(|slot| slot.load(Ordering::Relaxed));
        self.may_contain(address) && known.any(|known| known == address)
    }
}

/// The index of the [word](Handlers::places) with an address's bit.
const fn word(address: u64) -> usize {
    (address >> 6) as usize & (PLACES - 1)
}

const fn bit(address: u64) -> u64 {
    1 << (address & 63)
}

#[cfg(test)]
#[path = "../../../tests/machine/unit/user/handlers.rs"]
mod tests;
