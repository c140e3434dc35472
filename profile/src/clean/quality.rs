//! How good the data of a recording are.

use std::collections::BTreeMap;

use lbr_msr::record::{Label, Lost};

use crate::clean::interval::Interval;
use crate::read::note::Source;
use crate::read::select::LeftOut;
use crate::read::stack::{RawBranch, SampleHead};

/// What a recording consists of and what is missing from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Samples, aggregated ones counted as often as they stand for.
    pub samples: u64,
    /// Samples without a branch.
    pub empty_stacks: u64,
    /// Entries, the odd ones included.
    pub entries: u64,
    /// Entries 0 -> 0: they say nothing and are not counted as branches.
    pub zero_entries: u64,
    /// Branches that were not taken: they are not counted as taken ones.
    pub not_taken: u64,
    /// Newest entries that stood there twice: one of them is not counted.
    pub duplicated_newest: u64,
    /// Transaction aborts that were logged twice: one of them is not counted.
    pub double_aborts: u64,
    /// Stacks that join to the one before and were not cut.
    pub exact: u64,
    /// Stacks by label.
    pub labels: BTreeMap<Label, u64>,
    /// Stacks that were recorded and are not here, by reason; `None` for a
    /// queue that was full (all that other recorders say).
    pub lost: BTreeMap<Option<Label>, u64>,
    /// Stacks that came from a software LBR.
    pub software: u64,
    /// Stacks that our recorder read from registers.
    pub hardware: u64,
    /// Stacks whose label keeps them out of every count.
    pub excluded: u64,
    /// What a selection left out: no count above has it.
    pub left_out: LeftOut,
}

/// What an entry is to those who follow branches one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A branch that was taken.
    Taken,
    /// Nothing that is known: what comes after it does not follow on what came
    /// before.
    Gap,
    /// No branch that was taken, and nothing is missing.
    LeftOut,
}

impl Quality {
    /// Says what an entry is, and counts it where it is left out. `aborts` are
    /// the [`second_aborts`](crate::clean::second_aborts) of its stack.
    #[inline]
    pub(crate) fn entry(
        &mut self,
        branch: RawBranch,
        index: usize,
        aborts: &[usize],
        weight: u64,
    ) -> Entry {
        if branch.is_empty() {
            add(&mut self.zero_entries, weight);
            return Entry::Gap;
        }
        let left_out = if branch.flags.not_taken() {
            &mut self.not_taken
        } else if aborts.binary_search(&index).is_ok() {
            &mut self.double_aborts
        } else {
            return Entry::Taken;
        };
        add(left_out, weight);
        Entry::LeftOut
    }

    /// Takes a sample's words in. `false` where its branches must stay out of
    /// every count.
    pub fn sample(&mut self, head: &SampleHead, entries: usize) -> bool {
        add(&mut self.samples, head.weight);
        if entries == 0 {
            add(&mut self.empty_stacks, head.weight);
        }
        add(&mut self.entries, head.weight.saturating_mul(entries as u64));
        match head.source {
            Source::Software => add(&mut self.software, head.weight),
            Source::Hardware => add(&mut self.hardware, head.weight),
            Source::Unsaid => return true,
        }
        add(self.labels.entry(head.integrity.label).or_default(), head.weight);
        if head.integrity.is_exact() {
            add(&mut self.exact, head.weight);
        }
        let excluded = head.integrity.label.is_excluded();
        if excluded {
            add(&mut self.excluded, head.weight);
        }
        !excluded
    }

    /// Takes a loss in.
    pub fn lost(&mut self, lost: &Lost) {
        add(self.lost.entry(lost.label).or_default(), lost.stacks);
    }

    /// All that was lost.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        self.lost.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Whether every taken branch is here, in order: counts are then the truth,
    /// and no interval is about them. Of what was selected: of some tasks it
    /// may be all, of a time or a CPU it is not (see [`LeftOut::cuts`]).
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.samples > 0
            && self.exact == self.samples
            && self.lost_total() == 0
            && !self.left_out.cuts
    }

    /// The widest 95 % interval of a share of all branches (see
    /// [`Interval::widest`]); `None` where counts are the truth, and where
    /// there are too few stacks.
    #[must_use]
    pub fn share_interval(&self, share: f64) -> Option<Interval> {
        let out = self.empty_stacks.saturating_add(self.excluded);
        let stacks = self.samples.saturating_sub(out);
        if self.is_complete() { None } else { Interval::widest(share, stacks) }
    }

    /// Share of exact stacks, 0 to 1; `None` where the recording does not say
    /// how its stacks join.
    #[must_use]
    pub fn exact_share(&self) -> Option<f64> {
        let told = self.software + self.hardware;
        (told > 0).then(|| self.exact as f64 / told as f64)
    }
}

/// Counts claimed by a file must not overflow ours.
fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
