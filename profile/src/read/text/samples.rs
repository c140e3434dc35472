//! Assembles samples from their lines.

use super::lines::Next;
use super::pending::{Dump, Open, WithCounts};
use super::{ItemHead, Refused, Step, TextReader};
use crate::read::brstack::{self, EntryError, Line, LineError, SecondCount, Split, Starts};
use crate::read::names;
use crate::read::perf_data::ReadError;
use crate::read::stack::{RawBranch, SampleHead, Straight};

/// Number of other lines that a short text of samples may have.
const MUCH: u64 = 8;

impl TextReader {
    /// Processes a line whose first `begun` bytes are the entries in the buffer.
    pub(super) fn line(&mut self, begun: usize, over: bool) -> Result<Step, ReadError> {
        match self.waiting.second.take() {
            Some(SecondCount::Branch(branch, count)) => {
                self.entries.clear();
                self.entries.push(branch);
                return Ok(Step::Found(ItemHead::Sample(Box::new(self.counted(count)))));
            }
            Some(SecondCount::Straight(ends, count)) => return Ok(self.straight(ends, count)),
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
            // Lines of source code appear next to the frames of a sample.
            Err(LineError::Unknown)
                if may_be_source && (self.in_chain || self.waiting.open.is_some()) =>
            {
                Ok(Line::Other)
            }
            line => line,
        };
        // A pending sample comes before anything except its own branches.
        let goes_on = match (self.context.split, &line) {
            (Some(split), line) => self.is_spread(split, line, len)?,
            (None, Ok(Line::Sample(head))) => self.waiting.goes_on(head, &self.entries),
            (None, Ok(Line::Dumped(_) | Line::Event(_) | Line::Count(_))) => false,
            (None, Ok(Line::Counted { .. } | Line::Straight(..))) => false,
            _ => true,
        };
        if !goes_on && let Some(found) = self.take_waiting() {
            return Ok(Step::Found(found));
        }
        let text = self.lines.unread().get(..len).unwrap_or_default();
        let is_prose = matches!(line, Err(LineError::Unknown)) && !brstack::has_time(text);
        self.prose += u64::from(is_prose);
        self.lines.pass(len);
        match line {
            Ok(Line::Sample(head)) => Ok(self.sample(head)),
            Ok(Line::Counted { count, second }) => {
                self.waiting.second = second;
                self.stacks += 1;
                Ok(Step::Found(ItemHead::Sample(Box::new(self.counted(count)))))
            }
            Ok(Line::Straight(ends, count)) => Ok(self.straight(ends, count)),
            Ok(Line::Event(event)) => {
                self.tasks.event(&event);
                Ok(Step::Found(ItemHead::Event(event)))
            }
            Ok(other) => self.other_line(other),
            Err(LineError::Entry { error: EntryError::AddressOrOffset, .. }) => {
                Err(ReadError::Line { number: self.lines.number, error: LineError::Offsets })
            }
            Err(error) => {
                self.refuse(error);
                Ok(Step::On)
            }
        }
    }

    /// The sample head for a count.
    fn counted(&mut self, weight: u64) -> SampleHead {
        SampleHead { weight, event: self.event(), ..SampleHead::default() }
    }

    fn straight(&mut self, (entry, exit): (u64, u64), count: u64) -> Step {
        self.notes.straights += 1;
        let head = self.counted(count);
        Step::Found(ItemHead::Straight(Box::new(Straight { head, entry, exit })))
    }

    /// Processes a line that is neither a sample nor an event.
    fn other_line(&mut self, line: Line) -> Result<Step, ReadError> {
        match line {
            Line::Count(count) => self.weight = Some(count),
            Line::Frame => self.in_chain = true,
            Line::Dumped(head) => {
                self.waiting.dump = Dump { head: Some(head), ..Dump::default() };
            }
            Line::DumpedStack(count) => {
                let dump = &mut self.waiting.dump;
                dump.entries.clear();
                dump.stack = dump.head.as_ref().map(|_| (self.lines.number, count));
            }
            Line::DumpedEntry(index, branch) if self.waiting.dump.stack.is_some() => {
                match self.waiting.dump.entries.len() as u64 == index {
                    true => self.waiting.dump.entries.push(branch),
                    false => self.refuse(LineError::NotNext),
                }
            }
            Line::DumpedEntry(..) => self.refuse(LineError::Unknown),
            // Belongs to a sample whose branches are on other lines.
            Line::Instruction(counted) if self.waiting.counted.is_some() => {
                let waiting = self.waiting.counted.as_mut().zip(counted);
                waiting.into_iter().for_each(|(waiting, counted)| waiting.counts.push(counted));
            }
            Line::Instruction(_) if self.waiting.open.is_some() || self.stacks == 0 => {
                let number = self.lines.number;
                return Err(ReadError::Line { number, error: LineError::Instructions });
            }
            _ => self.others += 1,
        }
        Ok(Step::On)
    }

