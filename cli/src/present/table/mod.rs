//! Tables: a view declares its columns once; text, JSON Lines, HTML and CSV print them.

mod csv;
mod html;
mod json;
mod sheet;
mod text;

pub(crate) use html::TITLE;
pub(crate) use sheet::{Listed, Sheet};
pub(crate) use text::{Item, write_list};

use std::borrow::Cow;

use anstyle::Style;
use profile::interval::Interval;
use profile::maps::{Location, Maps};
use serde::Serialize;

use super::escape::escaped;
use super::number::{grouped, percent, range, share};
use super::out::{BAD, DOUBTFUL, FAINT, Out};
use super::place::{Part, Place};

/// The content of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// Unknown, which is not zero.
    Absent,
    /// Nothing belongs here.
    Empty,
    /// How many: `1,234`.
    Count(u64),
    /// A number that is not a count, such as a rank: `1234`.
    Number(u64),
    /// A number that may be larger: `>=1234`.
    AtLeast(u64),
    /// A share, 0 to 1: `12.50%`.
    Share(f64),
    /// A number with this many decimals.
    Decimal(f64, usize),
    /// The interval of a share.
    Interval(Interval),
    /// A verdict of lbr, styled.
    Mark(&'static str, Style),
    /// Yes or no.
    Flag(bool),
    /// A fixed word, such as the type of a branch.
    Word(Cow<'static, str>),
    /// Text in place of a value, with the value that it is sorted by.
    Stated(String, Option<f64>),
    /// A name out of a recording, which may be shortened.
    Name(String),
    /// A place in code.
    Place(Box<Place>),
    /// Several locations, and a remark after them.
    Places(Vec<Place>, String),
    /// A nested value, written as JSON.
    Json(Vec<u8>),
}

impl Cell {
    /// A cell, or an absent one.
    pub(crate) fn or_absent<T>(value: Option<T>, cell: impl FnOnce(T) -> Cell) -> Cell {
        value.map_or(Cell::Absent, cell)
    }

    /// A count that may not be known.
    pub(crate) fn count(count: Option<u64>) -> Cell {
        Cell::or_absent(count, Cell::Count)
    }

    /// A number that may not be known.
    pub(crate) fn number(number: Option<impl Into<u64>>) -> Cell {
        Cell::or_absent(number, |number| Cell::Number(number.into()))
    }

    /// A share that may not be known.
    pub(crate) fn share(share: Option<f64>) -> Cell {
        Cell::or_absent(share, Cell::Share)
    }

    /// A number with decimals that may not be known.
    pub(crate) fn decimal(number: Option<f64>, digits: usize) -> Cell {
        Cell::or_absent(number, |number| Cell::Decimal(number, digits))
    }

    /// A misprediction rate, if known. If no misprediction was seen, the true rate is unknown: null
    /// in JSON.
    pub(crate) fn mispredicts(missed: Option<u64>, known: u64) -> Cell {
        match missed {
            Some(0) => Cell::Stated("0%".to_owned(), None),
            missed => Cell::share(missed.and_then(|missed| share(missed, known))),
        }
    }

    /// An interval, if known.
    pub(crate) fn interval(interval: Option<Interval>) -> Cell {
        Cell::or_absent(interval, Cell::Interval)
    }

    /// A word, if known.
    pub(crate) fn word(word: Option<impl Into<Cow<'static, str>>>) -> Cell {
        Cell::or_absent(word, |word| Cell::Word(word.into()))
    }

    /// A name, if known.
    pub(crate) fn name(name: Option<impl Into<String>>) -> Cell {
        Cell::or_absent(name, |name| Cell::Name(name.into()))
    }

    /// The whole text, for people.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Cell::Absent => "-".into(),
            Cell::Empty | Cell::Json(_) => "".into(),
            Cell::Count(count) => grouped(*count).into(),
            Cell::Number(number) => number.to_string().into(),
            Cell::AtLeast(number) => format!(">={number}").into(),
            Cell::Share(share) => percent(*share).into(),
            Cell::Decimal(number, digits) => format!("{number:.digits$}").into(),
            Cell::Interval(interval) => range(*interval).into(),
            Cell::Flag(flag) => if *flag { "yes" } else { "no" }.into(),
            Cell::Word(word) => escaped(word),
            Cell::Mark(word, _) => (*word).into(),
            Cell::Stated(text, _) | Cell::Name(text) => escaped(text),
            Cell::Place(place) => place.to_string().into(),
            Cell::Places(places, behind) => {
                let places: Vec<String> = places.iter().map(Place::to_string).collect();
                (places.join(", ") + behind).into()
            }
        }
    }

    /// The number in it, for heat and for sorting.
    pub(crate) fn value(&self) -> Option<f64> {
        match self {
            Cell::Count(number) | Cell::Number(number) | Cell::AtLeast(number) => {
                Some(*number as f64)
            }
            Cell::Share(number) | Cell::Decimal(number, _) => Some(*number),
            Cell::Interval(Interval { low, .. }) => Some(*low),
            Cell::Stated(_, number) => *number,
            _ => None,
        }
    }
}

