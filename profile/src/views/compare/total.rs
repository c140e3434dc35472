//! Compares the total number of branches, or of another event, of two builds.
//!
//! Complete recordings have exact counts. A sample with a period represents that many events; the
//! 95% interval of the ratio treats each sample as one independent draw.

use super::{Looked, significance};
use crate::clean::interval::Z;

/// The unit of a total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Taken branches.
    Branches,
    /// The sampled event.
    Events,
}

/// The totals of two sides; with several recordings per side, the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// The unit.
    pub unit: Unit,
    /// In the baseline.
    pub before: f64,
    /// In the new recording.
    pub after: f64,
    /// The 95% interval of `after / before`; `None` if both are exact.
    pub interval: Option<[f64; 2]>,
    /// The p-value; 0 or 1 for exact totals.
    pub p: f64,
}

/// Why totals are not comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotComparable {
    /// A side's samples have no period: the number of events between them is unknown.
    NoPeriod,
    /// Stacks were lost.
    Lost,
    /// Only a part of a recording was selected.
    Selected,
    /// A side's samples are of several events.
    Events,
}

impl Total {
    /// Compares the totals of two sides with one or more recordings each. `one_event` is true if
    /// all of a side's samples are of one event.
    ///
    /// # Errors
    /// [`NotComparable`].
    pub fn of(
        sides: [&Looked; 2],
        recordings: [u64; 2],
        one_event: bool,
    ) -> Result<Total, NotComparable> {
        let mean = |counts: [u64; 2]| {
            let [a, b] = counts.map(|count| count as f64);
            let [n, m] = recordings.map(|count| count.max(1) as f64);
            [a / n, b / m]
        };
        if sides.iter().all(|side| side.quality.is_complete() && side.gaps.filtered == 0) {
            let [before, after] = mean(sides.map(|side| side.taken));
            let p = if before == after { 1.0 } else { 0.0 };
            return Ok(Total { unit: Unit::Branches, before, after, interval: None, p });
        }
        for side in sides {
            let quality = &side.quality;
            if quality.left_out.cuts {
                return Err(NotComparable::Selected);
            }
            if quality.lost_total() > 0 {
                return Err(NotComparable::Lost);
            }
            if quality.periods.unknown > 0 || quality.periods.events == 0 {
                return Err(NotComparable::NoPeriod);
            }
        }
        if !one_event {
            return Err(NotComparable::Events);
        }
        let [before, after] = mean(sides.map(|side| side.quality.periods.events));
        // The standard error of the ratio's logarithm, from the variances of both sums.
        let error: f64 = sides
            .iter()
            .filter(|side| !side.quality.is_complete())
            .map(|side| {
                let periods = &side.quality.periods;
                periods.squares as f64 / (periods.events as f64 * periods.events as f64)
            })
            .sum();
        let (log, error) = ((after / before).ln(), error.sqrt());
        let interval = [-1.0, 1.0].map(|sign| (log + sign * Z * error).exp());
        // Filtered recordings may be complete, too: their totals are exact.
        let is_sampled = error > 0.0;
        let p = match before == after {
            true => 1.0,
            false if is_sampled => 2.0 * significance::upper_tail(log.abs() / error),
            false => 0.0,
        };
        let interval = is_sampled.then_some(interval);
        Ok(Total { unit: Unit::Events, before, after, interval, p })
    }

    /// The relative change: 0.5 is 50% more.
    pub fn relative(&self) -> f64 {
        self.after / self.before - 1.0
    }
}
