//! The executed code: the file at an address, its symbols, debug information and bytes.

pub(crate) mod debug_file;
pub(crate) mod demangle;
mod error;
pub mod lines;
pub mod maps;
pub mod place;
pub(crate) mod straight;
pub mod symbols;

/// Bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