/// Alignment of a column's cells, and how they are shortened on a terminal; or how programs get
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Numbers: to the right, never cut.
    Right,
    /// Fixed words: left-aligned, never truncated.
    Left,
    /// Names and locations, in the last columns: truncated in the middle.
    Name,
    /// Sentences, in the last column: folded into lines.
    Prose,
    /// The same value in every row; CSV omits it.
    Constant,
    /// More than one value; CSV omits it.
    Nested,
}

/// Computes a cell from a row; `C` looks up symbols.
type Get<'a, C, R> = Box<dyn Fn(&mut C, &R) -> Cell + 'a>;

/// A column, declared once.
struct Column<'a, C: ?Sized, R> {
    header: Header,
    get: Get<'a, C, R>,
}

/// A column without its cells.
struct Header {
    /// Its key for programs; empty if only for people.
    key: &'static str,
    /// Its heading for people; empty if only for programs.
    heading: &'static str,
    form: Form,
    /// The keys of a location, or of both ends of an interval, for programs.
    parts: &'static [Part],
    /// The text between this column and the previous one, in place of a gap.
    joint: Option<&'static str>,
    /// Drop priority on a narrow terminal, the highest first; 0 stays.
    spare: u8,
    /// The heat of a row is its value.
    heat: bool,
    /// Minimum width, for rows that are printed before all are known.
    least: usize,
}

impl Header {
    fn is_for_people(&self) -> bool {
        !self.heading.is_empty()
    }

    fn is_elastic(&self) -> bool {
        matches!(self.form, Form::Name | Form::Prose)
    }

    /// The members of its cells, by their keys. A key `low|high` is that of the
    /// two ends of an interval.
    fn members(&self) -> Vec<(String, Of)> {
        let key = self.key;
        match key.split_once('|') {
            _ if key.is_empty() => Vec::new(),
            Some((low, high)) => vec![(low.to_owned(), Of::Low), (high.to_owned(), Of::High)],
            None if self.parts.is_empty() => vec![(key.to_owned(), Of::Whole)],
            None => {
                let part = |part: &Part| (format!("{key}{}", part.suffix()), Of::Part(*part));
                self.parts.iter().map(part).collect()
            }
        }
    }
}

/// A row and its index: the rank follows from it.
pub(crate) type Ranked<'a, T> = (usize, &'a T);

/// The columns of a table. Those of names and sentences come last.
pub(crate) struct Table<'a, C: ?Sized, R> {
    columns: Vec<Column<'a, C, R>>,
}

impl<'a, C: ?Sized, R> Table<'a, C, R> {
    /// A table without columns.
    pub(crate) const fn new() -> Self {
        Table { columns: Vec::new() }
    }

