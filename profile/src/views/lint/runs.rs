//! Whether the stacks of a recording can be of one run: each thread's come one
//! after the other, and where they say that they join, they do. Only our own
//! recorder says that much; others write by buffers of their CPUs, in no order.

use std::collections::HashSet;

use lbr_msr::record::Event;

use crate::clean::{ByThread, Cleaned, Holds, Joins, add};
use crate::read::address::crosses;
use crate::read::names::is_name;
use crate::read::note::Source;

/// Threads that are followed at a time.
const THREADS: usize = 1 << 16;

/// What speaks against one run.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// By thread, when its last stack was drained, and where the thread stood.
    last: ByThread<(u64, u64)>,
    /// Stacks that came behind another of their thread.
    pub(super) followed: u64,
    /// Of those, earlier than it.
    pub(super) earlier: u64,
    /// Of those, at its very time, and elsewhere.
    pub(super) at_once: u64,
    /// Stacks that say that they join to the one before.
    pub(super) joined: u64,
    /// Of those, that begin where no straight code leads to.
    pub(super) apart: u64,
    /// Processes of a software LBR that another one forked, and those that none did.
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
        if stack.joins == Joins::Before && stack.holds == Holds::Everything {
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
        // Through the kernel, and between symbols, nobody knows the way.
        if crosses(entry, exit) || is_name(entry) || is_name(exit) {
            return;
        }
        add(&mut self.joined, stack.weight);
        if first.straight().is_none() {
            add(&mut self.apart, stack.weight);
        }
    }

    /// Processes that nobody forked: a recorder of software LBRs starts one.
    pub(super) fn begun(&self) -> u64 {
        self.begun.difference(&self.forked).count() as u64
    }
}
