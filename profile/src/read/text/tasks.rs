//! The process of each thread, for samples with only one number.

use std::collections::HashMap;

use lbr_msr::record::Event;

use crate::read::stack::SampleHead;

/// The processes known so far.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Processes by thread.
    processes: HashMap<u32, u32>,
    /// The first thread whose process is unknown.
    alone: Option<u32>,
    /// Whether there are several of these.
    pub(super) unsaid: bool,
}

/// Maximum number of threads kept.
const MOST: usize = 1 << 20;

impl Tasks {
    /// Adds the processes of an event's threads.
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Mmap(map) => self.tell(map.pid, map.tid),
            Event::Comm(comm) => self.tell(comm.pid, comm.tid),
            Event::Fork(task) => {
                self.tell(task.pid, task.tid);
                self.tell(task.ppid, task.ptid);
            }
            _ => {}
        }
    }

    /// Adds a thread's process. A process has the number of its first thread.
    fn tell(&mut self, pid: u32, tid: u32) {
        for id in [pid, tid] {
            if self.processes.len() < MOST || self.processes.contains_key(&id) {
                self.processes.insert(id, pid);
            }
        }
    }

    /// Sets the process of a sample.
    pub(super) fn find(&mut self, head: &mut SampleHead) {
        let (None, Some(tid)) = (head.pid, head.tid) else { return };
        head.pid = self.processes.get(&tid).copied();
        if head.pid.is_none() {
            self.unsaid |= *self.alone.get_or_insert(tid) != tid;
        }
    }
}
