//! The text of `perf script -F brstack`: printing it and reading it.
//!
//! An entry is `0xFROM/0xTO/PREDICTION/TX/ABORT/CYCLES/TYPE/SPEC`. perf has
//! printed six (up to 5.17), seven (to 6.0) and eight fields; aggregated texts
//! have the two addresses alone. With `-F dso` a path in parentheses follows
//! each address.

use std::fmt;

use lbr_msr::record::{BranchSpec, BranchType};

use crate::stack::RawBranch;

mod digits;
mod dump;
mod entry;
mod line;

pub use entry::{EntryError, parse_entry, type_of_name};
pub use line::{Line, LineError, parse_line};

/// Prints an entry as perf 6.12 does.
#[derive(Clone, Copy, Debug)]
pub struct Printed(pub RawBranch);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RawBranch { from, to, flags } = self.0;
        let prediction = match flags.mispredicted() {
            Some(true) => "M",
            Some(false) => "P",
            None => "-",
        };
        let not_taken = if flags.not_taken() { "N" } else { "" };
        let in_tx = if flags.in_tx() { 'X' } else { '-' };
        let abort = if flags.abort() { 'A' } else { '-' };
        let cycles = flags.cycles().unwrap_or(0);
        write!(f, "{from:#x}/{to:#x}/{prediction}{not_taken}/{in_tx}/{abort}/{cycles}/")?;
        if let Some(branch_type) = flags.branch_type() {
            f.write_str(&type_name(branch_type))?;
        }
        write!(f, "/{}", flags.spec().map_or("-", BranchSpec::name))
    }
}

/// perf's name of a type; `TYPE_n` for one that nobody documents.
#[must_use]
pub fn type_name(branch_type: BranchType) -> std::borrow::Cow<'static, str> {
    match branch_type.name() {
        Some(name) => name.into(),
        None => format!("TYPE_{}", branch_type.0).into(),
    }
}
