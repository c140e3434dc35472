//! The branches of a target, as its source has decoded them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use lbr_msr::record::BranchType;

use super::Decoding;

/// perf's type of each branch site, by process and address. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Sites(Arc<RwLock<HashMap<(u32, u64), BranchType>>>);

impl Sites {
    /// A branch stands there: to be told before it is retired for the first
    /// time. Where code was replaced, the newest counts.
    pub(super) fn insert(&self, pid: u32, address: u64, branch_type: BranchType) {
        let mut sites = self.0.write().unwrap_or_else(PoisonError::into_inner);
        sites.insert((pid, address), branch_type);
    }

    /// Names the types of branches from what was told; no type where none has
    /// executed.
    pub(super) fn decoding(&self) -> Decoding {
        let sites = Arc::clone(&self.0);
        let classify = move |pid, address| {
            sites.read().unwrap_or_else(PoisonError::into_inner).get(&(pid, address)).copied()
        };
        Decoding { classify: Some(Box::new(classify)), ..Decoding::default() }
    }
}
