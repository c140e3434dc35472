//! Generates and runs machine code: the assembler, executable memory, and the frame around
//! generated code, which `measure` and `verify` share.

pub(crate) mod assembler;
pub(crate) mod counted;
pub(crate) mod frame;
pub(crate) mod memory;
