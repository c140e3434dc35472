//! The columns that perf prints for a sample before its branches: a fixed order, of which a text
//! has those selected with `-F`.
//!
//! `%16s comm`, `%5d/%-5d pid/tid` or one of the two numbers (7 columns from 6.4 on), `[%03d] cpu`,
//! six characters of `misc`, `tod`, `%12s: time`, `%10d period`, `event: `, flags, 16-character
//! numbers without a space (addr, weight), then ` %16x ip`, followed by its symbol and file.
//!
//! `pid/tid`, `[cpu]`, `time:` and `event:` are self-describing. A plain number can be identified
//! only by its width or its neighbours.

use std::ops::ControlFlow;

use super::line::LineError;
use super::words::{
    IP_WIDTH, decimal, events, first_word_is, flags, hex, id, is_hex, seconds, tod, wide, word,
};
use crate::read::stack::SampleHead;

/// A column, in perf's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Comm,
    /// `pid/tid`.
    Task,
    /// Either pid or tid.
    Number,
    Cpu,
    Misc,
    Tod,
    Time,
    Period,
    Event,
    Flags,
    /// Other 16-character numbers.
    Wide,
    Ip,
}

impl Column {
    const ALL: [Column; 12] = {
        use Column::{Comm, Cpu, Event, Flags, Ip, Misc, Number, Period, Task, Time, Tod, Wide};
        [Comm, Task, Number, Cpu, Misc, Tod, Time, Period, Event, Flags, Wide, Ip]
    };

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// A set of columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns(u16);

impl Columns {
    pub(super) const COMM: Columns = Columns(Column::Comm.bit());

    pub(crate) const fn has(self, column: Column) -> bool {
        self.0 & column.bit() != 0
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn count(self) -> u32 {
        self.0.count_ones()
    }
}

/// The columns of a text, and whether they have perf's widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) columns: Columns,
    pub(crate) widths: Widths,
}

/// The rest of the line after the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterColumns {
    /// Branches by address: the given text ends where they start.
    Entries,
    /// The source symbol of the first branch.
    Name,
    /// The end of the line.
    Nothing,
}

/// How plain numbers are aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Widths {
    #[default]
    /// With perf's column widths.
    Kept,
    /// The alignment was changed.
    Lost,
}

/// A line split into columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading<'a> {
    pub(crate) columns: Columns,
    pub(crate) head: SampleHead,
    pub(crate) comm: &'a [u8],
    pub(crate) event: &'a [u8],
    /// The end of the columns.
    pub(crate) end: usize,
    /// Whether the address is in perf's column.
    pub(crate) in_column: bool,
    /// Whether only the next column can end the thread's name.
    is_open: bool,
}

impl Reading<'_> {
    /// Whether two readings give the same sample.
    pub(crate) fn agrees(&self, other: &Reading<'_>) -> bool {
        (self.head, self.comm, self.event) == (other.head, other.comm, other.event)
    }
}

/// Parses a line with known columns.
pub(super) fn read<'a>(text: &'a [u8], layout: Layout, after: AfterColumns) -> Option<Reading<'a>> {
    let mut found = None;
    let Layout { columns, widths } = layout;
    let mut visit = |reading: &Reading<'a>| {
        let is = reading.columns == columns && is_sound(text, reading, after);
        found = is.then_some(*reading);
        if is { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let search = Search { text, widths, wanted: Some(columns) };
    let _ = search.from(0, Reading::default(), &mut visit);
    found
}

/// Parses the columns before the branches of a line, using the text's layout or, if that does not
/// fit, the line alone.
pub(crate) fn head(
    text: &[u8],
    layout: Option<Layout>,
    after: AfterColumns,
) -> Result<Reading<'_>, LineError> {
    // Columns before a name end with a space.
    if after == AfterColumns::Name && memchr::memchr(b' ', text).is_none() {
        return Ok(Reading::default());
    }
    let by_layout = layout.and_then(|layout| read(text, layout, after));
    by_layout.map_or_else(|| alone(text, after), Ok)
}

