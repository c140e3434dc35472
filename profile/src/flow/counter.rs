//! Counting the flow, stack by stack.

use std::collections::HashMap;

use lbr_msr::record::{BranchType, Event, Head, Label};

use super::{BlockQuality, add};
use crate::clean::{self, DUPLICATE_STRIDE, LONGEST_BLOCK, Streams};
use crate::code::{self, Straight};
use crate::collect::Collect;
use crate::cycles::Cycles;
use crate::interval::Clusters;
use crate::maps::Maps;
use crate::perf_data::EventAttr;
use crate::quality::Quality;
use crate::stack::{RawBranch, SampleHead, Stack};

pub(super) type Space = u32;

#[derive(Clone, Debug, Default)]
pub(super) struct SiteSlot {
    pub(super) from: u64,
    pub(super) space: Space,
    pub(super) recorded: Option<BranchType>,
    pub(super) decoded: Option<BranchType>,
    pub(super) code: bool,
    pub(super) taken: u64,
    pub(super) passed: u64,
    pub(super) known: u64,
    pub(super) missed: u64,
    pub(super) misses: Clusters,
    pub(super) outcomes: Clusters,
    /// Taken by stack: x and its square, for the targets.
    pub(super) taken_by_stack: Clusters,
}

#[derive(Clone, Debug, Default)]
pub(super) struct EdgeSlot {
    pub(super) site: usize,
    pub(super) to: u64,
    pub(super) count: u64,
    pub(super) clusters: Clusters,
}

#[derive(Clone, Debug)]
pub(super) struct BlockSlot {
    pub(super) entry: u64,
    pub(super) exit: u64,
    pub(super) space: Space,
    pub(super) count: u64,
    pub(super) cycles: Cycles,
    pub(super) straight: Straight,
    /// The sites of the conditional branches that are passed.
    pub(super) passed: Vec<usize>,
}

/// What happened in the stack at hand, to be added up by branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    site: usize,
    /// `None`: passed without being taken.
    edge: Option<usize>,
    /// Whether the block before it is known.
    settled: bool,
    missed: Option<bool>,
}

/// Follows the flow as stacks come.
#[derive(Debug, Default)]
pub struct FlowCounter {
    pub(super) quality: Quality,
    pub(super) block_quality: BlockQuality,
    pub(super) maps: Maps,
    streams: Streams,
    site_index: HashMap<(Space, u64), usize>,
    pub(super) sites: Vec<SiteSlot>,
    edge_index: HashMap<(Space, u64, u64), usize>,
    pub(super) edges: Vec<EdgeSlot>,
    block_index: HashMap<(Space, u64, u64), usize>,
    pub(super) blocks: Vec<BlockSlot>,
    /// Where each thread stood when its last stack ended uncut.
    stood: HashMap<(Option<u32>, Option<u32>), u64>,
    steps: Vec<Step>,
}

impl FlowCounter {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> FlowCounter {
        FlowCounter::default()
    }

    /// Learns which events there are: their filters say whether there are
    /// blocks.
    pub fn events(&mut self, events: &[EventAttr]) {
        self.streams.look(events);
    }

