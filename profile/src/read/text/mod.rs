//! Brstack text being read, line by line where the lines lie.

mod refused;

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lbr_msr::record::Event;

use crate::brstack::{self, EntryError, Line, LineError, Named};
use crate::names::{self, Names};
use crate::perf_data::ReadError;
use crate::perf_data::error::is_damage;
use crate::read::item::Item;
use crate::select::Interned;
use crate::stack::{Entries, RawBranch, SampleHead, Stack};
pub use refused::Refused;

/// No sensible line is longer: 2,700 entries take 200 KB.
const MAX_LINE: usize = 1 << 20;
/// Bytes asked for at a time.
const CHUNK: usize = 256 * 1024;

/// Text being read.
pub struct TextReader {
    input: Box<dyn Read>,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// Offset in the text of `start`.
    position: u64,
    size: Option<u64>,
    entries: Vec<RawBranch>,
    /// Symbols in place of addresses.
    names: Names,
    number: u64,
    weight: Option<u64>,
    /// A dumped sample and its branches: given out with the next, since text
    /// of the same sample may follow.
    dumped: Option<Box<SampleHead>>,
    /// Names beside the sample of the line at hand.
    named: Named,
    /// Events by name.
    events: Interned,
    /// Names of threads, if somebody wants them.
    comms: Interned,
    /// The name of the thread of the sample given out last.
    comm: usize,
    /// What was gone to, until it is asked for, or its new symbols were given
    /// out.
    at_hand: Option<Found>,
    dumped_entries: Vec<RawBranch>,
    /// A sample that was read behind a dumped one, its branches where those of
    /// the dumped one were.
    next: Option<(Box<SampleHead>, usize)>,
    /// Lines of the dumped stack are expected.
    in_stack: bool,
    /// Stacks with branches: text without one was no recording.
    stacks: u64,
    refused: Option<Refused>,
    /// The first refused line that was meant to hold branches.
    telling: Option<(u64, LineError)>,
    /// The line at hand is longer than any sensible one.
    overlong: bool,
    cut_at: Option<u64>,
    stop: Option<Arc<AtomicBool>>,
    /// Lines from this offset on are left out.
    stop_at: Option<u64>,
    stopped: bool,
}

impl std::fmt::Debug for TextReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextReader").field("line", &self.number).finish_non_exhaustive()
    }
}

/// What [`TextReader::advance`] found.
enum Found {
    /// A sample without a head.
    Bare {
        weight: u64,
    },
    Sample(Box<SampleHead>),
    Event(Event),
}

impl Found {
    /// The item, its branches in `entries`.
    #[inline]
    fn item(self, entries: &[RawBranch]) -> Item<'_> {
        let head = match self {
            Found::Bare { weight } => SampleHead { weight, ..SampleHead::default() },
            Found::Sample(head) => *head,
            Found::Event(event) => return Item::Event(event),
        };
        Item::Stack(Stack { head, entries: Entries::Parsed(entries), counters: None })
    }
}

impl TextReader {
    pub(crate) fn new(input: Box<dyn Read>, size: Option<u64>) -> TextReader {
        TextReader {
            input,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            position: 0,
            size,
            entries: Vec::new(),
            names: Names::default(),
            number: 0,
            weight: None,
            dumped: None,
            named: Named::default(),
            events: Interned::default(),
            comms: Interned::default(),
            comm: 0,
            at_hand: None,
            dumped_entries: Vec::new(),
            next: None,
            in_stack: false,
            stacks: 0,
            refused: None,
            telling: None,
            overlong: false,
            cut_at: None,
            stop: None,
            stop_at: None,
            stopped: false,
        }
    }

