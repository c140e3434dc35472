//! The access rights that a plan needs from a backend with its own allowlist.

use alloc::vec::Vec;

use super::{ArmPlan, FREEZE_LBRS_ON_PMI, LBR_FRZ};
use crate::{
    address::{IA32_DEBUGCTL, Msr},
    register::{LbrCtl, LbrSelect},
};

/// A register that a plan reads, and the bits it writes, for comparison with a backend's allowlist
/// (msr-safe).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Need {
    /// Register.
    pub msr: Msr,
    /// Bits that are written; 0 if the register is only read.
    pub write_mask: u64,
}

impl ArmPlan {
    /// Every register that saving, arming, draining and restoring access, in ascending order, with
    /// the bits written. Records are written whole, to clear them.
    pub fn needs(&self) -> Vec<Need> {
        let select = self.select();
        let mask = |msr: Msr| {
            if msr == self.map.control {
                let mut bits = self.map.enable;
                if self.whole_control {
                    bits |= LbrCtl::DOCUMENTED;
                } else if msr == IA32_DEBUGCTL && (self.freeze_on_pmi || self.call_stack) {
                    bits |= FREEZE_LBRS_ON_PMI;
                }
                bits
            } else if msr == IA32_DEBUGCTL {
                FREEZE_LBRS_ON_PMI
            } else if Some(msr) == select {
                LbrSelect::DOCUMENTED
            } else if Some(msr) == self.map.depth {
                0xFF
            } else if self.status.is_some_and(|(_, reset)| msr == reset) {
                LBR_FRZ
            } else {
                u64::MAX
            }
        };
        let mut needs: Vec<Need> =
            self.allowed.iter().map(|&msr| Need { msr, write_mask: mask(msr) }).collect();
        let read = self.saved_registers().into_iter().chain(self.map.tos);
        for msr in read.filter(|msr| self.allowed.binary_search(msr).is_err()) {
            needs.push(Need { msr, write_mask: 0 });
        }
        needs.sort_unstable();
        needs
    }
}
