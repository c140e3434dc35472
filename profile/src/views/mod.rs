//! What people ask of a recording. A view counts what the cleaner hands it, and
//! never looks at a stack itself.

pub mod annotate;
pub mod arguments;
pub mod basic;
pub mod callgraph;
pub mod compare;
pub mod cycles;
pub mod flow;
pub mod hot;
pub mod lint;
pub mod loops;
mod modes;
pub mod overview;
pub mod paths;
pub mod types;
pub(crate) mod walk;
