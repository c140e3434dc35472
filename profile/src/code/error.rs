//! Why names cannot be had.

use std::path::PathBuf;

/// Why a file gives no symbols.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// It cannot be opened.
    #[error("cannot open {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// It is no regular file: a name in brackets, a device.
    #[error("{} is no regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is no ELF file.
    #[error("{} is no object file: {what}", path.display())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It is not the file that was recorded.
    #[error("{} was replaced since it was recorded (build ids differ): its symbols are not used", path.display())]
    BuildId {
        /// The file.
        path: PathBuf,
    },
    /// It has no symbol of that name.
    #[error("{} has no symbol {name}{}", path.display(), if *stripped { " (it is stripped)" } else { "" })]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// It has no symbols at all.
        stripped: bool,
    },
    /// Several symbols have that name.
    #[error("{} has {count} symbols {name}; give an address instead", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The name asked for.
        name: String,
        /// How many different addresses.
        count: usize,
    },
    /// The kernel that was recorded is not the one that runs here.
    #[error(
        "the kernel that was recorded ({recorded}) is not the one running here ({running}): its symbols are not used"
    )]
    OtherKernel {
        /// Release or build id of the recorded one.
        recorded: String,
        /// The same of the running one.
        running: String,
    },
    /// The ELF file that was given is another kernel's.
    #[error("{} is not the kernel that was recorded (build ids differ): its symbols are not used", path.display())]
    OtherVmlinux {
        /// The file.
        path: PathBuf,
    },
    /// Nothing says which kernel was recorded.
    #[error("the recording does not say which kernel ran: no kernel symbols are used")]
    UnknownKernel,
    /// The kernel shows zeros in place of addresses.
    #[error("{} shows no addresses (kernel.kptr_restrict, or no right to see them): the kernel's functions have no names", path.display())]
    Restricted {
        /// The list of kernel symbols.
        path: PathBuf,
    },
    /// It is no list of kernel symbols.
    #[error("{} is no list of kernel symbols", path.display())]
    NotKallsyms {
        /// The file.
        path: PathBuf,
    },
    /// A list of generated code that somebody else wrote.
    #[error("{} belongs neither to the user nor to root: its names are not used", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
    },
    /// A list of generated code longer than any sensible one.
    #[error("{} is too large ({size} bytes): its names are not used", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
}
