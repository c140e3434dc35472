//! Numbers per iteration, and distributions, from the runs.

use std::collections::BTreeMap;

use lab::measure::{Measurement, Run};
use profile::cycles::Cycles;
use serde::Serialize;

use super::code::TimedCode;
use super::place::CodePlace;

/// The source of the records, in words.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// `msr`, `msr-safe`, `perf`, or `stepped`.
    pub(super) name: &'static str,
    /// Its description.
    pub(super) words: String,
    /// Whether cycle counts come from a model.
    pub(super) modelled: bool,
    /// Why it counts no cycles; `None` if it does.
    pub(super) absent: Option<String>,
}

/// A distribution of a quantity for each run, per iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    /// Runs.
    pub(super) n: u64,
    pub(super) min: f64,
    pub(super) median: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Spread of whole numbers; `None` without any.
    fn of(values: impl Iterator<Item = u64>) -> Option<Spread> {
        let mut counts = BTreeMap::new();
        values.for_each(|value| *counts.entry(value).or_default() += 1);
        Spread::weighted(&counts)
    }

    /// Spread of values with frequencies.
    fn weighted(values: &BTreeMap<u64, u64>) -> Option<Spread> {
        let n: u64 = values.values().sum();
        // The least value that at least this share does not exceed.
        let at = |share: f64| {
            let rank = ((share * n as f64).ceil() as u64).max(1);
            let mut below = 0;
            values.iter().find_map(|(&value, &count)| {
                below += count;
                (below >= rank).then_some(value as f64)
            })
        };
        Some(Spread { n, min: at(0.0)?, median: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }

    /// Less a constant, and divided.
    fn per(self, less: f64, parts: u64) -> Spread {
        // A time within the overhead could not be measured.
        let of = |value: f64| (value - less).max(0.0) / parts.max(1) as f64;
        let [min, median, p99, max] = [self.min, self.median, self.p99, self.max].map(of);
        Spread { n: self.n, min, median, p99, max }
    }
}

/// Two places, and no `-0.00`.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "-0.00" { "0.00".to_owned() } else { text }
}

/// A stretch of code, of all copies together.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) entry: CodePlace,
    pub(super) exit: CodePlace,
    /// Copies between the entry and the exit.
    pub(super) ahead: u64,
    pub(super) n: u64,
    pub(super) cycles: Cycles,
}

/// The printed figures of a measurement.
pub(super) struct Figures<'a> {
    pub(super) measured: &'a Measurement,
    pub(super) code: &'a TimedCode,
    pub(super) source: Source,
    /// Ticks of a dependent ADD, if measured to estimate core cycles.
    pub(super) ticks_per_cycle: Option<f64>,
    /// Core cycles per iteration, the bracket's own taken off.
    pub(super) cycles: Option<Spread>,
    /// Counters per iteration, without the harness's own counts: instructions, branches,
    /// mispredicted branches.
    pub(super) counted: [Option<Spread>; 3],
    /// Core cycles from one round of the loop to the next, per iteration.
    pub(super) rounds: Option<Spread>,
    /// Ticks of the time stamp counter per iteration, the bracket's own taken
    /// off.
    pub(super) ticks: Option<Spread>,
    /// Modes of core cycles and ticks, per iteration, the most frequent first.
    pub(super) cycle_modes: Vec<f64>,
    pub(super) tick_modes: Vec<f64>,
    pub(super) overhead_cycles: Option<Spread>,
    pub(super) overhead_ticks: Option<Spread>,
    /// Cycles of complete runs.
    pub(super) saturated: u64,
    pub(super) blocks: Vec<Block>,
}

/// A value of a run; `None` if it was not recorded.
type RunValue = fn(&Run) -> Option<u64>;

