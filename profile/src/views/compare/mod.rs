//! Two recordings side by side: what changed from one build to the next, and
//! whether that is more than chance.
//!
//! **Rows.** A row is a place that branches come from. In files of the same build
//! it is the byte of the file; in others the function, matched by name, and the
//! line in it if the function has the same lines on both sides. See [`By`].
//!
//! **What is measured.** [`Measure`]: the share of all branches, how often they
//! were mispredicted, the median cycles of the blocks that end there; and for the
//! heads of loops the trips. What a recording does not say has no value.
//!
//! **What is significant.** The stack is the unit that was drawn: how far the
//! stacks of each side disagree among themselves says how many independent
//! draws a count is worth (see [`crate::interval`]). With these a likelihood
//! ratio test asks whether both sides have one ratio. Every test of every row
//! belongs to one family, which Holm's correction (Scandinavian Journal of
//! Statistics 6, 1979) keeps at the level: with that probability at most any row
//! is significant where nothing changed.
//!
//! A share also changes because that of another place did. So it is held
//! against all branches and against the median row too, and the weaker finding
//! counts.
//!
//! A share that only one side has is 0 on the other, and tested like any other; its
//! value there is absent. [`Total`] compares the totals.
//!
//! Recordings are read twice: once for the places of either side, once to
//! count the rows.

mod matching;
mod significance;
mod total;
mod walks;

use crate::clean::interval::{Clusters, MIN_STACKS};
use crate::code::lines::SourceLine;
use crate::code::maps::{Location, Maps};
use crate::views::loops::{Loop, Loops};

pub use matching::By;
pub use total::{NotComparable, Total, Unit};
pub use walks::{Looked, StackSums, counter, looker};

use matching::{Matched, Places, match_places};

/// What is compared of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Taken branches there, of all: 0 to 1.
    Share,
    /// Mispredicted ones of those that are known to be predicted or not: 0 to 1.
    Mispredict,
    /// Median core cycles of the straight code that ends there.
    Cycles,
    /// Mean trips of an entry of the loop that begins there.
    Trips,
}

/// A measure on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// What was measured.
    pub measure: Measure,
    /// In the baseline; `None` where it does not say.
    pub before: Option<f64>,
    /// In the other recording.
    pub after: Option<f64>,
    /// The ratio that is tested, by stack, and the stacks that have the place.
    ratio: [(Clusters, u64); 2],
    /// The probability of a difference as large as this if nothing changed; `None`
    /// if it was not tested: too few stacks, or a value is absent that is not 0.
    pub p: Option<f64>,
    /// The same by Holm's correction, 0 to 1.
    pub adjusted: Option<f64>,
    /// Not more than the level.
    pub significant: bool,
}

impl Change {
    fn new(measure: Measure, values: [Option<f64>; 2], ratio: [(Clusters, u64); 2]) -> Change {
        let [before, after] = values;
        Change { measure, before, after, ratio, p: None, adjusted: None, significant: false }
    }

    /// How much more there is than there was, as a part of what was: 0.5 is half
    /// as much again. `None` where one side does not say, or there was nothing.
    #[must_use]
    pub fn relative(&self) -> Option<f64> {
        let (before, after) = (self.before?, self.after?);
        (before > 0.0).then(|| after / before - 1.0)
    }

    /// The value rose and yet less than that of other rows, whose ratio is `common`,
    /// or fell and yet less.
    fn is_against(&self, common: f64) -> bool {
        let (before, after) = (self.before.unwrap_or(0.0), self.after.unwrap_or(0.0));
        (after > before) != (after > before * common)
    }

    /// There is more of it, significantly. A new row is.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.significant && self.after > self.before
    }
}

/// Where a row lies on one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// The first of its places, and the address that it was recorded with.
    pub location: Location,
    /// See `location`.
    pub addr: u64,
    /// Path of its file.
    pub file: Option<String>,
    /// Its function.
    pub function: Option<String>,
    /// Its line, where rows go by it.
    pub line: Option<SourceLine>,
    /// Taken branches; rounds of a loop.
    pub count: u64,
}

/// A place on both sides, or on the one that has it.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it is one place by.
    pub by: By,
    /// In the baseline; `None` where it is new.
    pub before: Option<Side>,
    /// In the other recording; `None` where it is gone.
    pub after: Option<Side>,
    /// What was measured.
    pub changes: Vec<Change>,
}

