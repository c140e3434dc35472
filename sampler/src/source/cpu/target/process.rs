//! A running process as a target.

use std::time::Duration;

use nix::libc;

use super::{Emit, Target, wait_until};
use crate::clock::monotonic_ns;
use crate::maps::{comm, is_running, numbers};
use crate::source::cpu::code::{ProcessCode, UserCode};
use crate::target::{Affinity, SourceError, ThreadId};

/// A running process, moved to the recorded CPUs until this is dropped.
#[derive(Debug)]
pub struct Process {
    id: ThreadId,
    code: ProcessCode,
    moved: Vec<(i32, Affinity)>,
    /// The duration, if limited.
    limit: Option<Duration>,
}

impl Process {
    /// Moves the threads of `pid` to these CPUs. Later threads inherit the affinity.
    ///
    /// # Errors
    /// [`SourceError`]: the process does not exist, or may not be moved.
    pub fn attach(
        pid: u32,
        cpus: &Affinity,
        limit: Option<Duration>,
    ) -> Result<Process, SourceError> {
        let id = ThreadId { pid, tid: pid };
        let mut process = Process { id, code: ProcessCode::new(id), moved: Vec::new(), limit };
        let threads = numbers(&format!("/proc/{pid}/task"))
            .map_err(|cause| SourceError::os(format!("looking at process {pid}"), cause))?;
        for tid in threads {
            let moved = Affinity::of(tid).and_then(|before| cpus.apply(tid).map(|()| before));
            match moved {
                Ok(before) => process.moved.push((tid, before)),
                // A thread may end at any time.
                Err(SourceError::Os { cause, .. }) if cause.raw_os_error() == Some(libc::ESRCH) => {
                }
                Err(error) => return Err(error),
            }
        }
        Ok(process)
    }
}

impl Target for Process {
    fn id(&self) -> ThreadId {
        self.id
    }

    fn process(&self) -> Option<&ProcessCode> {
        Some(&self.code)
    }

    fn start(&mut self, emit: Emit<'_>) -> Result<(), SourceError> {
        let time = monotonic_ns();
        comm(self.id, time, false).into_iter().chain(self.code.look(time)).for_each(emit);
        Ok(())
    }

    fn wait(&mut self, is_over: &dyn Fn() -> bool, _: Emit<'_>) -> Result<(), SourceError> {
        wait_until(is_over, self.limit, || !is_running(self.id.pid));
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        for (tid, before) in &self.moved {
            // The thread may have ended.
            let _ = before.apply(*tid);
        }
    }
}