impl<'a> Figures<'a> {
    pub(super) fn new(
        measured: &'a Measurement,
        code: &'a TimedCode,
        source: Source,
    ) -> Figures<'a> {
        let of = |runs: &[Run], value: RunValue| Spread::of(runs.iter().filter_map(value));
        let per = |value: RunValue| {
            let less = of(&measured.overhead, value)?.median;
            Some(of(&measured.runs, value)?.per(less, measured.iterations))
        };
        let modes = |value: RunValue| -> Vec<f64> {
            let less = of(&measured.overhead, value).map_or(0.0, |less| less.median);
            let per = |mode| (mode - less) / measured.iterations.max(1) as f64;
            let values: Vec<u64> = measured.runs.iter().filter_map(value).collect();
            modes(&values).into_iter().map(per).collect()
        };
        let (cycles, ticks): (RunValue, RunValue) = (|run| run.cycles, |run| Some(run.ticks));
        let unroll = u64::from(code.body.unroll.max(1));
        Figures {
            cycle_modes: modes(cycles),
            tick_modes: modes(ticks),
            cycles: per(cycles),
            counted: [
                per(|run| run.instructions),
                per(|run| run.branches),
                per(|run| run.mispredicted),
            ],
            rounds: Spread::weighted(&measured.rounds).map(|spread| spread.per(0.0, unroll)),
            ticks: per(ticks),
            overhead_cycles: of(&measured.overhead, cycles),
            overhead_ticks: of(&measured.overhead, ticks),
            saturated: measured.runs.iter().filter(|run| run.saturated).count() as u64,
            blocks: blocks(measured, code),
            measured,
            code,
            source,
            ticks_per_cycle: None,
        }
    }

    /// A count of a stepped run, per iteration.
    pub(super) fn per_iteration(&self, count: u64) -> f64 {
        count as f64 / self.measured.stepped_iterations.max(1) as f64
    }

    /// Its time is smaller than the variation of the overhead.
    pub(super) fn is_below_overhead(&self) -> bool {
        let (Some(net), Some(less)) = (self.ticks, self.overhead_ticks) else { return false };
        net.median * (self.measured.iterations as f64) < less.p99 - less.min
    }

    /// Instructions per core cycle: per round of the loop if there is one, otherwise per run.
    pub(super) fn ipc(&self) -> Option<f64> {
        let stepped = self.measured.counts.map(|counts| self.per_iteration(counts.instructions));
        let [by_counter, ..] = self.counted;
        let instructions = stepped.or(by_counter.map(|spread| spread.median))?;
        let cycles = self.rounds.or(self.cycles)?.median;
        (cycles > 0.0).then(|| instructions / cycles)
    }
}

/// Where numbers gather. A time stamp counter that counts in steps of more than
/// one would have a peak at each.
fn modes(values: &[u64]) -> Vec<f64> {
    let common = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let step = values.iter().fold(0, |step, value| common(step, *value)).max(1);
    let mut counts = Cycles::default();
    for value in values {
        counts.add(u32::try_from(value / step).unwrap_or(u32::MAX), 1);
    }
    let whole = |mode: u32| f64::from(mode) * step as f64;
    counts.modes().into_iter().map(whole).collect()
}

/// Blocks of all copies together, the most frequent first.
fn blocks(measured: &Measurement, code: &TimedCode) -> Vec<Block> {
    let mut folded: BTreeMap<(CodePlace, CodePlace, u64), Block> = BTreeMap::new();
    for block in &measured.blocks {
        let place = |address| CodePlace::of(address, &measured.layout, code).folded();
        let ((entry, from), (exit, to)) = (place(block.entry), place(block.exit));
        let to = match exit {
            CodePlace::Around | CodePlace::End => u64::from(code.body.unroll.max(1)) - 1,
            _ => to,
        };
        let ahead = to.saturating_sub(from);
        let sum = folded.entry((entry.clone(), exit.clone(), ahead)).or_insert_with(|| Block {
            entry,
            exit,
            ahead,
            n: 0,
            cycles: Cycles::default(),
        });
        sum.n += block.n;
        for (&cycles, &n) in &block.cycles {
            sum.cycles.add(cycles, n);
        }
    }
    let mut blocks: Vec<Block> = folded.into_values().collect();
    blocks.sort_by_key(|block| std::cmp::Reverse(block.n));
    blocks
}

#[cfg(test)]
#[path = "../../../../tests/cli/unit/commands/time/figures.rs"]
mod tests;
