//! Prints rows as lines of text: in full to a pipe or a file, truncated to the width of a terminal.

use std::borrow::Cow;
use std::io;

use anstyle::Style;

use super::{Cell, Column, Form, Header, Heat, Table};
use crate::present::out::{Out, Row, add, cells, folded};
use crate::present::place::Place;
use crate::present::shorten::{shortened, without_middle};

/// Spaces between columns.
const GAP: &str = "  ";
/// Width that names get before other columns are dropped.
const NAME: usize = 18;
/// Width that a sentence gets before other columns are dropped.
const PROSE: usize = 32;

/// The columns that are printed, and how.
pub(crate) struct Layout<'t> {
    /// Which of the table's columns these are.
    shown: Vec<bool>,
    /// Columns that are never truncated.
    fixed: Vec<Fixed<'t>>,
    /// Indices and headers of the last columns, which share the remaining width.
    elastic: Vec<(usize, &'t Header)>,
    /// The peak of the heat column.
    pub(super) peak: f64,
    /// Spaces before each row.
    indent: usize,
}

/// A column that is never truncated.
struct Fixed<'t> {
    /// Index in the table.
    at: usize,
    header: &'t Header,
    width: usize,
    /// A row has a value in it.
    known: bool,
}

impl<C: ?Sized, R> Table<'_, C, R> {
    /// Writes the headings and every row; nothing if there are none.
    pub(crate) fn write_text(
        &self,
        out: &mut Out<'_>,
        context: &mut C,
        rows: impl Iterator<Item = R> + Clone,
    ) -> io::Result<()> {
        if rows.clone().next().is_none() {
            return Ok(());
        }
        let layout = self.layout(out, context, rows.clone(), 0);
        layout.headings(out)?;
        for row in rows {
            self.write_row(&layout, out, context, &row)?;
        }
        Ok(())
    }

    /// Writes a row.
    pub(crate) fn write_row(
        &self,
        layout: &Layout<'_>,
        out: &mut Out<'_>,
        context: &mut C,
        row: &R,
    ) -> io::Result<()> {
        layout.row(out, &self.cells(context, row, &layout.shown))
    }

    /// Computes the width of each column from the rows.
    pub(crate) fn layout(
        &self,
        out: &Out<'_>,
        context: &mut C,
        rows: impl Iterator<Item = R>,
        indent: usize,
    ) -> Layout<'_> {
        let mut layout = Layout::new(self.headers(), indent);
        let fixed = |header: &Header| header.is_for_people() && !header.is_elastic();
        let fixed: Vec<bool> = self.headers().map(fixed).collect();
        let mut measured = false;
        for row in rows {
            measured = true;
            layout.measure(&self.cells(context, &row, &fixed));
        }
        layout.fit(out.width, measured);
        let (fixed, elastic) = (layout.fixed.iter(), layout.elastic.iter());
        layout.shown = vec![false; self.columns.len()];
        for at in fixed.map(|column| column.at).chain(elastic.map(|(at, _)| *at)) {
            layout.shown[at] = true;
        }
        layout
    }

    /// The peak of the heat column.
    pub(super) fn peak(&self, context: &mut C, rows: impl Iterator<Item = R>) -> f64 {
        let heat = |column: &&Column<'_, C, R>| column.header.heat;
        let Some(column) = self.columns.iter().find(heat) else { return 0.0 };
        rows.filter_map(|row| (column.get)(context, &row).value()).fold(0.0, f64::max)
    }
}

impl<'t> Layout<'t> {
    fn new(headers: impl Iterator<Item = &'t Header>, indent: usize) -> Self {
        let shown = headers.enumerate().filter(|(_, header)| header.is_for_people());
        let (elastic, fixed): (Vec<_>, Vec<_>) = shown.partition(|(_, header)| header.is_elastic());
        let fixed = fixed.into_iter().map(|(at, header)| {
            let width = cells(header.heading.trim()).max(header.least);
            Fixed { at, header, width, known: false }
        });
        Layout { shown: Vec::new(), fixed: fixed.collect(), elastic, peak: 0.0, indent }
    }

