//! What counters say that a [frame](super::frame) has read at its two ends.

/// Counters that a frame reads.
pub(crate) const COUNTERS: usize = 4;

/// The words of [`read_counter`](super::assembler::Assembler::read_counter).
pub(crate) type Reading = [u64; 4];

/// What [counters](sampler::source::perf::Counting) came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterDeltas {
    /// By each; `None` for one that does not count.
    All([Option<u64>; COUNTERS]),
    /// The kernel had a counter stopped meanwhile, to let something else run.
    Interrupted,
}

impl CounterDeltas {
    /// From the two readings of each.
    pub(crate) fn of(readings: &[[Reading; COUNTERS]; 2]) -> CounterDeltas {
        let mut all = [None; COUNTERS];
        let [opening, closing] = readings;
        for ((count, opening), closing) in all.iter_mut().zip(opening).zip(closing) {
            let [page, low, high, behind] = *opening;
            // While neither changes the kernel leaves the counter alone (linux/perf_event.h, `lock`);
            // where it would wrap around, there is an interrupt that changes it.
            if [behind, closing[0], closing[3]] != [page; 3] {
                return CounterDeltas::Interrupted;
            }
            let value = |low: u64, high: u64| high << 32 | low;
            let counted = value(closing[1], closing[2]).wrapping_sub(value(low, high));
            *count = (page >> 32 != 0).then_some(counted);
        }
        CounterDeltas::All(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// perf_event_open(2), "mmap layout": lock 2 at 8, index at 12.
    const PAGE_OF_3: u64 = 2 | 3 << 32;

    #[test]
    fn what_counters_count() {
        // The lower half wraps around; the third does not count.
        let opening = [
            [PAGE_OF_3, 0xFFFF_FFF0, 1, PAGE_OF_3],
            [PAGE_OF_3, 5, 0, PAGE_OF_3],
            [2, 0, 0, 2],
            [0; 4],
        ];
        let mut closing = opening;
        closing[0] = [PAGE_OF_3, 0x10, 2, PAGE_OF_3];
        let found = CounterDeltas::of(&[opening, closing]);
        assert_eq!(found, CounterDeltas::All([Some(0x20), Some(0), None, None]));
        // The kernel stopped one between, or while it was read.
        closing[1] = [PAGE_OF_3 + 2, 5, 0, PAGE_OF_3 + 2];
        assert_eq!(CounterDeltas::of(&[opening, closing]), CounterDeltas::Interrupted);
        closing[1] = opening[1];
        closing[1][3] += 2;
        assert_eq!(CounterDeltas::of(&[opening, closing]), CounterDeltas::Interrupted);
    }
}
