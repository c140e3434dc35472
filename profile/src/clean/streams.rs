//! Properties of stacks that follow from the filters of their events.

use lbr_msr::record::Label;

use crate::read::perf_data::EventAttr;
use crate::read::perf_data::layout::branch;
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

/// Which branches each event of a recording records. Text does not contain its filter, and is
/// assumed to be unfiltered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Streams {
    /// By event, `branch_sample_type`.
    filters: Vec<u64>,
}

impl Streams {
    /// Examines the events again if there are new ones.
    #[inline]
    pub(super) fn look(&mut self, events: &[EventAttr]) {
        if self.filters.len() != events.len() {
            self.filters = events.iter().map(|event| event.branch_sample_type).collect();
        }
    }

    fn filter(&self, head: &SampleHead) -> u64 {
        self.filters.get(head.event).copied().unwrap_or(0)
    }

    /// The branches that this stack records.
    pub(super) fn holds(&self, head: &SampleHead) -> RecordedBranches {
        use branch::{ANY, ANY_CALL, ANY_RETURN, CALL, CALL_STACK, COND, IND_CALL, IND_JUMP};
        const TYPES: u64 = ANY_CALL | ANY_RETURN | CALL | COND | IND_CALL | IND_JUMP;
        let filter = self.filter(head);
        let calls = filter & ANY_CALL != 0 || filter & (CALL | IND_CALL) == CALL | IND_CALL;
        if head.integrity.label == Label::Snapshot || filter & CALL_STACK != 0 {
            RecordedBranches::CallStack
        // The first recorders with branch stacks set no filter bits for "any".
        } else if filter & ANY != 0 || filter & TYPES == 0 {
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
        /// `PERF_SAMPLE_BRANCH_HV`.
        const HYPERVISOR: u64 = 1 << 2;
        self.filter(head) & (branch::USER | branch::KERNEL | HYPERVISOR) == branch::USER
    }
}