    /// Makes the columns wide enough for a row.
    fn measure(&mut self, row: &[Cell]) {
        for column in &mut self.fixed {
            let Some(cell) = row.get(column.at) else { continue };
            column.known |= !matches!(cell, Cell::Absent | Cell::Empty);
            column.width = cell.width().max(column.width);
            if column.header.heat {
                self.peak = cell.value().map_or(self.peak, |value| value.max(self.peak));
            }
        }
    }

    /// Drops columns that are too many for the width, and those without content.
    fn fit(&mut self, room: Option<usize>, measured: bool) {
        let least = self.elastic.iter().map(|(_, header)| {
            let least = if header.form == Form::Prose { PROSE } else { NAME };
            least + header.joint.map_or(0, cells)
        });
        let least = self.indent + least.sum::<usize>();
        let used = |fixed: &[Fixed<'_>]| -> usize {
            fixed.iter().map(|column| column.width + GAP.len()).sum()
        };
        while room.is_some_and(|room| used(&self.fixed) + least > room) {
            // Columns that are unknown in every row are dropped first.
            let spare = |column: &Fixed<'_>| match column.header.spare {
                0 => 0,
                _ if measured && !column.known => u8::MAX,
                spare => spare,
            };
            let spares = self.fixed.iter().map(spare).enumerate();
            match spares.max_by_key(|(_, spare)| *spare) {
                Some((at, 1..)) => drop(self.fixed.remove(at)),
                _ => break,
            }
        }
        self.fixed.retain(|column| column.width > 0);
    }

    /// Writes the line above the rows.
    pub(crate) fn headings(&self, out: &mut Out<'_>) -> io::Result<()> {
        let mut line = " ".repeat(self.indent);
        for Fixed { header, width, .. } in &self.fixed {
            let heading = header.heading.trim();
            let blanks = " ".repeat(width.saturating_sub(cells(heading)));
            let (before, after) = header.form.sides(&blanks);
            line.extend([before, heading, after, GAP]);
        }
        for (_, header) in &self.elastic {
            line += header.joint.unwrap_or_default();
            line += header.heading;
        }
        let line = line.trim_end();
        let line = out.width.map_or_else(|| line.to_owned(), |room| clipped(line, room));
        out.row(vec![(Style::new().bold(), line)])
    }

    fn row(&self, out: &mut Out<'_>, row: &[Cell]) -> io::Result<()> {
        let mut line: Row = vec![(Style::new(), " ".repeat(self.indent))];
        let mut used = self.indent;
        for Fixed { at, header, width, .. } in &self.fixed {
            let cell = row.get(*at).unwrap_or(&Cell::Empty);
            let style = match cell {
                Cell::Mark(_, style) => *style,
                _ if header.heat => Heat::of(cell.value(), self.peak).style,
                _ => Style::new(),
            };
            let text = cell.text();
            let blanks = " ".repeat(width.saturating_sub(cells(&text)));
            let (before, after) = header.form.sides(&blanks);
            add(&mut line, Style::new(), before);
            add(&mut line, style, &text);
            add(&mut line, Style::new(), after);
            add(&mut line, Style::new(), GAP);
            used += width + GAP.len();
        }
        let behind = self.elastic.iter().map(|(at, header)| {
            (header.joint.unwrap_or_default(), row.get(*at).unwrap_or(&Cell::Empty))
        });
        let behind: Vec<(&str, &Cell)> = behind.collect();
        let room = out.width.map(|width| width.saturating_sub(used).max(1));
        match (self.elastic.as_slice(), behind.as_slice()) {
            ([(_, header)], [(_, cell)]) if header.form == Form::Prose => {
                for text in folded(&cell.text(), room, 0) {
                    add(&mut line, Style::new(), &text);
                    out.row(std::mem::replace(&mut line, vec![(Style::new(), " ".repeat(used))]))?;
                }
                return Ok(());
            }
            _ => add(&mut line, Style::new(), &share(&behind, room)),
        }
        out.row(line)
    }
}

