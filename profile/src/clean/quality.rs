//! Quality of a recording's data.

use std::collections::BTreeMap;

use lbr_msr::record::{Label, Lost};

use super::interval::Interval;
use crate::code::maps::Unkept;
use crate::read::add;
use crate::read::note::Source;
use crate::read::select::LeftOut;
use crate::read::stack::SampleHead;

/// The contents of a recording, and what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Samples, with aggregated ones counted by their weight.
    pub samples: u64,
    /// Samples without a branch.
    pub empty_stacks: u64,
    /// Entries, including artefacts.
    pub entries: u64,
    /// Entries 0 -> 0: empty, not counted as branches.
    pub zero_entries: u64,
    /// Recorded branches that were not taken (Arm SPE): counted as outcomes alone.
    pub not_taken: u64,
    /// Duplicated newest entries: one of each two is not counted.
    pub duplicated_newest: u64,
    /// Transaction aborts that were logged twice: one of each two is not counted.
    pub double_aborts: u64,
    /// Stacks that join the previous one and were not cut.
    pub exact: u64,
    /// Stacks by label.
    pub labels: BTreeMap<Label, u64>,
    /// Recorded stacks that are missing, by reason; `None` for a full queue (the only reason that
    /// other recorders report).
    pub lost: BTreeMap<Option<Label>, u64>,
    /// Stacks from a software LBR.
    pub software: u64,
    /// Stacks that `lbr record` read from registers.
    pub hardware: u64,
    /// Stacks whose label excludes them from every count.
    pub excluded: u64,
    /// Samples dropped by a selection; they are in none of the counts above.
    pub left_out: LeftOut,
    /// Data beyond memory limits.
    pub unkept: Unkept,
    /// The events that the samples represent.
    pub periods: Periods,
}

/// Sums of the periods of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Periods {
    /// Events: the sum of all periods.
    pub events: u64,
    /// The sum of their squares.
    pub squares: u128,
    /// Samples whose period is unknown.
    pub unknown: u64,
}

impl Periods {
    fn sample(&mut self, head: &SampleHead) {
        match head.period.filter(|period| *period > 0) {
            Some(period) => {
                add(&mut self.events, head.weight.saturating_mul(period));
                let square = u128::from(period) * u128::from(period);
                self.squares =
                    self.squares.saturating_add(square.saturating_mul(u128::from(head.weight)));
            }
            None => add(&mut self.unknown, head.weight),
        }
    }

    fn add(&mut self, other: &Periods) {
        add(&mut self.events, other.events);
        add(&mut self.unknown, other.unknown);
        self.squares = self.squares.saturating_add(other.squares);
    }
}

impl Quality {
    /// Adds a sample. `false` if its branches are excluded from every count.
    pub fn sample(&mut self, head: &SampleHead, entries: usize) -> bool {
        add(&mut self.samples, head.weight);
        self.periods.sample(head);
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

    /// Adds the data of another recording.
    pub(crate) fn add(&mut self, other: &Quality) {
        let Quality { labels, lost, left_out, .. } = other;
        for (sum, more) in [
            (&mut self.samples, other.samples),
            (&mut self.empty_stacks, other.empty_stacks),
            (&mut self.entries, other.entries),
            (&mut self.zero_entries, other.zero_entries),
            (&mut self.not_taken, other.not_taken),
            (&mut self.duplicated_newest, other.duplicated_newest),
            (&mut self.double_aborts, other.double_aborts),
            (&mut self.exact, other.exact),
            (&mut self.software, other.software),
            (&mut self.hardware, other.hardware),
            (&mut self.excluded, other.excluded),
        ] {
            add(sum, more);
        }
        labels.iter().for_each(|(label, n)| add(self.labels.entry(*label).or_default(), *n));
        lost.iter().for_each(|(label, n)| add(self.lost.entry(*label).or_default(), *n));
        self.left_out.add(left_out);
        self.periods.add(&other.periods);
    }

    /// Adds a loss.
    pub fn lost(&mut self, lost: &Lost) {
        add(self.lost.entry(lost.label).or_default(), lost.stacks);
    }

    /// Number of stacks in which branches are missing. None in a recording of call stacks: an empty
    /// one is execution in the outermost function.
    pub fn missing_stacks(&self) -> u64 {
        if self.labels.contains_key(&Label::Snapshot) { 0 } else { self.empty_stacks }
    }

    /// Total number of lost stacks.
    pub fn lost_total(&self) -> u64 {
        self.lost.values().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Whether every taken branch is recorded in order, so that counts are exact and need no
    /// interval. For a selection: of some tasks it may be complete, of a time or CPU it is not (see
    /// [`LeftOut::cuts`]).
    pub fn is_complete(&self) -> bool {
        self.samples > 0
            && self.exact == self.samples
            && self.lost_total() == 0
            && !self.left_out.cuts
    }

    /// The widest 95% interval of a share of all branches (see [`Interval::widest`]); `None` if
    /// counts are exact, or there are too few stacks.
    pub fn share_interval(&self, share: f64) -> Option<Interval> {
        let out = self.empty_stacks.saturating_add(self.excluded);
        let stacks = self.samples.saturating_sub(out);
        if self.is_complete() { None } else { Interval::widest(share, stacks) }
    }

    /// Share of exact stacks, 0 to 1; `None` if the recording has no continuity information.
    pub fn exact_share(&self) -> Option<f64> {
        let known = self.software + self.hardware;
        (known > 0).then(|| self.exact as f64 / known as f64)
    }
}

/// Why neighbouring records form no block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockQuality {
    /// Number of executions of blocks.
    pub blocks: u64,
    /// Those of them without code bytes.
    pub without_code: u64,
    /// Further blocks that contradict the code bytes. They are dropped, and nothing is concluded
    /// about branches inside them.
    pub contradicted: u64,
    /// Neighbouring records with backwards execution in between. They are dropped.
    pub backwards: u64,
    /// Neighbouring records more than 1 MiB apart. They are dropped.
    pub too_long: u64,
    /// Neighbouring records with the kernel's boundary or an unrecorded address in between: no
    /// block.
    pub crossing: u64,
    /// Neighbouring records in two functions, or in an unknown one, in recordings with symbols
    /// instead of addresses: their distance is unknown, so no block.
    pub apart: u64,
    /// Stacks without blocks, because not every branch was recorded.
    pub filtered: u64,
    /// Number of places at which the extent of straight-line code is unknown: before a thread's
    /// first branch, after its last, or at a branch whose signal handler never returned.
    pub open: u64,
}

impl BlockQuality {
    /// Adds the counts of another recording.
    pub(crate) fn add(&mut self, other: &BlockQuality) {
        add(&mut self.backwards, other.backwards);
        add(&mut self.too_long, other.too_long);
        add(&mut self.crossing, other.crossing);
        add(&mut self.apart, other.apart);
        add(&mut self.filtered, other.filtered);
        add(&mut self.open, other.open);
    }

    /// Neighbouring records between which code cannot have run straight.
    pub fn impossible(&self) -> u64 {
        self.backwards.saturating_add(self.too_long)
    }

    /// Neighbouring records without a fall-through range, for any reason.
    pub fn unjoined(&self) -> u64 {
        self.impossible().saturating_add(self.crossing).saturating_add(self.apart)
    }
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/clean/quality.rs"]
mod tests;
