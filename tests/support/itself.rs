//! This very program, as an object file to look at.

use std::path::PathBuf;

use object::Object as _;

use super::skip::skipped;

/// The program that runs; `None`, after saying so, where the linker left its
/// symbols out, as some do where nobody asks for debug information.
pub(crate) fn with_symbols() -> Option<PathBuf> {
    let path = std::env::current_exe().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let has = object::File::parse(&*bytes).unwrap().symbols().next().is_some();
    if !has {
        skipped("the tests were built without symbols");
    }
    has.then_some(path)
}
