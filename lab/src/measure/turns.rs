//! Runs several pieces of code in turns: ratios of their times, and detection of disturbed turns.

use std::fs;

use super::bracket::Body;
use super::options::MeasureError;
use super::result::{Measurement, Run, Strip, sorted};
use super::session::{Session, around};

/// Maximum number of undisturbed turns.
pub const TURNS: usize = 12;
/// Maximum number of turns to make.
const MOST: usize = 3 * TURNS;

impl Session {
    /// Measures pieces of code in turns until [`TURNS`] are undisturbed or three times as many were
    /// made. Runs alternate within a turn, so that changes of the core's frequency or the machine's
    /// load affect all pieces alike. If stopped early, returns the complete turns.
    ///
    /// # Errors
    /// The piece's index and its error.
    pub fn take_turns(&mut self, bodies: &[Body]) -> Result<Vec<Turn>, (usize, MeasureError)> {
        let mut lanes = Vec::new();
        for (i, body) in bodies.iter().enumerate() {
            lanes.push(self.lane_of_code(body).map_err(|error| (i, error))?);
        }
        if !self.counts_cycles() {
            lanes.push(self.lane_of_code(&chain()).map_err(|error| (0, error))?);
        }
        let cpu = self.options().pin.and_then(|pin| pin.cpus().next());
        let mut turns: Vec<Turn> = Vec::new();
        let mut whole = 0;
        while whole < TURNS && turns.len() < MOST {
            let before = cpu.and_then(stolen);
            let mut pieces = self.turn(&mut lanes)?;
            if pieces.iter().any(|piece| piece.stopped) {
                if turns.is_empty() {
                    return Err((0, MeasureError::Stopped));
                }
                break;
            }
            let reference = if pieces.len() > bodies.len() { pieces.pop() } else { None };
            let turn = Turn { pieces, reference, stolen: before != cpu.and_then(stolen) };
            whole += usize::from(!turn.is_disturbed());
            turns.push(turn);
        }
        Ok(turns)
    }

    /// Time stamp counter ticks per core cycle, by a chain of dependent ADDs; `None` if core cycles
    /// are counted.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn ticks_per_cycle(&mut self) -> Result<Option<f64>, MeasureError> {
        match self.counts_cycles() {
            true => Ok(None),
            false => self.measure_code(&chain()).map(|chain| ticks_of(&chain)),
        }
    }

    fn lane_of_code(&mut self, body: &Body) -> Result<super::lane::Lane, MeasureError> {
        self.lane(body, &around(body), Strip::default())
    }
}

/// Dependent ADDs, one core cycle each.
fn chain() -> Body {
    // ADD RAX, RAX
    let code = vec![0x48, 0x01, 0xC0];
    Body { code, unroll: 1024, rounds: Some(12), ..Body::default() }
}

/// Time stolen by the hypervisor on a CPU. proc_stat(5), `steal`.
fn stolen(cpu: u32) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

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
