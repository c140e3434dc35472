//! Distributions of cycle counts.

use crate::modes;
use crate::stack::EntryFlags;

/// Values that a distribution tells apart; beyond them it rounds down to five
/// significant bits.
const DISTINCT: usize = 1024;

/// How often each cycle count occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    /// Values with their counts, from low to high: most blocks have few, and
    /// lie close together.
    counts: Vec<(u32, u64)>,
    n: u64,
    saturated: u64,
    range: Option<(u32, u32)>,
    rounded: bool,
}

impl Cycles {
    /// With room for so many different counts.
    pub(crate) fn with_capacity(values: usize) -> Cycles {
        Cycles { counts: Vec::with_capacity(values), ..Cycles::default() }
    }

    /// Adds a count, `weight` times.
    pub fn add(&mut self, cycles: u32, weight: u64) {
        if weight == 0 {
            return;
        }
        self.n = self.n.saturating_add(weight);
        if cycles >= EntryFlags::MAX_CYCLES {
            self.saturated = self.saturated.saturating_add(weight);
        }
        let (min, max) = self.range.unwrap_or((cycles, cycles));
        self.range = Some((min.min(cycles), max.max(cycles)));
        let value = if self.rounded { five_bits(cycles) } else { cycles };
        add(&mut self.counts, value, weight);
        if self.counts.len() > DISTINCT && !self.rounded {
            self.round();
        }
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Cycles) {
        self.n = self.n.saturating_add(other.n);
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (range, None) | (None, range) => range,
        };
        for (value, n) in &other.counts {
            add(&mut self.counts, *value, *n);
        }
        if other.rounded || self.counts.len() > DISTINCT {
            self.round();
        }
    }

    fn round(&mut self) {
        self.rounded = true;
        for (value, n) in std::mem::take(&mut self.counts) {
            add(&mut self.counts, five_bits(value), n);
        }
    }

    /// Samples that had a cycle count.
    #[must_use]
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Samples at the highest count that a record holds: the truth may be
    /// larger.
    #[must_use]
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// Least count.
    #[must_use]
    pub fn min(&self) -> Option<u32> {
        self.range.map(|(min, _)| min)
    }

    /// Largest count.
    #[must_use]
    pub fn max(&self) -> Option<u32> {
        self.range.map(|(_, max)| max)
    }

    /// There were so many different counts that they are rounded down to five
    /// significant bits ([`min`](Self::min) and [`max`](Self::max) are not).
    #[must_use]
    pub fn is_rounded(&self) -> bool {
        self.rounded
    }

    /// The least count that at least this share (0 to 1) of the samples do
    /// not exceed; `None` without samples.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u32> {
        let rank = ((share.clamp(0.0, 1.0) * self.n as f64).ceil() as u64).max(1);
        let mut below = 0u64;
        let value = self.counts.iter().find(|(_, n)| {
            below = below.saturating_add(*n);
            below >= rank
        });
        // Rounding down must not leave the range.
        let (value, min) = (value.map(|(value, _)| *value)?, self.min()?);
        Some(value.max(min))
    }

    /// The counts around which samples gather, the most frequent first, four
    /// at most: peaks that a valley parts from every higher one, that lie
    /// farther than an eighth (at least 2 cycles) from it, and that hold 5 % of
    /// the samples together with what is that near. Ripples that counting
    /// alone would make are no valleys. Saturated samples are left out: where
    /// they gather is not known.
    #[must_use]
    pub fn modes(&self) -> Vec<u32> {
        let mut counts = self.counts.clone();
        let mut saturated = self.saturated;
        while let Some((_, n)) = counts.last_mut().filter(|_| saturated > 0) {
            let less = saturated.min(*n);
            saturated -= less;
            *n -= less;
            if *n > 0 {
                break;
            }
            counts.pop();
        }
        let step = |value| if self.rounded { 1 << dropped_bits(value) } else { 1 };
        modes::modes(&counts, step)
    }

    /// Each count with its samples, from low to high.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.counts.iter().copied()
    }
}

fn add(counts: &mut Vec<(u32, u64)>, value: u32, weight: u64) {
    match counts.binary_search_by_key(&value, |(value, _)| *value) {
        Ok(at) => {
            if let Some((_, count)) = counts.get_mut(at) {
                *count = count.saturating_add(weight);
            }
        }
        Err(at) => counts.insert(at, (value, weight)),
    }
}

/// The highest five bits that are set or follow it.
fn five_bits(value: u32) -> u32 {
    let drop = dropped_bits(value);
    value >> drop << drop
}

fn dropped_bits(value: u32) -> u32 {
    (32 - value.leading_zeros()).saturating_sub(5)
}
