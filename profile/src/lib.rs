//! What branch records mean: recordings in and out, symbols, analyses.
//!
//! Five rooms, each of which looks only at those before it:
//!
//! - *read*: [`perf_data`] writes and reads perf's recording format, [`brstack`]
//!   parses and prints the text of `perf script -F brstack`, [`recording`] opens
//!   either and streams its branch [`stack`]s, [`select`] says which samples of
//!   it count; [`names`] are what some texts have in place of addresses, and
//!   [`note`] is what our recordings say of a stack beyond perf's fields.
//! - *code*: [`maps`] say which file an address belongs to, [`symbols`] name it,
//!   [`lines`] give its source, [`place`] finds what people call it.
//! - *clean* says what of a stack is a branch that ran; [`quality`] is what it
//!   left out, and [`interval`] how sure a ratio is.
//! - *views* count: [`hot`] branches; [`flow`] outcomes, blocks ([`basic`]) and
//!   their [`cycles`]; [`annotate`] lays them on the code of a function;
//!   [`loops`] how often loops run round, [`callgraph`] who calls whom, [`paths`]
//!   which blocks run one after the other; [`lint`] whether to trust a recording,
//!   [`overview`] all of it by one walk.
//! - [`export`] makes what other tools read: profiles for LLVM, BOLT and AutoFDO.
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
//! Everything streams: memory is bounded by the number of distinct branches,
//! never by the size of a recording. It never prints.

mod clean;
mod code;
pub mod export;
mod index;
mod read;
mod texts;
mod views;

pub use clean::{interval, quality};
pub use code::{lines, maps, place, symbols};
pub use read::{brstack, names, note, perf_data, recording, registers, select, stack};
pub use views::*;

pub use clean::{Cleaned, Counter, Holds, Joins, Standing, Transition, View, Whole};
pub use flow::Flow;
pub use hot::HotTable;
pub use names::Symbol;
pub use read::text::ENDLESS;
pub use recording::{Item, Recording};
pub use select::Selection;
pub use stack::{Entries, EntryFlags, RawBranch, SampleHead, Stack, Thread};
