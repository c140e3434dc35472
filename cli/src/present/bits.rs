//! A register drawn: its bits in nibbles, and under each bit the letter of
//! the field to which it belongs. As SVG, for slides and pages, each bit is a box.

use std::io;

use maud::{Markup, html};
use serde::Serialize;

use super::out::{Out, folded};
use super::table::{Cell, Table};

/// A field as it is drawn.
#[derive(Debug, Serialize)]
pub(crate) struct Drawn {
    pub(crate) name: String,
    pub(crate) high: u8,
    pub(crate) low: u8,
    /// Undocumented: drawn as a dot.
    #[serde(skip)]
    pub(crate) reserved: bool,
    /// Its value; `None` if only the layout is drawn.
    pub(crate) value: Option<u64>,
    /// The meaning of the value, or of the field.
    pub(crate) meaning: String,
    pub(crate) source: String,
    /// The named values, if only the layout is drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) codes: Vec<CodeLegend>,
}

/// A value of a field, or a range of values, and its meaning.
#[derive(Debug, Serialize)]
pub(crate) struct CodeLegend {
    /// The value in decimal, or `first to last`.
    pub(crate) value: String,
    pub(crate) meaning: String,
}

/// A row of the table below the drawing: the field's letter, bits, name, value and meaning.
type FieldRow = [String; 5];

/// Draws a register: its bits if it has a value, the letters, a row for each field from bit 0 up,
/// and the sources that are not the register's own, each once.
pub(crate) fn draw(
    out: &mut Out<'_>,
    value: Option<u64>,
    fields: &[Drawn],
    source: &str,
) -> io::Result<()> {
    let keys = keys(fields);
    out.line(ruler())?;
    if let Some(value) = value {
        out.line(nibbles(|bit| if value >> bit & 1 == 0 { '0' } else { '1' }))?;
    }
    let key_of = |bit: u8| field_of(fields, &keys, bit).map_or('.', |(_, key)| key);
    out.line(nibbles(key_of).trim_end())?;
    out.gap()?;
    table(value.is_some()).write_text(out, &mut (), all_rows(fields))?;
    for (source, letters) in sources(fields, &keys, source) {
        out.line(format_args!("{letters}: {source}"))?;
    }
    Ok(())
}

/// The fields that other sources than the register's describe, by source: `a, d-h`.
fn sources<'a>(fields: &'a [Drawn], keys: &[char], own: &str) -> Vec<(&'a str, String)> {
    let mut found: Vec<(&str, Vec<(char, char)>)> = Vec::new();
    let is_other = |field: &Drawn| !field.reserved && field.source != own;
    for (field, &key) in fields.iter().zip(keys).filter(|(field, _)| is_other(field)) {
        match found.iter_mut().find(|(source, _)| *source == field.source) {
            None => found.push((&field.source, vec![(key, key)])),
            Some((_, spans)) => match spans.last_mut() {
                Some((_, last)) if *last as u32 + 1 == key as u32 => *last = key,
                _ => spans.push((key, key)),
            },
        }
    }
    let span = |(first, last): &(char, char)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let joined = |spans: Vec<(char, char)>| spans.iter().map(span).collect::<Vec<_>>().join(", ");
    found.into_iter().map(|(source, spans)| (source, joined(spans))).collect()
}

/// The fields of a register, with their values if it has one.
fn table<'a>(valued: bool) -> Table<'a, (), FieldRow> {
    let cell = |at: usize| move |(): &mut (), row: &FieldRow| Cell::Word(row[at].clone().into());
    let table = Table::new().word("", " ", cell(0)).word("", "bits", cell(1));
    let table =
        table.word("", "field", cell(2)).word("", if valued { "value" } else { "" }, cell(3));
    table.prose("", "meaning", cell(4))
}

fn all_rows(fields: &[Drawn]) -> impl Iterator<Item = FieldRow> + Clone {
    let rows: Vec<FieldRow> = keys(fields).into_iter().zip(fields).flat_map(rows).collect();
    rows.into_iter()
}

/// The field of a bit, and its letter.
fn field_of<'a>(fields: &'a [Drawn], keys: &[char], bit: u8) -> Option<(&'a Drawn, char)> {
    let at = fields.iter().position(|field| (field.low..=field.high).contains(&bit))?;
    Some((fields.get(at)?, *keys.get(at)?))
}

/// The row of a field, and one for each of its named values.
fn rows((key, field): (char, &Drawn)) -> Vec<FieldRow> {
    let (name, meaning) = (field.name.clone(), field.meaning.clone());
    let row = [key.to_string(), place(field), name, value_cell(field), meaning];
    let code = |code: &CodeLegend| {
        [" ", "", "", "", &format!("{} = {}", code.value, code.meaning)].map(str::to_owned)
    };
    std::iter::once(row).chain(field.codes.iter().map(code)).collect()
}

/// A letter for each field, starting with `a` at bit 0; a dot for reserved ones.
fn keys(fields: &[Drawn]) -> Vec<char> {
    // A register has 64 fields at most; beyond the letters the mark repeats.
    let mut letters = ('a'..='z').chain('A'..='Z').chain(std::iter::repeat('*'));
    let mut key = |field: &Drawn| if field.reserved { None } else { letters.next() };
    fields.iter().map(|field| key(field).unwrap_or('.')).collect()
}

