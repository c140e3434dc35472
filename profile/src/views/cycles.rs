//! Distributions of cycle counts.
//!
//! `crate::index` has the figures of plain containers.

use crate::read::stack::EntryFlags;
use crate::views::modes;

/// Number of distinct values in a distribution; beyond it, values are rounded down to five
/// significant bits.
const DISTINCT: usize = 1024;

/// Number of different counts stored without an allocation.
const FEW: usize = 7;

/// Distribution of cycle counts.
///
/// Most blocks have only a few different counts, and there are more blocks than anything else:
/// these counts are stored inline, in 32 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycles {
    counts: Storage,
}

const _: () = assert!(size_of::<Cycles>() == 32);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Storage {
    Few(Few),
    /// All counts that do not fit into [`Few`].
    Many(Box<Many>),
}

impl Default for Storage {
    fn default() -> Storage {
        Storage::Few(Few::default())
    }
}

/// A few small counts, ascending; unused places have 0 occurrences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Few {
    values: [u16; FEW],
    times: [u16; FEW],
}

impl Few {
    /// Adds a count; `false` if there is no space.
    #[inline]
    fn add(&mut self, cycles: u32, weight: u64) -> bool {
        let (Ok(cycles), Ok(weight)) = (u16::try_from(cycles), u16::try_from(weight)) else {
            return false;
        };
        // Visits all: an early exit would be unpredictable. The first one counts, because unused
        // places have the value 0 too.
        let values = self.values.iter().enumerate().rev();
        let found =
            values.fold(FEW, |found, (at, value)| if *value == cycles { at } else { found });
        let times = self.times.get_mut(found).filter(|times| **times > 0);
        let Some(times) = times else { return self.insert(cycles, weight) };
        let Some(sum) = times.checked_add(weight) else { return false };
        *times = sum;
        true
    }

    /// Adds a new value.
    fn insert(&mut self, cycles: u16, weight: u16) -> bool {
        if self.times.last().is_some_and(|times| *times > 0) {
            return false;
        }
        let (mut cycles, mut weight) = (cycles, weight);
        for (value, times) in self.values.iter_mut().zip(&mut self.times) {
            if *times == 0 {
                (*value, *times) = (cycles, weight);
                return true;
            }
            if *value > cycles {
                std::mem::swap(value, &mut cycles);
                std::mem::swap(times, &mut weight);
            }
        }
        false
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, u64)> + '_ {
        let all = self.values.iter().zip(&self.times).filter(|(_, times)| **times > 0);
        all.map(|(value, times)| (u32::from(*value), u64::from(*times)))
    }
}

/// Any counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Many {
    /// Values with their counts, ascending, in contiguous memory.
    counts: Vec<(u32, u64)>,
    saturated: u64,
    range: Option<(u32, u32)>,
    rounded: bool,
}

