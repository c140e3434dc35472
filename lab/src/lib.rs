//! Runs code to learn about a CPU: times pieces of code ([`measure`]), checks branch records
//! against their documentation ([`verify`]), and teaches how they work, step by step ([`learn`]).
//!
//! It never prints.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod code;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod learn;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod measure;
pub mod verify;
