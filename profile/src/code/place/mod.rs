//! Code locations as users write them, and the bytes they refer to.

mod spec;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;

use crate::code::error::SymbolError;
use crate::code::lines::CodeOfLine;
use crate::code::maps::{Function, Location, Maps};
use crate::code::symbols::Module;

pub use spec::{LocationSpec, ParsePlaceError, ends};

/// A range of bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first of them.
    pub start: Location,
    /// Length; at least 1.
    pub len: u64,
}

impl Span {
    /// Whether the range contains a location.
    pub fn contains(&self, location: Location) -> bool {
        let within = location.position().checked_sub(self.start.position());
        self.start.file() == location.file() && within.is_some_and(|within| within < self.len)
    }
}

/// The share of a function in all executed code, 0 to 1: of several functions with one name, the
/// executed ones are meant.
pub type Shares<'a> = &'a dyn Fn(&Function) -> f64;

/// One of several meanings of a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The unambiguous way to write it.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Its address as recorded, or else in the file's symbol table; `None` for lines, and for
    /// recordings with symbols instead of addresses.
    pub address: Option<u64>,
    /// Its share of all executed code, 0 to 1; `None` if none of them was executed.
    pub share: Option<f64>,
}

/// Why a location was not found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// No mapped file has a function with that name.
    #[error("nothing that was recorded has a function {name}{instead}")]
    NoSymbol {
        /// The name.
        name: String,
        /// Suggestions, as text.
        instead: String,
    },
    /// The function ends before that offset.
    #[error("{name} is {size} bytes long: {name}+{offset:#x} is beyond its end")]
    BeyondFunction {
        /// The function.
        name: String,
        /// Its bytes.
        size: u64,
        /// The requested offset.
        offset: u64,
    },
    /// The source file is not in any debug information.
    #[error("no debug information of the recorded files mentions a source file {0}")]
    NoSource(String),
    /// The line has no code.
    #[error("{file}:{line} has no code; {}", nearest(*below, *above))]
    NoCode {
        /// The file.
        file: String,
        /// The line.
        line: u32,
        /// The last line with code before it.
        below: Option<u32>,
        /// The first line with code after it.
        above: Option<u32>,
    },
    /// The name is ambiguous.
    #[error("{place} may mean {}", list(candidates))]
    Ambiguous {
        /// The name.
        place: LocationSpec,
        /// Its possible meanings.
        candidates: Vec<Candidate>,
    },
}

fn nearest(below: Option<u32>, above: Option<u32>) -> String {
    match (below, above) {
        (Some(below), Some(above)) => {
            format!("the nearest lines with code are {below} and {above}")
        }
        (Some(line), None) | (None, Some(line)) => format!("the nearest line with code is {line}"),
        (None, None) => "the file has no line with code".to_owned(),
    }
}

/// Maximum number of candidates in a message.
const LISTED: usize = 8;

fn list(candidates: &[Candidate]) -> String {
    let first = candidates.first().map(|candidate| &candidate.file);
    let one_file = candidates.iter().all(|candidate| Some(&candidate.file) == first);
    let one = |candidate: &Candidate| {
        let Candidate { name, file, address, share } = candidate;
        let at = address.map(|at| format!("{at:#x}")).filter(|at| at != name);
        let file = (!one_file && address.is_some()).then(|| format!("in {file}"));
        let place: Vec<String> = [at, file].into_iter().flatten().collect();
        let place = Some(place.join(" ")).filter(|place| !place.is_empty());
        let share = share.map(|share| format!("{:.2}% of executed code", share * 100.0));
        match [place, share].into_iter().flatten().collect::<Vec<_>>().join(", ") {
            more if more.is_empty() => name.clone(),
            more => format!("{name} ({more})"),
        }
    };
    let mut named: Vec<String> = candidates.iter().take(LISTED).map(one).collect();
    if candidates.len() > LISTED {
        named.push(format!("{} more", candidates.len() - LISTED));
    }
    let list = match named.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => named.concat(),
    };
    match first.filter(|file| one_file && !file.is_empty()) {
        Some(file) => format!("{list}, in {file}"),
        None => list,
    }
}

