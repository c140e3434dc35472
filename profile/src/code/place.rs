//! Places in code as people write them: an address, a function, a line.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::code::maps::{Function, Location, Maps};

/// A place as somebody wrote it.
///
/// | text | meaning |
/// |---|---|
/// | `0x401136`, or hexadecimal of five digits and more with a decimal one among them | an address of the recording |
/// | `main` | a function, all of it |
/// | `main+1a`, `main+0x1a` | the byte at that offset in it, hexadecimal |
/// | `libc.so.6:malloc`, `libc.so.6:malloc+4` | the same, in one of several files |
/// | `foo.c:12`, `src/foo.c:12` | all code of a line |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// An address of the recording.
    Address(u64),
    /// A function, or a byte of it.
    Symbol {
        /// Name, or end of the path, of the file it is in; `None` for any.
        file: Option<String>,
        /// Its name, as in the file or demangled.
        name: String,
        /// Bytes from its start; `None` for all of it.
        offset: Option<u64>,
    },
    /// A line of source.
    Line {
        /// The end of the file's path.
        file: String,
        /// The line, counted from 1.
        line: u32,
    },
}

/// Why a text is no place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no place: an address (0x401136), a function (main, main+0x1a, libc.so.6:malloc) or a line (foo.c:12)"
)]
pub struct NotAPlace {
    /// The text.
    pub text: String,
}

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Place, NotAPlace> {
        let text = text.trim();
        let wrong = || NotAPlace { text: text.to_owned() };
        if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            return hex(digits).map(Place::Address).ok_or_else(wrong);
        }
        if text.len() >= 5
            && text.bytes().any(|digit| digit.is_ascii_digit())
            && let Some(addr) = hex(text)
        {
            return Ok(Place::Address(addr));
        }
        if let Some((file, line)) = text.rsplit_once(':')
            && !file.is_empty()
            && !file.ends_with(':')
            && line.bytes().all(|digit| digit.is_ascii_digit())
        {
            let line = line.parse().ok().filter(|line| *line > 0).ok_or_else(wrong)?;
            return Ok(Place::Line { file: file.to_owned(), line });
        }
        let (file, name) = match file_colon(text) {
            Some((file, name)) => (Some(file.to_owned()), name),
            None => (None, text),
        };
        let (name, offset) = match name.rsplit_once('+') {
            // `operator+` and `operator++` have nothing behind it.
            Some((name, digits)) if !name.is_empty() => {
                let digits = digits.strip_prefix("0x").unwrap_or(digits);
                match hex(digits) {
                    Some(offset) => (name, Some(offset)),
                    None => (text_behind(text, file.as_deref()), None),
                }
            }
            _ => (name, None),
        };
        // Digits alone are neither an address nor a name.
        let begins = |c: char| c.is_alphabetic() || "_.$~<({?@".contains(c);
        let is_name = name.starts_with(begins);
        if !is_name || name.ends_with(':') {
            return Err(wrong());
        }
        Ok(Place::Symbol { file, name: name.to_owned(), offset })
    }
}

fn hex(digits: &str) -> Option<u64> {
    // `from_str_radix` would take a sign.
    let all = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if all { u64::from_str_radix(digits, 16).ok() } else { None }
}

fn text_behind<'a>(text: &'a str, file: Option<&str>) -> &'a str {
    file.and_then(|file| text.get(file.len() + 1..)).unwrap_or(text)
}

/// `FILE:NAME`: the first colon that stands alone, before any bracket.
fn file_colon(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let end = text.find(['(', '<', '{']).unwrap_or(text.len());
    let at = (1..end).find(|&at| {
        let colon = |at: usize| bytes.get(at) == Some(&b':');
        colon(at) && !colon(at + 1) && !colon(at - 1)
    })?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Address(addr) => write!(f, "{addr:#x}"),
            Place::Symbol { file, name, offset } => {
                if let Some(file) = file {
                    write!(f, "{file}:")?;
                }
                write!(f, "{name}")?;
                offset.map_or(Ok(()), |offset| write!(f, "+{offset:#x}"))
            }
            Place::Line { file, line } => write!(f, "{file}:{line}"),
        }
    }
}

/// Bytes that a place stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first of them.
    pub start: Location,
    /// How many; at least 1.
    pub len: u64,
}

