//! Whether the new build makes more branches, or needs more of another event, in
//! all.
//!
//! Two complete recordings have exact counts. Samples with a period represent that
//! many events each; the 95% interval of the ratio counts a sample as one
//! independent draw.

use super::{Looked, significance};
use crate::clean::interval::Z;

/// What a total counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Taken branches.
    Branches,
    /// Events that the samples were drawn by.
    Events,
}

/// The totals of two recordings; of several a side, the mean of a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// What was counted.
    pub unit: Unit,
    /// In the baseline.
    pub before: f64,
    /// In the other recording.
    pub after: f64,
    /// The 95% interval of `after / before`; `None` if both are exact.
    pub interval: Option<[f64; 2]>,
    /// The probability of a difference as large as this if nothing changed; 0 or 1
    /// of exact totals.
    pub p: f64,
}

/// Why totals are not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotComparable {
    /// The samples of a side have no period: nothing is known of the time or the
    /// events between them.
    NoPeriod,
    /// Stacks were lost.
    Lost,
    /// Only a part of a recording was selected.
    Selected,
    /// The samples of a side are of several events.
    Events,
}

impl Total {
    /// Compares the totals of two sides, each of some recordings. `one_event` is
    /// true if the samples of a side were all drawn by one event.
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
        // Of the logarithm of the ratio, by the variance of each sum.
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
        let p = 2.0 * significance::upper_tail(log.abs() / error);
        Ok(Total { unit: Unit::Events, before, after, interval: Some(interval), p })
    }

    /// How much more there is than there was: 0.5 is half as much again.
    #[must_use]
    pub fn relative(&self) -> f64 {
        self.after / self.before - 1.0
    }
}