impl Row {
    /// Where it lies: in the newer recording, if that has it.
    #[must_use]
    pub fn side(&self) -> Option<&Side> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// A measure.
    #[must_use]
    pub fn change(&self, measure: Measure) -> Option<&Change> {
        self.changes.iter().find(|change| change.measure == measure)
    }

    /// Something changed significantly.
    #[must_use]
    pub fn is_significant(&self) -> bool {
        self.changes.iter().any(|change| change.significant)
    }

    /// Both sides have it.
    #[must_use]
    pub fn is_matched(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// What rows are sorted by: the larger share, or the larger count of rounds.
    fn weight(&self) -> f64 {
        match self.change(Measure::Share) {
            Some(share) => share.before.unwrap_or(0.0).max(share.after.unwrap_or(0.0)),
            None => [&self.before, &self.after]
                .into_iter()
                .flatten()
                .map(|side| side.count as f64)
                .fold(0.0, f64::max),
        }
    }
}

/// The rows of two recordings.
#[derive(Debug)]
pub struct Comparison {
    /// Places that branches come from, and heads of loops behind them.
    pub rows: Vec<Row>,
    /// How many measures were tested.
    pub tests: u64,
}

/// What branches come from on both sides, to be counted.
#[derive(Debug)]
pub struct Rows {
    matched: Matched,
    /// By row, the cycles that its blocks are counted above.
    splits: Vec<Option<u32>>,
    medians: [Vec<Option<u32>>; 2],
}

impl Rows {
    /// The paths of the files that both sides have, in pairs.
    #[must_use]
    pub fn files(&self) -> &[[String; 2]] {
        &self.matched.files
    }
}

/// Finds the places that both sides have.
pub fn rows(before: &mut Looked, after: &mut Looked, by: Option<By>) -> Rows {
    let places = [before.places(), after.places()];
    let maps = [&mut before.maps, &mut after.maps];
    let matched = match_places(maps, &places, by, Places::Branches);
    let rows = matched.rows.len();
    let [a, b] =
        [(&*before, 0), (&*after, 1)].map(|(side, at)| side.cycles_of(matched.of_place(at), rows));
    let splits = a.iter().zip(&b).map(|(a, b)| significance::split(a, b)).collect();
    let medians = [a, b].map(|all| all.iter().map(|cycles| cycles.quantile(0.5)).collect());
    Rows { matched, splits, medians }
}

impl Comparison {
    /// Of places that branches come from, as counted.
    #[must_use]
    pub fn of(rows: Rows, before: &StackSums, after: &StackSums) -> Comparison {
        let Rows { matched, medians: [was, is], .. } = rows;
        let mut rows = matched.rows;
        for (at, row) in rows.iter_mut().enumerate() {
            let sums = [before.row(at), after.row(at)];
            let has = [row.before.is_some(), row.after.is_some()];
            for (side, sums) in [&mut row.before, &mut row.after].into_iter().zip(&sums) {
                side.iter_mut().for_each(|side| side.count = sums.taken.y);
            }
            let stacks = sums.map(|sums| sums.stacks);
            let both = |of: &dyn Fn(usize) -> Option<f64>| {
                [0, 1].map(|side| of(side).filter(|_| has.get(side) == Some(&true)))
            };
            let ratio = |of: [Clusters; 2]| [(of[0], of[0].stacks), (of[1], of[1].stacks)];
            let shares = [sums[0].taken, sums[1].taken];
            let misses = [sums[0].missed, sums[1].missed];
            let median = |of: &[Option<u32>]| of.get(at).copied().flatten().map(f64::from);
            let medians = [median(&was), median(&is)];
            row.changes = vec![
                Change::new(
                    Measure::Share,
                    both(&|side| shares.get(side)?.ratio()),
                    [(shares[0], stacks[0]), (shares[1], stacks[1])],
                ),
                Change::new(
                    Measure::Mispredict,
                    both(&|side| misses.get(side)?.ratio()),
                    ratio(misses),
                ),
                Change::new(Measure::Cycles, medians, ratio([sums[0].slow, sums[1].slow])),
            ];
        }
        Comparison { rows, tests: 0 }
    }

