//! The code that ran: which file an address lies in, what its symbols and its
//! debug information call it, and what its bytes say.

pub(crate) mod debug_file;
pub(crate) mod demangle;
mod error;
pub mod lines;
pub mod maps;
pub mod place;
pub(crate) mod straight;
pub mod symbols;
