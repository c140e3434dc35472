//! Why names cannot be had.

use lbr_msr::text::AsText;
use std::path::PathBuf;

use super::debug_file::hex;
use super::demangle::NotOne;

/// Why a file gives no symbols.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymbolError {
    /// It cannot be opened.
    #[error("cannot open {}: {cause}", path.as_text())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's words.
        cause: std::io::Error,
    },
    /// It is no regular file: a name in brackets, a device.
    #[error("{} is no regular file", path.as_text())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It is no ELF file.
    #[error("{} is no object file: {what}", path.as_text())]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Nothing lies where it was recorded, nor where else it was looked for.
    #[error("{path}{} is not there{}", recorded_id(build_id.as_deref()), looked_in(folders))]
    NotFound {
        /// The file, as the recording has it.
        path: String,
        /// Its build id, as the recording has it.
        build_id: Option<Vec<u8>>,
        /// The folders that were looked in beside.
        folders: Vec<PathBuf>,
    },
    /// It is not the file that was recorded.
    #[error(
        "{} was replaced since it was recorded (build ids differ: {} was recorded, it has {}): its symbols are not used",
        path.as_text(), hex(recorded), found.as_deref().map_or_else(|| "none".to_owned(), hex)
    )]
    BuildId {
        /// The file.
        path: PathBuf,
        /// The build id that the recording has.
        recorded: Vec<u8>,
        /// The file's own.
        found: Option<Vec<u8>>,
    },
    /// The branches that were recorded are not those of its code.
    #[error(
        "{} is not the file that was recorded: of {of} branches from it {no_branch} come from no branch instruction \
         and {elsewhere} go elsewhere than theirs{} (the first at byte {first:#x}): its symbols are not used",
        path.as_text(), no_code(*impossible)
    )]
    Contradicted {
        /// The file.
        path: PathBuf,
        /// Distinct branches that were held against its code.
        of: u32,
        /// How many come from no branch instruction.
        no_branch: u32,
        /// How many come from one that leads elsewhere.
        elsewhere: u32,
        /// Blocks between branches that no instructions make up.
        impossible: u32,
        /// Where in the file the first of them comes from.
        first: u64,
    },
    /// It was recorded on another machine, and nothing shows that this one has
    /// the same.
    #[error(
        "{} is this machine's, and {recorded} was recorded, which says no build id of it: its symbols are not used",
        path.as_text()
    )]
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// Name or kernel of the machine that was recorded.
        recorded: String,
    },
    /// It has no function of that name, or several.
    #[error("{} has {why}{}", path.as_text(), if *stripped { " (it is stripped)" } else { "" })]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// Which of the two.
        why: NotOne,
        /// It has no symbols at all.
        stripped: bool,
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
    #[error("{} is not the kernel that was recorded (build ids differ): its symbols are not used", path.as_text())]
    OtherVmlinux {
        /// The file.
        path: PathBuf,
    },
    /// Nothing says which kernel was recorded.
    #[error("the recording does not say which kernel ran: no kernel symbols are used")]
    UnknownKernel,
    /// The kernel shows zeros in place of addresses.
    #[error("{} shows no addresses (kernel.kptr_restrict, or no right to see them): the kernel's functions have no names", path.as_text())]
    Restricted {
        /// The list of kernel symbols.
        path: PathBuf,
    },
    /// It is no list of kernel symbols.
    #[error("{} is no list of kernel symbols", path.as_text())]
    NotKallsyms {
        /// The file.
        path: PathBuf,
    },
    /// A list of generated code that somebody else wrote.
    #[error("{} belongs neither to the user nor to root: its names are not used", path.as_text())]
    Owner {
        /// The file.
        path: PathBuf,
    },
    /// A list of generated code longer than any sensible one.
    #[error("{} is too large ({size} bytes): its names are not used", path.as_text())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
    },
}

impl SymbolError {
    /// Whether there is a file, and it is not the one that was recorded.
    #[must_use]
    pub fn is_other_file(&self) -> bool {
        use SymbolError::{BuildId, Contradicted, OtherMachine};
        matches!(self, BuildId { .. } | Contradicted { .. } | OtherMachine { .. })
    }
}

fn no_code(impossible: u32) -> String {
    match impossible {
        0 => String::new(),
        blocks => format!(", and {blocks} blocks between them are no code"),
    }
}

fn recorded_id(id: Option<&[u8]>) -> String {
    id.map(|id| format!(" (build id {})", hex(id))).unwrap_or_default()
}

fn looked_in(folders: &[PathBuf]) -> String {
    if folders.is_empty() {
        return String::new();
    }
    let folders: Vec<String> = folders.iter().map(|folder| folder.as_text().into_owned()).collect();
    format!(", nor in {}", folders.join(", "))
}
