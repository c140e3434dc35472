//! Reading and writing perf.data.
//!
//! The [`writer`] appends to a pipe-format stream, which is readable at any moment, and converts
//! the file to a seekable one when recording ends cleanly. The reader streams either form, in
//! either byte order, from any Linux since 2.6.34, and returns branch stacks in place in its
//! buffer.
//!
//! Sources: Linux `include/uapi/linux/perf_event.h` (records, attributes),
//! `tools/perf/Documentation/perf.data-file-format.txt` (file).

mod attr;
mod bytes;
pub(crate) mod error;
mod features;
pub mod layout;
pub mod meta;
mod reader;
mod sample;
mod side;
mod unpack;
pub mod writer;

pub use attr::{EventAttr, Rate};
pub use error::{Notes, ReadError};
pub use features::FileInfo;
pub use meta::Meta;
pub(crate) use reader::{Input, Reader};
pub use writer::{WriteError, Writer, Written};
