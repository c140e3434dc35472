//! What branch records mean: recordings in and out, symbols, analyses.
//!
//! - [`perf_data`] writes and reads perf's recording format,
//! - [`brstack`] parses and prints the text of `perf script -F brstack`,
//! - [`recording`] opens either, and streams its branch [`stack`]s,
//! - [`select`] says which samples of it count,
//! - [`symbols`] names addresses, [`lines`] gives their source, [`maps`] says
//!   which file they belong to, [`place`] finds what people call them,
//! - [`hot`] counts branches, [`flow`] follows control through them: outcomes,
//!   blocks ([`basic`]) and their [`cycles`]; [`annotate`] lays them on the code of
//!   a function,
//! - [`loops`] counts how often loops run round, [`callgraph`] who calls whom,
//!   [`paths`] which blocks run one after the other,
//! - [`interval`] says how sure a ratio is, [`clean`] what is no branch that ran,
//!   [`lint`] whether to trust a recording, [`overview`] all of it by one walk, [`quality`] what speaks against it,
//! - [`names`] are what some texts have in place of addresses,
//! - [`note`] is what our recordings say of a stack beyond perf's fields.
//!
//! Everything streams: memory is bounded by the number of distinct branches,
//! never by the size of a recording. It never prints.

pub mod annotate;
pub mod basic;
pub mod brstack;
pub mod callgraph;
pub mod clean;
mod code;
mod collect;
pub mod cycles;
pub mod flow;
pub mod hot;
mod index;
pub mod interval;
pub mod lines;
pub mod lint;
pub mod loops;
pub mod maps;
mod modes;
pub mod names;
pub mod note;
pub mod overview;
pub mod paths;
pub mod perf_data;
pub mod place;
pub mod quality;
pub mod recording;
pub mod select;
pub mod stack;
pub mod symbols;
mod table;
mod text;
mod walk;

pub use flow::Flow;
pub use hot::HotTable;
pub use names::Symbol;
pub use recording::{Item, Recording};
pub use select::Selection;
pub use stack::{Entries, EntryFlags, RawBranch, SampleHead, Stack};
pub use walk::Read;
