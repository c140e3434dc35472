//! Code that we run to learn about a CPU: how long a piece of code takes
//! ([`measure`]), and whether branch records hold what is documented of them
//! ([`verify`]).
//!
//! It never prints.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod code;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod measure;
pub mod verify;
