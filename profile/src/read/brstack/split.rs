//! Stacks split into lines of one entry, such as by `perf script -F brstack | tr ' ' '\n'`.

use super::entry::{first_entry, parse_entry};
use crate::stack::RawBranch;

/// The longest fall-through range between two branches of a stack, bytes.
const LONGEST: u64 = 1 << 20;

/// The number of the first line, counted from 1, of a stack that was split, if every
/// stack at the head of a text was.
///
/// A recorder may print stacks of one entry too. Evidence against that: blank lines between
/// groups, or most entries lead to the branch in the line before.
pub(super) fn find(head: &[u8]) -> Option<u64> {
    let (mut gap, mut joined) = (None, None);
    let (mut pairs, mut joins) = (0_usize, 0_usize);
    let mut before: Option<Entry> = None;
    let mut blank = false;
    for (index, line) in head.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            blank = true;
            continue;
        }
        let is_gap = std::mem::take(&mut blank);
        let Some(start) = first_entry(line) else {
            before = None;
            continue;
        };
        let (branch, rest) = parse_entry(line.get(start..)?).ok()?;
        if !rest.trim_ascii().is_empty() {
            return None;
        }
        // Anything before the entry begins a sample.
        if start > 0 {
            before = None;
            continue;
        }
        let last = before.replace(Entry { number: index as u64 + 1, branch });
        let Some(last) = last else { continue };
        pairs += 1;
        if is_gap {
            gap.get_or_insert(last.number);
        }
        if last.follows(&branch) {
            joins += 1;
            joined.get_or_insert(last.number);
        }
    }
    gap.or(joined.filter(|_| 2 * joins > pairs))
}

#[derive(Clone, Copy)]
struct Entry {
    number: u64,
    branch: RawBranch,
}

impl Entry {
    /// Whether a fall-through range can lead from the older branch to this one.
    fn follows(&self, older: &RawBranch) -> bool {
        self.branch.from.checked_sub(older.to).is_some_and(|len| len < LONGEST)
    }
}