/// Every possible reading of a line.
pub(super) fn readings(text: &[u8], widths: Widths, after: AfterColumns) -> Vec<Reading<'_>> {
    let mut found = Vec::new();
    let _ = Search { text, widths, wanted: None }.from(0, Reading::default(), &mut |reading| {
        if is_sound(text, reading, after) {
            found.push(*reading);
        }
        if found.len() < MOST { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    found
}

/// Maximum number of readings considered per line.
const MOST: usize = 64;

/// The best reading of a line on its own: the one that explains most of it, preferably with perf's
/// widths.
fn alone(text: &[u8], after: AfterColumns) -> Result<Reading<'_>, LineError> {
    let mut found = readings(text, Widths::Kept, after);
    if found.is_empty() && after == AfterColumns::Entries {
        found = readings(text, Widths::Lost, after);
    }
    let explains = |reading: &Reading<'_>| (reading.end, reading.columns.count());
    let most = found.iter().map(explains).max().unwrap_or_default();
    let mut best = found.into_iter().filter(|reading| explains(reading) == most);
    let first = best.next().unwrap_or_default();
    if best.all(|other| other.agrees(&first)) { Ok(first) } else { Err(LineError::Ambiguous) }
}

/// Whether the text after the columns is plausible.
fn is_sound(text: &[u8], reading: &Reading<'_>, after: AfterColumns) -> bool {
    let rest = text.get(reading.end..).unwrap_or_default();
    if reading.is_open {
        return false;
    }
    if after == AfterColumns::Name || rest.trim_ascii().is_empty() {
        return true;
    }
    // Only symbol, file and registers follow the address.
    let is_last = reading.in_column || memchr::memmem::find(rest, b": ").is_none();
    reading.columns.has(Column::Ip) && rest.starts_with(b" ") && is_last
        || rest.trim_ascii_start().starts_with(b"{")
        || rest.trim_ascii_start().starts_with(b"ABI:")
}

struct Search<'a> {
    text: &'a [u8],
    widths: Widths,
    wanted: Option<Columns>,
}

