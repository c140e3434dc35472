//! How the times of pieces of code compare, and whether something disturbed a turn.

use super::result::{Measurement, Run};

/// One turn of several pieces of code, whose runs alternate.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The pieces, in the order that they were given.
    pub pieces: Vec<Measurement>,
    /// A chain of dependent ADDs, one core cycle each: shows a change of the core's frequency, or
    /// another thread on the same core. `None` where core cycles are counted.
    pub reference: Option<Measurement>,
    /// The hypervisor ran something else on this CPU meanwhile (`steal` in /proc/stat).
    pub stolen: bool,
}

impl Turn {
    /// Something else ran on the CPU or changed its speed meanwhile, so that the turn does not
    /// count.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let reference = self.reference.iter();
        self.stolen
            || self.pieces.iter().chain(reference.clone()).any(most_preempted)
            || reference.clone().any(|reference| unsteady(&reference.runs))
    }

    /// Ticks of the time stamp counter per core cycle, by the reference.
    #[must_use]
    pub fn ticks_per_cycle(&self) -> Option<f64> {
        ticks_of(self.reference.as_ref()?)
    }

    /// How many times as many ticks of the time stamp counter one piece takes as another; `None`
    /// where one takes no more than the overhead.
    #[must_use]
    pub fn ratio(&self, which: usize, other: usize) -> Option<TurnRatio> {
        let [mine, other] = [self.pieces.get(which)?, self.pieces.get(other)?];
        let [(less, error), (others_less, others_error)] = [overhead(mine)?, overhead(other)?];
        // Two runs that follow one another ran at the same speed, which may change within a turn.
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

    /// How much of a run the branches of the loop around the code may take: it takes up to ten
    /// cycles where its target is not predicted in time. Of a short loop it is a part of what was
    /// asked for.
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

/// A ratio of times in one turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnRatio {
    /// The median.
    pub ratio: f64,
    /// How far it may be off, as a part of it, by how much the overhead varies.
    pub error: f64,
}

/// Ticks of the time stamp counter that a piece of code takes per iteration: the median of the
/// runs that were not preempted, the overhead taken off.
#[must_use]
pub fn ticks_of(measured: &Measurement) -> Option<f64> {
    let (less, _) = overhead(measured)?;
    let ticks = median(kept(&measured.runs).into_iter().map(|ticks| ticks as f64).collect())?;
    Some((ticks - less).max(0.0) / measured.iterations.max(1) as f64)
}

/// The median of the overhead, and the width of its middle half.
fn overhead(measured: &Measurement) -> Option<(f64, f64)> {
    let ticks = kept(&measured.overhead);
    let at = |part: usize| ticks.get(ticks.len() * part / 4).map(|&ticks| ticks as f64);
    Some((at(2)?, at(3)? - at(1)?))
}

fn most_preempted(measured: &Measurement) -> bool {
    2 * measured.runs.iter().filter(|run| run.preempted).count() > measured.runs.len()
}

/// The middle half of the runs differs by more than a fiftieth.
fn unsteady(runs: &[Run]) -> bool {
    let ticks = sorted(runs, |_| true);
    let at = |part: usize| ticks.get(ticks.len() * part / 4).copied().unwrap_or(0);
    (at(3) - at(1)) * 50 > at(2)
}

/// Of an even number the lower.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Ticks of the runs that were not preempted, or of all where each was.
fn kept(runs: &[Run]) -> Vec<u64> {
    let kept = sorted(runs, |run| !run.preempted);
    if kept.is_empty() { sorted(runs, |_| true) } else { kept }
}

fn sorted(runs: &[Run], keep: impl Fn(&Run) -> bool) -> Vec<u64> {
    let mut ticks: Vec<u64> = runs.iter().filter(|run| keep(run)).map(|run| run.ticks).collect();
    ticks.sort_unstable();
    ticks
}

/// How many times as long a piece of code takes as another, turn by turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ratio {
    /// From low to high.
    turns: Vec<f64>,
    /// How far any of them may be off, as a part of it.
    error: f64,
}

impl Ratio {
    /// One piece compared with another, in turns that count.
    #[must_use]
    pub fn of_ticks(turns: &[Turn], which: usize, other: usize) -> Ratio {
        let ratios = turns.iter().filter_map(|turn| turn.ratio(which, other));
        let mut ratio = Ratio::new(ratios);
        // A core whose speed jumps from turn to turn may do so between two runs.
        let speeds: Vec<f64> = turns.iter().filter_map(Turn::ticks_per_cycle).collect();
        let jumps =
            speeds.windows(2).filter_map(|pair| Some((pair.first()? / pair.get(1)? - 1.0).abs()));
        ratio.error += jumps.sum::<f64>() / speeds.len().max(2) as f64;
        ratio
    }

