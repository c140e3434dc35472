//! Fall-through ranges and branches by address: the counters of llvm-profgen, whose dump of them,
//! `--skip-symbolization`, is the kind `llvm-raw`, of AutoFDO, and of BOLT.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Losses;
use super::binary::Binary;
use super::program::{Program, Step};
use super::traces::{NOT_KNOWN, Traced};
use crate::read::add;

use crate::read::LONGEST_BLOCK;

/// Source of a branch from outside the program (`ExternalAddr` in llvm-profgen's `PerfReader.h`).
const EXTERNAL: u64 = 1;

/// Counts of ranges, by first and last instruction, and of branches, in address order.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub(super) ranges: BTreeMap<(u64, u64), u64>,
    /// The source is [`EXTERNAL`] if it is outside the program.
    pub(super) branches: BTreeMap<(u64, u64), u64>,
}

impl Ranges {
    /// Counts as `LBRPerfReader::computeCounterFromLBR` does.
    pub(super) fn of(program: &mut Program) -> Ranges {
        let Program { binary, steps, losses, .. } = program;
        let mut counts = Ranges::default();
        for step in steps.iter() {
            let mut code = |addr: Option<u64>| addr.filter(|addr| binary.at(*addr).is_some());
            let (from, to) = (code(step.from), code(step.to));
            let end = step.next.map(&mut code);
            match (from, to) {
                (None, None) => add(&mut losses.outside, step.taken),
                // A branch counts if its target is inside.
                (Some(_), None) => add(&mut losses.leaving, step.taken),
                (from, Some(to)) if step.taken > 0 => {
                    let branch = (from.unwrap_or(EXTERNAL), to);
                    add(counts.branches.entry(branch).or_default(), step.taken);
                }
                _ => {}
            }
            let Some(end) = end.filter(|_| step.ran > 0) else { continue };
            let (Some(start), Some(end)) = (to, end) else {
                add(&mut losses.ranges_outside, step.ran);
                continue;
            };
            // `isValidFallThroughRange`: a range neither ends before its start nor contains an
            // unconditional branch.
            if start > end || binary.leaves_between(start, end) {
                add(&mut losses.bogus, step.ran);
                continue;
            }
            add(counts.ranges.entry((start, end)).or_default(), step.ran);
        }
        counts.sum_up(losses);
        counts
    }

    /// Counts as AutoFDO's `PerfDataSampleReader::Append` does: addresses are file offsets, and a
    /// range belongs to the file that contains its start, even if its end is elsewhere.
    pub(super) fn of_file(traced: &Traced, file: usize) -> (Ranges, Losses) {
        let (mut counts, mut losses) = (Ranges::default(), Losses::default());
        for trace in &traced.traces {
            add(&mut losses.recorded, trace.taken);
            let offset = |addr| traced.maps.locate(trace.space as usize, addr).in_file(file);
            let (from, to) = (offset(trace.from), offset(trace.to));
            match (from, to) {
                (Some(from), Some(to)) if trace.taken > 0 => {
                    add(counts.branches.entry((from, to)).or_default(), trace.taken);
                }
                (Some(_), None) => add(&mut losses.leaving, trace.taken),
                (None, None) => add(&mut losses.outside, trace.taken),
                _ => {}
            }
            let ran = trace.next != NOT_KNOWN && trace.ran > 0;
            let Some(start) = to.filter(|_| ran) else { continue };
            match trace.next.checked_sub(trace.to).filter(|length| *length <= LONGEST_BLOCK) {
                Some(length) => {
                    let range = (start, start.saturating_add(length));
                    add(counts.ranges.entry(range).or_default(), trace.ran);
                }
                None => add(&mut losses.bogus, trace.ran),
            }
        }
        counts.sum_up(&mut losses);
        (counts, losses)
    }

    fn sum_up(&self, losses: &mut Losses) {
        losses.ranges = sum(&self.ranges);
        losses.branches = sum(&self.branches);
    }

