//! The branch sites that a reader has reported.

use lbr_msr::record::HwBranchType;

use crate::source::sites::Sites;

/// A cache of recent sites in front of the table shared with the classifier: most branches are
/// found here without a lock.
pub(super) struct SiteCache<'a> {
    shared: &'a Sites,
    recent: Box<[(u64, HwBranchType); SiteCache::SIZE]>,
}

impl<'a> SiteCache<'a> {
    const SIZE: usize = 4096;

    pub(super) fn new(shared: &'a Sites) -> SiteCache<'a> {
        // Far branches are not recorded, so this entry means empty.
        SiteCache { shared, recent: Box::new([(0, HwBranchType::Other); SiteCache::SIZE]) }
    }

    #[inline]
    pub(super) fn note(&mut self, pid: u32, from: u64, class: HwBranchType) {
        let index = from as usize % SiteCache::SIZE;
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
