//! Text of `perf script` being read. Its layout is settled by the lines at its
//! head; then each sample is put together from the lines that it takes.

mod lines;
mod refused;
mod tasks;

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use lbr_msr::record::Event;

use crate::read::brstack::{self, Behind, Context, EntryError, Line, LineError};
use crate::read::item::{Item, Straight};
use crate::read::names;
use crate::read::perf_data::{Notes, ReadError};
use crate::read::select::Interned;
use crate::read::stack::{Entries, RawBranch, SampleHead, Stack};
use lines::{Lines, Next};
pub use refused::Refused;
use tasks::Tasks;

/// Text being read.
pub struct TextReader {
    lines: Lines,
    context: Context,
    /// The lines at the head were looked at.
    settled: bool,
    entries: Vec<RawBranch>,
    /// How many stacks the next sample stands for.
    weight: Option<u64>,
    /// A sample whose branches may follow.
    open: Option<Open>,
    /// Frames of a call chain were read, and no branches since.
    in_chain: bool,
    dump: Dump,
    /// What the last line says behind the branch that it counts.
    behind: Option<Behind>,
    tasks: Tasks,
    /// Events by name.
    events: Interned,
    /// Names of threads, if somebody wants them.
    comms: Interned,
    /// The name of the thread of the sample given out last.
    comm: usize,
    /// What was gone to, until it is asked for, or its new symbols were given
    /// out.
    at_hand: Option<Found>,
    /// Stacks with branches: text without one was no recording.
    stacks: u64,
    /// Lines with straight code that was counted.
    straights: u64,
    refused: Option<Refused>,
    /// The first refused line that was meant to hold branches.
    telling: Option<(u64, LineError)>,
}

/// A sample whose branches may follow on other lines.
#[derive(Debug)]
struct Open {
    head: Box<SampleHead>,
    comm: usize,
}

/// A dumped sample (`-D`): given out with the next, since text of the same
/// sample may follow.
#[derive(Debug, Default)]
struct Dump {
    head: Option<Box<SampleHead>>,
    entries: Vec<RawBranch>,
    /// Lines of its stack are expected.
    in_stack: bool,
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
    Found(Found),
    End,
}

/// What [`TextReader::advance`] found.
enum Found {
    /// A sample without a head.
    Bare {
        weight: u64,
    },
    Sample(Box<SampleHead>),
    Straight(Box<Straight>),
    Event(Event),
}

impl Found {
    /// The item, its branches in `entries`.
    #[inline]
    fn item(self, entries: &[RawBranch]) -> Item<'_> {
        let head = match self {
            Found::Bare { weight } => SampleHead { weight, ..SampleHead::default() },
            Found::Sample(head) => *head,
            Found::Straight(straight) => return Item::Straight(*straight),
            Found::Event(event) => return Item::Event(event),
        };
        Item::Stack(Stack { head, entries: Entries::Parsed(entries), counters: None })
    }
}

