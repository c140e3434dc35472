//! perf.data, out and in.
//!
//! The [`writer`] appends a pipe-format stream, which any moment leaves
//! readable, and turns the file into a seekable one when recording ends
//! cleanly. The [`reader`] streams either form, in either byte order, written
//! by any Linux since 2.6.34, and hands out branch stacks where they lie in
//! its buffer.
//!
//! Sources: Linux `include/uapi/linux/perf_event.h` (records, attributes),
//! `tools/perf/Documentation/perf.data-file-format.txt` (file).

mod attr;
mod bytes;
pub(crate) mod error;
mod features;
pub mod layout;
pub mod meta;
pub mod reader;
mod sample;
mod side;
mod unpack;
pub mod writer;

pub use attr::EventAttr;
pub use error::{Notes, ReadError};
pub use features::FileInfo;
pub use meta::{Meta, Rate};
pub(crate) use reader::Next;
pub use reader::{Reader, Record};
pub use writer::{WriteError, Writer};
