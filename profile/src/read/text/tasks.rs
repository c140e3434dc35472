//! Which process a thread is of, where samples say one number alone.

use std::collections::HashMap;

use crate::read::stack::SampleHead;

/// What the lines so far said of it.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Processes by thread.
    processes: HashMap<u32, u32>,
    /// The first of the threads of which nothing says it.
    alone: Option<u32>,
    /// There are several of these.
    unsaid: bool,
}

/// Threads that are kept.
const MOST: usize = 1 << 20;

impl Tasks {
    /// A line said it. A process is the thread that it began with.
    pub(super) fn tell(&mut self, pid: u32, tid: u32) {
        for id in [pid, tid] {
            if self.processes.len() < MOST || self.processes.contains_key(&id) {
                self.processes.insert(id, pid);
            }
        }
    }

    /// Says it in a sample.
    pub(super) fn find(&mut self, head: &mut SampleHead) {
        let (None, Some(tid)) = (head.pid, head.tid) else { return };
        head.pid = self.processes.get(&tid).copied();
        if head.pid.is_none() {
            self.unsaid |= *self.alone.get_or_insert(tid) != tid;
        }
    }

    /// Samples are of several threads, and nothing says of which processes.
    pub(super) fn are_unsaid(&self) -> bool {
        self.unsaid
    }
}
