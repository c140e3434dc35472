//! Lines that are not `perf script` output.

use crate::read::brstack::LineError;

/// The refused lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of lines.
    pub lines: u64,
    /// Number of the first, from 1.
    pub first: u64,
    /// Why the first was refused.
    pub error: LineError,
    /// The first eight runs of consecutive lines: the numbers of the first and the last.
    pub runs: Vec<(u64, u64)>,
}

/// Maximum number of runs kept.
const MAX_RUNS: usize = 8;

impl Refused {
    /// Adds a later line.
    pub(super) fn add(&mut self, number: u64) {
        self.lines += 1;
        if let Some((_, last)) = self.runs.iter_mut().find(|(_, last)| last + 1 == number) {
            *last = number;
        } else if self.runs.len() < MAX_RUNS {
            self.runs.push((number, number));
        }
    }
}