    /// Prints as `PerfScriptReader::writeUnsymbolizedProfile` of llvm-profgen does: offsets are
    /// relative to `base`, the page of the first executable segment. AutoFDO's text profile
    /// (`TextSampleReaderWriter`) has a list of addresses before the branches, which is empty.
    pub(super) fn text(&self, base: u64, addresses: &str) -> String {
        let mut text = format!("{}\n", self.ranges.len());
        for ((start, end), count) in &self.ranges {
            let (start, end) = (start.wrapping_sub(base), end.wrapping_sub(base));
            let _ = writeln!(text, "{start:x}-{end:x}:{count}");
        }
        let _ = writeln!(text, "{addresses}{}", self.branches.len());
        for ((from, to), count) in &self.branches {
            let (from, to) = (from.wrapping_sub(base), to.wrapping_sub(base));
            let _ = writeln!(text, "{from:x}->{to:x}:{count}");
        }
        text
    }
}

/// The sum of all counts, and their number.
pub(super) fn sum<K>(counts: &BTreeMap<K, u64>) -> (u64, usize) {
    (counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count)), counts.len())
}

/// Prints BOLT's pre-aggregated text (`DataAggregator::parseAggregatedLBREntry`), with addresses
/// relative to the program's symbol table and 0 for outside: `B FROM TO COUNT MISPREDICTED`, and `F START END COUNT` for fall-through ranges. `f`
/// marks ranges entered by a return or from outside, for which BOLT does not require that the start
/// be a branch target (`DataAggregator::getFallthroughsInTrace`).
pub(super) fn bolt(program: &mut Program) -> String {
    let Program { binary, steps, losses, .. } = program;
    let (mut branches, mut falls) = (BTreeMap::new(), BTreeMap::new());
    for step in steps.iter() {
        let Some([from, to]) = ends(binary, step) else {
            add(&mut losses.outside, step.taken);
            continue;
        };
        if step.taken > 0 {
            let sums: &mut (u64, u64) = branches.entry((from, to)).or_default();
            add(&mut sums.0, step.taken);
            add(&mut sums.1, step.mispredicted);
        }
        let Some(next) = step.next.filter(|_| step.ran > 0) else { continue };
        let end = inside(binary, next);
        if end == 0 || to == 0 {
            add(&mut losses.ranges_outside, step.ran);
            continue;
        }
        let returns = binary.at(from).map_or(step.returns, |insn| insn.returns);
        add(falls.entry((from == 0 || returns, to, end)).or_default(), step.ran);
    }
    losses.branches = (branches.values().fold(0, |sum, (taken, _)| sum + taken), branches.len());
    losses.ranges = sum(&falls);
    let mut text = String::new();
    for ((from, to), (taken, missed)) in branches {
        let _ = writeln!(text, "B {from:x} {to:x} {taken} {missed}");
    }
    for ((entered, start, end), ran) in falls {
        let letter = if entered { 'f' } else { 'F' };
        let _ = writeln!(text, "{letter} {start:x} {end:x} {ran}");
    }
    text
}

/// Prints `T FROM TO END COUNT` for a branch and the fall-through range after it, and `B` for
/// branches without a known range. A trace has no field for mispredictions.
pub(super) fn bolt_traces(program: &mut Program) -> String {
    let Program { binary, steps, losses, .. } = program;
    let mut traces = BTreeMap::new();
    for step in steps.iter() {
        let Some([from, to]) = ends(binary, step) else {
            add(&mut losses.outside, step.taken);
            continue;
        };
        let end = step.next.map(|next| inside(binary, next));
        if step.ran > 0 {
            let sums: &mut (u64, u64) = traces.entry((from, to, end)).or_default();
            add(&mut sums.0, step.ran);
            add(&mut sums.1, step.mispredicted);
        }
    }
    let all = traces.values().fold(0, |sum: u64, (ran, _)| sum.saturating_add(*ran));
    losses.branches = (all, traces.len());
    let mut text = String::new();
    for ((from, to, end), (ran, missed)) in traces {
        let _ = match end {
            None => writeln!(text, "B {from:x} {to:x} {ran} {missed}"),
            Some(end) => writeln!(text, "T {from:x} {to:x} {end:x} {ran}"),
        };
    }
    text
}

/// The ends of a branch with at least one end inside; 0 is outside.
fn ends(binary: &Binary, step: &Step) -> Option<[u64; 2]> {
    let ends = [step.from, step.to].map(|end| inside(binary, end));
    (ends != [0, 0]).then_some(ends)
}

/// An address in a section of code; 0 for others.
fn inside(binary: &Binary, addr: Option<u64>) -> u64 {
    addr.filter(|addr| binary.is_in_section(*addr)).unwrap_or(0)
}
