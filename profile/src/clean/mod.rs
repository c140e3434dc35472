//! Cleaning: the single pass from recorded stacks to counted branches.
//!
//! For each recorded stack, [`Cleaner`] determines the address space, drops entries that are not
//! executed branches, and puts the rest in execution order, each with the fall-through range before
//! it: a [`Transition`]. [`Quality`] and [`BlockQuality`] count what it dropped and why; they are
//! the same for every view of a recording. [`key`] defines when two branches are the same.
//!
//! Views implement [`View`]; [`Counter`] reads recordings for them.

mod artefacts;
mod cleaner;
mod counter;
pub(crate) mod few;
pub mod interval;
mod key;
mod moves;
pub(crate) mod pieces;
pub mod quality;
mod streams;
pub(crate) mod table;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::index::Product;
use crate::read::stack::Thread;

pub use cleaner::{Cleaned, LastBranch, Transition};
pub use counter::{CommonResult, Counter, View};
pub use moves::Continuity;
pub use streams::RecordedBranches;

pub(crate) use cleaner::{Cleaner, NO_BLOCK};
pub(crate) use key::{Key, distinct, firsts, place_hash};
pub(crate) use moves::ContextChange;

/// Data per thread.
pub(crate) type ByThread<T> = HashMap<Thread, T, BuildHasherDefault<Product>>;
