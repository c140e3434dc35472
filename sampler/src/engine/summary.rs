//! The result of a recording.

use std::collections::BTreeMap;
use std::time::Duration;

use lbr_msr::record::Label;

use super::decoder::Tally;
use crate::outlet::SamplerReport;
use crate::source::SourceNotes;
use crate::target::Exit;

/// The result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Name of the source.
    pub source: &'static str,
    /// How the target ended; code 0 for one that continues running.
    pub exit: Exit,
    /// Losses that the source reported.
    pub notes: SourceNotes,
    /// Number of stacks and branches with each label, as drained.
    pub labels: BTreeMap<Label, Tally>,
    /// Samples sent to the sink.
    pub samples: u64,
    /// Branches in them.
    pub branches: u64,
    /// Branches that the software filter dropped.
    pub filtered: u64,
    /// Records that do not decode to a branch although their slot was not empty.
    pub unreadable: u64,
    /// Stacks with branches that do not continue the previous one (except snapshots, which never
    /// do).
    pub not_joined: u64,
    /// Stacks [during which](lbr_msr::record::Integrity::cut) the target may have run.
    pub cut: u64,
    /// Stacks dropped because a queue was full.
    pub dropped: u64,
    /// Stacks that are missing and reported as lost in the recording: dropped ones, and those whose
    /// label excludes them.
    pub lost: u64,
    /// Number of drains.
    pub drains: u64,
    /// Register accesses of all drains.
    pub accesses: u64,
    /// Register accesses of the most expensive drain.
    pub most_accesses: u32,
    /// Records that passed the filter; `None` for hardware, which does not count them.
    pub retired: Option<u64>,
    /// Wall-clock time from before the target's start to the last drain.
    pub time: Duration,
    /// Seed of the jitter; `None` with a period.
    pub seed: Option<u64>,
    /// Whether the recording holds every taken branch that the filter selects, once and in order
    /// per thread, from the start (up to the stop, if stopped). Checked against
    /// [`retired`](Self::retired).
    pub complete: bool,
    /// Statistics of each sampler.
    pub samplers: Vec<SamplerReport>,
}

impl Summary {
    /// Adds up the counters of the samplers.
    pub(super) fn with_samplers(self, samplers: Vec<SamplerReport>) -> Summary {
        let sum = |of: fn(&SamplerReport) -> u64| samplers.iter().map(of).sum();
        Summary {
            dropped: sum(|sampler| sampler.dropped),
            drains: sum(|sampler| sampler.drains),
            accesses: sum(|sampler| sampler.accesses),
            most_accesses: samplers.iter().map(|each| each.most_accesses).max().unwrap_or(0),
            samplers,
            ..self
        }
    }

    /// Whether all retired branches are recorded, and all stacks joined.
    pub(super) fn is_one_stream(&self) -> bool {
        let notes = &self.notes;
        let drained: u64 = self.labels.values().map(|tally| tally.branches).sum();
        self.labels.keys().all(|label| *label == Label::Stream)
            && self.cut == 0
            && Some(drained) == self.retired
            && self.not_joined == 0
            && self.unreadable == 0
            && self.dropped == 0
            && !self.samplers.iter().any(|sampler| sampler.taken_over)
            && notes.undecoded == 0
            && notes.invisible == 0
            && notes.unresolved == 0
            && notes.threads_left == 0
    }
}

#[cfg(test)]
#[path = "../../../tests/sampler/unit/engine/summary.rs"]
mod tests;
