//! The clock that every event's time is taken from, and the timing of clocked drains: a rate with
//! jitter, to avoid lockstep with the program.

use std::ops::Range;

/// CLOCK_MONOTONIC, nanoseconds: perf's `--clockid mono`.
///
/// 0 where the system has no such clock, which Linux never lacks.
pub fn monotonic_ns() -> u64 {
    let Ok(now) = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) else { return 0 };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec()).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// The default rate in drains per second. A prime, to avoid lockstep.
pub const DEFAULT_HZ: u32 = 997;

/// A random number generator: SplitMix64 (Steele, Lea, Flood 2014). Any seed is valid.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Puts the items into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, (self.draw() % (last as u64 + 1)) as usize);
        }
    }
}

/// A clock with intervals uniformly distributed within ±25% of their mean.
#[derive(Clone, Debug)]
pub struct Pace {
    mean: u64,
    random: Random,
}

impl Pace {
    /// A clock with `hz` ticks per second (0 counts as 1). Equal seeds give equal intervals.
    pub fn new(hz: u32, seed: u64) -> Pace {
        Pace { mean: 1_000_000_000 / u64::from(hz.max(1)), random: Random(seed) }
    }

    /// The time to the next tick, nanoseconds.
    pub fn next_interval(&mut self) -> u64 {
        // The mean is at most 10^9, so the product with 2^32 fits in u64.
        let spread = (self.mean / 2).wrapping_mul(self.random.draw() >> 32) >> 32;
        self.mean - self.mean / 4 + spread
    }

    /// The time of the next tick after one that took `busy`. Relative to the last tick, so that
    /// lateness does not slow the rate; missed ticks are not made up for. A tick may take longer
    /// than an interval: the target runs for as long as it took, up to ten intervals (a sampler
    /// that was stopped does not wait for as long again).
    pub(crate) fn tick_after(&mut self, tick: u64, busy: Range<u64>) -> u64 {
        let interval = self.next_interval();
        let rest = busy.end.saturating_sub(busy.start).min(10 * interval);
        tick.saturating_add(interval).max(busy.end.saturating_add(rest))
    }
}

/// A seed that differs from run to run.
pub fn fresh_seed() -> u64 {
    let process = u64::from(std::process::id());
    monotonic_ns() ^ process.rotate_left(40)
}

#[cfg(test)]
#[path = "../../tests/sampler/unit/clock.rs"]
mod tests;
