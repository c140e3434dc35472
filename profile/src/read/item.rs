//! What a reader hands out.

use lbr_msr::record::Event;

use super::names::Symbol;
use super::stack::Stack;

/// One thing out of a recording.
#[derive(Debug)]
pub enum Item<'a> {
    /// A stack of branches.
    Stack(Stack<'a>),
    /// Anything else.
    Event(Event),
    /// A sample that the [selection](crate::Recording::select) left out, and counted.
    LeftOut,
    /// What numbers mean that entries from now on have in place of addresses.
    Symbol(&'a Symbol),
}
