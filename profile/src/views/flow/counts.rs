//! Counts branches and the fall-through ranges between them.

use std::collections::{BTreeMap, HashMap};

use lbr_msr::record::BranchType;

use super::blocks::{Decoder, HAS_INSIDES};
use super::edges::Repeated;
use super::transitions::{NONE, TransitionKey, Transitions};
use super::{Flow, Space};
use crate::clean::{Cleaned, CommonResult, View};
use crate::code::maps::Maps;
use crate::code::straight::Decoding;
use crate::read::add;
use crate::read::stack::EntryFlags;
use crate::views::hot::{Counted, add_counted};

/// Counts branch outcomes and the fall-through ranges between branches.
#[derive(Debug, Default)]
pub struct FlowCounts {
    /// Whether counts by stack are not needed: code is then decoded at the end.
    pub(super) no_clusters: bool,
    pub(super) transitions: Transitions,
    pub(super) decoder: Decoder,
    pub(super) repeated: Repeated,
    /// Sums of the counters logged with each transition, by number.
    pub(super) counters: HashMap<u32, Counted>,
    /// Recorded branches that were not taken, by address: how often, and their type.
    pub(super) not_taken: BTreeMap<(Space, u64), (u64, Option<BranchType>)>,
}

impl View for FlowCounts {
    type Table = Flow;

    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps) {
        let asked = &self.decoder.asked;
        let load = |number: u32| asked.get(number as usize).copied().unwrap_or(NONE);
        self.transitions.add(stack.space, stack.weight, stack.transitions, load);
        if stack.counters.is_some() {
            // Transitions are oldest first.
            for (at, (_, number)) in self.transitions.found.iter().rev().enumerate() {
                add_counted(self.counters.entry(*number).or_default(), &stack.counts(at));
            }
        }
        for branch in stack.not_taken {
            let (times, kind) = self.not_taken.entry((stack.space, branch.from)).or_default();
            add(times, stack.weight);
            *kind = kind.or(branch.flags.branch_type());
        }
        if !self.no_clusters {
            self.decoder.catch_up(&self.transitions.list, maps);
            self.add_clusters(stack);
        }
    }

    fn code(&mut self, code: (u64, u32, u32), ended: bool, weight: u64, maps: &mut Maps) {
        let Some(number) = self.transitions.number(TransitionKey::code(code, ended)) else {
            return;
        };
        self.transitions.run(number, (EntryFlags(0), 0), weight);
        if !self.no_clusters {
            self.decoder.catch_up(&self.transitions.list, maps);
        }
    }

    fn finish(self, whole: CommonResult) -> Flow {
        self.flow(whole)
    }
}

impl FlowCounts {
    /// For callers that need only branches: blocks are not kept, which saves more than half of the
    /// memory. Blocks still count towards the branches inside them.
    pub fn without_blocks() -> FlowCounts {
        FlowCounts { transitions: Transitions::without_cycles(), ..FlowCounts::default() }
    }

    /// For callers that need only blocks: the flow will have no sites.
    pub fn without_sites() -> FlowCounts {
        let mut counts = FlowCounts { no_clusters: true, ..FlowCounts::default() };
        counts.decoder.no_sites = true;
        counts
    }

    /// Without blocks, and without confidence intervals: each branch counts as if it were alone in
    /// a stack.
    pub(crate) fn without_clusters() -> FlowCounts {
        FlowCounts { no_clusters: true, ..FlowCounts::without_blocks() }
    }

    /// Sums the difference that stacks with a repeated branch make to the counts by stack.
    fn add_clusters(&mut self, stack: &Cleaned<'_>) {
        let found = &self.transitions.found;
        let Decoder { list, asked, insides, sites, .. } = &mut self.decoder;
        let asked = |number: u32| asked.get(number as usize).copied().unwrap_or(NONE);
        sites.begin();
        let mut again = false;
        for (_, number) in found {
            let asked = asked(*number);
            again |= sites.visit(asked & !HAS_INSIDES);
            if asked & HAS_INSIDES != 0
                && let Some(decoded) = list.get(*number)
            {
                for inside in insides.of(decoded.insides) {
                    again |= sites.visit(inside.site);
                }
            }
        }
        if !again {
            return;
        }
        for (step, (_, number)) in stack.transitions.iter().zip(found) {
            let Some(decoded) = list.get(*number) else { continue };
            for inside in insides.of(decoded.insides) {
                sites.pass(inside.site);
            }
            let is_settled = decoded.kind == Decoding::Runs;
            sites.take(decoded.site, is_settled, step.branch.flags);
            self.repeated.take(decoded.edge, decoded.site);
        }
        self.repeated.settle(stack.weight, sites);
        sites.settle(stack.weight);
    }

    /// The number at which the last stack's newest branch was counted.
    pub(crate) fn newest(&self) -> Option<u32> {
        self.transitions.found.last().map(|(_, number)| *number)
    }

    /// Visits branches with their number, address space, addresses and count, some of them more
    /// than once.
    pub(crate) fn each_branch(&self, mut visit: impl FnMut(u32, Space, u64, u64)) {
        let Transitions { list, many, .. } = &self.transitions;
        for (number, slot) in (0..).zip(list.iter()).filter(|(_, slot)| slot.key.has_branch()) {
            let (from, _, space) = slot.key.branch();
            visit(number, space, from, many.sums(number, slot).count);
        }
    }
}
