//! Names of addresses: out of ELF files and the debug files beside them, the
//! kernel's list, and the lists that run-time compilers leave.

mod bytes;
mod elf;
mod jit;
mod kernel;
mod packed;
mod plt;
mod table;

use std::path::{Path, PathBuf};

pub use super::debug_file::DebugDirs;
pub use super::demangle::{Called, Fit, NotOne, demangle, groups};
pub use super::error::SymbolError;
pub use crate::read::object_file::build_id;
pub use elf::Module;
pub use kernel::RunningKernel;

pub(crate) use jit::JitMap;
pub(crate) use kernel::{KernelSymbols, ModuleAddresses};
pub(crate) use table::SymbolExtent;

/// Where names are looked for beside the files that were mapped.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Where debug files are looked for.
    pub debug: DebugDirs,
    /// The kernel that runs here.
    pub kernel: RunningKernel,
    /// A list of kernel symbols that is right whatever kernel runs here.
    pub kallsyms: Option<PathBuf>,
    /// The ELF file of the kernel that was recorded, for its symbols and lines.
    /// Without it the one in the usual places is taken that has its build id.
    pub vmlinux: Option<PathBuf>,
    /// Where run-time compilers leave `perf-PID.map`.
    pub jit: PathBuf,
    /// Whether source lines and inlined functions are looked for.
    pub lines: bool,
}

impl Default for Sources {
    /// As perf has it: the system's places, and those of the user.
    fn default() -> Sources {
        Sources {
            debug: DebugDirs::default(),
            kernel: RunningKernel::default(),
            kallsyms: None,
            vmlinux: None,
            jit: PathBuf::from("/tmp"),
            lines: true,
        }
    }
}

/// Address of a function of a file, as its symbol table counts.
///
/// # Errors
/// [`SymbolError`].
pub fn find_symbol(path: &Path, name: &str) -> Result<u64, SymbolError> {
    Module::open(path)?.find(name)
}
