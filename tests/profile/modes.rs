//! Modes of distributions with known modes.

use std::f64::consts::TAU;

use profile::cycles::Cycles;

use crate::support::random::Random;

/// A component of a distribution.
#[derive(Clone, Copy, Debug)]
enum Hump {
    /// Mean and deviation.
    Normal(f64, f64),
    /// Lower and upper end.
    Uniform(f64, f64),
    /// Minimum, and mean above it.
    Exponential(f64, f64),
    /// Mean and deviation of the logarithm.
    LogNormal(f64, f64),
}

impl Hump {
    fn draw(self, random: &mut Random) -> u32 {
        let share = |random: &mut Random| random.share().max(1e-12);
        let mut normal = || (-2.0 * share(random).ln()).sqrt() * (TAU * share(random)).cos();
        let value = match self {
            Hump::Normal(mean, deviation) => mean + deviation * normal(),
            Hump::LogNormal(mean, deviation) => (mean + deviation * normal()).exp(),
            Hump::Uniform(first, last) => first + (last - first) * share(random),
            Hump::Exponential(least, mean) => least - mean * share(random).ln(),
        };
        value.round().clamp(1.0, 60_000.0) as u32
    }
}

/// `n` samples of components with their shares.
fn drawn(humps: &[(Hump, f64)], n: u64, seed: u64) -> Cycles {
    let (mut random, mut cycles) = (Random(seed), Cycles::default());
    for _ in 0..n {
        let mut at = random.share();
        let hump = humps.iter().find(|(_, share)| {
            at -= share;
            at < 0.0
        });
        let (hump, _) = hump.or(humps.last()).unwrap();
        cycles.add(hump.draw(&mut random), 1);
    }
    cycles
}

const SEEDS: u64 = 20;

/// In how many of [`SEEDS`] samples the modes differ from these, allowing a distance for each.
fn wrong(humps: &[(Hump, f64)], n: u64, expected: &[(f64, f64)]) -> u64 {
    let right = |seed: u64| {
        let mut modes = drawn(humps, n, seed * 7919 + n).modes();
        modes.sort_unstable();
        let near = |(mode, (value, distance)): (&u32, &(f64, f64))| {
            (f64::from(*mode) - value).abs() <= *distance
        };
        modes.len() == expected.len() && modes.iter().zip(expected).all(near)
    };
    (0..SEEDS).filter(|seed| !right(*seed)).count() as u64
}

const ANY: f64 = 1e9;

#[test]
fn one_hump_is_one_mode_whatever_the_noise() {
    let humps = [
        Hump::Normal(100.0, 10.0),
        Hump::Normal(8.0, 1.5),
        Hump::Normal(1000.0, 300.0),
        Hump::Uniform(1.0, 1000.0),
        Hump::Uniform(300.0, 340.0),
        Hump::Exponential(5.0, 50.0),
        Hump::LogNormal(5.0, 0.8),
    ];
    let mut failed = Vec::new();
    for hump in humps {
        for n in [40, 300, 3_000, 50_000] {
            let wrong = wrong(&[(hump, 1.0)], n, &[(0.0, ANY)]);
            // A flat distribution over three decades has no certain peak.
            let flat = matches!(hump, Hump::Uniform(first, last) if last > 100.0 * first);
            if wrong > if flat { SEEDS / 10 } else { 1 } {
                failed.push((hump, n, wrong));
            }
        }
    }
    assert!(failed.is_empty(), "of {SEEDS}: {failed:?}");
}

#[test]
fn two_humps_are_two_modes() {
    let cases = [
        (
            [(Hump::Normal(12.0, 1.2), 0.65), (Hump::Normal(40.0, 3.0), 0.35)],
            [(12.0, 1.5), (40.0, 4.0)],
        ),
        (
            [(Hump::Normal(100.0, 10.0), 0.85), (Hump::Normal(150.0, 10.0), 0.15)],
            [(100.0, 12.0), (150.0, 15.0)],
        ),
        (
            [(Hump::Normal(200.0, 20.0), 0.5), (Hump::Normal(300.0, 20.0), 0.5)],
            [(200.0, 25.0), (300.0, 25.0)],
        ),
        (
            [(Hump::Normal(20.0, 2.0), 0.9), (Hump::Exponential(300.0, 60.0), 0.1)],
            [(20.0, 3.0), (320.0, 60.0)],
        ),
        (
            [(Hump::Normal(5.0, 0.5), 0.4), (Hump::Normal(14.0, 0.7), 0.6)],
            [(5.0, 1.0), (14.0, 1.0)],
        ),
    ];
    let mut failed = Vec::new();
    for (humps, modes) in cases {
        for n in [1_000, 5_000, 50_000] {
            let wrong = wrong(&humps, n, &modes);
            if wrong > 1 {
                failed.push((humps, n, wrong));
            }
        }
    }
    assert!(failed.is_empty(), "of {SEEDS}: {failed:?}");
}

/// Components with their shares.
type Humps = Vec<(Hump, f64)>;

