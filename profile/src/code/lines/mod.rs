//! Source lines of addresses, from DWARF.
//!
//! Read from the program or its debug file, with the parts that `-gsplit-dwarf` and `dwz` store
//! elsewhere. Units are parsed when the first of their addresses is needed.

mod bytes;
mod cut;
mod load;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult};
use gimli::Dwarf;

pub use cut::cut_files;

use crate::code::debug_file::DebugDirs;
use crate::code::demangle::demangle;
use bytes::Bytes;
use load::{Reader, Units};

pub(crate) use load::{DEEPEST, Pieces, Reader as DebugReader};

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceLine {
    /// Path of the file, as the compiler saw it.
    pub file: Arc<str>,
    /// The line, counted from 1.
    pub line: u32,
}

impl SourceLine {
    /// The file's name without its folders.
    pub fn file_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(&self.file)
    }
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A function that contains an address, and the source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name, demangled.
    pub function: Option<Arc<str>>,
    /// The line: of the address in the innermost frame, of the inlined call in the others.
    pub source: Option<SourceLine>,
}

/// The code of a source line.
#[derive(Debug, Default)]
pub(crate) struct CodeOfLine {
    /// Its addresses.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Whether any code belongs to a file with that name.
    pub(crate) has_file: bool,
    /// The files with that name that have code of the line, normalized.
    pub(crate) files: BTreeSet<String>,
    /// The nearest lines of those files with code, below and above.
    pub(crate) below: Option<u32>,
    pub(crate) above: Option<u32>,
}

impl CodeOfLine {
    /// Sorts and merges the ranges.
    pub(crate) fn settle(&mut self) {
        self.ranges.sort_by_key(|range| (range.start, range.end));
        self.ranges.dedup_by(|range, last| {
            let joins = range.start <= last.end;
            if joins {
                last.end = last.end.max(range.end);
            }
            joins
        });
    }
}

/// The debug information of one program.
pub(crate) struct Lines {
    pub(crate) dwarf: Arc<Dwarf<Reader>>,
    pub(crate) pieces: Pieces,
    context: OnceCell<Option<Context<Reader>>>,
    units: OnceCell<Units>,
    /// Names of files, each stored once.
    names: RefCell<HashSet<Arc<str>>>,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl Lines {
    /// Finds and opens the debug information of a program; `None` if there is none that is
    /// readable.
    pub(crate) fn of(program: &Path, dirs: &DebugDirs) -> Option<Lines> {
        let (mut dwarf, pieces) = load::load(program, dirs)?;
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::All);
        Some(Lines {
            dwarf: Arc::new(dwarf),
            pieces,
            context: OnceCell::new(),
            units: OnceCell::new(),
            names: RefCell::default(),
        })
    }

    /// Whether a file was truncated, so that results are wrong.
    pub(crate) fn is_cut(&self) -> bool {
        self.pieces.files.iter().any(Bytes::is_cut)
    }

    fn context(&self) -> Option<&Context<Reader>> {
        let open = || Context::from_arc_dwarf(Arc::clone(&self.dwarf)).ok();
        self.context.get_or_init(open).as_ref()
    }

    pub(crate) fn source(&self, addr: u64) -> Option<SourceLine> {
        // Look-ups add 1 to the address, which must not overflow.
        addr.checked_add(1)?;
        let location = self.context()?.find_location(addr).ok()??;
        self.line(&location)
    }

    pub(crate) fn frames(&self, addr: u64) -> Vec<Frame> {
        let mut found = Vec::new();
        let units = self.units.get_or_init(|| Units::new(&self.dwarf));
        if addr == u64::MAX || !units.are_shallow_at(&self.dwarf, addr) {
            return found;
        }
        let Some(context) = self.context() else { return found };
        let Ok(mut frames) = answer(context.find_frames(addr), &self.pieces) else { return found };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|function| {
                let name = function.raw_name().ok()?;
                Some(demangle(&name).into())
            });
            let source = frame.location.as_ref().and_then(|location| self.line(location));
            if name.is_some() || source.is_some() {
                found.push(Frame { function: name, source });
            }
        }
        found
    }

    fn line(&self, location: &addr2line::Location<'_>) -> Option<SourceLine> {
        // Line 0 means code without a line.
        let line = location.line.filter(|line| *line > 0)?;
        Some(SourceLine { file: stored_once(&mut self.names.borrow_mut(), location.file?), line })
    }

    /// The lines that have code within some addresses.
    pub(crate) fn lines_within(&self, within: Range<u64>) -> Vec<SourceLine> {
        let rows = self.context().map(|all| all.find_location_range(within.start, within.end));
        let Some(Ok(rows)) = rows else { return Vec::new() };
        rows.filter_map(|(_, _, location)| self.line(&location)).collect()
    }

    /// Adds the code of a line within some addresses.
    pub(crate) fn code_of_line(
        &self,
        within: Range<u64>,
        file: &str,
        wanted: u32,
        found: &mut CodeOfLine,
    ) {
        let Some(context) = self.context() else { return };
        let Ok(rows) = context.find_location_range(within.start, within.end) else { return };
        for (addr, len, location) in rows {
            let (Some(name), Some(line)) = (location.file, location.line) else { continue };
            if line == 0 || len == 0 || !is_file(name, file) {
                continue;
            }
            found.has_file = true;
            match line.cmp(&wanted) {
                std::cmp::Ordering::Equal => {
                    found.ranges.push(addr..addr.saturating_add(len));
                    found.files.insert(plain(name));
                }
                std::cmp::Ordering::Less => found.below = found.below.max(Some(line)),
                std::cmp::Ordering::Greater => {
                    found.above = Some(found.above.map_or(line, |above| above.min(line)));
                }
            }
        }
    }
}

/// Completes a look-up, with the units of split DWARF that it needs.
fn answer<L>(mut lookup: LookupResult<L>, pieces: &Pieces) -> L::Output
where
    L: LookupContinuation<Buf = Reader>,
{
    loop {
        match lookup {
            LookupResult::Output(answer) => return answer,
            LookupResult::Load { load, continuation } => {
                lookup = continuation.resume(pieces.find(&load));
            }
        }
    }
}

/// The name in a set of names, added if missing.
pub(crate) fn stored_once(names: &mut HashSet<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.get(name) {
        return Arc::clone(known);
    }
    let new: Arc<str> = name.into();
    names.insert(Arc::clone(&new));
    new
}

/// Whether a path ends with the given folders and name.
fn is_file(path: &str, wanted: &str) -> bool {
    let wanted = wanted.strip_prefix("./").unwrap_or(wanted);
    path.strip_suffix(wanted)
        .is_some_and(|before| before.is_empty() || before.ends_with('/') || wanted.starts_with('/'))
}

/// A path without `.` and `..`, which compilers write in different ways.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| !matches!(*last, "" | "..")) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Paths in debug information are bytes.
fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}
