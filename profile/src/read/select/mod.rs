//! Which samples of a recording to count: by event, task, CPU and time.
//!
//! A [`Selection`] is applied where samples leave a [`Recording`](crate::Recording), so that every
//! analysis sees the same ones. Dropped samples are counted ([`LeftOut`]). It selects samples,
//! never entries of a stack: code ran straight between two adjacent entries, and without one of
//! them it would seem to have run between others. [`LocationFilter`](crate::maps::LocationFilter),
//! which selects branches by location, is for the rows of a finished table.

mod choice;
mod comms;
mod events;
mod times;

use std::fmt;

pub(crate) use choice::{Choice, CommOf, FirstPass};
pub use choice::{Field, LeftOut, Why};
pub(crate) use comms::Comms;
pub(crate) use events::Interned;
pub use times::{NotTimes, Times};

use crate::read::perf_data::{Rate, ReadError};

/// The samples to count: those that match every non-empty list. A sample without a requested
/// property does not match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Events, by perf's name. A name without modifiers selects every event with that name, unless
    /// one is called exactly so: `cycles` for `cycles:u`.
    pub events: Vec<String>,
    /// Names of threads at the time of the sample.
    pub comms: Vec<String>,
    /// Processes.
    pub pids: Vec<u32>,
    /// Threads.
    pub tids: Vec<u32>,
    /// Logical CPUs.
    pub cpus: Vec<u32>,
    /// Times of the recording's clock; any of these ranges.
    pub times: Vec<Times>,
}

impl Selection {
    /// Whether it selects every sample.
    pub fn is_empty(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether it needs names that a stream may contain only after the samples concerned: the
    /// recording must then be a file, which is read twice.
    pub fn needs_names(&self) -> bool {
        let share = |times: &Times| matches!(times, Times::Share { .. });
        !self.events.is_empty() || !self.comms.is_empty() || self.times.iter().any(share)
    }
}

impl fmt::Display for Selection {
    /// `event cycles:u, pid 12 or 13, time 1.5 to 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers = |list: &[u32]| list.iter().map(|n| (*n as i32).to_string()).collect();
        let times: Vec<String> = self.times.iter().map(ToString::to_string).collect();
        let parts: [(&str, Vec<String>); 6] = [
            ("event", self.events.clone()),
            ("comm", self.comms.clone()),
            ("pid", numbers(&self.pids)),
            ("tid", numbers(&self.tids)),
            ("cpu", numbers(&self.cpus)),
            ("time", times),
        ];
        let parts = parts.iter().filter(|(_, list)| !list.is_empty());
        let part = |(what, list): &(&str, Vec<String>)| format!("{what} {}", list.join(" or "));
        f.write_str(&parts.map(part).collect::<Vec<_>>().join(", "))
    }
}

/// Why a selection cannot be applied to a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// Percentages of an unknown time.
    #[error(
        "the recording does not contain the times of its first and last sample: give --time in \
         seconds (perf record --timestamp-boundary writes the two)"
    )]
    NoTimes,
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Selected samples of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSamples {
    /// Its name; without one in the recording, the name that perf derives from its attribute.
    pub name: String,
    /// Whether the recording contains the name.
    pub named: bool,
    /// Number of samples.
    pub samples: u64,
    /// How often samples were taken; `None` in text, and for a period that varied.
    pub rate: Option<Rate>,
}

/// The names in a recording, and which of the requested ones exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// For each requested event, whether it exists.
    pub known_events: Vec<bool>,
    /// For each requested thread name, whether it exists.
    pub known_comms: Vec<bool>,
    /// Events with branch stacks.
    pub events: Vec<String>,
    /// Names of threads and their sample counts, selected or not, most frequent first; empty if no
    /// name was requested.
    pub comms: Vec<(String, u64)>,
}
