//! What measuring a piece of code came to.

use std::collections::{BTreeMap, HashMap};

use lbr_msr::filter::BranchClasses;
use lbr_msr::record::{BranchEntry, BranchSpec, HwBranchType};

use super::bracket::{GprValues, Layout};
use super::walk::StepCounts;

/// A measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measurement {
    /// Where the parts of the measured bracket lay.
    pub layout: Layout,
    /// How often the code is executed in one run: copies times rounds.
    pub iterations: u64,
    /// What single-stepping counted in one run; `None` where it was left out.
    pub counts: Option<StepCounts>,
    /// How often the code is executed in a stepped run.
    pub stepped_iterations: u64,
    /// Runs that were single-stepped.
    pub stepped: u32,
    /// Their counts were not all the same; [`counts`](Self::counts) is the
    /// last one's.
    pub counts_vary: bool,
    /// Runs at full speed that count, in order.
    pub runs: Vec<Run>,
    /// The same bracket around nothing.
    pub overhead: Vec<Run>,
    /// Blocks by entry and exit, of the stepped runs or, from the registers of
    /// a CPU, of those at full speed.
    pub blocks: Vec<Block>,
    /// Cycles from one round of the loop to the next, with how often each
    /// number occurred; empty without cycles.
    pub rounds: BTreeMap<u64, u64>,
    /// Branch records were read from the registers of a CPU.
    pub from_registers: bool,
    /// Counters of the kernel's perf events were read.
    pub from_counters: bool,
    /// Branch stacks that the kernel took; where there are any, the
    /// [`blocks`](Self::blocks) are those that were seen in them.
    pub stacks: u64,
    /// Records of the ring; `None` where nothing was read from registers.
    pub depth: Option<u32>,
    /// Runs that were dropped, because an interrupt or another far transfer
    /// came between the two jumps, or something else ran between the readings of
    /// counters.
    pub interrupted: u64,
    /// Runs that were dropped, because the closing jump was not among the
    /// records or these did not belong together.
    pub unreadable: u64,
    /// Runs that were dropped, because somebody else had changed the control or
    /// the filter register.
    pub foreign: u64,
    /// Runs with more branches than the ring has records: the last ones of
    /// each are in [`blocks`](Self::blocks).
    pub overflowed: u64,
    /// Registers at the end of the last run at full speed.
    pub end: GprValues,
    /// It was stopped before all runs were made.
    pub stopped: bool,
}

/// One run at full speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Ticks of the time stamp counter from before the opening jump until
    /// after the closing one.
    pub ticks: u64,
    /// Core cycles between the two jumps, or between the readings of a counter;
    /// `None` where the records do not carry them, or the opening jump was
    /// overwritten.
    pub cycles: Option<u64>,
    /// Instructions retired between the readings of a counter.
    pub instructions: Option<u64>,
    /// Branches retired, not taken ones too.
    pub branches: Option<u64>,
    /// Those of them that were mispredicted.
    pub mispredicted: Option<u64>,
    /// A record stood at its highest count: the truth may be larger.
    pub saturated: bool,
    /// The kernel gave the CPU to something else meanwhile.
    pub preempted: bool,
}

/// A stretch of code from where a branch arrived to the next recorded branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// First instruction.
    pub entry: u64,
    /// The branch that ended it; the closing jump or the loop's branch of the
    /// bracket where the code ran on to its end.
    pub exit: u64,
    /// Executions seen.
    pub n: u64,
    /// Core cycles of an execution, with how often each number occurred; empty
    /// where the records do not carry them.
    pub cycles: BTreeMap<u32, u64>,
    /// Executions at the highest count that a record holds.
    pub saturated: u64,
}

/// A taken branch, as far as measuring goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunBranch {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) cycles: Option<u32>,
    pub(super) saturated: bool,
}

impl From<&BranchEntry> for RunBranch {
    fn from(entry: &BranchEntry) -> RunBranch {
        RunBranch {
            from: entry.from,
            to: entry.to,
            cycles: entry.cycles,
            saturated: entry.cycles_saturated == Some(true),
        }
    }
}

