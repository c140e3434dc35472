//! Which bins a histogram has.
//!
//! Cycles are whole numbers. A bin is 1 cycle wide, or 2, 5, 10, 20, 50 and so on, the smallest
//! width that gives no more bins than wanted; bins start at multiples of their width. If they would
//! be wider than a cycle, the range ends at the p99.9 of the widest series, and the rest is
//! counted. Bins are then narrowed, at most to a quarter, until a clearly lower bin lies between
//! any two neighboring modes of a series, so that two humps stay two humps.
//! Saturated runs are not in the range; they are counted.

use super::Series;

/// The bins of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bins {
    /// Cycles of one bin.
    pub(crate) width: u32,
    /// The bins in order, including empty ones between others.
    pub(crate) bins: Vec<Bin>,
    /// Runs of each series beyond the last bin, without the saturated ones.
    pub(crate) beyond: Vec<u64>,
    /// The largest count beyond the last bin.
    pub(crate) largest_beyond: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bin {
    /// Its first cycle count.
    pub(crate) first: u32,
    /// Runs of each series. Rounded counts are spread over their range.
    pub(crate) runs: Vec<f64>,
    /// The modes of each series in it.
    pub(crate) modes: Vec<Vec<u32>>,
}

impl Bin {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.iter().all(|runs| *runs <= 0.0)
    }
}

/// How bins are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// Every bin counts.
    Drawn,
    /// Several empty bins count as one.
    Folded,
}

/// A bin between two humps has at most this share of the lower one.
const HUMP: f64 = 0.8;
/// Empty bins that are folded into one, at least.
pub(crate) const FOLD: usize = 3;

/// Maximum number of bins, empty ones included: twice the range of a record's 16 bits. Larger
/// values come from forged input.
const MOST_BINS: u64 = 1 << 17;

impl Bins {
    /// The bins of these series: at most `most`, unless separating two modes takes more.
    pub(crate) fn of(series: &[Series], most: usize, gaps: Gaps) -> Option<Bins> {
        let most = most.max(1);
        let mut counted: Vec<Unsaturated> = series.iter().map(Unsaturated::of).collect();
        if counted.iter().all(|of_series| of_series.values.is_empty()) {
            // The saturated runs are all that there is: they must be drawn.
            for (counted, series) in counted.iter_mut().zip(series) {
                counted.values.clone_from(&series.bins);
            }
        }
        let first = counted.iter().filter_map(|s| s.values.first()).map(|v| v.0).min()?;
        let last = counted.iter().filter_map(|s| s.values.last()).map(|v| v.0).max()?;
        let fits = |last: u32, width: u32, most: usize| match gaps {
            Gaps::Drawn => number(first, last, width) <= most as u64,
            Gaps::Folded => {
                number(first, last, width) <= MOST_BINS && folded(&counted, last, width) <= most
            }
        };
        if fits(last, 1, most) {
            return Some(fill(&counted, series, first, last, 1));
        }
        let last = counted.iter().filter_map(Unsaturated::p999).max().unwrap_or(last);
        let widths = || widths().take_while(|width| *width <= last.max(1));
        let wide = widths().find(|width| fits(last, *width, most)).unwrap_or(last.max(1));
        let narrower: Vec<u32> = widths().take_while(|width| *width <= wide).collect();
        let tried =
            narrower.iter().rev().filter(|width| fits(last, **width, most.saturating_mul(4)));
        let mut tried = tried.map(|width| fill(&counted, series, first, last, *width));
        let apart = tried.find(|bins| (0..series.len()).all(|series| bins.are_humps(series)));
        Some(apart.unwrap_or_else(|| fill(&counted, series, first, last, wide)))
    }

    /// Whether a lower bin lies between any two neighboring modes of a series.
    fn are_humps(&self, series: usize) -> bool {
        let runs = |bin: &Bin| bin.runs.get(series).copied().unwrap_or(0.0);
        let modes = |bin: &Bin| bin.modes.get(series).map_or(0, Vec::len);
        let of_modes: Vec<usize> = (0..self.bins.len())
            .flat_map(|at| std::iter::repeat_n(at, self.bins.get(at).map_or(0, modes)))
            .collect();
        of_modes.windows(2).all(|pair| {
            let [a, b] = pair else { return true };
            let between = self.bins.get(*a..=*b).unwrap_or_default();
            let (Some(first), Some(last)) = (between.first(), between.last()) else { return false };
            let lower = runs(first).min(runs(last)) * HUMP;
            between.iter().any(|bin| runs(bin) <= lower)
        })
    }
}

