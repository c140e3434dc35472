//! Counting the flow, stack by stack.

use std::collections::HashMap;

use lbr_msr::record::{Event, Head, Label};

use super::tables::{Blocks, EdgeSlot, Edges, Inside, Kind, SiteSlot, Sites};
use super::{BlockQuality, add};
use crate::clean::{self, DUPLICATE_STRIDE, LONGEST_BLOCK, Streams};
use crate::code::{self, Straight};
use crate::collect::{self, Collect, Thread};
use crate::index::{Index, hash};
use crate::maps::Maps;
use crate::perf_data::{EventAttr, ReadError};
use crate::quality::{Entry, Quality};
use crate::recording::Recording;
use crate::stack::{RawBranch, SampleHead, Stack};

pub(super) type Space = u32;

/// As many branches as the deepest ring has: looked up together.
const BATCH: usize = 32;

/// No straight code lies before a branch.
const NO_BLOCK: u32 = u32::MAX;

/// A branch of the stack at hand on its way into the counts.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    branch: RawBranch,
    /// Where the straight code before it begins, and its length or
    /// [`NO_BLOCK`].
    entry: u64,
    len: u32,
    /// The cycles of that code, 0 where they are not known.
    cycles: u32,
    /// Where branch and code will most likely be counted.
    edge_hash: u32,
    edge: u32,
    block_hash: u32,
    block: u32,
}

/// What became of the blocks of the stack at hand.
#[derive(Clone, Copy, Debug, Default)]
struct BlocksNow {
    ran: u64,
    without_code: u64,
    contradicted: u64,
}

/// Follows the flow as stacks come.
#[derive(Debug, Default)]
pub struct FlowCounter {
    pub(super) quality: Quality,
    pub(super) block_quality: BlockQuality,
    pub(super) maps: Maps,
    streams: Streams,
    /// Sites by the address that was recorded.
    site_index: Index,
    site_keys: Vec<(Space, u64, u32)>,
    pub(super) sites: Sites,
    pub(super) edges: Edges,
    pub(super) blocks: Blocks,
    /// Where each thread stood when its last stack ended uncut.
    stood: HashMap<Thread, u64>,
    /// The space of the process seen last.
    last: Option<(Option<u32>, Space)>,
    branches: Vec<RawBranch>,
    steps: Vec<Step>,
}

impl FlowCounter {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> FlowCounter {
        FlowCounter::default()
    }

    /// Follows a recording to its end, beside those before: their address
    /// spaces stay apart, and a branch of the same file is one. `progress` is
    /// as in [`HotTable::count`](crate::HotTable::count).
    ///
    /// # Errors
    /// [`ReadError`]; what was read before it stays counted.
    pub fn recording(
        &mut self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        self.begin(recording);
        collect::collect(recording, self, progress)?;
        self.end(recording);
        Ok(())
    }

    /// What follows comes from another recording.
    pub(crate) fn begin(&mut self, recording: &Recording) {
        if !self.maps.is_empty() {
            self.maps.next_recording();
            self.streams = Streams::default();
            self.stood.clear();
            self.last = None;
        }
        if let Some(info) = recording.info() {
            self.maps.expect(info);
        }
    }

    /// A recording was read to its end.
    pub(crate) fn end(&mut self, recording: &Recording) {
        if let Some(info) = recording.info() {
            self.maps.recorded(info);
        }
    }

    /// Learns which events there are: their filters say whether there are
    /// blocks.
    pub fn events(&mut self, events: &[EventAttr]) {
        self.streams.look(events);
    }

    /// Forgets which blocks ran, for those who ask for branches alone: there
    /// are more blocks than branches. What the blocks said about branches
    /// stays.
    #[must_use]
    pub fn without_blocks(mut self) -> FlowCounter {
        self.blocks = Blocks::default();
        self
    }

