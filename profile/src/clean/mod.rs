//! What of a stack is no branch that ran: entries that hardware and readers
//! are known to add.

pub(crate) mod collect;
pub(crate) mod index;
pub mod interval;
pub mod quality;
pub(crate) mod table;
pub(crate) mod walk;

use crate::read::names;
use crate::read::note::Source;
use crate::read::perf_data::{EventAttr, layout};
use crate::read::stack::{Entries, EntryFlags, RawBranch, SampleHead};

/// Addresses from here up belong to the kernel.
pub(crate) const KERNEL: u64 = 1 << 63;

/// The newest entry twice is taken for a duplicate where the block between
/// its target and itself is longer than this, bytes. AutoFDO's default: hardly
/// any loop of one block is that long.
pub(crate) const DUPLICATE_STRIDE: u64 = 0x1000;

/// The same for a suspicion: what `lint` counts. Loops of one block of more
/// than 80 bytes exist, so it says nothing about a single stack.
pub(crate) const SUSPECT_STRIDE: u64 = 0x50;

/// Longest fall-through that is believed, bytes; as AutoFDO.
pub(crate) const LONGEST_BLOCK: u64 = 1 << 20;

/// Whether the newest entry stands twice at the head of the stack.
///
/// Skylake writes the newest record twice now and then. A loop of one block
/// does the same, so the rule looks at the stride: from the branch back to its
/// target. It holds where FROM − TO, wrapping, is larger than `limit`; a
/// branch forwards wraps and is always one, because nothing can run on from
/// its target to itself. Only for entries that were recorded from one side of
/// the kernel's boundary: an interrupt that returns to the same instruction
/// twice is no duplicate.
#[must_use]
pub(crate) fn newest_twice(entries: &Entries<'_>, limit: u64) -> bool {
    let (Some(newest), Some(second)) = (entries.get(0), entries.get(1)) else { return false };
    let same = newest.from == second.from && newest.to == second.to;
    // With the abort bit in one of them they are an abort, logged twice.
    let same = same && newest.flags.abort() == second.flags.abort();
    // Places without a name are not known to be the same.
    let known = !names::is_unknown(newest.from) && !names::is_unknown(newest.to);
    same && known
        && !newest.is_empty()
        && !crosses(newest.from, newest.to)
        && newest.from.wrapping_sub(newest.to) > limit
}

/// Whether one address is the kernel's and the other is not.
pub(crate) const fn crosses(a: u64, b: u64) -> bool {
    (a >= KERNEL) != (b >= KERNEL)
}

/// Whether any entry is one that may have to be left out for what it says
/// itself: empty, not taken, an abort.
pub(crate) fn any_odd(entries: &Entries<'_>) -> bool {
    let mut empty = false;
    entries.for_each(|branch| empty |= branch.from | branch.to == 0);
    empty || any_marked(entries)
}

/// Whether any entry has a mark for which it may have to be left out: not
/// taken, an abort.
pub(crate) fn any_marked(entries: &Entries<'_>) -> bool {
    let mut marks = 0;
    entries.for_each(|branch| marks |= branch.flags.0);
    marks & (EntryFlags::ABORT | EntryFlags::NOT_TAKEN) != 0
}

/// Transaction aborts that were logged twice: once with the abort bit, once
/// without (Haswell, Linux `lbr_double_abort`). The indexes of those without,
/// which are the ones too many. A neighbour is the same where both addresses
/// are.
#[must_use]
pub(crate) fn second_aborts(entries: &Entries<'_>) -> Vec<usize> {
    let mut found = Vec::new();
    let mut any = false;
    entries.for_each(|branch| any |= branch.flags.abort());
    if !any {
        return found;
    }
    let mut newer: Option<RawBranch> = None;
    let mut index = 0usize;
    entries.for_each(|branch| {
        if let Some(newer) = newer.filter(|newer| newer.flags.abort() != branch.flags.abort())
            && (newer.from, newer.to) == (branch.from, branch.to)
        {
            let second = if branch.flags.abort() { index.saturating_sub(1) } else { index };
            if found.last() != Some(&second) {
                found.push(second);
            }
        }
        newer = Some(branch);
        index += 1;
    });
    found
}