/// The branches of one run, oldest first: those behind the opening jump, up to
/// and with the closing one.
#[derive(Debug)]
pub(super) struct Branches {
    pub(super) taken: Vec<RunBranch>,
    /// The opening jump was still among the records.
    pub(super) complete: bool,
}

/// What a ring held after a run.
#[derive(Debug)]
pub(super) enum Cut {
    Run(Branches),
    /// A far transfer between the two jumps that is not of the code's making.
    Interrupted,
    /// No closing jump, or the jumps of two runs.
    Unreadable,
}

/// Cuts out what lies between the two jumps. `records` are newest first;
/// `returns_from_call` tells whether the code stands behind a system call at
/// an address.
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
    let (mut taken, mut complete) = (vec![RunBranch::from(close)], false);
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
        taken.push(RunBranch::from(record));
    }
    taken.reverse();
    Cut::Run(Branches { taken, complete })
}

/// Cuts a branch stack, newest first, that was taken anywhere into the runs it
/// reaches into. The last may lack its end, the first its start.
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
        current.taken.push(RunBranch::from(record));
        match record.from == layout.close {
            true => runs.push(current),
            false => run = Some(current),
        }
    }
    runs.extend(run);
    runs
}

/// A record of a far transfer: from or to the kernel, or so typed by the CPU.
fn is_far(record: &BranchEntry) -> bool {
    const KERNEL: u64 = 1 << 63;
    record.hw_type == Some(HwBranchType::Other) || (record.from | record.to) & KERNEL != 0
}

/// Branches at the two ends of a run that the call of a closure takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Strip {
    /// Behind the opening jump.
    pub(super) head: usize,
    /// Before the closing jump.
    pub(super) tail: usize,
}

/// What a run is held against.
pub(super) struct Folding<'a> {
    pub(super) layout: &'a Layout,
    /// What is left out of a run; the head of a complete one only.
    pub(super) strip: Strip,
    /// Only these classes are told apart; `None` for all.
    pub(super) keep: Option<BranchClasses>,
}

/// Blocks and rounds of many runs.
#[derive(Debug, Default)]
pub(super) struct Folded {
    blocks: HashMap<(u64, u64), Block>,
    pub(super) rounds: BTreeMap<u64, u64>,
}

