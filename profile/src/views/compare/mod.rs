//! Compares two recordings: what changed from one build to the next, and whether the change is
//! significant.
//!
//! **Rows.** A row is a branch location. For identical builds it is the file offset; otherwise the
//! function, matched by name, and the line in it if the function has the same lines on both sides.
//! See [`By`].
//!
//! **Measures.** [`Measure`]: share of all branches, mispredict rate, median cycles of the blocks
//! that end there; for loop heads the trip count. A measure that a recording lacks has no value.
//!
//! **Significance.** The sampling unit is the stack: the variance between a side's stacks
//! determines how many independent draws a count is worth (see [`crate::interval`]). A likelihood
//! ratio test then tests whether both sides have the same ratio. All tests of all rows form one
//! family. Holm's correction (Scandinavian Journal of Statistics 6, 1979) limits the probability of
//! any false positive in the family to the level.
//!
//! A share also changes if another location's share did. So it is compared relative to all branches
//! and relative to the median row as well, and the less significant result counts.
//!
//! A share that exists on one side only is 0 on the other and tested normally; its value there is
//! absent. [`Total`] compares the totals.
//!
//! Recordings are read twice: first to find the locations of both sides, then to count the rows.

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

/// A property of a location that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Share of all taken branches: 0 to 1.
    Share,
    /// Mispredict rate, over entries with a known prediction: 0 to 1.
    Mispredict,
    /// Median core cycles of the fall-through range that ends there.
    Cycles,
    /// Mean trip count of the loop that starts there.
    Trips,
}

/// A measure on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The measure.
    pub measure: Measure,
    /// In the baseline; `None` if unavailable.
    pub before: Option<f64>,
    /// In the new recording.
    pub after: Option<f64>,
    /// For each side, the tested ratio by stack, and the number of stacks with this location.
    ratio: [(Clusters, u64); 2],
    /// The p-value; `None` if it was not tested: too few stacks, or a value is unavailable (rather
    /// than 0).
    pub p: Option<f64>,
    /// The p-value by Holm's correction, 0 to 1.
    pub adjusted: Option<f64>,
    /// The corrected p-value is at most the level.
    pub significant: bool,
}

impl Change {
    fn new(measure: Measure, values: [Option<f64>; 2], ratio: [(Clusters, u64); 2]) -> Change {
        let [before, after] = values;
        Change { measure, before, after, ratio, p: None, adjusted: None, significant: false }
    }

    /// The relative change: 0.5 is 50% more. `None` if a value is unavailable, or the baseline is
    /// 0.
    pub fn relative(&self) -> Option<f64> {
        let (before, after) = (self.before?, self.after?);
        (before > 0.0).then(|| after / before - 1.0)
    }

    /// The value rose, but less than the other rows' by the factor `common`, or fell, but less than
    /// theirs.
    fn is_against(&self, common: f64) -> bool {
        let (before, after) = (self.before.unwrap_or(0.0), self.after.unwrap_or(0.0));
        (after > before) != (after > before * common)
    }

    /// It increased significantly. A new row counts as an increase.
    pub fn is_worse(&self) -> bool {
        self.significant && self.after > self.before
    }
}

/// A row's location on one side.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its first location.
    pub location: Location,
    /// The recorded address of `location`.
    pub addr: u64,
    /// Its file's path.
    pub file: Option<String>,
    /// Its function.
    pub function: Option<String>,
    /// Its line, if rows are matched by line.
    pub line: Option<SourceLine>,
    /// Taken branches; for a loop, rounds.
    pub count: u64,
}

/// A location on both sides, or on one only.
#[derive(Clone, Debug)]
pub struct Row {
    /// How it was matched.
    pub by: By,
    /// In the baseline; `None` for a new row.
    pub before: Option<Side>,
    /// In the new recording; `None` if it disappeared.
    pub after: Option<Side>,
    /// The measures.
    pub changes: Vec<Change>,
}

impl Row {
    /// Its location in the new recording, otherwise in the baseline.
    pub fn side(&self) -> Option<&Side> {
        self.after.as_ref().or(self.before.as_ref())
    }

    /// The change of a measure.
    pub fn change(&self, measure: Measure) -> Option<&Change> {
        self.changes.iter().find(|change| change.measure == measure)
    }

    /// Some measure changed significantly.
    pub fn is_significant(&self) -> bool {
        self.changes.iter().any(|change| change.significant)
    }

