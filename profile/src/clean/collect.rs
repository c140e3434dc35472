//! One walk through a recording for everything that counts.

use std::collections::HashMap;

use lbr_msr::record::{Event, Lost};

use crate::read::names::Symbol;
use crate::read::perf_data::{EventAttr, ReadError};
use crate::read::recording::{Item, Recording};
use crate::read::select::LeftOut;
use crate::read::stack::{Counters, Entries, RawBranch, Stack};

/// Items between two reports of progress.
const STEP: u32 = 4096;

/// Takes a recording in, piece by piece.
pub(crate) trait Collect {
    /// The events that are known so far.
    fn events(&mut self, events: &[EventAttr]);
    /// Whether an event is among those.
    fn knows(&self, event: usize) -> bool;
    /// A stack.
    fn stack(&mut self, stack: &Stack<'_>);
    /// Anything else.
    fn event(&mut self, event: &Event);
    /// What was left out of the recording, at its end.
    fn left_out(&mut self, left: &LeftOut);
    /// What numbers stand for that stacks from now on have for addresses.
    fn symbol(&mut self, symbol: &Symbol);
}

/// Reads a recording to its end. `progress` is called now and then with the
/// bytes read and the bytes of the whole, where known.
pub(crate) fn collect(
    recording: &mut Recording,
    into: &mut impl Collect,
    mut progress: impl FnMut(u64, Option<u64>),
) -> Result<(), ReadError> {
    let has_events = recording.is_perf_data();
    let size = recording.size();
    let mut items = 0u32;
    let mut kept: Vec<RawBranch> = Vec::new();
    let mut kept_words: Vec<[u8; 8]> = Vec::new();
    into.events(recording.events());
    loop {
        items = items.wrapping_add(1);
        if items.is_multiple_of(STEP) {
            progress(recording.position(), size);
        }
        let (head, counters) = match recording.next_item()? {
            Some(Item::Stack(stack)) if has_events && !into.knows(stack.head.event) => {
                // A pipe tells its events on the way: the stack has to wait
                // until they are looked at.
                kept.clear();
                stack.entries.for_each(|branch| kept.push(branch));
                kept_words.clear();
                kept_words.extend(stack.counters.iter().flat_map(|counters| counters.words));
                (stack.head, stack.counters.map(|counters| (counters.big, counters.logged)))
            }
            Some(Item::Stack(stack)) => {
                into.stack(&stack);
                continue;
            }
            Some(Item::Event(event)) => {
                into.event(&event);
                continue;
            }
            Some(Item::Symbol(symbol)) => {
                into.symbol(symbol);
                continue;
            }
            Some(Item::LeftOut) => continue,
            None => {
                if recording.selection().is_some() {
                    into.left_out(&recording.left_out());
                }
                return Ok(());
            }
        };
        into.events(recording.events());
        let entries = Entries::Parsed(&kept);
        let words = &kept_words;
        let counters = counters.map(|(big, logged)| Counters { words, big, logged });
        into.stack(&Stack { head, entries, counters });
    }
}

/// Process and thread, where the recording says them.
pub(crate) type Thread = (Option<u32>, Option<u32>);

/// After a loss the next stack of its thread joins to nothing that is known.
pub(crate) fn forget_lost<T>(stood: &mut HashMap<Thread, T>, lost: &Lost) {
    match lost.label {
        Some(_) => stood.retain(|(_, tid), _| *tid != Some(lost.tid)),
        // Other recorders do not say whose stack is missing.
        None => stood.clear(),
    }
}
