//! Symbols of addresses: from ELF files and their debug files, the kernel's list, and the lists of
//! JIT compilers.

mod bytes;
mod elf;
mod jit;
mod kernel;
mod plt;
mod table;

use std::path::PathBuf;

pub use super::debug_file::DebugDirs;
pub use super::demangle::{Called, Fit, NotOne, demangle, groups};
pub use super::error::SymbolError;
pub use crate::read::build_id;
pub use elf::Module;
pub use kernel::RunningKernel;

pub(crate) use elf::isa;
pub(crate) use jit::{jit_list, read_jit_list};
pub(crate) use kernel::{ListedSymbols, module_addresses};
pub(crate) use table::SymbolExtent;

/// The places to search for symbols besides mapped files.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The places to search for debug files.
    pub debug: DebugDirs,
    /// The running kernel.
    pub kernel: RunningKernel,
    /// A list of kernel symbols to use regardless of the running kernel.
    pub kallsyms: Option<PathBuf>,
    /// The ELF file of the recorded kernel, for its symbols and lines. Without it, the file with
    /// its build ID in the usual places is used.
    pub vmlinux: Option<PathBuf>,
    /// The folder with the `perf-PID.map` files of JIT compilers.
    pub jit: PathBuf,
    /// Whether to use source lines and inlined functions.
    pub lines: bool,
}

impl Default for Sources {
    /// The same places as perf: the system's and the user's.
    fn default() -> Sources {
        Sources {
            debug: DebugDirs::usual(),
            kernel: RunningKernel::default(),
            kallsyms: None,
            vmlinux: None,
            jit: PathBuf::from("/tmp"),
            lines: true,
        }
    }
}
