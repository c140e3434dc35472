//! Decoded stacks.

use lbr_msr::record::{BranchEntry, BranchStack, Sample};
use profile::Stack;

/// The sample of a stack. Unknown values become 0, because [`Sample`] cannot express them; entries
/// are kept, except for empty ones.
pub(crate) fn sample_of(stack: &Stack<'_>) -> Sample {
    let head = &stack.head;
    let entries = stack.entries.iter().enumerate().filter(|(_, branch)| !branch.is_empty());
    let decoded = |(index, branch): (usize, profile::RawBranch)| {
        let counters = stack.counters.and_then(|counters| counters.get(index));
        BranchEntry { counters, ..branch.decode(head.tsx_known) }
    };
    Sample {
        arguments: None,
        time: head.time.unwrap_or(0),
        pid: head.pid.unwrap_or(0),
        tid: head.tid.unwrap_or(0),
        cpu: head.cpu.unwrap_or(0),
        ip: head.ip.unwrap_or(0),
        period: head.period.unwrap_or(0),
        stack: BranchStack {
            entries: entries.map(decoded).collect(),
            integrity: head.integrity,
            moves: stack.moves.iter().collect(),
        },
    }
}
