//! The names of threads over time.

use std::collections::HashMap;

use lbr_msr::record::Event;

use crate::texts::Texts;

/// Longest name of a thread in bytes: the kernel's have 15, perf's synthesized ones a few more.
const LONGEST: usize = 255;

/// The names of a recording's threads. As in perf, a new thread has its parent's name until it gets
/// its own.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    names: Texts,
    /// By thread: the start time and the name, ordered by time, equal times in file order.
    by_thread: HashMap<u32, Vec<(u64, u32)>>,
    changes: usize,
    /// Number of further changes that were not kept.
    pub(super) unkept: u64,
}

impl Comms {
    /// Maximum number of changes: a hostile recording could have any number; no valid one has a
    /// million.
    pub(crate) const MOST: usize = 1 << 20;

    /// From events in any order, which are sorted by time, because per-CPU buffers come one after
    /// the other. `unkept`: how many more there were.
    pub(crate) fn of(mut events: Vec<Event>, unkept: u64) -> Comms {
        let mut comms = Comms { unkept, ..Comms::default() };
        events.sort_by_key(time);
        events.iter().for_each(|event| comms.event(event));
        comms
    }

    /// Whether an event changes a name.
    pub(crate) fn is_one(event: &Event) -> bool {
        match event {
            Event::Comm(comm) => comm.comm.len() <= LONGEST,
            Event::Fork(_) => true,
            _ => false,
        }
    }

    /// Adds an event that changes a name; ignores others.
    pub(crate) fn event(&mut self, event: &Event) {
        if !Comms::is_one(event) {
            return;
        }
        if self.changes >= Comms::MOST {
            self.unkept += 1;
            return;
        }
        let (tid, time, number) = match event {
            Event::Comm(comm) => (comm.tid, comm.time, self.names.number(&comm.comm)),
            Event::Fork(task) => (task.tid, task.time, self.number_at(task.ptid, Some(task.time))),
            _ => return,
        };
        let Some(number) = number else { return };
        self.changes += 1;
        let changes = self.by_thread.entry(tid).or_default();
        let at = changes.partition_point(|(since, _)| *since <= time);
        changes.insert(at, (time, number));
    }

    /// The name of a thread at a time; without a time, its last name.
    pub(crate) fn at(&self, tid: u32, time: Option<u64>) -> Option<&str> {
        match self.number_at(tid, time) {
            Some(number) => self.names.get(number),
            // A CPU's idle task has no name record.
            None => (tid == 0).then_some("swapper"),
        }
    }

    /// Whether any thread ever had this name.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.names.find(name).is_some()
    }

    fn number_at(&self, tid: u32, time: Option<u64>) -> Option<u32> {
        let changes = self.by_thread.get(&tid)?;
        let end =
            time.map_or(changes.len(), |time| changes.partition_point(|(since, _)| *since <= time));
        changes.get(end.checked_sub(1)?).map(|(_, number)| *number)
    }
}

/// The time of an event; 0 for those without a time, which perf processes first.
fn time(event: &Event) -> u64 {
    match event {
        Event::Comm(comm) => comm.time,
        Event::Fork(task) => task.time,
        _ => 0,
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/read/select/comms.rs"]
mod tests;
