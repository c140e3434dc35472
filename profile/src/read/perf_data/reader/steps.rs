//! Moves from record to record without parsing samples.

use lbr_msr::record::Event;

use super::frames::RecordSpan;
use super::{ReadError, Reader};
use crate::read::perf_data::layout::record;
use crate::read::perf_data::sample::StackPosition;
use crate::read::stack::Item;

/// The record that [`Reader::advance`] moved to.
pub(crate) enum Next {
    Sample(Place),
    Event(Event),
}

/// The location of a sample.
pub(crate) struct Place {
    frame: RecordSpan,
    event: usize,
    found: StackPosition,
}

impl Reader {
    /// Moves to the next sample or event, for callers that need the events before they look at the
    /// sample; `None` at the end.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<Option<Next>, ReadError> {
        loop {
            let Some(frame) = self.frame()? else {
                self.require_branches()?;
                return Ok(None);
            };
            if frame.kind == record::SAMPLE {
                if let Some(event) = self.event_of_sample(frame)? {
                    let layout = self.layouts.get(event);
                    match layout.and_then(|layout| layout.find(self.body(frame))) {
                        Some(found) => {
                            self.copied.sample(frame, found.note.map(|_| found.note_at));
                            return Ok(Some(Next::Sample(Place { frame, event, found })));
                        }
                        None => self.malformed(frame),
                    }
                }
                continue;
            }
            let body = frame.body(&self.buffer, self.unpacker.as_deref());
            self.copied.other(frame, body, self.order);
            if let Some(event) = self.other(frame)? {
                return Ok(Some(Next::Event(event)));
            }
        }
    }

    /// The item that [`advance`](Self::advance) moved to.
    #[inline]
    pub(crate) fn item(&self, next: Next) -> Option<Item<'_>> {
        let Place { frame, event, found } = match next {
            Next::Sample(place) => place,
            Next::Event(event) => return Some(Item::Event(event)),
        };
        let mut stack = self.layouts.get(event)?.stack(self.body(frame), event, found);
        stack.head.round = self.round;
        Some(Item::Stack(stack))
    }

    /// The next record other than a sample, without parsing samples.
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, ReadError> {
        while let Some(frame) = self.frame()? {
            if frame.kind != record::SAMPLE
                && let Some(event) = self.other(frame)?
            {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}
