//! Properties of stacks that follow from the filters of their events.

use crate::read::perf_data::{EventAttr, layout};
use crate::read::stack::SampleHead;

/// The branches that a filter records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedBranches {
    /// Every taken branch.
    Everything,
    /// At least calls and returns, but not everything.
    CallsAndReturns,
    /// The active calls at one moment.
    CallStack,
    /// Something else.
    Other,
}

/// The events that record every taken branch, so that code ran straight between two neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Streams {
    straight: Vec<bool>,
    user_only: Vec<bool>,
    filters: Vec<u64>,
}

impl Streams {
    /// Examines the events again if there are new ones.
    pub(super) fn look(&mut self, events: &[EventAttr]) {
        if self.straight.len() != events.len() {
            self.straight = events.iter().map(straight).collect();
            self.user_only = events.iter().map(user_only).collect();
            self.filters = events.iter().map(|event| event.branch_sample_type).collect();
        }
    }

    /// Whether an event was examined.
    pub(super) fn knows(&self, event: usize) -> bool {
        event < self.straight.len()
    }

    /// Whether code ran straight between neighbours of this stack. Text does not contain its
    /// filter: it is assumed to be unfiltered.
    pub(super) fn is_straight(&self, head: &SampleHead) -> bool {
        use lbr_msr::record::Label;
        let filter = self.straight.get(head.event).copied().unwrap_or(true);
        filter && head.integrity.label != Label::Snapshot
    }

    /// The branches that this stack records. Text is assumed to be unfiltered.
    pub(super) fn holds(&self, head: &SampleHead) -> RecordedBranches {
        use layout::branch::{ANY_CALL, ANY_RETURN, CALL, CALL_STACK, IND_CALL};
        use lbr_msr::record::Label;
        let filter = self.filters.get(head.event).copied().unwrap_or(0);
        let calls = filter & ANY_CALL != 0 || filter & (CALL | IND_CALL) == CALL | IND_CALL;
        if head.integrity.label == Label::Snapshot || filter & CALL_STACK != 0 {
            RecordedBranches::CallStack
        } else if self.is_straight(head) {
            RecordedBranches::Everything
        } else if calls && filter & ANY_RETURN != 0 {
            RecordedBranches::CallsAndReturns
        } else {
            RecordedBranches::Other
        }
    }

    /// Whether only branches that end in user mode were recorded; `false` for text, where this is
    /// unknown.
    pub(super) fn is_user_only(&self, head: &SampleHead) -> bool {
        self.user_only.get(head.event).copied().unwrap_or(false)
    }
}

fn straight(event: &EventAttr) -> bool {
    use layout::branch::{ANY, CALL_STACK};
    // The first recorders with branch stacks set no filter bits for "any".
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
