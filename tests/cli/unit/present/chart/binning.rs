#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
use super::*;

fn series(bins: &[(u32, u64)], modes: &[u32]) -> Series {
    let n = bins.iter().map(|(_, runs)| runs).sum();
    Series { bins: bins.to_vec(), n, modes: modes.to_vec(), ..Series::default() }
}

#[test]
fn a_small_range_has_a_bin_for_each_cycle() {
    let bins = Bins::of(&[series(&[(10, 5), (12, 1)], &[10])], 40, Gaps::Drawn).unwrap();
    assert_eq!((bins.width, bins.bins.len()), (1, 3));
    let runs: Vec<f64> = bins.bins.iter().flat_map(|bin| bin.runs.clone()).collect();
    assert_eq!(runs, [5.0, 0.0, 1.0]);
    assert_eq!(bins.beyond, [0]);
}

#[test]
fn the_width_is_the_least_that_fits_and_the_tail_is_said() {
    // 1 to 1000 once each, 5000 once: 1001 runs, p99.9 is the 1000th.
    let mut all: Vec<(u32, u64)> = (1..=1000).map(|value| (value, 1)).collect();
    all.push((5000, 1));
    let bins = Bins::of(&[series(&all, &[])], 100, Gaps::Drawn).unwrap();
    // 0-19, 20-39 … 1000-1019: 51 bins; with 10 there were 101.
    assert_eq!((bins.width, bins.bins.len()), (20, 51));
    assert_eq!((bins.beyond, bins.largest_beyond), (vec![1], Some(5000)));
}

/// 10 and 14 would share a bin of 5 cycles.
#[test]
fn two_modes_never_share_a_bin() {
    let counts: Vec<(u32, u64)> =
        (8..400).map(|value| (value, if value == 10 || value == 14 { 500 } else { 10 })).collect();
    let bins = Bins::of(&[series(&counts, &[10, 14])], 100, Gaps::Drawn).unwrap();
    assert_eq!(bins.width, 2);
    let with: Vec<u32> =
        bins.bins.iter().filter(|b| !b.modes.concat().is_empty()).map(|b| b.first).collect();
    assert_eq!(with, [10, 14]);
}

#[test]
fn gaps_cost_one_row() {
    let counts = [(4, 9), (5, 9), (6, 9), (300, 9), (301, 9), (302, 9)];
    let bins = Bins::of(&[series(&counts, &[5, 301])], 7, Gaps::Folded).unwrap();
    assert_eq!(bins.width, 1);
    let bins = Bins::of(&[series(&counts, &[5, 301])], 7, Gaps::Drawn).unwrap();
    assert!(bins.width > 1);
}

#[test]
fn saturated_runs_do_not_stretch_the_range() {
    let mut with = series(&[(10, 5), (65_535, 3)], &[10]);
    with.saturated = 3;
    let bins = Bins::of(&[with.clone()], 40, Gaps::Drawn).unwrap();
    assert_eq!((bins.bins.len(), bins.beyond), (1, vec![0]));
    // Unless they are all there is.
    with.bins = vec![(65_535, 3)];
    assert_eq!(Bins::of(&[with], 40, Gaps::Drawn).unwrap().bins.len(), 1);
    assert_eq!(Bins::of(&[series(&[], &[])], 40, Gaps::Drawn), None);
}

#[test]
fn rounded_counts_are_spread() {
    // 1024 stands for 1024 to 1055.
    let mut rounded = series(&[(1000, 1), (1024, 32)], &[]);
    rounded.rounded = true;
    let bins = Bins::of(&[rounded], 1000, Gaps::Drawn).unwrap();
    assert_eq!(bins.width, 1);
    let total: f64 = bins.bins.iter().map(|bin| bin.runs.iter().sum::<f64>()).sum();
    assert!((total - 33.0).abs() < 1e-9);
    // The largest count is a rounded one too: nothing is drawn beyond it.
    assert_eq!(bins.bins.last().unwrap().first, 1024);
}

#[test]
fn no_value_overflows() {
    let counts = [(0, 1), (u32::MAX, 1)];
    for gaps in [Gaps::Drawn, Gaps::Folded] {
        let bins = Bins::of(&[series(&counts, &[])], 10, gaps).unwrap();
        let total: f64 = bins.bins.iter().map(|bin| bin.runs.iter().sum::<f64>()).sum();
        assert!((total - 2.0).abs() < 1e-9, "{gaps:?}");
    }
}
