//! Counts by stack for a branch and one of its targets.

use std::collections::HashMap;

use super::sites::Sites;
use crate::clean::few::Few;
use crate::read::add;

/// As in [`Target`](super::Target).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MoreThere {
    pub(super) xy: u64,
    pub(super) yy: u64,
}

/// Sums for targets in stacks that contain a branch more than once.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// By the first transition with this branch and target.
    pub(super) sums: HashMap<u32, MoreThere>,
    /// Times taken in the current stack, and the branch.
    now: Few<(u64, u32)>,
}

impl Repeated {
    /// Counts a taken branch in such a stack.
    pub(super) fn take(&mut self, edge: u32, site: u32) {
        let now = self.now.at(edge);
        *now = (now.0 + 1, site);
    }

    /// Adds the current stack to the sums.
    pub(super) fn settle(&mut self, weight: u64, sites: &mut Sites) {
        for (edge, (y, site)) in self.now.drain() {
            let x = sites.now.at(site).taken;
            if x > 1 {
                let MoreThere { xy, yy } = self.sums.entry(edge).or_default();
                add(xy, weight.saturating_mul(x.saturating_mul(y) - y));
                add(yy, weight.saturating_mul(y.saturating_mul(y) - y));
            }
        }
    }
}
