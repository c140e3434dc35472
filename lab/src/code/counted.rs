//! Differences between the two counter readings of a [frame](super::frame).

/// Number of counters that a frame reads.
pub(crate) const COUNTERS: usize = 4;

/// The words of [`read_counter`](super::assembler::Assembler::read_counter).
pub(crate) type Reading = [u64; 4];

/// Differences of the [counters](sampler::source::perf::Counting) over one run; `None` for an
/// inactive one.
pub(crate) type CounterDeltas = [Option<u64>; COUNTERS];

/// The differences between two readings of each counter; `None` if the kernel multiplexed one
/// during the run.
pub(crate) fn differences(readings: &[[Reading; COUNTERS]; 2]) -> Option<CounterDeltas> {
    let mut all = [None; COUNTERS];
    let [opening, closing] = readings;
    for ((count, opening), closing) in all.iter_mut().zip(opening).zip(closing) {
        let [page, low, high, behind] = *opening;
        // As long as neither changes, the kernel did not touch the counter (linux/perf_event.h,
        // `lock`); a counter about to overflow raises an interrupt that changes them.
        if [behind, closing[0], closing[3]] != [page; 3] {
            return None;
        }
        let value = |low: u64, high: u64| high << 32 | low;
        let counted = value(closing[1], closing[2]).wrapping_sub(value(low, high));
        *count = (page >> 32 != 0).then_some(counted);
    }
    Some(all)
}

#[cfg(test)]
#[path = "../../../tests/lab/unit/code/counted.rs"]
mod tests;