impl Folded {
    /// Adds a run; `class` tells the class of the branch at an address.
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
            // And the closing jump.
            tail => run.taken.len().saturating_sub(tail + 1),
        };
        let mut at = run.complete.then_some(layout.code.start);
        let (mut cycles, mut saturated) = (layout.set_up.is_empty().then_some(0u32), false);
        let mut round = None::<u64>;
        for (i, branch) in run.taken.iter().enumerate() {
            cycles = cycles.zip(branch.cycles).map(|(sum, more)| sum.saturating_add(more));
            saturated |= branch.saturated;
            let ours = layout.is_ours(branch.from);
            if layout.set_up.contains(&branch.from) {
                continue;
            }
            round = round.and_then(|sum| Some(sum + u64::from(branch.cycles?)));
            if layout.around == Some(branch.from) {
                if let Some(sum) = round {
                    *self.rounds.entry(sum).or_default() += 1;
                }
                // The cycles of a set-up are not those of the code.
                round = layout.set_up.is_empty().then_some(0);
            }
            // A return from the kernel ends no block of the code.
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

    /// No block was seen.
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
    let saturated = run.taken.iter().any(|branch| branch.saturated);
    if !run.complete {
        return (None, saturated);
    }
    let sum = run.taken.iter().try_fold(0u64, |sum, b| Some(sum + u64::from(b.cycles?)));
    (sum, saturated)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: u64 = 0x1F00;
    const CODE: u64 = 0x2000;
    const CLOSE: u64 = 0x2080;

    fn layout() -> Layout {
        Layout {
            mapping: 0x1000..0x9000,
            text: 0x1800..0x3000,
            init: 0x1900..0x1900,
            set_up: CODE..CODE,
            open: OPEN,
            code: CODE..CLOSE,
            copy: CLOSE - CODE,
            call: None,
            around: None,
            close: CLOSE,
            tail: 0x20C0,
            home: 0x2F00,
            halt: None,
            switches: [0; 2],
        }
    }

    fn record(from: u64, to: u64) -> BranchEntry {
        BranchEntry { from, to, cycles: Some(7), ..BranchEntry::default() }
    }

    /// A ring, newest first, from records in the order of time.
    fn cut_of(records: &[BranchEntry]) -> Cut {
        let records: Vec<BranchEntry> = records.iter().rev().copied().collect();
        cut(&records, &layout(), |at| at == CODE + 0x12)
    }

    const KERNEL: u64 = 0xFFFF_8000_0000_1000;

    #[test]
    fn what_stands_between_the_two_jumps_is_the_run() {
        let records = [
            record(0x1, 0x2),
            // The return from the system call that switched recording on.
            record(KERNEL, 0x1E80),
            record(OPEN, CODE),
            record(CODE + 8, CODE + 2),
            record(CLOSE, 0x20C0),
        ];
        let Cut::Run(run) = cut_of(&records) else { panic!("a run") };
        assert!(run.complete);
        let from: Vec<u64> = run.taken.iter().map(|taken| taken.from).collect();
        assert_eq!(from, [CODE + 8, CLOSE]);
        assert_eq!(total(&run), (Some(14), false));
        // The opening jump was overwritten.
        let Cut::Run(run) = cut_of(&records[3..]) else { panic!("a run") };
        assert!(!run.complete);
        assert_eq!(total(&run), (None, false));
    }

    #[test]
    fn a_far_branch_between_them_is_an_interrupt() {
        let around = |between| [record(OPEN, CODE), between, record(CLOSE, 0x20C0)];
        assert!(matches!(cut_of(&around(record(KERNEL, CODE + 9))), Cut::Interrupted));
        // A CPU that types its records may hide where it came from.
        let typed = BranchEntry { hw_type: Some(HwBranchType::Other), ..record(CODE, CODE + 9) };
        assert!(matches!(cut_of(&around(typed)), Cut::Interrupted));
        // The code's own system call.
        assert!(matches!(cut_of(&around(record(KERNEL, CODE + 0x12))), Cut::Run(_)));
        // Before the opening jump it is nobody's business.
        let before = [record(KERNEL, CODE), record(OPEN, CODE), record(CLOSE, 0x20C0)];
        assert!(matches!(cut_of(&before), Cut::Run(_)));
    }

    /// Of a stack that was taken in the midst of a third run, and begins in that of a first.
    #[test]
    fn a_stack_of_several_runs() {
        let records = [
            record(CODE + 8, CODE + 2),
            record(CLOSE, 0x20C0),
            record(0x2F10, 0x1880),
            record(OPEN, CODE),
            record(KERNEL, CODE + 9),
            record(CLOSE, 0x20C0),
            record(OPEN, CODE),
            record(CODE + 8, CODE + 2),
        ];
        let stack: Vec<BranchEntry> = records.iter().rev().copied().collect();
        let found = runs(&stack, &layout(), |at| at == CODE + 0x12);
        let found: Vec<(bool, Vec<u64>)> = found
            .iter()
            .map(|run| (run.complete, run.taken.iter().map(|taken| taken.from).collect()))
            .collect();
        assert_eq!(found, [(false, vec![CODE + 8, CLOSE]), (true, vec![CODE + 8])]);
    }

    #[test]
    fn records_that_do_not_belong_together_are_no_run() {
        assert!(matches!(cut_of(&[]), Cut::Unreadable));
        assert!(matches!(cut_of(&[record(OPEN, CODE)]), Cut::Unreadable), "frozen in between");
        let two = [record(CLOSE, 0x20C0), record(CODE + 8, CODE), record(CLOSE, 0x20C0)];
        assert!(matches!(cut_of(&two), Cut::Unreadable));
        let wrong = BranchEntry { spec: Some(BranchSpec::WrongPath), ..record(KERNEL, CODE) };
        let speculated = [record(OPEN, CODE), wrong, record(CLOSE, 0x20C0)];
        let Cut::Run(run) = cut_of(&speculated) else { panic!("a run") };
        assert_eq!(run.taken.len(), 1, "what never retired is left out");
    }
}
