//! Tables: a view declares its columns once, and text, JSON Lines, HTML and CSV
//! are printers of that.

mod csv;
mod html;
mod json;
mod text;

pub(crate) use text::{Item, write_list};

use std::borrow::Cow;

use anstyle::Style;
use profile::interval::Interval;
use serde::Serialize;

use super::escape::escaped;
use super::number::{grouped, percent, range};
use super::out::Out;
use super::place::{Part, Place};

/// What stands in a column of a row.
#[derive(Debug)]
pub(crate) enum Cell {
    /// Nobody knows it: no zero.
    Absent,
    /// Nothing belongs here.
    Empty,
    /// How many: `1,234`.
    Count(u64),
    /// A number that is no count of things, such as a rank: `1234`.
    Number(u64),
    /// A share, 0 to 1: `12.50%`.
    Share(f64),
    /// A number with so many digits behind the point.
    Decimal(f64, usize),
    /// From where to where a share may lie.
    Interval(Interval),
    /// A verdict of ours in a look of its own.
    Mark(&'static str, Style),
    /// Yes or no.
    Flag(bool),
    /// A word of ours, such as the type of a branch.
    Word(Cow<'static, str>),
    /// Text in place of a value, with the value that it is sorted by.
    Stated(String, Option<f64>),
    /// A name out of a recording, which may be shortened.
    Name(String),
    /// A place in code.
    Place(Box<Place>),
    /// Several, and what is said behind them.
    Places(Vec<Place>, String),
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

    /// An interval, where there is one.
    pub(crate) fn interval(interval: Option<Interval>) -> Cell {
        Cell::or_absent(interval, Cell::Interval)
    }

    /// A word, where there is one.
    pub(crate) fn word(word: Option<impl Into<Cow<'static, str>>>) -> Cell {
        Cell::or_absent(word, |word| Cell::Word(word.into()))
    }

    /// As people read it, whole.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Cell::Absent => "-".into(),
            Cell::Empty => "".into(),
            Cell::Count(count) => grouped(*count).into(),
            Cell::Number(number) => number.to_string().into(),
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
    fn value(&self) -> Option<f64> {
        match self {
            Cell::Count(number) | Cell::Number(number) => Some(*number as f64),
            Cell::Share(number) | Cell::Decimal(number, _) => Some(*number),
            Cell::Interval(Interval { low, .. }) => Some(*low),
            Cell::Stated(_, number) => *number,
            _ => None,
        }
    }
}

/// Where a column's cells stand, and what becomes of them where a terminal has
/// no room; or how programs get them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Numbers: to the right, never cut.
    Right,
    /// Words of ours: to the left, never cut.
    Left,
    /// Names and places, behind everything else: their middle goes.
    Name,
    /// Sentences, behind everything else: in several lines.
    Prose,
    /// The same in every row: CSV leaves it out.
    Constant,
    /// More than one value: CSV leaves it out.
    Nested,
}

/// How a column's cells are made of the row; `C` is where names are looked up.
type Get<'a, C, R> = Box<dyn Fn(&mut C, &R) -> Cell + 'a>;

/// How more than one value is made of the row: JSON, behind what is there.
type Nested<'a, C, R> = Box<dyn Fn(&mut C, &R, &mut Vec<u8>) + 'a>;

/// A column, declared once.
pub(crate) struct Column<'a, C: ?Sized, R> {
    /// Its key for programs; empty for what only people read.
    key: &'static str,
    /// Its heading for people; empty for what only programs read.
    heading: &'static str,
    form: Form,
    /// What of a place, or the two ends of an interval, programs get.
    parts: &'static [Part],
    /// What stands between it and the column before, in place of a gap.
    joint: Option<&'static str>,
    /// How soon it goes where there is no room, the highest first; 0 stays.
    spare: u8,
    /// Rows are hot by it.
    heat: bool,
    /// Cells that it takes at least, where rows come one by one.
    least: usize,
    get: Get<'a, C, R>,
    /// In place of cells, for programs.
    nested: Option<Nested<'a, C, R>>,
}