impl Span {
    /// Whether a place lies in it.
    #[must_use]
    pub fn contains(&self, location: Location) -> bool {
        match (self.start, location) {
            (Location::Address(start), Location::Address(addr)) => {
                addr.checked_sub(start).is_some_and(|within| within < self.len)
            }
            (Location::File { file, offset: start }, Location::File { file: other, offset }) => {
                file == other && offset.checked_sub(start).is_some_and(|within| within < self.len)
            }
            _ => false,
        }
    }
}

/// One of several things that a name may mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// What to write to mean this one.
    pub name: String,
    /// The file that it is in.
    pub file: String,
    /// Its address as the file's symbol table counts, or as it was recorded
    /// where there is no file; `None` for lines, and where the recording has
    /// symbols in place of addresses.
    pub address: Option<u64>,
}

/// Why a place was not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// Nothing that was mapped has a function of that name.
    #[error("nothing that was recorded has a function {name}")]
    NoSymbol {
        /// The name.
        name: String,
    },
    /// The function ends before that offset.
    #[error("{name} is {size} bytes long: {name}+{offset:#x} lies behind it")]
    BeyondFunction {
        /// The function.
        name: String,
        /// Its bytes.
        size: u64,
        /// The offset asked for.
        offset: u64,
    },
    /// No debug information names the file.
    #[error("no debug information of what was recorded names a source file {file}")]
    NoSource {
        /// The file.
        file: String,
    },
    /// The line has no code.
    #[error("{file}:{line} has no code; {}", nearest(*below, *above))]
    NoCode {
        /// The file.
        file: String,
        /// The line.
        line: u32,
        /// The last line with code before it.
        below: Option<u32>,
        /// The first line with code behind it.
        above: Option<u32>,
    },
    /// It may mean several things.
    #[error("{place} may mean {}", list(candidates))]
    Ambiguous {
        /// The place.
        place: Place,
        /// What it may mean.
        candidates: Vec<Candidate>,
    },
}

fn nearest(below: Option<u32>, above: Option<u32>) -> String {
    match (below, above) {
        (Some(below), Some(above)) => {
            format!("the nearest lines that have are {below} and {above}")
        }
        (Some(line), None) | (None, Some(line)) => format!("the nearest line that has is {line}"),
        (None, None) => "no line of it has".to_owned(),
    }
}

/// Candidates that a message names.
const LISTED: usize = 8;

fn list(candidates: &[Candidate]) -> String {
    let named = candidates.iter().take(LISTED).map(|candidate| match candidate.address {
        Some(address) => format!("{} ({address:#x} in {})", candidate.name, candidate.file),
        None => candidate.name.clone(),
    });
    let mut named: Vec<String> = named.collect();
    if candidates.len() > LISTED {
        named.push(format!("{} more", candidates.len() - LISTED));
    }
    match named.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => named.concat(),
    }
}

impl Maps {
    /// What a place stands for in what was recorded: one span, and for a line
    /// each stretch of its code. A function that was recorded by its symbol in
    /// one recording and by its address in another has a span for either.
    ///
    /// # Errors
    /// [`PlaceError`]; an ambiguous place names what it may mean.
    pub fn resolve(&mut self, place: &Place) -> Result<Vec<Span>, PlaceError> {
        match place {
            Place::Address(addr) => self.address(place, *addr),
            Place::Symbol { file, name, offset } => {
                let mut spans = Vec::new();
                for function in self.one_function(place, file.as_deref(), name)? {
                    let size = function.offsets.end.wrapping_sub(function.offsets.start).max(1);
                    let (within, len) = match *offset {
                        None => (0, size),
                        Some(offset) if offset < size => (offset, 1),
                        // Nobody said how long it is.
                        Some(_) if self.is_named_file(function.file) => continue,
                        Some(offset) => {
                            let name = function.name;
                            return Err(PlaceError::BeyondFunction { name, size, offset });
                        }
                    };
                    let offset = function.offsets.start.wrapping_add(within);
                    let start = Location::File { file: function.file, offset };
                    spans.push(Span { start, len });
                }
                Ok(spans)
            }
            Place::Line { file, line } => self.line(place, file, *line),
        }
    }