/// Which branches a filter let into a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Every taken branch.
    Everything,
    /// Calls and returns at least, but not everything.
    CallsAndReturns,
    /// The calls that were open at one moment.
    CallStack,
    /// Something else.
    Other,
}

/// Which events of a recording hold every taken branch, so that code ran in a
/// straight line between two neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    straight: Vec<bool>,
    user_only: Vec<bool>,
    filters: Vec<u64>,
}

impl Streams {
    /// Looks at the events once more, if there are more than before.
    pub fn look(&mut self, events: &[EventAttr]) {
        if self.straight.len() != events.len() {
            self.straight = events.iter().map(straight).collect();
            self.user_only = events.iter().map(user_only).collect();
            self.filters = events.iter().map(|event| event.branch_sample_type).collect();
        }
    }

    /// Whether an event has been looked at.
    pub(crate) fn knows(&self, event: usize) -> bool {
        event < self.straight.len()
    }

    /// Whether neighbours in this stack are joined by straight code. Text does
    /// not say its filter: it is taken for one without.
    #[must_use]
    pub fn is_straight(&self, head: &SampleHead) -> bool {
        use lbr_msr::record::Label;
        let filter = self.straight.get(head.event).copied().unwrap_or(true);
        filter && head.integrity.label != Label::Snapshot
    }

    /// Which branches this stack has. Text is taken for everything.
    pub(crate) fn holds(&self, head: &SampleHead) -> Holds {
        use layout::branch::{ANY_CALL, ANY_RETURN, CALL, CALL_STACK, IND_CALL};
        use lbr_msr::record::Label;
        let filter = self.filters.get(head.event).copied().unwrap_or(0);
        let calls = filter & ANY_CALL != 0 || filter & (CALL | IND_CALL) == CALL | IND_CALL;
        if head.integrity.label == Label::Snapshot || filter & CALL_STACK != 0 {
            Holds::CallStack
        } else if self.is_straight(head) {
            Holds::Everything
        } else if calls && filter & ANY_RETURN != 0 {
            Holds::CallsAndReturns
        } else {
            Holds::Other
        }
    }

    /// Whether only branches that end in user mode were asked for; `false` for
    /// text, which does not say.
    #[must_use]
    pub fn is_user_only(&self, head: &SampleHead) -> bool {
        self.user_only.get(head.event).copied().unwrap_or(false)
    }

    /// Whether the newest entry of this stack is a duplicate. A software LBR
    /// has none.
    #[must_use]
    pub fn is_duplicated(&self, head: &SampleHead, entries: &Entries<'_>, limit: u64) -> bool {
        head.source != Source::Software && self.is_straight(head) && newest_twice(entries, limit)
    }
}

fn straight(event: &EventAttr) -> bool {
    use layout::branch::{ANY, CALL_STACK};
    // The first recorders with branch stacks left the filter 0 for "any".
    let filter = event.branch_sample_type;
    filter & CALL_STACK == 0 && (filter & ANY != 0 || filter & TYPES == 0)
}

fn user_only(event: &EventAttr) -> bool {
    use layout::branch::{KERNEL, USER};
    event.branch_sample_type & (USER | KERNEL | HYPERVISOR) == USER
}

/// `PERF_SAMPLE_BRANCH_HV`.
const HYPERVISOR: u64 = 1 << 2;

const TYPES: u64 = {
    use layout::branch::{ANY_CALL, ANY_RETURN, CALL, COND, IND_CALL, IND_JUMP};
    ANY_CALL | ANY_RETURN | CALL | COND | IND_CALL | IND_JUMP
};
