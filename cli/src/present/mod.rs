//! Presentation of values, for people and programs.

pub(crate) mod bits;
pub(crate) mod chart;
pub(crate) mod csv;
pub(crate) mod escape;
pub(crate) mod json;
pub(crate) mod layered;
pub(crate) mod number;
pub(crate) mod out;
pub(crate) mod page;
pub(crate) mod pager;
pub(crate) mod place;
pub(crate) mod shorten;
pub(crate) mod table;
pub(crate) mod terminal;
