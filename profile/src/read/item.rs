//! The items that a reader returns.

use lbr_msr::record::Event;

use super::names::Symbol;
use super::stack::{SampleHead, Stack};

/// An item of a recording.
#[derive(Debug)]
pub enum Item<'a> {
    /// A stack of branches.
    Stack(Stack<'a>),
    /// A fall-through range without the branches around it, from aggregated counts.
    Straight(Straight),
    /// Anything else.
    Event(Event),
    /// A sample that the [selection](crate::Recording::select) dropped and counted.
    LeftOut,
    /// The symbol for numbers that replace addresses in later entries.
    Symbol(Symbol<'a>),
}

/// A fall-through range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straight {
    /// The thread that executed it, and its count.
    pub head: SampleHead,
    /// Its first byte: the target of some branch.
    pub entry: u64,
    /// The branch at its end.
    pub exit: u64,
}
