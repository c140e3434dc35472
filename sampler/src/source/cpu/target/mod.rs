//! Who makes the branches that are recorded from CPUs: a program that is
//! started, a process that runs already, or whatever runs there.

mod process;
mod program;

use std::time::{Duration, Instant};

use lbr_msr::record::Event;

use super::code::{ProcessCode, ProcessSwitches, Switches, UserCode, classifier};
use crate::config::Classify;
use crate::target::{Exit, SourceError, ThreadId};

pub use process::Process;
pub use program::Program;

/// Whoever ran on a CPU: perf's -1.
pub const ANYBODY: ThreadId = ThreadId { pid: u32::MAX, tid: u32::MAX };

/// Longest sleep between two looks at the target.
const LONG_NAP: Duration = Duration::from_millis(2);

/// Takes events from a target.
pub type Emit<'a> = &'a mut dyn FnMut(Event);

/// What is recorded on hardware. The branches come from the registers; this is
/// who makes them.
pub trait Target {
    /// Whose they are, as far as is known: a process and its main thread, or
    /// [`ANYBODY`]. Registers do not tell threads apart.
    fn id(&self) -> ThreadId;

    /// The process that was started to be recorded.
    fn started(&self) -> Option<u32> {
        None
    }

    /// The mappings of the process that is meant; `None` where anybody's
    /// branches are wanted. What follows is told from it.
    fn process(&self) -> Option<&ProcessCode> {
        None
    }

    /// Its code; `None` where anybody's branches are wanted.
    fn code(&self) -> Option<Box<dyn UserCode>> {
        self.process().map(|code| Box::new(code.clone()) as Box<dyn UserCode>)
    }

    /// Names the type of the branch at an address, from its code; `None` where
    /// that cannot be read.
    fn classify(&self) -> Option<Classify> {
        self.process().map(|_| classifier())
    }

    /// A count of how often it lost its CPU, where that can be had.
    fn switches(&self) -> Option<Box<dyn Switches>> {
        self.process()?;
        Some(Box::new(ProcessSwitches::new(self.id().pid)))
    }

    /// Recording is on: lets it run.
    ///
    /// # Errors
    /// [`SourceError`].
    fn start(&mut self, emit: Emit<'_>) -> Result<(), SourceError>;

    /// Returns when it has ended, or is about to and held there, or when the
    /// recording `is_over`.
    ///
    /// # Errors
    /// [`SourceError`].
    fn wait(&mut self, is_over: &dyn Fn() -> bool, emit: Emit<'_>) -> Result<(), SourceError>;

    /// Recording is off: lets it end. How it ended; `None` for what goes on
    /// without us.
    ///
    /// # Errors
    /// [`SourceError`].
    fn finish(&mut self, emit: Emit<'_>) -> Result<Option<Exit>, SourceError>;
}

/// Whatever runs on the recorded CPUs.
#[derive(Clone, Copy, Debug)]
pub struct WholeCpu {
    /// When to end by itself; `None`: when the recording is stopped.
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

    fn finish(&mut self, _: Emit<'_>) -> Result<Option<Exit>, SourceError> {
        Ok(None)
    }
}

/// Returns when the recording `is_over`, the time is up, or the target has
/// `ended`.
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
