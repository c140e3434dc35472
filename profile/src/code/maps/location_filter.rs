//! Selects rows by file and function.

use std::ops::Range;

use super::{Location, Maps};
use crate::code::demangle::Pattern;
use crate::code::place::LocationSpec;
use crate::read::KERNEL_NAME;

/// perf's name for code outside of files.
const UNKNOWN: &str = "[unknown]";
/// The kernel appends it to the path of a file that was deleted.
pub(super) const DELETED: &str = " (deleted)";

/// A set of files, by the names that perf prints (the path, or its last part; `[kernel.kallsyms]`,
/// `[vdso]`, `[unknown]`), and of functions.
///
/// For the rows of a table that was counted over whole stacks. Shares remain relative to all
/// branches, as in perf (`--percentage absolute`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationFilter {
    /// For each file, whether it is selected; `None` for all.
    files: Option<Vec<bool>>,
    unknown: bool,
    /// Names that match no file and no function.
    pub missing: Vec<String>,
    /// The ranges of the functions, sorted by file and offset, without overlaps; `None` for all.
    functions: Option<Vec<(usize, Range<u64>)>>,
}

impl LocationFilter {
    /// The files with these names, and in them the functions that match these patterns; an empty
    /// list means all.
    pub fn new(maps: &mut Maps, files: &[String], functions: &[String]) -> LocationFilter {
        let mut within = LocationFilter::files(maps, files);
        if !functions.is_empty() {
            within.functions = Some(maps.functions_like(functions, &mut within.missing));
        }
        within
    }

    /// The files with these names; an empty list means all.
    pub fn files(maps: &Maps, names: &[String]) -> LocationFilter {
        let is = |name: &String, path: &str| {
            let path = path.strip_suffix(DELETED).unwrap_or(path);
            let kernel = name == "[kernel]" && path == KERNEL_NAME;
            name == path || name == short(path) || kernel
        };
        let paths: Vec<&str> =
            maps.files().map(|file| maps.path(file).unwrap_or_default()).collect();
        let meant = paths.iter().map(|path| names.iter().any(|name| is(name, path))).collect();
        let unknown = names.is_empty() || names.iter().any(|name| name == UNKNOWN);
        let missing = |name: &&String| *name != UNKNOWN && !paths.iter().any(|path| is(name, path));
        let missing = names.iter().filter(missing).cloned().collect();
        let files = (!names.is_empty()).then_some(meant);
        LocationFilter { files, unknown, missing, functions: None }
    }

    /// The recorded program's own files, and code in no file. `None` if the recording
    /// does not show which program was recorded.
    pub fn own(maps: &Maps) -> Option<LocationFilter> {
        let files = Some(maps.own_files()?);
        Some(LocationFilter { files, unknown: true, missing: Vec::new(), functions: None })
    }

    /// Whether the file with an index is selected.
    pub fn has_file(&self, file: usize) -> bool {
        self.files.as_ref().is_none_or(|files| files.get(file).copied().unwrap_or(false))
    }

    /// Whether a location is selected.
    pub fn has(&self, location: Location) -> bool {
        let (file, offset) = (location.file().unwrap_or(usize::MAX), location.position());
        let of_file = self.has_file(file) || file == usize::MAX && self.unknown;
        let Some(functions) = self.functions.as_ref().filter(|_| of_file) else { return of_file };
        let after = functions.partition_point(|(of, at)| (*of, at.start) <= (file, offset));
        let before = after.checked_sub(1).and_then(|at| functions.get(at));
        before.is_some_and(|(of, at)| *of == file && at.contains(&offset))
    }

    /// The file name of a location, as perf prints it in a column.
    pub fn name_of(maps: &Maps, location: Location) -> &str {
        maps.path_of(location).map_or(UNKNOWN, short)
    }
}

impl Maps {
    /// The ranges of functions that match some patterns; patterns without match are added to
    /// `missing`.
    fn functions_like(
        &mut self,
        patterns: &[String],
        missing: &mut Vec<String>,
    ) -> Vec<(usize, Range<u64>)> {
        // A place in a function means the function.
        let named = |text: &String| match text.parse() {
            Ok(LocationSpec::Symbol { file: None, name, offset: Some(_) }) => name,
            _ => text.clone(),
        };
        let names: Vec<String> = patterns.iter().map(named).collect();
        let all = patterns.iter().zip(&names);
        let mut wanted: Vec<(bool, &String, Pattern<'_>)> =
            all.map(|(text, name)| (false, text, Pattern::new(name))).collect();
        let mut found: Vec<(usize, Range<u64>)> = Vec::new();
        self.each_function(None, |symbol, file, offsets, _| {
            for (any, _, pattern) in &mut wanted {
                if pattern.is_match(symbol) {
                    *any = true;
                    found.push((file, offsets.clone()));
                }
            }
        });
        for (_, text, _) in wanted.iter().filter(|(any, ..)| !any) {
            let spans = text.parse().map(|place| self.resolve(&place, &|_| 0.0));
            let spans = spans.ok().and_then(Result::ok).unwrap_or_default();
            if spans.is_empty() {
                missing.push((*text).clone());
            }
            for span in spans {
                // Code without a symbol means one instruction.
                let whole = self.function(span.start).filter(|_| span.len == 1);
                found.push(match (whole, span.start) {
                    (Some(function), _) => (function.file, function.offsets),
                    (None, Location::File { file, offset }) => {
                        (file, offset..offset.saturating_add(span.len))
                    }
                    (None, Location::Address(at)) => (usize::MAX, at..at.saturating_add(1)),
                });
            }
        }
        found.sort_unstable_by_key(|(file, at)| (*file, at.start));
        found.dedup_by(|(file, at), (before, whole)| {
            let joins = file == before && at.start <= whole.end;
            if joins {
                whole.end = whole.end.max(at.end);
            }
            joins
        });
        found
    }
}

/// The last part of a path. Names in brackets are kept: a module is `[kvm]`.
fn short(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((_, name)) if path.starts_with('/') && !path.starts_with("//") => name,
        _ => path,
    }
}