    /// Takes anything but a stack in.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Lost(lost) => {
                self.quality.lost(lost);
                // Other recorders do not say whose stack is missing.
                match lost.label {
                    Some(_) => self.stood.retain(|(_, tid), _| *tid != Some(lost.tid)),
                    None => self.stood.clear(),
                }
            }
            Event::Exit(task) => {
                self.stood.remove(&(Some(task.pid), Some(task.tid)));
            }
            _ => {}
        }
        self.maps.event(event);
    }

    /// Takes a stack in.
    ///
    /// Gives the address space of its process, by [`Maps`]; `None` where the
    /// stack stays out of every count.
    pub fn stack(&mut self, stack: &Stack<'_>) -> Option<usize> {
        let head = &stack.head;
        let thread = (head.pid, head.tid);
        let before = self.stood.remove(&thread);
        if !self.quality.sample(head, stack.entries.len()) || head.weight == 0 {
            return None;
        }
        let weight = head.weight;
        let space = self.maps.space(head.pid) as Space;
        let straight = self.streams.is_straight(head);
        if !straight {
            add(&mut self.block_quality.filtered, weight);
        }
        let duplicate = self.streams.is_duplicated(head, &stack.entries, DUPLICATE_STRIDE);
        if duplicate {
            add(&mut self.quality.duplicated_newest, weight);
        }
        let mut entry = before.filter(|_| joins(head));
        let mut spanning = entry.is_some();
        let first = usize::from(duplicate);
        let aborts = clean::second_aborts(&stack.entries);
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        // Oldest first.
        for index in (first..stack.entries.len()).rev() {
            let Some(branch) = stack.entries.get(index) else { continue };
            if branch.is_empty() {
                add(&mut self.quality.zero_entries, weight);
                entry = None;
                continue;
            }
            if branch.flags.not_taken() {
                add(&mut self.quality.not_taken, weight);
                continue;
            }
            if aborts.binary_search(&index).is_ok() {
                add(&mut self.quality.double_aborts, weight);
                continue;
            }
            let start = entry.filter(|_| straight);
            let settled = match start {
                Some(start) => {
                    let cycles = branch.flags.cycles().filter(|_| !spanning);
                    self.block(space, start, branch.from, cycles, weight, &mut steps)
                }
                None => false,
            };
            spanning = false;
            self.branch(space, branch, settled, weight, &mut steps);
            entry = Some(branch.to);
        }
        self.settle(&mut steps, weight);
        self.steps = steps;
        if let Some(to) = entry.or(before).filter(|_| !head.integrity.cut) {
            self.stood.insert(thread, to);
        }
        Some(space as usize)
    }

    /// The filters of the events, as far as they are known.
    #[must_use]
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The mappings so far.
    #[must_use]
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Build ids that the recording has beside the mappings.
    pub fn build_ids(&mut self, ids: &[(String, Vec<u8>)]) {
        self.maps.build_ids(ids);
    }

    /// A taken branch.
    fn branch(
        &mut self,
        space: Space,
        branch: RawBranch,
        settled: bool,
        weight: u64,
        steps: &mut Vec<Step>,
    ) {
        let site = self.site(space, branch.from, Some(branch.to));
        let edges = self.edges.len();
        let edge = *self.edge_index.entry((space, branch.from, branch.to)).or_insert(edges);
        if edge == edges {
            self.edges.push(EdgeSlot { site, to: branch.to, ..EdgeSlot::default() });
        }
        if let Some(slot) = self.edges.get_mut(edge) {
            add(&mut slot.count, weight);
        }
        if let Some(slot) = self.sites.get_mut(site) {
            slot.recorded = slot.recorded.or(branch.flags.branch_type());
        }
        let missed = branch.flags.mispredicted();
        steps.push(Step { site, edge: Some(edge), settled, missed });
    }

    /// The site of an address. A record of a fused compare and branch is of
    /// the branch.
    fn site(&mut self, space: Space, from: u64, to: Option<u64>) -> usize {
        if let Some(&site) = self.site_index.get(&(space, from)) {
            return site;
        }
        let location = self.maps.locate(space as usize, from);
        let to = to.unwrap_or(from);
        let (code, branch) = code::branch_at(&mut self.maps, location, from, to);
        let at = branch.map_or(from, |branch| branch.ip);
        let next = self.sites.len();
        let site = *self.site_index.entry((space, at)).or_insert(next);
        if site == next {
            let decoded = branch.map(|branch| branch.branch_type);
            self.sites.push(SiteSlot { from: at, space, code, decoded, ..SiteSlot::default() });
        }
        self.site_index.insert((space, from), site);
        site
    }

    /// Straight code that ran. Whether it is known what happened in it.
    fn block(
        &mut self,
        space: Space,
        entry: u64,
        exit: u64,
        cycles: Option<u32>,
        weight: u64,
        steps: &mut Vec<Step>,
    ) -> bool {
        if clean::crosses(entry, exit) {
            add(&mut self.block_quality.crossing, weight);
            return false;
        }
        let Some(length) = exit.checked_sub(entry) else {
            add(&mut self.block_quality.backwards, weight);
            return false;
        };
        if length > LONGEST_BLOCK {
            add(&mut self.block_quality.too_long, weight);
            return false;
        }
        let index = match self.block_index.get(&(space, entry, exit)) {
            Some(&index) => index,
            None => self.new_block(space, entry, exit),
        };
        let Some(slot) = self.blocks.get_mut(index) else { return false };
        add(&mut slot.count, weight);
        add(&mut self.block_quality.blocks, weight);
        if let Some(cycles) = cycles {
            slot.cycles.add(cycles, weight);
        }
        match slot.straight {
            Straight::Runs(_) => {
                let passed = slot.passed.iter();
                steps.extend(passed.map(|&site| Step {
                    site,
                    edge: None,
                    settled: true,
                    missed: None,
                }));
                true
            }
            Straight::NoCode => {
                add(&mut self.block_quality.without_code, weight);
                false
            }
            Straight::Contradicts => {
                add(&mut self.block_quality.contradicted, weight);
                false
            }
        }
    }

    fn new_block(&mut self, space: Space, entry: u64, exit: u64) -> usize {
        let straight = code::straight(&mut self.maps, space as usize, entry, exit);
        let passed = match &straight {
            Straight::Runs(passed) => {
                passed.iter().map(|passed| self.site(space, passed.from, None)).collect()
            }
            Straight::NoCode | Straight::Contradicts => Vec::new(),
        };
        let index = self.blocks.len();
        let cycles = Cycles::default();
        self.blocks.push(BlockSlot { entry, exit, space, count: 0, cycles, straight, passed });
        self.block_index.insert((space, entry, exit), index);
        index
    }

    /// Adds the steps of one stack up, branch by branch.
    fn settle(&mut self, steps: &mut [Step], weight: u64) {
        steps.sort_unstable();
        for of_site in steps.chunk_by(|a, b| a.site == b.site) {
            let count = |wanted: &dyn Fn(&Step) -> bool| {
                of_site.iter().filter(|step| wanted(step)).count() as u64
            };
            let taken = count(&|step| step.edge.is_some());
            let passed = count(&|step| step.edge.is_none());
            let known = count(&|step| step.missed.is_some());
            let missed = count(&|step| step.missed == Some(true));
            let settled = count(&|step| step.edge.is_some() && step.settled);
            let Some(slot) = of_site.first().and_then(|step| self.sites.get_mut(step.site)) else {
                continue;
            };
            add(&mut slot.taken, taken.saturating_mul(weight));
            add(&mut slot.passed, passed.saturating_mul(weight));
            add(&mut slot.known, known.saturating_mul(weight));
            add(&mut slot.missed, missed.saturating_mul(weight));
            slot.misses.add(weight, known, missed);
            slot.outcomes.add(weight, settled + passed, settled);
            slot.taken_by_stack.add(weight, taken, 0);
            for of_edge in of_site.chunk_by(|a, b| a.edge == b.edge) {
                let edge = of_edge.first().and_then(|step| step.edge);
                if let Some(slot) = edge.and_then(|edge| self.edges.get_mut(edge)) {
                    slot.clusters.add(weight, taken, of_edge.len() as u64);
                }
            }
        }
    }
}

impl Collect for FlowCounter {
    fn events(&mut self, events: &[EventAttr]) {
        FlowCounter::events(self, events);
    }
    fn knows(&self, event: usize) -> bool {
        self.streams.knows(event)
    }
    fn stack(&mut self, stack: &Stack<'_>) {
        FlowCounter::stack(self, stack);
    }
    fn event(&mut self, event: &Event) {
        FlowCounter::event(self, event);
    }
}

/// Whether the oldest entry of a stack is the next branch after the newest of
/// the stack before.
fn joins(head: &SampleHead) -> bool {
    head.integrity.head == Head::Joined && head.integrity.label == Label::Stream
}
