//! Analyses of a recording. A view counts the branches that the cleaner returns, never raw stacks.

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
pub mod trace;
pub mod types;
pub(crate) mod walk;
