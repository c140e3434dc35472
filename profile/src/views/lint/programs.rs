//! Which program each process of a recording runs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lbr_msr::record::Event;

/// Processes of which it is known what they run at most, and those that have
/// ended among them.
const MOST: usize = 1 << 16;
const FEW: usize = 1 << 12;

/// The program that each process runs: the first file mapped into it.
#[derive(Debug, Default)]
pub(super) struct Programs {
    by_process: HashMap<u32, (u64, Arc<str>)>,
    /// Each path once, however many processes run it.
    paths: HashSet<Arc<str>>,
}

impl Programs {
    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Comm(comm) if comm.exec => {
                self.by_process.remove(&comm.pid);
            }
            // Samples of other CPUs may come behind it.
            Event::Exit(task) if task.pid == task.tid && self.by_process.len() > FEW => {
                self.by_process.remove(&task.pid);
            }
            Event::Mmap(map) if map.path.starts_with('/') && !map.path.starts_with("//") => {
                // Recorders before Linux 3.16 do not mark an exec: a new
                // program lies where the old one lay.
                let covers =
                    |start: u64| start.checked_sub(map.addr).is_some_and(|within| within < map.len);
                match self.by_process.get(&map.pid) {
                    Some((start, _)) if !covers(*start) => {}
                    // Of too many nobody knows what they run.
                    None if self.by_process.len() >= MOST => {}
                    _ => {
                        let path = match self.paths.get(map.path.as_str()) {
                            Some(known) => Arc::clone(known),
                            None => {
                                let new: Arc<str> = map.path.as_str().into();
                                self.paths.insert(Arc::clone(&new));
                                new
                            }
                        };
                        self.by_process.insert(map.pid, (map.addr, path));
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether a file is known not to be the program of the process.
    pub(super) fn is_other(&self, pid: Option<u32>, file: Option<&str>) -> bool {
        let program = pid.and_then(|pid| self.by_process.get(&pid));
        program.is_some_and(|(_, program)| file != Some(&**program))
    }
}
