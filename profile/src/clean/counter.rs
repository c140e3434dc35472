//! Reads recordings for a view.

use std::collections::BTreeMap;

use lbr_msr::record::Event;

use super::Cleaner;
use super::cleaner::Cleaned;
use super::quality::{BlockQuality, Quality};
use crate::code::maps::Maps;
use crate::read::perf_data::ReadError;
use crate::read::recording::{Item, Recording};
use crate::read::stack::Stack;

/// Items between two progress reports.
const STEP: u32 = 4096;

/// The part of a view's result that is the same for every view.
#[derive(Debug, Default)]
pub struct CommonResult {
    /// Samples, entries, and what was dropped.
    pub quality: Quality,
    /// Why fall-through ranges are missing; the view adds its own findings.
    pub gaps: BlockQuality,
    /// Mappings and files, for symbols.
    pub maps: Maps,
    /// Number of times that the end of straight-line code is unknown, by its start and address
    /// space.
    pub(crate) open: BTreeMap<(u64, u32), u64>,
}

impl CommonResult {
    /// Whether every taken branch is recorded in order, so that counts are exact.
    pub fn is_complete(&self) -> bool {
        self.quality.is_complete() && self.gaps.filtered == 0
    }
}

/// An analysis that counts cleaned stacks.
pub trait View {
    /// Its result.
    type Table;

    /// Whether it needs [`Cleaned::transitions`], rather than only branches.
    const ORDERED: bool = true;

    /// Counts a stack.
    fn stack(&mut self, stack: &Cleaned<'_>, maps: &mut Maps);

    /// Counts straight-line code without a known branch after it: entry, length and address space.
    /// `ended` if no branch ended it, in a complete recording.
    fn code(&mut self, _code: (u64, u32, u32), _ended: bool, _weight: u64, _maps: &mut Maps) {}

    /// Handles any item except a stack.
    fn event(&mut self, _event: &Event) {}

    /// Starts another recording, whose threads differ from earlier ones with the same numbers.
    fn next_recording(&mut self) {}

    /// Produces the result.
    fn finish(self, whole: CommonResult) -> Self::Table;
}

/// Reads recordings for a view; by default for an empty one.
#[derive(Debug, Default)]
pub struct Counter<V> {
    pub(crate) cleaner: Cleaner,
    pub(crate) view: V,
}

impl<V: View> Counter<V> {
    /// An empty counter for a view.
    pub fn of(view: V) -> Counter<V> {
        Counter { cleaner: Cleaner::default(), view }
    }

    /// Counts one recording; `progress` as in [`recording`](Self::recording).
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

    /// Counts a recording in addition to earlier ones: their address spaces are separate, but
    /// branches of the same file are merged. `progress` is called occasionally with the bytes read
    /// and the total bytes, if known.
    ///
    /// # Errors
    /// [`ReadError`]; everything before the error is counted.
    pub fn recording(
        &mut self,
        recording: &mut Recording,
        mut progress: impl FnMut(u64, Option<u64>),
    ) -> Result<(), ReadError> {
        let Counter { cleaner, view } = self;
        view.next_recording();
        cleaner.begin(recording.info());
        let size = recording.size();
        let mut items = 0u32;
        loop {
            items = items.wrapping_add(1);
            if items.is_multiple_of(STEP) {
                progress(recording.position(), size);
            }
            // A pipe announces its events along the way, each before its first sample.
            let Some(item) = recording.next_with(|events| cleaner.streams.look(events))? else {
                break;
            };
            match item {
                Item::Stack(stack) => count(cleaner, view, &stack),
                Item::Straight(straight) => {
                    if let Some(code) = cleaner.straight(&straight) {
                        view.code(code, false, straight.head.weight, &mut cleaner.maps);
                    }
                }
                Item::Event(event) => {
                    view.event(&event);
                    cleaner.event(&event);
                }
                Item::Symbol(symbol) => cleaner.maps.symbol(symbol),
                Item::LeftOut => {}
            }
        }
        if let Some(info) = recording.info() {
            cleaner.maps.recorded(info);
        }
        if recording.selection().is_some() {
            cleaner.quality.left_out.add(&recording.left_out());
        }
        Ok(())
    }

    /// Counts a stack.
    pub fn stack(&mut self, stack: &Stack<'_>) {
        count(&mut self.cleaner, &mut self.view, stack);
    }

    /// Handles any other item.
    pub fn event(&mut self, event: &Event) {
        self.view.event(event);
        self.cleaner.event(event);
    }

    /// Mappings and files so far. Set other places to search for files before reading.
    pub fn maps(&mut self) -> &mut Maps {
        &mut self.cleaner.maps
    }

    /// The result.
    #[must_use]
    pub fn finish(self) -> V::Table {
        let Counter { mut cleaner, view } = self;
        cleaner.leave_open();
        let Cleaner { mut quality, gaps, maps, open, .. } = cleaner;
        quality.unkept = maps.unkept();
        view.finish(CommonResult { quality, gaps, maps, open })
    }
}

/// Cleans a stack and counts it, unless it is excluded from all counts.
#[inline]
fn count<V: View>(cleaner: &mut Cleaner, view: &mut V, stack: &Stack<'_>) {
    if let Some((cleaned, maps)) = cleaner.clean(stack, V::ORDERED) {
        for code in cleaned.ended {
            view.code(*code, true, cleaned.weight, maps);
        }
        view.stack(&cleaned, maps);
    }
}
