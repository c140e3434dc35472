//! This test program's own file.

use std::path::PathBuf;

use object::Object as _;

use super::skip::skipped;

/// The running program's file; `None`, after a skip message, if the linker removed its symbols, as
/// some do without debug information.
pub(crate) fn with_symbols() -> Option<PathBuf> {
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let has = object::File::parse(&*bytes).unwrap().symbols().next().is_some();
    if !has {
        skipped("the tests were built without symbols");
    }
    has.then_some(path)
}
