//! How good the data of a recording are.

use std::collections::BTreeMap;

use lbr_msr::record::{Label, Lost};

use super::add;
use super::interval::Interval;
use crate::code::maps::Unkept;
use crate::read::note::Source;
use crate::read::select::LeftOut;
use crate::read::stack::SampleHead;

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
    /// What was more than is kept in memory.
    pub unkept: Unkept,
}

impl Quality {
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

    /// Adds what another recording consists of.
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

/// What stands between the records and the blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockQuality {
    /// Blocks that ran, each time counted.
    pub blocks: u64,
    /// How many of them have no code bytes.
    pub without_code: u64,
    /// Blocks beside them that the code bytes contradict. They are left out,
    /// and nothing is concluded about the branches inside.
    pub contradicted: u64,
    /// Pairs of neighbours between which code would have run backwards. They
    /// are left out.
    pub backwards: u64,
    /// Pairs of neighbours more than 1 MiB apart. They are left out.
    pub too_long: u64,
    /// Pairs of neighbours with the kernel's boundary in between: no block.
    pub crossing: u64,
    /// Pairs of neighbours in two functions, or in one that nobody knows, where
    /// the recording has symbols in place of addresses: how far apart they are
    /// is not known, so no block.
    pub apart: u64,
    /// Stacks whose neighbours are not joined by straight code, because not
    /// every branch was recorded: they have no blocks.
    pub filtered: u64,
}

impl BlockQuality {
    /// Adds what kept neighbours of another recording apart.
    pub(crate) fn add(&mut self, other: &BlockQuality) {
        add(&mut self.backwards, other.backwards);
        add(&mut self.too_long, other.too_long);
        add(&mut self.crossing, other.crossing);
        add(&mut self.apart, other.apart);
        add(&mut self.filtered, other.filtered);
    }

    /// Pairs of neighbours between which no code can have run in a straight
    /// line.
    #[must_use]
    pub fn impossible(&self) -> u64 {
        self.backwards.saturating_add(self.too_long)
    }

    /// Pairs of neighbours that no straight code joins, for whatever reason.
    #[must_use]
    pub fn unjoined(&self) -> u64 {
        self.impossible().saturating_add(self.crossing).saturating_add(self.apart)
    }
}
