//! Samples that may continue on further lines.

use crate::read::brstack::{BranchCounters, SecondCount};
use crate::read::stack::{RawBranch, SampleHead};

/// Data that was read but not yet returned.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// A sample whose branches may follow.
    pub(super) open: Option<Open>,
    pub(super) dump: Dump,
    /// A sample whose instructions follow, with the counts logged there.
    pub(super) counted: Option<WithCounts>,
    /// Number of empty lines since its last line.
    pub(super) gap: usize,
    /// The second count of the last aggregated line.
    pub(super) second: Option<SecondCount>,
}

/// A sample whose branches may follow on further lines.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) head: Box<SampleHead>,
    pub(super) comm: usize,
    /// Those read so far.
    pub(super) entries: Vec<RawBranch>,
}

/// A dumped sample (`-D`): returned with the next, because text of the same sample may follow.
#[derive(Debug, Default)]
pub(super) struct Dump {
    pub(super) head: Option<Box<SampleHead>>,
    pub(super) entries: Vec<RawBranch>,
    /// The line that announces its stack, and the announced number of branches.
    pub(super) stack: Option<(u64, u64)>,
}

/// A sample, and the counts of the following instructions.
#[derive(Debug)]
pub(super) struct WithCounts {
    pub(super) sample: Open,
    pub(super) counts: Vec<BranchCounters>,
}

impl Pending {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none()
            && self.dump.head.is_none()
            && self.second.is_none()
            && self.counted.is_none()
    }

    /// Whether a sample's line continues the pending sample: the branches of an open one, or the
    /// text of a dumped one.
    pub(super) fn goes_on(&self, head: &SampleHead, entries: &[RawBranch]) -> bool {
        if entries.is_empty() {
            let dumped = self.dump.head.as_ref();
            let is_dumped =
                dumped.is_some_and(|dumped| head.tid.is_none() || head.tid == dumped.tid);
            return self.open.is_none() && is_dumped;
        }
        let place = |branch: &RawBranch| (branch.from, branch.to);
        let repeats = self.dump.head.is_some()
            && entries.iter().map(place).eq(self.dump.entries.iter().map(place));
        match self.open.is_some() {
            true => *head == SampleHead::default() && (repeats || self.dump.head.is_none()),
            false => repeats,
        }
    }
}

impl WithCounts {
    /// The counts logged with each of its branches, newest first, in perf.data's form; empty if any
    /// branch has no line with counts. perf prints the oldest first.
    pub(super) fn words(&self) -> Vec<[u8; 8]> {
        let mut counts = self.counts.iter();
        let word = |branch: &RawBranch| {
            let counted = counts.find(|counted| counted.at == branch.from)?;
            Some(counted.word.to_le_bytes())
        };
        let words: Option<Vec<[u8; 8]>> = self.sample.entries.iter().rev().map(word).collect();
        words.into_iter().flatten().rev().collect()
    }
}
