//! Counting the flow, stack by stack.

use std::collections::HashMap;

use lbr_msr::record::{Event, Head, Label};

use super::counts::{Counts, NO_BLOCK, Space, Step};
use super::{BlockQuality, add};
use crate::clean::collect::{self, Collect, Thread};
use crate::clean::quality::{Entry, Quality};
use crate::clean::{self, DUPLICATE_STRIDE, LONGEST_BLOCK, Streams};
use crate::code::maps::Maps;
use crate::read::names::{self, Symbol};
use crate::read::perf_data::{EventAttr, ReadError};
use crate::read::recording::Recording;
use crate::read::select::LeftOut;
use crate::read::stack::{RawBranch, SampleHead, Stack};

/// Follows the flow as stacks come.
#[derive(Debug, Default)]
pub struct FlowCounter {
    pub(super) quality: Quality,
    pub(super) block_quality: BlockQuality,
    pub(super) maps: Maps,
    streams: Streams,
    pub(super) counts: Counts,
    /// Nobody asks for the sites.
    pub(super) no_sites: bool,
    /// Where each thread stood when its last stack ended uncut.
    stood: HashMap<Thread, u64>,
    /// The branches of a stack that is counted at other addresses.
    moved: Vec<RawBranch>,
    /// The branches of the stack at hand.
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

    /// Begins with nothing, for those who ask for branches alone: blocks are
    /// not kept, and take less than half of the memory. What they say about
    /// branches stays.
    #[must_use]
    pub fn without_blocks() -> FlowCounter {
        FlowCounter { counts: Counts::without_blocks(), ..FlowCounter::default() }
    }

    /// Begins with nothing, for those who ask for blocks alone: the flow will
    /// have no sites.
    #[must_use]
    pub fn without_sites() -> FlowCounter {
        FlowCounter { no_sites: true, ..FlowCounter::default() }
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
    }

    /// Takes a stack in.
    ///
    /// Gives the address space that it is counted in, by [`Maps`]; `None`
    /// where the stack stays out of every count.
    pub fn stack(&mut self, stack: &Stack<'_>) -> Option<usize> {
        let head = &stack.head;
        let thread = (head.pid, head.tid);
        let before = if self.stood.is_empty() { None } else { self.stood.remove(&thread) };
        if !self.quality.sample(head, stack.entries.len()) || head.weight == 0 {
            return None;
        }
        let weight = head.weight;
        let mut moved = std::mem::take(&mut self.moved);
        let (space, entries) = self.maps.settle(head, stack.entries, &mut moved);
        let straight = self.streams.is_straight(head);
        if !straight {
            add(&mut self.block_quality.filtered, weight);
        }
        let duplicate = self.streams.is_duplicated(head, &entries, DUPLICATE_STRIDE);
        if duplicate {
            add(&mut self.quality.duplicated_newest, weight);
        }
        let mut entry = before.filter(|_| joins(head));
        let mut spanning = entry.is_some();
        let odd = clean::any_odd(&entries);
        let aborts = if odd { clean::second_aborts(&entries) } else { Vec::new() };
        let mut branches = std::mem::take(&mut self.branches);
        branches.clear();
        entries.for_each(|branch| branches.push(branch));
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
            let mut step = Step::of(*branch);
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
        // What was moved says nothing of where the thread stands.
        let goes_on = !head.integrity.cut && moved.is_empty();
        self.moved = moved;
        self.counts.stack(
            space as Space,
            &mut steps,
            weight,
            &mut self.maps,
            &mut self.block_quality,
        );
        self.steps = steps;
        if let Some(to) = entry.filter(|_| goes_on) {
            self.stood.insert(thread, to);
        }
        Some(space)
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
        let why = if self.maps.has_names() && (names::is_name(entry) || names::is_name(exit)) {
            &mut quality.apart
        } else if clean::crosses(entry, exit) {
            &mut quality.crossing
        } else if exit < entry {
            &mut quality.backwards
        } else {
            &mut quality.too_long
        };
        add(why, weight);
        NO_BLOCK
    }

    /// The branches of the last stack that counted, newest first, at the
    /// addresses that they are counted at.
    pub(crate) fn branches(&self) -> &[RawBranch] {
        &self.branches
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
    fn left_out(&mut self, left: &LeftOut) {
        self.quality.left_out.add(left);
    }
    fn symbol(&mut self, symbol: &Symbol) {
        self.maps.symbol(symbol);
    }
}

/// Whether the oldest entry of a stack is the next branch after the newest of
/// the stack before.
fn joins(head: &SampleHead) -> bool {
    head.integrity.head == Head::Joined && head.integrity.label == Label::Stream
}
