//! Code that is written here and run: the assembler, the memory it lies in,
//! and the frame that it runs in. Measuring and verifying put their own into
//! the same frame.

pub(crate) mod assembler;
pub(crate) mod counted;
pub(crate) mod frame;
pub(crate) mod memory;