/// Bit 63 to bit 0, a space between nibbles and a wider gap in the middle.
fn nibbles(mut digit: impl FnMut(u8) -> char) -> String {
    let mut line = String::new();
    for bit in (0..64).rev() {
        line.push(digit(bit));
        match bit {
            0 => {}
            32 => line.push_str("  "),
            bit if bit % 4 == 0 => line.push(' '),
            _ => {}
        }
    }
    line
}

/// The number of the highest bit of each byte, above it.
fn ruler() -> String {
    let number = |high| if high == 39 { format!("{high:<11}") } else { format!("{high:<10}") };
    (7..64).step_by(8).rev().map(number).collect::<String>().trim_end().to_owned()
}

fn place(Drawn { high, low, .. }: &Drawn) -> String {
    if high == low { low.to_string() } else { format!("{high}:{low}") }
}

fn value_cell(field: &Drawn) -> String {
    match field.value {
        None => String::new(),
        Some(value) if value < 10 => value.to_string(),
        Some(value) => format!("{value:#x}"),
    }
}

/// Size of the box of a bit, and of the space around the drawing.
const BOX: u32 = 34;
const MARGIN: u32 = 36;
const WIDTH: u32 = 32 * BOX + 2 * MARGIN;
/// From one line of text to the next.
const LINE: u32 = 22;
/// From one row of 32 bits to the next.
const ROW: u32 = 88;
/// Characters of a meaning that fit next to the names.
const MEANING: usize = 77;
/// Characters of a line over the full width of the drawing.
const WHOLE: usize = 118;
/// The tints of neighboring fields.
const TINTS: [&str; 2] = ["#54AEFF", "#D4A72C"];

/// A register as an SVG document: its title, its bits, and a list of its fields.
pub(crate) fn svg(title: &str, below: &[&str], value: Option<u64>, fields: &[Drawn]) -> String {
    let below: Vec<String> = below.iter().flat_map(|line| folded(line, Some(WHOLE), 2)).collect();
    let mut lines: Vec<[String; 5]> = Vec::new();
    for mut line in all_rows(fields) {
        for meaning in folded(&std::mem::take(&mut line[4]), Some(MEANING), 0) {
            line[4] = meaning;
            lines.push(std::mem::take(&mut line));
        }
    }
    let top = 70 + below.len() as u32 * LINE;
    let list = top + 2 * ROW + LINE;
    let height = list + lines.len() as u32 * LINE + MARGIN / 2;
    let content = html! {
        (text(MARGIN, 36, "22", title))
        @for (at, line) in (0..).zip(&below) { (text(MARGIN, 62 + at * LINE, "15", line)) }
        (boxes(top, value, fields))
        @for (at, line) in (0..).zip(&lines) {
            @for (x, cell) in [0, 26, 90, 290, 450].into_iter().zip(line) {
                @if !cell.is_empty() { (text(MARGIN + x, list + at * LINE, "14", cell)) }
            }
        }
    };
    document(height, &content).into_string()
}

/// The same for a page: the bits as a picture, the fields as a table.
pub(crate) fn markup(name: &str, value: Option<u64>, fields: &[Drawn]) -> Markup {
    html! {
        figure.chart { (document(2 * ROW + 30, &boxes(30, value, fields))) }
        (table(value.is_some()).html(name, &mut (), all_rows(fields)))
    }
}

fn document(height: u32, content: &Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" width=(WIDTH) height=(height)
            viewBox={ "0 0 " (WIDTH) " " (height) } font-family="ui-monospace, 'DejaVu Sans Mono', monospace" {
            rect width=(WIDTH) height=(height) fill="#FFFFFF" {}
            (content)
        }
    }
}

fn text(x: u32, y: u32, size: &str, words: &str) -> Markup {
    html! { text x=(x) y=(y) font-size=(size) fill="#1F2328" style="white-space: pre" { (words) } }
}

/// Bits 63 to 32 above bits 31 to 0, each over the letter of its field.
fn boxes(top: u32, value: Option<u64>, fields: &[Drawn]) -> Markup {
    let keys = keys(fields);
    let described: Vec<u8> =
        fields.iter().filter(|field| !field.reserved).map(|field| field.low).collect();
    html! {
        @for bit in (0..64u8).rev() {
            @let x = MARGIN + u32::from(31 - bit % 32) * BOX;
            @let y = top + if bit < 32 { ROW } else { 0 };
            @let (field, key) = field_of(fields, &keys, bit).map_or((None, '.'), |(field, key)| (Some(field), key));
            @let tint = field.and_then(|field| described.iter().position(|low| *low == field.low));
            rect x=(x) y=(y) width=(BOX) height=(BOX) stroke="#D0D7DE"
                fill=(tint.map_or("#FFFFFF", |at| TINTS[at % TINTS.len()]))
                fill-opacity=(if tint.is_some() { "0.35" } else { "1" }) {}
            text x=(x + BOX / 2) y=(y - 5) font-size="10" fill="#1F2328" text-anchor="middle" { (bit) }
            @if let Some(value) = value {
                text x=(x + BOX / 2) y=(y + 23) font-size="17" fill="#1F2328" text-anchor="middle" { (value >> bit & 1) }
            }
            text x=(x + BOX / 2) y=(y + BOX + 17) font-size="14" fill="#1F2328" text-anchor="middle" { (key) }
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/bits.rs"]
mod tests;
