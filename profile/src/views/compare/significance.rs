//! Whether two ratios differ by more than chance.

use super::Change;
use crate::clean::interval::Clusters;
use crate::views::cycles::Cycles;

/// The two-sided probability of two ratios at least this far apart if the true ratios are equal.
/// `stacks` is the number of stacks from which the variance is estimated.
///
/// Counts are divided by the number of entries per independent draw, moved towards each other by
/// half a draw (Yates), and tested against one common ratio by the likelihood ratio, whose root is
/// taken as Student's t. Unlike a normal approximation of the difference, this holds far out in the
/// tail, which a correction for many rows needs.
pub(super) fn of_ratios(a: &Clusters, b: &Clusters, stacks: u64) -> f64 {
    let worth = entries_a_draw(a, b, |of, ratio| of.x as f64 * ratio * (1.0 - ratio));
    let [xa, ya, xb, yb] = [a.x, a.y, b.x, b.y].map(|sum| sum as f64 / worth);
    let ratio = (ya + yb) / (xa + xb);
    let (ya, yb) = closer((ya, yb), ratio * xa);
    let parts = [
        (ya, ratio * xa),
        (xa - ya, (1.0 - ratio) * xa),
        (yb, ratio * xb),
        (xb - yb, (1.0 - ratio) * xb),
    ];
    tails(parts.into_iter().map(likelihood).sum(), stacks)
}

/// The same for counts (y) that change by the factor `common` if nothing else changed.
pub(super) fn of_counts(a: &Clusters, b: &Clusters, common: f64, stacks: u64) -> f64 {
    let worth = entries_a_draw(a, b, |of, _| of.y as f64);
    let [ya, yb] = [a.y, b.y].map(|sum| sum as f64 / worth);
    let exposure = [a.x as f64, b.x as f64 * common];
    let expected = (ya + yb) * exposure[0] / (exposure[0] + exposure[1]);
    let sum = ya + yb;
    let (ya, yb) = closer((ya, yb), expected);
    tails([(ya, expected), (yb, sum - expected)].into_iter().map(likelihood).sum(), stacks)
}

/// The number of entries per draw: the variance between the stacks of each side, divided by that of
/// independent entries; at least one. If all entries are alike, each stack is one draw.
fn entries_a_draw(a: &Clusters, b: &Clusters, alone: impl Fn(&Clusters, f64) -> f64) -> f64 {
    let (mut found, mut independent) = (0.0, 0.0);
    for of in [a, b] {
        let (Some(ratio), Some(variance)) = (of.ratio(), of.variance()) else { continue };
        found += variance * of.x as f64 * of.x as f64;
        independent += alone(of, ratio);
    }
    let worth = match independent > 0.0 {
        true => found / independent,
        false => (a.xx.saturating_add(b.xx)) as f64 / (a.x.saturating_add(b.x)).max(1) as f64,
    };
    worth.max(1.0)
}

/// Moves the first half a draw closer to its expected value, but not beyond.
fn closer((ya, yb): (f64, f64), expected: f64) -> (f64, f64) {
    let off = expected - ya;
    let by = off.abs().min(0.5).copysign(off);
    (ya + by, yb - by)
}

/// The term that a count adds to twice the logarithm of the likelihood ratio.
fn likelihood((count, expected): (f64, f64)) -> f64 {
    if count > 0.0 && expected > 0.0 { 2.0 * count * (count / expected).ln() } else { 0.0 }
}

/// The two-sided tail of Student's distribution beyond the root of a likelihood ratio, by Wallace's
/// approximation (Annals of Mathematical Statistics 30, 1959).
fn tails(ratio: f64, stacks: u64) -> f64 {
    let n = stacks.saturating_sub(2).max(1) as f64;
    let normal = (n * (ratio.max(0.0) / n).ln_1p()).sqrt() * (8.0 * n + 1.0) / (8.0 * n + 3.0);
    2.0 * upper_tail(normal)
}

/// The upper tail of the normal distribution, by Abramowitz and Stegun 26.2.11 and, to avoid
/// cancellation, the continued fraction of 26.2.14.
pub(super) fn upper_tail(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if z > 2.0 {
        return density / (1..=100).rev().fold(z, |rest, n| z + f64::from(n) / rest);
    }
    let term = |(term, odd): &(f64, f64)| Some((term * z * z / (odd + 2.0), odd + 2.0));
    let terms = std::iter::successors(Some((z, 1.0)), term).take(40);
    0.5 - density * terms.map(|(term, _)| term).sum::<f64>()
}

/// Sets the p-values by Holm's correction for changes that all have a p, and marks the significant
/// ones.
pub(super) fn adjust(changes: &mut [&mut Change], level: f64) {
    changes.sort_by(|a, b| a.p.unwrap_or(1.0).total_cmp(&b.p.unwrap_or(1.0)));
    let (mut left, mut last) = (changes.len() as f64, 0.0f64);
    for change in changes {
        last = last.max((change.p.unwrap_or(1.0) * left).min(1.0));
        change.adjusted = Some(last);
        change.significant = last <= level;
        left -= 1.0;
    }
}

/// The cycle count that splits both sides together most nearly in half, with equal weight for each
/// side; `None` if a side has none.
pub(super) fn split(a: &Cycles, b: &Cycles) -> Option<u32> {
    let (n, m) = (a.n() as f64, b.n() as f64);
    if n == 0.0 || m == 0.0 {
        return None;
    }
    let mut values: Vec<(u32, f64)> =
        a.iter().map(|(value, times)| (value, times as f64 / n)).collect();
    values.extend(b.iter().map(|(value, times)| (value, times as f64 / m)));
    values.sort_by_key(|(value, _)| *value);
    // Both sides together have a total weight of two.
    let mut below = 0.0;
    let mut best = None;
    for run in values.chunk_by(|x, y| x.0 == y.0) {
        below += run.iter().map(|(_, part)| part).sum::<f64>();
        let off = (below - 1.0f64).abs();
        if best.is_none_or(|(_, least)| off < least) {
            best = run.first().map(|(value, _)| (*value, off));
        }
    }
    best.map(|(value, _)| value)
}

/// The median; 1 for fewer than three ratios, which are too few to compare.
pub(super) fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratios.len().saturating_sub(1) / 2, ratios.len() / 2);
    match (ratios.get(low), ratios.get(high)) {
        (Some(low), Some(high)) if ratios.len() >= 3 => f64::midpoint(*low, *high),
        _ => 1.0,
    }
}

#[cfg(test)]
#[path = "../../../../tests/profile/unit/views/compare/significance.rs"]
mod tests;