    /// It exists on both sides.
    pub fn is_matched(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// The sort key: the larger share, or the larger number of rounds.
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

/// The comparison of two recordings.
#[derive(Debug)]
pub struct Comparison {
    /// Branch locations, then loop heads.
    pub rows: Vec<Row>,
    /// Number of tests.
    pub tests: u64,
}

/// The matched branch locations of both sides, before counting.
#[derive(Debug)]
pub struct Rows {
    matched: Matched,
    /// The paths of matched files, in pairs.
    pub files: Vec<[String; 2]>,
    /// For each row, the cycle count that separates fast from slow blocks.
    splits: Vec<Option<u32>>,
    medians: [Vec<Option<u32>>; 2],
}

/// Matches the locations of both sides.
pub fn rows(before: &mut Looked, after: &mut Looked, by: Option<By>) -> Rows {
    let places = [before.places(), after.places()];
    let maps = [&mut before.maps, &mut after.maps];
    let mut matched = match_places(maps, &places, by, Places::Branches);
    let files = std::mem::take(&mut matched.files);
    let rows = matched.rows.len();
    let [a, b] =
        [(&*before, 0), (&*after, 1)].map(|(side, at)| side.cycles_of(&matched.of_place[at], rows));
    let splits = a.iter().zip(&b).map(|(a, b)| significance::split(a, b)).collect();
    let medians = [a, b].map(|all| all.iter().map(|cycles| cycles.quantile(0.5)).collect());
    Rows { matched, files, splits, medians }
}

impl Comparison {
    /// Compares the counts of the rows.
    pub fn of(rows: Rows, before: &StackSums, after: &StackSums) -> Comparison {
        let Rows { matched, medians: [was, is], .. } = rows;
        let mut rows = matched.rows;
        for (at, row) in rows.iter_mut().enumerate() {
            let sums = [before.row(at), after.row(at)];
            let has = [row.before.is_some(), row.after.is_some()];
            for (side, sums) in [&mut row.before, &mut row.after].into_iter().zip(&sums) {
                side.iter_mut().for_each(|side| side.count = sums.taken.y);
            }
            let both = |of: [Clusters; 2]| [0, 1].map(|at| of[at].ratio().filter(|_| has[at]));
            let ratio = |of: [Clusters; 2]| of.map(|of| (of, of.stacks));
            let (shares, misses) = (sums.map(|sums| sums.taken), sums.map(|sums| sums.missed));
            let share = sums.map(|sums| (sums.taken, sums.stacks));
            let medians = [&was, &is].map(|of| of[at].map(f64::from));
            row.changes = vec![
                Change::new(Measure::Share, both(shares), share),
                Change::new(Measure::Mispredict, both(misses), ratio(misses)),
                Change::new(Measure::Cycles, medians, ratio(sums.map(|sums| sums.slow))),
            ];
        }
        Comparison { rows, tests: 0 }
    }

    /// Adds the loops of the same recordings, matched by their heads.
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
            for (at, one) in matched.of_place[side].iter().zip(&loops.loops) {
                let row = &mut rows[*at as usize];
                let side_of = if side == 0 { &mut row.before } else { &mut row.after };
                side_of.iter_mut().for_each(|of| of.count = of.count.saturating_add(one.rounds));
                let Some(change) = row.changes.first_mut() else { continue };
                // Of several loops with one head, uses the one with most rounds.
                let value = if side == 0 { &mut change.before } else { &mut change.after };
                *value = value.or_else(|| one.mean_trips());
                if is_of_one_function(&mut loops.maps, one) {
                    let (sum, stacks) = &mut change.ratio[side];
                    sum.merge(&one.exits);
                    *stacks = sum.stacks;
                }
            }
        }
        self.rows.extend(rows);
    }

    /// Tests every measure of every row at a significance level: 0.01 is 1%.
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
            let stacks = in_a.saturating_add(in_b);
            if stacks < MIN_STACKS || a.stacks.min(b.stacks) < MIN_STACKS {
                continue;
            }
            let plain = || significance::of_ratios(&a, &b, stacks);
            change.p = match change.measure {
                // Equal medians are not a change, whatever the distributions.
                Measure::Cycles if change.before == change.after => Some(1.0),
                // Only other locations changed, or this one changed in the opposite direction.
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

    /// The ratio of the median row's shares (new to old): the apparent change of rows that did not
    /// change themselves.
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

/// Whether a loop is within one function. The extent of other loops depends on which branches a
/// sample happens to contain, so they are not comparable.
fn is_of_one_function(maps: &mut Maps, one: &Loop) -> bool {
    let Some(function) = maps.function(one.location) else { return false };
    one.back_edges.iter().chain(&one.falls_from).all(|back| function.contains(back.location))
}