    fn with(
        mut self,
        (key, heading): (&'static str, &'static str),
        form: Form,
        get: impl Fn(&mut C, &R) -> Cell + 'a,
    ) -> Self {
        let (parts, joint, spare, heat, least) = (&[], None, 0, false, 0);
        let header = Header { key, heading, form, parts, joint, spare, heat, least };
        self.columns.push(Column { header, get: Box::new(get) });
        self
    }

    /// A column of numbers.
    pub(crate) fn number(
        self,
        key: &'static str,
        heading: &'static str,
        get: impl Fn(&mut C, &R) -> Cell + 'a,
    ) -> Self {
        self.with((key, heading), Form::Right, get)
    }

    /// A column of fixed words.
    pub(crate) fn word(
        self,
        key: &'static str,
        heading: &'static str,
        get: impl Fn(&mut C, &R) -> Cell + 'a,
    ) -> Self {
        self.with((key, heading), Form::Left, get)
    }

    /// A column of names out of a recording.
    pub(crate) fn name(
        self,
        key: &'static str,
        heading: &'static str,
        get: impl Fn(&mut C, &R) -> Cell + 'a,
    ) -> Self {
        self.with((key, heading), Form::Name, get)
    }

    /// A column of locations; JSON and CSV get these parts.
    pub(crate) fn place(
        self,
        key: &'static str,
        heading: &'static str,
        parts: &'static [Part],
        get: impl Fn(&mut C, &R) -> Option<Place> + 'a,
    ) -> Self {
        let get = move |context: &mut C, row: &R| {
            Cell::or_absent(get(context, row), |place| Cell::Place(Box::new(place)))
        };
        self.name(key, heading, get).last(|header| header.parts = parts)
    }

    /// A column of sentences.
    pub(crate) fn prose(
        self,
        key: &'static str,
        heading: &'static str,
        get: impl Fn(&mut C, &R) -> Cell + 'a,
    ) -> Self {
        self.with((key, heading), Form::Prose, get)
    }

    /// A column for JSON and CSV alone.
    pub(crate) fn only(self, key: &'static str, get: impl Fn(&mut C, &R) -> Cell + 'a) -> Self {
        self.with((key, ""), Form::Right, get)
    }

    /// A nested value, for JSON alone.
    pub(crate) fn nested<V: Serialize>(
        self,
        key: &'static str,
        get: impl Fn(&mut C, &R) -> V + 'a,
    ) -> Self {
        self.with((key, ""), Form::Nested, move |context, row| {
            let mut json = Vec::new();
            // Writing to a Vec cannot fail.
            let _ = super::json::write(&mut json, &get(context, row));
            Cell::Json(json)
        })
    }

    /// The same word in every row, for JSON alone.
    pub(crate) fn constant(self, key: &'static str, word: &'static str) -> Self {
        self.with((key, ""), Form::Constant, move |_, _| Cell::Word(word.into()))
    }

    /// Joins the last column to the previous one.
    pub(crate) fn behind(self, joint: &'static str) -> Self {
        self.last(|header| header.joint = Some(joint))
    }

    /// Lets the columns with these headings be dropped on a narrow terminal, the first one first; a
    /// table may lack some of them.
    pub(crate) fn spares(mut self, headings: &[&str]) -> Self {
        for (spare, heading) in (1..).zip(headings.iter().rev()) {
            let named = self.columns.iter_mut().filter(|column| column.header.heading == *heading);
            named.for_each(|column| column.header.spare = spare);
        }
        self
    }

    /// Minimum width of the last column, for rows that are printed before all are known.
    pub(crate) fn least(self, least: usize) -> Self {
        self.last(|header| header.least = least)
    }

    /// Uses the last column as the heat of the row.
    pub(crate) fn heat(self) -> Self {
        self.last(|header| header.heat = true)
    }

    fn last(mut self, change: impl FnOnce(&mut Header)) -> Self {
        if let Some(column) = self.columns.last_mut() {
            change(&mut column.header);
        }
        self
    }
}