/// The first address of a location in a file that is not mapped, as in its symbol table.
///
/// # Errors
/// [`SymbolError`]: the file cannot be read, has no such function or several, or no code there.
pub fn find_code(path: &Path, text: &str) -> Result<u64, SymbolError> {
    let mut module = Module::open(path)?;
    let no_code = || SymbolError::NoCode { path: path.to_owned(), place: text.to_owned() };
    let address = match text.parse() {
        Ok(LocationSpec::Address(address)) => address,
        Ok(LocationSpec::Line { file, line }) => {
            let mut code = CodeOfLine::default();
            module.code_of_line(&file, line, &mut code);
            code.ranges.first().ok_or_else(no_code)?.start
        }
        Ok(LocationSpec::Symbol { file, name, offset }) => {
            if file.is_some_and(|file| !path.ends_with(file)) {
                return Err(no_code());
            }
            let start = module.find(&name)?;
            let offset = offset.unwrap_or(0);
            let inside = module.function_at(start).is_none_or(|(_, range)| {
                start.checked_add(offset).is_some_and(|address| range.contains(&address))
            });
            if !inside {
                return Err(no_code());
            }
            start.wrapping_add(offset)
        }
        Err(_) => module.find(text)?,
    };
    if module.code_at(address).bytes.is_empty() { Err(no_code()) } else { Ok(address) }
}

