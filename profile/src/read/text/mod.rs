//! Reads `perf script` output. The first lines determine its layout; then each sample is assembled
//! from its lines.

mod ahead;
mod lines;
mod pending;
mod refused;
mod samples;
mod tasks;

use std::io::Read;

use lbr_msr::record::Event;

use crate::read::brstack::{self, Context, LineError, Starts};
use crate::read::note::Moves;
use crate::read::perf_data::{Notes, ReadError};
use crate::read::select::Interned;
use crate::read::stack::{Counters, Entries, Item, RawBranch, SampleHead, Stack, Straight};
pub use lines::ENDLESS;
use lines::Lines;
use pending::Pending;
pub use refused::Refused;
use tasks::Tasks;

/// A text reader.
#[derive(Default)]
pub(crate) struct TextReader {
    pub(crate) lines: Lines,
    pub(crate) context: Context,
    /// Whether the first lines were examined.
    settled: bool,
    entries: Vec<RawBranch>,
    /// The number of identical stacks that the next sample represents.
    weight: Option<u64>,
    waiting: Pending,
    /// Whether frames of a call chain were read, without branches since.
    in_chain: bool,
    tasks: Tasks,
    /// The events so far, by the number in a sample.
    pub(crate) events: Interned,
    /// Names of threads, if needed.
    comms: Interned,
    /// The thread name of the last returned sample.
    comm: usize,
    /// The current item, until it or its new symbols are taken.
    at_hand: Option<ItemHead>,
    /// Number of stacks with branches: a text without any is not a recording.
    stacks: u64,
    /// The counts logged with the current branches; empty without.
    counts: Vec<[u8; 8]>,
    /// Lines that are empty, comments or data next to samples, and lines of anything but perf.
    others: u64,
    prose: u64,
    /// The anomalies that are counted while reading.
    notes: Notes,
    /// Neighbours in stacks until the first two that join.
    pairs: u64,
    is_joined: bool,
    /// The lines refused so far.
    pub(crate) refused: Option<Refused>,
    /// The first refused line that should hold branches.
    telling: Option<(u64, LineError)>,
}

/// The result of reading a line.
enum Step {
    /// Read the next line.
    On,
    Found(ItemHead),
    End,
}

/// The item that [`TextReader::advance`] found.
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
    /// The item, with its branches in `entries`.
    #[inline]
    fn item<'a>(self, entries: &'a [RawBranch], counters: Option<Counters<'a>>) -> Item<'a> {
        let head = match self {
            ItemHead::Bare { weight } => SampleHead { weight, ..SampleHead::default() },
            ItemHead::Sample(head) => *head,
            ItemHead::Straight(straight) => return Item::Straight(*straight),
            ItemHead::Event(event) => return Item::Event(event),
        };
        let (entries, moves) = (Entries::Parsed(entries), Moves::default());
        Item::Stack(Stack { head, entries, counters, registers: None, moves })
    }
}

impl TextReader {
    pub(crate) fn new(input: Box<dyn Read + Send>, size: Option<u64>) -> TextReader {
        TextReader { lines: Lines::new(input, size), ..TextReader::default() }
    }

    /// The anomalies so far.
    pub(crate) fn notes(&self) -> Notes {
        let starts = self.context.split.map(|split| split.starts);
        Notes {
            cut_at: self.lines.cut_at,
            stopped: self.lines.stopped,
            processes_unsaid: self.tasks.unsaid,
            offsets_in_files: self.context.files.is_some(),
            unjoined: if self.is_joined { 0 } else { self.pairs },
            guessed: matches!(starts, Some(Starts::Every(_) | Starts::Once)),
            ..self.notes.clone()
        }
    }

    /// Moves to the next item, which is then [`at_hand`](Self::at_hand); it may have new symbols.
    #[inline]
    pub(crate) fn advance_named(&mut self) -> Result<(), ReadError> {
        if self.at_hand.is_none() {
            self.at_hand = self.advance()?;
        }
        Ok(())
    }

    /// The current item, and the name of its thread. Can be taken once; new symbols come before it.
    #[inline]
    pub(crate) fn at_hand(&mut self) -> (Option<Item<'_>>, Option<&str>) {
        if self.context.names.has_new() {
            return (self.context.names.take().map(Item::Symbol), None);
        }
        let found = self.at_hand.take();
        self.look();
        (found.map(|found| found.item(&self.entries, self.counters())), self.comms.get(self.comm))
    }

    #[inline]
    pub(crate) fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        self.advance_named()?;
        Ok(self.at_hand().0)
    }

    /// Looks for branches that join, until some do.
    #[inline]
    fn look(&mut self) {
        if !self.is_joined {
            let pairs = || self.entries.windows(2).filter_map(brstack::are_joined);
            self.is_joined = pairs().any(|joined| joined);
            self.pairs += pairs().count() as u64;
        }
    }

    /// The counts logged with the current branches.
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

    /// Determines the layout from the first lines.
    #[cold]
    fn settle(&mut self) -> Result<(), ReadError> {
        self.settled = true;
        let head = self.lines.head()?;
        let wrong = |(number, error)| ReadError::Line { number, error };
        self.context.settle(head).map_err(wrong)
    }
}
