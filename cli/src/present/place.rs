//! A location in code, as every output prints it.

use std::fmt;

use profile::lines::{Frame, SourceLine};
use profile::maps::{Location, Maps, Named};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::escape::escaped;
use super::out::cells;
use super::shorten::{shortened, without_middle};

/// A code location: its symbol, file, line, and inlined functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// A word printed before it.
    before: &'static str,
    /// The previous location in the row is in the same function.
    same_function: bool,
    /// Its address; `None` if it was recorded as a symbol.
    pub(crate) address: Option<u64>,
    /// The symbol that covers it, and the bytes from its start.
    pub(crate) symbol: Option<Named>,
    /// Its file, as recorded.
    pub(crate) file: Option<String>,
    /// The index of the file among those of the recording.
    file_index: Option<usize>,
    /// Its offset in the file, if known.
    file_offset: Option<u64>,
    /// The functions that it belongs to, from the innermost on.
    frames: Vec<Frame>,
}

/// The JSON keys of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The address: the bare key.
    Address,
    /// `_symbol`
    Symbol,
    /// `_offset`, in the symbol; without a symbol in the file
    Offset,
    /// `_file`
    File,
    /// `_line`
    Line,
    /// `_inlines`: from the innermost function to the outermost, each with its line; null if
    /// nothing was inlined.
    Inlines,
}

impl Part {
    /// Every part.
    pub(crate) const ALL: &'static [Part] =
        &[Part::Address, Part::Symbol, Part::Offset, Part::File, Part::Line, Part::Inlines];
    /// The keys of a location without its source.
    pub(crate) const NAMES: &'static [Part] = &[Part::Address, Part::Symbol, Part::Offset];

    /// The suffix of the location's key.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Part::Address => "",
            Part::Symbol => "_symbol",
            Part::Offset => "_offset",
            Part::File => "_file",
            Part::Line => "_line",
            Part::Inlines => "_inlines",
        }
    }
}

/// The anchor of an address on an HTML page.
pub(crate) fn anchor(file_index: usize, address: u64) -> String {
    format!("{file_index}:{address:x}")
}

impl Place {
    /// The location of an address, as an analysis found it.
    pub(crate) fn of(maps: &mut Maps, location: Location, addr: u64) -> Place {
        let file = maps.path_of(location).map(str::to_owned);
        Place {
            before: "",
            same_function: false,
            address: maps.address_of(location, addr),
            symbol: maps.name(location),
            file_index: location.file(),
            file_offset: maps.file_offset(location),
            file,
            frames: maps.frames(location),
        }
    }

    /// The anchor of its code on an HTML page, if it has a symbol.
    pub(crate) fn anchor(&self) -> Option<String> {
        self.symbol.as_ref()?;
        Some(anchor(self.file_index?, self.address?))
    }

    /// Returns it without its line and inlined functions.
    pub(crate) fn bare(self) -> Place {
        Place { frames: Vec::new(), ..self }
    }

    /// Returns it with a word printed before it.
    pub(crate) fn after(self, before: &'static str) -> Place {
        Place { before, ..self }
    }

    /// Reached from `from`, such as a branch's target: text omits the function if it is the same.
    pub(crate) fn reached_from(self, maps: &mut Maps, from: Location) -> Place {
        let function = maps.name(from).map(|named| named.name);
        let own = self.symbol.as_ref().map(|symbol| &symbol.name);
        let same_function =
            own.is_some() && own == function.as_ref() && self.file.as_deref() == maps.path_of(from);
        Place { same_function, ..self }
    }

    /// The text in a table: `+0x20 (foo.c:12)` in the function of the previous location.
    pub(crate) fn cell(&self) -> String {
        self.text(str::to_owned, !self.same_function, true)
    }

    fn line(&self) -> Option<&SourceLine> {
        self.frames.first()?.source.as_ref()
    }