/// The unsaturated cycle counts of a series.
struct Unsaturated {
    values: Vec<(u32, u64)>,
    rounded: bool,
}

impl Unsaturated {
    fn of(series: &Series) -> Unsaturated {
        let mut values = series.bins.clone();
        let mut saturated = series.saturated;
        while let Some((_, runs)) = values.last_mut().filter(|_| saturated > 0) {
            let less = saturated.min(*runs);
            saturated -= less;
            *runs -= less;
            if *runs > 0 {
                break;
            }
            values.pop();
        }
        Unsaturated { values, rounded: series.rounded }
    }

    fn p999(&self) -> Option<u32> {
        let all = self.values.iter().fold(0u64, |sum, (_, runs)| sum.saturating_add(*runs));
        let rank = (all as f64 * 0.999).ceil() as u64;
        let mut below = 0u64;
        let found = self.values.iter().find(|(_, runs)| {
            below = below.saturating_add(*runs);
            below >= rank
        });
        found.map(|(value, _)| *value)
    }

    /// Number of cycle counts that are rounded to this value.
    fn step(&self, value: u32) -> u32 {
        let bits = 32 - value.leading_zeros();
        if self.rounded { 1 << bits.saturating_sub(5) } else { 1 }
    }
}

/// 1, 2, 5, 10, 20, 50 and so on.
fn widths() -> impl Iterator<Item = u32> {
    (0..10).flat_map(|power| [1, 2, 5].map(|digit| 10u32.pow(power).saturating_mul(digit)))
}

fn number(first: u32, last: u32, width: u32) -> u64 {
    u64::from(last / width) - u64::from(first / width) + 1
}

/// Rows with runs of empty bins folded.
fn folded(counted: &[Unsaturated], last: u32, width: u32) -> usize {
    let values = counted.iter().flat_map(|s| &s.values).filter(|(value, _)| *value <= last);
    let mut places: Vec<u32> = values.map(|(value, _)| value / width).collect();
    places.sort_unstable();
    places.dedup();
    let gap = |pair: &[u32]| match pair {
        [a, b] => (b - a - 1) as usize,
        _ => 0,
    };
    let gaps = places.windows(2).map(gap).map(|gap| if gap >= FOLD { 1 } else { gap });
    places.len() + gaps.sum::<usize>()
}

fn fill(counted: &[Unsaturated], series: &[Series], first: u32, last: u32, width: u32) -> Bins {
    let start = first / width;
    let count = number(first, last, width) as usize;
    let mut bins: Vec<Bin> = (0..count)
        .map(|index| Bin {
            first: (start + index as u32) * width,
            runs: vec![0.0; series.len()],
            modes: vec![Vec::new(); series.len()],
        })
        .collect();
    let mut beyond = vec![0u64; series.len()];
    let mut largest_beyond = None;
    for (index, of_series) in counted.iter().enumerate() {
        for &(value, runs) in &of_series.values {
            if value > last {
                beyond[index] = beyond[index].saturating_add(runs);
                largest_beyond = largest_beyond.max(Some(value));
                continue;
            }
            // A rounded count may be any in its range.
            let [first, last, start, width] = [value, last, start, width].map(u64::from);
            let end = (first + u64::from(of_series.step(value))).min(last + 1);
            let mut at = first;
            while at < end {
                let next = ((at / width + 1) * width).min(end);
                bins[(at / width - start) as usize].runs[index] +=
                    runs as f64 * (next - at) as f64 / (end - first) as f64;
                at = next;
            }
        }
    }
    for (index, of_series) in series.iter().enumerate() {
        for mode in &of_series.modes {
            let place = (mode / width).checked_sub(start);
            if let Some(bin) = place.and_then(|place| bins.get_mut(place as usize)) {
                bin.modes[index].push(*mode);
            }
        }
    }
    Bins { width, bins, beyond, largest_beyond }
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/present/chart/binning.rs"]
mod tests;
