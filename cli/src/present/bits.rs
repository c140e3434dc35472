//! A register drawn: its bits in nibbles, and under each bit the letter of
//! the field to which it belongs.

use std::io::{self, Write};

/// A field as it is drawn.
#[derive(Debug)]
pub(crate) struct Drawn {
    /// The field's name.
    pub(crate) name: String,
    /// Its highest bit.
    pub(crate) high: u8,
    /// Its lowest bit.
    pub(crate) low: u8,
    /// Nobody describes it: drawn as a dot.
    pub(crate) reserved: bool,
    /// Its value; `None` where only the layout is drawn.
    pub(crate) value: Option<u64>,
    /// What the value, or else the field, means.
    pub(crate) meaning: String,
    /// Where that is written.
    pub(crate) source: String,
}

/// Draws a register: the bits where there is a value, the letters, and a line
/// for each field from bit 0 up.
pub(crate) fn draw(out: &mut impl Write, value: Option<u64>, fields: &[Drawn]) -> io::Result<()> {
    let keys = keys(fields);
    writeln!(out, "{}", ruler())?;
    if let Some(value) = value {
        writeln!(out, "{}", nibbles(|bit| if value >> bit & 1 == 0 { '0' } else { '1' }))?;
    }
    let key_of = |bit: u8| {
        let field = fields.iter().position(|f| (f.low..=f.high).contains(&bit));
        field.and_then(|i| keys.get(i)).copied().unwrap_or('.')
    };
    writeln!(out, "{}\n", nibbles(key_of).trim_end())?;

    let places: Vec<String> = fields.iter().map(place).collect();
    let values: Vec<String> = fields.iter().map(value_cell).collect();
    let wide = |cells: &mut dyn Iterator<Item = usize>, heading: &str| {
        cells.max().unwrap_or(0).max(heading.len())
    };
    let place_width = wide(&mut places.iter().map(String::len), "bits");
    let name_width = wide(&mut fields.iter().map(|f| f.name.len()), "field");
    let value_width = match value {
        Some(_) => wide(&mut values.iter().map(String::len), "value") + 2,
        None => 0,
    };
    let meaning_width = wide(&mut fields.iter().map(|f| f.meaning.len()), "meaning").min(96);

    let value_heading = if value.is_some() { "value" } else { "" };
    writeln!(
        out,
        "   {:<place_width$}  {:<name_width$}  {value_heading:<value_width$}{:<meaning_width$}  source",
        "bits", "field", "meaning"
    )?;
    for (((field, key), place), value) in fields.iter().zip(keys).zip(places).zip(values) {
        let source = if field.reserved { "" } else { &field.source };
        let line = format!(
            "{key}  {place:<place_width$}  {:<name_width$}  {value:<value_width$}{:<meaning_width$}  {source}",
            field.name, field.meaning
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A letter for each field, bit 0 having `a`; a dot for reserved ones.
fn keys(fields: &[Drawn]) -> Vec<char> {
    // A register has 64 fields at most; beyond the letters the mark repeats.
    let mut letters = ('a'..='z').chain('A'..='Z').chain(std::iter::repeat('*'));
    let mut key = |field: &Drawn| if field.reserved { None } else { letters.next() };
    fields.iter().map(|field| key(field).unwrap_or('.')).collect()
}

/// Bit 63 to bit 0, a blank between nibbles and a wider one in the middle.
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
    let mut line = String::new();
    for high in (7..64).step_by(8).rev() {
        let width = if high == 39 { 11 } else { 10 };
        line.push_str(&format!("{high:<width$}"));
    }
    line.trim_end().to_owned()
}

fn place(field: &Drawn) -> String {
    if field.high == field.low {
        field.low.to_string()
    } else {
        format!("{}:{}", field.high, field.low)
    }
}

fn value_cell(field: &Drawn) -> String {
    match field.value {
        None => String::new(),
        Some(value) if value < 10 => value.to_string(),
        Some(value) => format!("{value:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ruler_stands_over_its_bits() {
        let (ruler, bits) = (ruler(), nibbles(|bit| if bit % 8 == 7 { 'h' } else { '.' }));
        let numbers: Vec<usize> = ruler
            .char_indices()
            .filter(|(i, c)| *c != ' ' && (*i == 0 || ruler.as_bytes()[i - 1] == b' '))
            .map(|(i, _)| i)
            .collect();
        let highs: Vec<usize> = bits.match_indices('h').map(|(i, _)| i).collect();
        assert_eq!(numbers, highs);
        assert_eq!(highs.len(), 8);
    }
}