    /// Takes anything but a stack in.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Lost(lost) => {
                self.quality.lost(lost);
                collect::forget_lost(&mut self.stood, lost);
            }
            Event::Exit(task) => {
                self.stood.remove(&(Some(task.pid), Some(task.tid)));
            }
            _ => {}
        }
        self.maps.event(event);
        self.last = None;
    }

    /// Takes a stack in.
    ///
    /// Gives the address space of its process, by [`Maps`]; `None` where the
    /// stack stays out of every count.
    pub fn stack(&mut self, stack: &Stack<'_>) -> Option<usize> {
        let head = &stack.head;
        let thread = (head.pid, head.tid);
        let before = if self.stood.is_empty() { None } else { self.stood.remove(&thread) };
        if !self.quality.sample(head, stack.entries.len()) || head.weight == 0 {
            return None;
        }
        let weight = head.weight;
        let space = match self.last {
            Some((pid, space)) if pid == head.pid => space,
            _ => {
                let space = self.maps.space(head.pid) as Space;
                self.last = Some((head.pid, space));
                space
            }
        };
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
        let odd = clean::any_odd(&stack.entries);
        let aborts = if odd { clean::second_aborts(&stack.entries) } else { Vec::new() };
        let mut branches = std::mem::take(&mut self.branches);
        branches.clear();
        stack.entries.for_each(|branch| branches.push(branch));
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        let real = branches.iter().enumerate().skip(usize::from(duplicate));
        // Oldest first.
        for (index, branch) in real.rev() {
            let is = match odd {
                true => self.quality.entry(*branch, index, &aborts, weight),
                false => Entry::Taken,
            };
            match is {
                Entry::Taken => {}
                Entry::Gap => {
                    entry = None;
                    continue;
                }
                Entry::LeftOut => continue,
            }
            let mut step = Step { branch: *branch, len: NO_BLOCK, ..Step::default() };
            if let Some(start) = entry.filter(|_| straight) {
                step.entry = start;
                step.len = self.length(start, branch.from, weight);
                step.cycles = if spanning { 0 } else { branch.flags.cycles().unwrap_or(0) };
            }
            steps.push(step);
            spanning = false;
            entry = Some(branch.to);
        }
        self.branches = branches;
        self.count(space, &mut steps, weight);
        self.steps = steps;
        if let Some(to) = entry.or(before).filter(|_| !head.integrity.cut) {
            self.stood.insert(thread, to);
        }
        Some(space as usize)
    }

    /// The length of the straight code between two neighbours, bytes, or
    /// [`NO_BLOCK`].
    #[inline]
    fn length(&mut self, entry: u64, exit: u64, weight: u64) -> u32 {
        let length = exit.wrapping_sub(entry);
        if length <= LONGEST_BLOCK && !clean::crosses(entry, exit) {
            return length as u32;
        }
        let quality = &mut self.block_quality;
        let why = if clean::crosses(entry, exit) {
            &mut quality.crossing
        } else if exit < entry {
            &mut quality.backwards
        } else {
            &mut quality.too_long
        };
        add(why, weight);
        NO_BLOCK
    }

    /// Counts the steps of a stack.
    fn count(&mut self, space: Space, steps: &mut [Step], weight: u64) {
        let renumbered = self.sites.begin();
        self.edges.begin(renumbered);
        let mut now = BlocksNow::default();
        for steps in steps.chunks_mut(BATCH) {
            self.look_up(space, steps);
            for step in steps {
                let settled = step.len != NO_BLOCK && self.block(space, step, weight, &mut now);
                self.branch(space, step, settled, weight);
            }
        }
        self.edges.settle(weight, &self.sites);
        self.sites.settle(weight);
        let quality = &mut self.block_quality;
        add(&mut quality.blocks, now.ran.saturating_mul(weight));
        add(&mut quality.without_code, now.without_code.saturating_mul(weight));
        add(&mut quality.contradicted, now.contradicted.saturating_mul(weight));
    }

    /// Where steps will most likely be counted. What is there is fetched, all
    /// of it side by side: one after the other, each step would wait for its
    /// own.
    #[inline]
    fn look_up(&self, space: Space, steps: &mut [Step]) {
        let mut places = 0;
        for step in &mut *steps {
            step.edge_hash = Edges::hash(step.branch.from, step.branch.to, space);
            step.block_hash = Blocks::hash(step.entry, step.len, space);
            places ^= self.edges.touch_index(step.edge_hash);
            places ^= self.blocks.touch_index(step.block_hash);
        }
        std::hint::black_box(places);
        for step in &mut *steps {
            step.edge = self.edges.guess(step.edge_hash);
            step.block =
                if step.len == NO_BLOCK { NO_BLOCK } else { self.blocks.guess(step.block_hash) };
        }
        let touch =
            |step: &Step| self.edges.site(step.edge) ^ self.blocks.inside(step.block).len() as u32;
        std::hint::black_box(steps.iter().fold(0, |all, step| all ^ touch(step)));
        let touch = |step: &Step| {
            let first = self.blocks.inside(step.block).first();
            let passed = first.map_or(0, |inside| self.sites.touch(inside.site));
            self.sites.touch(self.edges.site(step.edge)) ^ passed
        };
        std::hint::black_box(steps.iter().fold(0, |all, step| all ^ touch(step)));
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
    #[inline]
    fn branch(&mut self, space: Space, step: &Step, settled: bool, weight: u64) {
        let branch = step.branch;
        let key = (branch.from, branch.to, space);
        let edge = match self.edges.find(step.edge, step.edge_hash, key) {
            Some(edge) => edge,
            None => match self.new_edge(space, branch, step.edge_hash) {
                Some(edge) => edge,
                None => return,
            },
        };
        let branch_type = branch.flags.branch_type();
        let (site, first) = self.edges.take(edge, weight, branch_type.is_some(), &self.sites);
        if first && let Some(slot) = self.sites.slots.get_mut(site as usize) {
            slot.recorded = slot.recorded.or(branch_type);
        }
        self.sites.take(site, settled, branch.flags);
    }

    #[cold]
    fn new_edge(&mut self, space: Space, branch: RawBranch, hash: u32) -> Option<u32> {
        let site = self.site(space, branch.from, Some(branch.to))?;
        self.edges.push(hash, EdgeSlot::new(branch.from, branch.to, space, site))
    }

    /// The site of an address. A record of a fused compare and branch is of
    /// the branch. `None` where there are more than numbers.
    fn site(&mut self, space: Space, from: u64, to: Option<u64>) -> Option<u32> {
        if let Some(site) = self.known_site(space, from) {
            return Some(site);
        }
        let location = self.maps.locate(space as usize, from);
        let to = to.unwrap_or(from);
        let (code, branch) = code::branch_at(&mut self.maps, location, from, to);
        let at = branch.map_or(from, |branch| branch.ip);
        let site = match self.known_site(space, at) {
            Some(site) => site,
            None => {
                let site = u32::try_from(self.sites.slots.len()).ok()?;
                let decoded = branch.map(|branch| branch.branch_type);
                self.sites.push(SiteSlot::new(at, space, code, decoded));
                self.name_site(space, at, site)?;
                site
            }
        };
        if at != from {
            self.name_site(space, from, site)?;
        }
        Some(site)
    }

    fn known_site(&self, space: Space, from: u64) -> Option<u32> {
        let key = |number: u32| self.site_keys.get(number as usize).copied();
        let is = |number: u32| key(number).is_some_and(|(s, addr, _)| (s, addr) == (space, from));
        let found = self.site_index.find(hash(from, 0, u64::from(space)), is)?;
        key(found).map(|(_, _, site)| site)
    }

    fn name_site(&mut self, space: Space, from: u64, site: u32) -> Option<()> {
        let number = u32::try_from(self.site_keys.len()).ok()?;
        self.site_index.insert(hash(from, 0, u64::from(space)), number);
        self.site_keys.push((space, from, site));
        Some(())
    }

    /// Straight code that ran. Whether it is known what happened in it.
    #[inline]
    fn block(&mut self, space: Space, step: &Step, weight: u64, now: &mut BlocksNow) -> bool {
        let found = self.blocks.find(step.block, step.block_hash, (step.entry, step.len, space));
        let Some(block) = found.or_else(|| self.new_block(space, step)) else { return false };
        match self.blocks.run(block, step.cycles, weight) {
            Kind::Runs => {
                now.ran += 1;
                for inside in self.blocks.inside(block) {
                    self.sites.pass(inside.site);
                }
                true
            }
            Kind::NoCode => {
                now.ran += 1;
                now.without_code += 1;
                false
            }
            Kind::Contradicts => {
                now.contradicted += 1;
                false
            }
        }
    }

    #[cold]
    fn new_block(&mut self, space: Space, step: &Step) -> Option<u32> {
        let Step { entry, len, block_hash, .. } = *step;
        let exit = entry.wrapping_add(u64::from(len));
        let mut inside = Vec::new();
        let kind = match code::straight(&mut self.maps, space as usize, entry, exit) {
            Straight::Runs(passed) => {
                for passed in passed {
                    let site = self.site(space, passed.from, None)?;
                    let len = passed.next.wrapping_sub(passed.from) as u32;
                    inside.push(Inside { site, len });
                }
                Kind::Runs
            }
            Straight::NoCode => Kind::NoCode,
            Straight::Contradicts => Kind::Contradicts,
        };
        self.blocks.push(block_hash, (entry, len, space), kind, &inside)
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
