//! One walk through recordings for a view.

use lbr_msr::record::Event;

use super::Cleaner;
use super::cleaner::Cleaned;
use super::quality::{BlockQuality, Quality};
use crate::code::maps::Maps;
use crate::read::perf_data::{EventAttr, ReadError};
use crate::read::recording::{Item, Recording};
use crate::read::registers::Registers;
use crate::read::stack::{Counters, Entries, RawBranch, Stack};

/// Items between two reports of progress.
const STEP: u32 = 4096;

/// What recordings say beside what a view counts: the same for every view.
#[derive(Debug, Default)]
pub struct Whole {
    /// Samples, entries, and what was left out of them.
    pub quality: Quality,
    /// What kept straight code out; what a view found out about it is added by
    /// the view.
    pub gaps: BlockQuality,
    /// Mappings and files, for names.
    pub maps: Maps,
}

impl Whole {
    /// Every taken branch is here, in order: what is counted is the truth.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.quality.is_complete() && self.gaps.filtered == 0
    }
}

/// What looks at the stacks of recordings after they were cleaned.
pub trait View {
    /// What it makes of what it counted.
    type Table;

    /// Whether it asks for [`Cleaned::transitions`], and not for branches alone.
    const ORDERED: bool = true;

    /// Counts a stack.
    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps);

    /// Counts straight code that ran, of which the branches around it are not
    /// known: its entry, its length and its address space, and how often.
    fn straight(&mut self, _code: (u64, u32, u32), _weight: u64, _maps: &mut Maps) {}

    /// Takes anything but a stack in.
    fn event(&mut self, _event: &Event) {}

    /// What follows comes from another recording: its threads are others,
    /// whatever their numbers.
    fn next_recording(&mut self) {}

    /// Everything was counted.
    fn finish(self, whole: Whole) -> Self::Table;
}

/// Reads recordings for a view.
#[derive(Debug, Default)]
pub struct Counter<V> {
    pub(crate) cleaner: Cleaner,
    pub(crate) view: V,
}

impl<V: View + Default> Counter<V> {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> Counter<V> {
        Counter::default()
    }
}

impl<V: View> Counter<V> {
    /// Begins with nothing.
    #[must_use]
    pub fn of(view: V) -> Counter<V> {
        Counter { cleaner: Cleaner::default(), view }
    }

    /// Counts one recording to its end, and nothing else; `progress` as in
    /// [`recording`](Self::recording).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn count(
        mut self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<V::Table, ReadError> {
        self.recording(recording, progress)?;
        Ok(self.finish())
    }

    /// Counts a recording to its end, beside those counted before: their
    /// address spaces stay apart, and a branch of the same file is one.
    /// `progress` is called now and then with the bytes read and the bytes of
    /// the whole, where known.
    ///
    /// # Errors
    /// [`ReadError`]; what was read before it stays counted.
    pub fn recording(
        &mut self,
        recording: &mut Recording,
        progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        self.view.next_recording();
        self.cleaner.begin(recording.info());
        self.read(recording, progress)?;
        if let Some(info) = recording.info() {
            self.cleaner.maps.recorded(info);
        }
        if recording.selection().is_some() {
            self.cleaner.quality.left_out.add(&recording.left_out());
        }
        Ok(())
    }

    fn read(
        &mut self,
        recording: &mut Recording,
        mut progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        let has_events = recording.is_perf_data();
        let size = recording.size();
        let mut items = 0u32;
        let mut kept: Vec<RawBranch> = Vec::new();
        let mut kept_words: Vec<[u8; 8]> = Vec::new();
        let mut kept_registers: Vec<[u8; 8]> = Vec::new();
        self.cleaner.events(recording.events());
        loop {
            items = items.wrapping_add(1);
            if items.is_multiple_of(STEP) {
                progress(recording.position(), size);
            }
            let Some(item) = recording.next_item()? else { return Ok(()) };
            let stack = match item {
                Item::Stack(stack) => stack,
                Item::Straight(straight) => {
                    self.cleaner.straight(&straight, &mut self.view);
                    continue;
                }
                Item::Event(event) => {
                    self.event(&event);
                    continue;
                }
                Item::Symbol(symbol) => {
                    self.cleaner.maps.symbol(symbol);
                    continue;
                }
                Item::LeftOut => continue,
            };
            if !has_events || self.cleaner.knows(stack.head.event) {
                self.stack(&stack);
                continue;
            }
            // A pipe tells its events on the way: the stack has to wait until
            // they are looked at.
            kept.clear();
            stack.entries.for_each(|branch| kept.push(branch));
            kept_words.clear();
            kept_words.extend(stack.counters.iter().flat_map(|counters| counters.words));
            kept_registers.clear();
            kept_registers.extend(stack.registers.iter().flat_map(|registers| registers.words));
            let registers = stack.registers.map(|registers| (registers.mask, registers.big));
            let (head, counters) = (stack.head, stack.counters.map(|c| (c.big, c.logged)));
            self.cleaner.events(recording.events());
            let entries = Entries::Parsed(&kept);
            let words = &kept_words;
            let counters = counters.map(|(big, logged)| Counters { words, big, logged });
            let words = &kept_registers;
            let registers = registers.map(|(mask, big)| Registers { words, mask, big });
            self.stack(&Stack { head, entries, counters, registers });
        }
    }

    /// Learns which events there are: their filters say what lies between two
    /// branches.
    pub fn events(&mut self, events: &[EventAttr]) {
        self.cleaner.events(events);
    }

    /// Takes a stack in.
    pub fn stack(&mut self, stack: &Stack<'_>) {
        self.cleaner.stack(stack, &mut self.view);
    }

    /// Takes anything else in.
    pub fn event(&mut self, event: &Event) {
        self.view.event(event);
        self.cleaner.event(event);
    }

    /// Mappings and files so far; other places to look for them in count best
    /// before anything is read.
    pub fn maps(&mut self) -> &mut Maps {
        &mut self.cleaner.maps
    }

    /// What was counted.
    #[must_use]
    pub fn finish(self) -> V::Table {
        let Cleaner { mut quality, gaps, maps, .. } = self.cleaner;
        quality.unkept = maps.unkept();
        self.view.finish(Whole { quality, gaps, maps })
    }
}
