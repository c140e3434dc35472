//! The branch types of a target, as its source decoded them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use lbr_msr::record::{BranchType, HwBranchType};

use super::Decoding;

/// perf's type of each branch site, by process and address. Clones share the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    types: RwLock<HashMap<(u32, u64), BranchType>>,
    /// How often the type of a known site has changed.
    changes: AtomicU64,
}

/// Cache size of a reader; a power of two.
const RECENT: usize = 4096;

impl Sites {
    /// Sets the type of a branch site, before it is first retired. If code was replaced, the newest
    /// type wins.
    pub(super) fn insert(&self, pid: u32, address: u64, branch_type: BranchType) {
        let mut types = self.0.types.write().unwrap_or_else(PoisonError::into_inner);
        let before = types.insert((pid, address), branch_type);
        if before.is_some_and(|before| before != branch_type) {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    fn get(&self, pid: u32, address: u64) -> Option<BranchType> {
        let types = self.0.types.read().unwrap_or_else(PoisonError::into_inner);
        types.get(&(pid, address)).copied()
    }

    /// Returns the types of known sites; no type for unknown ones.
    pub(super) fn decoding(&self) -> Decoding {
        let sites = self.clone();
        // Most branches are found here, without the lock.
        let mut recent = vec![(0, 0, BranchType(0)); RECENT];
        let mut seen = 0;
        let classify = move |pid, address: u64| {
            let changes = sites.0.changes.load(Ordering::Acquire);
            if changes != seen {
                seen = changes;
                recent.fill((0, 0, BranchType(0)));
            }
            let slot = recent.get_mut(address as usize % RECENT)?;
            if (slot.0, slot.1) != (pid, address) {
                *slot = (pid, address, sites.get(pid, address)?);
            }
            Some(slot.2)
        };
        Decoding { classify: Some(Box::new(classify)), ..Decoding::default() }
    }
}

/// A cache of recent sites in front of the table shared with the classifier: most branches are
/// found here without a lock.
pub(super) struct SiteCache<'a> {
    shared: &'a Sites,
    recent: Box<[(u64, HwBranchType); RECENT]>,
}

impl<'a> SiteCache<'a> {
    pub(super) fn new(shared: &'a Sites) -> SiteCache<'a> {
        // Far branches are not recorded, so this entry means empty.
        SiteCache { shared, recent: Box::new([(0, HwBranchType::Other); RECENT]) }
    }

    #[inline]
    pub(super) fn note(&mut self, pid: u32, from: u64, class: HwBranchType) {
        let index = from as usize % RECENT;
        if let Some(recent) = self.recent.get_mut(index)
            && *recent != (from, class)
        {
            *recent = (from, class);
            self.add(pid, from, class);
        }
    }

    #[cold]
    fn add(&self, pid: u32, from: u64, class: HwBranchType) {
        if let Some(branch_type) = class.branch_type() {
            self.shared.insert(pid, from, branch_type);
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/sampler/unit/source/sites.rs"]
mod tests;
