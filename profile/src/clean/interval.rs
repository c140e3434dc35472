//! Confidence intervals of ratios, clustered by stack.
//!
//! The entries of one stack are adjacent in time and similar: 32 of them carry far less information
//! than 32 independent branches. The sampling unit is the stack. The variance of a ratio of two
//! sums over stacks (missed of known, taken of executed) therefore comes from the stacks'
//! residuals, by the linearised estimator for clusters (Cochran, Sampling Techniques, 3rd edition,
//! 6.3 and 9A.1), and its interval from the number of independent draws with the same variance
//! (Korn and Graubard, Analysis of Health Surveys, 2.4), in Wilson's form, which stays within 0 and
//! 1.

use crate::read::add;

/// Minimum number of stacks for an interval: the residuals of fewer give no reliable variance.
pub const MIN_STACKS: u64 = 10;

/// Quantile of the normal distribution for a two-sided 95% interval.
pub(crate) const Z: f64 = 1.959_963_984_540_054;

/// A 95% interval of a ratio, each end 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The sums over stacks for a ratio y / x and its variance. Stacks with x = 0 may be skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clusters {
    /// Stacks with x above 0.
    pub stacks: u64,
    /// Sum of x.
    pub x: u64,
    /// Sum of y.
    pub y: u64,
    /// Sum of x squared.
    pub xx: u64,
    /// Sum of x times y.
    pub xy: u64,
    /// Sum of y squared.
    pub yy: u64,
}

impl Clusters {
    /// Adds `weight` stacks, each with this x and y.
    pub fn add(&mut self, weight: u64, x: u64, y: u64) {
        if x == 0 {
            return;
        }
        let add = |sum: &mut u64, a: u64, b: u64| {
            add(sum, weight.saturating_mul(a.saturating_mul(b)));
        };
        add(&mut self.stacks, 1, 1);
        add(&mut self.x, x, 1);
        add(&mut self.y, y, 1);
        add(&mut self.xx, x, x);
        add(&mut self.xy, x, y);
        add(&mut self.yy, y, y);
    }

    /// Adds the sums over other stacks.
    pub fn merge(&mut self, other: &Clusters) {
        add(&mut self.stacks, other.stacks);
        add(&mut self.x, other.x);
        add(&mut self.y, other.y);
        add(&mut self.xx, other.xx);
        add(&mut self.xy, other.xy);
        add(&mut self.yy, other.yy);
    }

    /// The sums over these stacks and others with one entry each: `x` entries in all, `y` of them
    /// counted.
    pub(crate) fn with_single(&self, x: u64, y: u64) -> Clusters {
        let with = |all: u64, sum: u64, here: u64| all.saturating_add(sum).saturating_sub(here);
        Clusters {
            stacks: with(x, self.stacks, self.x),
            x,
            y,
            xx: with(x, self.xx, self.x),
            xy: with(y, self.xy, self.y),
            yy: with(y, self.yy, self.y),
        }
    }

    /// The ratio; `None` if x is 0.
    pub fn ratio(&self) -> Option<f64> {
        (self.x > 0).then(|| self.y as f64 / self.x as f64)
    }

    /// Variance of the ratio; `None` with fewer than two stacks.
    pub fn variance(&self) -> Option<f64> {
        let ratio = self.ratio()?;
        if self.stacks < 2 {
            return None;
        }
        let squares = self.exact_squares().unwrap_or_else(|| {
            let [xx, xy, yy] = [self.xx, self.xy, self.yy].map(|sum| sum as f64);
            (yy - 2.0 * ratio * xy + ratio * ratio * xx).max(0.0)
        });
        let (stacks, x) = (self.stacks as f64, self.x as f64);
        Some(stacks / (stacks - 1.0) * squares / (x * x))
    }

    /// Sum of the squared residuals y − ratio · x. Computed in integers, because the terms nearly
    /// cancel for similar stacks; `None` on overflow.
    fn exact_squares(&self) -> Option<f64> {
        let [x, y, xx, xy, yy] = [self.x, self.y, self.xx, self.xy, self.yy].map(i128::from);
        let a = yy.checked_mul(x)?.checked_mul(x)?;
        let b = xy.checked_mul(x)?.checked_mul(y)?.checked_mul(2)?;
        let c = xx.checked_mul(y)?.checked_mul(y)?;
        let sum = a.checked_sub(b)?.checked_add(c)?;
        Some(sum as f64 / (self.x as f64 * self.x as f64))
    }

    /// The 95% interval of the ratio; `None` below [`MIN_STACKS`].
    ///
    /// If the ratio is 0 or 1 in all stacks, the residuals are 0: each stack then counts as one
    /// draw, the worst case of similar entries.
    pub fn interval(&self) -> Option<Interval> {
        let ratio = self.ratio()?;
        if self.stacks < MIN_STACKS {
            return None;
        }
        let variance = self.variance()?;
        let spread = ratio * (1.0 - ratio);
        let draws = if spread <= 0.0 {
            self.stacks as f64
        } else if variance > 0.0 {
            spread / variance
        } else {
            self.x as f64
        };
        Some(wilson(ratio, draws, self.stacks))
    }
}

impl Interval {
    /// The widest 95% interval of a share of all entries in `stacks` stacks, if squares per stack
    /// are not counted: as if all entries of a stack were alike, so that a stack is one draw.
    /// `None` below [`MIN_STACKS`].
    pub fn widest(share: f64, stacks: u64) -> Option<Interval> {
        (stacks >= MIN_STACKS).then(|| wilson(share.clamp(0.0, 1.0), stacks as f64, stacks))
    }
}

/// Wilson's interval for a ratio equivalent to `draws` independent draws.
fn wilson(ratio: f64, draws: f64, stacks: u64) -> Interval {
    let t = student(stacks - 1);
    let k = t * t / draws;
    let middle = (ratio + k / 2.0) / (1.0 + k);
    let half = (k * ratio * (1.0 - ratio) + k * k / 4.0).sqrt() / (1.0 + k);
    Interval { low: (middle - half).max(0.0), high: (middle + half).min(1.0) }
}

/// Two-sided 95% quantile of Student's distribution, by the expansion of Abramowitz and Stegun
/// 26.7.5; accurate to 0.0003 from 9 degrees up ([`MIN_STACKS`]).
fn student(degrees: u64) -> f64 {
    let n = degrees as f64;
    let z2 = Z * Z;
    let g1 = Z * (z2 + 1.0) / 4.0;
    let g2 = Z * (5.0 * z2 * z2 + 16.0 * z2 + 3.0) / 96.0;
    let g3 = Z * (3.0 * z2.powi(3) + 19.0 * z2 * z2 + 17.0 * z2 - 15.0) / 384.0;
    Z + g1 / n + g2 / (n * n) + g3 / n.powi(3)
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/clean/interval.rs"]
mod tests;
