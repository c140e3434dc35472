//! Code that we run to learn about a CPU: how long a piece of code takes
//! ([`measure`]), whether branch records hold what is documented of them
//! ([`verify`]), and what they do, step by step ([`learn`]).
//!
//! It never prints.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod code;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod learn;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod measure;
pub mod verify;