impl<'a, C: ?Sized, T> Table<'a, C, Ranked<'a, T>> {
    /// A table of a view, whose rows are numbered from 1.
    pub(crate) fn ranked(view: &'static str) -> Self {
        let rank = |_: &mut C, (at, _): &Ranked<'a, T>| Cell::Number(*at as u64 + 1);
        Table::new().constant("view", view).number("rank", "rank", rank)
    }
}

impl<'a, R> Table<'a, Maps, R> {
    /// A column of locations, each with its address.
    pub(crate) fn location(
        self,
        key: &'static str,
        heading: &'static str,
        parts: &'static [Part],
        at: impl Fn(&R) -> (Location, u64) + 'a,
    ) -> Self {
        self.place(key, heading, parts, move |maps, row| {
            let (location, address) = at(row);
            Some(Place::of(maps, location, address))
        })
    }
}

/// How hot a row is, compared with the hottest.
pub(crate) struct Heat {
    /// Its class in a page.
    pub(crate) name: &'static str,
    /// Its style on a terminal.
    pub(crate) style: Style,
}

impl Heat {
    /// The heat of a value, compared with the peak: hot from half of it, warm from a tenth, cool
    /// above zero, cold if zero or unknown.
    pub(crate) fn of(value: Option<f64>, peak: f64) -> Heat {
        let (name, style) = match value {
            Some(value) if value > 0.0 && value * 2.0 >= peak => ("hot", BAD),
            Some(value) if value > 0.0 && value * 10.0 >= peak => ("warm", DOUBTFUL),
            Some(value) if value > 0.0 => ("cool", Style::new()),
            _ => ("cold", FAINT),
        };
        Heat { name, style }
    }
}

/// A member of a row's JSON object.
struct Member {
    key: String,
    /// Index of its column.
    column: usize,
    of: Of,
}

/// Which part of a cell a member is.
#[derive(Clone, Copy)]
enum Of {
    Whole,
    Part(Part),
    Low,
    High,
}

impl<C: ?Sized, R> Table<'_, C, R> {
    fn headers(&self) -> impl Iterator<Item = &Header> {
        self.columns.iter().map(|column| &column.header)
    }

    /// The members of a row as an object.
    fn members(&self) -> impl Iterator<Item = Member> {
        self.headers().enumerate().flat_map(|(column, header)| {
            header.members().into_iter().map(move |(key, of)| Member { key, column, of })
        })
    }

    /// The columns for programs.
    fn keyed(&self) -> Vec<bool> {
        self.headers().map(|header| !header.key.is_empty()).collect()
    }

    /// A row's cells; those of other columns than the wanted ones are empty.
    fn cells(&self, context: &mut C, row: &R, wanted: &[bool]) -> Vec<Cell> {
        let cell = |(column, wanted): (&Column<'_, C, R>, &bool)| match wanted {
            true => (column.get)(context, row),
            false => Cell::Empty,
        };
        self.columns.iter().zip(wanted).map(cell).collect()
    }

    /// Writes every row.
    pub(crate) fn write(
        &self,
        printer: Printer,
        out: &mut Out<'_>,
        context: &mut C,
        rows: impl Iterator<Item = R> + Clone,
    ) -> std::io::Result<()> {
        match printer {
            Printer::Text => self.write_text(out, context, rows),
            Printer::Json => self.write_json(out, context, rows),
            Printer::Csv => self.write_csv(out, context, rows),
        }
    }
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printer {
    /// A table for people, with a summary.
    Text,
    Json,
    Csv,
}

impl Printer {
    /// Chosen by `--json` and `--csv`.
    pub(crate) const fn of(json: bool, csv: bool) -> Printer {
        match (json, csv) {
            (true, _) => Printer::Json,
            (_, true) => Printer::Csv,
            _ => Printer::Text,
        }
    }
}
