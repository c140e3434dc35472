//! MSR_LBR_SELECT if the hyperthreads of a core share it: a value per core, which each virtual CPU
//! copies before it reads its register.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lbr_msr::soft::SoftLbr;
use lbr_msr::{Msr, MsrWrite};

/// A virtual CPU's view of its core's register.
#[derive(Clone, Debug)]
pub(super) struct SharedSelect {
    register: Msr,
    of_core: Arc<AtomicU64>,
    seen: u64,
}

impl SharedSelect {
    /// The register of the core with this value.
    pub(super) fn new(register: Msr, of_core: Arc<AtomicU64>) -> SharedSelect {
        SharedSelect { register, of_core, seen: 0 }
    }

    /// This CPU's register was reset.
    pub(super) const fn reset(&mut self) {
        self.seen = 0;
    }

    /// Copies a value that a sibling has written.
    pub(super) fn take_over(&mut self, lbr: &mut SoftLbr) {
        let now = self.of_core.load(Ordering::Relaxed);
        // The sibling's identical CPU accepted it, so this one does too.
        if now != self.seen && lbr.shares_select() && lbr.write(self.register, now).is_ok() {
            self.seen = now;
        }
    }

    /// This CPU has written `value` to `msr`.
    pub(super) fn written(&mut self, msr: Msr, value: u64) {
        if msr == self.register {
            self.seen = value;
            self.of_core.store(value, Ordering::Relaxed);
        }
    }
}