/// A line of a list: a mark or a fixed word, its subject, and a sentence.
pub(crate) type Item = (Cell, String, String);

pub(crate) fn write_list(out: &mut Out<'_>, items: &[Item]) -> io::Result<()> {
    let table = Table::<(), &Item>::new()
        .word("", " ", |(), (mark, ..)| mark.clone())
        .word("", " ", |(), (_, name, _)| Cell::Word(name.clone().into()))
        .prose("", " ", |(), (.., text)| Cell::Word(text.clone().into()));
    let layout = table.layout(out, &mut (), items.iter(), 0);
    items.iter().try_for_each(|item| table.write_row(&layout, out, &mut (), &item))
}

/// Joins names, which share the width.
fn share(behind: &[(&str, &Cell)], room: Option<usize>) -> String {
    let mut line = String::new();
    let texts: Vec<_> = behind.iter().map(|(_, cell)| cell.shown()).collect();
    let joints: usize = behind.iter().map(|(joint, _)| cells(joint)).sum();
    let all: usize = texts.iter().map(|text| cells(text)).sum();
    let Some(room) = room.filter(|room| all + joints > *room) else {
        for ((joint, _), text) in behind.iter().zip(&texts) {
            line += joint;
            line += text;
        }
        return line;
    };
    // Names that need less than their part leave the rest to the others.
    let mut left = room.saturating_sub(joints);
    let mut order: Vec<usize> = (0..texts.len()).collect();
    let wanted = |at: &usize| texts.get(*at).map_or(0, |text| cells(text));
    order.sort_by_key(wanted);
    let mut rooms = vec![0; texts.len()];
    for (done, at) in order.iter().enumerate() {
        let part = wanted(at).min(left / (order.len() - done));
        left -= part;
        rooms[*at] = part;
    }
    for ((joint, cell), room) in behind.iter().zip(rooms) {
        line += joint;
        line += &cell.within(room);
    }
    line
}

impl Form {
    /// The spaces before a text, and those after it.
    fn sides(self, blanks: &str) -> (&str, &str) {
        if self == Form::Right { (blanks, "") } else { ("", blanks) }
    }
}

/// The start of a text, in `room` cells.
fn clipped(text: &str, room: usize) -> String {
    folded(text, Some(room), 0).into_iter().next().unwrap_or_default()
}

impl Cell {
    /// Its full width.
    fn width(&self) -> usize {
        let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
        match self {
            Cell::Count(count) => digits(*count) + (digits(*count) - 1) / 3,
            Cell::Number(number) => digits(*number),
            Cell::Absent => 1,
            cell => cells(&cell.shown()),
        }
    }

    /// The full text, with a target in the same function shortened to its offset.
    fn shown(&self) -> Cow<'_, str> {
        match self {
            Cell::Place(place) => place.cell().into(),
            cell => cell.text(),
        }
    }

    /// The text, shortened to `room` terminal cells.
    pub(super) fn within(&self, room: usize) -> String {
        let text = self.shown();
        match self {
            _ if cells(&text) <= room => text.into_owned(),
            Cell::Place(place) => place.within(room),
            Cell::Places(places, behind) => several(places, behind, room),
            Cell::Name(_) => shortened(&text, room),
            _ => without_middle(&text, room),
        }
    }
}

/// The locations that fit, each shortened, and the number of the others.
fn several(places: &[Place], behind: &str, room: usize) -> String {
    let more = |left: usize| if left > 0 { format!(", {left} more") } else { String::new() };
    for shown in (1..=places.len()).rev() {
        let more = more(places.len() - shown);
        for behind in [behind, ""] {
            let fixed = cells(&more) + cells(behind) + 2 * (shown - 1);
            let each = room.saturating_sub(fixed) / shown;
            if each >= NAME || shown == 1 && behind.is_empty() {
                let texts: Vec<String> =
                    places.iter().take(shown).map(|place| place.within(each)).collect();
                return without_middle(&(texts.join(", ") + &more + behind), room);
            }
        }
    }
    without_middle(behind, room)
}