    /// An address means the same in every process that has the same file
    /// there.
    fn address(&self, place: &Place, addr: u64) -> Result<Vec<Span>, PlaceError> {
        let mut found: Vec<Location> = Vec::new();
        for space in 0..self.len() {
            let location = self.locate(space, addr);
            // What was recorded by name has none.
            if self.is_named(location) {
                continue;
            }
            if !found.contains(&location) {
                found.push(location);
            }
        }
        // Processes that have nothing there do not take part.
        if found.len() > 1 {
            found.retain(|location| matches!(location, Location::File { .. }));
        }
        match found.as_slice() {
            [] => Ok(vec![Span { start: Location::Address(addr), len: 1 }]),
            [start] => Ok(vec![Span { start: *start, len: 1 }]),
            _ => Err(PlaceError::Ambiguous {
                place: place.clone(),
                candidates: found.iter().filter_map(|found| self.byte_of(*found)).collect(),
            }),
        }
    }

    fn byte_of(&self, location: Location) -> Option<Candidate> {
        let Location::File { file, offset } = location else { return None };
        let path = self.path(file)?.to_owned();
        let name = format!("byte {offset:#x} of {}", file_name(&path));
        Some(Candidate { name, file: path, address: Some(offset) })
    }

    /// The one function of a name, as often as it was recorded in another way: in
    /// its file, by its symbol there, by its symbol alone.
    fn one_function(
        &mut self,
        place: &Place,
        file: Option<&str>,
        name: &str,
    ) -> Result<Vec<Function>, PlaceError> {
        let mut found = self.functions_named(name);
        if let Some(file) = file {
            found.retain(|function| self.path(function.file).is_some_and(|path| ends(path, file)));
        }
        // Aliases of one place are one.
        found.dedup_by(|a, b| (a.file, &a.offsets) == (b.file, &b.offsets));
        if found.is_empty() {
            return Err(PlaceError::NoSymbol { name: name.to_owned() });
        }
        let mut of_files = found.iter().filter(|function| !self.is_named_file(function.file));
        let (of_file, more) = (of_files.next(), of_files.next());
        let paths = || found.iter().filter_map(|function| self.path(function.file));
        let names = || found.iter().map(|function| &function.name);
        let one_path = paths().all(|path| Some(path) == paths().next());
        let one_name = names().all(|name| Some(name) == names().next());
        if more.is_none() && one_path && (one_name || of_file.is_some() && found.len() == 2) {
            return Ok(found);
        }
        let candidates = found.into_iter().map(|function| {
            let address = (!self.is_named_file(function.file)).then_some(function.address);
            let Some(file) = self.path(function.file).map(str::to_owned) else {
                return Candidate { name: function.name, file: String::new(), address };
            };
            let name = format!("{}:{}", file_name(&file), function.name);
            Candidate { name, file, address }
        });
        Err(PlaceError::Ambiguous { place: place.clone(), candidates: candidates.collect() })
    }

    fn line(&mut self, place: &Place, file: &str, line: u32) -> Result<Vec<Span>, PlaceError> {
        let mut spans = Vec::new();
        let mut files = std::collections::BTreeSet::new();
        let (mut below, mut above, mut has_file) = (None, None, false);
        for index in self.files() {
            let Some(module) = self.elf(index) else { continue };
            let code = module.code_of_line(file, line);
            for Range { start, end } in &code.ranges {
                let Some(offset) = module.offset_of_address(*start) else { continue };
                let start_at = Location::File { file: index, offset };
                spans.push(Span { start: start_at, len: end - start });
            }
            files.extend(code.files);
            has_file |= code.has_file;
            below = below.max(code.below);
            above = [above, code.above].into_iter().flatten().min();
        }
        if files.len() > 1 {
            let candidates = files.into_iter().map(|found| Candidate {
                name: format!("{found}:{line}"),
                file: found,
                address: None,
            });
            return Err(PlaceError::Ambiguous {
                place: place.clone(),
                candidates: candidates.collect(),
            });
        }
        if spans.is_empty() {
            let file = file.to_owned();
            return Err(if has_file {
                PlaceError::NoCode { file, line, below, above }
            } else {
                PlaceError::NoSource { file }
            });
        }
        Ok(spans)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a path ends with the folders and the name that somebody wrote.
fn ends(path: &str, wanted: &str) -> bool {
    path.strip_suffix(wanted).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}