    /// The location for people, with a function that shortens names: symbol or file with offset,
    /// `foo+0x1a`, otherwise the address; then the line if known, `foo+0x1a (foo.c:12)`. Without its
    /// function, a symbol is its offset.
    fn text(
        &self,
        name: impl Fn(&str) -> String,
        with_function: bool,
        with_inlined: bool,
    ) -> String {
        let before = self.before;
        let mut text = match &self.symbol {
            Some(Named { offset, .. }) if !with_function => format!("{before}+{offset:#x}"),
            Some(Named { name: symbol, offset }) => {
                format!("{before}{}+{offset:#x}", name(&escaped(symbol)))
            }
            None => {
                let address = self.address.map(|address| format!("{address:#x}"));
                let address = address.unwrap_or_else(|| "[unknown]".to_owned());
                let file = self.file.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
                match (file, self.file_offset) {
                    (Some("[unknown]") | None, _) => format!("{before}{address}"),
                    // An address may be that of one process among many.
                    (Some(file), Some(offset)) => {
                        format!("{before}{}+{offset:#x}", name(&escaped(file)))
                    }
                    (Some(file), None) => format!("{before}{address} ({})", name(&escaped(file))),
                }
            }
        };
        let Some(line) = self.line() else { return text };
        text += &format!(" ({}:{}", escaped(line.file_name()), line.line);
        let function = self.frames.first().and_then(|frame| frame.function.as_deref());
        if let Some(function) = function.filter(|_| with_inlined && self.frames.len() > 1) {
            text += &format!(" {}, inlined", name(&escaped(function)));
        }
        text.push(')');
        text
    }

    /// The location in `room` cells: inlining is omitted first, then parts of the name, then the
    /// line; the offset stays.
    pub(crate) fn within(&self, room: usize) -> String {
        let text = self.cell();
        if cells(&text) <= room {
            return text;
        }
        let bare = self.clone().bare();
        if self.same_function {
            let with_line = self.text(str::to_owned, false, false);
            return if cells(&with_line) <= room { with_line } else { bare.cell() };
        }
        let bare_alone = bare.clone().after("");
        // A shorter name would be useless.
        for (place, least) in [(self, 12), (&bare, 8), (&bare_alone, 4)] {
            let whole = place.text(str::to_owned, true, false);
            if cells(&whole) <= room {
                return whole;
            }
            let fixed = cells(&place.text(|_| String::new(), true, false));
            let left = room.saturating_sub(fixed);
            let text = place.text(|name| shortened(name, left), true, false);
            if left >= least && cells(&text) <= room {
                return text;
            }
        }
        // The offset matters more than the rest of the name.
        let alone = match (&self.symbol, self.file_offset.filter(|_| self.file.is_some())) {
            (None, Some(offset)) => format!("…+{offset:#x}"),
            (None, None) => Place { file: None, ..bare_alone }.to_string(),
            _ => bare_alone.to_string(),
        };
        without_middle(&alone, room)
    }

    pub(crate) const fn part(&self, part: Part) -> PlacePart<'_> {
        PlacePart(self, part)
    }

    fn inlines(&self) -> Value {
        if self.frames.len() < 2 {
            return Value::Null;
        }
        let frame = |frame: &Frame| {
            let line = frame.source.as_ref().map(ToString::to_string);
            json!({ "function": frame.function.as_deref(), "line": line })
        };
        self.frames.iter().map(frame).collect()
    }

    /// Some of its parts as members of a JSON object, such as `from_symbol`.
    pub(crate) fn put_json(&self, object: &mut Value, key: &str, parts: &[Part]) {
        for part in parts {
            object[format!("{key}{}", part.suffix())] = json!(self.part(*part));
        }
    }
}

/// The whole place.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(str::to_owned, true, true))
    }
}

/// A part of a place, for programs.
pub(crate) struct PlacePart<'a>(&'a Place, Part);

impl Serialize for PlacePart<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let PlacePart(place, part) = self;
        match part {
            Part::Address => match place.address {
                Some(address) => to.collect_str(&format_args!("{address:#x}")),
                None => to.serialize_none(),
            },
            Part::Symbol => place.symbol.as_ref().map(|symbol| &symbol.name).serialize(to),
            Part::Offset => {
                let in_symbol = place.symbol.as_ref().map(|symbol| symbol.offset);
                in_symbol.or(place.file_offset).serialize(to)
            }
            Part::File => place.file.serialize(to),
            Part::Line => place.line().map(ToString::to_string).serialize(to),
            Part::Inlines => place.inlines().serialize(to),
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/cli/unit/present/place.rs"]
mod tests;
