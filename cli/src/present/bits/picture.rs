//! The drawing as SVG, for slides and pages: a box for each bit.

use maud::{Markup, html};

use super::{Drawn, all_rows, field_of, keys, table};
use crate::present::out::folded;

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
    for row in all_rows(fields) {
        let mut line = [row.key.to_string(), row.place, row.name, row.value, String::new()];
        for meaning in folded(&row.meaning, Some(MEANING), 0) {
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
