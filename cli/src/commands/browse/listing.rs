//! A table that can be sorted and searched.

use std::cmp::Ordering;
use std::io;

use super::reading::Model;
use super::views::Rows;
use crate::exit::Result;
use crate::present::{Cell, Out, Row, Sheet};
use crate::select::RowArgs;

/// Rows by which columns are measured, in addition to those on the screen.
const MEASURED: usize = 100;

/// A table that can be sorted and searched.
pub(super) struct Listing {
    pub(super) rows: Rows,
    /// The rows, in the order of `lbr report`.
    pub(super) ids: Vec<usize>,
    /// Which of them are shown, in which order.
    pub(super) order: Vec<usize>,
    /// Shows only the program's own files, by default.
    pub(super) own: bool,
    /// The column to sort by, and whether the lowest comes first.
    pub(super) sort: Option<(usize, bool)>,
    /// The same in words.
    pub(super) sorted: Option<String>,
    /// Only rows with these letters, in this order.
    pub(super) search: String,
    /// Only branches of these types; empty for all.
    types: Vec<String>,
    /// Names in each row, for searching.
    texts: Option<Vec<String>>,
    peak: f64,
}

impl Listing {
    pub(super) fn of(rows: Rows) -> Listing {
        Listing {
            rows,
            ids: Vec::new(),
            order: Vec::new(),
            own: false,
            sort: None,
            sorted: None,
            search: String::new(),
            types: Vec::new(),
            texts: None,
            peak: 0.0,
        }
    }

    /// Shows only the rows with these letters.
    pub(super) fn search(&mut self, model: &mut Model, letters: &str) {
        self.search = letters.to_owned();
        self.arrange(model);
    }

    /// Takes the rows from what was read last.
    pub(super) fn refresh(&mut self, model: &mut Model, shown: &RowArgs) -> Result<()> {
        (self.ids, self.own) = self.rows.ids(model, shown)?;
        self.types.clone_from(&shown.types);
        self.texts = None;
        self.arrange(model);
        let all: Vec<usize> = (0..self.ids.len()).collect();
        let peak = self.rows.with(model, &self.ids, |sheet| sheet.peak(&all));
        self.peak = peak.unwrap_or(0.0);
        Ok(())
    }

    /// Searches and sorts.
    pub(super) fn arrange(&mut self, model: &mut Model) {
        let Listing { rows, ids, texts, .. } = self;
        let mut order: Vec<usize> = (0..ids.len()).collect();
        self.sorted = None;
        rows.with(model, ids, |sheet| {
            if let Some(of) = sheet.headings().iter().position(|name| *name == "type")
                && !self.types.is_empty()
            {
                order.retain(|row| self.types.contains(&sheet.cell(*row, of).text().into_owned()));
            }
            if !self.search.is_empty() {
                let all = (0..ids.len()).map(|row| sheet.names(row));
                let texts = texts.get_or_insert_with(|| all.collect());
                order.retain(|row| texts.get(*row).is_some_and(|text| is_in(&self.search, text)));
            }
            let Some((column, ascending)) = self.sort else { return };
            let heading = sheet.headings().get(column).copied().unwrap_or_default();
            let first = if ascending { "lowest" } else { "highest" };
            self.sorted = Some(format!("{heading}: {first} first"));
            let key = |row: usize| {
                let cell = sheet.cell(row, column);
                let value = cell.value();
                let text = if value.is_none() { cell.text().into_owned() } else { String::new() };
                ((value, text), row)
            };
            let mut keys: Vec<(SortKey, usize)> = order.iter().copied().map(key).collect();
            keys.sort_by(|(one, _), (other, _)| compare(one, other, ascending));
            order = keys.into_iter().map(|(_, row)| row).collect();
        });
        self.order = order;
    }

    /// The index of the row on a line, in the list that it comes from.
    pub(super) fn id(&self, line: usize) -> Option<usize> {
        self.ids.get(*self.order.get(line)?).copied()
    }

    /// Sorts by a column; by the same again in the other direction.
    pub(super) fn sort_by(&mut self, model: &mut Model, column: usize) {
        if column >= self.headings(model).len() {
            return;
        }
        self.sort = match self.sort {
            Some((same, ascending)) if same == column => Some((column, !ascending)),
            _ => Some((column, self.is_text(model, column))),
        };
        self.arrange(model);
    }

    /// Whether a column has names, of which the first is that of the lowest letter.
    fn is_text(&self, model: &mut Model, column: usize) -> bool {
        let first = |sheet: &mut dyn Sheet| Some(sheet.cell(*self.order.first()?, column));
        let cell = self.rows.with(model, &self.ids, first).flatten().unwrap_or(Cell::Empty);
        matches!(cell, Cell::Name(_) | Cell::Place(_) | Cell::Places(..) | Cell::Word(_))
    }

    pub(super) fn headings(&self, model: &mut Model) -> Vec<&'static str> {
        self.rows.with(model, &self.ids, |sheet| sheet.headings()).unwrap_or_default()
    }

    pub(super) fn draw(
        &self,
        model: &mut Model,
        width: usize,
        shown: std::ops::Range<usize>,
    ) -> io::Result<Vec<Row>> {
        let shown = self.order.get(shown).unwrap_or_default();
        let measured: Vec<usize> = self.order.iter().take(MEASURED).chain(shown).copied().collect();
        let mut rows = Vec::new();
        let done = self.rows.with(model, &self.ids, |sheet| {
            sheet.print(&mut Out::rows(width, &mut rows), shown, &measured, self.peak)
        });
        done.unwrap_or(Ok(())).map(|()| rows)
    }
}

/// A cell's value; its text if it has none.
type SortKey = (Option<f64>, String);

/// The order of two cells: the unknown last, in either direction.
fn compare(one: &SortKey, other: &SortKey, ascending: bool) -> Ordering {
    let unknown = |(value, text): &SortKey| value.is_none() && text.len() < 2;
    let both = match (one.0, other.0) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        _ => one.1.cmp(&other.1),
    };
    let both = if ascending { both } else { both.reverse() };
    unknown(one).cmp(&unknown(other)).then(both)
}

/// Whether a line of a text has these letters, in this order.
fn is_in(letters: &str, text: &str) -> bool {
    let letters = letters.to_lowercase();
    text.lines().any(|line| {
        let mut line = line.chars();
        letters.chars().all(|letter| line.any(|c| c == letter))
    })
}