    /// Adds the loops of the same recordings, by their heads.
    pub fn add_loops(&mut self, before: &mut Loops, after: &mut Loops, by: Option<By>) {
        let heads = |loops: &Loops| {
            loops.loops.iter().map(|one| (one.location, one.head)).collect::<Vec<_>>()
        };
        let places = [heads(before), heads(after)];
        let maps = [&mut before.maps, &mut after.maps];
        let matched = match_places(maps, &places, by, Places::Loops);
        let mut rows = matched.rows.clone();
        for row in &mut rows {
            row.changes = vec![Change::new(Measure::Trips, [None; 2], Default::default())];
        }
        for (side, loops) in [(0, before), (1, after)] {
            for (at, one) in matched.of_place(side).iter().zip(&loops.loops) {
                let Some(row) = rows.get_mut(*at as usize) else { continue };
                let side_of = if side == 0 { &mut row.before } else { &mut row.after };
                side_of.iter_mut().for_each(|of| of.count = of.count.saturating_add(one.rounds));
                let Some(change) = row.changes.first_mut() else { continue };
                // Of several loops with one head the one that runs most stands for them.
                let value = if side == 0 { &mut change.before } else { &mut change.after };
                *value = value.or_else(|| one.mean_trips());
                if let Some((sum, stacks)) = change.ratio.get_mut(side)
                    && is_of_one_function(&mut loops.maps, one)
                {
                    sum.merge(&one.exits);
                    *stacks = sum.stacks;
                }
            }
        }
        self.rows.extend(rows);
    }

    /// Tests every measure of every row, at a level: 0.01 is 1%.
    pub fn test(&mut self, level: f64) {
        let common = self.common_ratio();
        for change in self.rows.iter_mut().flat_map(|row| &mut row.changes) {
            let is_absent = match change.measure {
                Measure::Share => change.before.or(change.after).is_none(),
                _ => change.before.is_none() || change.after.is_none(),
            };
            if is_absent {
                continue;
            }
            let [(a, in_a), (b, in_b)] = change.ratio;
            let enough = match change.measure {
                Measure::Share => in_a.saturating_add(in_b) >= MIN_STACKS,
                _ => in_a.min(in_b) >= MIN_STACKS,
            };
            if !enough || a.stacks.min(b.stacks) < MIN_STACKS {
                continue;
            }
            let stacks = in_a.saturating_add(in_b);
            let plain = || significance::of_ratios(&a, &b, stacks);
            change.p = match change.measure {
                // One median is no change, however their cycles lie.
                Measure::Cycles if change.before == change.after => Some(1.0),
                // Other places changed, and this one the other way or not at all.
                Measure::Share if change.is_against(common) => Some(1.0),
                Measure::Share => {
                    Some(plain().max(significance::of_counts(&a, &b, common, stacks)))
                }
                _ => Some(plain()),
            };
        }
        let mut tested: Vec<&mut Change> =
            self.rows.iter_mut().flat_map(|row| &mut row.changes).collect();
        tested.retain(|change| change.p.is_some());
        self.tests = tested.len() as u64;
        significance::adjust(&mut tested, level);
        let least = |row: &Row| {
            let of = row.changes.iter().filter(|change| change.significant);
            of.filter_map(|change| change.p).fold(f64::INFINITY, f64::min)
        };
        self.rows
            .sort_by(|a, b| least(a).total_cmp(&least(b)).then(b.weight().total_cmp(&a.weight())));
    }

    /// How many times as large the share of the median row is as it was: what
    /// did not change itself changes by that.
    fn common_ratio(&self) -> f64 {
        let shares = self.rows.iter().filter_map(|row| row.change(Measure::Share));
        let ratios = shares.filter_map(|share| {
            let stacks = share.ratio.iter().map(|(_, stacks)| *stacks).sum::<u64>();
            let (before, after) = (share.before?, share.after?);
            (stacks >= MIN_STACKS && before > 0.0 && after > 0.0).then_some(after / before)
        });
        significance::median(ratios.collect())
    }
}

/// Whether a loop lies in one function. How far others reach depends on which
/// branches a sample happens to hold: on either side they may be different loops.
fn is_of_one_function(maps: &mut Maps, one: &Loop) -> bool {
    let Some(function) = maps.function(one.location) else { return false };
    one.back_edges.iter().chain(&one.falls_from).all(|back| function.contains(back.location))
}
