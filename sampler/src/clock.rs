//! The clock that every event's time is taken from.

/// CLOCK_MONOTONIC, nanoseconds: perf's `--clockid mono`.
///
/// 0 where the system has no such clock, which Linux never lacks.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let Ok(now) = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC) else { return 0 };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec()).unwrap_or(0);
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}
