//! Text of `perf script` being read. Its layout is settled by the lines at its
//! head; then each sample is put together from the lines that it takes.

mod ahead;
mod lines;
mod refused;
mod samples;
mod tasks;
mod waiting;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lbr_msr::record::Event;

use crate::read::brstack::{self, Context, LineError};
use crate::read::item::{Item, Straight};
use crate::read::perf_data::{Notes, ReadError};
use crate::read::select::Interned;
use crate::read::stack::{Counters, Entries, RawBranch, SampleHead, Stack};
pub use lines::ENDLESS;
use lines::Lines;
pub use refused::Refused;
use tasks::Tasks;
use waiting::Waiting;

/// Text being read.
pub struct TextReader {
    lines: Lines,
    context: Context,
    /// The lines at the head were looked at.
    settled: bool,
    entries: Vec<RawBranch>,
    /// How many stacks the next sample stands for.
    weight: Option<u64>,
    waiting: Waiting,
    /// Frames of a call chain were read, and no branches since.
    in_chain: bool,
    tasks: Tasks,
    /// Events by name.
    events: Interned,
    /// Names of threads, if somebody wants them.
    comms: Interned,
    /// The name of the thread of the sample given out last.
    comm: usize,
    /// What was gone to, until it is asked for, or its new symbols were given
    /// out.
    at_hand: Option<ItemHead>,
    /// Stacks with branches: text without one was no recording.
    stacks: u64,
    /// What was counted at the branches at hand; empty where nothing was.
    counts: Vec<[u8; 8]>,
    /// Lines with straight code that was counted.
    straights: u64,
    refused: Option<Refused>,
    /// The first refused line that was meant to hold branches.
    telling: Option<(u64, LineError)>,
}

impl std::fmt::Debug for TextReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextReader").field("line", &self.lines.number).finish_non_exhaustive()
    }
}

/// What reading a line led to.
enum Step {
    /// The next has to be read.
    On,
    Found(ItemHead),
    End,
}

/// What [`TextReader::advance`] found.
enum ItemHead {
    /// A sample without a head.
    Bare {
        weight: u64,
    },
    Sample(Box<SampleHead>),
    Straight(Box<Straight>),
    Event(Event),
}

impl ItemHead {
    /// The item, its branches in `entries`.
    #[inline]
    fn item<'a>(self, entries: &'a [RawBranch], counters: Option<Counters<'a>>) -> Item<'a> {
        let head = match self {
            ItemHead::Bare { weight } => SampleHead { weight, ..SampleHead::default() },
            ItemHead::Sample(head) => *head,
            ItemHead::Straight(straight) => return Item::Straight(*straight),
            ItemHead::Event(event) => return Item::Event(event),
        };
        Item::Stack(Stack { head, entries: Entries::Parsed(entries), counters, registers: None })
    }
}

impl TextReader {
    pub(crate) fn new(input: Box<dyn Read + Send>, size: Option<u64>) -> TextReader {
        TextReader {
            lines: Lines::new(input, size),
            context: Context::default(),
            settled: false,
            entries: Vec::new(),
            weight: None,
            waiting: Waiting::default(),
            in_chain: false,
            tasks: Tasks::default(),
            events: Interned::default(),
            comms: Interned::default(),
            comm: 0,
            at_hand: None,
            stacks: 0,
            counts: Vec::new(),
            straights: 0,
            refused: None,
            telling: None,
        }
    }

    /// Parses in so many threads, of which this one takes the lines.
    pub(crate) fn read_ahead(&mut self, threads: usize) {
        self.lines.read_ahead(threads);
    }

