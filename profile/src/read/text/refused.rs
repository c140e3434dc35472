//! Lines that are no text of `perf script`.

use crate::brstack::LineError;

/// Lines of text that were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub lines: u64,
    /// Number of the first, counted from 1.
    pub first: u64,
    /// Why that one.
    pub error: LineError,
    /// First and last number of those that follow each other; (0, 0) where
    /// there are fewer such runs.
    runs: [(u64, u64); MAX_RUNS],
}

/// Runs of refused lines that are kept.
const MAX_RUNS: usize = 8;

impl Refused {
    /// The first line, not added yet.
    pub(super) fn new(first: u64, error: LineError) -> Refused {
        Refused { lines: 0, first, error, runs: [(0, 0); MAX_RUNS] }
    }

    /// Adds a line behind all others.
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

    /// Their numbers, first and last of those that follow each other; no more
    /// than the first eight such runs.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.runs.iter().copied().filter(|(_, last)| *last != 0)
    }
}
