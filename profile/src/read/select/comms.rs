//! What threads were called, and when.

use std::collections::HashMap;

use lbr_msr::record::Event;

/// No thread has a longer name, bytes: the kernel's have 15, perf's made-up
/// ones a few more.
const LONGEST: usize = 255;

/// The names of the threads of a recording. As perf has them: a new thread has
/// its parent's name until it gets its own.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    /// By thread: from when on, and which name; in the order of time, equal
    /// times in the order of the file.
    by_thread: HashMap<u32, Vec<(u64, usize)>>,
    changes: usize,
    /// Those beyond them that were not kept.
    unkept: u64,
}

impl Comms {
    /// Changes that are kept at most: a hostile recording could have any
    /// number, and no sound one has a million.
    pub(crate) const MOST: usize = 1 << 20;

    /// Those of events in any order: they are sorted by time, as buffers of
    /// several CPUs come one after the other. `unkept`: how many more there were.
    pub(crate) fn of(mut events: Vec<Event>, unkept: u64) -> Comms {
        let mut comms = Comms { unkept, ..Comms::default() };
        events.sort_by_key(time);
        events.iter().for_each(|event| comms.event(event));
        comms
    }

    /// Whether an event changes names.
    pub(crate) fn is_one(event: &Event) -> bool {
        match event {
            Event::Comm(comm) => comm.comm.len() <= LONGEST,
            Event::Fork(_) => true,
            _ => false,
        }
    }

    /// Takes in what changes names; everything else passes.
    pub(crate) fn event(&mut self, event: &Event) {
        if !Comms::is_one(event) {
            return;
        }
        if self.changes >= Comms::MOST {
            self.unkept += 1;
            return;
        }
        match event {
            Event::Comm(comm) => {
                let number = self.number(&comm.comm);
                self.change(comm.tid, comm.time, number);
            }
            Event::Fork(task) => {
                if let Some(number) = self.number_at(task.ptid, Some(task.time)) {
                    self.change(task.tid, task.time, number);
                }
            }
            _ => {}
        }
    }

    /// What a thread was called; without a time: what it was called last.
    pub(crate) fn at(&self, tid: u32, time: Option<u64>) -> Option<&str> {
        match self.number_at(tid, time) {
            Some(number) => self.names.get(number).map(String::as_str),
            // Nobody names the idle task of a CPU.
            None => (tid == 0).then_some("swapper"),
        }
    }

    /// Changes that were not kept.
    pub(crate) fn unkept(&self) -> u64 {
        self.unkept
    }

    /// Whether any thread was ever called so.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.numbers.contains_key(name)
    }

    fn number_at(&self, tid: u32, time: Option<u64>) -> Option<usize> {
        let changes = self.by_thread.get(&tid)?;
        let end =
            time.map_or(changes.len(), |time| changes.partition_point(|(since, _)| *since <= time));
        changes.get(end.checked_sub(1)?).map(|(_, number)| *number)
    }

    fn number(&mut self, name: &str) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len();
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }

    fn change(&mut self, tid: u32, time: u64, number: usize) {
        self.changes += 1;
        let changes = self.by_thread.entry(tid).or_default();
        let at = changes.partition_point(|(since, _)| *since <= time);
        changes.insert(at, (time, number));
    }
}

/// When an event happened; 0 for those without a time, which perf takes first.
fn time(event: &Event) -> u64 {
    match event {
        Event::Comm(comm) => comm.time,
        Event::Fork(task) => task.time,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use lbr_msr::record::Comm;

    use super::*;

    /// What is not kept is counted, of a file that is read twice and of a stream.
    #[test]
    fn changes_beyond_the_most_are_counted() {
        let comm = |time| {
            let comm = "name".to_owned();
            Event::Comm(Comm { pid: 7, tid: 7, time, comm, exec: false })
        };
        let mut comms = Comms::default();
        (0..Comms::MOST as u64 + 3).for_each(|time| comms.event(&comm(time)));
        assert_eq!(comms.unkept(), 3);
        assert_eq!(Comms::of(vec![comm(1)], 5).unkept(), 5);
    }
}
