//! Ratios of times, on simulated machines under load.

use lab::measure::{Measurement, Ratio, Run, TURNS, Turn, TurnRatio, ticks_of};
use sampler::Random;

struct Dice(Random);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0.draw() % end
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

fn measured(runs: Vec<Run>, overhead: Vec<Run>, iterations: u64) -> Measurement {
    Measurement { iterations, runs, overhead, ..Measurement::default() }
}

/// Simulated disturbances, in percent.
#[derive(Clone, Copy, Default)]
struct Load {
    /// Runs that are preempted, and restart with cold caches.
    preempted: u64,
    /// Turns in which the hypervisor takes the CPU away.
    stolen: u64,
    /// Turns with another thread on the same core, which slows all code by a third for a random
    /// number of runs.
    sibling: u64,
    /// Runs before which the core's frequency changes by 7%.
    flicker: u64,
    /// Per-mille change of the core's frequency per turn.
    drift: u64,
}

const STEP: u64 = 26;

fn run_of(dice: &mut Dice, load: Load, ticks: f64, stolen: bool) -> Run {
    let preempted = dice.percent(load.preempted);
    let mut ticks = ticks as u64 + 60 + dice.below(STEP);
    ticks += if preempted { 5_000 + dice.below(4_000_000) } else { 0 };
    ticks += if stolen && dice.percent(30) { dice.below(10_000_000) } else { 0 };
    // The clock has a coarse resolution.
    Run { ticks: ticks / STEP * STEP, preempted, ..Run::default() }
}

/// A turn of three pieces with 20,000 ticks per run: one of length 3, one `truth` times as
/// long, and a reference.
fn turn(dice: &mut Dice, load: Load, nth: usize, truth: f64) -> Turn {
    let stolen = dice.percent(load.stolen);
    let slow_from = if dice.percent(load.sibling) { dice.below(9) } else { 9 };
    let speed = 1.0 + load.drift as f64 * nth as f64 / 1000.0;
    let mut lanes = [3.0, 3.0 * truth, 0.7].map(|each: f64| {
        let iterations = (20_000.0 / each) as u64;
        (each * iterations as f64 * speed, measured(Vec::new(), Vec::new(), iterations))
    });
    let mut fast = false;
    for nth in 0..9 {
        let sibling = if nth >= slow_from { 1.33 } else { 1.0 };
        for (ticks, lane) in &mut lanes {
            fast ^= dice.percent(load.flicker);
            let ticks = *ticks * sibling * if fast { 0.93 } else { 1.0 };
            lane.overhead.push(run_of(dice, load, 0.0, stolen));
            lane.runs.push(run_of(dice, load, ticks, stolen));
        }
    }
    let [first, second, reference] = lanes.map(|(_, lane)| lane);
    let (pieces, reference) = (vec![first, second], Some(reference));
    Turn { pieces, reference, stolen }
}

/// As `Session::take_turns`.
fn ratio(dice: &mut Dice, load: Load, truth: f64) -> Ratio {
    let mut turns: Vec<Turn> = Vec::new();
    for nth in 0..3 * TURNS {
        let turn = turn(dice, load, nth, truth);
        turns.extend((!turn.is_disturbed()).then_some(turn));
        if turns.len() == TURNS {
            break;
        }
    }
    Ratio::of_ticks(&turns, 1, 0)
}

#[test]
fn intervals_contain_the_true_ratio_or_are_withheld() {
    let quiet = Load::default();
    let busy = Load { preempted: 20, ..quiet };
    // Each load, and whether an interval is expected at all.
    let loads = [
        ("quiet", quiet, true),
        ("busy", busy, true),
        ("very busy", Load { preempted: 60, ..quiet }, false),
        ("steal", Load { stolen: 30, ..busy }, true),
        ("much steal", Load { stolen: 95, ..busy }, false),
        ("a thread that comes and goes", Load { sibling: 40, ..quiet }, true),
        ("a clock that changes within turns", Load { flicker: 4, ..busy }, false),
        ("a changing clock", Load { drift: 5, ..busy }, true),
        ("all", Load { stolen: 10, sibling: 20, drift: 3, ..busy }, true),
    ];
    for (name, load, expected) in loads {
        for truth in [1.0, 1.5, 2.0, 3.0] {
            let (mut held, mut withheld) = (0, 0);
            for seed in 0..200 {
                match ratio(&mut Dice(Random(seed)), load, truth).interval() {
                    None => withheld += 1,
                    Some((low, high)) => held += u32::from((low..=high).contains(&truth)),
                }
            }
            assert!(held + withheld >= 190, "{name}, {truth}: {held} held, {withheld} withheld");
            assert!(!expected || held >= 150, "{name}, {truth}: {withheld} of 200 withheld");
        }
    }
}

#[test]
fn a_difference_of_fifteen_percent_is_seen_on_a_busy_machine() {
    let load = Load { preempted: 20, stolen: 10, sibling: 20, drift: 3, ..Load::default() };
    let seen = (0..200).filter(|&seed| {
        let interval = ratio(&mut Dice(Random(seed)), load, 1.15).interval();
        interval.is_some_and(|(low, _)| low > 1.0)
    });
    let seen = seen.count();
    assert!(seen >= 180, "seen in {seen} of 200");
}

fn of_ratios(ratios: &[f64]) -> Ratio {
    Ratio::new(ratios.iter().map(|&ratio| TurnRatio { ratio, error: 0.0 }))
}

#[test]
fn a_single_outlier_in_twelve_turns_is_harmless() {
    let mut ratios = vec![1.5; 12];
    ratios[3] = 0.9;
    assert_eq!(of_ratios(&ratios).interval(), Some((1.5, 1.5)));
    ratios[7] = 0.95;
    assert_eq!(of_ratios(&ratios).interval(), Some((0.95, 1.5)));
}

#[test]
fn few_turns_give_no_interval_and_errors_widen_it() {
    assert_eq!(of_ratios(&[2.0; 7]).interval(), None);
    assert_eq!(of_ratios(&[2.0; 8]).interval(), Some((2.0, 2.0)));
    let (low, high) = Ratio::new([TurnRatio { ratio: 3.0, error: 0.02 }; 12]).interval().unwrap();
    assert!((2.93..2.95).contains(&low) && (3.05..3.07).contains(&high), "{low} {high}");
}

#[test]
fn times_below_the_overhead_give_no_ratio() {
    let of = |ticks: &[u64]| {
        let run = |&ticks| Run { ticks, ..Run::default() };
        measured(ticks.iter().map(run).collect(), vec![run(&78)], 1)
    };
    let pieces = vec![of(&[52, 78, 60]), of(&[178, 278, 178]), of(&[278, 478, 52])];
    let turn = Turn { pieces, reference: None, stolen: false };
    assert_eq!((turn.ratio(0, 1), turn.ratio(1, 0)), (None, None));
    // 200 to 100 and 400 to 200; the last run is below.
    assert_eq!(turn.ratio(2, 1).map(|of| of.ratio), Some(2.0));
    assert_eq!(ticks_of(&turn.pieces[0]), Some(0.0), "not negative");
}