impl Maps {
    /// The recorded bytes that a location refers to: one range, or for a line each of its ranges. A
    /// function that was recorded by symbol in one recording and by address in another has a range
    /// for each.
    ///
    /// # Errors
    /// [`PlaceError`]; for an ambiguous location with its possible meanings.
    pub fn resolve(
        &mut self,
        place: &LocationSpec,
        shares: Shares<'_>,
    ) -> Result<Vec<Span>, PlaceError> {
        match place {
            LocationSpec::Address(addr) => self.address(place, *addr),
            LocationSpec::Symbol { file, name, offset } => {
                let mut spans = Vec::new();
                let meant = match self.functions_meant(file.as_deref(), name, shares) {
                    Err(error @ PlaceError::NoSymbol { .. }) => {
                        let bytes = offset.map(|offset| self.bytes_of_files(name, offset));
                        return bytes.filter(|bytes| !bytes.is_empty()).ok_or(error);
                    }
                    meant => meant?,
                };
                for function in meant {
                    let size = function.offsets.end.wrapping_sub(function.offsets.start).max(1);
                    let (within, len) = match *offset {
                        None => (0, size),
                        Some(offset) if offset < size => (offset, 1),
                        // Its length is unknown.
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
            LocationSpec::Line { file, line } => self.line(place, file, *line),
        }
    }

    /// A file offset, as views print it without a symbol.
    pub(crate) fn bytes_of_files(&self, name: &str, offset: u64) -> Vec<Span> {
        let is = |file: &usize| {
            self.path(*file).is_some_and(|path| path == name || file_name(path) == name)
        };
        let starts = self.files().filter(is).map(|file| Location::File { file, offset });
        let counts = |start: &Location| self.file_offset(*start).is_some();
        starts.filter(counts).map(|start| Span { start, len: 1 }).collect()
    }

    /// An address has the same meaning in every process with the same file there.
    fn address(&mut self, place: &LocationSpec, addr: u64) -> Result<Vec<Span>, PlaceError> {
        let mut known = HashSet::new();
        // Locations recorded by name have no address.
        let is_new = |at: &Location| !self.is_named(*at) && known.insert(*at);
        let locations = (0..self.len()).map(|space| self.locate(space, addr));
        let mut found: Vec<Location> = locations.filter(is_new).collect();
        // Processes without a mapping there are ignored.
        if found.len() > 1 {
            found.retain(|location| matches!(location, Location::File { .. }));
        }
        if !found.iter().any(|location| matches!(location, Location::File { .. })) {
            let in_files = self.of_own_address(addr);
            found = if in_files.is_empty() { found } else { in_files };
        }
        match found.as_slice() {
            [] => Ok(vec![Span { start: Location::Address(addr), len: 1 }]),
            [start] => Ok(vec![Span { start: *start, len: 1 }]),
            _ => {
                let candidates = found.iter().filter_map(|found| self.byte_of(*found)).collect();
                Err(PlaceError::Ambiguous { place: place.clone(), candidates })
            }
        }
    }

    /// The code at an address in a file's own numbering, which `annotate` and objdump print of
    /// position-independent files: in the program if it has code there, else in any file.
    fn of_own_address(&mut self, addr: u64) -> Vec<Location> {
        let (programs, files) = (self.programs(), self.files().collect());
        let mut in_files = |files: Vec<usize>| -> Vec<Location> {
            let at = |file: usize| {
                // Not [vdso], whose addresses are offsets.
                self.path(file).filter(|path| path.starts_with('/'))?;
                let module = self.elf(file)?;
                let offset = module.offset_of_address(addr)?;
                (!module.code_at(addr).bytes.is_empty()).then_some(Location::File { file, offset })
            };
            files.into_iter().filter_map(at).collect()
        };
        let found = in_files(programs);
        if found.is_empty() { in_files(files) } else { found }
    }

    fn byte_of(&self, location: Location) -> Option<Candidate> {
        let Location::File { file, offset } = location else { return None };
        let path = self.path(file)?.to_owned();
        let name = format!("byte {offset:#x} of {}", file_name(&path));
        Some(Candidate { name, file: path, address: Some(offset), share: None })
    }

    /// The function that a name means, in each form in which it was recorded: in its file, by
    /// symbol in the file, by symbol alone.
    pub(crate) fn functions_meant(
        &mut self,
        file: Option<&str>,
        name: &str,
        shares: Shares<'_>,
    ) -> Result<Vec<Function>, PlaceError> {
        let found = self.functions_called(file, name);
        if found.is_empty() {
            let instead = self.instead_of(name);
            return Err(PlaceError::NoSymbol { name: name.to_owned(), instead });
        }
        let place = LocationSpec::Symbol {
            file: file.map(str::to_owned),
            name: name.to_owned(),
            offset: None,
        };
        self.one_of(&place, found, shares)
    }

    /// The only one of several functions that was executed.
    pub(crate) fn one_of(
        &mut self,
        place: &LocationSpec,
        found: Vec<Function>,
        shares: Shares<'_>,
    ) -> Result<Vec<Function>, PlaceError> {
        let share = |function: Function| (shares(&function), function);
        let mut ran: Vec<(f64, Function)> = found.into_iter().map(share).collect();
        ran.sort_by(|a, b| b.0.total_cmp(&a.0));
        if ran.first().is_some_and(|(share, _)| *share > 0.0) {
            ran.retain(|(share, _)| *share > 0.0);
        }
        let (shares, found): (Vec<f64>, Vec<Function>) = ran.into_iter().unzip();
        let mut of_files = found.iter().filter(|function| !self.is_named_file(function.file));
        let (of_file, more) = (of_files.next(), of_files.next());
        let paths = || found.iter().filter_map(|function| self.path(function.file));
        let names = || found.iter().map(|function| &function.name);
        let one_path = paths().all(|path| Some(path) == paths().next());
        let one_name = names().all(|name| Some(name) == names().next());
        if more.is_none() && one_path && (one_name || of_file.is_some() && found.len() == 2) {
            return Ok(found);
        }
        let twice = |function: &Function| {
            let same = |other: &&Function| {
                other.name == function.name && self.path(other.file) == self.path(function.file)
            };
            found.iter().filter(same).count() > 1
        };
        let candidate = |(function, share): (&Function, f64)| {
            let named = self.is_named_file(function.file);
            let address = || self.recorded_address(function).unwrap_or(function.address);
            let address = (!named).then(address);
            let file = self.path(function.file).unwrap_or_default().to_owned();
            let name = match address {
                // Their names are equal.
                Some(address) if twice(function) => format!("{address:#x}"),
                _ if one_path || file.is_empty() => function.name.clone(),
                _ => format!("{}:{}", file_name(&file), function.name),
            };
            let share = Some(share).filter(|share| *share > 0.0);
            Candidate { name, file, address, share }
        };
        let candidates = found.iter().zip(shares).map(candidate).collect();
        Err(PlaceError::Ambiguous { place: place.clone(), candidates })
    }

    fn line(
        &mut self,
        place: &LocationSpec,
        file: &str,
        line: u32,
    ) -> Result<Vec<Span>, PlaceError> {
        let mut spans = Vec::new();
        let mut code = CodeOfLine::default();
        for index in self.files() {
            let Some(module) = self.elf(index) else { continue };
            module.code_of_line(file, line, &mut code);
            for Range { start, end } in code.ranges.drain(..) {
                let Some(offset) = module.offset_of_address(start) else { continue };
                let start_at = Location::File { file: index, offset };
                spans.push(Span { start: start_at, len: end - start });
            }
        }
        let CodeOfLine { files, has_file, below, above, .. } = code;
        if files.len() > 1 {
            let candidate = |file: String| {
                let name = format!("{file}:{line}");
                Candidate { name, file, address: None, share: None }
            };
            let candidates = files.into_iter().map(candidate).collect();
            return Err(PlaceError::Ambiguous { place: place.clone(), candidates });
        }
        if spans.is_empty() {
            let file = file.to_owned();
            return Err(if has_file {
                PlaceError::NoCode { file, line, below, above }
            } else {
                PlaceError::NoSource(file)
            });
        }
        Ok(spans)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