impl<'a> Search<'a> {
    /// Every reading that extends this one, with the columns from `first` on.
    fn from(
        &self,
        first: usize,
        reading: Reading<'a>,
        visit: &mut impl FnMut(&Reading<'a>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        visit(&reading)?;
        for (index, column) in Column::ALL.into_iter().enumerate().skip(first) {
            let wanted = self.wanted.is_none_or(|wanted| wanted.has(column));
            if !wanted {
                continue;
            }
            let columns = Columns(reading.columns.0 | column.bit());
            for next in self.ways(column, &reading) {
                self.from(index + 1, Reading { columns, ..next }, visit)?;
            }
            if self.wanted.is_some() {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// The possible readings with this column next.
    fn ways(&self, column: Column, before: &Reading<'a>) -> Vec<Reading<'a>> {
        let at = before.end;
        let rest = self.text.get(at..).unwrap_or_default();
        match column {
            Column::Comm => self.comms(),
            Column::Event => events(rest)
                .map(|(event, len)| Reading { event, end: at + len, ..*before })
                .collect(),
            _ => self.one(column, rest, before).into_iter().collect(),
        }
    }

    fn one(&self, column: Column, rest: &'a [u8], before: &Reading<'a>) -> Option<Reading<'a>> {
        let mut next = *before;
        let head = &mut next.head;
        // Most columns end with a space.
        let len = match column {
            Column::Comm | Column::Event => return None,
            Column::Task => {
                let (word, width) = word(rest)?;
                let mut ids = word.split(|byte| *byte == b'/').map(id);
                (head.pid, head.tid) = (Some(ids.next()??), Some(ids.next()??));
                let pid = memchr::memchr(b'/', word)?;
                // The second is padded to as many columns as the first.
                let padded = match width - word.len() + pid {
                    columns @ (5 | 7) => width - word.len() + pid + 1 + columns,
                    _ => width,
                };
                let pad = rest.get(width..=padded).unwrap_or_default();
                let is_padded = pad.iter().all(|byte| *byte == b' ');
                let end = if is_padded { padded.max(width) } else { width };
                ids.next().is_none().then_some(end + 1)?
            }
            Column::Number => {
                let (word, width) = word(rest)?;
                head.tid = Some(id(word)?);
                self.is_task(rest, word, width, before).then_some(width + 1)?
            }
            Column::Cpu => {
                let (word, width) = word(rest)?;
                let inside = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
                head.cpu = match inside {
                    b"-" => None,
                    digits => Some(u32::try_from(decimal(digits)?).ok()?),
                };
                width + 1
            }
            Column::Misc => {
                let column = rest.get(..6)?;
                let letters = column.trim_ascii_end();
                let is_misc = |byte: &u8| b"KUHGgMESp".contains(byte);
                (!letters.is_empty() && letters.len() < 6 && letters.iter().all(is_misc))
                    .then_some(6)?
            }
            Column::Tod => tod(rest)?,
            Column::Time => {
                let (word, width) = word(rest)?;
                let word = word.strip_suffix(b":")?;
                head.time = if word == b"-" { None } else { Some(seconds(word)?) };
                width + 1
            }
            Column::Period => {
                let (word, width) = word(rest)?;
                head.period = Some(decimal(word)?);
                self.is_period(word, width, before).then_some(width + 1)?
            }
            Column::Flags => flags(rest)?,
            Column::Wide => wide(rest)?,
            Column::Ip => {
                let (ip, len, in_column) = self.ip(rest, before)?;
                (head.ip, next.in_column) = (ip, in_column);
                len
            }
        };
        next.end = (next.end + len).min(self.text.len());
        next.is_open = false;
        Some(next)
    }

    /// Whether a plain number may be a pid or tid. perf gives it five or seven columns, and a
    /// period ten.
    fn is_task(&self, rest: &[u8], word: &[u8], width: usize, before: &Reading<'_>) -> bool {
        /// Linux's `PID_MAX_LIMIT`: all numbers are lower.
        const LIMIT: u64 = 1 << 22;
        if decimal(word).is_some_and(|id| id >= LIMIT) {
            return false;
        }
        let is_padded = width > word.len();
        let overflows = !is_padded && word.len() >= 5;
        // CPU and time directly follow the task, and the period follows them.
        let behind = rest.get(width..).unwrap_or_default().trim_ascii_start();
        let is_anchored = first_word_is(behind, |word| {
            word.starts_with(b"[") && word.ends_with(b"]")
                || word.strip_suffix(b":").is_some_and(|time| seconds(time).is_some())
        });
        matches!(width, 5 | 7)
            || overflows
            || is_anchored
            || is_padded && width < 10
            || self.widths == Widths::Lost && before.columns.0 & !Column::Comm.bit() == 0
    }

    fn is_period(&self, word: &[u8], width: usize, before: &Reading<'_>) -> bool {
        let earlier = [Column::Task, Column::Number, Column::Cpu, Column::Tod, Column::Time];
        width == 10
            || word.len() >= 10
            || width != IP_WIDTH && earlier.into_iter().any(|column| before.columns.has(column))
            || self.widths == Widths::Lost && width == word.len()
    }

    /// The address: a space, and the digits, right-aligned in 16 columns. After an event or time,
    /// any number is the address.
    fn ip(&self, rest: &[u8], before: &Reading<'_>) -> Option<(Option<u64>, usize, bool)> {
        let strict = rest.get(..IP_WIDTH).and_then(|column| column.strip_prefix(b" "));
        if let Some(digits) = strict.map(<[u8]>::trim_ascii_start) {
            if digits == b"-" {
                return Some((None, IP_WIDTH, true));
            }
            if let Some(ip) = hex(digits) {
                return Some((Some(ip), IP_WIDTH, true));
            }
        }
        let (word, width) = word(rest)?;
        let digits = match word.iter().position(|byte| *byte == b':') {
            // With a build ID before it.
            Some(at) if at >= 8 && is_hex(word.get(..at)?) => word.get(at + 1..)?,
            _ => word,
        };
        let has_id = digits.len() < word.len();
        let anchored = before.columns.has(Column::Event) || before.columns.has(Column::Time);
        // In 16 columns it is another number (addr).
        if (!anchored && !has_id && self.widths == Widths::Kept) || wide(rest).is_some() {
            return None;
        }
        let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
        Some((Some(hex(digits)?), width, false))
    }

    /// The name of a thread: right-aligned in 16 columns or, before call chains, of any length; it
    /// must precede a self-describing column.
    fn comms(&self) -> Vec<Reading<'a>> {
        const COLUMN: usize = 16;
        const LONGEST: usize = 64;
        let text = self.text;
        let mut found = Vec::new();
        let mut add = |comm: &'a [u8], end, is_open| {
            let comm = comm.trim_ascii();
            // A name is neither a number nor a self-describing column.
            let is_number = is_hex(comm) && (comm.len() > 8 || comm.iter().any(u8::is_ascii_digit));
            let is_cpu = matches!(comm, [b'[', b'0'..=b'9', ..] | b"[-]");
            let is_task = comm.contains(&b'/')
                && comm.split(|byte| *byte == b'/').all(|id_text| id(id_text).is_some());
            if !comm.is_empty() && !is_number && !is_cpu && !is_task && !comm.ends_with(b":") {
                found.push(Reading { comm, end, is_open, ..Reading::default() });
            }
        };
        let is_column = text.first() == Some(&b' ')
            && text.get(COLUMN) == Some(&b' ')
            && text.get(COLUMN - 1).is_some_and(|byte| *byte != b' ');
        if is_column {
            add(text.get(..COLUMN).unwrap_or_default(), COLUMN + 1, false);
        }
        let wants_more = self.wanted.is_none_or(|wanted| {
            [Column::Task, Column::Number, Column::Cpu, Column::Time]
                .into_iter()
                .any(|column| wanted.has(column))
        });
        let start = text.len() - text.trim_ascii_start().len();
        let blanks = memchr::memchr_iter(b' ', text).take_while(|at| *at < LONGEST);
        let is_last = |at: usize| at > start && text.get(at - 1) != Some(&b' ');
        for at in blanks.filter(|at| is_last(*at) && (!is_column || *at != COLUMN)) {
            let behind = text.get(at + 1..).unwrap_or_default().trim_ascii_start();
            let is_end = first_word_is(behind, |word| {
                word.first().is_some_and(|byte| byte.is_ascii_digit() || b"[-".contains(byte))
            });
            if is_end && wants_more {
                add(text.get(..at).unwrap_or_default(), at + 1, true);
            }
        }
        // Only a thread's name precedes the frames of a call chain.
        if self.wanted == Some(Columns::COMM) && start == 0 {
            add(text, text.len(), false);
        }
        found
    }
}
