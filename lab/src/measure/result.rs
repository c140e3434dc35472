//! Results of a measurement.

use std::collections::{BTreeMap, HashMap};

use lbr_msr::filter::BranchClasses;
use lbr_msr::record::{BranchEntry, BranchSpec, HwBranchType};

use super::bracket::{GprValues, Layout};
use super::child::StepCounts;

/// A measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurement {
    /// Addresses of the measured bracket's parts.
    pub layout: Layout,
    /// Number of executions of the code in one run: copies times iterations.
    pub iterations: u64,
    /// Counts of one single-stepped run; `None` if there was none.
    pub counts: Option<StepCounts>,
    /// Number of executions of the code in a stepped run.
    pub stepped_iterations: u64,
    /// Runs that were single-stepped.
    pub stepped: u32,
    /// The counts differed between runs; [`counts`](Self::counts) has those of the last.
    pub counts_vary: bool,
    /// The runs at full speed that were not discarded, in order.
    pub runs: Vec<Run>,
    /// Runs of the empty bracket.
    pub overhead: Vec<Run>,
    /// Blocks by entry and exit: of the runs at full speed if a CPU's records were read, otherwise
    /// of the stepped runs.
    pub blocks: Vec<Block>,
    /// Cycles per loop iteration: how often each number occurred; empty without cycles.
    pub rounds: BTreeMap<u64, u64>,
    /// Branch records were read from the CPU.
    pub from_registers: bool,
    /// The kernel's performance counters were read.
    pub from_counters: bool,
    /// Number of branch stacks that the kernel sampled; if any, [`blocks`](Self::blocks) come from
    /// them.
    pub stacks: u64,
    /// Depth of the LBR stack; `None` if no registers were read.
    pub depth: Option<u32>,
    /// Runs discarded because an interrupt or another far transfer came between the two marker
    /// jumps, or something else ran between the counter readings.
    pub interrupted: u64,
    /// Runs discarded because the closing jump was not among the records, or the records were
    /// inconsistent.
    pub unreadable: u64,
    /// Runs discarded because another program had changed the control or the filter register.
    pub foreign: u64,
    /// Runs with more branches than the LBR stack holds: only their last branches are in
    /// [`blocks`](Self::blocks).
    pub overflowed: u64,
    /// Registers at the end of the last run at full speed.
    pub end: GprValues,
    /// The caller stopped it before all runs were made.
    pub stopped: bool,
}

/// One run at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Time stamp counter ticks from before the opening jump until after the closing jump.
    pub ticks: u64,
    /// Core cycles between the two marker jumps, or between two counter readings; `None` if the
    /// records carry no cycles, or the opening jump was overwritten.
    pub cycles: Option<u64>,
    /// Instructions retired between two counter readings.
    pub instructions: Option<u64>,
    /// Branches retired, including those not taken.
    pub branches: Option<u64>,
    /// Mispredicted branches.
    pub mispredicted: Option<u64>,
    /// A record's cycle count was at its maximum: the truth may be larger.
    pub saturated: bool,
    /// The kernel preempted it.
    pub preempted: bool,
}

/// The ticks of the kept runs, in ascending order.
pub(super) fn sorted(runs: &[Run], keep: impl Fn(&Run) -> bool) -> Vec<u64> {
    let mut ticks: Vec<u64> = runs.iter().filter(|run| keep(run)).map(|run| run.ticks).collect();
    ticks.sort_unstable();
    ticks
}

/// Straight-line code from a branch target to the next recorded branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First instruction.
    pub entry: u64,
    /// The branch at its end; the bracket's closing jump or loop branch if the code ran to its end.
    pub exit: u64,
    /// Number of executions seen.
    pub n: u64,
    /// Core cycles per execution: how often each number occurred; empty if the records carry no
    /// cycles.
    pub cycles: BTreeMap<u32, u64>,
    /// Number of executions whose cycle count was at its maximum.
    pub saturated: u64,
}

/// One run's branches, oldest first: from after the opening jump to the closing jump, inclusive.
#[derive(Debug)]
pub(super) struct Branches {
    pub(super) taken: Vec<BranchEntry>,
    /// The opening jump was still among the records.
    pub(super) complete: bool,
}

/// The outcome of extracting a run from the LBR stack.
#[derive(Debug)]
pub(super) enum Cut {
    Run(Branches),
    /// A far transfer between the two marker jumps that the code did not make.
    Interrupted,
    /// No closing jump, or the jumps of two different runs.
    Unreadable,
}

/// Extracts the branches between the two marker jumps. `records` are newest first;
/// `returns_from_call` returns whether a system call precedes an address.
pub(super) fn cut(
    records: &[BranchEntry],
    layout: &Layout,
    mut returns_from_call: impl FnMut(u64) -> bool,
) -> Cut {
    let mut records = records
        .iter()
        .filter(|record| record.spec != Some(BranchSpec::WrongPath))
        .skip_while(|record| record.from != layout.close);
    let Some(close) = records.next() else { return Cut::Unreadable };
    let (mut taken, mut complete) = (vec![*close], false);
    for record in records {
        if record.from == layout.open {
            complete = true;
            break;
        }
        if record.from == layout.close {
            return Cut::Unreadable;
        }
        if is_far(record) && !returns_from_call(record.to) {
            return Cut::Interrupted;
        }
        taken.push(*record);
    }
    taken.reverse();
    Cut::Run(Branches { taken, complete })
}

