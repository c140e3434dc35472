//! From stacks to what counts: the one pass that every view counts behind.
//!
//! A stack comes in as it was recorded. [`Cleaner`] says which address space
//! its addresses mean, leaves out what is no branch that ran, and puts the rest
//! into the order in which it ran, each branch with the straight code before
//! it: a [`Transition`]. What it left out and why stands in [`Quality`] and
//! [`BlockQuality`], which are the same for every view of a recording by
//! construction. [`key`] says when two branches are one.
//!
//! A view is what implements [`View`]; [`Counter`] reads recordings for it.

mod cleaner;
mod counter;
pub(crate) mod few;
pub mod interval;
mod key;
mod odd;
pub(crate) mod pieces;
pub mod quality;
mod streams;
pub(crate) mod table;
mod threads;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::index::Product;
use crate::read::stack::Thread;

pub use cleaner::{Cleaned, Joins, Standing, Transition};
pub use counter::{Counter, View, Whole};
pub use streams::Holds;
pub(crate) use threads::{Run, Waiting};

pub(crate) use cleaner::{Cleaner, NO_BLOCK};
pub(crate) use key::{Key, distinct, firsts, place_hash};

/// What is known of each thread.
pub(crate) type ByThread<T> = HashMap<Thread, T, BuildHasherDefault<Product>>;

/// Counts claimed by a file must not overflow ours.
pub(crate) fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
