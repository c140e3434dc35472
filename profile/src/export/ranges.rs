//! llvm-profgen's counters: fall-through ranges and branches. Its dump of them,
//! `--skip-symbolization`, is the kind `llvm-raw`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::program::Program;
use crate::clean::add;

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
        losses.ranges = sum(&counts.ranges);
        losses.branches = sum(&counts.branches);
        counts
    }

    /// Prints as `PerfScriptReader::writeUnsymbolizedProfile` does: offsets are relative to the
    /// page of the first executable segment.
    pub(super) fn text(&self, base: u64) -> String {
        let mut text = format!("{}\n", self.ranges.len());
        for ((start, end), count) in &self.ranges {
            let (start, end) = (start.wrapping_sub(base), end.wrapping_sub(base));
            let _ = writeln!(text, "{start:x}-{end:x}:{count}");
        }
        let _ = writeln!(text, "{}", self.branches.len());
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
