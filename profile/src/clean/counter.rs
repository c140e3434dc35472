//! One walk through recordings for a view.

use lbr_msr::record::Event;

use super::Cleaner;
use super::cleaner::Cleaned;
use super::quality::{BlockQuality, Quality};
use super::threads::{self, Run, Waiting};
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
pub trait View: Send {
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

    /// Another one, with nothing counted, for what a thread counts alone; `None`
    /// where that depends on the order of stacks, or on what lies where.
    fn part(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// Looks at a stack that a part will count, in the order of the recording.
    fn before(&mut self, _stack: &Cleaned<'_>, _maps: &Maps) {}

    /// Counts a stack in a part.
    fn count(&mut self, _stack: &Waiting<'_>) {}

    /// How many things it tells apart so far: each has the next number when it
    /// comes.
    fn numbers(&self) -> u32 {
        0
    }

    /// Takes in what parts counted. `runs` are their numbers, in the order in
    /// which the recording has the stacks that they came with.
    fn join(&mut self, _parts: Vec<Self>, _runs: &[Run])
    where
        Self: Sized,
    {
    }
}

/// Reads recordings for a view.
#[derive(Debug, Default)]
pub struct Counter<V> {
    pub(crate) cleaner: Cleaner,
    pub(crate) view: V,
    threads: usize,
}

impl<V: View + Default> Counter<V> {
    /// Begins with nothing.
    #[must_use]
    pub fn new() -> Counter<V> {
        Counter::of(V::default())
    }
}

impl<V: View> Counter<V> {
    /// Begins with nothing.
    #[must_use]
    pub fn of(view: V) -> Counter<V> {
        Counter { cleaner: Cleaner::default(), view, threads: 1 }
    }

    /// Counts in so many threads, where the view can be counted in parts: what is
    /// counted is the same.
    #[must_use]
    pub fn in_threads(self, threads: usize) -> Counter<V> {
        Counter { threads, ..self }
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
        let size = recording.size();
        // Text is parsed in threads before.
        let parts = if recording.is_perf_data() && self.threads > 1 { self.threads } else { 0 };
        let parts: Option<Vec<V>> = (0..parts).map(|_| self.view.part()).collect();
        let Counter { cleaner, view, .. } = self;
        let mut input = Input::new(recording, cleaner);
        if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
            return threads::count(input, view, parts, |at| progress(at, size));
        }
        let mut items = 0u32;
        loop {
            items = items.wrapping_add(1);
            if items.is_multiple_of(STEP) {
                progress(input.recording.position(), size);
            }
            if !input.next(view, |view, stack, maps| view.stack(stack, maps))? {
                return Ok(());
            }
        }
    }

    /// Learns which events there are: their filters say what lies between two
    /// branches.
    pub fn events(&mut self, events: &[EventAttr]) {
        self.cleaner.events(events);
    }

    /// Takes a stack in.
    pub fn stack(&mut self, stack: &Stack<'_>) {
        if let Some((cleaned, maps)) = self.cleaner.clean(stack, V::ORDERED) {
            self.view.stack(&cleaned, maps);
        }
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

/// A recording on its way through the cleaner.
pub(super) struct Input<'a> {
    pub(super) recording: &'a mut Recording,
    pub(super) cleaner: &'a mut Cleaner,
    /// A stack that waits: its entries, counters and registers.
    entries: Vec<RawBranch>,
    counters: Vec<[u8; 8]>,
    registers: Vec<[u8; 8]>,
}

impl<'a> Input<'a> {
    fn new(recording: &'a mut Recording, cleaner: &'a mut Cleaner) -> Input<'a> {
        cleaner.events(recording.events());
        let (counters, registers) = (Vec::new(), Vec::new());
        Input { recording, cleaner, entries: Vec::new(), counters, registers }
    }

    /// Takes the next item; `false` at the end. What is left of a stack goes where
    /// `stack` says.
    #[inline]
    pub(super) fn next<V: View>(
        &mut self,
        view: &mut V,
        mut count: impl FnMut(&mut V, &Cleaned<'_>, &mut Maps),
    ) -> Result<bool, ReadError> {
        let has_events = self.recording.is_perf_data();
        let Some(item) = self.recording.next_item()? else { return Ok(false) };
        let stack = match item {
            Item::Stack(stack) => stack,
            Item::Straight(straight) => {
                self.cleaner.straight(&straight, view);
                return Ok(true);
            }
            Item::Event(event) => {
                view.event(&event);
                self.cleaner.event(&event);
                return Ok(true);
            }
            Item::Symbol(symbol) => {
                self.cleaner.maps.symbol(symbol);
                return Ok(true);
            }
            Item::LeftOut => return Ok(true),
        };
        if !has_events || self.cleaner.knows(stack.head.event) {
            if let Some((cleaned, maps)) = self.cleaner.clean(&stack, V::ORDERED) {
                count(view, &cleaned, maps);
            }
            return Ok(true);
        }
        // A pipe tells its events on the way: the stack has to wait until they
        // are looked at.
        self.entries.clear();
        stack.entries.for_each(|branch| self.entries.push(branch));
        self.counters.clear();
        self.counters.extend(stack.counters.iter().flat_map(|counters| counters.words));
        self.registers.clear();
        self.registers.extend(stack.registers.iter().flat_map(|registers| registers.words));
        let registers = stack.registers.map(|registers| (registers.mask, registers.big));
        let (head, counters) = (stack.head, stack.counters.map(|c| (c.big, c.logged)));
        self.cleaner.events(self.recording.events());
        let entries = Entries::Parsed(&self.entries);
        let words = &self.counters;
        let counters = counters.map(|(big, logged)| Counters { words, big, logged });
        let words = &self.registers;
        let registers = registers.map(|(mask, big)| Registers { words, mask, big });
        let stack = Stack { head, entries, counters, registers };
        if let Some((cleaned, maps)) = self.cleaner.clean(&stack, V::ORDERED) {
            count(view, &cleaned, maps);
        }
        Ok(true)
    }
}
