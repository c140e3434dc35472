//! Rows by the file that they lie in.

use super::{Location, Maps};
use crate::read::address::KERNEL_NAME;

/// perf's name of what lies in no file.
const UNKNOWN: &str = "[unknown]";

/// Files by the names that perf prints for them: the path, or its last part;
/// `[kernel.kallsyms]`, `[vdso]`, `[unknown]`.
///
/// For the rows of a table that was counted over whole stacks. Those shares
/// stay of all branches, as perf's do (`--percentage absolute`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dsos {
    /// By file of the maps.
    files: Vec<bool>,
    unknown: bool,
    missing: Vec<String>,
}

impl Dsos {
    /// The files of these names.
    #[must_use]
    pub fn named(maps: &Maps, names: &[String]) -> Dsos {
        let is = |name: &String, path: &str| {
            let kernel = name == "[kernel]" && path == KERNEL_NAME;
            name == path || name == short(path) || kernel
        };
        let paths: Vec<&str> =
            maps.files().map(|file| maps.path(file).unwrap_or_default()).collect();
        let files = paths.iter().map(|path| names.iter().any(|name| is(name, path))).collect();
        let unknown = names.iter().any(|name| name == UNKNOWN);
        let missing = |name: &&String| *name != UNKNOWN && !paths.iter().any(|path| is(name, path));
        let missing = names.iter().filter(missing).cloned().collect();
        Dsos { files, unknown, missing }
    }

    /// Whether a place lies in one of them.
    #[must_use]
    pub fn has(&self, location: Location) -> bool {
        match location {
            Location::File { file, .. } => self.has_file(file),
            Location::Address(_) => self.unknown,
        }
    }

    /// Whether the file of an index is one of them.
    #[must_use]
    pub fn has_file(&self, file: usize) -> bool {
        self.files.get(file).copied().unwrap_or(false)
    }

    /// Names that no file has.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// The name of the file that a place lies in, as perf prints it in a
    /// column.
    #[must_use]
    pub fn name_of(maps: &Maps, location: Location) -> &str {
        match location {
            Location::File { file, .. } => maps.path(file).map_or(UNKNOWN, short),
            Location::Address(_) => UNKNOWN,
        }
    }
}

/// The last part of a path. Names in brackets have none: a module is `[kvm]`.
fn short(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((_, name)) if path.starts_with('/') && !path.starts_with("//") => name,
        _ => path,
    }
}
