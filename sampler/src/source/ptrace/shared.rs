//! State shared by the tracer and the thread that waits for it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use super::sys::pid_of;
use crate::source::sites::Sites;

/// State shared by the tracer and the thread that waits for it.
#[derive(Debug)]
pub(super) struct Shared {
    /// The traced processes.
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

    /// Adds a traced process.
    pub(super) fn runs(&self, pid: u32) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    /// Removes a process; returns whether it was traced.
    pub(super) fn left(&self, pid: u32) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid)
    }

    pub(super) fn none_left(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