impl<C: ?Sized, R> Column<'_, C, R> {
    fn is_for_people(&self) -> bool {
        !self.heading.is_empty()
    }

    fn is_elastic(&self) -> bool {
        matches!(self.form, Form::Name | Form::Prose)
    }
}

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
        let (parts, joint, spare, heat, least, nested) = (&[], None, 0, false, 0, None);
        let get = Box::new(get);
        let column = Column { key, heading, form, parts, joint, spare, heat, least, get, nested };
        self.columns.push(column);
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

    /// A column of words of ours.
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

    /// A column of places, of which programs get these parts.
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
        self.name(key, heading, get).last(|column| column.parts = parts)
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

    /// What only programs read.
    pub(crate) fn only(self, key: &'static str, get: impl Fn(&mut C, &R) -> Cell + 'a) -> Self {
        self.with((key, ""), Form::Right, get)
    }

    /// What programs read of more than one value.
    pub(crate) fn nested<V: Serialize>(
        self,
        key: &'static str,
        get: impl Fn(&mut C, &R) -> V + 'a,
    ) -> Self {
        let write = move |context: &mut C, row: &R, json: &mut Vec<u8>| {
            // A vector takes whatever is written to it.
            let _ = super::json::write(json, &get(context, row));
        };
        let column = self.with((key, ""), Form::Nested, |_, _| Cell::Empty);
        column.last(|column| column.nested = Some(Box::new(write)))
    }

    /// The same in every row, for programs.
    pub(crate) fn constant(self, key: &'static str, word: &'static str) -> Self {
        self.with((key, ""), Form::Constant, move |_, _| Cell::Word(word.into()))
    }

    /// The last column stands right behind the one before.
    pub(crate) fn behind(self, joint: &'static str) -> Self {
        self.last(|column| column.joint = Some(joint))
    }

    /// The last column goes where there is no room, before those that are needed
    /// more.
    pub(crate) fn spare(self, spare: u8) -> Self {
        self.last(|column| column.spare = spare)
    }

    /// The last column takes so many cells, which nobody measures where rows come
    /// one by one.
    pub(crate) fn least(self, least: usize) -> Self {
        self.last(|column| column.least = least)
    }

    /// The last column says how hot a row is.
    pub(crate) fn heat(self) -> Self {
        self.last(|column| column.heat = true)
    }

    fn last(mut self, change: impl FnOnce(&mut Column<'a, C, R>)) -> Self {
        if let Some(column) = self.columns.last_mut() {
            change(column);
        }
        self
    }
}

/// How hot a row is, beside the hottest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heat {
    /// At least half as much as the hottest.
    Hot,
    /// At least a tenth.
    Warm,
    /// Less.
    Cool,
    /// Nothing, or not that anybody knows.
    Cold,
}

impl Heat {
    /// Of a value beside the highest one.
    pub(crate) fn of(value: Option<f64>, peak: f64) -> Heat {
        match value {
            Some(value) if value > 0.0 && value * 2.0 >= peak => Heat::Hot,
            Some(value) if value > 0.0 && value * 10.0 >= peak => Heat::Warm,
            Some(value) if value > 0.0 => Heat::Cool,
            _ => Heat::Cold,
        }
    }

    /// Its name in a page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Heat::Hot => "hot",
            Heat::Warm => "warm",
            Heat::Cool => "cool",
            Heat::Cold => "cold",
        }
    }

    /// Its look on a terminal.
    pub(crate) const fn style(self) -> anstyle::Style {
        use anstyle::AnsiColor::{Red, Yellow};
        match self {
            Heat::Hot => Red.on_default().bold(),
            Heat::Warm => Yellow.on_default(),
            Heat::Cool => anstyle::Style::new(),
            Heat::Cold => anstyle::Style::new().dimmed(),
        }
    }
}

/// A member of the object that a row is for programs.
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

impl<C: ?Sized, R> Column<'_, C, R> {
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

impl<C: ?Sized, R> Table<'_, C, R> {
    fn members(&self) -> impl Iterator<Item = Member> {
        let columns = self.columns.iter().enumerate();
        columns.flat_map(|(column, declared)| {
            let members = declared.members().into_iter();
            members.map(move |(key, of)| Member { key, column, of })
        })
    }

    /// What programs read of a row, column by column.
    fn cells(&self, context: &mut C, row: &R) -> Vec<Cell> {
        let cell = |column: &Column<'_, C, R>| match column.key {
            "" => Cell::Empty,
            _ => (column.get)(context, row),
        };
        self.columns.iter().map(cell).collect()
    }
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Printer {
    /// For people, with what is said of the whole.
    Text,
    /// JSON Lines.
    Json,
    /// Comma-separated values.
    Csv,
}

impl Printer {
    /// As the arguments `--json` and `--csv` say.
    pub(crate) const fn of(json: bool, csv: bool) -> Printer {
        match (json, csv) {
            (true, _) => Printer::Json,
            (_, true) => Printer::Csv,
            _ => Printer::Text,
        }
    }
}

impl<C: ?Sized, R> Table<'_, C, R> {
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