    /// Lines that were refused so far.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// Ends the text before its end as soon as `flag` is set.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.lines.stop = Some(flag);
    }

    /// Ends the text at this [`position`](Self::position): an earlier reading
    /// was stopped there.
    pub fn stop_at(&mut self, position: u64) {
        self.lines.stop_at = Some(position);
    }

    /// What was odd so far.
    #[must_use]
    pub fn notes(&self) -> Notes {
        Notes {
            cut_at: self.lines.cut_at,
            stopped: self.lines.stopped,
            processes_unsaid: self.tasks.are_unsaid(),
            offsets_in_files: self.context.files.is_some(),
            straights: self.straights,
            ..Notes::default()
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.lines.position
    }

    /// Bytes of the whole, where that is known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.lines.size
    }

    /// Whether it has symbols in place of addresses, as far as it was read.
    #[must_use]
    pub fn has_names(&self) -> bool {
        self.context.names.has_symbols()
    }

    /// Keeps the names of threads.
    pub(crate) fn keep_comms(&mut self) {
        self.context.wants_comm = true;
    }

    /// Names of the events so far; a sample's event is 1 for the first of
    /// them.
    pub(crate) fn event_names(&self) -> &[String] {
        self.events.names()
    }

    /// Samples that [`next_item`](Self::next_item) gave out, of an event.
    pub(crate) fn samples(&self, event: usize) -> u64 {
        self.events.counted(event)
    }

    /// Goes to the next item, which is then [`at_hand`](Self::at_hand): what
    /// names it may be new.
    pub(crate) fn advance_named(&mut self) -> Result<(), ReadError> {
        if self.at_hand.is_none() {
            self.at_hand = self.advance()?;
        }
        Ok(())
    }

    /// The item that was gone to, and what its thread was called. Once; new
    /// symbols come before it.
    pub(crate) fn at_hand(&mut self) -> (Option<Item<'_>>, Option<&str>) {
        if self.context.names.has_new() {
            return (self.context.names.take().map(Item::Symbol), None);
        }
        let found = self.at_hand.take();
        (found.map(|found| found.item(&self.entries, self.counters())), self.comms.get(self.comm))
    }

    #[inline]
    pub(crate) fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        let found = match self.at_hand.take() {
            Some(found) => Some(found),
            None => self.advance()?,
        };
        if self.context.names.has_new() {
            self.at_hand = found;
            return Ok(self.context.names.take().map(Item::Symbol));
        }
        match &found {
            Some(ItemHead::Bare { weight }) => self.events.count(0, *weight),
            Some(ItemHead::Sample(head)) => self.events.count(head.event, head.weight),
            _ => {}
        }
        Ok(found.map(|found| found.item(&self.entries, self.counters())))
    }

    /// What was counted at the branches at hand.
    #[inline]
    fn counters(&self) -> Option<Counters<'_>> {
        let counters = Counters { words: &self.counts, big: false, logged: self.context.counters };
        (!self.counts.is_empty()).then_some(counters)
    }

    #[inline(always)]
    fn advance(&mut self) -> Result<Option<ItemHead>, ReadError> {
        if !self.settled {
            self.settle()?;
        }
        loop {
            let over = self.lines.is_over();
            let begun = match self.lines.parsed(&mut self.entries) {
                0 => brstack::begin(self.lines.unread(), &mut self.entries),
                begun => begun,
            };
            let unread = self.lines.unread();
            if begun > 0 && !over && self.waiting.is_empty() && self.context.is_plain() {
                // Most lines end here.
                let end = match unread.get(begun..) {
                    Some([b'\n', ..]) => 1,
                    Some([b' ', b'\n', ..]) => 2,
                    _ => 0,
                };
                if end > 0 {
                    self.lines.pass(begun + end);
                    self.stacks += 1;
                    self.comm = 0;
                    return Ok(Some(ItemHead::Bare { weight: self.weight.take().unwrap_or(1) }));
                }
            }
            match self.line(begun, over)? {
                Step::On => {}
                Step::Found(found) => return Ok(Some(found)),
                Step::End => return Ok(None),
            }
        }
    }

    /// Finds out what the lines are, by those at the head of the text.
    #[cold]
    fn settle(&mut self) -> Result<(), ReadError> {
        self.settled = true;
        let head = self.lines.head()?;
        let wrong = |(number, error)| ReadError::Line { number, error };
        self.context.settle(head).map_err(wrong)
    }
}
