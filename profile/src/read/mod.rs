//! Reading and writing recordings: perf.data and `perf script` output, their samples one by one,
//! and which of them to count.

pub(crate) mod address;
pub mod brstack;
pub(crate) mod item;
pub mod names;
pub mod note;
pub(crate) mod object_file;
pub mod perf_data;
pub mod recording;
pub mod registers;
pub mod select;
pub mod stack;
pub(crate) mod text;
