//! What the tracer and the thread that waits for it both see.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::tracer::pid_of;
use crate::source::sites::Sites;

/// What the tracer and the thread that waits for it both see.
#[derive(Debug)]
pub(super) struct Shared {
    /// Processes that run under us.
    pub(super) running: Mutex<HashSet<u32>>,
    pub(super) sites: Sites,
}

impl Shared {
    /// Kills every process of the target.
    pub(super) fn kill(&self) {
        for &pid in self.running.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = nix::sys::signal::kill(pid_of(pid), nix::sys::signal::Signal::SIGKILL);
        }
    }

    /// A process runs under us from here on.
    pub(super) fn runs(&self, pid: u32) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    /// A process is no longer ours; whether it was.
    pub(super) fn left(&self, pid: u32) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid)
    }

    pub(super) fn none_left(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
