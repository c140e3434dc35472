//! Entries that are not executed branches, but known artefacts of hardware or recorders.

use super::quality::Quality;
use crate::read::add;
use crate::read::crosses;
use crate::read::names;
use crate::read::stack::{Entries, EntryFlags, RawBranch};

/// A duplicated newest entry is an artefact if the block from its target to itself is longer than
/// this, bytes. AutoFDO's default: hardly any loop of one block is that long.
pub(super) const DUPLICATE_STRIDE: u64 = 0x1000;

/// The stride of a branch that appears twice in a row: from the branch back to its target, bytes.
/// `None` if the two differ.
///
/// Skylake sometimes writes the newest record twice. A loop of one block looks the same, so the
/// stride distinguishes them: FROM − TO, wrapping. A forward branch wraps to a huge stride, because
/// execution cannot run from its target to itself. Only for entries that do not cross the kernel's
/// boundary: an interrupt that returns to the same instruction twice is not a duplicate.
pub(super) fn repeated(newer: RawBranch, older: RawBranch) -> Option<u64> {
    let same = newer.from == older.from && newer.to == older.to;
    // If one of them has the abort bit, they are an abort logged twice.
    let same = same && newer.flags.abort() == older.flags.abort();
    // Unknown locations may differ.
    let known = !names::is_unknown(newer.from) && !names::is_unknown(newer.to);
    let is_one = same && known && !crosses(newer.from, newer.to);
    is_one.then(|| newer.from.wrapping_sub(newer.to))
}

/// Whether any entry may not be a taken branch: empty, not taken, or an abort.
#[inline]
pub(super) fn any_odd(entries: &Entries<'_>) -> bool {
    let (mut empty, mut marks) = (false, 0);
    entries.for_each(|branch| {
        empty |= branch.from | branch.to == 0;
        marks |= branch.flags.0;
    });
    empty || marks & (EntryFlags::ABORT | EntryFlags::NOT_TAKEN) != 0
}

/// A stack without its artefacts.
#[derive(Debug, Default)]
pub(super) struct CleanStack {
    /// The branches, newest first.
    pub(super) branches: Vec<RawBranch>,
    /// The stack index of each.
    pub(super) at: Vec<usize>,
    /// Whether unknown code ran between each of them and the previous one, because of an empty
    /// entry.
    pub(super) gaps: Vec<bool>,
    /// The same for the code after the newest.
    pub(super) newest_gap: bool,
    /// Branches that were recorded although they were not taken, newest first.
    pub(super) not_taken: Vec<RawBranch>,
}

impl CleanStack {
    /// Separates and counts the entries of a stack that are not taken branches.
    pub(super) fn take(
        &mut self,
        entries: &Entries<'_>,
        duplicate: bool,
        quality: &mut Quality,
        weight: u64,
    ) {
        self.branches.clear();
        self.at.clear();
        self.gaps.clear();
        self.newest_gap = false;
        self.not_taken.clear();
        let aborts = second_aborts(entries);
        for (at, branch) in entries.iter().enumerate() {
            let left_out = if duplicate && at == 0 {
                &mut quality.duplicated_newest
            } else if branch.is_empty() {
                *self.gaps.last_mut().unwrap_or(&mut self.newest_gap) = true;
                &mut quality.zero_entries
            } else if branch.flags.not_taken() {
                self.not_taken.push(branch);
                &mut quality.not_taken
            } else if aborts.binary_search(&at).is_ok() {
                &mut quality.double_aborts
            } else {
                self.branches.push(branch);
                self.at.push(at);
                self.gaps.push(false);
                continue;
            };
            add(left_out, weight);
        }
    }
}

/// Transaction aborts that were logged twice: once with the abort bit, once without (Haswell, Linux
/// `lbr_double_abort`). Returns the indices of those without, which are the duplicates. Neighbours
/// are the same if both addresses are.
fn second_aborts(entries: &Entries<'_>) -> Vec<usize> {
    let mut found = Vec::new();
    let mut newer: Option<RawBranch> = None;
    let mut index = 0usize;
    entries.for_each(|branch| {
        if let Some(newer) = newer.filter(|newer| newer.flags.abort() != branch.flags.abort())
            && (newer.from, newer.to) == (branch.from, branch.to)
        {
            // In ascending order; an entry between two with the bit is found twice.
            found.push(if branch.flags.abort() { index.saturating_sub(1) } else { index });
        }
        newer = Some(branch);
        index += 1;
    });
    found
}