/// Splits a branch stack, newest first, that was sampled at any time into runs. The last may lack
/// its end, the first its start.
pub(super) fn runs(
    records: &[BranchEntry],
    layout: &Layout,
    mut returns_from_call: impl FnMut(u64) -> bool,
) -> Vec<Branches> {
    let mut runs = Vec::new();
    let mut run = Some(Branches { taken: Vec::new(), complete: false });
    let retired = |record: &&BranchEntry| record.spec != Some(BranchSpec::WrongPath);
    for record in records.iter().rev().filter(retired) {
        if record.from == layout.open {
            run = Some(Branches { taken: Vec::new(), complete: true });
            continue;
        }
        run = run.filter(|_| !is_far(record) || returns_from_call(record.to));
        let Some(mut current) = run.take() else { continue };
        current.taken.push(*record);
        match record.from == layout.close {
            true => runs.push(current),
            false => run = Some(current),
        }
    }
    runs.extend(run);
    runs
}

/// A far transfer: from or to the kernel, or typed so by the CPU.
fn is_far(record: &BranchEntry) -> bool {
    const KERNEL: u64 = 1 << 63;
    record.hw_type == Some(HwBranchType::Other) || (record.from | record.to) & KERNEL != 0
}

/// Number of branches at each end of a run that belong to the call of a closure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strip {
    /// After the opening jump.
    pub(super) head: usize,
    /// Before the closing jump.
    pub(super) tail: usize,
}

/// How to add runs up.
pub(super) struct Folding<'a> {
    pub(super) layout: &'a Layout,
    /// Branches to drop from each end of a run; at the start only if the run is complete.
    pub(super) strip: Strip,
    /// Only these classes end a block; `None` for all.
    pub(super) keep: Option<BranchClasses>,
}

/// Blocks and iterations of many runs.
#[derive(Debug, Default)]
pub(super) struct Folded {
    blocks: HashMap<(u64, u64), Block>,
    pub(super) rounds: BTreeMap<u64, u64>,
}

impl Folded {
    /// Adds a run; `class` returns the class of the branch at an address.
    pub(super) fn add(
        &mut self,
        run: &Branches,
        how: &Folding<'_>,
        mut class: impl FnMut(u64) -> Option<HwBranchType>,
    ) {
        let layout = how.layout;
        let first = if run.complete { how.strip.head } else { 0 };
        let behind = match how.strip.tail {
            0 => run.taken.len(),
            // Plus the closing jump.
            tail => run.taken.len().saturating_sub(tail + 1),
        };
        let mut at = run.complete.then_some(layout.code.start);
        let (mut cycles, mut saturated) = (layout.set_up.is_empty().then_some(0u32), false);
        let mut round = None::<u64>;
        for (i, branch) in run.taken.iter().enumerate() {
            cycles = cycles.zip(branch.cycles).map(|(sum, more)| sum.saturating_add(more));
            saturated |= branch.cycles_saturated == Some(true);
            let ours = layout.is_ours(branch.from);
            if layout.set_up.contains(&branch.from) {
                continue;
            }
            round = round.and_then(|sum| Some(sum + u64::from(branch.cycles?)));
            if layout.around == Some(branch.from) {
                if let Some(sum) = round {
                    *self.rounds.entry(sum).or_default() += 1;
                }
                // Iterations that include a set-up have no meaningful cycle count.
                round = layout.set_up.is_empty().then_some(0);
            }
            // A return from the kernel does not end a block.
            let user = branch.from >> 63 == 0;
            let kept = ours || user && is_kept(how.keep, || class(branch.from));
            if !kept {
                continue;
            }
            if let Some(entry) = at
                && (first..behind).contains(&i)
                && !(ours && layout.is_ours(entry))
            {
                let block = self.blocks.entry((entry, branch.from)).or_insert_with(|| Block {
                    entry,
                    exit: branch.from,
                    n: 0,
                    cycles: BTreeMap::new(),
                    saturated: 0,
                });
                block.n += 1;
                if let Some(cycles) = cycles {
                    *block.cycles.entry(cycles).or_default() += 1;
                    block.saturated += u64::from(saturated);
                }
            }
            let set_up = layout.set_up.contains(&branch.to);
            at = Some(if set_up { layout.code.start } else { branch.to });
            (cycles, saturated) = ((!set_up).then_some(0), false);
        }
    }

    /// No blocks were seen.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(super) fn blocks(self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.blocks.into_values().collect();
        blocks.sort_by_key(|block| (block.entry, block.exit));
        blocks
    }
}

fn is_kept(keep: Option<BranchClasses>, class: impl FnOnce() -> Option<HwBranchType>) -> bool {
    keep.is_none_or(|keep| class().is_none_or(|class| keep.keeps(class)))
}

/// Core cycles of a whole run.
pub(super) fn total(run: &Branches) -> (Option<u64>, bool) {
    let saturated = run.taken.iter().any(|branch| branch.cycles_saturated == Some(true));
    if !run.complete {
        return (None, saturated);
    }
    let sum = run.taken.iter().try_fold(0u64, |sum, b| Some(sum + u64::from(b.cycles?)));
    (sum, saturated)
}

#[cfg(test)]
#[path = "../../../tests/lab/unit/measure/result.rs"]
mod tests;
