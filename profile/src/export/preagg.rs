//! BOLT's pre-aggregated text (`DataAggregator::parseAggregatedLBREntry`): hexadecimal addresses
//! relative to the program's symbol table, 0 for outside.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::binary::Binary;
use super::program::{Program, Step};
use super::ranges::sum;
use crate::clean::add;

/// Letters of fall-through ranges, in print order.
const FALLS: [char; 2] = ['F', 'f'];

/// Prints `B FROM TO COUNT MISPREDICTED`, and `F START END COUNT` for fall-through ranges. `f`
/// marks ranges entered by a return or from outside, for which BOLT does not require that the start
/// be a branch target (`DataAggregator::getFallthroughsInTrace`).
pub(super) fn text(program: &mut Program) -> String {
    let Program { binary, steps, losses, .. } = program;
    let (mut branches, mut falls) = (BTreeMap::new(), BTreeMap::new());
    for step in steps.iter() {
        let Some([from, to]) = ends(binary, step) else {
            add(&mut losses.outside, step.taken);
            continue;
        };
        if step.taken > 0 {
            count(&mut branches, (from, to), step);
        }
        let Some(next) = step.next.filter(|_| step.ran > 0) else { continue };
        let end = next.filter(|end| binary.is_in_section(*end));
        let (Some(end), true) = (end, to != 0) else {
            add(&mut losses.ranges_outside, step.ran);
            continue;
        };
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
        let [direct, other] = FALLS;
        let letter = if entered { other } else { direct };
        let _ = writeln!(text, "{letter} {start:x} {end:x} {ran}");
    }
    text
}

/// Prints `T FROM TO END COUNT` for a branch and the fall-through range after it, and `B` for
/// branches without a known range. A trace has no field for mispredictions.
pub(super) fn traces(program: &mut Program) -> String {
    let Program { binary, steps, losses, .. } = program;
    let mut traces = BTreeMap::new();
    for step in steps.iter() {
        let Some([from, to]) = ends(binary, step) else {
            add(&mut losses.outside, step.taken);
            continue;
        };
        let inside = |addr: &u64| binary.is_in_section(*addr);
        let end = step.next.map(|next| next.filter(inside).unwrap_or(0));
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
    let inside = |addr: &u64| binary.is_in_section(*addr);
    let ends = [step.from, step.to].map(|end| end.filter(inside).unwrap_or(0));
    (ends != [0, 0]).then_some(ends)
}

fn count(branches: &mut BTreeMap<(u64, u64), (u64, u64)>, ends: (u64, u64), step: &Step) {
    let (taken, missed) = branches.entry(ends).or_default();
    add(taken, step.taken);
    add(missed, step.mispredicted);
}