impl Many {
    fn add(&mut self, cycles: u32, weight: u64) {
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

    fn merge(&mut self, other: &Many) {
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
}

impl Cycles {
    /// Adds a count, `weight` times.
    #[inline]
    pub fn add(&mut self, cycles: u32, weight: u64) {
        if weight == 0 {
            return;
        }
        if let Storage::Few(few) = &mut self.counts
            && few.add(cycles, weight)
        {
            return;
        }
        self.many(|many| many.add(cycles, weight));
    }

    /// Changes the distribution in allocated form.
    #[cold]
    fn many(&mut self, change: impl FnOnce(&mut Many)) {
        match &mut self.counts {
            Storage::Many(many) => change(many),
            Storage::Few(few) => {
                let mut many = Box::<Many>::default();
                few.iter().for_each(|(cycles, times)| many.add(cycles, times));
                change(&mut many);
                self.counts = Storage::Many(many);
            }
        }
    }

    /// Adds another distribution.
    pub fn merge(&mut self, other: &Cycles) {
        match &other.counts {
            Storage::Few(few) => few.iter().for_each(|(cycles, times)| self.add(cycles, times)),
            Storage::Many(many) => self.many(|mine| mine.merge(many)),
        }
    }

    /// Number of samples with a cycle count.
    pub fn n(&self) -> u64 {
        self.iter().fold(0, |sum, (_, times)| sum.saturating_add(times))
    }

    /// Samples at the highest count that a record can hold: the true count may be higher.
    pub fn saturated(&self) -> u64 {
        match &self.counts {
            Storage::Few(few) => {
                let last = few.iter().next_back();
                last.filter(|(cycles, _)| *cycles >= EntryFlags::MAX_CYCLES)
                    .map_or(0, |last| last.1)
            }
            Storage::Many(many) => many.saturated,
        }
    }

    fn range(&self) -> Option<(u32, u32)> {
        match &self.counts {
            Storage::Few(few) => Some((few.iter().next()?.0, few.iter().next_back()?.0)),
            Storage::Many(many) => many.range,
        }
    }

    /// Lowest count.
    pub fn min(&self) -> Option<u32> {
        self.range().map(|(min, _)| min)
    }

    /// Highest count.
    pub fn max(&self) -> Option<u32> {
        self.range().map(|(_, max)| max)
    }

    /// Whether values are rounded down to five significant bits, because there were too many
    /// distinct ones. ([`min`](Self::min) and [`max`](Self::max) are exact.)
    pub fn is_rounded(&self) -> bool {
        matches!(&self.counts, Storage::Many(many) if many.rounded)
    }

    /// The lowest count such that at least this share (0 to 1) of the samples are at or below it;
    /// `None` without samples.
    pub fn quantile(&self, share: f64) -> Option<u32> {
        let rank = ((share.clamp(0.0, 1.0) * self.n() as f64).ceil() as u64).max(1);
        let mut below = 0u64;
        let value = self.iter().find(|(_, n)| {
            below = below.saturating_add(*n);
            below >= rank
        });
        // Rounding down must not go below the minimum.
        let (value, min) = (value.map(|(value, _)| value)?, self.min()?);
        Some(value.max(min))
    }

    /// The counts around which samples cluster, most frequent first: peaks that are separated by a
    /// valley from every higher peak, more than an eighth (at least 2 cycles) away from it, and that
    /// have at least 5% of the samples within that distance. Dips explained by counting noise are
    /// not valleys. Saturated samples are excluded, because their true counts are unknown.
    pub fn modes(&self) -> Vec<u32> {
        let mut counts: Vec<(u32, u64)> = self.iter().collect();
        let mut saturated = self.saturated();
        while let Some((_, n)) = counts.last_mut().filter(|_| saturated > 0) {
            let less = saturated.min(*n);
            saturated -= less;
            *n -= less;
            if *n > 0 {
                break;
            }
            counts.pop();
        }
        let rounded = self.is_rounded();
        let step = |value| if rounded { 1 << dropped_bits(value) } else { 1 };
        modes::modes(&counts, step)
    }

    /// Each count with its samples, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let (few, many) = match &self.counts {
            Storage::Few(few) => (Some(few.iter()), None),
            Storage::Many(many) => (None, Some(many.counts.iter().copied())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

fn add(counts: &mut Vec<(u32, u64)>, value: u32, weight: u64) {
    match counts.binary_search_by_key(&value, |(value, _)| *value) {
        Ok(at) => crate::read::add(&mut counts[at].1, weight),
        Err(at) => counts.insert(at, (value, weight)),
    }
}

/// Keeps the highest set bit and the four after it.
fn five_bits(value: u32) -> u32 {
    let drop = dropped_bits(value);
    value >> drop << drop
}

fn dropped_bits(value: u32) -> u32 {
    (32 - value.leading_zeros()).saturating_sub(5)
}

#[cfg(test)]
#[path = "../../../tests/profile/unit/views/cycles.rs"]
mod tests;
