//! Analysis of branch recordings: reading, writing, symbols, and views.
//!
//! Five layers, each of which uses only those before it:
//!
//! - *read*: [`perf_data`] writes and reads perf's recording format, [`brstack`] parses and prints
//!   the output of `perf script -F brstack`, [`recording`] opens either and streams its branch
//!   [`stack`]s, [`select`] decides which samples count; [`names`] replace addresses in some texts,
//!   and [`note`] holds data about a stack that perf's fields cannot.
//! - *code*: [`maps`] find the file at an address, [`symbols`] its name, [`lines`] its source line,
//!   and [`place`] parses code locations.
//! - *clean* turns stacks into executed branches; [`quality`] counts what it drops, and
//!   [`interval`] computes confidence intervals.
//! - *views* count: [`hot`] branches; [`flow`] outcomes, blocks ([`basic`]) and their [`cycles`];
//!   [`annotate`] shows them in a function's code; [`loops`] counts iterations, [`callgraph`]
//!   callers and callees, [`paths`] sequences of blocks; [`lint`] checks whether to trust a
//!   recording, and [`overview`] combines them in one pass.
//! - [`export`] writes files for other tools: profiles for LLVM, BOLT and AutoFDO.
//!
//! ```
//! use lbr_profile::{HotTable, Recording};
//!
//! // As `perf script -F brstack` prints it: two branches, the newest first.
//! let text = "0x401020/0x401000/M/-/-/7  0x401008/0x401010/P/-/-/3\n";
//! let mut recording = Recording::from_stream(Box::new(text.as_bytes()))?;
//! let hot = HotTable::count(&mut recording, |_, _| {})?;
//! assert_eq!((hot.total, hot.mispredicted), (2, Some(1)));
//! # Ok::<(), lbr_profile::perf_data::ReadError>(())
//! ```
//!
//! Everything streams: memory is bounded by the number of distinct branches, never by the size of a
//! recording. The crate never prints.

mod clean;
mod code;
pub mod export;
mod index;
mod read;
mod texts;
mod varint;
mod views;

pub use clean::{interval, quality};
pub use code::{hex, lines, maps, place, symbols};
pub use read::{brstack, names, note, perf_data, recording, registers, select, stack};
pub use views::*;

pub use clean::{
    Cleaned, CommonResult, Continuity, Counter, LastBranch, RecordedBranches, Transition, View,
};
pub use flow::Flow;
pub use hot::HotTable;
pub use names::Symbol;
pub use read::text::ENDLESS;
pub use recording::{Item, Recording};
pub use select::Selection;
pub use stack::{Entries, EntryFlags, RawBranch, SampleHead, Stack, Thread};
pub use views::walk::SpillError;
