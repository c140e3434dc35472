//! Names of addresses: out of ELF files and the debug files beside them, the
//! kernel's list, and the lists that run-time compilers leave.

mod debug_file;
mod elf;
mod error;
mod image;
mod jit;
mod kernel;
mod packed;
mod plt;
mod table;

use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::Object;
use object::read::ReadCache;

pub use debug_file::DebugDirs;
pub use elf::Module;
pub use error::SymbolError;
pub use kernel::RunningKernel;

pub(crate) use debug_file::{Wanted, alternate, debug_file, hex};
pub(crate) use jit::JitMap;
pub(crate) use kernel::{KERNEL_NAME, KernelSymbols, ModuleAddresses};
pub(crate) use table::Found;

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

pub(crate) fn open_regular(path: &Path) -> Result<File, SymbolError> {
    let cause = |cause| SymbolError::Open { path: path.to_owned(), cause };
    // Looked at before it is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(cause)?.is_file() {
        return Err(SymbolError::NotAFile { path: path.to_owned() });
    }
    File::open(path).map_err(cause)
}

/// Build id of a file; `None` where it has none or is no object file.
#[must_use]
pub fn build_id(path: &Path) -> Option<Vec<u8>> {
    if !path.is_absolute() {
        return None;
    }
    let cache = ReadCache::new(open_regular(path).ok()?);
    let object = object::File::parse(&cache).ok()?;
    object.build_id().ok().flatten().map(<[u8]>::to_vec)
}

/// Address of a function of a file, as its symbol table counts.
///
/// # Errors
/// [`SymbolError`].
pub fn find_symbol(path: &Path, name: &str) -> Result<u64, SymbolError> {
    Module::open(path)?.find(name)
}

/// The name as its language writes it; Rust's without the hash.
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}").into();
    }
    if name.starts_with("_Z") {
        let demangled = cpp_demangle::Symbol::new(name).ok().and_then(|s| s.demangle().ok());
        if let Some(cpp) = demangled {
            return cpp.into();
        }
    }
    name.into()
}

/// Whether a person who writes `wanted` means the symbol `name`: as in the
/// file, demangled, or demangled without its parameters.
pub(crate) fn is_called(name: &str, wanted: &str) -> bool {
    let demangled = demangle(name);
    // A part that the compiler moved away (`.cold`) has a name of its own.
    *demangled == *wanted
        || (!name.contains('.')
            && demangled.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('(')))
}
