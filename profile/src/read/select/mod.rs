//! Which samples of a recording count: by event, task, CPU and time.
//!
//! A [`Selection`] is applied where samples come out of a
//! [`Recording`](crate::Recording), so that every analysis sees the same ones.
//! What it leaves out is counted ([`LeftOut`]). It chooses samples, never
//! entries of a stack: code ran in a straight line between two neighbours, and
//! without one of them it would seem to have run between others. What chooses
//! branches by where they lie ([`Within`](crate::maps::Within)) is for rows of a finished table.

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

use crate::read::perf_data::ReadError;

/// Samples that count: those that are in every list that is not empty. A
/// sample that does not say what a list asks for is in none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Events, by perf's name. Without modifiers it stands for every event of
    /// that name, if none is called exactly so: `cycles` for `cycles:u`.
    pub events: Vec<String>,
    /// Names of threads, when the sample was taken.
    pub comms: Vec<String>,
    /// Processes.
    pub pids: Vec<u32>,
    /// Threads.
    pub tids: Vec<u32>,
    /// Logical CPUs.
    pub cpus: Vec<u32>,
    /// Times of the recording's clock, in any of these.
    pub times: Vec<Times>,
}

impl Selection {
    /// Whether it lets every sample in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Selection::default()
    }

    /// Whether names are asked for that a stream may tell only behind the
    /// samples that they belong to: a recording is then read twice, which
    /// takes a file.
    #[must_use]
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
        let mut before = "";
        for (what, list) in parts.iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "{before}{what} {}", list.join(" or "))?;
            before = ", ";
        }
        Ok(())
    }
}

/// Why a recording cannot be selected from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// Percentages of a time that nobody knows.
    #[error(
        "the recording does not say when its first and its last sample were taken: give --time in \
         seconds (perf record --timestamp-boundary writes the two)"
    )]
    NoTimes,
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Samples of an event that counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSamples {
    /// Its name; where the recording has none, the one that perf makes out of
    /// its attribute.
    pub name: String,
    /// The recording says the name itself.
    pub named: bool,
    /// Samples.
    pub samples: u64,
}

/// Which of the names that were asked for a recording knows, and which names
/// it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// By event of the selection: the recording has it.
    pub known_events: Vec<bool>,
    /// By name of the selection: a thread bore it.
    pub known_comms: Vec<bool>,
    /// Events with branch stacks.
    pub events: Vec<String>,
    /// Names of threads and their samples, selected or not, the most frequent
    /// first; empty where the selection asks for none.
    pub comms: Vec<(String, u64)>,
}
