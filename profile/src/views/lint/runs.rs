//! Checks whether the stacks of a recording can be from one run: each thread's stacks must be in
//! order of time, and stacks marked as joined must join. Only our recorder writes such marks;
//! others write buffers per CPU, unordered.

use std::collections::HashSet;

use lbr_msr::record::Event;

use crate::clean::{ByThread, Cleaned, RecordedBranches};
use crate::read::add;
use crate::read::crosses;
use crate::read::names::is_name;
use crate::read::note::Source;

/// Maximum number of threads tracked.
const THREADS: usize = 1 << 16;

/// Evidence against a single run.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// By thread, the time of its last stack, and its last address.
    last: ByThread<(u64, u64)>,
    /// Stacks after another one of their thread.
    pub(super) followed: u64,
    /// Earlier ones among them.
    pub(super) earlier: u64,
    /// Ones with the same time and another address.
    pub(super) at_once: u64,
    /// Stacks marked as following the previous one.
    pub(super) joined: u64,
    /// Ones among them whose start no fall-through range reaches.
    pub(super) apart: u64,
    /// Processes of a software LBR that were forked by another one, and those that were not.
    forked: HashSet<u32>,
    begun: HashSet<u32>,
}

impl Runs {
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Fork(task) if task.pid != task.ppid && self.forked.len() < THREADS => {
                self.forked.insert(task.pid);
            }
            Event::Exit(task) => {
                self.last.remove(&(Some(task.pid), Some(task.tid)));
            }
            _ => {}
        }
    }

    pub(super) fn stack(&mut self, stack: &Cleaned<'_>) {
        let (head, weight) = (stack.head, stack.weight);
        if head.source == Source::Unsaid {
            return;
        }
        if head.source == Source::Software
            && let Some(pid) = head.pid.filter(|pid| !self.forked.contains(pid))
            && self.begun.len() < THREADS
        {
            self.begun.insert(pid);
        }
        if stack.holds == RecordedBranches::Everything {
            self.joins(stack);
        }
        let (Some(time), Some(newest)) = (head.time, stack.branches.get(0)) else { return };
        if self.last.len() >= THREADS {
            self.last.clear();
        }
        let Some((before, stood)) = self.last.insert(stack.thread, (time, newest.to)) else {
            return;
        };
        add(&mut self.followed, weight);
        if time < before {
            add(&mut self.earlier, weight);
        } else if time == before && stood != newest.to {
            add(&mut self.at_once, weight);
        }
    }

    fn joins(&mut self, stack: &Cleaned<'_>) {
        let Some((before, first)) = stack.before.zip(stack.transitions.first()) else { return };
        let (entry, exit) = (before.to, first.branch.from);
        // Across the kernel and between symbols, the way is unknown.
        if crosses(entry, exit) || is_name(entry) || is_name(exit) {
            return;
        }
        add(&mut self.joined, stack.weight);
        if first.straight().is_none() {
            add(&mut self.apart, stack.weight);
        }
    }

    /// Processes that were not forked in the recording: a recorder of software LBRs starts one.
    pub(super) fn begun(&self) -> u64 {
        self.begun.difference(&self.forked).count() as u64
    }
}