    /// Lines that were refused so far.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        self.refused.as_ref()
    }

    /// Ends the text before its end as soon as `flag` is set.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.stop = Some(flag);
    }

    /// Ends the text at this [`position`](Self::position): an earlier reading
    /// was stopped there.
    pub fn stop_at(&mut self, position: u64) {
        self.stop_at = Some(position);
    }

    /// Whether it was ended before its end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Where the text ends before its end: a compressed file that was cut.
    #[must_use]
    pub fn cut_at(&self) -> Option<u64> {
        self.cut_at
    }

    /// Bytes read so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of the whole, where that is known.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether it has symbols in place of addresses, as far as it was read.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Keeps the names of threads.
    pub(crate) fn keep_comms(&mut self) {
        self.named.wants_comm = true;
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
        if self.names.has_new() {
            return (self.names.take().map(Item::Symbol), None);
        }
        let found = self.at_hand.take();
        (found.map(|found| found.item(&self.entries)), self.comms.get(self.comm))
    }

    #[inline]
    pub(crate) fn next_item(&mut self) -> Result<Option<Item<'_>>, ReadError> {
        let found = match self.at_hand.take() {
            Some(found) => Some(found),
            None => self.advance()?,
        };
        if self.names.has_new() {
            self.at_hand = found;
            return Ok(self.names.take().map(Item::Symbol));
        }
        match &found {
            Some(Found::Bare { weight }) => self.events.count(0, *weight),
            Some(Found::Sample(head)) => self.events.count(head.event, head.weight),
            _ => {}
        }
        Ok(found.map(|found| found.item(&self.entries)))
    }

    #[inline(always)]
    fn advance(&mut self) -> Result<Option<Found>, ReadError> {
        if let Some((head, comm)) = self.next.take() {
            self.comm = comm;
            std::mem::swap(&mut self.entries, &mut self.dumped_entries);
            self.stacks += u64::from(!self.entries.is_empty());
            return Ok(Some(Found::Sample(head)));
        }
        loop {
            let ended = self.stop_at.is_some_and(|stop| stop <= self.position);
            self.stopped |= ended;
            let unread = self.buffer.get(self.start..self.end).unwrap_or_default();
            let begun = brstack::begin(unread, &mut self.entries);
            if begun > 0 && self.dumped.is_none() && !ended && self.names.is_empty() {
                // Most lines end here.
                let end = match unread.get(begun..) {
                    Some([b'\n', ..]) => 1,
                    Some([b' ', b'\n', ..]) => 2,
                    _ => 0,
                };
                if end > 0 {
                    self.pass(begun + end);
                    self.stacks += 1;
                    self.comm = 0;
                    return Ok(Some(Found::Bare { weight: self.weight.take().unwrap_or(1) }));
                }
            }
            let len = if ended { 0 } else { self.line(begun)? };
            if len == 0 {
                if let Some(head) = self.take_dumped() {
                    return Ok(Some(Found::Sample(head)));
                }
                if self.stacks > 0 || self.stopped {
                    return Ok(None);
                }
                return Err(match self.telling {
                    Some((number, error)) => ReadError::NoLine { number, error },
                    None => ReadError::NoBranches,
                });
            }
            let unread = self.buffer.get(self.start..self.end).unwrap_or_default();
            if self.overlong {
                self.pass(len);
                self.skip_line()?;
                self.refuse(LineError::TooLong);
                continue;
            }
            let line = {
                let (entries, named) = (&mut self.entries, &mut self.named);
                brstack::parse(unread, len, begun, entries, named, &mut self.names)
            };
            self.pass(len);
            let by_name = self.names.was_asked();
            match line.and_then(|line| self.guard(line, by_name)) {
                Ok(Line::Sample(mut head)) => {
                    head.event = self.events.number(&self.named.event);
                    let comm = self.comms.number(&self.named.comm);
                    if self.dumped.is_some() && self.repeats_dumped(&head) {
                        // The sample that was dumped: its branches count once.
                        let dumped = self.take_dumped().map(|mut dumped| {
                            dumped.event = head.event;
                            dumped
                        });
                        self.comm = comm;
                        return Ok(dumped.map(Found::Sample));
                    }
                    head.weight = self.weight.take().unwrap_or(1);
                    if let Some(dumped) = self.dumped.take() {
                        std::mem::swap(&mut self.entries, &mut self.dumped_entries);
                        self.next = Some((head, comm));
                        self.comm = 0;
                        self.stacks += u64::from(!self.entries.is_empty());
                        return Ok(Some(Found::Sample(dumped)));
                    }
                    self.stacks += u64::from(!self.entries.is_empty());
                    self.comm = comm;
                    return Ok(Some(Found::Sample(head)));
                }
                Ok(Line::Count(count)) => self.weight = Some(count),
                Ok(Line::Mmap(map)) => return Ok(Some(Found::Event(Event::Mmap(map)))),
                Ok(Line::Fork(task)) => return Ok(Some(Found::Event(Event::Fork(task)))),
                Ok(Line::Exit(task)) => return Ok(Some(Found::Event(Event::Exit(task)))),
                Ok(Line::Dumped(head)) => {
                    let before = self.take_dumped();
                    self.dumped = Some(head);
                    self.dumped_entries.clear();
                    self.in_stack = false;
                    if let Some(before) = before {
                        return Ok(Some(Found::Sample(before)));
                    }
                }
                Ok(Line::DumpedStack) => {
                    self.dumped_entries.clear();
                    self.in_stack = self.dumped.is_some();
                }
                Ok(Line::DumpedEntry(branch)) if self.in_stack => {
                    self.dumped_entries.push(branch);
                }
                Ok(Line::DumpedEntry(_)) => self.refuse(LineError::Unknown),
                Ok(Line::Other) => {}
                Err(error) => self.refuse(error),
            }
        }
    }

    /// Beside symbols no address may have the number of one. `by_name` lines were
    /// looked at.
    fn guard(&self, mut line: Line, by_name: bool) -> Result<Line, LineError> {
        // What was dumped is given out behind the line that follows it.
        if self.names.is_empty() && !matches!(line, Line::DumpedEntry(_)) {
            return Ok(line);
        }
        let is_wrong =
            |branch: &RawBranch| names::is_name(branch.from) || names::is_name(branch.to);
        let wrong = match &mut line {
            Line::DumpedEntry(branch) => is_wrong(branch).then_some(0),
            Line::Sample(head) | Line::Dumped(head) => {
                head.ip = head.ip.filter(|ip| !names::is_name(*ip));
                self.entries.iter().position(is_wrong).filter(|_| !by_name)
            }
            _ => None,
        };
        match wrong {
            Some(at) => Err(LineError::Entry { index: at + 1, error: EntryError::Impossible }),
            None => Ok(line),
        }
    }

    /// Whether a line of text is the dumped sample again, as `perf script -D`
    /// prints it: the same branches, or none and the same task.
    fn repeats_dumped(&self, head: &SampleHead) -> bool {
        if self.entries.is_empty() {
            let dumped = self.dumped.as_ref();
            return dumped.is_some_and(|dumped| head.tid.is_none() || head.tid == dumped.tid);
        }
        let place = |branch: &RawBranch| (branch.from, branch.to);
        self.entries.iter().map(place).eq(self.dumped_entries.iter().map(place))
    }

    /// The dumped sample that waits, its branches in the entries.
    fn take_dumped(&mut self) -> Option<Box<SampleHead>> {
        let head = self.dumped.take()?;
        self.comm = 0;
        self.entries.clear();
        self.entries.append(&mut self.dumped_entries);
        self.stacks += u64::from(!self.entries.is_empty());
        Some(head)
    }

    /// A line was read.
    fn pass(&mut self, len: usize) {
        self.number += 1;
        self.start += len;
        self.position += len as u64;
    }

    /// Passes over the rest of a line that is too long to be one.
    fn skip_line(&mut self) -> Result<(), ReadError> {
        self.overlong = false;
        loop {
            let unread = self.buffer.get(self.start..self.end).unwrap_or_default();
            let found = memchr::memchr(b'\n', unread);
            let len = found.map_or(unread.len(), |at| at + 1);
            self.start += len;
            self.position += len as u64;
            if found.is_some() || !self.more()? {
                return Ok(());
            }
        }
    }

    fn refuse(&mut self, error: LineError) {
        let first = self.number;
        if error != LineError::Unknown {
            self.telling.get_or_insert((first, error));
        }
        self.refused.get_or_insert_with(|| Refused::new(first, error)).add(first);
    }

    /// Length of the next line with its end, 0 at the end of the text. Its
    /// first `seen` bytes have no end in them. A line longer than any sensible
    /// one is cut there, and [`overlong`](Self::overlong) then says so.
    fn line(&mut self, mut seen: usize) -> Result<usize, ReadError> {
        loop {
            let unread = self.buffer.get(self.start..self.end).unwrap_or_default();
            let found = memchr::memchr(b'\n', unread.get(seen..).unwrap_or_default());
            if let Some(at) = found {
                return Ok(seen + at + 1);
            }
            seen = unread.len();
            self.overlong = seen >= MAX_LINE;
            if self.overlong || !self.more()? {
                return Ok(seen.min(self.end - self.start));
            }
        }
    }

    /// Reads on; `false` at the end.
    fn more(&mut self) -> Result<bool, ReadError> {
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            self.stopped = true;
            // Half a line says nothing.
            self.end = self.start;
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < self.end + CHUNK / 2 {
            self.buffer.resize(self.end + CHUNK, 0);
        }
        loop {
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            match self.input.read(room) {
                // What is to be read only in part may end within a line.
                Ok(0) if self.stop_at.is_some() => {
                    self.end = self.start;
                    return Ok(false);
                }
                Ok(read) => {
                    self.end += read;
                    return Ok(read > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A compressed file that was cut or damaged: what came before is sound.
                Err(e) if is_damage(&e) => {
                    self.cut_at = Some(self.position + self.end as u64);
                    self.end = self.start;
                    return Ok(false);
                }
                Err(cause) => {
                    let offset = self.position + self.end as u64;
                    return Err(ReadError::Io { offset, cause });
                }
            }
        }
    }
}
