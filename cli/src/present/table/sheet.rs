//! Rows that are shown a few at a time, in any order.

use std::io;

use maud::Markup;

use super::{Cell, Column, Form, Printer, Table};
use crate::present::out::Out;

/// A table with rows of any type. An index identifies a row.
pub(crate) trait Sheet {
    /// Headings of the columns that people see.
    fn headings(&self) -> Vec<&'static str>;
    /// A row's cell in one of these columns.
    fn cell(&mut self, row: usize, column: usize) -> Cell;
    /// A row's names, places and files, a line each, in lower case.
    fn names(&mut self, row: usize) -> String;
    /// The highest heat value of these rows.
    fn peak(&mut self, rows: &[usize]) -> f64;
    /// Writes headings and rows, in columns that are wide enough for all of `measured`.
    fn print(
        &mut self,
        out: &mut Out<'_>,
        rows: &[usize],
        measured: &[usize],
        peak: f64,
    ) -> io::Result<()>;
    /// Writes rows as the commands do.
    fn write(&mut self, printer: Printer, out: &mut Out<'_>, rows: &[usize]) -> io::Result<()>;
    /// Rows as HTML.
    fn html(&mut self, name: &str, rows: &[usize]) -> Markup;
}

/// A table, and a function that returns the row of an index.
pub(crate) struct Listed<'s, 'a, C: ?Sized, R> {
    pub(crate) table: &'s Table<'a, C, R>,
    pub(crate) context: &'s mut C,
    pub(crate) row: &'s dyn Fn(usize) -> R,
}

impl<C: ?Sized, R> Sheet for Listed<'_, '_, C, R> {
    fn headings(&self) -> Vec<&'static str> {
        let shown = self.table.headers().filter(|header| header.is_for_people());
        shown.map(|header| header.heading).collect()
    }

    fn cell(&mut self, row: usize, column: usize) -> Cell {
        let mut shown = self.table.columns.iter().filter(|column| column.header.is_for_people());
        let column = shown.nth(column);
        column.map_or(Cell::Empty, |column| (column.get)(self.context, &(self.row)(row)))
    }

    fn names(&mut self, row: usize) -> String {
        let row = (self.row)(row);
        let mut text = String::new();
        for Column { header, get } in &self.table.columns {
            if header.form == Form::Name || header.key == "file" {
                let cell = get(self.context, &row);
                let whole = cell.text();
                let (name, file) = match &cell {
                    Cell::Place(place) => (&*whole, place.file.as_deref().unwrap_or_default()),
                    _ if header.key == "file" => ("", &*whole),
                    _ => (&*whole, ""),
                };
                let file = file.rsplit('/').next().unwrap_or_default();
                text.extend([name, "\n", file, "\n"]);
            }
        }
        text.to_lowercase()
    }

    fn peak(&mut self, rows: &[usize]) -> f64 {
        self.table.peak(self.context, rows.iter().map(|row| (self.row)(*row)))
    }

    fn print(
        &mut self,
        out: &mut Out<'_>,
        rows: &[usize],
        measured: &[usize],
        peak: f64,
    ) -> io::Result<()> {
        let measured = measured.iter().map(|row| (self.row)(*row));
        let mut layout = self.table.layout(out, self.context, measured, 0);
        layout.peak = peak;
        layout.headings(out)?;
        let Listed { table, context, row } = self;
        rows.iter().try_for_each(|at| table.write_row(&layout, out, context, &row(*at)))
    }

    fn write(&mut self, printer: Printer, out: &mut Out<'_>, rows: &[usize]) -> io::Result<()> {
        let rows = rows.iter().map(|row| (self.row)(*row));
        self.table.write(printer, out, self.context, rows)
    }

    fn html(&mut self, name: &str, rows: &[usize]) -> Markup {
        self.table.html(name, self.context, rows.iter().map(|row| (self.row)(*row)))
    }
}
