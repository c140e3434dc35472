//! Prints and parses the output of `perf script -F brstack`.
//!
//! An entry is `0xFROM/0xTO/PREDICTION/TX/ABORT/CYCLES/TYPE/SPEC`. perf prints six (up to 5.17),
//! seven (to 6.0) or eight fields; aggregated texts have only the two addresses. With `-F dso` a
//! path in parentheses follows each address. Symbols may replace addresses (`-F brstacksym`).

use std::fmt;

use lbr_msr::record::{BranchSpec, BranchType};

use crate::read::stack::RawBranch;

mod aggregated;
mod columns;
mod entry;
mod layout;
mod line;
mod parse;
mod records;
mod run;
mod split;
mod symbolic;
mod words;

pub use entry::parse_entry;
pub use line::{BranchCounters, EntryError, Line, LineError, SecondCount};
pub use parse::parse_line;
pub(crate) use parse::{Context, Split, Starts, begin, parse};
pub use records::event_text;
pub(crate) use split::{are_joined, is_bare};
pub(crate) use words::{has_time, seconds};

/// Prints an entry as perf 6.12 does.
#[derive(Clone, Copy, Debug)]
pub struct Printed(pub RawBranch);

impl Printed {
    /// Appends the text directly, without the formatting machinery: recordings have millions of
    /// entries.
    pub fn append(self, text: &mut Vec<u8>) {
        let RawBranch { from, to, .. } = self.0;
        text.extend_from_slice(b"0x");
        words::append_hex(text, from);
        text.extend_from_slice(b"/0x");
        words::append_hex(text, to);
        self.append_fields(text);
    }

    /// Appends the fields after the two addresses: `/P/-/-/0/COND/-`.
    pub fn append_fields(self, text: &mut Vec<u8>) {
        let flags = self.0.flags;
        text.extend_from_slice(match (flags.mispredicted(), flags.not_taken()) {
            (Some(true), false) => b"/M/",
            (Some(false), false) => b"/P/",
            (None, false) => b"/-/",
            (Some(true), true) => b"/MN/",
            (Some(false), true) => b"/PN/",
            (None, true) => b"/-N/",
        });
        text.extend_from_slice(if flags.in_tx() { b"X/" } else { b"-/" });
        text.extend_from_slice(if flags.abort() { b"A/" } else { b"-/" });
        words::append_decimal(text, flags.cycles().unwrap_or(0));
        text.push(b'/');
        if let Some(branch_type) = flags.branch_type() {
            text.extend_from_slice(type_name(branch_type).as_bytes());
        }
        text.push(b'/');
        text.extend_from_slice(flags.spec().map_or("-", BranchSpec::name).as_bytes());
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(64);
        self.append(&mut text);
        f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// perf's name of a type; `TYPE_n` for an undocumented one.
pub fn type_name(branch_type: BranchType) -> std::borrow::Cow<'static, str> {
    match branch_type.name() {
        Some(name) => name.into(),
        None => format!("TYPE_{}", branch_type.0).into(),
    }
}
