//! Ownership of executed code: the target's mappings, and how often it was switched out.
//!
//! Branch records do not name a process. A stack with a user-mode branch outside of the target's
//! mappings belongs at least partly to another task.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use lbr_msr::insn::{Insn, decode};
use lbr_msr::record::{BranchType, Event};

use crate::config::{Classify, Owns};
use crate::maps::{self, Mapping};
use crate::source::ptrace::code::{LONGEST, bytes_at};
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
        let mut events = Vec::new();
        // The vsyscall page is in the kernel's half, and every process has it.
        for mapping in found.into_iter().filter(|m| m.is_executable() && m.start >> 63 == 0) {
            if !mapped.reported.contains(&mapping) {
                events.push(Event::Mmap(Box::new(mapping.event(time, id))));
                mapped.reported.insert(mapping);
            }
        }
        events
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
            match decode(&bytes_at(pid.cast_signed(), address, LONGEST), address) {
                Insn::Branch(branch) => Some(branch.branch_type),
                Insn::Straight { .. } | Insn::Invalid => None,
            }
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
    let mut threads = None;
    let mut switches = None;
    for line in status.split(|byte| *byte == b'\n') {
        let number = |name: &str| {
            let rest = line.strip_prefix(name.as_bytes())?.strip_prefix(b":")?;
            std::str::from_utf8(rest).ok()?.trim().parse::<u64>().ok()
        };
        threads = threads.or_else(|| number("Threads"));
        switches = switches.or_else(|| number("nonvoluntary_ctxt_switches"));
    }
    switches.filter(|_| threads == Some(1))
}

#[cfg(test)]
mod tests {
    use lbr_msr::record::BranchEntry;

    use super::*;

    #[test]
    fn involuntary_switches_of_one_thread() {
        let status = b"Name:\tx\nThreads:\t1\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t42\n";
        assert_eq!(involuntary(status), Some(42));
        let two = b"Threads:\t2\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t42\n";
        assert_eq!(involuntary(two), None, "threads switch among themselves");
        assert_eq!(involuntary(b"Threads:\t1\n"), None);
        assert_eq!(involuntary(b""), None);
    }

    /// A target with code from 0x1000 to this address; another look finds more.
    struct Known(u64);

    impl UserCode for Known {
        fn look(&mut self, _: u64) -> Vec<Event> {
            self.0 = 0x3000;
            Vec::new()
        }

        fn owns(&self, address: u64) -> bool {
            (0x1000..self.0).contains(&address)
        }
    }

    #[test]
    fn both_ends_of_a_branch_are_the_targets_or_the_kernels() {
        const KERNEL: u64 = 0xffff_ffff_8100_0000;
        for (branches, is_owned) in [
            (&[(0x1000, 0x1008)][..], true),
            (&[(0x1000, 0x1008), (0x9000, 0x1000)], false),
            (&[(0x1000, 0x9000)], false),
            (&[(KERNEL, 0x1000), (0x1000, KERNEL)], true),
            (&[(KERNEL, 0x9000)], false),
            (&[(0x1000, 0x2008), (0x2000, 0x1000)], true),
            (&[], true),
        ] {
            let mut owns = owns(Box::new(Known(0x2000)));
            let entry = |&(from, to)| BranchEntry { from, to, ..BranchEntry::default() };
            let entries: Vec<BranchEntry> = branches.iter().map(entry).collect();
            assert_eq!(owns(5, &entries, &mut Vec::new()), is_owned, "{branches:x?}");
        }
    }

    /// RET and NOP, in memory that this process can read.
    static CODE: [u8; 32] = {
        let mut code = [0x90; 32];
        code[0] = 0xc3;
        code
    };

    #[test]
    fn types_are_those_of_the_process_and_not_of_the_kernel() {
        let mut classify = classifier();
        let (pid, code) = (std::process::id(), CODE.as_ptr() as u64);
        assert_eq!(classify(pid, code), Some(BranchType::RET));
        assert_eq!(classify(pid, code + 1), None, "no branch");
        assert_eq!(classify(pid, code | 1 << 63), None);
    }

    #[test]
    fn switches_are_those_since_the_last_look() {
        let file = tempfile::tempfile().expect("a file");
        let status = Some(file.try_clone().expect("its copy"));
        let mut switches = ProcessSwitches { status, before: None };
        for (threads, count, wanted) in [
            (1, 5, None),
            (1, 9, Some(4)),
            (1, 9, Some(0)),
            // While there were two threads, the count meant nothing.
            (2, 20, None),
            (1, 25, None),
            (1, 26, Some(1)),
        ] {
            let text = format!("Threads:\t{threads}\nnonvoluntary_ctxt_switches:\t{count:<5}\n");
            file.write_all_at(text.as_bytes(), 0).expect("written");
            assert_eq!(switches.since_last(), wanted, "{threads} {count}");
        }
    }

    #[test]
    fn lbrs_own_code_is_recognised_and_announced_once() {
        let pid = std::process::id();
        let mut code = ProcessCode::new(ThreadId { pid, tid: pid });
        let here = lbrs_own_code_is_recognised_and_announced_once as fn() as usize as u64;
        assert!(!code.owns(here), "no look yet");
        let events = code.look(5);
        assert!(code.owns(here) && !code.owns(0x1000));
        let holds = |event: &Event| match event {
            Event::Mmap(map) => map.time == 5 && (map.addr..map.addr + map.len).contains(&here),
            _ => false,
        };
        assert!(events.iter().any(holds), "{events:?}");
        let is_users = |event: &Event| matches!(event, Event::Mmap(map) if map.addr >> 63 == 0);
        assert!(events.iter().all(is_users), "the vsyscall page is every process's: {events:?}");
        assert!(code.look(6).is_empty());
    }
}
