//! Lines that are not `perf script` output.

use crate::read::brstack::LineError;

/// The refused lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of lines.
    pub lines: u64,
    /// Number of the first, from 1.
    pub first: u64,
    /// Why the first was refused.
    pub error: LineError,
    /// First and last number of consecutive lines; (0, 0) for unused slots.
    runs: [(u64, u64); MAX_RUNS],
}

/// Maximum number of runs kept.
const MAX_RUNS: usize = 8;

impl Refused {
    /// Starts with the first line, which is not yet added.
    pub(super) fn new(first: u64, error: LineError) -> Refused {
        Refused { lines: 0, first, error, runs: [(0, 0); MAX_RUNS] }
    }

    /// Adds a later line.
    pub(super) fn add(&mut self, number: u64) {
        self.lines += 1;
        let last = self.runs.iter().position(|(_, last)| *last != 0 && last + 1 == number);
        let free = self.runs.iter().position(|(_, last)| *last == 0);
        match (last, free) {
            (Some(at), _) => self.runs.get_mut(at).into_iter().for_each(|run| run.1 = number),
            (None, Some(at)) => {
                self.runs.get_mut(at).into_iter().for_each(|run| *run = (number, number));
            }
            (None, None) => {}
        }
    }

    /// The numbers of the first eight runs of consecutive lines: first and last.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().copied().filter(|(_, last)| *last != 0)
    }
}
