//! The target of a recording on CPUs: a started program, a running process, or whole CPUs.

mod process;
mod program;

use std::time::{Duration, Instant};

use lbr_msr::record::Event;

use super::code::{ProcessCode, ProcessSwitches, Switches, UserCode, classifier};
use crate::config::Classify;
use crate::target::{Exit, SourceError, ThreadId};

pub use process::Process;
pub use program::Program;

/// Any thread on a CPU: perf's -1.
pub const ANYBODY: ThreadId = ThreadId { pid: u32::MAX, tid: u32::MAX };

/// Longest sleep between two checks of the target.
const LONG_NAP: Duration = Duration::from_millis(2);

/// Receives events from a target.
pub type Emit<'a> = &'a mut dyn FnMut(Event);

/// The target of a recording on hardware: it executes the branches that the registers record.
pub trait Target {
    /// The thread, if known: a process and its main thread, or [`ANYBODY`]. Registers do not
    /// distinguish threads.
    fn id(&self) -> ThreadId;

    /// The process that was started for recording.
    fn started(&self) -> Option<u32> {
        None
    }

    /// The mappings of the recorded process; `None` for whole CPUs. The defaults below use it.
    fn process(&self) -> Option<&ProcessCode> {
        None
    }

    /// Its code; `None` for whole CPUs.
    fn code(&self) -> Option<Box<dyn UserCode>> {
        self.process().map(|code| Box::new(code.clone()) as Box<dyn UserCode>)
    }

    /// Returns the type of the branch at an address, decoded from its code; `None` if the code is
    /// unreadable.
    fn classify(&self) -> Option<Classify> {
        self.process().map(|_| classifier())
    }

    /// A counter of its involuntary context switches, if available.
    fn switches(&self) -> Option<Box<dyn Switches>> {
        self.process()?;
        Some(Box::new(ProcessSwitches::new(self.id().pid)))
    }

    /// Recording is on: lets it run.
    ///
    /// # Errors
    /// [`SourceError`].
    fn start(&mut self, emit: Emit<'_>) -> Result<(), SourceError>;

    /// Returns when it has ended, or is held at its end, or when the recording `is_over`.
    ///
    /// # Errors
    /// [`SourceError`].
    fn wait(&mut self, is_over: &dyn Fn() -> bool, emit: Emit<'_>) -> Result<(), SourceError>;

    /// Recording is off: lets it end. Returns how it ended; `None` if it continues running.
    ///
    /// # Errors
    /// [`SourceError`].
    fn finish(&mut self, _emit: Emit<'_>) -> Result<Option<Exit>, SourceError> {
        Ok(None)
    }
}

/// Everything that runs on the recorded CPUs.
#[derive(Clone, Copy, Debug)]
pub struct WholeCpu {
    /// The duration; `None`: until the recording is stopped.
    pub limit: Option<Duration>,
}

impl Target for WholeCpu {
    fn id(&self) -> ThreadId {
        ANYBODY
    }

    fn start(&mut self, _: Emit<'_>) -> Result<(), SourceError> {
        Ok(())
    }

    fn wait(&mut self, is_over: &dyn Fn() -> bool, _: Emit<'_>) -> Result<(), SourceError> {
        wait_until(is_over, self.limit, || false);
        Ok(())
    }
}

/// Returns when the recording `is_over`, the time limit is reached, or the target has `ended`.
pub(in crate::source) fn wait_until(
    is_over: &dyn Fn() -> bool,
    limit: Option<Duration>,
    ended: impl Fn() -> bool,
) {
    let since = Instant::now();
    while !is_over() && limit.is_none_or(|limit| since.elapsed() < limit) && !ended() {
        std::thread::sleep(LONG_NAP);
    }
}
