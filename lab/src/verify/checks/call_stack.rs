//! Call-stack mode: calls push, returns pop.

use lbr_msr::filter::{BranchFilter, to_register_disarmed};

use super::super::bench::{Bench, Facts, Filled, require};
use super::super::check::{Documented, Finding, Spec, answer, applies_if};
use super::super::{Kernel, RunError};

const NEEDS: &[&str] = &["order", "bits.select"];
const SOURCE: &str = "SDM 17.9; Linux lbr.c";

pub(in crate::verify) const CHECKS: &[Spec] = &[
    Spec {
        id: "call_stack.nested",
        what: "call-stack mode: nested calls push, returns pop",
        run: "5 nested calls and 2 returns run in call-stack mode.",
        why: "`record --call-graph lbr` takes the records for the callers.",
        falsified: "The records are not the 3 outer calls, newest first.",
        needs: NEEDS,
        documented: |facts| stack(facts, "5 calls and 2 returns leave the 3 outer frames"),
        look: |bench| frames(bench, Kernel::Calls { calls: 5, returns: 2 }, 3),
    },
    Spec {
        id: "call_stack.leaf",
        what: "call-stack mode: a leaf's call and return leave no record",
        run: "4 calls of a leaf function run within one call, in call-stack mode.",
        why: "A leaf that is not popped would appear as a caller of code that it never called.",
        falsified: "The records are not the one surrounding call.",
        needs: &["order", "bits.select", "call_stack.nested"],
        documented: |facts| stack(facts, "the frame around them remains"),
        look: |bench| frames(bench, Kernel::Leaves(4), 1),
    },
    Spec {
        id: "call_stack.zero_length",
        what: "call-stack mode: a call to the next instruction pushes nothing",
        run: "A call to the next instruction runs within one call, in call-stack mode.",
        why: "Such a call has no return that would pop it.",
        falsified: "The records are not the one surrounding call.",
        needs: &["order", "bits.select", "call_stack.nested"],
        documented: |facts| stack(facts, "the frame around it remains"),
        look: |bench| frames(bench, Kernel::ZeroLengthCall, 1),
    },
];

fn stack(facts: &Facts, expected: &str) -> Documented {
    applies_if(facts.caps.call_stack(), "no call-stack mode")?;
    answer(expected, SOURCE)
}

/// The user call stack.
fn value(facts: &Facts) -> Option<u64> {
    let stack = BranchFilter::STACK | BranchFilter::USER;
    to_register_disarmed(stack, facts.caps.filter).ok()
}

/// The targets of the frames, newest first, up to the first empty record. The records after it are
/// popped frames.
fn live(facts: &Facts, filled: &Filled) -> Vec<Option<u64>> {
    filled
        .seen
        .iter()
        .map_while(|seen| seen.entry.as_ref())
        .map(|entry| facts.branch_of(filled, entry).and_then(|known| known.to))
        .collect()
}

/// Checks a kernel that leaves its first `left` calls.
fn frames(bench: &mut Bench<'_>, kernel: Kernel, left: usize) -> Result<Finding, RunError> {
    let value = require(value(&bench.facts), "no call-stack mode")?;
    let wanted = |filled: &Filled| -> Vec<Option<u64>> {
        filled.ran.branches.iter().take(left).rev().map(|known| known.to).collect()
    };
    let look = |facts: &Facts, filled: &Filled| (live(facts, filled), wanted(filled));
    let (filled, (found, wanted)) =
        bench.until(kernel, value, look, |(found, wanted)| found == wanted)?;
    if found == wanted {
        return Ok(Finding::same("as expected"));
    }
    let zero = filled.ran.branches.iter().find(|known| known.like.zero_length_call);
    Ok(Finding::differs(if zero.is_some_and(|zero| found.contains(&zero.to)) {
        "it is pushed".to_owned()
    } else if found.len() == left {
        "the frames are not the expected ones".to_owned()
    } else {
        format!("{} frames instead of {left}", found.len())
    }))
}
