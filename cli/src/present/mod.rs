//! How values look to people and to programs.

pub(crate) mod bits;
pub(crate) mod chart;
pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod page;