    /// Processes a line of a sample.
    fn sample(&mut self, mut head: Box<SampleHead>) -> Step {
        head.event = self.event();
        let mut comm = self.comms.number(&self.context.comm);
        self.tasks.find(&mut head);
        if self.entries.is_empty() || self.context.split.is_some() {
            let entries = std::mem::take(&mut self.entries);
            match &mut self.waiting.open {
                Some(open) => open.entries.extend(entries),
                open => *open = Some(Open { head, comm, entries }),
            }
            return Step::On;
        }
        if let Some(open) = self.waiting.open.take() {
            (head, comm) = (open.head, open.comm);
        }
        head.weight = self.weight.take().unwrap_or(1);
        if let Some(dumped) = self.take_dumped() {
            // The sample was also dumped: its branches count once, as dumped.
            std::mem::swap(&mut self.entries, &mut self.waiting.dump.entries);
            head = Box::new(SampleHead { event: head.event, ..*dumped });
        }
        self.stacks += 1;
        self.in_chain = false;
        if self.context.has_counts {
            let entries = std::mem::take(&mut self.entries);
            let sample = Open { head, comm, entries };
            self.waiting.counted = Some(WithCounts { sample, counts: Vec::new() });
            return Step::On;
        }
        self.comm = comm;
        Step::Found(ItemHead::Sample(head))
    }

    /// Whether a line belongs to the pending stack, whose entries are in several lines.
    fn is_spread(
        &mut self,
        split: Split,
        line: &Result<Line, LineError>,
        len: usize,
    ) -> Result<bool, ReadError> {
        let unknown = ReadError::Line { number: self.lines.number + 1, error: LineError::Split };
        let text = self.lines.unread().get(..len).unwrap_or_default();
        let open = self.waiting.open.as_ref();
        let stack = open.map(|open| &*open.entries).unwrap_or_default();
        match line {
            Ok(Line::Other) if text.trim_ascii().is_empty() => {
                self.waiting.gap += 1;
                Ok(true)
            }
            Ok(Line::Frame) => Ok(stack.is_empty()),
            Ok(Line::Count(_)) if split.starts != Starts::Head => Err(unknown),
            Ok(Line::Sample(head)) => {
                let gap = std::mem::take(&mut self.waiting.gap);
                let is_first = open.is_none() || !brstack::is_bare(head, text, &self.context);
                let starts = self.entries.first().filter(|_| !is_first);
                let starts = starts.map_or(Some(true), |next| split.starts(stack, text, next, gap));
                starts.map(|starts| !starts).ok_or(unknown)
            }
            _ => Ok(false),
        }
    }

    /// The number of the last line's event.
    fn event(&mut self) -> usize {
        self.events.number(&self.context.event)
    }

    /// Handles the end of the text.
    fn end(&mut self) -> Result<Step, ReadError> {
        if let Some(found) = self.take_waiting() {
            return Ok(Step::Found(found));
        }
        let of = self.lines.number - self.others;
        if self.prose >= MUCH && 2 * self.prose > of && !self.lines.stopped {
            return Err(ReadError::Prose { lines: self.prose, of });
        }
        if self.stacks > 0 || self.notes.straights > 0 || self.lines.stopped {
            return Ok(Step::End);
        }
        Err(match self.telling {
            Some((number, error)) => ReadError::NoLine { number, error },
            None => ReadError::NoBranches,
        })
    }

    /// The pending sample, with its branches in the entries.
    fn take_waiting(&mut self) -> Option<ItemHead> {
        if self.waiting.is_empty() {
            return None;
        }
        self.counts.clear();
        if let Some(counted) = self.waiting.counted.take() {
            self.counts = counted.words();
            let Open { head, comm, entries } = counted.sample;
            (self.entries, self.comm) = (entries, comm);
            return Some(ItemHead::Sample(head));
        }
        let open = self.waiting.open.take();
        self.comm = open.as_ref().map_or(0, |open| open.comm);
        self.entries.clear();
        let Some(mut dumped) = self.take_dumped() else {
            let Open { mut head, entries, .. } = open?;
            head.weight = self.weight.take().unwrap_or(head.weight);
            self.entries = entries;
            if self.context.split.is_some_and(|split| split.oldest_first) {
                self.entries.reverse();
            }
            self.stacks += u64::from(!self.entries.is_empty());
            return Some(ItemHead::Sample(head));
        };
        dumped.event = open.map_or(0, |open| open.head.event);
        self.entries.append(&mut self.waiting.dump.entries);
        self.stacks += u64::from(!self.entries.is_empty());
        Some(ItemHead::Sample(dumped))
    }

    /// The head of the dumped sample, checked against the number of branches that it announces.
    fn take_dumped(&mut self) -> Option<Box<SampleHead>> {
        let dump = &mut self.waiting.dump;
        if let Some((line, count)) = dump.stack.take()
            && dump.entries.len() as u64 != count
        {
            self.notes.short += 1;
            self.notes.first_short.get_or_insert(line);
        }
        dump.head.take()
    }

    /// With symbols, no address may equal the number of one. `by_name` lines were checked.
    fn guard(&self, mut line: Line, by_name: bool) -> Result<Line, LineError> {
        // A dumped sample is returned after the line that follows it.
        if self.context.names.is_empty() && !matches!(line, Line::DumpedEntry(..)) {
            return Ok(line);
        }
        let is_wrong =
            |branch: &RawBranch| names::is_name(branch.from) || names::is_name(branch.to);
        let wrong = match &mut line {
            Line::DumpedEntry(_, branch) => is_wrong(branch).then_some(0),
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
        let new = || Refused { lines: 0, first, error, runs: Vec::new() };
        self.refused.get_or_insert_with(new).add(first);
    }
}
