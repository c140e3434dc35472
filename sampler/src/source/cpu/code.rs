//! Ownership of executed code: the target's mappings, and how often it was switched out.
//!
//! Branch records do not name a process. A stack with a user-mode branch outside of the target's
//! mappings belongs at least partly to another task.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use lbr_msr::record::{BranchType, Event};
use lbr_msr::text::AsText;

use crate::config::{Classify, Owns};
use crate::maps::{self, Mapping};
use crate::source::ptrace::code::branch_at;
use crate::target::ThreadId;

/// The set of user code addresses of the target.
pub trait UserCode: Send {
    /// Reads the target's mappings again. Returns events for the new ones, with this time.
    fn look(&mut self, time: u64) -> Vec<Event>;

    /// Whether the target has, or had, executable memory at the address, as of the last
    /// [`look`](Self::look).
    fn owns(&self, address: u64) -> bool;
}

/// Checks a stack's branches against the target's code.
pub(super) fn owns(mut code: Box<dyn UserCode>) -> Owns {
    Box::new(move |time, entries, events| {
        let is_outside = |code: &dyn UserCode| {
            entries
                .iter()
                .flat_map(|entry| [entry.from, entry.to])
                // Kernel addresses belong to no process: returns from the kernel, and hidden
                // sources.
                .any(|address| address >> 63 == 0 && !code.owns(address))
        };
        if !is_outside(&*code) {
            return true;
        }
        events.extend(code.look(time));
        !is_outside(&*code)
    })
}

/// Counts involuntary context switches of the target.
pub trait Switches: Send {
    /// The count since the last call; `None` if unknown.
    fn since_last(&mut self) -> Option<u64>;
}

/// The executable mappings of a process, as of each look at `/proc/PID/maps`. Misses mappings that
/// exist only between two looks.
#[derive(Debug)]
struct Mapped {
    id: ThreadId,
    reported: HashSet<Mapping>,
}

/// The code of a process. Clones share their state.
#[derive(Clone, Debug)]
pub struct ProcessCode(Arc<Mutex<Mapped>>);

impl ProcessCode {
    /// For a process; does not look yet.
    pub(in crate::source) fn new(id: ThreadId) -> ProcessCode {
        ProcessCode(Arc::new(Mutex::new(Mapped { id, reported: HashSet::new() })))
    }
}

impl UserCode for ProcessCode {
    fn look(&mut self, time: u64) -> Vec<Event> {
        let mut mapped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = mapped.id;
        // A process that has ended has no mappings; the earlier ones stay known.
        let found = maps::read(id.pid.cast_signed()).unwrap_or_default();
        // The vsyscall page is in the kernel's half, and every process has it.
        let code = found.into_iter().filter(|m| m.is_executable() && m.start >> 63 == 0);
        code.filter(|mapping| mapped.reported.insert(mapping.clone()))
            .map(|mapping| Event::Mmap(Box::new(mapping.event(time, id))))
            .collect()
    }

    fn owns(&self, address: u64) -> bool {
        let mapped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.reported.iter().any(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

/// Maximum number of cached branch types.
const MOST_KNOWN: usize = 1 << 20;

/// Returns types from the process's current code. Results are cached, so a program that replaces
/// its code gets stale types.
pub(super) fn classifier() -> Classify {
    let mut known: HashMap<u64, Option<BranchType>> = HashMap::new();
    Box::new(move |pid, address| {
        if address >> 63 != 0 {
            return None;
        }
        if known.len() > MOST_KNOWN {
            known.clear();
        }
        *known.entry(address).or_insert_with(|| {
            branch_at(pid.cast_signed(), address).map(|branch| branch.branch_type)
        })
    })
}

/// The involuntary context switches of a single-threaded process. Several threads also switch among
/// themselves, so their counts mean nothing.
#[derive(Debug)]
pub(super) struct ProcessSwitches {
    status: Option<File>,
    before: Option<u64>,
}

impl ProcessSwitches {
    pub(super) fn new(pid: u32) -> ProcessSwitches {
        let status = File::open(format!("/proc/{pid}/status")).ok();
        let mut switches = ProcessSwitches { status, before: None };
        switches.since_last();
        switches
    }

    fn count(&self) -> Option<u64> {
        let mut text = [0; 4096];
        let length = self.status.as_ref()?.read_at(&mut text, 0).ok()?;
        involuntary(text.get(..length)?)
    }
}

impl Switches for ProcessSwitches {
    fn since_last(&mut self) -> Option<u64> {
        let now = self.count();
        let before = std::mem::replace(&mut self.before, now);
        now?.checked_sub(before?)
    }
}

/// `nonvoluntary_ctxt_switches` of a `/proc/PID/status` with `Threads` 1.
fn involuntary(status: &[u8]) -> Option<u64> {
    let status = status.as_text();
    let number = |name: &str| -> Option<u64> {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok())
    };
    number("nonvoluntary_ctxt_switches").filter(|_| number("Threads") == Some(1))
}

#[cfg(test)]
#[path = "../../../../tests/sampler/unit/source/cpu/code.rs"]
mod tests;
