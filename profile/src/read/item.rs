//! What a reader hands out.

use lbr_msr::record::Event;

use super::names::Symbol;
use super::stack::{SampleHead, Stack};

/// One thing out of a recording.
#[derive(Debug)]
pub enum Item<'a> {
    /// A stack of branches.
    Stack(Stack<'a>),
    /// Straight code that ran, without the branches around it: counts that
    /// somebody else aggregated say that.
    Straight(Straight),
    /// Anything else.
    Event(Event),
    /// A sample that the [selection](crate::Recording::select) left out, and counted.
    LeftOut,
    /// What numbers mean that entries from now on have in place of addresses.
    Symbol(Symbol<'a>),
}

/// Straight code that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Straight {
    /// What ran it, and how often.
    pub head: SampleHead,
    /// Its first byte: the target of some branch.
    pub entry: u64,
    /// The branch at its end.
    pub exit: u64,
}