/// Components with 5 to 12 deviations between neighbours and at least a tenth of the samples each:
/// clearly visible.
fn mixture(random: &mut Random) -> (Humps, Vec<(f64, f64)>) {
    let mut within = |from: f64, to: f64| from + (to - from) * random.share();
    let widths = [(0.003, 0.03), (0.03, 0.1), (0.003, 0.1)][within(0.0, 3.0) as usize];
    let count = within(1.0, 5.0) as usize;
    let mut place = [4.0, 20.0, 100.0][within(0.0, 3.0) as usize] * within(1.0, 5.0);
    let mut humps: Vec<(f64, f64)> = Vec::new();
    for _ in 0..count {
        let mut width = (place * within(widths.0, widths.1)).max(0.4);
        if let Some((mean, before)) = humps.last() {
            place = place.max(mean + within(5.0, 12.0) * width.max(*before)).max(mean + 4.0);
            width = width.min((place - mean) / 5.0);
        }
        humps.push((place, width));
        place *= within(1.05, 2.0);
    }
    let shares: Vec<f64> = humps.iter().map(|_| within(0.3, 1.0)).collect();
    let sum: f64 = shares.iter().sum();
    let drawn = humps.iter().zip(shares);
    let drawn = drawn.map(|((mean, width), share)| (Hump::Normal(*mean, *width), share / sum));
    let modes = humps.iter().map(|(mean, width)| (*mean, (2.5 * width).max(1.5)));
    (drawn.collect(), modes.collect())
}

/// Every mode that a person would mark, and no other, in 95 of 100 mixtures.
#[test]
fn mixtures_of_known_modes() {
    for n in [500, 2_000, 20_000] {
        let mut failed = Vec::new();
        for seed in 0..100 {
            let (humps, expected) = mixture(&mut Random(seed * 104_729 + n));
            let mut modes = drawn(&humps, n, seed + n).modes();
            modes.sort_unstable();
            let near = |(mode, (value, distance)): (&u32, &(f64, f64))| {
                (f64::from(*mode) - value).abs() <= *distance
            };
            if modes.len() != expected.len() || !modes.iter().zip(&expected).all(near) {
                failed.push((humps, modes));
            }
        }
        assert!(failed.len() <= 5, "n {n}, {} of 100: {failed:#?}", failed.len());
    }
}

fn of(counts: &[(u32, u64)]) -> Vec<u32> {
    let mut cycles = Cycles::default();
    for (value, n) in counts {
        cycles.add(*value, *n);
    }
    cycles.modes()
}

#[test]
fn spikes() {
    assert_eq!(of(&[(7, 1)]), [7]);
    assert_eq!(of(&[(5, 500), (10, 300), (200, 200)]), [5, 10, 200]);
    // Neighbours are merged into the more frequent one.
    assert_eq!(of(&[(10, 500), (12, 400)]), [10]);
    assert_eq!(of(&[(40, 90), (39, 1), (41, 2)]), [40]);
    // Of equal ones, the lowest.
    assert_eq!(of(&[(100, 500), (101, 500)]), [100]);
    // Below a twentieth.
    assert_eq!(of(&[(10, 960), (40, 40)]), [10]);
    // Fifteen of thirty are two modes; three of six may be chance.
    assert_eq!(of(&[(10, 15), (40, 15)]), [10, 40]);
    assert_eq!(of(&[(10, 3), (40, 3)]).len(), 1);
    // By hand: 14 is above 3.6·√(14 + 1), 13 is below 3.6·√(13 + 1).
    assert_eq!([of(&[(5, 14), (10, 14)]).len(), of(&[(5, 13), (10, 13)]).len()], [2, 1]);
    // The density is highest around 24, and 26 is in its window.
    assert_eq!(of(&[(22, 100), (23, 100), (24, 100), (25, 100), (26, 110)]), [26]);
    // It is highest around 24 again, but 21 is not in its window.
    assert_eq!(of(&[(21, 135), (22, 100), (23, 100), (24, 130), (25, 130), (26, 130)]), [24]);
    // Exactly a twentieth.
    assert_eq!(of(&[(10, 950), (40, 50)]), [10, 40]);
    // The valley is the single value between 4 and 6.
    assert_eq!(of(&[(3, 500), (4, 400), (6, 490)]), [3, 6]);
    // No samples are in the middle between 10 and 40.
    assert_eq!(of(&[(10, 600), (40, 600), (67, 10_000)]), [67, 10, 40]);
    // By hand: a valley may be up to 0.7 times as high as the lower peak,
    let valley = |peak, valley| of(&[(3, peak), (4, valley), (5, valley), (6, peak)]).len();
    assert_eq!([valley(1000, 700), valley(1000, 701)], [2, 1]);
    // and 18 = 3.6·√(21 + 3 + 1) lower at least, but 17 is below 3.6·√(20 + 3 + 1).
    assert_eq!([valley(21, 3), valley(20, 3)], [2, 1]);
    // All of them, but 2 and 4 are merged.
    let comb: Vec<(u32, u64)> = (1..=9).map(|k| (1 << k, 1000)).collect();
    assert_eq!(of(&comb), [2, 8, 16, 32, 64, 128, 256, 512]);
}

#[test]
fn saturated_samples_are_not_a_mode() {
    assert_eq!(of(&[(10, 50), (40, 40), (65_535, 60)]), [10, 40]);
    assert!(of(&[(65_535, 60)]).is_empty());
}

/// More values than are kept exactly.
#[test]
fn rounded_counts() {
    let humps = [(Hump::Normal(2_000.0, 200.0), 0.7), (Hump::Normal(9_000.0, 800.0), 0.3)];
    let cycles = drawn(&humps, 200_000, 3);
    assert!(cycles.is_rounded());
    let [low, high] = cycles.modes()[..] else { panic!("{:?}", cycles.modes()) };
    assert!((1_800..2_200).contains(&low) && (8_000..10_000).contains(&high), "{low} {high}");
    let mut flat = Cycles::default();
    (1..=40_000).for_each(|value| flat.add(value, 1));
    assert_eq!(flat.modes().len(), 1);
}
