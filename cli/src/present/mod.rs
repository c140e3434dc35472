//! Presentation of values, for people and programs.

pub(crate) mod bits;
pub(crate) mod chart;
pub(crate) mod csv;
mod escape;
pub(crate) mod json;
pub(crate) mod layered;
mod number;
mod out;
pub(crate) mod page;
pub(crate) mod pager;
mod place;
mod shorten;
mod table;
pub(crate) mod terminal;

pub(crate) use escape::{escaped, escaped_lines};
pub(crate) use number::{
    applicable, counted, counted_nonzero, dash, ends, grouped, joined, nonzero, part, percent,
    share, summed,
};
pub(crate) use out::{
    BAD, DOUBTFUL, FAINT, GOOD, Out, Row, add, cells, cells_of, fail, folded, say, set, tell,
};
pub(crate) use place::{Part, Place, anchor};
pub(crate) use shorten::{offered, shortened, without_middle};
pub(crate) use table::{
    Cell, Heat, Item, Listed, Printer, Ranked, Sheet, TITLE, Table, write_list,
};
