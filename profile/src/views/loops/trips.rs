//! Trip counts: how often a loop's body ran each time the loop was entered.

use crate::clean::interval::Clusters;
use crate::views::cycles::Cycles;

/// Trip counts of a loop, as a distribution.
///
/// Entries without a recorded end are *open*: only a minimum of their count is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trips {
    /// Entries with a recorded start and end, by trip count.
    pub ended: Cycles,
    /// Trips of all of them.
    pub sum: u64,
    /// Entries with a recorded start but no end, by the minimum of their count.
    pub open: Cycles,
}

impl Trips {
    pub(super) fn add(&mut self, trips: u64, weight: u64) {
        self.ended.add(cell(trips), weight);
        self.sum = self.sum.saturating_add(trips.saturating_mul(weight));
    }

    pub(super) fn add_open(&mut self, at_least: u64, weight: u64) {
        self.open.add(cell(at_least), weight);
    }

    /// Mean over entries recorded from start to end.
    pub fn mean(&self) -> Option<f64> {
        (self.ended.n() > 0).then(|| self.sum as f64 / self.ended.n() as f64)
    }

    /// The lowest trip count such that at least this share (0 to 1) of the entries is at or below
    /// it.
    ///
    /// Open entries are included with their known minimum: the product-limit estimator for censored
    /// observations (Kaplan and Meier, 1958). Without any, this is the plain quantile.
    pub fn quantile(&self, share: f64) -> Quantile {
        if self.open.n() == 0 {
            return self.ended.quantile(share).map_or(Quantile::Unknown, Quantile::Is);
        }
        let mut risk = self.ended.n().saturating_add(self.open.n()) as f64;
        let mut left = 1.0;
        let mut open = self.open.iter().peekable();
        for (trips, n) in self.ended.iter() {
            // Entries lost at fewer trips are no longer at risk.
            while let Some((_, lost)) = open.next_if(|(at, _)| *at < trips) {
                risk -= lost as f64;
            }
            left *= 1.0 - n as f64 / risk;
            risk -= n as f64;
            if 1.0 - left >= share - 1e-12 {
                return Quantile::Is(trips);
            }
        }
        Quantile::AtLeast(self.open.max().unwrap_or(0))
    }
}

/// The upper limit of trip counts.
fn cell(trips: u64) -> u32 {
    u32::try_from(trips).unwrap_or(u32::MAX)
}

/// A quantile of trip counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// There are no entries.
    Unknown,
    /// Exactly this many.
    Is(u32),
    /// At least this many: longer entries have no recorded end.
    AtLeast(u32),
}

/// The mean trip count, estimated from a sample.
///
/// The end of a round and an exit are points in time: a randomly sampled stack contains both with
/// the same probability, however long the loop runs. So rounds per exit over all stacks estimate
/// the mean, even if no stack is long enough to contain a whole entry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Rounds per exit; `None` without exits.
    pub mean: Option<f64>,
    /// Lower end of the 95% interval.
    pub low: Option<f64>,
    /// Upper end; `None` without exits or with too few stacks.
    pub high: Option<f64>,
}

impl Mean {
    /// From the share of exits (y) among exits and rounds (x), by stack.
    pub(super) fn of(exits: &Clusters) -> Mean {
        let mean = |share: f64| (share > 0.0).then(|| (1.0 - share) / share);
        let interval = exits.interval();
        Mean {
            mean: exits.ratio().and_then(mean),
            low: interval.and_then(|interval| mean(interval.high)),
            high: interval.filter(|_| exits.y > 0).and_then(|interval| mean(interval.low)),
        }
    }
}
