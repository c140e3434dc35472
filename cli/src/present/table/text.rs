//! Prints rows as lines of text: in full to a pipe or a file, truncated to the width of a terminal.

use std::borrow::Cow;
use std::io;

use anstyle::Style;

use super::{Cell, Column, Form, Heat, Table};
use crate::present::out::{Out, Row, add, cells, folded};
use crate::present::place::Place;
use crate::present::shorten::{shortened, without_middle};

/// Spaces between columns.
const GAP: &str = "  ";
/// Width that names get before other columns are dropped.
const NAME: usize = 18;
/// Width that a sentence gets before other columns are dropped.
const PROSE: usize = 32;

/// Columns with their widths.
pub(crate) struct Layout<'t, 'a, C: ?Sized, R> {
    /// Columns that are never truncated, with their widths.
    fixed: Vec<(&'t Column<'a, C, R>, usize)>,
    /// The last columns, which share the remaining width.
    elastic: Vec<&'t Column<'a, C, R>>,
    /// The peak of the heat column.
    peak: f64,
    /// Spaces before each row.
    indent: usize,
}

impl<'a, C: ?Sized, R> Table<'a, C, R> {
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
            layout.row(out, context, &row)?;
        }
        Ok(())
    }

    /// Computes the width of each column from the rows.
    pub(crate) fn layout(
        &self,
        out: &Out<'_>,
        context: &mut C,
        rows: impl Iterator<Item = R>,
        indent: usize,
    ) -> Layout<'_, 'a, C, R> {
        let shown = || self.columns.iter().filter(|column| column.is_for_people());
        let elastic: Vec<_> = shown().filter(|column| column.is_elastic()).collect();
        let mut fixed: Vec<_> = shown()
            .filter(|column| !column.is_elastic())
            .map(|column| (column, cells(column.heading.trim()).max(column.least)))
            .collect();
        let mut known = vec![false; fixed.len()];
        let (mut peak, mut measured) = (0f64, false);
        for row in rows {
            measured = true;
            for ((column, width), known) in fixed.iter_mut().zip(&mut known) {
                let cell = (column.get)(context, &row);
                *known |= !matches!(cell, Cell::Absent | Cell::Empty);
                *width = cell.width().max(*width);
                peak = if column.heat { cell.value().map_or(peak, |v| v.max(peak)) } else { peak };
            }
        }
        if let Some(room) = out.width {
            let least = elastic.iter().map(|column| {
                let least = if column.form == Form::Prose { PROSE } else { NAME };
                least + column.joint.map_or(0, cells)
            });
            let least = indent + least.sum::<usize>();
            let used = |fixed: &[(_, usize)]| -> usize {
                fixed.iter().map(|(_, width)| width + GAP.len()).sum()
            };
            while used(&fixed) + least > room {
                // Columns that are unknown in every row are dropped first.
                let spare = |at: usize, column: &Column<'a, C, R>| match known.get(at) {
                    _ if column.spare == 0 => 0,
                    Some(false) if measured => u8::MAX,
                    _ => column.spare,
                };
                let spares =
                    fixed.iter().enumerate().map(|(at, (column, _))| (spare(at, column), at));
                match spares.max_by_key(|(spare, _)| *spare) {
                    Some((1.., at)) => {
                        fixed.remove(at);
                        known.remove(at);
                    }
                    _ => break,
                }
            }
        }
        fixed.retain(|(_, width)| *width > 0);
        Layout { fixed, elastic, peak, indent }
    }

    /// The peak of the heat column.
    pub(super) fn peak(&self, context: &mut C, rows: impl Iterator<Item = R>) -> f64 {
        let Some(column) = self.columns.iter().find(|column| column.heat) else { return 0.0 };
        rows.filter_map(|row| (column.get)(context, &row).value()).fold(0.0, f64::max)
    }
}

impl<C: ?Sized, R> Layout<'_, '_, C, R> {
    /// Sets the peak that heat is relative to.
    pub(super) fn with_peak(self, peak: f64) -> Self {
        Layout { peak, ..self }
    }

    /// Writes the line above the rows.
    pub(crate) fn headings(&self, out: &mut Out<'_>) -> io::Result<()> {
        let mut line = " ".repeat(self.indent);
        for (column, width) in &self.fixed {
            let heading = column.heading.trim();
            let blanks = " ".repeat(width.saturating_sub(cells(heading)));
            let (before, after) = column.form.sides(&blanks);
            line.extend([before, heading, after, GAP]);
        }
        for column in &self.elastic {
            line += column.joint.unwrap_or_default();
            line += column.heading;
        }
        let line = line.trim_end();
        let line = out.width.map_or_else(|| line.to_owned(), |room| clipped(line, room));
        out.row(vec![(Style::new().bold(), line)])
    }

    /// Writes a row.
    pub(crate) fn row(&self, out: &mut Out<'_>, context: &mut C, row: &R) -> io::Result<()> {
        let mut line: Row = vec![(Style::new(), " ".repeat(self.indent))];
        let mut used = self.indent;
        for (column, width) in &self.fixed {
            let cell = (column.get)(context, row);
            let style = match cell {
                Cell::Mark(_, style) => style,
                _ if column.heat => Heat::of(cell.value(), self.peak).style(),
                _ => Style::new(),
            };
            let text = cell.text();
            let blanks = " ".repeat(width.saturating_sub(cells(&text)));
            let (before, after) = column.form.sides(&blanks);
            add(&mut line, Style::new(), before);
            add(&mut line, style, &text);
            add(&mut line, Style::new(), after);
            add(&mut line, Style::new(), GAP);
            used += width + GAP.len();
        }
        let behind: Vec<(&str, Cell)> = self
            .elastic
            .iter()
            .map(|column| (column.joint.unwrap_or_default(), (column.get)(context, row)))
            .collect();
        let room = out.width.map(|width| width.saturating_sub(used).max(1));
        match (self.elastic.as_slice(), behind.as_slice()) {
            ([column], [(_, cell)]) if column.form == Form::Prose => {
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
    items.iter().try_for_each(|item| layout.row(out, &mut (), &item))
}

/// Joins names, which share the width.
fn share(behind: &[(&str, Cell)], room: Option<usize>) -> String {
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
        if let Some(room) = rooms.get_mut(*at) {
            *room = part;
        }
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
