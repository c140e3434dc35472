//! Intervals.

use profile::interval::{Clusters, Interval};

use crate::support::random::Random;

fn of(stacks: &[(u64, u64)]) -> Clusters {
    let mut sums = Clusters::default();
    for &(x, y) in stacks {
        sums.add(1, x, y);
    }
    sums
}

/// By hand: x 2, 4, 6 and y 1, 1, 4 give the ratio 1/2 and residuals 0, -1, 1, so the variance is
/// 3/2 · 2 / 144.
#[test]
fn variance_by_hand() {
    let sums = of(&[(2, 1), (4, 1), (6, 4)]);
    assert_eq!((sums.stacks, sums.x, sums.y), (3, 12, 6));
    assert_eq!((sums.xx, sums.xy, sums.yy), (56, 30, 18));
    assert_eq!(sums.ratio(), Some(0.5));
    assert!((sums.variance().unwrap() - 1.5 * 2.0 / 144.0).abs() < 1e-15);
    let mut parts = of(&[(2, 1)]);
    parts.merge(&of(&[(4, 1), (6, 4)]));
    assert_eq!(parts, sums);
    let mut twice = Clusters::default();
    twice.add(2, 4, 1);
    assert_eq!(twice, of(&[(4, 1), (4, 1)]));
    // A stack without the branch gives no information about it.
    assert_eq!(of(&[(0, 0), (2, 1)]), of(&[(2, 1)]));
    assert_eq!(Clusters::default().ratio(), None);
    assert_eq!(of(&[(2, 1)]).variance(), None);
    // The residuals are -1 and 1: 2/1 · 2 / 16.
    assert_eq!(of(&[(2, 0), (2, 2)]).variance(), Some(0.25));
}

/// Stacks of any length with the same share have no residuals, although the share is rounded.
#[test]
fn equal_shares_do_not_vary() {
    for (x, y) in [(5, 2), (11, 9), (13, 3)] {
        let stacks: Vec<_> = (1..=1000).map(|n| (n * x, n * y)).collect();
        assert_eq!(of(&stacks).variance(), Some(0.0), "{y}/{x}");
    }
}

#[test]
fn too_few_stacks_have_no_interval() {
    let stacks = [(3, 1); 10];
    assert!(of(&stacks).interval().is_some());
    assert_eq!(of(&stacks[1..]).interval(), None);
    assert!(Interval::widest(0.5, 10).is_some());
    assert_eq!(Interval::widest(0.5, 9), None);
}

/// 100 stacks without an occurrence: Wilson's upper end for 0 of 100 draws with Student's quantile
/// of 99 degrees, 1.984: k / (100 + k) with k = 1.984².
#[test]
fn never_seen_has_an_upper_end() {
    let never = of(&[(32, 0); 100]).interval().unwrap();
    let k: f64 = 1.9842 * 1.9842;
    assert!((never.high - k / (100.0 + k)).abs() < 1e-4, "{never:?}");
    assert_eq!(never.low, 0.0);
    let always = of(&[(32, 32); 100]).interval().unwrap();
    assert!((always.low - (1.0 - never.high)).abs() < 1e-12);
    assert_eq!(always.high, 1.0);
}

/// Two of four entries in each of 25 stacks: no stack differs, so each entry is a draw. Wilson's
/// interval for 50 of 100 with Student's quantile of 24 degrees, 2.064: k = 2.064² / 100, half the
/// width is sqrt(k / 4 + k² / 4) / (1 + k).
#[test]
fn entries_of_equal_stacks_are_draws() {
    let interval = of(&[(4, 2); 25]).interval().unwrap();
    assert!((interval.low - 0.3989).abs() < 1e-4, "{interval:?}");
    assert!((interval.high - 0.6011).abs() < 1e-4, "{interval:?}");
}

/// Sums from a hostile file do not overflow.
#[test]
fn huge_sums() {
    let mut sums = Clusters::default();
    for _ in 0..20 {
        sums.add(u64::MAX / 2, u64::MAX, u64::MAX / 3);
    }
    let interval = sums.interval().unwrap();
    assert!((0.0..=1.0).contains(&interval.low) && (0.0..=1.0).contains(&interval.high));
}

/// How often, of 1,000 subsamples, the interval covers the ratio of all stacks; and how often it
/// would if entries counted as draws.
fn coverage(all: &[(u64, u64)], size: usize, seed: u64) -> (u32, u32) {
    let truth = of(all).ratio().unwrap();
    let mut random = Random(seed);
    let (mut covered, mut naive) = (0, 0);
    for _ in 0..1000 {
        let drawn: Vec<_> = (0..size).map(|_| all[random.below(all.len())]).collect();
        let sums = of(&drawn);
        let interval = sums.interval().unwrap();
        covered += u32::from(interval.low <= truth && truth <= interval.high);
        let ratio = sums.ratio().unwrap();
        let half = 1.96 * (ratio * (1.0 - ratio) / sums.x as f64).sqrt();
        naive += u32::from((ratio - truth).abs() <= half);
    }
    (covered, naive)
}

/// Stacks from phases of a program: each has another rate of the branch, and another frequency.
fn phases(rates: &[f64], seed: u64) -> Vec<(u64, u64)> {
    let mut random = Random(seed);
    let stack = |_| {
        let rate = rates[random.below(rates.len())];
        let x = 1 + random.below(if rate > 0.5 { 12 } else { 32 }) as u64;
        (x, (0..x).filter(|_| random.share() < rate).count() as u64)
    };
    (0..20_000).map(stack).collect()
}

#[test]
fn intervals_have_their_nominal_coverage() {
    for (rates, size) in [
        (&[0.1, 0.9][..], 150),
        (&[0.02, 0.05, 0.3], 300),
        (&[0.5], 100),
        (&[0.0, 0.0, 0.0, 0.4], 400),
    ] {
        let (covered, _) = coverage(&phases(rates, 7), size, 11);
        assert!((930..=970).contains(&covered), "{rates:?}: {covered} of 1000");
    }
    // Entries of one stack are not independent draws.
    let (_, naive) = coverage(&phases(&[0.1, 0.9], 7), 150, 11);
    assert!(naive < 700, "{naive} of 1000");
}

/// A loop that exits every eighth time: stacks are more alike than random draws, and the interval
/// accounts for it.
#[test]
fn regular_patterns() {
    let mut random = Random(3);
    let stack = |_| {
        let (start, x) = (random.below(8), 10 + random.below(20));
        (x as u64, (start..start + x).filter(|i| i % 8 != 7).count() as u64)
    };
    let all: Vec<_> = (0..20_000).map(stack).collect();
    let (covered, naive) = coverage(&all, 200, 5);
    assert!((930..=970).contains(&covered), "{covered} of 1000");
    assert!(naive > 980, "{naive} of 1000");
}