impl TextReader {
    pub(crate) fn new(input: Box<dyn Read>, size: Option<u64>) -> TextReader {
        TextReader {
            lines: Lines::new(input, size),
            context: Context::default(),
            settled: false,
            entries: Vec::new(),
            weight: None,
            open: None,
            in_chain: false,
            dump: Dump::default(),
            behind: None,
            tasks: Tasks::default(),
            events: Interned::default(),
            comms: Interned::default(),
            comm: 0,
            at_hand: None,
            stacks: 0,
            straights: 0,
            refused: None,
            telling: None,
        }
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
        (found.map(|found| found.item(&self.entries)), self.comms.get(self.comm))
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
            Some(Found::Bare { weight }) => self.events.count(0, *weight),
            Some(Found::Sample(head)) => self.events.count(head.event, head.weight),
            _ => {}
        }
        Ok(found.map(|found| found.item(&self.entries)))
    }

    #[inline(always)]
    fn advance(&mut self) -> Result<Option<Found>, ReadError> {
        if !self.settled {
            self.settle()?;
        }
        loop {
            let over = self.lines.is_over();
            let unread = self.lines.unread();
            let begun = brstack::begin(unread, &mut self.entries);
            if begun > 0 && !over && !self.waits() && self.context.names.is_empty() {
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
                    return Ok(Some(Found::Bare { weight: self.weight.take().unwrap_or(1) }));
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

    /// Whether something that was read is not given out yet.
    #[inline]
    fn waits(&self) -> bool {
        self.open.is_some() || self.dump.head.is_some() || self.behind.is_some()
    }

    /// Reads a line whose first `begun` bytes are the entries in the buffer.
    fn line(&mut self, begun: usize, over: bool) -> Result<Step, ReadError> {
        match self.behind.take() {
            Some(Behind::Branch(branch, count)) => {
                self.entries.clear();
                self.entries.push(branch);
                return Ok(Step::Found(Found::Sample(Box::new(self.counted(count)))));
            }
            Some(Behind::Straight(ends, count)) => return Ok(self.straight(ends, count)),
            None => {}
        }
        let next = if over { Next::End } else { self.lines.next(begun)? };
        let len = match next {
            Next::Line(len) => len,
            Next::TooLong => {
                self.refuse(LineError::TooLong);
                return Ok(Step::On);
            }
            Next::End => return self.end(),
        };
        let text = self.lines.unread();
        let line = brstack::parse(text, len, begun, &mut self.entries, &mut self.context);
        let may_be_source = matches!(text, [b' ', b' ', third, ..] if *third != b' ');
        let by_name = self.context.names.was_asked();
        let line = match line.and_then(|line| self.guard(line, by_name)) {
            // Beside the frames of a sample stand the lines of its source.
            Err(LineError::Unknown) if may_be_source && (self.in_chain || self.open.is_some()) => {
                Ok(Line::Other)
            }
            line => line,
        };
        // What was not given out yet comes before anything but its own branches.
        let goes_on = match &line {
            Ok(Line::Sample(head)) => self.goes_on(head),
            Ok(
                Line::Dumped(_)
                | Line::Mmap(_)
                | Line::Fork(_)
                | Line::Exit(_)
                | Line::Count(_)
                | Line::Counted { .. }
                | Line::Straight(..),
            ) => false,
            _ => true,
        };
        if !goes_on && let Some(found) = self.take_waiting() {
            return Ok(Step::Found(found));
        }
        self.lines.pass(len);
        let event = match line {
            Ok(Line::Sample(head)) => return Ok(self.sample(head)),
            Ok(Line::Counted { count, behind }) => {
                self.behind = behind;
                self.stacks += 1;
                return Ok(Step::Found(Found::Sample(Box::new(self.counted(count)))));
            }
            Ok(Line::Straight(ends, count)) => return Ok(self.straight(ends, count)),
            Ok(Line::Mmap(map)) => {
                self.tasks.tell(map.pid, map.tid);
                Event::Mmap(map)
            }
            Ok(Line::Fork(task)) => {
                self.tasks.tell(task.pid, task.tid);
                self.tasks.tell(task.ppid, task.ptid);
                Event::Fork(task)
            }
            Ok(Line::Exit(task)) => Event::Exit(task),
            Ok(other) => return self.beside(other),
            Err(LineError::Entry { error: EntryError::AddressOrOffset, .. }) => {
                return Err(ReadError::Line {
                    number: self.lines.number,
                    error: LineError::Offsets,
                });
            }
            Err(error) => {
                self.refuse(error);
                return Ok(Step::On);
            }
        };
        Ok(Step::Found(Found::Event(event)))
    }

    /// What was counted so often.
    fn counted(&mut self, weight: u64) -> SampleHead {
        SampleHead { weight, event: self.event(), ..SampleHead::default() }
    }

    fn straight(&mut self, (entry, exit): (u64, u64), count: u64) -> Step {
        self.straights += 1;
        let head = self.counted(count);
        Step::Found(Found::Straight(Box::new(Straight { head, entry, exit })))
    }

    /// Takes in a line that is neither a sample nor an event.
    fn beside(&mut self, line: Line) -> Result<Step, ReadError> {
        match line {
            Line::Count(count) => self.weight = Some(count),
            Line::Thread { pid, tid } => self.tasks.tell(pid, tid),
            Line::Frame => self.in_chain = true,
            Line::Dumped(head) => {
                self.dump = Dump { head: Some(head), ..Dump::default() };
            }
            Line::DumpedStack => {
                self.dump.entries.clear();
                self.dump.in_stack = self.dump.head.is_some();
            }
            Line::DumpedEntry(branch) if self.dump.in_stack => self.dump.entries.push(branch),
            Line::DumpedEntry(_) => self.refuse(LineError::Unknown),
            // Of a sample whose branches do not stand beside them.
            Line::Instruction if self.open.is_some() || self.stacks == 0 => {
                let number = self.lines.number;
                return Err(ReadError::Line { number, error: LineError::Instructions });
            }
            _ => {}
        }
        Ok(Step::On)
    }

    /// Whether a line of a sample goes on with what waits: the branches of an
    /// open one, or the text of a dumped one.
    fn goes_on(&self, head: &SampleHead) -> bool {
        if self.entries.is_empty() {
            let dumped = self.dump.head.as_ref();
            let is_dumped =
                dumped.is_some_and(|dumped| head.tid.is_none() || head.tid == dumped.tid);
            return self.open.is_none() && is_dumped;
        }
        let place = |branch: &RawBranch| (branch.from, branch.to);
        let repeats = self.dump.head.is_some()
            && self.entries.iter().map(place).eq(self.dump.entries.iter().map(place));
        match self.open.is_some() {
            true => *head == SampleHead::default() && (repeats || self.dump.head.is_none()),
            false => repeats,
        }
    }

    /// Takes in a line of a sample.
    fn sample(&mut self, mut head: Box<SampleHead>) -> Step {
        head.event = self.event();
        let mut comm = self.comms.number(&self.context.comm);
        self.tasks.find(&mut head);
        if self.entries.is_empty() {
            self.open = Some(Open { head, comm });
            return Step::On;
        }
        if let Some(open) = self.open.take() {
            (head, comm) = (open.head, open.comm);
        }
        head.weight = self.weight.take().unwrap_or(1);
        if let Some(dumped) = self.dump.head.take() {
            // The sample that was dumped: its branches count once, as they were
            // dumped.
            std::mem::swap(&mut self.entries, &mut self.dump.entries);
            head = Box::new(SampleHead { event: head.event, ..*dumped });
        }
        self.stacks += 1;
        self.in_chain = false;
        self.comm = comm;
        Step::Found(Found::Sample(head))
    }

    /// The number of the event that the last line named.
    fn event(&mut self) -> usize {
        self.events.number(&self.context.event)
    }

    /// Nothing follows.
    fn end(&mut self) -> Result<Step, ReadError> {
        if let Some(found) = self.take_waiting() {
            return Ok(Step::Found(found));
        }
        if self.stacks > 0 || self.straights > 0 || self.lines.stopped {
            return Ok(Step::End);
        }
        Err(match self.telling {
            Some((number, error)) => ReadError::NoLine { number, error },
            None => ReadError::NoBranches,
        })
    }

    /// The sample that waits, its branches in the entries.
    fn take_waiting(&mut self) -> Option<Found> {
        if !self.waits() {
            return None;
        }
        let open = self.open.take();
        self.comm = open.as_ref().map_or(0, |open| open.comm);
        self.entries.clear();
        let Some(mut dumped) = self.dump.head.take() else {
            let mut head = open?.head;
            head.weight = self.weight.take().unwrap_or(head.weight);
            return Some(Found::Sample(head));
        };
        dumped.event = open.map_or(0, |open| open.head.event);
        self.entries.append(&mut self.dump.entries);
        self.stacks += u64::from(!self.entries.is_empty());
        Some(Found::Sample(dumped))
    }

    /// Beside symbols no address may have the number of one. `by_name` lines were
    /// looked at.
    fn guard(&self, mut line: Line, by_name: bool) -> Result<Line, LineError> {
        // What was dumped is given out behind the line that follows it.
        if self.context.names.is_empty() && !matches!(line, Line::DumpedEntry(_)) {
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

    fn refuse(&mut self, error: LineError) {
        let first = self.lines.number;
        if error != LineError::Unknown {
            self.telling.get_or_insert((first, error));
        }
        self.refused.get_or_insert_with(|| Refused::new(first, error)).add(first);
    }
}
