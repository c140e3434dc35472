//! Ratios of execution times, and detection of disturbed turns.

use super::result::{Measurement, Run};

/// One turn: alternating runs of several pieces of code.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The pieces, in the order given.
    pub pieces: Vec<Measurement>,
    /// A chain of dependent ADDs, one core cycle each. It reveals a change of the core's frequency,
    /// or another thread on the same core. `None` if core cycles are counted.
    pub reference: Option<Measurement>,
    /// The hypervisor ran something else on this CPU during the turn (`steal` in /proc/stat).
    pub stolen: bool,
}

impl Turn {
    /// Something else ran on the CPU or changed its speed during the turn, so it is discarded.
    pub fn is_disturbed(&self) -> bool {
        let reference = self.reference.iter();
        self.stolen
            || self.pieces.iter().chain(reference.clone()).any(most_preempted)
            || reference.clone().any(|reference| unsteady(&reference.runs))
    }

    /// Time stamp counter ticks per core cycle, from the reference.
    pub fn ticks_per_cycle(&self) -> Option<f64> {
        ticks_of(self.reference.as_ref()?)
    }

    /// The ratio of two pieces' time stamp counter ticks; `None` if either takes no longer than the
    /// overhead.
    pub fn ratio(&self, which: usize, other: usize) -> Option<TurnRatio> {
        let [mine, other] = [self.pieces.get(which)?, self.pieces.get(other)?];
        let [(less, error), (others_less, others_error)] = [overhead(mine)?, overhead(other)?];
        // Consecutive runs had the same speed, which may change within a turn.
        let pairs = mine.runs.iter().zip(&other.runs);
        let pairs = pairs.filter(|(mine, other)| !mine.preempted && !other.preempted);
        let (mut ratios, mut shortest) = (Vec::new(), [f64::INFINITY; 2]);
        for (mine, other) in pairs {
            let net = [mine.ticks as f64 - less, other.ticks as f64 - others_less];
            if net[0] > 0.0 && net[1] > 0.0 {
                ratios.push(net[0] / net[1]);
                shortest = [shortest[0].min(net[0]), shortest[1].min(net[1])];
            }
        }
        let iterations = other.iterations as f64 / mine.iterations.max(1) as f64;
        let ratio = median(ratios)? * iterations;
        let branches = self.of_branch(mine, shortest[0]) + self.of_branch(other, shortest[1]);
        let error = error / shortest[0] + others_error / shortest[1] + branches;
        Some(TurnRatio { ratio, error })
    }

    /// The fraction of a run that the loop's branches may account for: up to ten cycles each if the
    /// target is not predicted in time. In a short loop that is part of the measured time.
    fn of_branch(&self, piece: &Measurement, ticks: f64) -> f64 {
        const BRANCH: f64 = 10.0;
        const MOST: f64 = 0.02;
        let (Some(_), Some(per_cycle)) = (piece.layout.around, self.ticks_per_cycle()) else {
            return 0.0;
        };
        let copies = (piece.layout.code.end - piece.layout.code.start) / piece.layout.copy.max(1);
        let rounds = piece.iterations as f64 / copies.max(1) as f64;
        (BRANCH * per_cycle * rounds / ticks).min(MOST)
    }
}

/// The ratio of two times in one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnRatio {
    /// The median.
    pub ratio: f64,
    /// Its relative error, from the overhead's variation.
    pub error: f64,
}

/// Time stamp counter ticks per iteration: the median of the runs that were not preempted, minus
/// the overhead.
pub fn ticks_of(measured: &Measurement) -> Option<f64> {
    let (less, _) = overhead(measured)?;
    let ticks = median(kept(&measured.runs).into_iter().map(|ticks| ticks as f64))?;
    Some((ticks - less).max(0.0) / measured.iterations.max(1) as f64)
}

/// The overhead's median and interquartile range.
fn overhead(measured: &Measurement) -> Option<(f64, f64)> {
    let ticks = kept(&measured.overhead);
    let at = |part: usize| ticks.get(ticks.len() * part / 4).map(|&ticks| ticks as f64);
    Some((at(2)?, at(3)? - at(1)?))
}

fn most_preempted(measured: &Measurement) -> bool {
    2 * measured.runs.iter().filter(|run| run.preempted).count() > measured.runs.len()
}

/// The interquartile range of the runs exceeds 2%.
fn unsteady(runs: &[Run]) -> bool {
    let ticks = sorted(runs, |_| true);
    let at = |part: usize| ticks.get(ticks.len() * part / 4).copied().unwrap_or(0);
    (at(3) - at(1)) * 50 > at(2)
}

/// The median; for an even number of values the lower one.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Ticks of the runs that were not preempted, or of all if each was.
fn kept(runs: &[Run]) -> Vec<u64> {
    let kept = sorted(runs, |run| !run.preempted);
    if kept.is_empty() { sorted(runs, |_| true) } else { kept }
}

fn sorted(runs: &[Run], keep: impl Fn(&Run) -> bool) -> Vec<u64> {
    let mut ticks: Vec<u64> = runs.iter().filter(|run| keep(run)).map(|run| run.ticks).collect();
    ticks.sort_unstable();
    ticks
}

/// The ratio of two pieces' times over several turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratio {
    /// In ascending order.
    turns: Vec<f64>,
    /// The largest relative error of any turn.
    error: f64,
}

impl Ratio {
    /// Compares two pieces over the undisturbed turns.
    pub fn of_ticks(turns: &[Turn], which: usize, other: usize) -> Ratio {
        let ratios = turns.iter().filter_map(|turn| turn.ratio(which, other));
        let mut ratio = Ratio::new(ratios);
        // A core whose frequency changes between turns may also change it between two runs.
        let speeds: Vec<f64> = turns.iter().filter_map(Turn::ticks_per_cycle).collect();
        let jumps =
            speeds.windows(2).filter_map(|pair| Some((pair.first()? / pair.get(1)? - 1.0).abs()));
        ratio.error += jumps.sum::<f64>() / speeds.len().max(2) as f64;
        ratio
    }

    /// Combines the ratios of all undisturbed turns.
    pub fn new(turns: impl IntoIterator<Item = TurnRatio>) -> Ratio {
        let mut ratio = Ratio::default();
        for turn in turns {
            ratio.turns.push(turn.ratio);
            ratio.error = ratio.error.max(turn.error);
        }
        ratio.turns.sort_by(f64::total_cmp);
        ratio
    }

    /// The median; for an even number of turns the lower one.
    pub fn median(&self) -> Option<f64> {
        self.turns.get(self.turns.len().saturating_sub(1) / 2).copied()
    }

    /// The 99% confidence interval of the median: from the second smallest to the second largest of
    /// 12 turns, the extremes of 8 (David and Nagaraja, Order Statistics, 7.1), widened by the
    /// relative error. `None` with fewer turns.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let n = self.turns.len();
        let skipped = match n {
            ..8 => return None,
            8..12 => 0,
            _ => 1,
        };
        let (low, high) = (self.turns.get(skipped)?, self.turns.get(n - 1 - skipped)?);
        Some((low * (1.0 - self.error), high * (1.0 + self.error)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
mod tests {
    use sampler::Random;

    use super::super::turns::{MOST, TURNS};
    use super::*;

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
        for nth in 0..MOST {
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
                assert!(
                    held + withheld >= 190,
                    "{name}, {truth}: {held} held, {withheld} withheld"
                );
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
        let (low, high) =
            Ratio::new([TurnRatio { ratio: 3.0, error: 0.02 }; 12]).interval().unwrap();
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
}