    /// Of all turns that count.
    #[must_use]
    pub fn new(turns: impl IntoIterator<Item = TurnRatio>) -> Ratio {
        let mut ratio = Ratio::default();
        for turn in turns {
            ratio.turns.push(turn.ratio);
            ratio.error = ratio.error.max(turn.error);
        }
        ratio.turns.sort_by(f64::total_cmp);
        ratio
    }

    /// The median; of an even number the lower.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        self.turns.get(self.turns.len().saturating_sub(1) / 2).copied()
    }

    /// Where the median of such ratios lies in more than 99 of 100 cases: between
    /// the second from either end of 12, the outermost of 8 (David and Nagaraja,
    /// Order Statistics, 7.1), widened by how far each may be off. `None` with fewer.
    #[must_use]
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
    use super::super::turns::{MOST, TURNS};
    use super::*;
    use crate::measure::bracket::{GprValues, Layout};

    /// SplitMix64.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (mixed ^ (mixed >> 31)) % end
        }

        fn percent(&mut self, share: u64) -> bool {
            self.below(100) < share
        }
    }

    fn measured(runs: Vec<Run>, overhead: Vec<Run>, iterations: u64) -> Measurement {
        let layout = Layout {
            mapping: 0..0,
            text: 0..0,
            init: 0..0,
            set_up: 0..0,
            open: 0,
            code: 0..0,
            copy: 0,
            call: None,
            around: None,
            close: 0,
            tail: 0,
            home: 0,
            halt: None,
            switches: [0; 2],
        };
        Measurement {
            layout,
            iterations,
            counts: None,
            stepped_iterations: 1,
            stepped: 0,
            counts_vary: false,
            runs,
            overhead,
            blocks: Vec::new(),
            rounds: std::collections::BTreeMap::new(),
            from_registers: false,
            from_counters: false,
            stacks: 0,
            depth: None,
            interrupted: 0,
            unreadable: 0,
            foreign: 0,
            overflowed: 0,
            end: GprValues::default(),
            stopped: false,
        }
    }

    /// What a machine does to runs: shares in percent.
    #[derive(Clone, Copy, Default)]
    struct Load {
        /// Runs that are preempted, and start with cold caches.
        preempted: u64,
        /// Turns in which the hypervisor takes the CPU away.
        stolen: u64,
        /// Turns with another thread on the same core, which makes all code a third slower, for
        /// as many runs as the dice say.
        sibling: u64,
        /// Runs before which the clock of the core changes by 7%.
        flicker: u64,
        /// The clock of the core changes by as many thousandths a turn.
        drift: u64,
    }

    const STEP: u64 = 26;

    fn run_of(dice: &mut Dice, load: Load, ticks: f64, stolen: bool) -> Run {
        let preempted = dice.percent(load.preempted);
        let mut ticks = ticks as u64 + 60 + dice.below(STEP);
        ticks += if preempted { 5_000 + dice.below(4_000_000) } else { 0 };
        ticks += if stolen && dice.percent(30) { dice.below(10_000_000) } else { 0 };
        // The clock counts in steps.
        Run { ticks: ticks / STEP * STEP, preempted, ..Run::default() }
    }

    /// A turn of code that takes 3 and of code that takes `truth` times as long, of 20,000 ticks a
    /// run, and of a reference.
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
    fn intervals_hold_the_truth_or_are_withheld() {
        let quiet = Load::default();
        let busy = Load { preempted: 20, ..quiet };
        // Whether an interval is expected at all.
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
                    match ratio(&mut Dice(seed), load, truth).interval() {
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
            let interval = ratio(&mut Dice(seed), load, 1.15).interval();
            interval.is_some_and(|(low, _)| low > 1.0)
        });
        let seen = seen.count();
        assert!(seen >= 180, "seen in {seen} of 200");
    }

    fn of_ratios(ratios: &[f64]) -> Ratio {
        Ratio::new(ratios.iter().map(|&ratio| TurnRatio { ratio, error: 0.0 }))
    }

    #[test]
    fn one_turn_in_twelve_that_is_off_decides_nothing() {
        let mut ratios = vec![1.5; 12];
        ratios[3] = 0.9;
        assert_eq!(of_ratios(&ratios).interval(), Some((1.5, 1.5)));
        ratios[7] = 0.95;
        assert_eq!(of_ratios(&ratios).interval(), Some((0.95, 1.5)));
    }

    #[test]
    fn few_turns_tell_nothing_and_an_error_widens() {
        assert_eq!(of_ratios(&[2.0; 7]).interval(), None);
        assert_eq!(of_ratios(&[2.0; 8]).interval(), Some((2.0, 2.0)));
        let (low, high) =
            Ratio::new([TurnRatio { ratio: 3.0, error: 0.02 }; 12]).interval().unwrap();
        assert!((2.93..2.95).contains(&low) && (3.05..3.07).contains(&high), "{low} {high}");
    }

    #[test]
    fn what_is_not_above_the_overhead_gives_no_ratio() {
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
