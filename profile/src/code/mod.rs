//! The executed code: the file at an address, its symbols, debug information and bytes.

pub(crate) mod debug_file;
pub(crate) mod demangle;
mod error;
pub mod lines;
pub mod maps;
pub mod place;
pub(crate) mod straight;
pub mod symbols;
